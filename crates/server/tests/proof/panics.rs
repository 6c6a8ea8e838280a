//! A task that panics ends alone: it is begun again from the record, and the change goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use clockwise_placement::NodeId;

use crate::load::fill;
use crate::meddling::{Call, Meddler, Verdict};
use crate::pool::Pool;

/// Panics once, in the task that makes a call like this.
#[derive(Debug)]
struct PanicsOnce {
    at: fn(Call) -> bool,
    armed: AtomicBool,
}

#[async_trait]
impl Meddler for PanicsOnce {
    async fn before(&self, node: &NodeId, call: Call) -> Verdict {
        let fits = (self.at)(call) && self.armed.swap(false, Ordering::SeqCst);
        assert!(!fits, "planted at {node} before {call:?}");
        Verdict::Pass
    }
}

async fn check(at: fn(Call) -> bool) {
    let meddler = Arc::new(PanicsOnce {
        at,
        armed: AtomicBool::new(false),
    });
    let mut pool = Pool::start_meddled(&["a", "b"], Arc::clone(&meddler) as _).await;
    fill(&pool, 2_000).await;
    pool.stage_join("c").await;
    meddler.armed.store(true, Ordering::SeqCst);
    pool.apply().await;
    let took = pool.settle().await;
    assert!(!meddler.armed.load(Ordering::SeqCst), "nothing panicked");
    println!("settled after {took:?}");
    assert_eq!(pool.check_places().await, 2_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_a_node_that_panics_is_begun_again() {
    check(|call| call == Call::MakeUser).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_a_handoff_that_panics_is_begun_again() {
    check(|call| matches!(call, Call::Write { .. })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_that_hears_of_touched_keys_is_begun_again_under_the_fence_too() {
    check(|call| call == Call::Barrier).await;
}
