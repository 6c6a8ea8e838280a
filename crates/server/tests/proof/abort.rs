//! A change that is aborted at any place before its last flip: nothing is lost, and no copy stays where
//! it does not belong. Writes go on all the while, one client's past the router.

use std::sync::Arc;
use std::time::Duration;

use clockwise_client::store::MemoryStore;
use clockwise_cluster::Direction;
use tokio::time::{sleep, timeout};

use crate::load::{audited, fill, more_writes, seed, work, write_past_the_router};
use crate::points::{Point, StopAt};
use crate::pool::Pool;
use crate::serving::PATIENCE;

/// From the request to the release of what it interrupts: the leader has heard of it by then.
const HEARD_WITHIN: Duration = Duration::from_millis(50);

async fn check(point: Point) {
    let seed = seed();
    let store = Arc::new(MemoryStore::new());
    let mut pool = Pool::found(&["a", "b", "c"], store).await;
    let stop = StopAt::new(point, Arc::clone(&pool.store));
    pool.serve_meddled(Arc::clone(&stop) as _).await;
    fill(&pool, 8_000).await;
    let mut workload = work(pool.router(), seed, 2_000, 2_000).await;
    pool.stage_join("d").await;
    let ahead = pool.view_ahead().await;
    let record = pool.record().await;
    let direct = write_past_the_router(&mut workload, &record, "a", &ahead);
    more_writes(&workload, 500).await;
    pool.apply().await;
    let reached = timeout(PATIENCE, stop.reached()).await;
    assert!(
        reached.is_ok(),
        "{point:?} is not reached: {:#?}",
        pool.progress()
    );

    if point != Point::Planned {
        assert!(
            !pool.keys()["d"].is_empty(),
            "there is something to leave behind"
        );
    }
    let record = pool.record().await;
    let states = record
        .change()
        .unwrap()
        .handoffs
        .iter()
        .map(|handoff| handoff.state);
    println!("{point:?}: aborted at {:?}", states.collect::<Vec<_>>());
    let aborted = {
        let abort = pool.serving().rebalancer.abort();
        let release = async {
            sleep(HEARD_WITHIN).await;
            stop.release();
        };
        tokio::join!(abort, release).0
    };
    aborted.unwrap();
    let took = pool.settle().await;

    println!("{point:?}: back after {took:?}");
    let record = pool.record().await;
    let nodes: Vec<&str> = record
        .membership()
        .nodes
        .iter()
        .map(|node| node.id.as_str())
        .collect();
    assert_eq!(nodes, ["a", "b", "c"]);
    assert_eq!(record.finished().unwrap().direction, Direction::Back);
    more_writes(&workload, 500).await;
    assert!(direct.acknowledged_writes() > 0);
    let report = audited(workload).await;
    assert!(report.is_clean(), "{:?}", report.faults);
    assert_eq!(report.other_errors(), 0, "{:?}", report.errors);
    assert!(pool.check_places().await >= 8_000);
    assert_eq!(
        pool.keys()["d"].len(),
        0,
        "copies at the node that did not join"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_left_behind_by_an_abort_while_planned() {
    check(Point::Planned).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_left_behind_by_an_abort_while_copying() {
    check(Point::Copying).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_left_behind_by_an_abort_while_verifying() {
    check(Point::Verifying).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_left_behind_by_an_abort_before_the_fence() {
    check(Point::BeforeFence).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_left_behind_by_an_abort_after_the_fence() {
    check(Point::AfterFence).await;
}

/// A source has flipped, and what it gave comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_left_behind_by_an_abort_after_the_first_flip() {
    check(Point::Flipped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_left_behind_by_an_abort_while_a_source_is_cleaned() {
    check(Point::Cleaning).await;
}
