//! Verbs against a running cluster: the names in their JSON, their words for people, their exit codes.

use serde_json::{Value, json};

use crate::cluster::Cluster;

fn cluster() -> Cluster {
    Cluster::start(&["--engine", "redis", "--persist", "none"])
}

fn names(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect()
}

fn has(value: &Value, wanted: &[&str]) {
    let names = names(value);
    let missing: Vec<_> = wanted.iter().filter(|name| !names.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in {value:#}");
}

fn is_position(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[test]
fn status_and_route_have_the_names_that_scripts_rely_on() {
    let cluster = cluster();
    let () = redis::cmd("SET")
        .arg("user:42")
        .arg("x")
        .query(&mut cluster.client())
        .unwrap();

    let status = cluster.run(&["status", "-o", "json"]).json("Status");
    has(
        &status,
        &[
            "epoch",
            "fingerprint",
            "change",
            "nodes",
            "staged",
            "problems",
        ],
    );
    assert_eq!(
        (&status["change"], &status["problems"]),
        (&Value::Null, &json!([]))
    );
    let nodes = status["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    for node in nodes {
        has(
            node,
            &[
                "id",
                "state",
                "address",
                "domain",
                "weight",
                "keys",
                "share",
                "requests_per_second",
            ],
        );
        assert_eq!(
            (&node["state"], &node["weight"]),
            (&json!("active"), &json!(1.0))
        );
    }
    let sum = |field: &str| {
        nodes
            .iter()
            .map(|node| node[field].as_f64().unwrap())
            .sum::<f64>()
    };
    assert!((sum("share") - 1.0).abs() < 1e-9);
    assert_eq!(sum("keys"), 1.0);

    let route = cluster
        .run(&["route", "user:42", "-o", "json"])
        .json("Route");
    has(
        &route,
        &[
            "key",
            "position",
            "point",
            "interval",
            "node",
            "address",
            "replicas",
            "shortfall",
            "why",
        ],
    );
    assert!(
        is_position(&route["position"]) && is_position(&route["point"]),
        "{route:#}"
    );
    assert!(is_position(&route["interval"]["after"]));
    assert_eq!(route["interval"]["through"], route["point"]);
    let holder = nodes.iter().find(|node| node["keys"] == json!(1)).unwrap();
    assert_eq!(
        route["node"], holder["id"],
        "the key is where its route says"
    );
    assert_eq!(route["replicas"], json!([route["node"]]));

    let owner = cluster.run(&["owner", "user:42"]);
    assert_eq!(json!(owner.stdout.trim()), route["node"]);
    let hex = cluster
        .run(&["route", "--hex", "757365723a3432", "-o", "json"])
        .json("Route");
    assert_eq!(hex["position"], route["position"], "the same key in digits");

    let dir = format!(" --dir {}", cluster.dir().display());
    for verb in [
        &["status"][..],
        &["route", "user:42"],
        &["node", "list"],
        &["staged"],
        &["moves"],
    ] {
        let run = cluster.run(verb);
        assert_eq!(run.exit, 0, "{run:?}");
        let last = run.stdout.trim_end().lines().last().unwrap_or_default();
        assert!(
            verb[0] == "route" || last.contains(&dir),
            "{verb:?} ends with what to type, for the same folder: {last}"
        );
    }
}

#[test]
fn edits_are_staged_planned_and_taken_back() {
    let cluster = cluster();
    assert_eq!(
        cluster.run(&["plan", "--exit-code"]).exit,
        0,
        "nothing is pending"
    );

    let set = cluster.run(&[
        "node", "set", "node-1", "--weight", "2", "--domain", "eu/a", "-o", "json",
    ]);
    let staged = set.json("Staged");
    assert_eq!(staged["staged"].as_array().map(Vec::len), Some(2));
    has(&staged["staged"][0], &["id", "text", "edit"]);

    // The other two have no domain yet: it is said at once, and the plan shows why it could not be applied.
    assert!(staged["refused"].is_string(), "{staged:#}");
    let told = cluster.run(&["staged"]).stdout;
    assert!(told.contains("refused as it stands: "), "{told}");
    assert_ne!(cluster.run(&["plan"]).exit, 0);
    let taken = cluster.run(&["unstage", "2", "-o", "json"]).json("Staged");
    assert_eq!(taken["staged"].as_array().map(Vec::len), Some(1));
    assert_eq!(taken["refused"], Value::Null);

    let plan = cluster.run(&["plan", "--exit-code", "-o", "json"]);
    assert_eq!(plan.exit, 3, "{plan:?}");
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    has(
        &plan,
        &[
            "apiVersion",
            "kind",
            "epoch",
            "edits",
            "nodes",
            "moves",
            "balance_before",
            "losses",
            "text",
        ],
    );
    assert!(plan["moves"]["share"].as_f64() > Some(0.0));

    let text = cluster.run(&["plan"]);
    assert!(
        text.stdout
            .contains(&cluster.suggested("apply", "--expect-epoch 1")),
        "{text:?}"
    );

    assert_eq!(
        cluster.run(&["unstage", "-o", "json"]).json("Staged")["staged"],
        json!([])
    );
    let nothing = cluster.run(&["unstage"]);
    assert_eq!(nothing.exit, 1, "{nothing:?}");
    assert!(nothing.stderr.contains("nothing is staged"), "{nothing:?}");
    let resumed = cluster.run(&["resume"]);
    assert_eq!(resumed.exit, 0, "{resumed:?}");
    assert!(
        resumed.stderr.contains("nothing had stopped"),
        "{resumed:?}"
    );
}

#[test]
fn refusals_have_their_exit_codes() {
    let cluster = Cluster::start(&["--engine", "redis", "--persist", "none", "--nodes", "1"]);
    let cases: [(&[&str], i32); 13] = [
        (&["node", "set", "node-9", "--weight", "2"], 1),
        (&["node", "add", "node-1", "--addr", "127.0.0.1:1"], 1),
        (
            &[
                "node",
                "add",
                "node-2",
                "--weight",
                "0",
                "--addr",
                "127.0.0.1:1",
            ],
            2,
        ),
        (&["node", "add", "node-2", "--weight", "NaN"], 2),
        (&["node", "set", "node-1", "--weight", "1000000000"], 2),
        (&["node", "accept", "node-1"], 1),
        (&["node", "accept", "node-9"], 1),
        (&["node", "add", "bad/name"], 2),
        (&["node", "set", "node-1"], 2),
        (&["node", "remove", "node-1"], 7),
        (&["node", "remove", "node-1", "--lost"], 7),
        (&["apply"], 1),
        (&["abort"], 1),
    ];
    for (verb, exit) in cases {
        let run = cluster.run(verb);
        assert_eq!(
            (run.exit, run.stdout.as_str()),
            (exit, ""),
            "{verb:?}: {run:?}"
        );
        assert!(run.stderr.starts_with("error: "), "{verb:?}: {run:?}");
    }
    assert_eq!(
        cluster
            .run(&["node", "set", "node-1", "--weight", "2"])
            .exit,
        0
    );
    assert_eq!(
        cluster.run(&["apply", "--expect-epoch", "99"]).exit,
        5,
        "planned at another epoch"
    );
    assert_eq!(cluster.run(&["apply", "--expect-epoch", "1"]).exit, 0);
    assert_eq!(
        cluster.run(&["apply", "--expect-epoch", "1"]).exit,
        5,
        "two applies of one plan"
    );

    let nobody = crate::program::run(&["status", "--dir", "/nowhere"]);
    assert_eq!(nobody.exit, 1, "{nobody:?}");
    assert!(nobody.stderr.contains("clockwise up"), "{nobody:?}");
}

#[test]
fn with_json_failures_are_json_too() {
    let cluster = Cluster::start(&["--nodes", "1"]);
    let cases: [(&[&str], i32, &str); 6] = [
        (&["node", "set", "node-9", "--weight", "2"], 1, "not_found"),
        (&["node", "remove", "node-1"], 7, "guard"),
        (&["apply", "--expect-epoch", "99"], 5, "conflict"),
        (&["node", "add", "bad/name"], 2, "usage"),
        (&["route", "--hex", "zz"], 2, "usage"),
        (&["status", "--admin", "127.0.0.1:1"], 1, "failed"),
    ];
    for (verb, exit, code) in cases {
        for json in [&["-o", "json"][..], &["--output=json"]] {
            let run = cluster.run(&[verb, json].concat());
            assert_eq!((run.exit, run.stdout.as_str()), (exit, ""), "{run:?}");
            let told: Value = serde_json::from_str(&run.stderr).unwrap();
            assert_eq!(
                (&told["apiVersion"], &told["kind"]),
                (&json!("clockwise/v1"), &json!("Error"))
            );
            let error = &told["error"];
            assert_eq!(
                (&error["code"], &error["exit"]),
                (&json!(code), &json!(exit)),
                "{run:?}"
            );
            assert!(
                error["message"]
                    .as_str()
                    .is_some_and(|words| !words.is_empty())
            );
            assert_eq!(run.stderr.trim_end().lines().count(), 1, "{run:?}");
        }
    }
    let unknown = cluster.run(&["node", "set", "node-9", "--weight", "2", "-o", "json"]);
    let next = cluster.suggested("node list", "");
    assert!(unknown.stderr.contains(next.trim_end()), "{unknown:?}");
}

#[test]
fn a_node_joins_and_leaves_with_its_server() {
    let cluster = cluster();
    let mut client = cluster.client();
    for number in 0..2_000 {
        let () = redis::cmd("SET")
            .arg(format!("key:{number}"))
            .arg(number)
            .query(&mut client)
            .unwrap();
    }
    assert_eq!(cluster.run(&["node", "add", "node-4"]).exit, 0);
    assert_eq!(
        cluster.servers().len(),
        4,
        "its server runs before it joins"
    );

    let moved = cluster
        .run(&["apply", "--expect-epoch", "1", "--wait", "-o", "json"])
        .json("Moves");
    assert_eq!(moved["outcome"], json!("done"));
    let moves = moved["moves"].as_array().unwrap();
    assert_eq!(moves.len(), 3, "each node gave");
    for one in moves {
        has(
            one,
            &[
                "source",
                "targets",
                "state",
                "keys_moved",
                "bytes",
                "mismatches",
                "hold_ms_max",
                "seconds",
            ],
        );
        assert_eq!(
            (&one["targets"], &one["state"]),
            (&json!(["node-4"]), &json!("done"))
        );
    }
    let keys: u64 = moves
        .iter()
        .map(|one| one["keys_moved"].as_u64().unwrap())
        .sum();
    let status = cluster.run(&["status", "-o", "json"]).json("Status");
    let nodes = status["nodes"].as_array().unwrap();
    let keys_of =
        |id: &str| nodes.iter().find(|node| node["id"] == json!(id)).unwrap()["keys"].as_u64();
    assert_eq!(
        keys_of("node-4"),
        Some(keys),
        "what moved is there, and only there"
    );
    let all: u64 = nodes
        .iter()
        .map(|node| node["keys"].as_u64().unwrap())
        .sum();
    assert_eq!(all, 2_000);
    for number in 0..2_000 {
        let value: u32 = redis::cmd("GET")
            .arg(format!("key:{number}"))
            .query(&mut client)
            .unwrap();
        assert_eq!(value, number);
    }

    assert_eq!(cluster.run(&["node", "remove", "node-4"]).exit, 0);
    assert_eq!(cluster.run(&["apply", "--wait"]).exit, 0);
    crate::cluster::wait_until("its server ends", || cluster.servers().len() == 3);
    let value: u32 = redis::cmd("GET").arg("key:7").query(&mut client).unwrap();
    assert_eq!(value, 7);
}

#[test]
fn a_server_started_for_nothing_ends_when_it_is_taken_back() {
    let cluster = cluster();
    assert_eq!(cluster.run(&["node", "add", "node-4"]).exit, 0);
    assert_eq!(cluster.run(&["unstage", "node-4"]).exit, 0);
    crate::cluster::wait_until("its server ends", || cluster.servers().len() == 3);
}
