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

#[test]
fn every_algorithm_is_measured_and_only_modulo_and_maglev_move_what_they_need_not() {
    for algorithm in ["ring", "slots", "rendezvous", "jump", "maglev", "modulo"] {
        let args = format!("--algorithm {algorithm} --nodes 10 --keys 20000 --join 1");
        let answer = measure(&args);
        assert_eq!(answer["algorithm"], json!(algorithm));
        let needless = answer["needless"].as_u64();
        let wasteful = matches!(algorithm, "modulo" | "maglev");
        assert_eq!(needless > Some(0), wasteful, "{algorithm}: {needless:?}");
        assert_eq!(
            answer["exact"].is_null(),
            matches!(algorithm, "rendezvous" | "jump" | "modulo")
        );
    }
}

#[test]
fn the_load_after_a_loss_is_told_for_every_algorithm_or_why_it_is_not() {
    for algorithm in ["ring", "slots", "rendezvous", "jump", "maglev", "modulo"] {
        let answer = measure(&format!("--algorithm {algorithm} --nodes 5 --keys 20000"));
        let nodes = answer["nodes"].as_array().expect("a list of nodes");
        let known = nodes.iter().filter(|node| !node["loss"].is_null());
        let (known, missing) = (known.count(), &answer["loss_missing"]);
        if algorithm == "jump" {
            let why = json!("jump cannot remove a node that is not the last");
            assert_eq!((known, missing), (1, &why));
        } else {
            assert_eq!((known, missing), (5, &json!(null)), "{algorithm}");
        }
        let worst = nodes[4]["loss"]["worst_over_mean"]
            .as_f64()
            .expect("the last");
        assert!((1.2..1.6).contains(&worst), "{algorithm}: {worst}");
        assert_eq!(nodes[4]["loss"]["heirs"], json!(4), "{algorithm}");
    }
    let many = measure("--algorithm maglev --nodes 101 --keys 1000");
    assert!(many["nodes"][0]["loss"].is_null());
    let why = many["loss_missing"].as_str().expect("words");
    assert!(why.contains("up to 100 nodes"), "{why}");
    let table = run(&[
        "measure",
        "--algorithm",
        "jump",
        "--nodes",
        "3",
        "--keys",
        "100",
    ]);
    assert!(
        table.stdout.contains("when lost jump cannot remove"),
        "{table:?}"
    );
}

#[test]
fn intervals_domains_losses_and_requests_are_told_beside_the_keys() {
    let args = "--nodes 9 --zones 3 --replicas 3 --weights 1,1,2 --keys 20000 --join 1 --aim 1.2";
    let answer = measure(args);
    let exact = &answer["exact"];
    let sum = |list: &Value, field: &str| -> f64 {
        let list = list.as_array().expect("a list");
        list.iter()
            .map(|entry| entry[field].as_f64().expect("a share"))
            .sum()
    };
    for (list, field) in [
        (&answer["nodes"], "exact_share"),
        (&answer["nodes"], "copies_share"),
        (&answer["nodes"], "requests_share"),
        (&exact["domains"], "weight_share"),
        (&exact["domains"], "copies_share"),
    ] {
        let shares = sum(list, field);
        assert!((shares - 1.0).abs() < 1e-9, "{field}: {shares}");
    }
    assert_eq!(exact["dispersion"][0]["distinct_share"], json!(1.0));
    assert_eq!(exact["moved"]["copies_needless"], json!(0.0));
    let figure = |value: &Value| value.as_f64().expect("a figure");
    assert!(figure(&exact["moved"]["copies"]) >= figure(&exact["moved"]["copies_least"]));
    assert!(
        (figure(&exact["expected_cv"]) - 0.0666).abs() < 0.001,
        "{}",
        exact["expected_cv"]
    );
    assert!(figure(&answer["nodes"][0]["loss"]["worst_over_mean"]) > 1.0);
    // One key in a Zipf workload of 20,000 is a tenth of all requests.
    assert!(figure(&answer["skewed"]["max_over_mean"]) > figure(&answer["max_over_mean"]));
    assert!((20..100).contains(&answer["plan"]["points"].as_u64().expect("points")));
}

#[test]
fn what_an_algorithm_cannot_do_is_said() {
    for (args, named) in [
        (
            "--algorithm jump --nodes 3 --keys 10 --replicas 2",
            "--replicas",
        ),
        (
            "--algorithm jump --nodes 3 --keys 10 --weights 1,2",
            "cannot weigh nodes: cache-1 has weight 2, cache-0 has 1",
        ),
        (
            "--scheme modulo --nodes 3 --keys 10 --weights 1,2",
            "modulo cannot weigh nodes",
        ),
        (
            "--algorithm maglev --nodes 3 --keys 10 --table 100",
            "no prime",
        ),
        ("--algorithm slots --nodes 3 --keys 10 --slots 0", "0 slots"),
        ("--nodes 3 --keys 10 --weights 1,NaN", "weight"),
        ("--nodes 2 --keys 10 --weights 1000000,1", "points"),
        ("--nodes 3 --keys 10 --zipf 9", "zipf"),
        ("--nodes 3 --keys 10 --aim 0.5", "aim"),
        ("--nodes 10000 --keys 10 --aim 1.001", "--aim"),
    ] {
        let mut words = vec!["measure"];
        words.extend(args.split(' '));
        let run = run(&words);
        assert_eq!((run.exit, run.stdout.as_str()), (2, ""), "{args}: {run:?}");
        assert!(run.stderr.contains(named), "{args}: {run:?}");
    }
}

#[test]
fn slots_are_told_beside_the_best_that_weights_and_domains_allow() {
    let figure = |value: &Value| value.as_f64().expect("a figure");
    let even = measure("--algorithm slots --nodes 10 --keys 1000");
    assert_eq!(even["exact"]["optimum_over_mean"], json!(1.0));
    assert_eq!(even["hints"], json!([]));
    let ring = measure("--nodes 10 --keys 1000");
    assert_eq!(ring["exact"]["optimum_over_mean"], json!(null));

    // Two zones of three and of two nodes hold one copy each: a node of the smaller has half of one.
    let args = "--algorithm slots --nodes 5 --zones 2 --replicas 2 --keys 1000 --join 1";
    let zones = measure(args);
    let (optimum, reached) = (
        figure(&zones["exact"]["optimum_over_mean"]),
        figure(&zones["exact"]["copies_max_over_mean"]),
    );
    assert!((optimum - 1.25).abs() < 1e-9, "{optimum}");
    assert!((optimum..optimum + 0.001).contains(&reached), "{reached}");
    let mut words = vec!["measure"];
    words.extend(args.split(' '));
    let table = run(&words).stdout;
    let line = "optimum   max/mean 1.250 of the copies, by weights and failure domains; here 1.25";
    assert!(table.contains(line), "{table}");

    // The third zone gets a second node; the nodes of the other two hold what they held.
    let stuck = measure("--algorithm slots --nodes 5 --zones 3 --replicas 3 --keys 1000 --join 1");
    assert_eq!(stuck["hints"], json!([]), "the lonely node is relieved");
    let stuck = "--algorithm slots --nodes 4 --zones 3 --replicas 3 --keys 1000 --join 1";
    let hints = measure(stuck)["hints"].to_string();
    assert!(hints.contains("cache-4 does not help"), "{hints}");
}
