//! News of touched keys may be late. The barrier after the fence waits for it; without it, what was written
//! just before the fence is lost, and the workload sees that.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clockwise::workload::FaultCounts;
use clockwise_placement::NodeId;

use crate::load::{audited, fill, more_writes, seed, work, write_past_the_router};
use crate::meddling::{Call, Meddler, Verdict};
use crate::pool::Pool;

/// Tries to see what a missing barrier loses; a try may be lucky and lose nothing.
const TRIES: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Barrier {
    Stands,
    LeftOut,
}

/// News takes a while, as over a long line.
#[derive(Debug)]
struct LateNews(Barrier);

#[async_trait]
impl Meddler for LateNews {
    async fn before(&self, _node: &NodeId, call: Call) -> Verdict {
        match (self.0, call) {
            (Barrier::LeftOut, Call::Barrier) => Verdict::LeaveOut,
            _ => Verdict::Pass,
        }
    }

    fn news_take(&self) -> Duration {
        Duration::from_millis(60)
    }
}

async fn faults(barrier: Barrier, seed: u64) -> FaultCounts {
    let mut pool = Pool::start_meddled(&["a", "b", "c"], Arc::new(LateNews(barrier))).await;
    fill(&pool, 4_000).await;
    let mut workload = work(pool.router(), seed, 2_000, 4_000).await;
    pool.stage_join("d").await;
    let ahead = pool.view_ahead().await;
    let record = pool.record().await;
    let direct = write_past_the_router(&mut workload, &record, "a", &ahead);
    more_writes(&workload, 1_000).await;
    assert!(direct.acknowledged_writes() > 0);
    pool.apply().await;
    // Without a barrier the comparison, too, may find what only came late.
    let ended = pool.end().await;
    assert!(
        ended.is_ok() || matches!(barrier, Barrier::LeftOut),
        "{ended:?}"
    );
    more_writes(&workload, 1_000).await;
    audited(workload).await.faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_although_news_of_touched_keys_comes_late() {
    let faults = faults(Barrier::Stands, seed()).await;
    assert_eq!(faults.total(), 0, "{faults:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_barrier_late_news_loses_writes() {
    let seed = seed();
    for number in 0..TRIES {
        if faults(Barrier::LeftOut, seed + number).await.lost > 0 {
            return;
        }
    }
    panic!("{TRIES} changes without a barrier lost nothing");
}
