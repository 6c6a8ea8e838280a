//! Runs the golden scripts of `tests/scripts`: commands, a line `----`, what they answer, an empty line.
//!
//! `CLOCKWISE_GOLDEN=write cargo test -p clockwise-cluster scripts` writes the answers of today into the
//! files; what then differs is read and judged like any other change.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use clockwise_cluster::{
    Apply, Counts, Edit, Epoch, Generator, HandoffId, HashSpec, Held, NewPool, Record, SchemeSpec,
    SecretKey, ServiceClass, SlotRules, StagedId, Throttle, Unstage,
};
use clockwise_placement::NodeId;

use crate::pool::{address, id, nonces, pool, step_to};

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the crate reads no files, its tests read their scripts"
)]
fn every_script_answers_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut scripts: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    scripts.sort();
    assert!(
        scripts.len() >= 6,
        "only {} scripts in {}",
        scripts.len(),
        folder.display()
    );
    let rewrite = std::env::var_os("CLOCKWISE_GOLDEN").is_some_and(|value| value == "write");
    let mut differing = String::new();
    for script in scripts {
        let written = std::fs::read_to_string(&script).unwrap();
        let played = play(&written);
        if played == written {
            continue;
        }
        if rewrite {
            std::fs::write(&script, played).unwrap();
        } else {
            write!(
                differing,
                "\n{}:\n{}",
                script.display(),
                differences(&written, &played)
            )
            .unwrap();
        }
    }
    assert!(differing.is_empty(), "{differing}");
}

/// The lines that differ.
fn differences(written: &str, played: &str) -> String {
    let (mut written, mut played) = (written.lines(), played.lines());
    let mut out = String::new();
    loop {
        match (written.next(), played.next()) {
            (None, None) => return out,
            (old, new) if old == new => {}
            (old, new) => {
                for (sign, line) in [('-', old), ('+', new)] {
                    if let Some(line) = line {
                        writeln!(out, "{sign} {line}").unwrap();
                    }
                }
            }
        }
    }
}

/// The script with the answers that its commands give.
fn play(script: &str) -> String {
    let mut stage = Stage {
        record: None,
        now_ms: 0,
    };
    let mut out = String::new();
    let mut lines = script.lines().peekable();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let mut answer = stage.run(line);
        while let Some(line) = lines.next_if(|line| *line != "----") {
            writeln!(out, "{line}").unwrap();
            answer = answer + &stage.run(line);
        }
        writeln!(out, "----\n{}", answer.trim_end()).unwrap();
        while lines.next_if(|line| !line.is_empty()).is_some() {}
    }
    out
}

struct Stage {
    record: Option<Record>,
    now_ms: u64,
}

impl Stage {
    fn run(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A second passes with every command.
        self.now_ms += 1_000;
        match self.answer(&words) {
            Ok(text) => text,
            Err(error) => format!("error: {error}\n"),
        }
    }

    fn record(&self) -> &Record {
        self.record.as_ref().expect("a script begins with a pool")
    }

    fn next(&mut self, record: Record) -> String {
        let before = self.record.replace(record);
        let (before, after) = (before.map(|record| record.epoch()), self.record().epoch());
        match before.filter(|before| *before != after) {
            Some(before) => format!("epoch {before} -> {after}\n"),
            None => "ok\n".to_owned(),
        }
    }

