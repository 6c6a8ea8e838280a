//! Views that change, that come late, and that go away.

use std::time::Duration;

use clockwise_client::routing::Obstacle;
use clockwise_client::store::Fault;
use clockwise_client::{Client, Error};
use clockwise_cluster::{Apply, Edit, Nonce, Step};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::pool::{Pool, wait_until};

/// scylladb/scylladb#2308, redis/ioredis#2135: a client that does not know yet what everybody else
/// knows. It is let in nowhere, it changes nothing, it is told so within a second or two; and once it
/// hears of the record it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_a_frozen_view_is_fenced_and_recovers() {
    let pool = Pool::start(&["a", "b"]).await;
    let client = pool.client().await;
    let of_a = Pool::keys_of(&client, "a", 1).remove(0);
    let of_b = Pool::keys_of(&client, "b", 1).remove(0);
    client.set(&of_a, "before").await.unwrap();
    let old = pool.node("a").await;
    // Everybody else is at the next epoch; this client has not heard of it.
    let next = pool.next_generation("a").await;
    pool.admit(next.node(&old.id).unwrap());
    pool.fence(&old);
    let began = Instant::now();
    wait_until("it is refused for what it is", async || {
        let error = client.set(&of_a, "stale").await.unwrap_err();
        let error = match error {
            // Its connection broke under this very write.
            Error::Unknown { .. } => return false,
            error => error,
        };
        assert!(
            error.is_retryable() && !error.may_have_happened(),
            "{error}"
        );
        matches!(
            error,
            Error::NotSent {
                why: Obstacle::Denied | Obstacle::Down,
                ..
            }
        )
    })
    .await;
    println!("refused after {:?}", began.elapsed());
    assert_eq!(
        pool.servers["a"].cli(&["GET", &of_a]),
        "before",
        "it wrote nothing"
    );
    client.set(&of_b, "others go on").await.unwrap();
    assert_eq!(client.epoch().get(), 1);

    let heard = Instant::now();
    pool.commit(next).await;
    wait_until("it goes on", async || {
        client.set(&of_a, "after").await.is_ok()
    })
    .await;
    println!("went on {:?} after the record came", heard.elapsed());
    assert_eq!(client.epoch().get(), 2);
    assert_eq!(pool.servers["a"].cli(&["GET", &of_a]), "after");
}

/// uber/ringpop-go#139, envoyproxy/envoy#45212: three changes at once and the store away meanwhile;
/// every client ends at the last epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_clients_end_at_the_last_epoch() {
    let pool = Pool::start(&["a"]).await;
    let clients = [
        pool.client().await,
        pool.client().await,
        pool.client().await,
    ];
    for _ in 0..3 {
        let old = pool.node("a").await;
        let next = pool.next_generation("a").await;
        pool.admit(next.node(&old.id).unwrap());
        pool.commit(next).await;
    }
    for client in &clients {
        wait_until("it has the last epoch", async || client.epoch().get() == 4).await;
        client.set("k", "v").await.unwrap();
    }
    pool.store.set_fault(Fault::Unreachable);
    for client in &clients {
        client.set("k", "the store is away").await.unwrap();
        assert_eq!(client.epoch().get(), 4);
    }
    pool.store.set_fault(Fault::None);
    let late = pool.client().await;
    assert_eq!(late.view().fingerprint(), clients[0].view().fingerprint());
}

/// While a node's clients are moved to its next generation under load, nothing fails and nothing is
/// told to be unknown: what is on its way is answered over the old connection first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_changes_under_load_without_an_error() {
    let pool = Pool::start(&["a"]).await;
    let client = pool.client().await;
    let stop = tokio_stop();
    let mut callers = JoinSet::new();
    for caller in 0..32 {
        let (client, stop) = (client.clone(), stop.clone());
        callers.spawn(async move {
            let key = format!("count:{caller}");
            let mut count = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                count += 1;
                assert_eq!(client.increment(&key, 1).await, Ok(count));
            }
            count
        });
    }
    for epoch in 2..12 {
        let old = pool.node("a").await;
        let mut next = pool.next_generation("a").await;
        // Another nonce for each: a used one would be a used password.
        next = with_nonce(&next, epoch);
        pool.admit(next.node(&old.id).unwrap());
        pool.commit(next).await;
        wait_until("nobody is left of the old one", async || {
            let list = pool.servers["a"].cli(&["CLIENT", "LIST"]);
            !list.contains(&format!("user=cw-g{} ", old.generation))
        })
        .await;
        pool.fence(&old);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut all = 0;
    while let Some(count) = callers.join_next().await {
        all += count.unwrap();
    }
    println!("{all} increments over ten generations");
    assert!(all > 1_000);
}

fn tokio_stop() -> std::sync::Arc<std::sync::atomic::AtomicBool> {
    std::sync::Arc::default()
}

