//! Files of the folder lost or damaged, nodes that are full or away, processes that hang: what is the matter is
//! said, with what to do, and nothing is ended or decided by mistake.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clockwise_testkit::{RedisOptions, RedisServer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cluster::{Cluster, data, lives, refused_up, servers, wait_until};
use crate::program::run;

const REDIS: [&str; 6] = ["--engine", "redis", "--persist", "none", "--nodes", "2"];

fn set(cluster: &Cluster, key: &str) -> redis::RedisResult<()> {
    let mut client = cluster.client();
    redis::cmd("SET").arg(key).arg("value").query(&mut client)
}

fn problems(cluster: &Cluster) -> String {
    let status = cluster.run(&["status", "-o", "json"]).json("Status");
    status["problems"].to_string()
}

/// The administrator of one of its nodes.
fn administrator(cluster: &Cluster, node: &str) -> redis::Connection {
    let status = cluster.run(&["status", "-o", "json"]).json("Status");
    let nodes = status["nodes"].as_array().unwrap();
    let found = nodes.iter().find(|one| one["id"] == json!(node)).unwrap();
    let password = fs::read_to_string(cluster.dir().join("nodes.password")).unwrap();
    let address = found["address"].as_str().unwrap();
    let url = format!("redis://:{}@{address}/", password.trim());
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

fn ask(connection: &mut redis::Connection, words: &[&str]) -> String {
    let mut command = redis::cmd(words[0]);
    words[1..].iter().for_each(|word| {
        command.arg(*word);
    });
    let reply: redis::Value = command.query(connection).unwrap();
    format!("{reply:?}")
}

fn term(folder: &Path) -> u64 {
    let text = fs::read_to_string(data(folder).join("term.json")).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    value["term"].as_u64().unwrap()
}

#[test]
fn a_lost_or_torn_term_goes_on_above_what_the_nodes_know() {
    let cluster = Cluster::start(&REDIS);
    set(&cluster, "k").unwrap();
    let mut folder = cluster.kill();
    let last_of_all = "{\"format\":1,\"term\":9007199254740991}";
    for torn in [None, Some("{\"format\":1,\"te"), Some(last_of_all)] {
        let before = term(folder.path());
        let path = data(folder.path()).join("term.json");
        match torn {
            None => fs::remove_file(&path).unwrap(),
            Some(text) => fs::write(&path, text).unwrap(),
        }
        let again = Cluster::start_on(folder, &[]);
        assert!(again.talk().contains("the last term was lost"));
        set(&again, "k").unwrap();
        assert_eq!(again.run(&["status", "--check"]).exit, 0);
        folder = again.kill();
        let after = term(folder.path());
        assert!(
            (before + 1..before + 100).contains(&after),
            "term {after} after {before}"
        );
    }
    let before = term(folder.path());
    fs::write(
        data(folder.path()).join("term.json"),
        "{\"format\":1,\"term\":1}",
    )
    .unwrap();
    let again = Cluster::start_on(folder, &[]);
    let talk = again.talk();
    assert!(talk.contains("term.json was behind the nodes"), "{talk}");
    assert_eq!(again.run(&["status", "--check"]).exit, 0);
    let after = term(&again.dir().join(".."));
    assert!(after > before, "term {after} came again after {before}");
}

#[test]
fn where_a_node_cannot_be_asked_for_terms_nobody_leads_and_status_says_what_to_do() {
    let (folder, stranger) = with_a_node_that_is_away();
    fs::remove_file(data(folder.path()).join("term.json")).unwrap();
    let cluster = Cluster::start_on(folder, &[]);
    let problems = problems(&cluster);
    for words in ["nobody leads the pool", "term.json", "cw-tN", "stranger"] {
        assert!(problems.contains(words), "{words}: {problems}");
    }
    assert_eq!(cluster.run(&["status", "--check"]).exit, 4);
    drop(stranger);
}

/// A folder whose pool has a node that somebody else started, and that has ended.
fn with_a_node_that_is_away() -> (tempfile::TempDir, RedisServer) {
    let cluster = Cluster::start(&REDIS);
    let password = fs::read_to_string(cluster.dir().join("nodes.password")).unwrap();
    let mut stranger = RedisServer::start(RedisOptions {
        password: Some(password.trim().to_owned()),
        ..RedisOptions::default()
    });
    let address = stranger.addr();
    for verb in [
        &["node", "add", "stranger", "--addr", &address][..],
        &["apply", "--wait"],
    ] {
        let run = cluster.run(verb);
        assert_eq!(run.exit, 0, "{run:?}");
    }
    let folder = cluster.end();
    stranger.stop();
    (folder, stranger)
}

#[test]
fn a_start_says_whom_it_waits_for_and_goes_on_without() {
    let (folder, _stranger) = with_a_node_that_is_away();
    let began = Instant::now();
    let cluster = Cluster::start_on(folder, &[]);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(12), "{took:?}");
    let talk = cluster.talk();
    for words in ["stranger", "waiting for it", "goes on without it"] {
        assert!(talk.contains(words), "{words}: {talk}");
    }
    let check = cluster.run(&["status", "--check"]);
    assert_eq!(check.exit, 4, "{check:?}");
    assert!(check.stdout.contains("stranger"), "{check:?}");
}

