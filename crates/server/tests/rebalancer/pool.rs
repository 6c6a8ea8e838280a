//! A pool of real servers with a record in memory and a rebalancer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clockwise::driver::Driver;
use clockwise::driver::redis::{Login, Patience, RESERVED_PREFIX, RedisDriver, RedisOptions};
use clockwise::rebalancer::{self, Progress, RebalancerConfig, RebalancerHandle};
use clockwise_client::credentials::PoolKey;
use clockwise_client::resp::Value;
use clockwise_client::store::{CommitError, MemoryStore, Store};
use clockwise_cluster::{
    Address, Apply, Edit, Generator, NewNode, NewPool, Nonce, Record, Revision, View,
};
use clockwise_placement::NodeId;
use clockwise_testkit::{RedisOptions as Started, RedisServer};
use tokio::time::Instant;

use crate::client::{Client, words};

pub(crate) const ADMIN: &str = "open-sesame";
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Pool {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) servers: BTreeMap<String, RedisServer>,
    pub(crate) rebalancer: Option<RebalancerHandle>,
    nonces: u8,
}

pub(crate) fn redis_driver() -> Arc<dyn Driver> {
    Arc::new(RedisDriver::new(RedisOptions {
        administrator: Login {
            user: "default".to_owned(),
            password: Some(ADMIN.to_owned()),
        },
        scripts: false,
        patience: Patience {
            connect: Duration::from_secs(2),
            call: Duration::from_secs(10),
        },
    }))
}

fn server() -> RedisServer {
    RedisServer::start(Started {
        password: Some(ADMIN.to_owned()),
        append_only: true,
        ..Started::default()
    })
}

impl Pool {
    /// A pool of these nodes, a rebalancer that leads it, every door open.
    pub(crate) async fn start(names: &[&str]) -> Self {
        let mut pool = Self::without_rebalancer(names).await;
        pool.lead().await;
        pool
    }

    /// The same with keys placed by another generator than a ring of the usual size.
    pub(crate) async fn start_on(generator: Generator, names: &[&str]) -> Self {
        let mut pool = Self::made(generator, names).await;
        pool.lead().await;
        pool
    }

    pub(crate) async fn without_rebalancer(names: &[&str]) -> Self {
        Self::made(Generator::default(), names).await
    }

    async fn made(generator: Generator, names: &[&str]) -> Self {
        // Shown when a test fails; another test of this process may have begun it.
        let _begun = tracing_subscriber::fmt()
            .with_test_writer()
            .with_ansi(false)
            .try_init();
        let servers: BTreeMap<String, RedisServer> = names
            .iter()
            .map(|name| ((*name).to_owned(), server()))
            .collect();
        let node = |(name, server): (&String, &RedisServer)| {
            NewNode::new(name.parse().unwrap(), address(server))
        };
        let nodes = servers.iter().map(node).collect();
        let new = NewPool {
            generator,
            ..NewPool::new("main".parse().unwrap(), nodes)
        };
        let record = Record::create(new, &mut || Nonce::new([1; 16])).unwrap();
        let store = Arc::new(MemoryStore::new());
        store.commit(Revision::new(0), record, None).await.unwrap();
        Self {
            store,
            driver: redis_driver(),
            servers,
            rebalancer: None,
            nonces: 1,
        }
    }

    /// Starts a rebalancer and waits until every node lets its clients in.
    pub(crate) async fn lead(&mut self) {
        self.lead_over(Arc::clone(&self.store) as _).await;
    }

    /// The same over another way to the pool's store.
    pub(crate) async fn lead_over(&mut self, store: Arc<dyn Store>) {
        self.begin_to_lead(store);
        self.wait("every door is open", Progress::all_doors_open)
            .await;
    }

    /// Starts a rebalancer and waits until every node lets its clients in or is known to have to stay closed.
    pub(crate) async fn lead_although_closed(&mut self) {
        self.begin_to_lead(Arc::clone(&self.store) as _);
        self.wait("every door is settled", Progress::all_doors_settled)
            .await;
    }

    fn begin_to_lead(&mut self, store: Arc<dyn Store>) {
        let config = RebalancerConfig {
            store,
            driver: Arc::clone(&self.driver),
            pool_key: PoolKey::from([7; 32]),
            name: "test".to_owned(),
            registry: None,
        };
        self.rebalancer = Some(rebalancer::start(config));
    }

    /// Ends the rebalancer where it is.
    pub(crate) fn crash(&mut self) {
        drop(self.rebalancer.take());
    }

    pub(crate) async fn wait(&self, what: &str, is_so: impl Fn(&Progress) -> bool) {
        let mut progress = self.rebalancer.as_ref().unwrap().progress();
        let waited =
            tokio::time::timeout(PATIENCE, progress.wait_for(|progress| is_so(progress))).await;
        if !matches!(waited, Ok(Ok(_))) {
            panic!(
                "waited in vain until {what}: {:#?}",
                self.rebalancer.as_ref().unwrap().progress().borrow()
            );
        }
    }

    pub(crate) async fn record(&self) -> Arc<Record> {
        self.store.read().await.unwrap().unwrap()
    }

    pub(crate) async fn view(&self) -> View {
        View::from_record(&*self.record().await).unwrap()
    }

    /// Starts one more server and stages it as a node.
    pub(crate) async fn add(&mut self, name: &str) {
        self.add_server(name, server()).await;
    }

    pub(crate) async fn add_server(&mut self, name: &str, server: RedisServer) {
        let edit = Edit::Add {
            id: name.parse().unwrap(),
            address: address(&server),
            weight: "1".parse().unwrap(),
            domain: "".parse().unwrap(),
        };
        self.servers.insert(name.to_owned(), server);
        self.change(|record| record.stage(edit.clone()).unwrap())
            .await;
    }

