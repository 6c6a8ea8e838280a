//! The process with router and rebalancer is killed at each place of a handoff and started again: the
//! change goes to its end by itself, and nothing that was acknowledged is lost. Servers live on; writes go
//! on as soon as there is a router, and one client's past it all the time.

use std::sync::Arc;

use clockwise_client::store::{FileOptions, FileStore, MemoryStore, Store};
use clockwise_cluster::HandoffState;

use crate::child::{Halt, Serves};
use crate::load::{audited, fill, more_writes, seed, work, write_past_the_router};
use crate::points::Point;
use crate::pool::{ANY_PORT, Pool};

async fn check(point: Point) {
    let seed = seed();
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Store> {
        Arc::new(FileStore::open(folder.path(), FileOptions::default()).unwrap())
    };
    let mut pool = Pool::found(&["a", "b", "c"], open()).await;
    fill(&pool, 8_000).await;
    pool.stage_join("d").await;
    let (record, ahead) = (pool.record().await, pool.view_ahead().await);
    // A folder has one process; from here on it is the child.
    pool.store = Arc::new(MemoryStore::new());
    let mut first = Serves::start(folder.path(), ANY_PORT, Halt::Point(point));
    let router = first.router;
    let mut workload = work(router, seed, 2_000, 2_000).await;
    let direct = write_past_the_router(&mut workload, &record, "a", &ahead);
    more_writes(&workload, 500).await;

    first.tell("apply");
    first.hears("reached");
    first.kill();
    let states = states(&*open()).await;
    println!("killed at {states:?}");
    assert!(states.contains(&point.state()), "{point:?}: {states:?}");
    let mut second = Serves::start(folder.path(), router, Halt::Nowhere);
    second.hears("at rest");

    more_writes(&workload, 500).await;
    assert!(direct.acknowledged_writes() > 0);
    let report = audited(workload).await;
    assert!(report.is_clean(), "{:?}", report.faults);
    assert!(
        report.connects > 16,
        "the router was away for a moment: {}",
        report.connects
    );
    second.end();
    pool.store = open();
    let record = pool.record().await;
    assert_eq!(record.membership().nodes.len(), 4, "the node has joined");
    assert!(pool.check_places().await >= 8_000);
}

/// The states of the handoffs in the record that is left.
async fn states(store: &dyn Store) -> Vec<HandoffState> {
    let record = store.read().await.unwrap().unwrap();
    let handoffs = &record.change().unwrap().handoffs;
    handoffs.iter().map(|handoff| handoff.state).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_kill_while_planned_loses_nothing() {
    check(Point::Planned).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_kill_while_copying_loses_nothing() {
    check(Point::Copying).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_kill_while_verifying_loses_nothing() {
    check(Point::Verifying).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_kill_in_the_handover_before_the_fence_loses_nothing() {
    check(Point::BeforeFence).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_kill_in_the_handover_after_the_fence_loses_nothing() {
    check(Point::AfterFence).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_kill_after_the_flip_loses_nothing() {
    check(Point::Flipped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_kill_while_cleaning_loses_nothing() {
    check(Point::Cleaning).await;
}
