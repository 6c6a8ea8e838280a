//! Frozen answers: a change of any of them is a new scheme name, not a new file.
//!
//! `v1.txt` is derived a second time in Python, from the description alone, and that derivation is a test
//! too. Planned tables (`slots.txt`) cannot be derived, since of several best tables any may be stored;
//! they are frozen as they came out first, and checked in Python for all that they must satisfy.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clockwise_placement::{
    KeyHash, Maglev, Member, NodeId, NodeIx, Placement, PlacementError, Position, Rendezvous,
    RingSpec, Scheme, SlotsSpec, Spread,
};

const CASES: &str = include_str!("../golden/cases.txt");
const V1: &str = include_str!("../golden/v1.txt");
const SLOTS: &str = include_str!("../golden/slots.txt");

/// One line of `cases.txt`.
struct Case {
    kind: &'static str,
    name: &'static str,
    fields: BTreeMap<&'static str, &'static str>,
}

impl Case {
    fn all() -> Vec<Self> {
        let lines = CASES
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let case = |line: &'static str| {
            let mut words = line.split_whitespace();
            let (kind, name) = (words.next().expect("a kind"), words.next().expect("a name"));
            let fields = words
                .map(|field| field.split_once('=').expect("field=value"))
                .collect();
            Self { kind, name, fields }
        };
        lines.map(case).collect()
    }

    fn number<T: std::str::FromStr>(&self, field: &str, default: T) -> T {
        let parse = |text: &&str| text.parse().unwrap_or_else(|_| panic!("{field}={text}"));
        self.fields.get(field).map_or(default, parse)
    }

    fn members(&self, field: &str) -> Vec<Member> {
        let members = self
            .fields
            .get(field)
            .into_iter()
            .flat_map(|text| text.split(','));
        let member = |text: &str| {
            let [name, weight, domain] = text.split(':').collect::<Vec<_>>()[..] else {
                panic!("{text} is no id:weight:domain");
            };
            Member::new(name.parse().expect("a name"))
                .with_weight(weight.parse().expect("a weight"))
                .with_domain(domain.parse().expect("a path"))
        };
        members.map(member).collect()
    }

    fn scheme(&self) -> Scheme {
        let (function, argument) = self.fields["hash"]
            .split_once(':')
            .expect("function:argument");
        Scheme::v1(match function {
            "xxh3" => KeyHash::Xxh3 {
                seed: argument.parse().expect("a seed"),
            },
            "siphash13" => {
                let byte = |at: usize| u8::from_str_radix(&argument[2 * at..2 * at + 2], 16);
                KeyHash::SipHash13 {
                    key: std::array::from_fn(|at| byte(at).expect("a hex byte")),
                }
            }
            other => panic!("no hash is called {other}"),
        })
    }

    fn spread(&self) -> Spread {
        let depth = self.fields.get("spread");
        depth.map_or(Spread::Widest, |depth| Spread::Distinct {
            depth: depth.parse().expect("a depth"),
        })
    }

    fn ring(&self, members: &str, points: &str) -> Result<Placement, PlacementError> {
        let spec = RingSpec {
            scheme: self.scheme(),
            points_per_weight: self.number(points, 200),
            replicas: self.number("replicas", 1),
            spread: self.spread(),
            ..RingSpec::new(self.members(members))
        };
        spec.build()
    }

    fn keys(&self) -> impl Iterator<Item = String> {
        (0..self.number("keys", 0)).map(|number| format!("user:{number}"))
    }

    fn answer(&self, answers: &mut String, what: &str, owners: impl Iterator<Item = NodeId>) {
        let owners: Vec<String> = owners.map(|id| id.to_string()).collect();
        self.line(answers, &format!("{what} {}", owners.join(",")));
    }

    fn line(&self, answers: &mut String, text: &str) {
        writeln!(answers, "{} {} {text}", self.kind, self.name).expect("a string takes everything");
    }
}

/// What this crate answers to the cases that have but one answer.
fn v1(case: &Case, answers: &mut String) {
    match case.kind {
        "hash" => {
            let lengths = (0..34).chain([
                63, 64, 65, 95, 96, 97, 127, 128, 129, 160, 192, 239, 240, 241,
            ]);
            for length in lengths.chain([256, 500, 1024, 1025, 2049, 5000]) {
                let bytes: Vec<u8> = (0..length).map(|at| (7 * at + length) as u8).collect();
                let position = case.scheme().position(&bytes);
                case.line(
                    answers,
                    &format!("{} {length} {position}", case.fields["hash"]),
                );
            }
        }
        "points" => {
            let copies = || {
                case.fields["copies"]
                    .split(',')
                    .map(|copy| copy.parse().expect("a copy"))
            };
            // Members come sorted by id everywhere.
            let mut members = case.members("members");
            members.sort_by(|a, b| a.id.cmp(&b.id));
            for member in members {
                for copy in copies() {
                    let position = case.scheme().point(&member.id, copy);
                    case.line(answers, &format!("{} {copy} {position}", member.id));
                }
            }
        }
        "ring" => {
            let Ok(ring) = case.ring("members", "points") else {
                return case.line(answers, "refused");
            };
            case.line(answers, &format!("fingerprint {}", ring.fingerprint()));
            for key in case.keys() {
                case.answer(answers, &key, ring.replicas(key.as_bytes()).cloned());
            }
        }
        "rendezvous" => {
            let nodes =
                Rendezvous::new(case.scheme(), case.members("members")).expect("sound nodes");
            let mut members = case.members("members");
            members.sort_by(|a, b| a.id.cmp(&b.id));
            for key in case.keys() {
                let ranked = nodes.preference(case.scheme().position(key.as_bytes()));
                case.answer(
                    answers,
                    &key,
                    ranked.map(|node| members[node.get()].id.clone()),
                );
            }
        }
        "maglev" => {
            let size = case.number("size", 0);
            let maglev =
                Maglev::new(case.scheme(), case.members("members"), size).expect("a table");
            let placement = maglev.placement();
            let entries = placement
                .points()
                .map(|(_, node)| placement.node(node).id.to_string());
            case.line(answers, &entries.collect::<Vec<_>>().join(","));
        }
        "slots" => {}
        other => panic!("no case is a {other}"),
    }
}

