//! A copy that is not what it was copied from is found before its owner changes: the change stops, and an
//! abort leaves everything as it was.

use std::sync::Arc;

use clockwise::driver::{Item, Payload};

use crate::load::{audited, fill, more_writes, seed, work};
use crate::meddling::Meddler;
use crate::pool::Pool;

/// What goes wrong on the way.
#[derive(Clone, Copy, Debug)]
enum Falsified {
    /// Nothing expires any more.
    Expiry,
    /// Everything expires a second late.
    ASecond,
    /// The last byte of every value is another.
    LastByte,
}

impl Meddler for Falsified {
    fn written(&self, mut item: Item) -> Item {
        match self {
            Self::Expiry => item.expires_at_ms = None,
            Self::ASecond => item.expires_at_ms = item.expires_at_ms.map(|at| at + 1_000),
            Self::LastByte => {
                if let Payload::Text(text) = &item.payload {
                    let mut text = text.to_vec();
                    text.last_mut().into_iter().for_each(|last| *last ^= 1);
                    item.payload = Payload::Text(text.into());
                }
            }
        }
        item
    }
}

async fn check(falsified: Falsified) {
    let mut pool = Pool::start_meddled(&["a", "b", "c"], Arc::new(falsified)).await;
    fill(&pool, 2_000).await;
    let workload = work(pool.router(), seed(), 2_000, 2_000).await;
    more_writes(&workload, 1_000).await;
    pool.stage_join("d").await;
    pool.apply().await;
    let why = pool.stopped().await;
    println!("{falsified:?}: {why}");
    let record = pool.record().await;
    let flipped = record.change().unwrap().handoffs.iter();
    let flipped = flipped.filter(|handoff| handoff.state.is_flipped()).count();
    assert_eq!(flipped, 0, "an owner changed");
    pool.serving().rebalancer.abort().await.unwrap();
    pool.settle().await;
    let report = audited(workload).await;
    assert!(report.is_clean(), "{:?}", report.faults);
    assert_eq!(pool.keys()["d"].len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_without_their_expiry_never_become_the_owners() {
    check(Falsified::Expiry).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_expire_late_never_become_the_owners() {
    check(Falsified::ASecond).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_with_another_byte_never_become_the_owners() {
    check(Falsified::LastByte).await;
}
