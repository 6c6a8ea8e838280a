//! Embedded nodes join, leave and are taken back under the checked workload: nothing is lost, and every
//! key lies at its owner alone.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clockwise::driver::{Driver, NodeAddress, Term};
use clockwise::embedded::{EmbeddedDriver, EmbeddedNodes, EmbeddedOptions};
use clockwise::workload::{Workload, WorkloadOptions};
use clockwise_client::resp::write_command;
use clockwise_client::store::{CommitError, MemoryStore, Store};
use clockwise_cluster::{
    Apply, Direction, Edit, HandoffState, NewNode, NewPool, Nonce, Record, Revision, Throttle, View,
};
use clockwise_testkit::{Random, for_seeds};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep, timeout};

use crate::client::Client;
use crate::serving::{PATIENCE, Serving};

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Keys that nobody touches while they move.
const STILL: usize = 4_000;
/// So slow that a move lasts a second or more.
const KEYS_PER_SECOND: u64 = 1_000;

struct Pool {
    store: Arc<dyn Store>,
    nodes: EmbeddedNodes,
    serving: Serving,
}

impl Pool {
    async fn start(names: &[&str]) -> Self {
        let nodes = EmbeddedNodes::new(EmbeddedOptions::default());
        let mut first = Vec::new();
        for name in names {
            let id = name.parse().unwrap();
            let address = nodes.start(&id, ANY_PORT).await.unwrap().to_string();
            first.push(NewNode::new(id, address.parse().unwrap()));
        }
        let new = NewPool::new("main".parse().unwrap(), first);
        let record = Record::create(new, &mut nonce).unwrap();
        let record = record.with_throttle(Throttle {
            keys_per_second: KEYS_PER_SECOND,
            ..Throttle::default()
        });
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        store.commit(Revision::new(0), record, None).await.unwrap();
        let driver = Arc::new(EmbeddedDriver::new(nodes.clone()));
        let serving = Serving::start(Arc::clone(&store), driver, ANY_PORT).await;
        Self {
            store,
            nodes,
            serving,
        }
    }

    fn fill(&self) {
        let mut client = Client::connect(self.serving.router.addr());
        let mut bytes = Vec::new();
        for number in 0..STILL {
            write_command(&mut bytes, &["SET", &format!("still:{number}"), "value"]);
        }
        client.send(&bytes);
        for _ in 0..STILL {
            assert_eq!(client.reply().unwrap(), b"+OK\r\n");
        }
    }

