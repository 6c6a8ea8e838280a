//! Servers with the users of their generations, a record of them, and clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clockwise_client::credentials::{PoolKey, client_password, client_user};
use clockwise_client::store::{MemoryStore, Store};
use clockwise_client::{Access, Builder, Client};
use clockwise_cluster::{NewNode, NewPool, Node, Nonce, Record, Revision};
use clockwise_testkit::{RedisOptions, RedisServer};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// For what should take a moment.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn pool_key() -> PoolKey {
    PoolKey::from([7; 32])
}

pub(crate) struct Pool {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) servers: BTreeMap<String, RedisServer>,
}

impl Pool {
    /// Servers that let the clients of the first record in, and nobody else.
    pub(crate) async fn start(names: &[&str]) -> Self {
        let options = || RedisOptions {
            password: Some("open-sesame".to_owned()),
            ..RedisOptions::default()
        };
        let start = |name: &&str| ((*name).to_owned(), RedisServer::start(options()));
        let servers: BTreeMap<String, RedisServer> = names.iter().map(start).collect();
        let node = |(name, server): (&String, &RedisServer)| {
            NewNode::new(name.parse().unwrap(), server.addr().parse().unwrap())
        };
        let nodes = servers.iter().map(node).collect();
        let new = NewPool::new("main".parse().unwrap(), nodes);
        let mut last = 0;
        let record = Record::create(new, &mut || {
            last += 1;
            Nonce::new([last; 16])
        });
        let store = Arc::new(MemoryStore::new());
        let record = store.commit(Revision::new(0), record.unwrap(), None).await;
        let pool = Self { store, servers };
        for node in &record.unwrap().membership().nodes {
            pool.admit(node);
        }
        pool
    }

    pub(crate) fn builder(&self) -> Builder {
        Client::builder()
            .store(
                Arc::clone(&self.store) as _,
                Some(Arc::clone(&self.store) as _),
            )
            .access(Access::PoolKey(pool_key()))
    }

    pub(crate) async fn client(&self) -> Client {
        self.builder().build().await.unwrap()
    }

    pub(crate) async fn record(&self) -> Arc<Record> {
        self.store.read().await.unwrap().unwrap()
    }

    pub(crate) async fn node(&self, name: &str) -> Node {
        self.record()
            .await
            .node(&name.parse().unwrap())
            .unwrap()
            .clone()
    }

    /// Makes the client user of a node's generation, as it stands in the record.
    pub(crate) fn admit(&self, node: &Node) {
        let password = client_password(&pool_key(), &node.id, &node.nonce);
        let password = format!(">{}", password.reveal());
        let user = client_user(node.generation);
        let rights = ["reset", "on", "~*", "&*", "+@all", "-@admin", "-@dangerous"];
        let mut words = vec!["ACL", "SETUSER", &user];
        words.extend(rights);
        words.push(&password);
        assert_eq!(self.servers[node.id.as_str()].cli(&words), "OK");
    }

    /// Removes it, and with it every connection of its clients: the fence.
    pub(crate) fn fence(&self, node: &Node) {
        let user = client_user(node.generation);
        let fenced = self.servers[node.id.as_str()].cli(&["ACL", "DELUSER", &user]);
        assert_eq!(fenced, "1");
    }

    /// Starts a killed server again, as one that lets the clients of the record in.
    pub(crate) async fn restart(&mut self, name: &str) {
        self.servers.get_mut(name).unwrap().restart();
        self.admit(&self.node(name).await);
    }

    /// The record with a later generation of a node, at the next epoch; not committed.
    pub(crate) async fn next_generation(&self, name: &str) -> Record {
        let record = self.record().await;
        let mut stored: Value = serde_json::from_slice(&record.encode().unwrap()).unwrap();
        stored["epoch"] = json!(record.epoch().get() + 1);
        let nodes = stored["membership"]["nodes"].as_array_mut().unwrap();
        let node = nodes.iter_mut().find(|node| node["id"] == name).unwrap();
        node["generation"] = json!(node["generation"].as_u64().unwrap() + 1);
        node["nonce"] = json!(Nonce::new([0xee; 16]).to_string());
        serde_json::from_value(stored).unwrap()
    }

    pub(crate) async fn commit(&self, next: Record) {
        let revision = self.record().await.revision();
        self.store.commit(revision, next, None).await.unwrap();
    }

    /// So many keys that a node owns.
    pub(crate) fn keys_of(client: &Client, node: &str, count: usize) -> Vec<String> {
        let keys = (0..).map(|number| format!("key:{number}"));
        keys.filter(|key| client.owner(key).as_str() == node)
            .take(count)
            .collect()
    }
}

/// Asks until something is so.
pub(crate) async fn wait_until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let looks = async {
        while !so().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = timeout(PATIENCE, looks).await;
    assert!(waited.is_ok(), "waited in vain until {what}");
}
