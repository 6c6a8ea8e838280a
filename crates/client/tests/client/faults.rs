//! Nodes that are killed, paused and cut off, and what their callers are told.

use std::time::Duration;

use clockwise_client::routing::Obstacle;
use clockwise_client::{Client, ClientLimits, Error};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::pool::{PATIENCE, Pool, wait_until};

/// Longer than any test pauses a node for.
fn patient(client: &Client) -> Client {
    client.within(PATIENCE)
}

/// phpredis/phpredis#2351: everything down and up again, and a client that spins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_costs_its_own_keys_alone_and_comes_back() {
    let mut pool = Pool::start(&["a", "b"]).await;
    let client = pool.client().await;
    let of_a = Pool::keys_of(&client, "a", 1).remove(0);
    let of_b = Pool::keys_of(&client, "b", 1).remove(0);
    client.set(&of_a, "1").await.unwrap();
    client.set(&of_b, "1").await.unwrap();
    pool.servers.get_mut("a").unwrap().kill9();
    wait_until("the node is known to be down", async || {
        let began = Instant::now();
        let error = client.set(&of_a, "2").await.unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(3));
        // The connection may be found broken by this very write.
        assert!(error.is_retryable() || error.may_have_happened(), "{error}");
        matches!(error, Error::NotSent { why: Obstacle::Down, ref node, .. }
            if node.as_ref().is_some_and(|node| node.as_str() == "a"))
    })
    .await;
    let began = Instant::now();
    let refused = client.get(&of_a).await.unwrap_err();
    assert!(refused.is_retryable() && !refused.may_have_happened());
    assert!(
        began.elapsed() < Duration::from_millis(500),
        "refused at once"
    );
    for _ in 0..100 {
        client.set(&of_b, "2").await.unwrap();
    }
    pool.restart("a").await;
    wait_until("it is back", async || client.get(&of_a).await.is_ok()).await;
    client.set(&of_a, "3").await.unwrap();

    for server in pool.servers.values_mut() {
        server.kill9();
    }
    wait_until("both are down", async || {
        client.get(&of_a).await.is_err() && client.get(&of_b).await.is_err()
    })
    .await;
    pool.restart("a").await;
    pool.restart("b").await;
    wait_until("both are back", async || {
        client.get(&of_a).await.is_ok() && client.get(&of_b).await.is_ok()
    })
    .await;
}

/// A connection that breaks under writes: those that may have left are unknown, all others are
/// certain not to have happened. memcached/memcached#1247 in part: what never left is sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_connection_breaks_is_unknown_and_sent_once() {
    let mut pool = Pool::start(&["a"]).await;
    let client = patient(&pool.client().await);
    client.set("warm", "up").await.unwrap();
    pool.servers["a"].pause();
    let mut writes = JoinSet::new();
    for number in 0..200 {
        let client = client.clone();
        writes.spawn(async move { client.increment(format!("count:{number}"), 1).await });
    }
    wait_until("some have left", async || {
        pool.servers["a"].unread_bytes() > 0
    })
    .await;
    // As a machine that goes away: what it has received is never executed.
    pool.servers.get_mut("a").unwrap().kill9();
    let (mut unknown, mut certain) = (0, 0);
    while let Some(written) = writes.join_next().await {
        let error = written.unwrap().unwrap_err();
        match &error {
            Error::Unknown { node, .. } => {
                assert_eq!(node.as_str(), "a");
                assert!(error.may_have_happened() && !error.is_retryable());
                unknown += 1;
            }
            _ => {
                assert!(
                    error.is_retryable() && !error.may_have_happened(),
                    "{error}"
                );
                certain += 1;
            }
        }
    }
    assert!(
        unknown > 0 && certain > 0,
        "{unknown} unknown, {certain} certain"
    );

    pool.restart("a").await;
    wait_until("it is back", async || client.get("warm").await.is_ok()).await;
    for number in 0..200 {
        let key = format!("count:{number}");
        assert_eq!(client.get(&key).await, Ok(None), "{key} was not repeated");
    }
}

