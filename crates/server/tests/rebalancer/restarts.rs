//! Servers restart while a change runs.

use std::sync::Arc;

use clockwise::rebalancer::{Door, accept};
use clockwise_client::resp::Value;
use clockwise_client::store::Store as _;
use clockwise_cluster::{HandoffState, Record, Throttle};

use crate::pool::{Pool, numbered};

async fn reached(pool: &Pool, state: HandoffState) {
    let mut records = pool.store.watch();
    let reached = |record: &Option<Arc<Record>>| {
        let change = record.as_ref().and_then(|record| record.change());
        change.is_some_and(|change| change.handoffs.iter().any(|handoff| handoff.state >= state))
    };
    records.wait_for(reached).await.unwrap();
}

async fn filled(names: &[&str]) -> (Pool, Vec<Vec<u8>>) {
    let pool = Pool::start(names).await;
    let keys = numbered(5_000);
    pool.fill(&keys, |key| key.to_vec()).await;
    (pool, keys)
}

async fn check(pool: &Pool, keys: &[Vec<u8>]) {
    assert_eq!(pool.check_places().await, keys.len());
    for (key, value) in keys.iter().zip(pool.values(keys).await) {
        assert_eq!(
            value,
            Value::Bulk(key.clone()),
            "{}",
            String::from_utf8_lossy(key)
        );
    }
}

