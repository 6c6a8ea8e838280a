//! What is reported as durable is there after the server was killed.

use std::time::{Duration, Instant};

use clockwise::driver::{Item, Payload};
use clockwise_testkit::{RedisOptions as Started, RedisServer};

use crate::setup::{Client, key, session, start, start_with};

async fn write_and_wait(server: &RedisServer) -> Duration {
    let session = session(server).await;
    let item = Item {
        payload: Payload::Text(key("value")),
        expires_at_ms: None,
        untracked: false,
    };
    assert_eq!(
        session.write(vec![(key("written"), item)]).await.unwrap(),
        [Ok(())]
    );
    let begun = Instant::now();
    session.durable().await.unwrap();
    begun.elapsed()
}

#[track_caller]
fn survives_a_kill(server: &mut RedisServer, survives: bool) {
    server.kill9();
    server.restart();
    assert_eq!(
        Client::admin(server).run("EXISTS written").as_integer(),
        Some(i64::from(survives))
    );
}

#[tokio::test]
async fn a_log_synced_every_second_is_waited_for() {
    let mut server = start_with(Started {
        append_only: true,
        ..Started::default()
    });
    write_and_wait(&server).await;
    survives_a_kill(&mut server, true);
}

#[tokio::test]
async fn a_log_synced_before_each_reply_needs_no_waiting() {
    let config = vec!["appendfsync always".to_owned()];
    let mut server = start_with(Started {
        append_only: true,
        config,
        ..Started::default()
    });
    assert!(write_and_wait(&server).await < Duration::from_secs(1));
    survives_a_kill(&mut server, true);
}

#[tokio::test]
async fn a_snapshot_is_made_where_there_is_no_log() {
    let config = vec!["save 3600 1".to_owned()];
    let mut server = start_with(Started {
        config,
        ..Started::default()
    });
    write_and_wait(&server).await;
    survives_a_kill(&mut server, true);
}

#[tokio::test]
async fn a_snapshot_begun_before_does_not_count() {
    let config = vec![
        "save 3600 1".to_owned(),
        "rdb-key-save-delay 300".to_owned(),
    ];
    let mut server = start_with(Started {
        config,
        ..Started::default()
    });
    let mut client = Client::admin(&server);
    for rank in 0..1000 {
        client.run(&format!("SET key{rank} v"));
    }
    client.run("BGSAVE");
    write_and_wait(&server).await;
    survives_a_kill(&mut server, true);
}

#[tokio::test]
async fn a_snapshot_that_fails_is_an_error() {
    let config = vec!["save 3600 1".to_owned()];
    let server = start_with(Started {
        config,
        ..Started::default()
    });
    let session = session(&server).await;
    // A directory where the file should go.
    std::fs::create_dir(server.dir().join("dump.rdb")).unwrap();
    std::fs::write(server.dir().join("dump.rdb/occupied"), b"").unwrap();
    let error = session.durable().await.unwrap_err().to_string();
    assert!(error.contains("snapshot"), "{error}");
}

#[tokio::test]
async fn a_server_that_keeps_nothing_has_nothing_to_wait_for() {
    let mut server = start();
    assert!(write_and_wait(&server).await < Duration::from_secs(1));
    survives_a_kill(&mut server, false);
}
