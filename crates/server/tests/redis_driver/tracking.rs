//! The stream of dirty keys.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use clockwise::driver::{Dirty, DirtyStream, Key};
use clockwise_client::resp::Value;

use crate::setup::{Client, key, session, start};

/// What has been told up to a barrier: the keys, and whether everything was.
async fn told(tracker: &mut Box<dyn DirtyStream>) -> (BTreeSet<Key>, bool) {
    tracker.barrier().await.unwrap();
    let (mut keys, mut everything) = (BTreeSet::new(), false);
    while let Some(dirty) = tracker.try_next() {
        match dirty {
            Dirty::Keys(some) => keys.extend(some),
            Dirty::Everything => everything = true,
            Dirty::Lost => panic!("the stream is lost"),
        }
    }
    (keys, everything)
}

#[tokio::test]
async fn whatever_touches_a_key_is_told_by_the_barrier() {
    let server = start();
    let session = session(&server).await;
    let mut tracker = session.track().await.unwrap();
    let mut client = Client::admin(&server);
    for (line, touched) in [
        ("SET k v", &["k"][..]),
        ("SET k v", &["k"]),
        ("MSET a 1 b 2", &["a", "b"]),
        ("DEL a", &["a"]),
        ("EXPIRE k 1000", &["k"]),
        ("PERSIST k", &["k"]),
        ("RENAME k k2", &["k", "k2"]),
        ("COPY k2 k3", &["k3"]),
        ("GETDEL k3", &["k3"]),
        ("RPUSH list a b c", &["list"]),
        ("LMOVE list other LEFT RIGHT", &["list", "other"]),
        ("SORT list ALPHA STORE sorted", &["sorted"]),
        ("HSET h f v", &["h"]),
        ("SADD s a b", &["s"]),
        ("SPOP s", &["s"]),
        ("ZADD z 1 a", &["z"]),
        ("ZRANGESTORE z2 z 0 -1", &["z2"]),
        ("XADD x 1-1 f v", &["x"]),
        ("XDEL x 1-1", &["x"]),
        ("PFADD p a", &["p"]),
        ("SETBIT bits 7 1", &["bits"]),
        ("EXPIRE k2 -1", &["k2"]),
        ("MOVE list 1", &["list"]),
        ("GET h2", &[]),
        ("EXISTS h", &[]),
    ] {
        client.run(line);
        let expected: BTreeSet<Key> = touched.iter().map(key).collect();
        assert_eq!(told(&mut tracker).await, (expected, false), "{line}");
    }
}

#[tokio::test]
async fn transactions_scripts_and_served_waiters_are_told() {
    let server = start();
    let session = session(&server).await;
    let mut tracker = session.track().await.unwrap();
    let mut client = Client::admin(&server);
    for line in ["MULTI", "SET a 1", "INCR b", "EXEC"] {
        client.run(line);
    }
    client.ask(&[b"EVAL", b"redis.call('SET', 'undeclared', 1)", b"0"]);
    let mut blocked = Client::admin(&server);
    blocked.send(&crate::setup::command(&[b"BLPOP", b"list", b"0"]));
    while client
        .run("INFO clients")
        .as_text()
        .is_none_or(|info| !info.contains("blocked_clients:1"))
    {}
    client.run("RPUSH list element");
    blocked.reply();
    let (keys, _) = told(&mut tracker).await;
    assert_eq!(keys, ["a", "b", "undeclared", "list"].map(key).into());
}

#[tokio::test]
async fn a_key_that_expires_is_told_without_being_asked_for() {
    let server = start();
    let session = session(&server).await;
    let mut client = Client::admin(&server);
    let mut tracker = session.track().await.unwrap();
    client.run("SET short v PX 20");
    for _set_and_expired in 0..2 {
        assert_eq!(tracker.next().await, Dirty::Keys(vec![key("short")]));
    }
}

#[tokio::test]
async fn a_flush_means_everything() {
    let server = start();
    let session = session(&server).await;
    let mut tracker = session.track().await.unwrap();
    let mut client = Client::admin(&server);
    for flush in ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC"] {
        client.run("SET k v");
        client.run(flush);
        let (keys, everything) = told(&mut tracker).await;
        assert!(everything, "{flush}");
        assert!(keys.is_subset(&[key("k")].into()), "{keys:?}");
    }
}

#[tokio::test]
async fn a_barrier_comes_behind_every_write_answered_before_it() {
    let server = start();
    let session = session(&server).await;
    let mut tracker = session.track().await.unwrap();
    let mut client = Client::admin(&server);
    for round in 0..300 {
        let name = format!("key{round}");
        client.run(&format!("SET {name} v"));
        let (keys, _) = told(&mut tracker).await;
        assert!(keys.contains(name.as_bytes()), "round {round}");
    }
}

