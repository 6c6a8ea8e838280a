//! `measure`: the articles' integers, and what it refuses.

use serde_json::{Value, json};

use crate::program::run;

fn measure(args: &str) -> Value {
    let mut words = vec!["measure", "-o", "json"];
    words.extend(args.split(' '));
    run(&words).json("Measure")
}

fn most_and_least(answer: &Value) -> (u64, u64) {
    let nodes = answer["nodes"].as_array().expect("a list of nodes");
    let keys = || {
        nodes
            .iter()
            .map(|node| node["keys"].as_u64().expect("a count"))
    };
    (keys().max().expect("nodes"), keys().min().expect("nodes"))
}

#[test]
fn the_article_figures_come_out_to_the_key() {
    let answer = measure("--scheme article-md5 --nodes 10 --points 200 --keys 200000 --join 1");
    assert_eq!(most_and_least(&answer), (22177, 18308));
    for (field, figure) in [("moved", 18005), ("needless", 0), ("modulo_moved", 181_488)] {
        assert_eq!(answer[field], json!(figure), "{field}");
    }
    for (points, most, least) in [(1, 45941, 2494), (10, 29128, 13793)] {
        let args =
            format!("--scheme article-md5 --nodes 10 --points {points} --keys 200000 --join 1");
        let answer = measure(&args);
        assert_eq!(most_and_least(&answer), (most, least), "{points} points");
        assert_eq!(answer["needless"], json!(0), "{points} points");
    }
}

#[test]
fn an_answer_has_the_names_that_scripts_rely_on() {
    let answer = measure("--scheme clockwise/v1 --nodes 3 --points 200 --keys 3000 --leave 1");
    let nodes = answer["nodes"].as_array().expect("a list of nodes");
    let ids: Vec<_> = nodes
        .iter()
        .map(|node| node["id"].as_str().expect("a name"))
        .collect();
    assert_eq!(ids, ["cache-0", "cache-1", "cache-2"]);
    let shares: f64 = nodes
        .iter()
        .map(|node| node["share"].as_f64().expect("a share"))
        .sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    let (most, least) = most_and_least(&answer);
    for (field, keys) in [("max_over_mean", most), ("min_over_mean", least)] {
        let ratio = answer[field].as_f64().expect("a ratio");
        assert!(
            (ratio - keys as f64 / 1000.0).abs() < 1e-9,
            "{field} {ratio}"
        );
    }
    assert_eq!(
        answer["moved"], nodes[2]["keys"],
        "what leaves moves, and nothing else"
    );
    assert_eq!(answer["needless"], json!(0));
}

#[test]
fn modulo_moves_keys_between_nodes_that_stayed() {
    let answer = measure("--scheme modulo --nodes 10 --keys 20000 --join 1");
    assert_eq!(answer["moved"], answer["modulo_moved"]);
    let (moved, needless) = (answer["moved"].as_u64(), answer["needless"].as_u64());
    assert!(
        needless > Some(10_000) && needless < moved,
        "{moved:?} {needless:?}"
    );
}

#[test]
fn names_and_keys_follow_their_formats() {
    let shaped =
        "--scheme clockwise/v1 --nodes 2 --keys 100 --node-format n{}.eu --key-format k{}x";
    let answer = measure(shaped);
    assert_eq!(answer["nodes"][1]["id"], json!("n1.eu"));
    let plain = measure("--scheme clockwise/v1 --nodes 2 --keys 100");
    assert_ne!(
        answer["nodes"][0]["keys"], plain["nodes"][0]["keys"],
        "other names, other owners"
    );
}

#[test]
fn what_cannot_be_measured_is_a_usage_error() {
    for args in [
        "--scheme nothing --nodes 3 --keys 10",
        "--scheme modulo --nodes 0 --keys 10",
        "--scheme modulo --nodes 3 --keys 0",
        "--scheme clockwise/v1 --nodes 3 --points 0 --keys 10",
        "--scheme clockwise/v1 --nodes 3 --keys 10 --join 1 --leave 1",
        "--scheme clockwise/v1 --nodes 3 --keys 10 --leave 3",
        "--scheme clockwise/v1 --nodes 3 --keys 10 --key-format fixed",
        "--scheme clockwise/v1 --nodes 3 --keys 10 --node-format bad/{}",
        "--scheme clockwise/v1 --nodes 20000 --keys 10",
        "--scheme clockwise/v1 --nodes 9000 --points 200000 --keys 10",
    ] {
        let mut words = vec!["measure"];
        words.extend(args.split(' '));
        let run = run(&words);
        assert_eq!((run.exit, run.stdout.as_str()), (2, ""), "{args}: {run:?}");
        assert!(run.stderr.starts_with("error: "), "{args}: {run:?}");
    }
}
