//! A throttle is kept over every second of a move, also when it is changed on the way.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use clockwise_client::store::{MemoryStore, Store};
use clockwise_cluster::HandoffState;
use clockwise_placement::NodeId;

use crate::client::{Client, words};
use crate::load::fill;
use crate::meddling::{Call, Meddler, Verdict};
use crate::pool::{ADMIN, Pool, wait_until};

const SECOND: Duration = Duration::from_secs(1);
/// A second, less what a busy machine may delay one of two reads more than the other.
const ALMOST_A_SECOND: Duration = Duration::from_millis(980);

/// When how many keys were taken from sources that are being copied.
#[derive(Debug)]
struct Copied {
    store: Arc<dyn Store>,
    reads: Mutex<Vec<(Instant, u64)>>,
}

#[async_trait]
impl Meddler for Copied {
    async fn before(&self, node: &NodeId, call: Call) -> Verdict {
        if let Call::Read { keys } = call
            && self.is_copied(node)
        {
            let keys = u64::try_from(keys).unwrap();
            self.reads.lock().unwrap().push((Instant::now(), keys));
        }
        Verdict::Pass
    }
}

impl Copied {
    fn is_copied(&self, node: &NodeId) -> bool {
        let record = self.store.watch().borrow().clone();
        let change = record.as_ref().and_then(|record| record.change());
        change.is_some_and(|change| {
            let mut handoffs = change.handoffs.iter();
            handoffs
                .any(|handoff| handoff.source == *node && handoff.state == HandoffState::Copying)
        })
    }

    fn total(&self) -> u64 {
        self.reads
            .lock()
            .unwrap()
            .iter()
            .map(|(_, keys)| keys)
            .sum()
    }

    /// Most keys within one second, of those taken from one moment to another.
    fn most(&self, from: Instant, to: Instant) -> u64 {
        let reads = self.reads.lock().unwrap();
        let of_span = |at: &Instant| (from..to).contains(at);
        let spans = reads
            .iter()
            .filter(|(at, _)| of_span(at))
            .map(|(begin, _)| {
                let within =
                    |at: &Instant| of_span(at) && *at >= *begin && *at < *begin + ALMOST_A_SECOND;
                let keys = reads.iter().filter(|(at, _)| within(at));
                keys.map(|(_, keys)| keys).sum()
            });
        spans.max().unwrap_or(0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttle_is_kept_over_every_second_and_can_be_changed_on_the_way() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let copied = Arc::new(Copied {
        store: Arc::clone(&store),
        reads: Mutex::default(),
    });
    let mut pool = Pool::found(&["a", "b", "c"], store).await;
    pool.serve_meddled(Arc::clone(&copied) as _).await;
    fill(&pool, 24_000).await;
    pool.stage_join("d").await;
    pool.throttle(500).await;
    let start = Instant::now();
    pool.apply().await;
    wait_until("1,200 keys are copied", || copied.total() >= 1_200).await;
    let changed = Instant::now();
    pool.throttle(2_000).await;
    pool.settle().await;
    let (slow, fast) = (
        copied.most(start, changed),
        copied.most(changed + SECOND, Instant::now()),
    );
    println!(
        "{} keys; the first 1,200 in {:?}; at most {slow} and {fast} within a second",
        copied.total(),
        changed - start
    );
    assert!(slow <= 500, "{slow} keys within a second, 500 allowed");
    assert!(fast <= 2_000, "{fast} keys within a second, 2,000 allowed");
    assert!(fast > 500, "the new limit was taken: {fast}");
    assert!(slow > 250, "it need not be this slow: {slow}");
    assert_eq!(pool.check_places().await, 24_000);
}

/// Writes keys of a source at the last moment at which a client can: just before the fence.
#[derive(Debug, Default)]
struct WritesAtTheFence {
    source: OnceLock<SocketAddr>,
}

#[async_trait]
impl Meddler for WritesAtTheFence {
    async fn before(&self, _node: &NodeId, call: Call) -> Verdict {
        if call == Call::Fence {
            let mut client = Client::login(*self.source.get().unwrap(), "default", ADMIN);
            let set =
                |number: usize| words(&[b"SET", format!("still:{number}").as_bytes(), b"new"]);
            client.pipeline(&(0..200).map(set).collect::<Vec<_>>());
        }
        Verdict::Pass
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_copies_do_not_wait_for_a_throttle_while_requests_wait_for_them() {
    let meddler = Arc::new(WritesAtTheFence::default());
    let mut pool = Pool::start_meddled(&["a"], Arc::clone(&meddler) as _).await;
    meddler.source.set(pool.servers["a"].socket_addr()).unwrap();
    fill(&pool, 400).await;
    pool.stage_join("b").await;
    pool.stage_leave("a").await;
    // The last 200 keys alone would take two seconds, five times what a handover may take.
    pool.throttle(100).await;
    pool.apply().await;
    pool.settle().await;
    let record = pool.record().await;
    let report = &record.finished().unwrap().handoffs[0].report;
    println!("held for {} ms", report.hold_ms_max);
    assert_eq!(pool.check_places().await, 400);
    let mut client = pool.admin("b");
    let get = |number: usize| words(&[b"GET", format!("still:{number}").as_bytes()]);
    for value in client.pipeline(&(0..200).map(get).collect::<Vec<_>>()) {
        assert_eq!(value.as_bytes(), Some(&b"new"[..]));
    }
}