/// The rule of two round trips: writes that the server executes in the very turn in which the barrier
/// begins are told by its end. After one round trip they need not be.
#[tokio::test]
async fn a_barrier_comes_behind_the_writes_of_the_turn_in_which_it_began() {
    let server = start();
    let session = session(&server).await;
    let mut tracker = session.track().await.unwrap();
    // As much as a server takes from one client in a turn, from many clients.
    let mut clients: Vec<_> = (0..40).map(|_| Client::admin(&server)).collect();
    for round in 0..20 {
        let mut expected = BTreeSet::new();
        let mut sent = 0;
        server.pause();
        for (rank, client) in clients.iter_mut().enumerate() {
            let names = (0..30).map(|name| format!("{name:0500}:{rank}:{round}"));
            for name in names {
                let command = crate::setup::command(&[b"SET", name.as_bytes(), b"v"]);
                client.send(&command);
                sent += command.len();
                expected.insert(key(name));
            }
        }
        // On a busy machine what was sent may arrive later than the PING of the barrier would.
        let deadline = Instant::now() + Duration::from_secs(30);
        while server.unread_bytes() < sent {
            assert!(
                Instant::now() < deadline,
                "round {round}: it does not arrive"
            );
            tokio::task::yield_now().await;
        }
        let (barrier, ()) = tokio::join!(tracker.barrier(), async { server.resume() });
        barrier.unwrap();
        let mut keys = BTreeSet::new();
        while let Some(Dirty::Keys(some)) = tracker.try_next() {
            keys.extend(some);
        }
        assert_eq!(keys.len(), expected.len(), "round {round}");
        assert_eq!(keys, expected);
        clients
            .iter_mut()
            .for_each(|client| (0..30).for_each(|_| drop(client.reply())));
    }
}

/// Why the barrier is made of two round trips: the server answers PING at once and tells of touched
/// keys at the end of its turn. Written in one go, both PONGs come before the key.
#[tokio::test]
async fn two_pings_in_one_write_are_no_barrier() {
    let server = start();
    let mut overtaken = 0;
    for _ in 0..50 {
        let mut client = Client::admin(&server);
        client.run("HELLO 3");
        client.run("CLIENT TRACKING ON BCAST");
        let ping = crate::setup::command(&[b"PING"]);
        let set = crate::setup::command(&[b"SET", b"k", b"v"]);
        client.send(&[set, ping.clone(), ping].concat());
        let replies: Vec<_> = (0..4).map(|_| client.reply()).collect();
        let told_at = replies
            .iter()
            .position(|reply| matches!(reply, Value::Array(_)));
        if told_at == Some(3) {
            overtaken += 1;
        }
    }
    assert!(
        overtaken > 0,
        "this server keeps pushes and replies in order"
    );
}

#[tokio::test]
async fn a_burst_of_writes_is_told_completely() {
    let server = start();
    let session = session(&server).await;
    let mut tracker = session.track().await.unwrap();
    let mut client = Client::admin(&server);
    let mut expected = BTreeSet::new();
    let mut batch = Vec::new();
    for rank in 0..50_000 {
        // Long enough for the sockets' buffers not to take them all.
        let name = format!("key{rank:0500}");
        batch.extend(crate::setup::command(&[b"SET", name.as_bytes(), b"v"]));
        expected.insert(key(name));
    }
    client.send(&batch);
    for _ in 0..50_000 {
        client.reply();
    }
    assert!(tracker.backlog_bytes().await.unwrap() > 0);
    assert_eq!(told(&mut tracker).await, (expected, false));
    assert_eq!(tracker.backlog_bytes().await.unwrap(), 0);
}

#[tokio::test]
async fn what_arrived_before_the_connection_broke_is_told_and_then_only_the_loss() {
    let mut server = start();
    let session = session(&server).await;
    let mut tracker = session.track().await.unwrap();
    let mut client = Client::admin(&server);
    client.run("SET k v");
    client.run("PING");
    server.kill9();
    assert_eq!(tracker.next().await, Dirty::Keys(vec![key("k")]));
    assert_eq!(tracker.next().await, Dirty::Lost);
    assert_eq!(tracker.next().await, Dirty::Lost);
    assert_eq!(tracker.try_next(), Some(Dirty::Lost));
    assert!(tracker.barrier().await.is_err());
}

#[tokio::test]
async fn a_tracker_closed_by_the_server_is_lost_also_when_nobody_waits() {
    let server = start();
    let session = session(&server).await;
    let mut tracker = session.track().await.unwrap();
    let mut client = Client::admin(&server);
    client.run("CLIENT KILL USER cw-t1");
    while tracker.try_next() != Some(Dirty::Lost) {
        tokio::task::yield_now().await;
    }
    assert!(tracker.backlog_bytes().await.is_err());
}

#[tokio::test]
async fn dropping_the_stream_ends_the_tracking() {
    let server = start();
    let session = session(&server).await;
    let tracker = session.track().await.unwrap();
    let mut client = Client::admin(&server);
    let tracking = |client: &mut Client| {
        client
            .run("INFO clients")
            .as_text()
            .is_some_and(|info| info.contains("tracking_clients:1"))
    };
    assert!(tracking(&mut client));
    drop(tracker);
    while tracking(&mut client) {}
}

#[tokio::test]
async fn waiting_for_a_dirty_key_can_be_given_up_without_losing_one() {
    let server = start();
    let session = session(&server).await;
    let mut tracker = session.track().await.unwrap();
    let mut client = Client::admin(&server);
    let mut seen = 0;
    for round in 0..200 {
        client.run(&format!("SET key{round} v"));
        tokio::select! {
            biased;
            () = tokio::task::yield_now() => {}
            dirty = tracker.next() => seen += count(&dirty),
        }
    }
    tracker.barrier().await.unwrap();
    while let Some(dirty) = tracker.try_next() {
        seen += count(&dirty);
    }
    assert_eq!(seen, 200);
}

fn count(dirty: &Dirty) -> usize {
    match dirty {
        Dirty::Keys(keys) => keys.len(),
        other => panic!("{other:?}"),
    }
}