#[test]
fn a_node_that_refuses_writes_is_unhealthy_and_named_with_the_cause() {
    let cluster = Cluster::start(&REDIS);
    assert_eq!(cluster.run(&["status", "--check"]).exit, 0);
    let mut full = administrator(&cluster, "node-1");
    ask(&mut full, &["CONFIG", "SET", "maxmemory", "1000"]);
    let check = cluster.run(&["status", "--check"]);
    assert_eq!(check.exit, 4, "{check:?}");
    assert!(
        check.stdout.contains("node node-1 refuses writes") && check.stdout.contains("maxmemory"),
        "{check:?}"
    );
    ask(&mut full, &["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(cluster.run(&["status", "--check"]).exit, 0);

    let mut unsaved = administrator(&cluster, "node-2");
    ask(&mut unsaved, &["CONFIG", "SET", "save", "3600 1"]);
    fs::remove_dir_all(cluster.dir().join("nodes/node-2/data")).unwrap();
    ask(&mut unsaved, &["BGSAVE"]);
    wait_until("the snapshot has failed", || {
        ask(&mut unsaved, &["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")
    });
    let mut refused = (0..200).map(|number| set(&cluster, &format!("key:{number}")));
    assert!(refused.any(|set| set.is_err_and(|error| error.to_string().contains("MISCONF"))));
    let check = cluster.run(&["status", "--check"]);
    assert_eq!(check.exit, 4, "{check:?}");
    assert!(
        check.stdout.contains("node node-2 refuses writes") && check.stdout.contains("MISCONF"),
        "{check:?}"
    );
}

#[test]
fn a_removed_lock_protects_nobody_and_is_noticed() {
    let mut cluster = Cluster::start(&REDIS);
    let before = cluster.servers();
    fs::remove_file(cluster.dir().join("lock")).unwrap();
    let second = refused_up(cluster.dir().parent().unwrap(), &[]);
    assert_eq!(second.exit, 1, "{second:?}");
    let pid = cluster.pid().to_string();
    assert!(second.stderr.contains(&pid), "{second:?}");

    wait_until("nobody leads any more", || {
        problems(&cluster).contains("nobody leads the pool")
    });
    let resumed = cluster.run(&["resume"]);
    assert_eq!(resumed.exit, 4, "{resumed:?}");
    assert!(resumed.stderr.contains("does not lead"), "{resumed:?}");

    // Its server is started before the store refuses the edit.
    let added = cluster.run(&["node", "add", "node-9"]);
    assert_eq!(added.exit, 6, "{added:?}");
    assert_eq!(
        cluster.servers(),
        before,
        "a server was left that no node is"
    );

    let down = cluster.run(&["down", "-o", "json"]);
    assert_eq!(down.json("Down")["up"], cluster.pid());
    assert!(cluster.signal(Signal::TERM).0.success(), "it had ended");
    assert!(before.iter().all(|(_, pid)| !lives(*pid)));
}

#[test]
fn a_process_that_hangs_is_named_with_the_way_to_end_it() {
    let cluster = Cluster::start(&["--nodes", "1"]);
    let pid = Pid::from_raw(i32::try_from(cluster.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let by_force = format!("kill -9 {}", cluster.pid());
    for verb in [&["status"][..], &["down"]] {
        let began = Instant::now();
        let run = cluster.run(verb);
        assert_eq!(run.exit, 1, "{run:?}");
        assert!(run.stderr.contains(&by_force), "{run:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{verb:?}");
    }
    kill_process(pid, Signal::CONT).unwrap();
}

#[test]
fn damaged_files_are_named_with_what_to_do() {
    let folder = Cluster::start(&["--nodes", "1"]).end();
    let path = |name: &str| data(folder.path()).join(name);
    let settings = fs::read(path("up.json")).unwrap();
    let refused = |words: &[&str]| {
        let up = refused_up(folder.path(), &[]);
        assert_eq!(up.exit, 1, "{up:?}");
        for word in words {
            assert!(up.stderr.contains(word), "{word}: {up:?}");
        }
    };
    fs::write(path("up.json"), "{ \"engine\"").unwrap();
    let named = path("up.json").canonicalize().unwrap();
    refused(&[named.to_str().unwrap(), "remove it", "--engine redis"]);
    fs::write(path("up.json"), settings).unwrap();

    let record = fs::read(path("record.json")).unwrap();
    fs::remove_file(path("record.json")).unwrap();
    refused(&["record.json is gone", "put it back with `cp "]);
    fs::write(path("record.json"), record).unwrap();

    let kept = refused_up(folder.path(), &["--persist", "aof"]);
    assert_eq!(kept.exit, 1, "{kept:?}");
    assert!(kept.stderr.contains("leave --persist out"), "{kept:?}");

    fs::set_permissions(data(folder.path()), fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = Cluster::start_on(folder, &[]);
    assert!(cluster.talk().contains("chmod 700"), "{}", cluster.talk());

    let dir = cluster.dir();
    let dir = dir.to_str().unwrap();
    let told = |words: &str| {
        let run = run(&["node", "add", "node-2", "--dir", dir]);
        assert_eq!(run.exit, 1, "{run:?}");
        assert!(
            run.stderr.contains(words) && run.stderr.contains("next:"),
            "{run:?}"
        );
    };
    let address = fs::read(cluster.dir().join("admin.addr")).unwrap();
    for (text, words) in [
        ("", "admin.addr is empty"),
        ("here", "holds no address: \"here\""),
    ] {
        fs::write(cluster.dir().join("admin.addr"), text).unwrap();
        told(words);
    }
    fs::write(cluster.dir().join("admin.addr"), address).unwrap();
    fs::remove_file(cluster.dir().join("admin.token")).unwrap();
    told("admin.token cannot be read");
}

#[test]
fn what_is_no_folder_is_said_to_be_none() {
    for verb in [&["up"][..], &["down"]] {
        let run = run(&[verb, &["--dir", "/dev/null"]].concat());
        assert_eq!(run.exit, 1, "{run:?}");
        assert!(run.stderr.contains("/dev/null is not a folder"), "{run:?}");
    }
}

#[test]
fn a_server_that_takes_long_to_start_keeps_no_other_waiting() {
    let folder = Cluster::start(&REDIS).end();
    // Node-1's server does not start before node-2's runs, which it never would if one waited for the other.
    let (script, go) = (folder.path().join("slow-redis"), folder.path().join("go"));
    let text = format!(
        "#!/bin/sh\ncase \"$1\" in *node-1*) until [ -e '{}' ]; do sleep 0.05; done;; esac\nexec redis-server \"$@\"\n",
        go.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let root = folder.path().to_owned();
    let opener = thread::spawn(move || {
        wait_until("the other server runs", || {
            servers(&root).iter().any(|(id, _)| id == "node-2")
        });
        fs::write(go, "").unwrap();
    });
    let cluster = Cluster::start_on_with(folder, &script, &[]);
    opener.join().unwrap();
    assert_eq!(cluster.run(&["status", "--check"]).exit, 0);
}
