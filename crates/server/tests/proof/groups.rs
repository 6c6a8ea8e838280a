//! What consumers of a stream's group were served is not told to those who track keys: it is looked at again
//! under the fence, or what was served just before would be served again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use clockwise_client::resp::Value;
use clockwise_placement::NodeId;

use crate::client::Client;
use crate::keys::way;
use crate::meddling::{Call, Meddler, Verdict};
use crate::pool::{ADMIN, Pool};

const STREAMS: usize = 24;
const ENTRIES: usize = 20;

/// Serves one more entry of every stream at a node just before its clients are fenced off.
#[derive(Debug, Default)]
struct ServesLate {
    servers: Mutex<BTreeMap<String, SocketAddr>>,
    /// Entries served of each stream.
    served: Mutex<BTreeMap<String, i64>>,
}

#[async_trait]
impl Meddler for ServesLate {
    async fn before(&self, node: &NodeId, call: Call) -> Verdict {
        if call == Call::Fence
            && let Some(server) = self.servers.lock().unwrap().get(node.as_str())
        {
            let mut client = Client::login(*server, "default", ADMIN);
            for stream in streams() {
                let reply = client.ask(&[
                    b"XREADGROUP",
                    b"GROUP",
                    b"workers",
                    b"late",
                    b"COUNT",
                    b"1",
                    b"STREAMS",
                    stream.as_bytes(),
                    b">",
                ]);
                if matches!(reply, Value::Array(_)) {
                    *self.served.lock().unwrap().entry(stream).or_default() += 1;
                }
            }
        }
        Verdict::Pass
    }
}

fn streams() -> impl Iterator<Item = String> {
    (0..STREAMS).map(|number| format!("stream:{number}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_group_was_served_just_before_the_fence_is_known_at_the_target() {
    let late = Arc::new(ServesLate::default());
    let mut pool = Pool::start_meddled(&["a", "b", "c"], Arc::clone(&late) as _).await;
    let mut client = Client::connect(pool.router());
    for stream in streams() {
        client.run(&format!("XGROUP CREATE {stream} workers 0 MKSTREAM"));
        for entry in 0..ENTRIES {
            client.run(&format!("XADD {stream} * entry {entry}"));
        }
    }
    pool.stage_join("d").await;
    let ahead = pool.view_ahead().await;
    let moves = |stream: &String| way(&ahead, stream.as_bytes()).is_some();
    assert!(streams().filter(moves).count() >= 3, "too few streams move");
    let addresses = pool.servers.iter().filter(|(name, _)| *name != "d");
    *late.servers.lock().unwrap() = addresses
        .map(|(name, server)| (name.clone(), server.socket_addr()))
        .collect();
    pool.apply().await;
    pool.settle().await;

    let served = late.served.lock().unwrap().clone();
    for stream in streams().filter(moves) {
        assert!(served[&stream] > 0, "{stream} was served before the fence");
        let pending = client.run(&format!("XPENDING {stream} workers"));
        let Value::Array(summary) = &pending else {
            panic!("{pending:?}")
        };
        assert_eq!(summary[0], Value::Integer(served[&stream]), "{stream}");
    }
    assert_eq!(pool.check_places().await, STREAMS);
}
