//! What an inspection sees.

use clockwise::driver::redis::{Login, RedisDriver, RedisOptions};
use clockwise::driver::{Driver, DriverError, Generation, NodeFacts, Persistence};
use clockwise_testkit::{RedisOptions as Started, RedisServer};

use crate::setup::{ADMIN, Client, driver, node, options, session, start, start_with};

async fn inspect(server: &RedisServer) -> NodeFacts {
    driver().inspect(&node(server)).await.unwrap()
}

#[tokio::test]
async fn a_server_as_it_should_be_has_nothing_to_complain_about() {
    let server = start();
    let mut client = Client::admin(&server);
    client.run("MSET a 1 b 2");
    let users = client.run("ACL LIST");
    let before = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis();
    let facts = inspect(&server).await;
    let (name, version) = facts.server.split_once(' ').unwrap();
    assert!(["redis", "valkey"].contains(&name), "{}", facts.server);
    assert!(
        version.split('.').next().unwrap().parse::<u32>().unwrap() >= 7,
        "{}",
        facts.server
    );
    assert!(facts.identity.primary);
    assert_eq!(
        (facts.keys, facts.evicts, facts.memory_limit_bytes),
        (2, false, None)
    );
    assert!(facts.memory_used_bytes > 100_000);
    assert!(u128::from(facts.clock_ms).abs_diff(before) < 10_000);
    assert_eq!(facts.open_by_default, None);
    assert!(
        facts.foreign_writers.is_empty() && facts.persisted_users.is_empty(),
        "{facts:?}"
    );
    assert!(
        facts.missing_rights.is_empty() && facts.replicas.is_empty(),
        "{facts:?}"
    );
    assert_eq!(client.run("ACL LIST"), users, "nothing stays behind");
}

#[tokio::test]
async fn persistence_is_what_a_restart_would_keep() {
    let lines = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| (*line).to_owned())
            .collect::<Vec<_>>()
    };
    for (append_only, config, expected) in [
        (false, lines(&[]), Persistence::None),
        (
            false,
            lines(&["save 3600 1 300 100"]),
            Persistence::Snapshots,
        ),
        (true, lines(&[]), Persistence::AppendEverySecond),
        (
            true,
            lines(&["appendfsync no"]),
            Persistence::AppendEverySecond,
        ),
        (
            true,
            lines(&["appendfsync always"]),
            Persistence::AppendAlways,
        ),
    ] {
        let server = start_with(Started {
            append_only,
            config: config.clone(),
            ..Started::default()
        });
        assert_eq!(
            inspect(&server).await.persistence,
            expected,
            "{append_only} {config:?}"
        );
    }
}

#[tokio::test]
async fn a_server_with_a_limit_evicts_unless_its_policy_forbids_it() {
    let limited = |policy: &str| Started {
        max_memory: Some(64 << 20),
        policy: Some(policy.to_owned()),
        ..Started::default()
    };
    let facts = inspect(&start_with(limited("noeviction"))).await;
    assert_eq!(
        (facts.evicts, facts.memory_limit_bytes),
        (false, Some(64 << 20))
    );
    assert!(inspect(&start_with(limited("allkeys-lru"))).await.evicts);
    // Without a limit nothing is ever full.
    let unlimited = Started {
        policy: Some("allkeys-lru".to_owned()),
        ..Started::default()
    };
    assert!(!inspect(&start_with(unlimited)).await.evicts);
}

#[tokio::test]
async fn users_who_may_write_are_named_and_those_who_only_read_are_not() {
    let server = start();
    let mut client = Client::admin(&server);
    for user in [
        "writer on >x ~* +@all",
        "reader on >x ~* +@read",
        "pusher on >x ~list:* -@all +rpush",
        "off off >x ~* +@all",
        "nobody on ~* +@all",
        "selector on >x ~* +get",
        "monitor on >x +info +config|get +ping",
        "flusher on >x +flushall",
        "nowrites on >x ~* +@all -@write -@dangerous",
        "replica on >x +psync +replconf +ping",
    ] {
        client.run(&format!("ACL SETUSER {user}"));
    }
    client.ask(&[b"ACL", b"SETUSER", b"selector", b"(~tmp:* +set)"]);
    session(&server)
        .await
        .make_client_user(Generation(3), "secret")
        .await
        .unwrap();
    assert_eq!(
        inspect(&server).await.foreign_writers,
        ["flusher", "pusher", "selector", "writer"]
    );
}

#[tokio::test]
async fn the_default_user_is_a_foreign_writer_beside_another_administrator() {
    let server = start();
    Client::admin(&server).run("ACL SETUSER admin on >x ~* &* +@all");
    let administrator = Login {
        user: "admin".to_owned(),
        password: Some("x".to_owned()),
    };
    let driver = RedisDriver::new(RedisOptions {
        administrator,
        ..options()
    });
    assert_eq!(
        driver
            .inspect(&node(&server))
            .await
            .unwrap()
            .foreign_writers,
        ["default"]
    );
}

fn as_admin() -> (RedisDriver, Option<(String, String)>) {
    let administrator = Login {
        user: "admin".to_owned(),
        password: Some("x".to_owned()),
    };
    let admin = Some(("admin".to_owned(), "x".to_owned()));
    (
        RedisDriver::new(RedisOptions {
            administrator,
            ..options()
        }),
        admin,
    )
}

