//! What somebody does to the copies at a target before they are its own is found when both sides are
//! compared, and made good.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use clockwise_client::resp::Value;
use clockwise_client::store::{MemoryStore, Store};
use clockwise_cluster::HandoffState;
use clockwise_placement::NodeId;

use crate::client::{Client, words};
use crate::load::fill;
use crate::meddling::{Call, Meddler, Verdict};
use crate::pool::{ADMIN, Pool};

/// Changes, removes and adds keys at the target when the comparison begins to list it.
#[derive(Debug)]
struct Intruder {
    store: Arc<dyn Store>,
    target: OnceLock<SocketAddr>,
    was_there: AtomicBool,
}

#[async_trait]
impl Meddler for Intruder {
    async fn before(&self, node: &NodeId, call: Call) -> Verdict {
        let record = self.store.watch().borrow().clone();
        let change = record.as_ref().and_then(|record| record.change());
        let is_compared = change.is_some_and(|change| {
            let handoff = &change.handoffs[0];
            handoff.state == HandoffState::Verifying && handoff.targets.contains(node)
        });
        if call == Call::Scan && is_compared && !self.was_there.swap(true, Ordering::SeqCst) {
            let mut client = Client::login(*self.target.get().unwrap(), "default", ADMIN);
            client.run("SET still:1 other");
            client.run("PEXPIREAT still:2 33000000000000");
            client.run("DEL still:3");
            client.run("SET nobody:1 extra");
        }
        Verdict::Pass
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_somebody_touched_at_the_target_are_found_and_made_good() {
    let mut pool = Pool::found(&["a"], Arc::new(MemoryStore::new())).await;
    let intruder = Arc::new(Intruder {
        store: Arc::clone(&pool.store),
        target: OnceLock::new(),
        was_there: AtomicBool::new(false),
    });
    pool.serve_meddled(Arc::clone(&intruder) as _).await;
    fill(&pool, 2_000).await;
    pool.stage_join("b").await;
    pool.stage_leave("a").await;
    let target = pool.servers["b"].socket_addr();
    intruder.target.set(target).unwrap();
    pool.apply().await;
    pool.settle().await;
    assert!(intruder.was_there.load(Ordering::SeqCst));
    let record = pool.record().await;
    assert_eq!(record.finished().unwrap().handoffs[0].report.mismatches, 4);
    let keys: BTreeMap<_, _> = pool.keys();
    assert_eq!(
        keys["b"].len(),
        2_000,
        "nothing is missing, nothing is extra"
    );
    let mut client = pool.admin("b");
    for number in 1..=3 {
        let key = format!("still:{number}");
        let get = words(&[b"GET", key.as_bytes()]);
        let expected = Value::Bulk(format!("{key:0>100}").into_bytes());
        assert_eq!(client.pipeline(&[get]), [expected]);
        assert_eq!(client.run(&format!("PTTL {key}")), Value::Integer(-1));
    }
}
