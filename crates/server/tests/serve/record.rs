//! `record`: made, exported, imported, compared, over time.

use std::fs;

use clockwise_testkit::{EtcdOptions, EtcdServer};
use serde_json::Value;

use crate::pool::{ALL, Pool, all_there, fill, node};
use crate::program::{Run, run};

fn record(args: &[&str], pool: &Pool) -> Run {
    let config = pool.path("init.toml");
    let mut words = vec!["record"];
    words.extend(args);
    words.extend(["--config", config.to_str().unwrap()]);
    run(&words)
}

#[test]
fn a_pool_is_made_once() {
    let etcd = EtcdServer::start(EtcdOptions::default());
    let pool = Pool::unmade(Some(etcd), 0);
    let nodes = [
        "--node",
        "a=10.0.0.1:6379,domain=eu/1",
        "--node",
        "b=10.0.0.2:6379,weight=2,domain=eu/2",
    ];
    let mut args = vec!["init", "-o", "json"];
    args.extend(nodes);
    let made = record(&args, &pool).json("Record");
    assert_eq!((&made["epoch"], &made["nodes"]), (&1.into(), &2.into()));
    let again = record(&args, &pool);
    assert_eq!(again.exit, 7, "{again:?}");
    assert!(again.stderr.contains("nothing was changed"), "{again:?}");
    let none = record(&["init"], &pool);
    assert_eq!(none.exit, 2, "{none:?}");
    let exported: Value = serde_json::from_str(&record(&["export"], &pool).stdout).unwrap();
    assert_eq!(exported["membership"]["nodes"][0]["domain"], "eu/1");
    assert_eq!(exported["membership"]["nodes"][1]["weight"], "2");
    assert_eq!(exported["membership"]["generator"]["kind"], "slots");
}

#[test]
fn nodes_come_from_files_too_and_bad_ones_are_named() {
    let pool = Pool::unmade(None, 0);
    let toml = pool.path("nodes.toml");
    fs::write(
        &toml,
        "[[nodes]]\nid = \"a\"\naddress = \"10.0.0.1:1\"\nweight = 1.5\n[[nodes]]\nid = \"b\"\naddress = \"10.0.0.2:1\"\n",
    )
    .unwrap();
    let made = record(
        &[
            "init",
            "--placement",
            "ring",
            "--nodes-file",
            toml.to_str().unwrap(),
        ],
        &pool,
    );
    assert_eq!(made.exit, 0, "{made:?}");
    let exported: Value = serde_json::from_str(&record(&["export"], &pool).stdout).unwrap();
    assert_eq!(exported["membership"]["nodes"][0]["weight"], "1.5");
    assert_eq!(exported["membership"]["generator"]["kind"], "ring");
    let json = pool.path("nodes.json");
    for (text, said) in [
        ("{\"nodes\":[{\"id\":\"a\"}]}", "missing field `address`"),
        (
            "{\"nodes\":[{\"id\":\"a\",\"address\":\"x\"}]}",
            "node \"a\": address",
        ),
        ("{\"node\":[]}", "unknown field"),
        ("{\"nodes\":[]}", "at least one node"),
    ] {
        fs::write(&json, text).unwrap();
        let refused = record(&["init", "--nodes-file", json.to_str().unwrap()], &pool);
        assert_eq!(refused.exit, 2, "{text}: {refused:?}");
        assert!(refused.stderr.contains(said), "{text}: {refused:?}");
    }
    let twice = ["init", "--node", "a=h:1", "--node", "a=h:2"];
    let other = Pool::unmade(None, 0);
    let refused = record(&twice, &other);
    assert_eq!(refused.exit, 2, "{refused:?}");
}

