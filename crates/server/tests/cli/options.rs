//! What `up` can be told about the pool it makes, and about who may come in.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::cluster::{Cluster, refused_up};

fn node_of(cluster: &Cluster, key: &str) -> String {
    let route = cluster.run(&["route", key, "-o", "json"]).json("Route");
    route["node"].as_str().unwrap().to_owned()
}

#[test]
fn with_hash_tags_keys_of_one_tag_share_a_node_and_can_be_asked_for_together() {
    let keys: Vec<String> = (0..40)
        .map(|number| format!("{{user:1}}.{number}"))
        .collect();
    let cluster = Cluster::start(&["--hash-tags"]);
    let node = node_of(&cluster, &keys[0]);
    assert!(keys.iter().all(|key| node_of(&cluster, key) == node));
    let again = Cluster::start_on(cluster.end(), &["--hash-tags"]);
    assert_eq!(node_of(&again, &keys[0]), node);

    let without = Cluster::start(&[]);
    let node = node_of(&without, &keys[0]);
    assert!(keys.iter().any(|key| node_of(&without, key) != node));
    let folder = without.end();
    let refused = refused_up(folder.path(), &["--hash-tags"]);
    assert_eq!(refused.exit, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("made without --hash-tags"),
        "{refused:?}"
    );
}

#[test]
fn scripts_run_only_where_the_pool_was_made_with_them() {
    let script = |cluster: &Cluster| -> redis::RedisResult<String> {
        redis::cmd("EVAL")
            .arg("return redis.call('SET', KEYS[1], ARGV[1]) and redis.call('GET', KEYS[1])")
            .arg(1)
            .arg("key")
            .arg("value")
            .query(&mut cluster.client())
    };
    let with = Cluster::start(&["--engine", "redis", "--nodes", "2", "--scripts"]);
    assert_eq!(script(&with).unwrap(), "value");
    let without = Cluster::start(&["--engine", "redis", "--nodes", "2"]);
    assert!(script(&without).is_err());

    let folder = tempfile::tempdir().unwrap();
    let embedded = refused_up(folder.path(), &["--scripts"]);
    assert_eq!(embedded.exit, 1, "{embedded:?}");
    assert!(embedded.stderr.contains("--engine redis"), "{embedded:?}");
}

#[test]
fn clients_give_the_password_of_the_file_that_only_its_owner_may_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "open-sesame\n").unwrap();
    let path = file.to_str().unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let open_to_all = refused_up(folder.path(), &["--password-file", path]);
    assert_eq!(open_to_all.exit, 1, "{open_to_all:?}");
    assert!(open_to_all.stderr.contains(path), "{open_to_all:?}");

    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let cluster = Cluster::start(&["--password-file", path]);
    let mut client = cluster.client();
    let set = |client: &mut redis::Connection| -> redis::RedisResult<String> {
        redis::cmd("SET").arg("key").arg("value").query(client)
    };
    let auth = |client: &mut redis::Connection, password: &str| -> redis::RedisResult<String> {
        redis::cmd("AUTH").arg(password).query(client)
    };
    assert!(set(&mut client).unwrap_err().to_string().contains("NOAUTH"));
    assert!(auth(&mut client, "open-sesam").is_err());
    assert_eq!(auth(&mut client, "open-sesame").unwrap(), "OK");
    assert_eq!(set(&mut client).unwrap(), "OK");

    let bench = |password: &[&str]| {
        let load = [
            "bench",
            "--seconds",
            "1",
            "--connections",
            "2",
            "--keys",
            "200",
        ];
        cluster.run(&[&load, password].concat())
    };
    let locked_out = bench(&[]);
    assert_eq!(locked_out.exit, 1, "{locked_out:?}");
    assert!(
        locked_out.stderr.contains("--password-file FILE"),
        "{locked_out:?}"
    );
    let wrong = folder.path().join("wrong");
    fs::write(&wrong, "open-sesam\n").unwrap();
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o600)).unwrap();
    let wrong = bench(&["--password-file", wrong.to_str().unwrap()]);
    assert_eq!(wrong.exit, 1, "{wrong:?}");
    assert!(!wrong.stderr.contains("open-sesam"), "{wrong:?}");
    let loaded = bench(&["--password-file", path]);
    assert_eq!(loaded.exit, 0, "{loaded:?}");

    let kept = cluster.end();
    let unsaid = refused_up(kept.path(), &[]);
    assert_eq!(unsaid.exit, 1, "{unsaid:?}");
    for way in ["--password-file", "--no-password"] {
        assert!(unsaid.stderr.contains(way), "{way}: {unsaid:?}");
    }
    let both = refused_up(kept.path(), &["--no-password", "--password-file", path]);
    assert_eq!(both.exit, 2, "{both:?}");
    let open = Cluster::start_on(kept, &["--no-password"]);
    assert_eq!(set(&mut open.client()).unwrap(), "OK");
}