#[tokio::test]
async fn a_default_user_switched_off_by_command_alone_counts_as_open() {
    let mut server = RedisServer::start(Started::default());
    server.cli(&["ACL", "SETUSER", "admin", "on", ">x", "~*", "&*", "+@all"]);
    let (driver, admin) = as_admin();
    server.options_mut().admin = admin;
    server.cli(&["ACL", "SETUSER", "default", "off"]);
    let facts = driver.inspect(&node(&server)).await.unwrap();
    assert!(
        facts
            .open_by_default
            .is_some_and(|why| why.contains("requirepass"))
    );
    // What the rule is about: this server comes back open.
    server.options_mut().admin = None;
    server.restart();
    assert_eq!(server.cli(&["SET", "k", "v"]), "OK");
}

#[tokio::test]
async fn a_user_file_with_the_default_user_off_is_closed() {
    let (driver, admin) = as_admin();
    let acl = vec![
        "user default off".to_owned(),
        "user admin on >x ~* &* +@all".to_owned(),
    ];
    let server = RedisServer::start(Started {
        acl,
        admin,
        ..Started::default()
    });
    let facts = driver.inspect(&node(&server)).await.unwrap();
    assert_eq!(facts.open_by_default, None);
    assert!(facts.foreign_writers.is_empty());
}

#[tokio::test]
async fn users_of_ours_that_came_from_a_file_are_told_from_those_made_in_this_run() {
    let mut server = start();
    session(&server)
        .await
        .make_client_user(Generation(3), "secret")
        .await
        .unwrap();
    assert!(inspect(&server).await.persisted_users.is_empty());
    // Somebody rewrites the configuration, and our users are in it for good.
    let configuration = server.dir().join("redis.conf");
    server.cli(&["CONFIG", "REWRITE"]);
    let written = std::fs::read_to_string(&configuration).unwrap();
    let poison: Vec<String> = written
        .lines()
        .filter(|line| line.starts_with("user cw-"))
        .map(str::to_owned)
        .collect();
    assert_eq!(poison.len(), 2, "{written}");
    server.options_mut().config.extend(poison);
    server.restart();
    assert_eq!(inspect(&server).await.persisted_users, ["cw-g3", "cw-t1"]);
    // Made again in this run, they are ours again.
    session(&server)
        .await
        .make_client_user(Generation(3), "secret")
        .await
        .unwrap();
    assert!(inspect(&server).await.persisted_users.is_empty());
}

#[tokio::test]
async fn a_restart_is_another_identity_and_so_is_another_servers_data() {
    let mut server = start();
    let other = start();
    let first = session(&server).await.identity().await.unwrap();
    assert_eq!(session(&server).await.identity().await.unwrap(), first);
    assert_eq!(inspect(&server).await.identity, first);
    server.restart();
    let session = session(&server).await;
    let second = session.identity().await.unwrap();
    assert_ne!(second.run_id, first.run_id);

    let mut client = Client::admin(&server);
    client.run(&format!("CONFIG SET masterauth {ADMIN}"));
    client.run(&format!("REPLICAOF 127.0.0.1 {}", other.port()));
    while client
        .run("INFO replication")
        .as_text()
        .is_none_or(|info| !info.contains("master_link_status:up"))
    {}
    let third = session.identity().await.unwrap();
    assert_eq!(
        (third.run_id.as_str(), third.primary),
        (second.run_id.as_str(), false)
    );
    assert_ne!(third.replication_id, second.replication_id);
    client.run("REPLICAOF NO ONE");
    let fourth = session.identity().await.unwrap();
    assert!(fourth.primary);
    assert_ne!(fourth.replication_id, second.replication_id);
}

#[tokio::test]
async fn replicas_are_listed_and_one_that_refuses_us_is_told() {
    let (primary, replica) = (start(), start());
    let mut client = Client::admin(&replica);
    client.run(&format!("CONFIG SET masterauth {ADMIN}"));
    client.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    while client
        .run("INFO replication")
        .as_text()
        .is_none_or(|info| !info.contains("master_link_status:up"))
    {}
    let facts = inspect(&primary).await;
    assert_eq!(facts.replicas, [replica.addr()]);
    assert!(facts.missing_rights.is_empty(), "{facts:?}");
    client.run("CONFIG SET requirepass another");
    let facts = inspect(&primary).await;
    assert!(
        facts
            .missing_rights
            .iter()
            .any(|right| right.contains(&replica.addr())),
        "{facts:?}"
    );
}

#[tokio::test]
async fn the_canary_sings_and_leaves_nothing_behind() {
    let (source, target) = (start(), start());
    driver()
        .canary(&node(&source), &node(&target))
        .await
        .unwrap();
    for server in [&source, &target] {
        assert_eq!(Client::admin(server).run("DBSIZE").as_integer(), Some(0));
    }
    Client::admin(&target).run("CONFIG SET maxmemory 1");
    let error = driver()
        .canary(&node(&source), &node(&target))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            DriverError::Refused {
                command: "RESTORE",
                ..
            }
        ),
        "{error}"
    );
    let gone = "127.0.0.1:1";
    let error = driver()
        .canary(&node(&source), &crate::setup::address(gone))
        .await
        .unwrap_err();
    assert!(matches!(error, DriverError::Unreachable { .. }), "{error}");
}