fn with_nonce(record: &clockwise_cluster::Record, byte: u8) -> clockwise_cluster::Record {
    let mut stored: serde_json::Value = serde_json::from_slice(&record.encode().unwrap()).unwrap();
    stored["membership"]["nodes"][0]["nonce"] = Nonce::new([byte; 16]).to_string().into();
    serde_json::from_value(stored).unwrap()
}

/// During a handover calls for the keys that move wait, reads too, for a second at most; all others
/// go on. After the flip those that wait go to the new owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_for_keys_being_handed_over_wait_and_go_to_the_new_owner() {
    let pool = Pool::start(&["a", "b"]).await;
    let client = pool.client().await;
    let leaving: Edit = Edit::Remove {
        id: "b".parse().unwrap(),
    };
    let record = pool.record().await;
    let moving = Pool::keys_of(&client, "b", 10);
    let resting = Pool::keys_of(&client, "a", 10);
    pool.commit(record.stage(leaving).unwrap()).await;
    let mut last = 100;
    let record = pool.record().await;
    let change = record.apply(Apply {
        expected: record.epoch(),
        id: "drain".parse().unwrap(),
        now_ms: 0,
        nonces: &mut || {
            last += 1;
            Nonce::new([last; 16])
        },
    });
    pool.commit(change.unwrap()).await;
    let handoff = pool.record().await.change().unwrap().handoffs[0].id();
    let step = async |step: Step| {
        let record = pool.record().await;
        pool.commit(record.step(&handoff, &step, 0).unwrap()).await;
    };
    step(Step::Copying).await;
    step(Step::Verifying).await;
    let old = pool.node("b").await;
    let generation = old.generation.next();
    let nonce = Nonce::new([99; 16]);
    step(Step::Handover { generation, nonce }).await;
    let heard = pool.record().await.epoch();
    wait_until("the client has the handover", async || {
        client.epoch() == heard
    })
    .await;
    pool.fence(&old);

    assert!(client.route(&moving[0]).held && !client.route(&resting[0]).held);
    let began = Instant::now();
    let waited = client.get(&moving[0]).await.unwrap_err();
    let took = began.elapsed();
    assert!(
        matches!(waited, Error::NotSent { why: Obstacle::Handover, ref node, .. }
        if node.as_ref().is_some_and(|node| node.as_str() == "b")),
        "{waited}"
    );
    assert!(waited.is_retryable() && !waited.may_have_happened());
    assert!(
        (Duration::from_millis(900)..Duration::from_millis(1_900)).contains(&took),
        "{took:?}"
    );

    let mut waiting = JoinSet::new();
    for key in moving.clone() {
        let client = client.clone();
        waiting.spawn(async move { client.set(&key, &key).await.map(|()| key) });
    }
    for key in &resting {
        client.set(key, "goes on").await.unwrap();
    }
    let at_a = clockwise_cluster::Incarnation {
        run_id: "run-of-a".parse().unwrap(),
        replication_id: "data-of-a".parse().unwrap(),
    };
    step(Step::Flip {
        targets: vec![at_a],
    })
    .await;
    while let Some(written) = waiting.join_next().await {
        let key = written.unwrap().unwrap();
        assert_eq!(
            pool.servers["a"].cli(&["GET", &key]),
            key,
            "at the new owner"
        );
        assert_eq!(
            pool.servers["b"].cli(&["EXISTS", &key]),
            "0",
            "and only there"
        );
    }
    assert_eq!(client.owner(&moving[0]).as_str(), "a");
}

/// Nobody can be told apart from a client that was built with the same record.
#[tokio::test]
async fn equal_records_give_equal_views() {
    let pool = Pool::start(&["a", "b"]).await;
    let (one, other): (Client, Client) = (pool.client().await, pool.client().await);
    assert_eq!(one.view().fingerprint(), other.view().fingerprint());
    assert_eq!(one.epoch(), other.epoch());
}

/// Two records of one epoch that place keys differently: nobody can tell which of them others have.
#[tokio::test]
async fn a_record_that_says_two_things_of_one_epoch_stops_the_client_until_a_later_one() {
    let pool = Pool::start(&["a", "b"]).await;
    let client = pool.client().await;
    client.set("k", "v").await.unwrap();
    let good = pool.record().await;
    let mut stored: serde_json::Value = serde_json::from_slice(&good.encode().unwrap()).unwrap();
    stored["membership"]["nodes"][0]["weight"] = "3".into();
    pool.commit(serde_json::from_value(stored).unwrap()).await;
    wait_until("it stops", async || {
        matches!(client.get("k").await, Err(Error::Discord { .. }))
    })
    .await;
    let stopped = client.set("k", "other").await.unwrap_err();
    assert!(
        !stopped.is_retryable() && !stopped.may_have_happened(),
        "{stopped}"
    );
    let settled = good.with_scripts(true);
    pool.commit(settled).await;
    wait_until("it goes on", async || {
        client.get("k").await == Ok(Some(b"v".to_vec()))
    })
    .await;
}