    pub(crate) async fn remove(&self, name: &str) {
        let edit = Edit::Remove {
            id: name.parse().unwrap(),
        };
        self.change(|record| record.stage(edit.clone()).unwrap())
            .await;
    }

    pub(crate) async fn apply(&mut self) {
        self.nonces += 1;
        let nonce = Nonce::new([self.nonces; 16]);
        self.change(|record| {
            let apply = Apply {
                expected: record.epoch(),
                id: "change".parse().unwrap(),
                now_ms: 1,
                nonces: &mut || nonce,
            };
            record.apply(apply).unwrap()
        })
        .await;
    }

    pub(crate) async fn change(&self, next: impl Fn(&Record) -> Record) {
        loop {
            let record = self.record().await;
            match self
                .store
                .commit(record.revision(), next(&record), None)
                .await
            {
                Ok(_) => return,
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits until no change is in flight; says how long it took.
    pub(crate) async fn settle(&self) -> Duration {
        let began = Instant::now();
        let mut records = self.store.watch();
        let at_rest = |record: &Option<Arc<Record>>| {
            record
                .as_ref()
                .is_some_and(|record| record.change().is_none())
        };
        let settled = tokio::time::timeout(PATIENCE, records.wait_for(at_rest)).await;
        if !matches!(settled, Ok(Ok(_))) {
            panic!(
                "the change does not end: {:#?}",
                self.rebalancer.as_ref().unwrap().progress().borrow()
            );
        }
        began.elapsed()
    }

    /// From now on what a node acknowledges outlives a kill, however slow the disk is.
    pub(crate) fn save_always(&self, name: &str) {
        let reply = self
            .admin(name)
            .ask(&[b"CONFIG", b"SET", b"appendfsync", b"always"]);
        assert_eq!(reply, Value::Simple("OK".into()));
    }

    pub(crate) fn admin(&self, name: &str) -> Client {
        Client::login(&self.servers[name], "default", ADMIN)
    }

    /// Sets keys at their owners, each to a value of its own.
    pub(crate) async fn fill(&self, keys: &[Vec<u8>], value: impl Fn(&[u8]) -> Vec<u8>) {
        let commands = keys
            .iter()
            .map(|key| (key.clone(), words(&[b"SET", key, &value(key)])));
        self.run_at_owners(commands.collect()).await;
    }

    /// Runs commands at the owners of their keys.
    pub(crate) async fn run_at_owners(&self, commands: Vec<(Vec<u8>, Vec<Vec<u8>>)>) {
        let view = self.view().await;
        let mut per_node: BTreeMap<NodeId, Vec<Vec<Vec<u8>>>> = BTreeMap::new();
        for (key, command) in commands {
            per_node
                .entry(view.owner(&key).clone())
                .or_default()
                .push(command);
        }
        for (node, commands) in per_node {
            let replies = self.admin(node.as_str()).pipeline(&commands);
            let failed = commands
                .iter()
                .zip(&replies)
                .find(|(_, reply)| matches!(reply, Value::Error(_)));
            assert!(failed.is_none(), "{failed:?}");
        }
    }

    /// Every key lies at its owner and nowhere else; returns how many there are.
    pub(crate) async fn check_places(&self) -> usize {
        let view = self.view().await;
        let mut count = 0;
        for name in self.servers.keys() {
            let mut keys = keys_of(&mut self.admin(name));
            // The song of a preflight that was cut short ends by itself.
            keys.retain(|key| !key.starts_with(RESERVED_PREFIX));
            let id: NodeId = name.parse().unwrap();
            let foreign = keys.iter().find(|key| *view.owner(key) != id);
            assert!(
                foreign.is_none(),
                "{name} has {foreign:?}, which it does not own"
            );
            count += keys.len();
        }
        count
    }

    /// What each key has, asked at its owner.
    pub(crate) async fn values(&self, keys: &[Vec<u8>]) -> Vec<Value> {
        let view = self.view().await;
        let mut per_node: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (at, key) in keys.iter().enumerate() {
            per_node
                .entry(view.owner(key).clone())
                .or_default()
                .push(at);
        }
        let mut values = vec![Value::Null; keys.len()];
        for (node, places) in per_node {
            let commands: Vec<_> = places
                .iter()
                .map(|&at| words(&[b"GET", &keys[at]]))
                .collect();
            let replies = self.admin(node.as_str()).pipeline(&commands);
            places
                .into_iter()
                .zip(replies)
                .for_each(|(at, reply)| values[at] = reply);
        }
        values
    }
}

fn address(server: &RedisServer) -> Address {
    server.addr().parse().unwrap()
}

/// Every key of a server.
pub(crate) fn keys_of(client: &mut Client) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut cursor = b"0".to_vec();
    loop {
        let Value::Array(parts) = client.ask(&[b"SCAN", &cursor, b"COUNT", b"1000"]) else {
            panic!("no array")
        };
        let [Value::Bulk(next), Value::Array(listed)] = &parts[..] else {
            panic!("{parts:?}")
        };
        for key in listed {
            let Value::Bulk(key) = key else {
                panic!("{key:?}")
            };
            keys.push(key.to_vec());
        }
        cursor = next.to_vec();
        if cursor == b"0" {
            keys.sort_unstable();
            keys.dedup();
            return keys;
        }
    }
}

/// `user:0` and so on.
pub(crate) fn numbered(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| format!("user:{number}").into_bytes())
        .collect()
}