/// A read whose connection breaks is asked again, and its caller does not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_whose_connection_breaks_is_asked_again() {
    let pool = Pool::start(&["a"]).await;
    let client = patient(&pool.client().await);
    client.set("k", "v").await.unwrap();
    for _ in 0..10 {
        pool.servers["a"].pause();
        let mut reads = JoinSet::new();
        for _ in 0..100 {
            let client = client.clone();
            reads.spawn(async move { client.get("k").await });
        }
        wait_until("some have left", async || {
            pool.servers["a"].unread_bytes() > 0
        })
        .await;
        pool.servers["a"].resume();
        let killed = pool.servers["a"].cli(&["CLIENT", "KILL", "USER", "cw-g1"]);
        assert!(matches!(&*killed, "0" | "1"), "{killed}");
        while let Some(read) = reads.join_next().await {
            assert_eq!(read.unwrap(), Ok(Some(b"v".to_vec())));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_deadline_the_caller_knows_whether_it_may_have_left() {
    let pool = Pool::start(&["a"]).await;
    let client = pool.client().await;
    client.set("k", "old").await.unwrap();
    let hasty = client.within(Duration::from_millis(100));
    pool.servers["a"].pause();
    // More than leave before the first answer.
    let mut writes = JoinSet::new();
    for number in 0..50 {
        let hasty = hasty.clone();
        writes.spawn(async move { (number, hasty.set(format!("late:{number}"), "v").await) });
    }
    let read = hasty.get("k").await.unwrap_err();
    assert!(
        matches!(read, Error::TimedOut { .. }) && read.is_retryable(),
        "{read}"
    );
    let mut outcomes = Vec::new();
    while let Some(written) = writes.join_next().await {
        let (number, outcome) = written.unwrap();
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        outcomes.push((number, error.may_have_happened()));
    }
    pool.servers["a"].resume();
    assert!(outcomes.iter().any(|(_, happened)| *happened));
    // Behind them in line: everything that was going to be executed has been by then.
    wait_until("it answers again", async || client.get("k").await.is_ok()).await;
    for (number, happened) in outcomes {
        let found = client.get(format!("late:{number}")).await.unwrap();
        assert!(
            found.is_none() || happened,
            "late:{number} was said not to have left"
        );
    }
}

/// Whose deadline comes before there is a connection is not executed when there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_beyond_its_deadline_is_not_sent_any_more() {
    let pool = Pool::start(&["a"]).await;
    let mut limits = ClientLimits::default();
    // Longer than the test takes: nothing but the deadline ends a wait.
    limits.traffic.connect_ms_max = 60_000;
    limits.traffic.wait.wait_ms_max = 60_000;
    let client = pool.builder().limits(limits).build().await.unwrap();
    let hasty = client.within(Duration::from_millis(100));
    // The system accepts the connection; nobody lets the client in.
    pool.servers["a"].pause();
    let late = hasty.set("late", "v").await.unwrap_err();
    assert!(
        matches!(late, Error::TimedOut { .. }) && !late.may_have_happened(),
        "{late}"
    );
    let behind = tokio::spawn({
        let client = patient(&client);
        async move { client.get("late").await }
    });
    pool.servers["a"].resume();
    // One line for both: what was before it has been executed by then, if at all.
    assert_eq!(behind.await.unwrap(), Ok(None));
    assert_eq!(client.set("late", "in time").await, Ok(()));
}

/// A node that accepts and says nothing, or says what no server says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_no_server_is_not_believed() {
    use clockwise_cluster::{NewNode, NewPool};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for words in [
        &b""[..],
        b"+OK\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"%1\r\n+proto\r\n:2\r\n",
        b"*1000000000\r\n",
        b"%2\r\n+proto\r\n:3\r\n+clockwise_version\r\n+0.1.0\r\n",
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stranger = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut asked = [0; 512];
                    while stream.read(&mut asked).await.is_ok_and(|read| read > 0) {
                        if stream.write_all(words).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let node = NewNode::new("a".parse().unwrap(), address.parse().unwrap());
        let client = Client::builder()
            .fixed(NewPool::new("main".parse().unwrap(), vec![node]))
            .build()
            .await
            .unwrap();
        let error = client.set("k", "v").await.unwrap_err();
        assert!(
            error.is_retryable() && !error.may_have_happened(),
            "{error}"
        );
        stranger.abort();
    }
}

/// redis/redis#6174: another server at the address of one that is gone. It does not know the user of
/// the node, so nothing is asked of it and nothing is written there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_at_a_nodes_address_is_asked_nothing() {
    let mut pool = Pool::start(&["a"]).await;
    let client = pool.client().await;
    client.set("k", "v").await.unwrap();
    let server = pool.servers.get_mut("a").unwrap();
    server.kill9();
    server.restart();
    for _ in 0..20 {
        let refused = client.set("k", "stray").await.unwrap_err();
        // The end of the old connection may meet the first of them.
        let unknown = matches!(refused, Error::Unknown { .. });
        assert!(unknown || refused.is_retryable(), "{refused}");
    }
    assert_eq!(pool.servers["a"].cli(&["DBSIZE"]), "0");
    let node = pool.node("a").await;
    pool.admit(&node);
    wait_until("it is let in", async || {
        client.set("k", "again").await.is_ok()
    })
    .await;
}
