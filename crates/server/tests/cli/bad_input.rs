//! What a folder or a server may be that `up` and `apply` cannot use: each gets its clear error, and nothing
//! is changed by it.

use std::fs;

use clockwise_testkit::{MemcachedOptions, MemcachedServer, RedisOptions, RedisServer};

use crate::cluster::{Cluster, data, refused_up, wait_until};

/// A folder on which a pool was begun.
fn begun() -> tempfile::TempDir {
    Cluster::start(&["--nodes", "1"]).end()
}

#[test]
fn a_record_that_cannot_be_read_is_refused_and_stays_as_it_is() {
    let folder = begun();
    let path = data(folder.path()).join("record.json");
    let whole = fs::read(&path).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let future = text.replacen("\"format\":1", "\"format\":99", 1);
    assert_ne!(future, text, "the record names its format: {text}");
    let mut names_nobody: serde_json::Value = serde_json::from_str(&text).unwrap();
    names_nobody["membership"]["nodes"] = serde_json::json!([]);
    let mut short: serde_json::Value = serde_json::from_str(&text).unwrap();
    short["membership"]["generator"]["table"] = serde_json::json!([0, 0, 0]);
    let mut stranger: serde_json::Value = serde_json::from_str(&text).unwrap();
    stranger["membership"]["generator"]["owners"] = serde_json::json!(["nobody"]);
    for (record, words) in [
        (short.to_string().into_bytes(), "4096"),
        (stranger.to_string().into_bytes(), "nobody"),
        (Vec::new(), "empty"),
        (whole[..whole.len() / 2].to_vec(), "torn"),
        (b"\x7fELF".to_vec(), "record.json"),
        (future.into_bytes(), "99"),
        (names_nobody.to_string().into_bytes(), "node"),
    ] {
        fs::write(&path, &record).unwrap();
        let up = refused_up(folder.path(), &[]);
        assert_eq!((up.exit, up.stdout.as_str()), (1, ""), "{words}: {up:?}");
        assert!(up.stderr.contains(words), "{words}: {up:?}");
        assert_eq!(fs::read(&path).unwrap(), record, "{words}");
    }
    fs::write(&path, &whole).unwrap();
    let again = Cluster::start_on(folder, &[]);
    assert_eq!(again.run(&["status", "--check"]).exit, 0);
}

#[test]
fn an_older_record_put_back_is_told_and_the_newer_one_goes_on() {
    let cluster = Cluster::start(&["--nodes", "2"]);
    let path = cluster.dir().join("record.json");
    let older = fs::read(&path).unwrap();
    for verb in [
        &["node", "set", "node-1", "--weight", "2"][..],
        &["apply", "--wait"],
    ] {
        assert_eq!(cluster.run(verb).exit, 0, "{verb:?}");
    }
    let newer = fs::read(&path).unwrap();
    fs::write(&path, older).unwrap();
    wait_until("it is told", || {
        let status = cluster.run(&["status"]);
        status.exit == 6 && status.stderr.contains("went back to epoch 1")
    });
    let () = redis::cmd("SET")
        .arg("k")
        .arg("v")
        .query(&mut cluster.client())
        .unwrap();
    let staged = cluster.run(&["node", "set", "node-1", "--weight", "3"]);
    assert_eq!(staged.exit, 6, "nothing is decided on it: {staged:?}");
    fs::write(&path, newer).unwrap();
    wait_until("all is well again", || {
        cluster.run(&["status", "--check"]).exit == 0
    });
}

#[test]
fn servers_that_cannot_be_nodes_are_refused_by_name_and_nothing_begins() {
    let cluster = Cluster::start(&["--engine", "redis", "--persist", "none", "--nodes", "1"]);
    let password = fs::read_to_string(cluster.dir().join("nodes.password")).unwrap();
    let password = Some(password.trim().to_owned());
    let own = || RedisOptions {
        password: password.clone(),
        ..RedisOptions::default()
    };
    let memcached = MemcachedServer::start(MemcachedOptions::default());
    let stranger = RedisServer::start(RedisOptions {
        password: Some("another".to_owned()),
        ..RedisOptions::default()
    });
    let open = RedisServer::start(RedisOptions::default());
    let evicts = RedisServer::start(RedisOptions {
        policy: Some("allkeys-lru".to_owned()),
        max_memory: Some(100 << 20),
        ..own()
    });
    let small = RedisServer::start(RedisOptions {
        max_memory: Some(1 << 20),
        ..own()
    });
    let written = RedisServer::start(own());
    written.cli(&["ACL", "SETUSER", "intruder", "on", ">guess", "~*", "+set"]);
    for (address, words) in [
        (memcached.addr(), "not a server that this pool can use"),
        ("127.0.0.1:1".to_owned(), "refused"),
        (stranger.addr(), "WRONGPASS"),
        (open.addr(), "password"),
        (evicts.addr(), "evict"),
        (small.addr(), "memory"),
        (written.addr(), "intruder"),
    ] {
        let added = cluster.run(&["node", "add", "newcomer", "--addr", &address]);
        assert_eq!(added.exit, 0, "{words}: {added:?}");
        let plan = cluster.run(&["plan"]);
        assert_eq!(plan.exit, 0, "{words}: {plan:?}");
        let told = plan.stdout.lines().any(|line| {
            line.starts_with("would be refused now:")
                && line.contains("newcomer")
                && line.contains(words)
        });
        assert!(told, "{words}: {plan:?}");
        assert!(plan.stdout.contains("Mend that"), "{words}: {plan:?}");
        let refused = cluster.run(&["apply", "--wait"]);
        assert_eq!(refused.exit, 7, "{words}: {refused:?}");
        assert!(
            refused.stderr.contains("newcomer") && refused.stderr.contains(words),
            "{words}: {refused:?}"
        );
        assert_eq!(cluster.run(&["unstage"]).exit, 0);
    }
    let fit = RedisServer::start(own());
    let added = cluster.run(&["node", "add", "newcomer", "--addr", &fit.addr()]);
    assert_eq!(added.exit, 0, "{added:?}");
    let plan = cluster.run(&["plan", "-o", "json"]).json("Plan");
    assert_eq!(plan["preflight"], serde_json::json!([]), "{plan}");
    let written = fit.cli(&["INFO", "commandstats"]);
    assert!(!written.contains("cmdstat_restore"), "a plan only looks");
    let status = cluster.run(&["status", "-o", "json"]).json("Status");
    assert_eq!(
        (&status["epoch"], &status["change"]),
        (&serde_json::json!(1), &serde_json::Value::Null)
    );
}