#[test]
fn epochs_are_listed_and_compared_and_what_moves_is_said() {
    let pool = Pool::over_etcd(2);
    let serve = pool.serve("a", ALL);
    fill(&mut serve.client(), 300);
    let third = node();
    for verb in [
        &["node", "add", "node-3", "--addr", &third.addr()][..],
        &["apply", "--wait"],
    ] {
        let done = serve.run(verb);
        assert_eq!(done.exit, 0, "{done:?}");
    }
    let history = record(&["history", "-o", "json"], &pool).json("History");
    let epochs = history["epochs"].as_array().unwrap();
    assert!(epochs.len() > 3, "{history}");
    let changes = history["epochs"].to_string();
    for words in [
        "node-3 at",
        "comes in",
        "change-2 begins",
        "is handover",
        "is flipped",
        "change-2 ends",
    ] {
        assert!(changes.contains(words), "{words} in {changes}");
    }
    let diff = record(&["diff", "1", "-o", "json"], &pool).json("Diff");
    let moved = diff["moved_share"].as_f64().unwrap();
    assert!((moved - 1.0 / 3.0).abs() < 0.01, "{moved}");
    assert_eq!(diff["flows"].as_array().unwrap().len(), 2);
    assert_eq!(diff["intervals_left_out"], 0);
    let share = diff["nodes"][2]["share_to"].as_f64().unwrap();
    assert!((share - 1.0 / 3.0).abs() < 0.01 && diff["nodes"][2]["what"] == "added");
    let text = record(&["diff", "1", "2"], &pool);
    assert!(
        text.stdout.contains("every key has the same owner"),
        "{text:?}"
    );
    let unkept = record(&["diff", "1", "99"], &pool);
    assert_eq!(unkept.exit, 1, "{unkept:?}");
    assert!(
        unkept
            .stderr
            .contains("epoch 99 is not kept; kept are 1, 2"),
        "{unkept:?}"
    );

    // Two files need no store.
    let (one, other) = (pool.path("one.json"), pool.path("other.json"));
    fs::write(&one, record(&["export", "--epoch", "1"], &pool).stdout).unwrap();
    fs::write(&other, record(&["export", "-o", "json"], &pool).stdout).unwrap();
    let files = run(&[
        "record",
        "diff",
        one.to_str().unwrap(),
        other.to_str().unwrap(),
        "-o",
        "json",
    ]);
    assert_eq!(files.json("Diff")["moved_share"], diff["moved_share"]);
}

#[test]
fn a_record_comes_back_under_an_epoch_and_credentials_that_nobody_has_seen() {
    let pool = Pool::over_etcd(2);
    let serve = pool.serve("a", ALL);
    let mut client = serve.client();
    fill(&mut client, 300);
    let export = pool.path("export.json");
    fs::write(&export, record(&["export"], &pool).stdout).unwrap();
    let path = export.to_str().unwrap();
    let over = record(&["import", path], &pool);
    assert_eq!(over.exit, 7, "{over:?}");
    assert!(
        over.stderr.contains("--replace --expect-epoch 1"),
        "{over:?}"
    );
    let moved = record(&["import", path, "--replace", "--expect-epoch", "9"], &pool);
    assert_eq!(moved.exit, 5, "{moved:?}");
    let done = record(
        &[
            "import",
            path,
            "--replace",
            "--expect-epoch",
            "1",
            "-o",
            "json",
        ],
        &pool,
    );
    let done = done.json("Record");
    assert_eq!(
        (&done["epoch"], &done["replaced_epoch"]),
        (&2.into(), &1.into())
    );
    // Whoever serves goes over to the new credentials.
    crate::process::wait_until("it is at the new epoch", || serve.status()["epoch"] == 2);
    all_there(&mut client, 300);
    crate::process::wait_until("the old users are gone", || {
        let users = pool.nodes[0].cli(&["ACL", "USERS"]);
        users.contains("cw-g2") && !users.contains("cw-g1")
    });
}