/// Slow enough that something can happen while keys are copied.
async fn slowly(pool: &Pool) {
    let slow = Throttle {
        keys_per_second: 2_000,
        bytes_per_second: 0,
    };
    pool.change(|record| record.with_throttle(slow)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_restarts_while_it_is_copied_is_copied_again() {
    let (mut pool, keys) = filled(&["a", "b"]).await;
    slowly(&pool).await;
    pool.add("c").await;
    pool.apply().await;
    reached(&pool, HandoffState::Copying).await;
    pool.servers.get_mut("a").unwrap().restart();
    pool.settle().await;
    check(&pool, &keys).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_restarts_while_it_is_filled_is_filled_again() {
    let (mut pool, keys) = filled(&["a", "b"]).await;
    slowly(&pool).await;
    pool.add("c").await;
    pool.apply().await;
    reached(&pool, HandoffState::Copying).await;
    pool.servers.get_mut("c").unwrap().restart();
    pool.settle().await;
    check(&pool, &keys).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_the_term_user_that_somebody_kills_cost_a_new_copy_and_nothing_else() {
    let (mut pool, keys) = filled(&["a", "b"]).await;
    slowly(&pool).await;
    pool.add("c").await;
    pool.apply().await;
    reached(&pool, HandoffState::Copying).await;
    for name in ["a", "b", "c", "a"] {
        let mut admin = pool.admin(name);
        let Value::Bulk(list) = admin.ask(&[b"ACL", b"USERS"]) else {
            let Value::Array(users) = admin.ask(&[b"ACL", b"USERS"]) else {
                panic!("no users")
            };
            for user in users {
                if let Value::Bulk(user) = user
                    && user.starts_with(b"cw-t")
                {
                    admin.ask(&[b"CLIENT", b"KILL", b"USER", &user]);
                }
            }
            continue;
        };
        panic!("{list:?}");
    }
    pool.settle().await;
    check(&pool, &keys).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarts_lets_its_clients_in_again_once_it_is_recognised() {
    let mut pool = Pool::start(&["a"]).await;
    pool.save_always("a");
    let keys = numbered(5_000);
    pool.fill(&keys, |key| key.to_vec()).await;
    let before = pool
        .record()
        .await
        .node(&"a".parse().unwrap())
        .unwrap()
        .incarnation
        .clone();
    assert!(before.is_some(), "written down when it was recognised");
    pool.servers.get_mut("a").unwrap().restart();
    let mut records = pool.store.watch();
    let recognised = |record: &Option<Arc<Record>>| {
        let record = record.as_ref().unwrap();
        record.node(&"a".parse().unwrap()).unwrap().incarnation != before
    };
    records.wait_for(recognised).await.unwrap();
    pool.wait("the door is open", |progress| progress.all_doors_open())
        .await;
    check(&pool, &keys).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_restarts_before_its_source_is_cleaned_stays_closed_until_somebody_decides() {
    let (mut pool, keys) = filled(&["a"]).await;
    pool.add("c").await;
    pool.save_always("c");
    pool.apply().await;
    reached(&pool, HandoffState::Flipped).await;
    pool.servers.get_mut("c").unwrap().restart();
    let closed = |door: &Door| matches!(door, Door::Closed(_));
    let of_c = |progress: &clockwise::rebalancer::Progress| {
        progress
            .doors
            .iter()
            .any(|(id, door)| id.as_str() == "c" && closed(door))
    };
    pool.wait("c is closed", of_c).await;
    let stopped = |progress: &clockwise::rebalancer::Progress| {
        let handoffs = progress.change.iter().flat_map(|change| &change.handoffs);
        handoffs
            .into_iter()
            .any(|handoff| handoff.stopped.is_some())
    };
    pool.wait("cleaning has stopped", stopped).await;
    pool.rebalancer
        .as_ref()
        .unwrap()
        .accept(&"c".parse().unwrap())
        .await
        .unwrap();
    pool.settle().await;
    pool.wait("the door is open", |progress| progress.all_doors_open())
        .await;
    check(&pool, &keys).await;
}

/// A pool whose handoff from a to c has flipped, while that from b has long to go.
async fn half_way() -> (Pool, Vec<Vec<u8>>) {
    let mut pool = Pool::start(&["a", "b"]).await;
    let view = pool.view().await;
    let of = |name: &str, count: usize| {
        let candidates = numbered(40_000).into_iter();
        let owned = candidates.filter(|key| view.owner(key).as_str() == name);
        owned.take(count).collect::<Vec<_>>()
    };
    let keys = [of("a", 300), of("b", 6_000)].concat();
    pool.fill(&keys, |key| key.to_vec()).await;
    slowly(&pool).await;
    pool.add("c").await;
    pool.save_always("c");
    pool.apply().await;
    reached(&pool, HandoffState::Flipped).await;
    // Slower yet: what comes next does not end before it is seen.
    let crawl = Throttle {
        keys_per_second: 100,
        bytes_per_second: 0,
    };
    pool.change(|record| record.with_throttle(crawl)).await;
    let record = pool.record().await;
    let states = &record.change().unwrap().handoffs;
    assert!(
        states[0].state == HandoffState::Flipped && states[1].state < HandoffState::Handover,
        "{states:?}"
    );
    (pool, keys)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_more_is_copied_to_a_closed_target_whoever_leads_and_it_is_said_why() {
    let (mut pool, keys) = half_way().await;
    pool.servers.get_mut("c").unwrap().restart();
    for leader in ["the one that saw it", "the next one"] {
        if leader == "the next one" {
            pool.crash();
            pool.lead_although_closed().await;
        }
        pool.change(|record| record.with_throttle(Throttle::default()))
            .await;
        pool.wait("both handoffs have stopped", |progress| {
            let handoffs = || progress.change.iter().flat_map(|change| &change.handoffs);
            handoffs().count() == 2 && handoffs().all(|handoff| handoff.stopped.is_some())
        })
        .await;
        let progress = pool.rebalancer.as_ref().unwrap().progress();
        for handoff in &progress.borrow().change.as_ref().unwrap().handoffs {
            let why = handoff.stopped.as_ref().unwrap();
            for word in [
                "node c was run",
                "until somebody accepts it as it is",
                "(epoch ",
            ] {
                assert!(why.contains(word), "{leader}: {word:?} is not in {why:?}");
            }
        }
    }
    let accepted = pool.rebalancer.as_ref().unwrap();
    accepted.accept(&"c".parse().unwrap()).await.unwrap();
    pool.settle().await;
    check(&pool, &keys).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_else_accepts_goes_on_too() {
    let (mut pool, keys) = half_way().await;
    pool.servers.get_mut("c").unwrap().restart();
    pool.change(|record| record.with_throttle(Throttle::default()))
        .await;
    pool.wait("both handoffs have stopped", |progress| {
        let handoffs = || progress.change.iter().flat_map(|change| &change.handoffs);
        handoffs().count() == 2 && handoffs().all(|handoff| handoff.stopped.is_some())
    })
    .await;
    let c = "c".parse().unwrap();
    accept(&*pool.store, &*pool.driver, &c).await.unwrap();
    pool.settle().await;
    check(&pool, &keys).await;
}