#[test]
fn a_new_pool_has_slots_unless_a_ring_is_asked_for_and_keeps_what_it_has() {
    let generator = |cluster: &Cluster| {
        let status = cluster.run(&["status", "-o", "json"]).json("Status");
        (status["generator"].clone(), status["placement"].clone())
    };
    let slots = json!({"kind": "slots", "slots": 4096, "overload_percent": 0, "step_percent": 100});
    let cluster = Cluster::start(&["--nodes", "2"]);
    assert_eq!(generator(&cluster), (json!("4096 planned slots"), slots));
    let route = cluster.run(&["route", "user:42"]);
    assert!(
        route
            .stdout
            .contains("of 4096, which the owner table gives to node-"),
        "{route:?}"
    );
    let again = Cluster::start_on(cluster.end(), &["--placement", "slots"]);
    let other = Cluster::start_on(again.end(), &["--placement", "ring"]);
    let talk = other.talk();
    assert!(
        talk.contains("clockwise pool set --placement ring"),
        "{talk}"
    );
    assert_eq!(generator(&other).0, json!("4096 planned slots"));

    let ring = json!({"kind": "ring", "points_per_weight": 200});
    let cluster = Cluster::start(&["--nodes", "2", "--placement", "ring"]);
    assert_eq!(generator(&cluster).1, ring);
    let again = Cluster::start_on(cluster.end(), &[]);
    assert_eq!(
        generator(&again).1,
        ring,
        "a pool that is on a ring stays there"
    );
}

#[test]
fn a_pool_changes_from_a_ring_to_slots_and_back_with_its_keys() {
    let cluster = Cluster::start(&[
        "--engine",
        "redis",
        "--persist",
        "none",
        "--placement",
        "ring",
    ]);
    let mut client = cluster.client();
    for number in 0..500 {
        let () = redis::cmd("SET")
            .arg(format!("user:{number}"))
            .arg(number)
            .query(&mut client)
            .unwrap();
    }
    let misplaced = cluster.run(&["pool", "set", "--slots", "64"]);
    assert_eq!(
        (misplaced.exit, misplaced.stdout.as_str()),
        (2, ""),
        "{misplaced:?}"
    );
    for (placement, option, number) in [
        ("slots", "--slots", "0"),
        ("slots", "--slots", "65537"),
        ("slots", "--step", "0"),
        ("slots", "--step", "101"),
        ("slots", "--overload", "101"),
        ("slots", "--overload", "NaN"),
        ("ring", "--points", "0"),
        ("dice", "--points", "5"),
    ] {
        let refused = cluster.run(&["pool", "set", "--placement", placement, option, number]);
        let named = if placement == "dice" { "dice" } else { option };
        assert_eq!(
            (refused.exit, refused.stdout.as_str()),
            (2, ""),
            "{refused:?}"
        );
        assert!(refused.stderr.contains(named), "{refused:?}");
    }
    for (args, generator) in [
        (
            &["--placement", "slots", "--slots", "64"][..],
            "64 planned slots",
        ),
        (
            &["--overload", "10", "--step", "50"],
            "64 planned slots, overload 10 %, steps of 50 %",
        ),
        (&["--placement", "ring"], "ring, 200 points per weight"),
    ] {
        let staged = cluster.run(&[&["pool", "set"], args].concat());
        assert!(
            staged.stdout.contains(&format!("generator: {generator}")),
            "{staged:?}"
        );
        let plan = cluster.run(&["plan"]);
        let optimum = plan.stdout.contains("optimum max/mean 1.000 of the copies");
        assert_eq!(optimum, generator.contains("slots"), "{plan:?}");
        let applied = cluster.run(&["apply", "--wait"]);
        assert_eq!(applied.exit, 0, "{applied:?}");
        let status = cluster.run(&["status", "-o", "json"]).json("Status");
        assert_eq!(status["generator"], json!(generator));
        for number in 0..500 {
            let key = format!("user:{number}");
            let value: Option<i64> = redis::cmd("GET").arg(&key).query(&mut client).unwrap();
            assert_eq!(value, Some(number), "{key} {args:?}");
        }
    }
}

#[test]
fn a_change_in_steps_keeps_to_them_and_its_plans_name_the_command_that_goes_on() {
    let cluster = Cluster::start(&["--placement", "ring"]);
    let set = ["pool", "set", "--placement", "slots", "--step", "15"];
    assert_eq!(cluster.run(&set).exit, 0);
    assert_eq!(cluster.run(&["node", "add", "node-4"]).exit, 0);
    let goes_on = cluster.suggested("pool set", "--placement slots");
    let mut steps = Vec::new();
    loop {
        let plan = cluster.run(&["plan", "-o", "json"]).json("Plan");
        let moved = plan["moves"]["copies"].as_f64().unwrap();
        assert!(moved <= 0.15 + 1e-9, "{moved}");
        let left = plan["slots"]["copies_left"].as_f64().unwrap();
        let told = cluster.run(&["plan"]);
        assert_eq!(told.stdout.contains(&goes_on), left > 0.0, "{told:?}");
        let applied = cluster.run(&["apply", "--wait"]);
        assert_eq!(applied.exit, 0, "{applied:?}");
        steps.push(left);
        if left == 0.0 {
            break;
        }
        assert!(steps.len() < 4, "{steps:?}");
        assert_eq!(
            cluster.run(&["pool", "set", "--placement", "slots"]).exit,
            0
        );
    }
    assert_eq!(
        steps.len(),
        2,
        "more than a quarter in two steps: {steps:?}"
    );
    let other = cluster.suggested("pool set", "--placement ring|slots");
    for verb in [&["plan"][..], &["node", "list"], &["staged"]] {
        let run = cluster.run(verb);
        assert!(run.stdout.contains(&other), "{run:?}");
    }
}