    fn answer(&mut self, words: &[&str]) -> Result<String, String> {
        fn text<E: std::error::Error>(error: E) -> String {
            error.to_string()
        }
        let now_ms = self.now_ms;
        let next = match words {
            ["pool", nodes @ ..] => Record::create(new_pool(nodes), &mut nonces()).map_err(text)?,
            ["show"] => return Ok(show(self.record())),
            ["plan", held @ ..] => {
                return Ok(self
                    .record()
                    .plan(&read_held(held))
                    .map_err(text)?
                    .to_string());
            }
            ["stage", edit @ ..] => self.record().stage(read_edit(edit)).map_err(text)?,
            ["unstage", what] => {
                let which = match (*what, what.parse()) {
                    ("all", _) => Unstage::All,
                    (_, Ok(number)) => Unstage::Edit(StagedId(number)),
                    (node, Err(_)) => Unstage::Node(id(node)),
                };
                self.record().unstage(&which).map_err(text)?
            }
            ["apply", name, "at", epoch] => {
                let request = Apply {
                    expected: Epoch::new(epoch.parse().unwrap()),
                    id: name.parse().unwrap(),
                    now_ms,
                    nonces: &mut nonces(),
                };
                self.record().apply(request).map_err(text)?
            }
            ["step", handoff, state] => {
                let handoff = read_handoff(handoff);
                let step = step_to(self.record(), &handoff, state);
                self.record().step(&handoff, &step, now_ms).map_err(text)?
            }
            ["counts", handoff, keys, bytes, mismatches] => {
                let counts = Counts {
                    keys_moved: keys.parse().unwrap(),
                    bytes: bytes.parse().unwrap(),
                    mismatches: mismatches.parse().unwrap(),
                };
                self.record()
                    .with_counts(&read_handoff(handoff), counts)
                    .map_err(text)?
            }
            ["throttle", keys, bytes] => self.record().with_throttle(Throttle {
                keys_per_second: keys.parse().unwrap(),
                bytes_per_second: bytes.parse().unwrap(),
            }),
            ["wait", ms] => {
                self.now_ms += ms.parse::<u64>().unwrap();
                return Ok(String::new());
            }
            ["roll-back-stale"] => self
                .record()
                .roll_back_stale_handover(now_ms)
                .map_err(text)?,
            ["abort"] => self.record().abort(now_ms).map_err(text)?,
            ["end"] => self.record().end_change(now_ms).map_err(text)?,
            other => panic!("no command {other:?}"),
        };
        Ok(self.next(next))
    }
}

/// `a b=2 c@eu/1 points=5 replicas=2 class=cache`, or `slots=64` instead of points.
fn new_pool(words: &[&str]) -> NewPool {
    let mut nodes = Vec::new();
    let (mut points, mut replicas, mut class) = (200, 1, ServiceClass::Store);
    let mut slots = None;
    for word in words {
        match word.split_once('=') {
            Some(("points", given)) => points = given.parse().unwrap(),
            Some(("slots", given)) => slots = Some(read_slots(given, &[])),
            Some(("replicas", given)) => replicas = given.parse().unwrap(),
            Some(("class", "cache")) => class = ServiceClass::Cache,
            _ => nodes.push(*word),
        }
    }
    let names: Vec<&str> = nodes
        .iter()
        .map(|node| node.split('@').next().unwrap())
        .collect();
    let mut new = NewPool {
        replicas,
        class,
        ..pool(&names.join(" "), points)
    };
    if let Some(generator) = slots {
        new.generator = generator;
    }
    for (node, word) in new.nodes.iter_mut().zip(&nodes) {
        node.domain = word
            .split_once('@')
            .map_or("", |(_, domain)| domain)
            .parse()
            .unwrap();
    }
    new
}

fn read_edit(words: &[&str]) -> Edit {
    match words {
        ["add", node, rest @ ..] => Edit::Add {
            id: id(node),
            address: address(node),
            weight: option(rest, "weight").unwrap_or("1").parse().unwrap(),
            domain: option(rest, "domain").unwrap_or("").parse().unwrap(),
        },
        ["remove", node] => Edit::Remove { id: id(node) },
        ["lost", node, keys] => Edit::RemoveLost {
            id: id(node),
            keys_counted: keys.parse().ok(),
        },
        ["weight", node, weight] => Edit::SetWeight {
            id: id(node),
            weight: weight.parse().unwrap(),
        },
        ["domain", node, domain] => Edit::SetDomain {
            id: id(node),
            domain: domain.parse().unwrap(),
        },
        ["address", node, of] => Edit::SetAddress {
            id: id(node),
            address: address(of),
        },
        ["replace", node, by] => Edit::Replace {
            id: id(node),
            by: id(by),
            address: address(by),
        },
        ["points", points] => Edit::SetGenerator {
            generator: Generator::Ring {
                points_per_weight: points.parse().unwrap(),
            },
        },
        ["slots", slots, rules @ ..] => Edit::SetGenerator {
            generator: read_slots(slots, rules),
        },
        ["secret"] => Edit::SetScheme {
            scheme: SchemeSpec::v1(HashSpec::SipHash13 {
                key: SecretKey::new([42; 16]),
            }),
        },
        ["hash-tags"] => Edit::SetScheme {
            scheme: SchemeSpec::default().with_hash_tags(true),
        },
        ["replicas", replicas] => Edit::SetReplicas {
            replicas: replicas.parse().unwrap(),
        },
        other => panic!("no edit {other:?}"),
    }
}

