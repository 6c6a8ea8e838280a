//! The checked workload: every fault that is planted is found and named, nothing else is, and real
//! servers are judged right.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake;
mod planted;
mod real;

use std::time::{Duration, Instant};

use clockwise::workload::{Mix, Workload, WorkloadOptions};
use tokio::time::sleep;

/// Longer than any of this takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A workload in which values live to their expiry and every kind of request is frequent. Its seed
/// is that of `CLOCKWISE_SEED`, or a fixed one.
fn options(addr: String) -> WorkloadOptions {
    let seed = std::env::var("CLOCKWISE_SEED")
        .ok()
        .map(|seed| seed.parse().unwrap());
    let seed = seed.unwrap_or(7);
    println!("seed {seed}; again with CLOCKWISE_SEED={seed}");
    WorkloadOptions {
        addr,
        connections: 8,
        pipeline: 4,
        keys: 2_048,
        seed,
        rate: Some(10_000),
        mix: Mix {
            get: 35,
            multi_get: 10,
            expiry: 15,
            set: 20,
            set_expiring: 10,
            expire: 10,
            delete: 10,
            increment: 10,
        },
        ttl_ms: 100..=1_500,
        unknown_rest: Duration::from_millis(100),
        ..WorkloadOptions::default()
    }
}

/// Waits until the condition holds, or panics.
async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until so many more writes were acknowledged.
async fn wait_for_writes(workload: &Workload, count: u64) {
    let from = workload.mark();
    let written = || workload.mark().since(&from).acknowledged_writes() >= count;
    wait_until("enough writes", written).await;
}