/// What this crate plans.
fn slots(case: &Case, answers: &mut String) {
    let spec = |members: &str, slots: &str| SlotsSpec {
        scheme: case.scheme(),
        slots: case.number(slots, case.number("slots", 0)),
        replicas: case.number("replicas", 1),
        spread: case.spread(),
        overload_percent: case.number("overload", 0),
        step_percent: case.number("step", 100),
        ..SlotsSpec::new(case.members(members))
    };
    let owners = |placement: &Placement, owners: &[NodeIx]| {
        owners
            .iter()
            .map(|&node| placement.node(node).id.clone())
            .collect::<Vec<_>>()
            .into_iter()
    };
    let before = case.fields.get("before").map(|_| {
        if case.fields.contains_key("before-points") {
            return case.ring("before", "before-points").expect("a sound ring");
        }
        let before = spec("before", "before-slots").plan(None);
        before.expect("sound slots").placement
    });
    let Ok(plan) = spec("members", "slots").plan(before.as_ref()) else {
        return case.line(answers, "refused");
    };
    for (of, placement) in before
        .iter()
        .map(|before| ("before", before))
        .chain([("row", &plan.placement)])
    {
        case.line(
            answers,
            &format!("{of}-fingerprint {}", placement.fingerprint()),
        );
        for (slot, (_, row)) in placement.intervals().enumerate() {
            case.answer(answers, &format!("{of} {slot}"), owners(placement, row));
        }
    }
    if before.is_some() {
        case.line(answers, &format!("moved {}", plan.copies_moved));
    }
    for key in case.keys() {
        case.answer(
            answers,
            &key,
            plan.placement.replicas(key.as_bytes()).cloned(),
        );
    }
}

fn differences(ours: &str, golden: &str) -> Vec<String> {
    let mut differences = Vec::new();
    let (mut ours, mut golden) = (ours.lines(), golden.lines());
    loop {
        match (ours.next(), golden.next()) {
            (None, None) => return differences,
            (ours, golden) if ours == golden => {}
            (ours, golden) => differences.push(format!("{ours:?} instead of {golden:?}")),
        }
    }
}

// quickwit-oss/quickwit#4338: the default hasher changed with a release of Rust and split the placement.
// qdrant/qdrant#6940: how a type is fed to a hasher may change as well; here bytes are encoded by hand.
#[test]
fn no_answer_of_the_first_scheme_has_changed() {
    let mut answers = String::new();
    Case::all().iter().for_each(|case| v1(case, &mut answers));
    let differences = differences(&answers, V1);
    assert!(
        differences.is_empty(),
        "{} differ, first {:?}",
        differences.len(),
        differences.first()
    );
    assert!(V1.lines().count() > 3000);
}

#[test]
fn no_planned_table_has_changed() {
    let mut answers = String::new();
    Case::all()
        .iter()
        .filter(|case| case.kind == "slots")
        .for_each(|case| slots(case, &mut answers));
    freeze_new_tables(&answers);
    let differences = differences(&answers, SLOTS);
    assert!(
        differences.is_empty(),
        "{} differ, first {:?}",
        differences.len(),
        differences.first()
    );
}

/// Writes the tables with `CLOCKWISE_FREEZE=slots`: for a new case only, what was frozen must not change.
#[expect(
    clippy::disallowed_methods,
    reason = "the test looks and writes, the crate does not"
)]
fn freeze_new_tables(answers: &str) {
    if std::env::var("CLOCKWISE_FREEZE").is_ok_and(|freeze| freeze == "slots") {
        std::fs::write(golden("slots.txt"), answers).expect("the golden file can be written");
    }
}

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// Runs the second derivation over the cases; Debian's package is `python3`.
fn derive(arguments: &[PathBuf]) -> String {
    let mut python = Command::new("python3")
        .arg(golden("derive.py"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is there: apt-get install python3");
    let mut input = python.stdin.take().expect("its input is ours");
    input
        .write_all(CASES.as_bytes())
        .expect("it reads all cases");
    drop(input);
    let output = python.wait_with_output().expect("it ends");
    assert!(output.status.success(), "the derivation failed, see above");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_derivation_in_another_language_gives_the_same_answers() {
    let differences = differences(&derive(&[]), V1);
    assert!(
        differences.is_empty(),
        "{} differ, first {:?}",
        differences.len(),
        differences.first()
    );
}

#[test]
fn planned_tables_hold_what_another_language_asks_of_them() {
    assert_eq!(
        derive(&["check".into(), golden("slots.txt")]),
        "the planned slots hold\n"
    );
}

#[test]
fn a_position_beyond_the_last_point_belongs_to_the_first() {
    let case = Case::all()
        .into_iter()
        .find(|case| case.kind == "ring")
        .expect("a ring");
    let ring = RingSpec::new(case.members("members"))
        .build()
        .expect("a sound ring");
    let first = ring.points().next().expect("a point").1;
    assert_eq!(ring.owner_at(Position::MAX), first);
}
