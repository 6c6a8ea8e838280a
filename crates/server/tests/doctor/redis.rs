//! Redis nodes of class store.

use clockwise_testkit::{MemcachedOptions, MemcachedServer, RedisOptions, RedisServer};

use crate::examined::{Examined, NODES_PASSWORD};

const MEMORY: u64 = 64 << 20;

/// A node with which nothing is wrong.
fn sound() -> RedisOptions {
    RedisOptions {
        password: Some(NODES_PASSWORD.to_owned()),
        append_only: true,
        max_memory: Some(MEMORY),
        ..RedisOptions::default()
    }
}

fn with_config(lines: &[&str]) -> RedisOptions {
    RedisOptions {
        config: lines.iter().map(|line| (*line).to_owned()).collect(),
        ..sound()
    }
}

/// Puts such a node beside a sound one, expects this finding alone, and where a command mends it pastes that.
#[track_caller]
fn plant(options: RedisOptions, check: &str, mend: bool) {
    let (server, beside) = (RedisServer::start(options), RedisServer::start(sound()));
    let examined = Examined::over_a_file(&[beside.addr(), server.addr()]);
    let found = examined.doctor();
    assert_eq!(found.names(), [check], "{found:#?}");
    let place = found.one(check)["place"].as_str().unwrap();
    assert_eq!(place, format!("node node-2 at {}", server.addr()));
    if mend {
        found.mend(check);
        let found = examined.doctor();
        assert_eq!(found.names(), Vec::<&str>::new(), "{found:#?}");
    }
}

#[test]
fn a_sound_pool_has_nothing() {
    let nodes = [RedisServer::start(sound()), RedisServer::start(sound())];
    let examined = Examined::over_a_file(&nodes.each_ref().map(RedisServer::addr));
    let found = examined.doctor();
    assert_eq!((found.names(), found.exit), (Vec::new(), 0), "{found:#?}");
    assert_eq!(found.answer["nodes"], 2);
    assert_eq!(found.answer["epoch"], 1);
    for node in &nodes {
        // Looking has left nobody behind.
        assert!(!node.cli(&["ACL", "USERS"]).contains("cw-"));
    }
}

#[test]
fn a_store_that_evicts() {
    let options = RedisOptions {
        policy: Some("allkeys-lru".to_owned()),
        ..sound()
    };
    plant(options, "redis-evicts", true);
}

#[test]
fn a_store_that_keeps_nothing() {
    let options = RedisOptions {
        append_only: false,
        ..sound()
    };
    plant(options, "redis-no-persistence", true);
}

#[test]
fn a_store_that_keeps_snapshots_alone() {
    let options = RedisOptions {
        append_only: false,
        ..with_config(&["save 60 1000"])
    };
    plant(options, "redis-snapshots-only", true);
}

#[test]
fn an_append_only_file_that_is_never_synced() {
    plant(with_config(&["appendfsync no"]), "redis-appendfsync", true);
}

#[test]
fn a_server_that_drops_idle_connections() {
    plant(with_config(&["timeout 300"]), "redis-timeout", true);
}

#[test]
fn a_server_that_cuts_slow_readers_off() {
    let limit = "client-output-buffer-limit normal 1mb 0 0";
    plant(with_config(&[limit]), "redis-output-buffer", true);
}

#[test]
fn a_server_without_its_protected_mode() {
    plant(
        with_config(&["protected-mode no"]),
        "redis-protected-mode",
        true,
    );
}

#[test]
fn a_server_without_a_limit_of_memory() {
    let options = RedisOptions {
        max_memory: None,
        ..sound()
    };
    plant(options, "redis-no-maxmemory", true);
}

#[test]
fn a_server_that_lets_everybody_in() {
    let options = RedisOptions {
        password: None,
        ..sound()
    };
    plant(options, "redis-open", true);
}

#[test]
fn a_server_that_is_open_after_its_next_start() {
    let options = RedisOptions {
        password: None,
        config: vec![format!("user default on >{NODES_PASSWORD} ~* &* +@all")],
        admin: Some(("default".to_owned(), NODES_PASSWORD.to_owned())),
        ..sound()
    };
    plant(options, "redis-open-after-restart", true);
}

#[test]
fn a_server_with_another_password() {
    let options = RedisOptions {
        password: Some("another".to_owned()),
        ..sound()
    };
    plant(options, "redis-login", false);
}

