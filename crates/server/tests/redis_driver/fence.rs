//! The fence: what is certain once it has returned.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clockwise::driver::redis::{Patience, RedisDriver, RedisOptions};
use clockwise::driver::{Driver, DriverError, Generation, Term};
use clockwise_client::resp::Value;
use clockwise_testkit::RedisServer;

use crate::setup::{ADMIN, Client, command, driver, node, options, session, start};

#[track_caller]
fn is_locked_out(server: &RedisServer, user: &str) {
    let reply = Client::connect(server).ask(&[b"AUTH", user.as_bytes(), b"secret"]);
    assert!(
        matches!(&reply, Value::Error(why) if why.starts_with("WRONGPASS")),
        "{user}: {reply:?}"
    );
}

/// The value of `key` for the administrator, and again after everything that could still be running
/// had its turn.
fn settled(admin: &mut Client, key: &str) -> Value {
    let before = admin.run(&format!("GET {key}"));
    for _ in 0..50 {
        admin.run("PING");
    }
    assert_eq!(
        admin.run(&format!("GET {key}")),
        before,
        "something was executed after the fence"
    );
    before
}

#[tokio::test]
async fn a_fence_removes_every_lower_generation_and_no_other() {
    let server = start();
    let session = session(&server).await;
    for generation in [1, 2, 5, 9, 10, 11] {
        session
            .make_client_user(Generation(generation), "secret")
            .await
            .unwrap();
    }
    let mut newest = Client::login(&server, "cw-g10", "secret");
    session.fence(Generation(10)).await.unwrap();
    assert_eq!(
        session.client_users().await.unwrap(),
        [10, 11].map(Generation)
    );
    for user in ["cw-g1", "cw-g2", "cw-g5", "cw-g9"] {
        is_locked_out(&server, user);
    }
    newest.run("SET k v");
    // Nothing to remove is a fence too.
    session.fence(Generation(10)).await.unwrap();
    session.fence(Generation(0)).await.unwrap();
    assert_eq!(
        session.client_users().await.unwrap(),
        [10, 11].map(Generation)
    );
}

#[tokio::test]
async fn a_transaction_in_the_making_is_never_executed() {
    let server = start();
    let session = session(&server).await;
    session
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    let mut client = Client::login(&server, "cw-g1", "secret");
    client.run("MULTI");
    client.run("SET k late");
    session.fence(Generation(2)).await.unwrap();
    client.try_send(&command(&[b"EXEC"]));
    assert_eq!(client.try_reply(), None);
    assert_eq!(settled(&mut Client::admin(&server), "k"), Value::Null);
}

#[tokio::test]
async fn a_command_half_sent_before_the_fence_is_never_executed() {
    let server = start();
    let session = session(&server).await;
    session
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    let mut client = Client::login(&server, "cw-g1", "secret");
    let set = command(&[b"SET", b"k", b"late"]);
    let (half, rest) = set.split_at(set.len() / 2);
    client.send(half);
    session.fence(Generation(2)).await.unwrap();
    client.try_send(rest);
    assert_eq!(client.try_reply(), None);
    assert_eq!(settled(&mut Client::admin(&server), "k"), Value::Null);
}

#[tokio::test]
async fn a_blocked_client_takes_nothing_after_the_fence() {
    let server = start();
    let session = session(&server).await;
    session
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    let mut blocked = Client::login(&server, "cw-g1", "secret");
    blocked.send(&command(&[b"BLPOP", b"list", b"0"]));
    let mut admin = Client::admin(&server);
    while admin
        .run("INFO clients")
        .as_text()
        .is_none_or(|info| !info.contains("blocked_clients:1"))
    {}
    session.fence(Generation(2)).await.unwrap();
    admin.run("RPUSH list element");
    assert_eq!(admin.run("LLEN list").as_integer(), Some(1));
    assert_eq!(blocked.try_reply(), None);
}

#[tokio::test]
async fn a_subscriber_and_a_client_without_replies_are_closed() {
    let server = start();
    let session = session(&server).await;
    session
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    let mut subscriber = Client::login(&server, "cw-g1", "secret");
    subscriber.run("SUBSCRIBE channel");
    let mut silent = Client::login(&server, "cw-g1", "secret");
    silent.send(&command(&[b"CLIENT", b"REPLY", b"OFF"]));
    silent.send(&command(&[b"SET", b"k", b"before"]));
    let mut admin = Client::admin(&server);
    while admin.run("GET k") == Value::Null {}
    session.fence(Generation(2)).await.unwrap();
    silent.try_send(&command(&[b"SET", b"k", b"late"]));
    assert_eq!(silent.try_reply(), None);
    assert_eq!(subscriber.try_reply(), None);
    assert_eq!(settled(&mut admin, "k").as_text(), Some("before"));
}

#[tokio::test]
async fn of_a_long_pipeline_nothing_is_executed_after_the_fence() {
    let server = start();
    let session = session(&server).await;
    session
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    let server = Arc::new(server);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let server = Arc::clone(&server);
            thread::spawn(move || {
                let mut client = Client::login(&server, "cw-g1", "secret");
                let batch = command(&[b"INCR", b"n"]).repeat(5_000);
                loop {
                    client.try_send(&batch);
                    for _ in 0..5_000 {
                        if client.try_reply().is_none() {
                            return;
                        }
                    }
                }
            })
        })
        .collect();
    let mut admin = Client::admin(&server);
    while admin.run("GET n").as_text().is_none_or(|n| n.len() < 6) {}
    session.fence(Generation(2)).await.unwrap();
    assert_ne!(settled(&mut admin, "n"), Value::Null);
    for client in clients {
        client.join().unwrap();
    }
}

