//! What a newcomer gets wrong, and what he is told.

use std::path::Path;

use crate::cluster::{Cluster, data, end_servers};
use crate::program::{Run, clockwise, run};

/// Told in one line what is wrong, and in another what to do.
fn check(run: &Run, words: &str, next: &str) {
    assert_eq!((run.exit, run.stdout.as_str()), (1, ""), "{run:?}");
    let mut lines = run.stderr.lines();
    let told = lines.find(|line| line.starts_with("error: "));
    assert!(told.is_some_and(|line| line.contains(words)), "{run:?}");
    assert!(
        lines.any(|line| line.starts_with("next:  ") && line.contains(next)),
        "{run:?}"
    );
}

fn up(dir: &Path, listen: &str, admin: &str) -> Run {
    let dir = data(dir);
    let dir = dir.to_str().unwrap();
    run(&["up", "--listen", listen, "--admin", admin, "--dir", dir])
}

#[test]
fn the_ports_of_another_up_are_in_use_and_nothing_is_begun() {
    let cluster = Cluster::start(&["--nodes", "1"]);
    let folder = tempfile::tempdir().unwrap();
    let (listen, admin) = (cluster.listen.to_string(), cluster.admin.to_string());
    check(
        &up(folder.path(), &listen, "127.0.0.1:0"),
        &listen,
        "--listen",
    );
    check(&up(folder.path(), "127.0.0.1:0", &admin), &admin, "--admin");
    assert!(!data(folder.path()).join("record.json").exists());
}

#[test]
fn a_server_that_is_not_there_or_not_ours_is_said_to_be_so() {
    let nowhere = tempfile::tempdir().unwrap();
    let dir = data(nowhere.path());
    let dir = dir.to_str().unwrap();
    check(
        &run(&["status", "--dir", dir]),
        "no running server",
        "clockwise up",
    );
    let closed = run(&["status", "--admin", "127.0.0.1:1"]);
    check(&closed, "no answer from http://127.0.0.1:1/", "--admin");

    let cluster = Cluster::start(&["--nodes", "1"]);
    let router = cluster.listen.to_string();
    let router = run(&["status", "--admin", &router]);
    assert_eq!(router.exit, 1, "{router:?}");
    assert!(
        router.stderr.contains("is it a clockwise admin API?"),
        "{router:?}"
    );

    let folder = cluster.kill();
    let dir = data(folder.path());
    let left = run(&["status", "--dir", dir.to_str().unwrap()]);
    check(&left, "admin.addr, which a killed", "clockwise down");
    end_servers(folder.path());
    let left = run(&["status", "--dir", dir.to_str().unwrap()]);
    check(&left, "no running server", "clockwise up");
}

#[test]
fn a_token_of_another_server_is_told_from_none() {
    let cluster = Cluster::start(&["--nodes", "1"]);
    let admin = cluster.admin.to_string();
    let nowhere = tempfile::tempdir().unwrap();
    let ask = |token: &str| {
        let output = clockwise()
            .args(["node", "add", "node-2", "--admin", &admin, "--dir"])
            .arg(nowhere.path())
            .env("CLOCKWISE_TOKEN", token)
            .output()
            .unwrap();
        Run {
            exit: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    };
    check(&ask(""), "needs the token", "CLOCKWISE_TOKEN");
    check(&ask("another"), "not the one of this server", "--dir DIR");
    let token = std::fs::read_to_string(cluster.dir().join("admin.token")).unwrap();
    assert_eq!(ask(token.trim()).exit, 0);
}

#[test]
fn numbers_that_are_none_are_told_with_one_that_is() {
    let long = u64::MAX.to_string();
    for (args, words) in [
        (&["throttle", "--bytes", "0.5MiB"][..], "such as 512KiB"),
        (&["throttle", "--keys", "-1"], "such as 5000"),
        (&["throttle", "--keys", "abc"], "whole number of keys"),
        (&["route", "--hex", "zz"], "two hexadecimal digits"),
        (&["route", "--hex", "abc"], "two hexadecimal digits"),
        (&["node", "add", "n", "--weight", "-1"], "weight"),
        (&["node", "set", "n", "--weight", "-1"], "weight"),
        (&["bench", "--value-bytes", &long], "not in 1..=16777216"),
        (&["bench", "--connections", &long], "not in 1..=10000"),
    ] {
        let told = run(args);
        assert_eq!((told.exit, told.stdout.as_str()), (2, ""), "{told:?}");
        assert!(
            told.stderr.contains("invalid value") && told.stderr.contains(words),
            "{told:?}"
        );
    }
}

#[test]
fn a_key_too_long_to_be_asked_about_is_refused_with_its_size() {
    let cluster = Cluster::start(&["--nodes", "1"]);
    let (fits, too_long) = (" ".repeat(4_096), "k".repeat(70_000));
    assert_eq!(cluster.run(&["route", &fits]).exit, 0);
    for verb in ["owner", "route"] {
        let told = cluster.run(&[verb, &too_long]);
        assert_eq!(told.exit, 2, "{}", told.stderr);
        assert!(told.stderr.contains("70000 bytes"), "{}", told.stderr);
    }
}
