//! A cache of memcacheds, from its start to nodes that come and go.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use clockwise_testkit::{MemcachedOptions, MemcachedServer};

use crate::cluster::{Cluster, data, end_servers, lives, servers, wait_until};
use crate::program::clockwise;

const KEYS: u32 = 600;

fn cache() -> Cluster {
    Cluster::start(&["--engine", "memcached"])
}

/// Sends requests and gives all that is said to them.
fn ask(cluster: &Cluster, requests: &str) -> String {
    let mut stream = TcpStream::connect(cluster.listen).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream.write_all(requests.as_bytes()).unwrap();
    stream.write_all(b"mn\r\n").unwrap();
    let mut said = String::new();
    let mut chunk = [0; 64 << 10];
    while !said.ends_with("MN\r\n") {
        let read = stream.read(&mut chunk).unwrap();
        assert!(read > 0, "closed after {said:?}");
        said.push_str(std::str::from_utf8(&chunk[..read]).unwrap());
    }
    said.strip_suffix("MN\r\n").unwrap().to_owned()
}

/// Every other one is as long as a key can be.
fn key(number: u32) -> String {
    match number % 2 {
        0 => format!("key:{number}"),
        _ => format!("key:{number:0>246}"),
    }
}

fn store(cluster: &Cluster, value: &str) {
    let set = |number| format!("set {} 0 0 {}\r\n{value}\r\n", key(number), value.len());
    let said = ask(cluster, &(0..KEYS).map(set).collect::<String>());
    assert_eq!(said, "STORED\r\n".repeat(KEYS as usize));
}

/// The keys that have a value, with it.
fn values(cluster: &Cluster) -> Vec<(u32, String)> {
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let said = ask(cluster, &format!("get {}\r\n", keys.join(" ")));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.last(), Some(&"END"), "{said}");
    let item = |pair: &[&str]| {
        let key = pair[0].split(' ').nth(1).unwrap();
        (key["key:".len()..].parse().unwrap(), pair[1].to_owned())
    };
    lines[..lines.len() - 1].chunks(2).map(item).collect()
}

fn applied(cluster: &Cluster, edit: &[&str]) {
    let staged = cluster.run(edit);
    assert_eq!(staged.exit, 0, "{staged:?}");
    let applied = cluster.run(&["apply", "--wait"]);
    assert_eq!(applied.exit, 0, "{applied:?}");
}

// facebook/mcrouter#202: a node that had been away returned with old values.
#[test]
fn nodes_come_and_go_and_no_old_value_comes_back() {
    let cluster = cache();
    store(&cluster, "first");
    let status = cluster.run(&["status", "-o", "json"]).json("Status");
    assert_eq!(
        (&status["protocol"], &status["class"]),
        (&"memcached".into(), &"cache".into())
    );
    let nodes = status["nodes"].as_array().unwrap();
    let items: u64 = nodes
        .iter()
        .map(|node| node["keys"].as_u64().unwrap())
        .sum();
    assert_eq!(items, u64::from(KEYS));
    assert!(
        nodes
            .iter()
            .all(|node| node["memory_bytes"].as_u64() > Some(0))
    );

    let added = cluster.run(&["node", "add", "node-4"]);
    assert_eq!(added.exit, 0, "{added:?}");
    let plan = cluster.run(&["plan"]);
    assert!(
        plan.stdout.contains("warning: nothing is copied"),
        "{plan:?}"
    );
    let joined = cluster.run(&["apply", "--wait"]);
    assert_eq!(joined.exit, 0, "{joined:?}");
    let kept = values(&cluster);
    assert!(kept.iter().all(|(_, value)| value == "first"));
    let missing = KEYS as usize - kept.len();
    assert!(
        (KEYS as usize / 10..KEYS as usize / 2).contains(&missing),
        "{missing} are missing"
    );

    // What has moved gets a second value, and comes back to where the first one was.
    store(&cluster, "second");
    assert_eq!(values(&cluster).len(), KEYS as usize);
    applied(&cluster, &["node", "remove", "node-4"]);
    let left = values(&cluster);
    assert!(
        left.iter().all(|(_, value)| value == "second"),
        "an old value came back"
    );
    assert_eq!(
        KEYS as usize - left.len(),
        missing,
        "what node-4 had is missing"
    );
    let status = cluster.run(&["status", "-o", "json"]).json("Status");
    let nodes = status["nodes"].as_array().unwrap();
    let items: u64 = nodes
        .iter()
        .map(|node| node["keys"].as_u64().unwrap())
        .sum();
    assert_eq!(items, left.len() as u64, "nobody has what it does not own");
}