#[test]
fn a_server_that_hides_a_command_of_a_move() {
    plant(
        with_config(&["rename-command DUMP \"\""]),
        "redis-commands",
        false,
    );
}

#[test]
fn a_server_that_is_part_of_a_cluster() {
    plant(
        with_config(&["cluster-enabled yes"]),
        "redis-cluster-mode",
        false,
    );
}

#[test]
fn a_user_who_may_write_past_the_fence() {
    let line = "user app on >of-the-application ~* +@all";
    plant(with_config(&[line]), "redis-foreign-writer", true);
}

#[test]
fn a_user_of_ours_that_comes_back() {
    let line = "user cw-g7 on >of-a-copy ~* +@all";
    plant(with_config(&[line]), "redis-kept-users", false);
}

#[test]
fn keys_that_nobody_sees() {
    let server = RedisServer::start(sound());
    server.cli(&["-n", "3", "SET", "key", "value"]);
    let found = Examined::over_a_file(&[server.addr()]).doctor();
    assert_eq!(found.names(), ["redis-other-databases"], "{found:#?}");
    assert!(
        found
            .next("redis-other-databases")
            .ends_with("INFO keyspace")
    );
}

#[test]
fn a_server_that_is_full() {
    let server = RedisServer::start(sound());
    server.cli(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let found = Examined::over_a_file(&[server.addr()]).doctor();
    assert_eq!(found.names(), ["redis-refuses-writes"], "{found:#?}");
}

#[test]
fn a_replica_in_the_place_of_its_primary() {
    let primary = RedisServer::start(sound());
    let follows = format!("replicaof 127.0.0.1 {}", primary.port());
    let replica = RedisServer::start(with_config(&[
        &follows,
        &format!("masterauth {NODES_PASSWORD}"),
    ]));
    let found = Examined::over_a_file(&[replica.addr()]).doctor();
    assert!(found.has("redis-replica"), "{found:#?}");
    let mends = format!("clockwise node set node-1 --addr {}", primary.addr());
    assert_eq!(found.next("redis-replica"), mends);
}

#[test]
fn one_server_under_two_names() {
    let server = RedisServer::start(sound());
    let also = format!("localhost:{}", server.port());
    let found = Examined::over_a_file(&[server.addr(), also]).doctor();
    assert_eq!(found.names(), ["same-server"], "{found:#?}");
    assert_eq!(
        found.next("same-server"),
        "clockwise node set node-2 --addr HOST:PORT"
    );
}

#[test]
fn a_node_that_is_gone_or_stopped_or_something_else() {
    let mut gone = RedisServer::start(sound());
    let stopped = RedisServer::start(sound());
    let other = MemcachedServer::start(MemcachedOptions::default());
    let sound = RedisServer::start(sound());
    let addresses = [gone.addr(), stopped.addr(), other.addr(), sound.addr()];
    let examined = Examined::over_a_file(&addresses);
    gone.kill9();
    stopped.pause();
    let found = examined.doctor();
    assert_eq!(
        found.names(),
        ["node-away", "node-away", "not-a-server"],
        "{found:#?}"
    );
    stopped.resume();
    assert!(
        found
            .next("node-away")
            .contains("clockwise node set node-1 --addr")
    );
}

#[test]
fn without_the_administrators_password_that_is_said() {
    let server = RedisServer::start(sound());
    let examined = Examined::over_a_file(&[server.addr()]);
    std::fs::remove_file(examined.path("nodes.password")).unwrap();
    let found = examined.doctor();
    assert_eq!(
        found.names(),
        ["secret-missing", "not-looked-at"],
        "{found:#?}"
    );
}

#[test]
fn replicas_in_one_domain() {
    let nodes = [RedisServer::start(sound()), RedisServer::start(sound())];
    let addresses = nodes.each_ref().map(RedisServer::addr);
    let examined = Examined::with_record(&addresses, |record| {
        record["class"] = "cache".into();
        record["membership"]["replicas"] = 2.into();
    });
    let found = examined.doctor();
    assert_eq!(found.names(), ["one-domain"], "{found:#?}");
    assert_eq!(
        found.next("one-domain"),
        "say where each stands: clockwise node set node-1 --domain ZONE/RACK"
    );
}
