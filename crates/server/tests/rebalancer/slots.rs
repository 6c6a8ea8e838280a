//! A pool over planned slots: what its plan names moves, and nothing else, also through crash and abort.

use std::collections::BTreeMap;

use clockwise_client::resp::Value;
use clockwise_cluster::{Edit, Generator, HandoffState, Plan, Record, SlotRules};
use clockwise_placement::{Interval, NodeId};

use crate::abort::an_abort_of;
use crate::crash::a_crash_of;
use crate::pool::{Pool, keys_of, numbered};

fn slots(count: u32) -> Generator {
    Generator::planned_slots(count, SlotRules::default())
}

/// Where the plan takes a key from and to.
fn planned(plan: &Plan, record: &Record, key: &[u8]) -> Option<(NodeId, NodeId)> {
    let placement = record.membership().layout().build().unwrap();
    let position = placement.position(key);
    let moves = |interval: &&clockwise_cluster::PlannedInterval| {
        let (after, through) = (interval.after, interval.through);
        Interval { after, through }.contains(position)
    };
    let interval = plan.moves.intervals.iter().find(moves)?;
    Some((interval.source.clone(), interval.target.clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_moves_exactly_the_keys_of_the_slots_that_the_plan_names() {
    let mut pool = Pool::start_on(slots(64), &["a", "b", "c"]).await;
    let keys = numbered(5_000);
    pool.fill(&keys, <[u8]>::to_vec).await;
    pool.add("d").await;
    let staged = pool.record().await;
    let plan = staged.plan(&BTreeMap::new()).unwrap();
    assert!(
        (plan.moves.share - 0.25).abs() < 1e-9,
        "{}",
        plan.moves.share
    );

    let mut expected: BTreeMap<NodeId, Vec<Vec<u8>>> = BTreeMap::new();
    let mut given: BTreeMap<NodeId, u64> = BTreeMap::new();
    let view = pool.view().await;
    for key in &keys {
        let owner = match planned(&plan, &staged, key) {
            None => view.owner(key).clone(),
            Some((source, target)) => {
                assert_eq!(*view.owner(key), source);
                *given.entry(source).or_default() += 1;
                target
            }
        };
        expected.entry(owner).or_default().push(key.clone());
    }
    expected.values_mut().for_each(|keys| keys.sort_unstable());

    pool.apply().await;
    pool.settle().await;
    for (node, keys) in &expected {
        assert_eq!(keys_of(&mut pool.admin(node.as_str())), *keys, "{node}");
    }
    assert_eq!(expected.len(), 4);
    let finished = pool.record().await.finished().cloned().unwrap();
    let moved = finished.handoffs.iter();
    let moved: BTreeMap<NodeId, u64> = moved
        .map(|handoff| (handoff.source.clone(), handoff.report.keys_moved))
        .collect();
    assert_eq!(moved, given);
    assert_eq!(pool.check_places().await, keys.len());
    for (key, found) in keys.iter().zip(pool.values(&keys).await) {
        assert_eq!(found, Value::Bulk(key.clone()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_becomes_slots_with_every_node_giving_and_taking() {
    let mut pool = Pool::start(&["a", "b", "c"]).await;
    let keys = numbered(5_000);
    pool.fill(&keys, <[u8]>::to_vec).await;
    let edit = Edit::SetGenerator {
        generator: slots(64),
    };
    pool.change(|record| record.stage(edit.clone()).unwrap())
        .await;
    pool.apply().await;
    let change = pool.record().await.change().cloned().unwrap();
    assert_eq!(change.handoffs.len(), 3);
    pool.settle().await;
    assert_eq!(pool.check_places().await, keys.len());
    for (key, found) in keys.iter().zip(pool.values(&keys).await) {
        assert_eq!(found, Value::Bulk(key.clone()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_slots_is_gone_on_from() {
    let pool = Pool::start_on(slots(64), &["a", "b"]).await;
    a_crash_of(pool, HandoffState::Flipped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_between_slots_gives_back_the_table_as_it_was() {
    let pool = Pool::start_on(slots(64), &["a", "b"]).await;
    an_abort_of(pool, HandoffState::Flipped).await;
}