#[test]
fn a_record_is_moved_from_a_folder_into_etcd() {
    let pool = Pool::over_a_file(2);
    {
        let mut serve = pool.serve("a", ALL);
        fill(&mut serve.client(), 300);
        assert!(serve.end(rustix::process::Signal::TERM).success());
    }
    let export = pool.path("export.json");
    let folder = format!("file:{}", pool.path("data").display());
    fs::write(
        &export,
        run(&["record", "export", "--store", &folder]).stdout,
    )
    .unwrap();
    let etcd = EtcdServer::start(EtcdOptions::default());
    let url = format!("etcd://{}", etcd.addr());
    let imported = run(&[
        "record",
        "import",
        export.to_str().unwrap(),
        "--store",
        &url,
    ]);
    assert_eq!(imported.exit, 0, "{imported:?}");
    let pool = Pool {
        etcd: Some(etcd),
        ..pool
    };
    let serve = pool.serve("b", ALL);
    all_there(&mut serve.client(), 300);
}

#[test]
fn a_record_that_gives_keys_other_owners_or_another_protocol_is_refused() {
    let pool = Pool::over_a_file(2);
    // The same nodes, placed in another way.
    let elsewhere = format!("file:{}", pool.path("elsewhere").display());
    let nodes = [1, 2].map(|n| format!("node-{n}={}", pool.nodes[n - 1].addr()));
    let other = run(&[
        "record",
        "init",
        "--store",
        &elsewhere,
        "--placement",
        "ring",
        "--node",
        &nodes[0],
        "--node",
        &nodes[1],
    ]);
    assert_eq!(other.exit, 0, "{other:?}");
    let file = pool.path("other.json");
    let exported = run(&["record", "export", "--store", &elsewhere]).stdout;
    fs::write(&file, &exported).unwrap();
    let mut import = vec!["import", file.to_str().unwrap()];
    import.extend(["--replace", "--expect-epoch", "1"]);
    let refused = record(&import, &pool);
    assert_eq!(refused.exit, 7, "{refused:?}");
    for words in [
        "% of positions have another owner",
        "nothing was changed",
        "--owners-change",
    ] {
        assert!(refused.stderr.contains(words), "{words}: {refused:?}");
    }
    let before: Value = serde_json::from_str(&record(&["export"], &pool).stdout).unwrap();
    assert_eq!(before["epoch"], 1);

    let mut cache = before;
    cache["protocol"] = "memcached".into();
    let memcached = pool.path("memcached.json");
    fs::write(&memcached, cache.to_string()).unwrap();
    let mut of_a_cache = import.clone();
    of_a_cache[1] = memcached.to_str().unwrap();
    of_a_cache.push("--owners-change");
    let refused = record(&of_a_cache, &pool);
    assert_eq!(refused.exit, 7, "{refused:?}");
    assert!(refused.stderr.contains("speak memcached"), "{refused:?}");

    import.push("--owners-change");
    let done = record(&import, &pool);
    assert_eq!(done.exit, 0, "{done:?}");
}

#[test]
fn what_is_no_record_is_refused_and_nothing_is_written() {
    let pool = Pool::unmade(None, 0);
    let file = pool.path("x.json");
    for (text, said) in [
        ("", "empty"),
        ("{\"format\":1", "end"),
        ("{\"format\":99}", "99"),
        ("{}", "format"),
    ] {
        fs::write(&file, text).unwrap();
        let refused = record(&["import", file.to_str().unwrap()], &pool);
        assert_eq!(refused.exit, 2, "{text}: {refused:?}");
        assert!(
            refused.stderr.to_lowercase().contains(said),
            "{text}: {refused:?}"
        );
    }
    let exported = run(&["record", "export", "--store", "file:/nowhere/at/all"]);
    assert_eq!(exported.exit, 1, "{exported:?}");
    let nothing = run(&["record", "export"]);
    assert_eq!(nothing.exit, 2, "{nothing:?}");
    let unreachable = run(&["record", "history", "--store", "etcd://127.0.0.1:1"]);
    assert_eq!(unreachable.exit, 6, "{unreachable:?}");
}
