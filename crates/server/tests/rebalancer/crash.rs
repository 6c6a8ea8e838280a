//! The rebalancer dies in each state; whoever leads next goes on from the record.

use std::sync::Arc;

use clockwise_client::resp::Value;
use clockwise_client::store::Store as _;
use clockwise_cluster::{HandoffState, Record};

use crate::pool::{Pool, numbered};

/// Waits until a handoff is in a state, or beyond it.
async fn reached(pool: &Pool, state: HandoffState) {
    let mut records = pool.store.watch();
    let reached = |record: &Option<Arc<Record>>| {
        let change = record.as_ref().and_then(|record| record.change());
        change.is_none_or(|change| change.handoffs.iter().any(|handoff| handoff.state >= state))
    };
    records.wait_for(reached).await.unwrap();
}

async fn a_crash_at(state: HandoffState) {
    a_crash_of(Pool::start(&["a", "b"]).await, state).await;
}

/// The rebalancer of a pool dies while a node joins it.
pub(crate) async fn a_crash_of(mut pool: Pool, state: HandoffState) {
    let keys = numbered(5_000);
    pool.fill(&keys, |key| key.to_vec()).await;
    pool.add("c").await;
    pool.apply().await;
    reached(&pool, state).await;
    pool.crash();
    // Deletes and writes go on at the owners while nobody moves anything.
    let view = pool.view().await;
    for key in &keys[..100] {
        let route = view.route(view.position(key));
        pool.admin(view.node(route.node).id.as_str())
            .ask(&[b"SET", key, b"newer"]);
    }
    for key in &keys[100..200] {
        let route = view.route(view.position(key));
        pool.admin(view.node(route.node).id.as_str())
            .ask(&[b"DEL", key]);
    }
    pool.lead().await;
    pool.settle().await;
    assert_eq!(pool.check_places().await, keys.len() - 100);
    let values = pool.values(&keys).await;
    for (at, (key, value)) in keys.iter().zip(values).enumerate() {
        let expected = match at {
            0..100 => Value::Bulk(b"newer".to_vec()),
            100..200 => Value::Null,
            _ => Value::Bulk(key.clone()),
        };
        assert_eq!(value, expected, "{}", String::from_utf8_lossy(key));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_while_planned_is_gone_on_from() {
    a_crash_at(HandoffState::Planned).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_while_copying_is_gone_on_from() {
    a_crash_at(HandoffState::Copying).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_while_verifying_is_gone_on_from() {
    a_crash_at(HandoffState::Verifying).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_in_the_handover_is_gone_on_from() {
    a_crash_at(HandoffState::Handover).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_after_a_flip_is_gone_on_from() {
    a_crash_at(HandoffState::Flipped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_while_cleaning_is_gone_on_from() {
    a_crash_at(HandoffState::Cleaning).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_when_one_source_is_done_is_gone_on_from() {
    a_crash_at(HandoffState::Done).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_shut_down_leaves_no_handover_behind() {
    let mut pool = Pool::start(&["a", "b"]).await;
    let keys = numbered(5_000);
    pool.fill(&keys, |key| key.to_vec()).await;
    pool.add("c").await;
    pool.apply().await;
    reached(&pool, HandoffState::Handover).await;
    pool.rebalancer.take().unwrap().shutdown().await;
    let record = pool.record().await;
    let held = record.change().is_some_and(|change| {
        change
            .handoffs
            .iter()
            .any(|handoff| handoff.state == HandoffState::Handover)
    });
    assert!(!held, "requests would wait");
    pool.lead().await;
    pool.settle().await;
    assert_eq!(pool.check_places().await, keys.len());
}
