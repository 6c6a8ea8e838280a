//! A long script at the source when it is to be fenced: its users cannot be removed, so the handover is
//! rolled back, and made again when the script has ended.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::thread;

use async_trait::async_trait;
use clockwise_client::resp::Value;
use clockwise_client::store::{MemoryStore, Store};
use clockwise_cluster::{HandoffState, Record};
use clockwise_placement::NodeId;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::Client;
use crate::load::{audited, fill, more_writes, seed, work};
use crate::meddling::{Call, Meddler, Verdict};
use crate::pool::{ADMIN, Pool};
use crate::serving::PATIENCE;

/// Begins a script without an end at the source before its first fence.
#[derive(Debug)]
struct EndlessScript {
    source: OnceLock<SocketAddr>,
    runs: watch::Sender<bool>,
}

#[async_trait]
impl Meddler for EndlessScript {
    async fn before(&self, _node: &NodeId, call: Call) -> Verdict {
        if call == Call::Fence && !*self.runs.borrow() {
            let source = *self.source.get().unwrap();
            let mut client = Client::login(source, "default", ADMIN);
            client.run("CONFIG SET busy-reply-threshold 1");
            let mut asks = Client::login(source, "default", ADMIN);
            // It answers when somebody has killed it.
            thread::spawn(move || client.ask(&[b"EVAL", b"while true do end", b"0"]));
            while !matches!(asks.ask(&[b"PING"]), Value::Error(why) if why.starts_with("BUSY")) {}
            self.runs.send_replace(true);
        }
        Verdict::Pass
    }
}

async fn reached(store: &dyn Store, state: HandoffState) {
    let mut records = store.watch();
    let is_so = |record: &Option<Arc<Record>>| {
        let change = record.as_ref().and_then(|record| record.change());
        change.is_some_and(|change| change.handoffs[0].state == state)
    };
    let waited = timeout(PATIENCE, records.wait_for(is_so)).await;
    assert!(waited.is_ok(), "{state} is not reached");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_blocks_the_fence_rolls_the_handover_back_and_nothing_is_lost() {
    let script = Arc::new(EndlessScript {
        source: OnceLock::new(),
        runs: watch::Sender::new(false),
    });
    let mut pool = Pool::found(&["a"], Arc::new(MemoryStore::new())).await;
    let source = pool.servers["a"].socket_addr();
    script.source.set(source).unwrap();
    pool.serve_meddled(Arc::clone(&script) as _).await;
    fill(&pool, 2_000).await;
    let workload = work(pool.router(), seed(), 1_000, 1_000).await;
    more_writes(&workload, 500).await;
    let mut killer = Client::login(source, "default", ADMIN);
    pool.stage_join("b").await;
    pool.apply().await;
    let mut runs = script.runs.subscribe();
    let runs = timeout(PATIENCE, runs.wait_for(|runs| *runs)).await;
    assert!(runs.is_ok(), "{:#?}", pool.progress());
    // The handover is over while the script still runs.
    reached(&*pool.store, HandoffState::Copying).await;
    killer.run("SCRIPT KILL");
    pool.settle().await;
    more_writes(&workload, 500).await;
    let report = audited(workload).await;
    assert!(report.is_clean(), "{:?}", report.faults);
    let record = pool.record().await;
    let generation = record.node(&"a".parse().unwrap()).unwrap().generation;
    assert!(
        generation.get() >= 3,
        "one for each handover: {generation:?}"
    );
    assert!(pool.check_places().await >= 2_000);
}
