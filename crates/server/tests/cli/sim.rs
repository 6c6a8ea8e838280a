//! `sim`: rounds of changes over several placements, and what a scenario may not say.

use std::path::Path;

use serde_json::{Value, json};

use crate::program::{Run, run};

const SCENARIO: &str = r#"
keys = 20000
replicas = 2
placements = [
  { algorithm = "ring" },
  { algorithm = "slots", slots = 600 },
  { algorithm = "jump" },
  { algorithm = "modulo", name = "hash % N" },
]
nodes = [
  { id = "a", domain = "z1" }, { id = "b", domain = "z2" }, { id = "c", domain = "z3" },
  { id = "d", domain = "z1" }, { id = "e", domain = "z2" }, { id = "f", domain = "z3", weight = 1.0 },
]
[[rounds]]
join = [{ id = "g", domain = "z1" }]
[[rounds]]
leave = ["b"]
[[rounds]]
reweight = { c = 2, d = "0.5" }
[[rounds]]
lose = "z1"
"#;

fn sim(folder: &Path, scenario: &str, more: &[&str]) -> Run {
    let path = folder.join("scenario.toml");
    std::fs::write(&path, scenario).expect("a folder of the test");
    let words = ["sim", path.to_str().expect("a plain path")];
    run(&[&words, more].concat())
}

fn course<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let courses = answer["placements"].as_array().expect("a list");
    let found = courses.iter().find(|course| course["name"] == json!(name));
    found.unwrap_or_else(|| panic!("no {name} in {answer}"))
}

fn rounds<'a>(course: &'a Value, field: &str) -> Vec<&'a Value> {
    let rounds = course["rounds"].as_array().expect("a list");
    rounds.iter().map(|round| &round[field]).collect()
}

#[test]
fn placements_go_through_the_rounds_side_by_side_until_one_cannot() {
    let folder = tempfile::tempdir().expect("a folder");
    let answer = sim(folder.path(), SCENARIO, &["-o", "json"]).json("Sim");
    let ring = course(&answer, "ring");
    assert_eq!(rounds(ring, "nodes"), [6, 7, 6, 6, 3]);
    assert_eq!(rounds(ring, "needless"), [0, 0, 0, 0, 0]);
    for name in ["ring", "slots"] {
        let dispersed = rounds(course(&answer, name), "distinct_share");
        assert!(
            dispersed.iter().all(|share| **share == json!(1.0)),
            "{name}: {dispersed:?}"
        );
    }
    let peaks = rounds(course(&answer, "slots"), "max_over_mean");
    let even = |peak: &&Value| peak.as_f64().expect("a ratio") < 1.02;
    assert!(peaks[..3].iter().all(even), "{peaks:?}");
    let optima = rounds(course(&answer, "slots"), "optimum_over_mean");
    let copies = rounds(course(&answer, "slots"), "copies_max_over_mean");
    for (optimum, reached) in optima.iter().zip(copies) {
        let (optimum, reached) = (optimum.as_f64(), reached.as_f64());
        let (optimum, reached) = optimum.zip(reached).expect("figures");
        assert!(
            reached >= optimum - 1e-9,
            "{reached} is better than {optimum}"
        );
        // A whole slot more of 600 × 2 copies, for a node of the smallest weight.
        assert!(reached < optimum + 0.02, "{reached} where {optimum} can be");
    }
    let unplanned = rounds(ring, "optimum_over_mean");
    assert!(
        unplanned.iter().all(|optimum| optimum.is_null()),
        "{unplanned:?}"
    );
    assert_eq!(rounds(course(&answer, "jump"), "nodes"), [6, 7]);
    let refused = course(&answer, "jump")["refused"].as_str().expect("words");
    assert_eq!(
        refused,
        "round 2: jump cannot remove a node that is not the last"
    );
    for name in ["ring", "slots", "hash % N"] {
        // Where six nodes share, the one that takes most of a lost one's part comes to more than 6/5.
        let worst = rounds(course(&answer, name), "worst_loss_over_mean");
        let worst = worst[0].as_f64().expect("a ratio");
        assert!((1.2..1.9).contains(&worst), "{name}: {worst}");
    }
    let unknown = rounds(course(&answer, "jump"), "worst_loss_over_mean");
    assert!(unknown.iter().all(|loss| loss.is_null()), "{unknown:?}");
    let needless = rounds(course(&answer, "hash % N"), "needless");
    assert!(needless[1].as_u64() > Some(10_000), "{needless:?}");
}

#[test]
fn a_chart_shows_every_placement_and_names_are_text_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plot.svg");
    let scenario = SCENARIO.replace("hash % N", "<b>&");
    let done = sim(
        folder.path(),
        &scenario,
        &["--plot", path.to_str().expect("a plain path")],
    );
    assert_eq!(done.exit, 0, "{done:?}");
    assert!(done.stdout.contains("jump stops in round 2"), "{done:?}");
    let svg = std::fs::read_to_string(&path).expect("it was drawn");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("&lt;b&gt;&amp;") && !svg.contains("<b>"));
    // A bar for every state that a placement went through, in both charts: jump has two, modulo three.
    assert_eq!(svg.matches("<title>").count(), 2 * (5 + 5 + 2 + 3));
}

#[test]
fn what_a_scenario_cannot_say_is_a_usage_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    for (from, to, named) in [
        ("leave = [\"b\"]", "leave = [\"x\"]", "node x is no member"),
        ("leave = [\"b\"]", "leaves = [\"b\"]", "leaves"),
        ("lose = \"z1\"", "lose = \"z9\"", "z9"),
        ("c = 2", "c = nan", "node c"),
        ("c = 2", "c = -1", "node c"),
        ("c = 2", "c = 1000000000000", "node c"),
        ("c = 2", "c = true", "node c"),
        ("id = \"g\"", "id = \"a\"", "node a is given twice"),
        ("id = \"g\"", "id = \"g/h\"", "g/h"),
        ("algorithm = \"ring\"", "algorithm = \"rings\"", "rings"),
        ("keys = 20000", "keys = 0", "keys"),
        ("replicas = 2", "replicas = 0", "0 replicas"),
        ("slots = 600", "slots = 0", "0 slots"),
    ] {
        assert!(SCENARIO.contains(from), "{from}");
        let said = sim(folder.path(), &SCENARIO.replace(from, to), &[]);
        let refused = said.exit == 2 && said.stderr.starts_with("error: ");
        let stopped = said.exit == 0 && said.stdout.contains("stops in");
        assert!(refused || stopped, "{to}: {said:?}");
        let words = format!("{}{}", said.stderr, said.stdout);
        assert!(words.contains(named), "{to}: {said:?}");
    }
    let absent = run(&["sim", "no-such-file.toml"]);
    assert_eq!(absent.exit, 2, "{absent:?}");
}
