//! A change is taken back in each state: nothing is lost and no copy stays behind.

use std::sync::Arc;

use clockwise::driver::redis::RESERVED_PREFIX;
use clockwise::rebalancer::AbortRefused;
use clockwise_client::resp::Value;
use clockwise_client::store::Store as _;
use clockwise_cluster::{HandoffState, Record};

use crate::pool::{Pool, keys_of, numbered};

async fn reached(pool: &Pool, state: HandoffState) {
    let mut records = pool.store.watch();
    let reached = |record: &Option<Arc<Record>>| {
        let change = record.as_ref().and_then(|record| record.change());
        change.is_some_and(|change| change.handoffs.iter().any(|handoff| handoff.state >= state))
    };
    records.wait_for(reached).await.unwrap();
}

async fn an_abort_at(state: HandoffState) {
    an_abort_of(Pool::start(&["a", "b"]).await, state).await;
}

/// The change by which a node joins a pool is taken back; the pool is as it was.
pub(crate) async fn an_abort_of(mut pool: Pool, state: HandoffState) {
    let before = pool.record().await.membership().layout();
    let keys = numbered(5_000);
    pool.fill(&keys, |key| key.to_vec()).await;
    pool.add("c").await;
    pool.apply().await;
    reached(&pool, state).await;
    pool.rebalancer.as_ref().unwrap().abort().await.unwrap();
    // What is written on the way back stays too.
    let view = pool.view().await;
    for key in &keys[..50] {
        let route = view.route(view.position(key));
        if !route.hold {
            pool.admin(view.node(route.node).id.as_str())
                .ask(&[b"SET", key, key]);
        }
    }
    pool.settle().await;
    let record = pool.record().await;
    assert!(
        record.node(&"c".parse().unwrap()).is_none(),
        "c is in no pool"
    );
    assert_eq!(record.membership().layout(), before);
    let mut left = keys_of(&mut pool.admin("c"));
    left.retain(|key| !key.starts_with(RESERVED_PREFIX));
    assert_eq!(left, Vec::<Vec<u8>>::new(), "a copy stayed behind");
    pool.servers.remove("c");
    assert_eq!(pool.check_places().await, keys.len());
    for (key, value) in keys.iter().zip(pool.values(&keys).await) {
        assert_eq!(
            value,
            Value::Bulk(key.clone()),
            "{}",
            String::from_utf8_lossy(key)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_while_planned_leaves_nothing_behind() {
    an_abort_at(HandoffState::Planned).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_while_copying_leaves_nothing_behind() {
    an_abort_at(HandoffState::Copying).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_while_verifying_leaves_nothing_behind() {
    an_abort_at(HandoffState::Verifying).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_in_the_handover_leaves_nothing_behind() {
    an_abort_at(HandoffState::Handover).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_after_a_flip_hands_back_what_flipped() {
    an_abort_at(HandoffState::Flipped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_while_cleaning_hands_back_what_flipped() {
    an_abort_at(HandoffState::Cleaning).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_change_nothing_is_aborted() {
    let pool = Pool::start(&["a"]).await;
    let refused = pool.rebalancer.as_ref().unwrap().abort().await;
    assert_eq!(refused, Err(AbortRefused::NoChange));
}