/// So many slots, by rules like `overload=5 step=10`.
fn read_slots(slots: &str, rules: &[&str]) -> Generator {
    let percent =
        |name, default: &'static str| option(rules, name).unwrap_or(default).parse().unwrap();
    let rules = SlotRules {
        overload_percent: percent("overload", "0"),
        step_percent: percent("step", "100"),
    };
    Generator::planned_slots(slots.parse().unwrap(), rules)
}

fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words
        .iter()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// `a=1000:50000`: keys and bytes of a node.
fn read_held(words: &[&str]) -> BTreeMap<NodeId, Held> {
    let held = |word: &&str| {
        let (node, amounts) = word.split_once('=').unwrap();
        let (keys, bytes) = amounts.split_once(':').unwrap();
        (
            id(node),
            Held {
                keys: keys.parse().unwrap(),
                bytes: bytes.parse().unwrap(),
            },
        )
    };
    words.iter().map(held).collect()
}

fn read_handoff(word: &str) -> HandoffId {
    match word.strip_prefix("back:") {
        Some(source) => HandoffId::reverse(id(source)),
        None => HandoffId::forward(id(word)),
    }
}

/// Nodes, staged edits and handoffs, a line each.
fn show(record: &Record) -> String {
    let mut out = format!("epoch {}\n", record.epoch());
    for node in &record.membership().nodes {
        let (state, generation) = (node.state, node.generation);
        writeln!(
            out,
            "{} {state} weight {} generation {generation}",
            node.id, node.weight
        )
        .unwrap();
    }
    for tombstone in record.retired() {
        writeln!(
            out,
            "{} gone, generation {}",
            tombstone.id, tombstone.generation
        )
        .unwrap();
    }
    for staged in record.staged() {
        writeln!(out, "staged {}: {}", staged.id, staged.edit).unwrap();
    }
    let write_handoff = |out: &mut String, handoff: &clockwise_cluster::Handoff| {
        let targets: Vec<&str> = handoff.targets.iter().map(NodeId::as_str).collect();
        let (name, targets, state) = (handoff.id(), targets.join(" "), handoff.state);
        write!(out, "  {name} to {targets}: {state}").unwrap();
        let report = &handoff.report;
        if report.keys_moved > 0 {
            write!(out, ", {} keys, {} bytes", report.keys_moved, report.bytes).unwrap();
        }
        if report.hold_ms_max > 0 {
            write!(out, ", held {} ms", report.hold_ms_max).unwrap();
        }
        if report.keys_lost > 0 {
            write!(out, ", {} keys lost", report.keys_lost).unwrap();
        }
        writeln!(out).unwrap();
    };
    if let Some(change) = record.change() {
        writeln!(out, "change {} {:?}", change.id, change.direction).unwrap();
        change
            .handoffs
            .iter()
            .for_each(|handoff| write_handoff(&mut out, handoff));
    }
    if let Some(finished) = record.finished() {
        writeln!(out, "finished {} {:?}", finished.id, finished.direction).unwrap();
        finished
            .handoffs
            .iter()
            .for_each(|handoff| write_handoff(&mut out, handoff));
    }
    out
}