    async fn change(&self, next: impl Fn(&Record) -> Record) {
        loop {
            let record = self.store.read().await.unwrap().unwrap();
            let committed = self.store.commit(record.revision(), next(&record), None);
            match committed.await {
                Ok(_) => return,
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn apply(&self, edit: Edit) {
        self.change(|record| {
            let staged = record.stage(edit.clone()).unwrap();
            let apply = Apply {
                expected: record.epoch(),
                id: format!("change-{}", record.epoch().next()).parse().unwrap(),
                now_ms: 1,
                nonces: &mut nonce,
            };
            staged.apply(apply).unwrap()
        })
        .await;
    }

    async fn join(&self, name: &str) {
        let id = name.parse().unwrap();
        let address = self.nodes.start(&id, ANY_PORT).await.unwrap().to_string();
        self.apply(Edit::Add {
            id,
            address: address.parse().unwrap(),
            weight: "1".parse().unwrap(),
            domain: "".parse().unwrap(),
        })
        .await;
    }

    async fn wait(&self, what: &str, so: impl Fn(&Record) -> bool) -> Arc<Record> {
        let mut records = self.store.watch();
        let so = |record: &Option<Arc<Record>>| so(record.as_ref().unwrap());
        match timeout(PATIENCE, records.wait_for(so)).await {
            Ok(Ok(record)) => record.clone().unwrap(),
            _ => panic!(
                "waited in vain until {what}: {:#?}",
                self.serving.rebalancer.progress().borrow()
            ),
        }
    }

    async fn settled(&self) -> Arc<Record> {
        self.wait("the change ends", |record| record.change().is_none())
            .await
    }

    /// Ends what serves; panics unless each node has what it owns and nothing else.
    async fn check_places(self) {
        let record = self.store.read().await.unwrap().unwrap();
        let view = View::from_record(&record).unwrap();
        self.serving.end().await;
        let driver = EmbeddedDriver::new(self.nodes);
        let mut still = 0;
        for node in &record.membership().nodes {
            let at = NodeAddress {
                id: node.id.clone(),
                address: node.address.to_string(),
            };
            let session = driver.session(&at, Term(u64::MAX)).await.unwrap();
            let (_, keys) = session.scan(0, u32::MAX).await.unwrap();
            for key in &keys {
                assert_eq!(*view.owner(key), node.id, "{}", key.escape_ascii());
            }
            still += keys.iter().filter(|key| key.starts_with(b"still:")).count();
        }
        assert_eq!(still, STILL);
    }
}

fn nonce() -> Nonce {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    Nonce::new(bytes)
}

async fn work(pool: &Pool, random: &mut Random) -> Workload {
    let options = WorkloadOptions {
        addr: pool.serving.router.addr().to_string(),
        connections: 8,
        pipeline: 4,
        keys: 1_000,
        seed: random.bits(),
        rate: Some(2_000),
        ttl_ms: 500..=10_000,
        ..WorkloadOptions::default()
    };
    Workload::start(options).await.unwrap()
}

async fn more_writes(workload: &Workload, count: u64) {
    let from = workload.mark();
    let deadline = Instant::now() + PATIENCE;
    while workload.mark().since(&from).acknowledged_writes() < count {
        assert!(Instant::now() < deadline, "no writes are acknowledged");
        sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn audited(workload: Workload) {
    let report = workload.stop().await;
    assert!(report.is_clean(), "{:?}", report.faults);
    assert_eq!(report.other_errors(), 0, "{:?}", report.errors);
}

fn with_seed(name: &str, test: impl AsyncFn(&mut Random)) {
    let repeat = format!("-p clockwise --test embedded {name}");
    for_seeds(1, &repeat, |random| {
        Runtime::new().unwrap().block_on(test(random));
    });
}

#[test]
fn a_node_joins_and_one_leaves_and_nothing_is_lost() {
    with_seed("a_node_joins_and_one_leaves", async |random| {
        let pool = Pool::start(&["a", "b", "c"]).await;
        pool.fill();
        let workload = work(&pool, random).await;
        more_writes(&workload, 300).await;
        for change in ["join", "leave"] {
            let from = workload.mark();
            match change {
                "join" => pool.join("d").await,
                _ => {
                    pool.apply(Edit::Remove {
                        id: "a".parse().unwrap(),
                    })
                    .await
                }
            }
            let record = pool.settled().await;
            let during = workload.mark().since(&from).acknowledged_writes();
            assert!(during > 500, "{during} writes while it moved");
            let moved = &record.finished().unwrap().handoffs;
            let keys: u64 = moved.iter().map(|handoff| handoff.report.keys_moved).sum();
            assert!(keys > 500, "{keys} keys moved");
        }
        more_writes(&workload, 300).await;
        audited(workload).await;
        pool.check_places().await;
    });
}

fn an_abort_at(name: &str, state: HandoffState) {
    with_seed(name, async |random| {
        let pool = Pool::start(&["a", "b", "c"]).await;
        pool.fill();
        let workload = work(&pool, random).await;
        more_writes(&workload, 300).await;
        pool.join("d").await;
        pool.wait("it gets there", |record| {
            let mut handoffs = record
                .change()
                .into_iter()
                .flat_map(|change| &change.handoffs);
            handoffs.any(|handoff| handoff.state >= state)
        })
        .await;
        pool.serving.rebalancer.abort().await.unwrap();
        let record = pool.settled().await;
        assert_eq!(record.finished().unwrap().direction, Direction::Back);
        assert_eq!(record.membership().nodes.len(), 3);
        more_writes(&workload, 300).await;
        audited(workload).await;
        pool.check_places().await;
    });
}

#[test]
fn a_join_taken_back_while_it_copies_leaves_everything_where_it_was() {
    an_abort_at("taken_back_while_it_copies", HandoffState::Copying);
}

#[test]
fn a_join_taken_back_in_a_handover_leaves_everything_where_it_was() {
    an_abort_at("taken_back_in_a_handover", HandoffState::Handover);
}

#[test]
fn a_join_taken_back_after_its_first_flip_leaves_everything_where_it_was() {
    an_abort_at("taken_back_after_its_first_flip", HandoffState::Flipped);
}

#[test]
fn a_join_taken_back_while_a_source_is_cleaned_leaves_everything_where_it_was() {
    an_abort_at(
        "taken_back_while_a_source_is_cleaned",
        HandoffState::Cleaning,
    );
}
