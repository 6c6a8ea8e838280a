//! Whom a node lets in once a change was taken back: the clients of the generation in the record, and
//! nobody else, at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use clockwise_client::resp::Value;
use clockwise_client::store::{MemoryStore, Store};
use clockwise_cluster::{Direction, HandoffState, Record};
use clockwise_placement::NodeId;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::Client;
use crate::load::fill;
use crate::meddling::{Call, Meddler, Verdict};
use crate::points::{Point, StopAt};
use crate::pool::{ADMIN, Pool, wait_until};
use crate::serving::PATIENCE;

fn users(pool: &Pool, node: &str) -> Vec<String> {
    client_users(&mut pool.admin(node))
}

/// Client users of a server.
fn client_users(client: &mut Client) -> Vec<String> {
    let Value::Array(users) = client.run("ACL USERS") else {
        panic!("ACL USERS gives an array")
    };
    let names = users.iter().filter_map(Value::as_text);
    let ours = names.filter(|name| name.starts_with("cw-g"));
    ours.map(str::to_owned).collect()
}

fn named(record: &Record, node: &str) -> Vec<String> {
    let node = record.node(&node.parse().unwrap());
    node.map(|node| format!("cw-g{}", node.generation.get()))
        .into_iter()
        .collect()
}

fn state_of(store: &dyn Store, source: &NodeId) -> Option<HandoffState> {
    let record = store.watch().borrow().clone()?;
    let mut handoffs = record.change()?.handoffs.iter();
    Some(handoffs.find(|handoff| handoff.source == *source)?.state)
}

async fn only_the_named_users_are_left(pool: &Pool) {
    let record = pool.record().await;
    for node in record
        .membership()
        .nodes
        .iter()
        .map(|node| node.id.as_str())
    {
        let named = named(&record, node);
        let what = format!("{node} has the users {named:?} alone");
        wait_until(&what, || users(pool, node) == named).await;
    }
}

async fn aborted_at(point: Point) {
    let mut pool = Pool::found(&["a", "b"], Arc::new(MemoryStore::new())).await;
    let stop = StopAt::new(point, Arc::clone(&pool.store));
    pool.serve_meddled(Arc::clone(&stop) as _).await;
    fill(&pool, 2_000).await;
    pool.stage_join("c").await;
    pool.apply().await;
    let reached = timeout(PATIENCE, stop.reached()).await;
    assert!(reached.is_ok(), "{:#?}", pool.progress());
    stop.release();
    pool.serving().rebalancer.abort().await.unwrap();
    pool.settle().await;
    only_the_named_users_are_left(&pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_older_generation_is_left_after_an_abort_before_the_fence() {
    aborted_at(Point::BeforeFence).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_older_generation_is_left_after_an_abort_after_a_flip() {
    aborted_at(Point::Flipped).await;
}

/// Holds the making of a user for a handover that is not committed yet.
#[derive(Debug)]
struct HoldsTheUser {
    store: Arc<dyn Store>,
    made: watch::Sender<bool>,
    released: watch::Sender<bool>,
}

#[async_trait]
impl Meddler for HoldsTheUser {
    async fn after(&self, node: &NodeId, call: Call) {
        let verifying = state_of(&*self.store, node) == Some(HandoffState::Verifying);
        if call == Call::MakeUser && verifying {
            self.made.send_replace(true);
            let mut released = self.released.subscribe();
            released.wait_for(|released| *released).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_whose_handover_was_never_committed_is_removed() {
    let mut pool = Pool::found(&["a", "b"], Arc::new(MemoryStore::new())).await;
    let hold = Arc::new(HoldsTheUser {
        store: Arc::clone(&pool.store),
        made: watch::Sender::new(false),
        released: watch::Sender::new(false),
    });
    pool.serve_meddled(Arc::clone(&hold) as _).await;
    fill(&pool, 2_000).await;
    pool.stage_join("c").await;
    pool.apply().await;
    let mut made = hold.made.subscribe();
    let made = timeout(PATIENCE, made.wait_for(|made| *made)).await;
    assert!(made.is_ok(), "{:#?}", pool.progress());
    let abort = pool.serving().rebalancer.abort();
    let release = async {
        // The abort has reached the record: the handover is not committed any more.
        let mut records = pool.store.watch();
        let goes_back = |record: &Option<Arc<Record>>| {
            let change = record.as_ref().and_then(|record| record.change());
            change.is_none_or(|change| change.direction == Direction::Back)
        };
        timeout(PATIENCE, records.wait_for(goes_back))
            .await
            .unwrap()
            .unwrap();
        hold.released.send_replace(true);
    };
    tokio::join!(abort, release).0.unwrap();
    pool.settle().await;
    only_the_named_users_are_left(&pool).await;
}

/// Makes a user of a high generation on a source, whenever somebody is about to look which there are.
#[derive(Debug)]
struct PlantsAbove {
    store: Arc<dyn Store>,
    servers: Mutex<BTreeMap<String, SocketAddr>>,
}

#[async_trait]
impl Meddler for PlantsAbove {
    async fn before(&self, node: &NodeId, call: Call) -> Verdict {
        let verifying = state_of(&*self.store, node) == Some(HandoffState::Verifying);
        if call == Call::Users && verifying {
            let server = self.servers.lock().unwrap()[node.as_str()];
            Client::login(server, "default", ADMIN).run("ACL SETUSER cw-g40 on");
        }
        Verdict::Pass
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_generation_is_above_the_record_and_above_every_user_of_the_server() {
    let mut pool = Pool::found(&["a"], Arc::new(MemoryStore::new())).await;
    let plants = PlantsAbove {
        store: Arc::clone(&pool.store),
        servers: Mutex::default(),
    };
    let address = pool.servers["a"].socket_addr();
    plants
        .servers
        .lock()
        .unwrap()
        .insert("a".to_owned(), address);
    pool.serve_meddled(Arc::new(plants)).await;
    fill(&pool, 500).await;
    pool.stage_join("b").await;
    pool.apply().await;
    pool.settle().await;
    let record = pool.record().await;
    let generation = record.node(&"a".parse().unwrap()).unwrap().generation;
    assert_eq!(generation.get(), 41);
    only_the_named_users_are_left(&pool).await;
}

/// What a node's users are whenever one is about to be made there.
#[derive(Debug)]
struct LooksBefore {
    server: SocketAddr,
    seen: Mutex<Vec<String>>,
}

#[async_trait]
impl Meddler for LooksBefore {
    async fn before(&self, _node: &NodeId, call: Call) -> Verdict {
        if call == Call::MakeUser {
            let mut client = Client::login(self.server, "default", ADMIN);
            self.seen.lock().unwrap().extend(client_users(&mut client));
        }
        Verdict::Pass
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_that_the_record_does_not_name_are_deleted_before_the_named_one_is_made() {
    let mut pool = Pool::found(&["a"], Arc::new(MemoryStore::new())).await;
    let server = pool.servers["a"].socket_addr();
    let mut client = pool.admin("a");
    for user in ["cw-g0", "cw-g7"] {
        client.run(&format!("ACL SETUSER {user} on >secret ~* +@all"));
    }
    let looks = Arc::new(LooksBefore {
        server,
        seen: Mutex::default(),
    });
    pool.serve_meddled(Arc::clone(&looks) as _).await;
    let seen = looks.seen.lock().unwrap().clone();
    assert_eq!(
        seen,
        Vec::<String>::new(),
        "they were there when it was made"
    );
    assert_eq!(users(&pool, "a"), named(&*pool.record().await, "a"));
}