#[tokio::test]
async fn a_long_script_is_no_fence_but_an_error() {
    let server = start();
    let options = RedisOptions {
        scripts: true,
        ..options()
    };
    let session = RedisDriver::new(options)
        .session(&node(&server), Term(1))
        .await
        .unwrap();
    session
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    let mut admin = Client::admin(&server);
    admin.run("CONFIG SET busy-reply-threshold 1");
    let mut client = Client::login(&server, "cw-g1", "secret");
    client.send(&command(&[b"EVAL", b"while true do end", b"0"]));
    let is_busy = |reply: Value| matches!(reply, Value::Error(why) if why.starts_with("BUSY"));
    while !is_busy(admin.ask(&[b"GET", b"k"])) {}
    let fenced = session.fence(Generation(2)).await;
    assert!(
        matches!(fenced, Err(DriverError::Busy { .. })),
        "{fenced:?}"
    );
    let written = session.size().await;
    assert!(
        matches!(written, Err(DriverError::Busy { .. })),
        "{written:?}"
    );
    admin.run("SCRIPT KILL");
    while is_busy(admin.ask(&[b"GET", b"k"])) {}
    assert_eq!(session.client_users().await.unwrap(), [Generation(1)]);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_no_fence() {
    let server = start();
    let patience = Patience {
        connect: Duration::from_secs(1),
        call: Duration::from_millis(200),
    };
    let session = RedisDriver::new(RedisOptions {
        patience,
        ..options()
    })
    .session(&node(&server), Term(1))
    .await
    .unwrap();
    session
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    server.pause();
    let fenced = session.fence(Generation(2)).await;
    assert!(
        matches!(&fenced, Err(DriverError::Unreachable { why, .. }) if why.contains("200ms")),
        "{fenced:?}"
    );
    server.resume();
    // The connection is gone for good: nobody may take its late replies for others.
    assert!(matches!(
        session.size().await,
        Err(DriverError::Unreachable { .. })
    ));
}

#[tokio::test]
async fn connections_of_older_generations_are_counted() {
    let server = start();
    let session = session(&server).await;
    for generation in [1, 2, 3] {
        session
            .make_client_user(Generation(generation), "secret")
            .await
            .unwrap();
    }
    let first = Client::login(&server, "cw-g1", "secret");
    let _second = Client::login(&server, "cw-g2", "secret");
    let _third = Client::login(&server, "cw-g3", "secret");
    for (below, count) in [(1, 0), (2, 1), (3, 2), (4, 3)] {
        assert_eq!(
            session.connections_below(Generation(below)).await.unwrap(),
            count,
            "{below}"
        );
    }
    drop(first);
    while session.connections_below(Generation(2)).await.unwrap() > 0 {}
    session.fence(Generation(9)).await.unwrap();
    assert_eq!(session.connections_below(Generation(9)).await.unwrap(), 0);
}

/// A replica of `primary`, in step with it.
fn replica_of(primary: &RedisServer) -> RedisServer {
    let replica = start();
    let mut client = Client::admin(&replica);
    client.run(&format!("CONFIG SET masterauth {ADMIN}"));
    client.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    while client
        .run("INFO replication")
        .as_text()
        .is_none_or(|info| !info.contains("master_link_status:up"))
    {}
    let mut client = Client::admin(primary);
    let online = format!("port={},state=online", replica.port());
    while client
        .run("INFO replication")
        .as_text()
        .is_none_or(|info| !info.contains(&online))
    {}
    replica
}

#[tokio::test]
async fn replicas_are_fenced_with_their_primary_and_so_are_theirs() {
    let primary = start();
    let replica = replica_of(&primary);
    let chained = replica_of(&replica);
    let session = session(&primary).await;
    session
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    let mut readers: Vec<_> = [&primary, &replica, &chained]
        .into_iter()
        .map(|server| Client::login(server, "cw-g1", "secret"))
        .collect();
    // One that joins later has no users of ours until the next ones are made.
    let late = replica_of(&primary);
    session
        .make_client_user(Generation(2), "secret")
        .await
        .unwrap();
    drop(Client::login(&late, "cw-g2", "secret"));
    Client::admin(&late).run("ACL SETUSER cw-g1 on >secret ~* +@all");
    session.fence(Generation(2)).await.unwrap();
    for (server, reader) in [&primary, &replica, &chained].into_iter().zip(&mut readers) {
        reader.try_send(&command(&[b"GET", b"k"]));
        assert_eq!(reader.try_reply(), None);
        is_locked_out(server, "cw-g1");
        drop(Client::login(server, "cw-g2", "secret"));
    }
    is_locked_out(&late, "cw-g1");
    assert_eq!(session.client_users().await.unwrap(), [Generation(2)]);
}

#[tokio::test]
async fn a_replica_that_cannot_be_reached_is_not_fenced() {
    let primary = start();
    let mut replica = replica_of(&primary);
    let session = session(&primary).await;
    session
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    replica.kill9();
    let fenced = session.fence(Generation(2)).await;
    assert!(
        matches!(fenced, Err(DriverError::Unreachable { .. })),
        "{fenced:?}"
    );
}

#[tokio::test]
async fn a_term_enters_replicas_too_and_removes_lower_terms_there() {
    let primary = start();
    let replica = replica_of(&primary);
    let old = driver().session(&node(&primary), Term(1)).await.unwrap();
    let new = driver().session(&node(&primary), Term(2)).await.unwrap();
    let users = Client::admin(&replica).run("ACL USERS");
    let users: Vec<_> = users
        .as_array()
        .unwrap()
        .iter()
        .map(|user| user.as_text().unwrap())
        .collect();
    assert_eq!(users, ["cw-t2", "default"]);
    assert!(old.make_client_user(Generation(1), "secret").await.is_err());
    new.make_client_user(Generation(1), "secret").await.unwrap();
}