#[test]
fn a_server_with_items_does_not_join_and_one_that_is_none_neither() {
    let cluster = cache();
    let full = MemcachedServer::start(MemcachedOptions::default());
    full.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let listen = cluster.listen.to_string();
    for (address, words) in [
        (full.addr(), "has 1 items already"),
        (listen, "it is a router"),
    ] {
        let added = cluster.run(&["node", "add", "other", "--addr", &address]);
        assert_eq!(added.exit, 0, "{added:?}");
        let applied = cluster.run(&["apply"]);
        assert_eq!(applied.exit, 7, "{applied:?}");
        assert!(applied.stderr.contains(words), "{applied:?}");
        assert_eq!(cluster.run(&["unstage"]).exit, 0);
    }
    let empty = MemcachedServer::start(MemcachedOptions::default());
    applied(&cluster, &["node", "add", "other", "--addr", &empty.addr()]);
    store(&cluster, "value");
    assert!(
        !empty
            .ask("stats\r\n", "END\r\n")
            .contains("STAT curr_items 0\r\n")
    );
    // A node of the pool is not given a server whose items are of nobody knows when either.
    let relocated = cluster.run(&["node", "set", "other", "--addr", &full.addr()]);
    assert_eq!(relocated.exit, 0, "{relocated:?}");
    let refused = cluster.run(&["apply"]);
    assert_eq!(refused.exit, 7, "{refused:?}");
    assert!(
        refused.stderr.contains("has 1 items already"),
        "{refused:?}"
    );
    assert_eq!(cluster.run(&["unstage"]).exit, 0);
    let aborted = cluster.run(&["abort"]);
    assert!(
        aborted.stderr.contains("no change is in flight"),
        "{aborted:?}"
    );
}

#[test]
fn a_killed_up_finds_its_memcacheds_again_and_down_ends_them() {
    let cluster = cache();
    store(&cluster, "value");
    let before = cluster.servers();
    let folder = cluster.kill();
    let cluster = Cluster::start_on(folder, &[]);
    assert_eq!(cluster.servers(), before);
    assert_eq!(values(&cluster).len(), KEYS as usize);
    let folder = cluster.kill();
    let ended = end_servers(folder.path());
    assert_eq!(ended.exit, 0, "{ended:?}");
    wait_until("none of them lives", || {
        !before.iter().any(|(_, pid)| lives(*pid))
    });
    assert_eq!(servers(folder.path()), []);
    // What had been in memory is gone, and nothing else with it.
    let cluster = Cluster::start_on(folder, &[]);
    assert_eq!(values(&cluster), []);
}

#[test]
fn without_memcached_its_package_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let dir = data(folder.path());
    let ended = clockwise()
        .args([
            "up",
            "--engine",
            "memcached",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ])
        .arg("--dir")
        .arg(dir)
        .env("CLOCKWISE_MEMCACHED", "/nowhere/memcached")
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{words}");
    assert!(words.contains("package memcached"), "{words}");
    assert!(words.contains("CLOCKWISE_MEMCACHED"), "{words}");
}

#[test]
fn options_of_other_engines_are_refused() {
    for (args, words) in [
        (
            &["--engine", "memcached", "--scripts"][..],
            "run no scripts",
        ),
        (
            &["--engine", "memcached", "--persist", "aof"],
            "keep nothing over a restart",
        ),
        (
            &["--engine", "redis", "--flush-all"],
            "flush_all is a command of memcached",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let refused = crate::cluster::refused_up(folder.path(), args);
        assert_eq!(refused.exit, 1, "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
    let open = Cluster::start(&["--engine", "memcached", "--flush-all", "--nodes", "2"]);
    store(&open, "value");
    assert_eq!(ask(&open, "flush_all\r\n"), "OK\r\n");
    assert_eq!(values(&open), []);
}
