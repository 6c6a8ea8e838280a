//! The throttle holds, and can be changed while a change runs.

use clockwise_cluster::Throttle;
use tokio::time::Instant;

use crate::pool::{Pool, numbered};

fn copied(progress: &clockwise::rebalancer::Progress) -> u64 {
    let handoffs = progress.change.iter().flat_map(|change| &change.handoffs);
    handoffs.map(|handoff| handoff.keys_copied).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copying_keeps_to_the_throttle_and_speeds_up_when_it_is_lifted() {
    let mut pool = Pool::start(&["a", "b"]).await;
    let keys = numbered(100_000);
    pool.fill(&keys, |key| key.to_vec()).await;
    let slow = Throttle {
        keys_per_second: 200,
        bytes_per_second: 0,
    };
    pool.change(|record| record.with_throttle(slow)).await;
    pool.add("c").await;
    pool.apply().await;
    pool.wait("copying has begun", |progress| copied(progress) > 0)
        .await;
    let began = Instant::now();
    let before = copied(&pool.rebalancer.as_ref().unwrap().progress().borrow());
    pool.wait("300 more keys are copied", |progress| {
        copied(progress) >= before + 300
    })
    .await;
    let (took, keys_copied) = (
        began.elapsed(),
        copied(&pool.rebalancer.as_ref().unwrap().progress().borrow()) - before,
    );
    // Two sources share one throttle; what was known at the beginning may have been a second old.
    let most = 200.0 * (took.as_secs_f64() + 1.0);
    assert!(keys_copied as f64 <= most, "{keys_copied} keys in {took:?}");
    pool.change(|record| record.with_throttle(Throttle::default()))
        .await;
    // Some 33,000 keys move: at the old speed that would take almost three minutes, longer than this waits.
    pool.settle().await;
    assert_eq!(pool.check_places().await, keys.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copying_keeps_to_a_throttle_in_bytes() {
    let mut pool = Pool::start(&["a"]).await;
    let keys = numbered(4_000);
    pool.fill(&keys, |_| vec![b'v'; 1_000]).await;
    let slow = Throttle {
        keys_per_second: 0,
        bytes_per_second: 1_000_000,
    };
    pool.change(|record| record.with_throttle(slow)).await;
    pool.add("b").await;
    pool.apply().await;
    let took = pool.settle().await;
    // About 2,000 keys of 1,000 bytes move.
    assert!(took.as_secs_f64() > 1.5, "2 MB in {took:?}");
    assert_eq!(pool.check_places().await, keys.len());
}
