//! A pool of real servers with a record, and router and rebalancer over it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clockwise::driver::Driver;
use clockwise::driver::redis::{Login, Patience, RedisDriver, RedisOptions};
use clockwise::rebalancer::{ChangeProgress, Progress};
use clockwise_client::store::{CommitError, MemoryStore, Store};
use clockwise_cluster::{
    Address, Apply, ApplyError, Edit, NewNode, NewPool, Nonce, Record, Revision, Throttle, View,
};
use clockwise_testkit::{RedisOptions as Started, RedisServer};
use tokio::time::{Instant, sleep, timeout};

use crate::client::{Client, Command};
use crate::keys::{check_places, keys_of};
use crate::meddling::{Meddled, Meddler, NoMeddling};
use crate::serving::{PATIENCE, Serving};

/// The password of the servers' administrator.
pub(crate) const ADMIN: &str = "open-sesame";

pub(crate) const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// The real driver.
pub(crate) fn redis_driver() -> Arc<dyn Driver> {
    Arc::new(RedisDriver::new(RedisOptions {
        administrator: Login {
            user: "default".to_owned(),
            password: Some(ADMIN.to_owned()),
        },
        scripts: false,
        patience: Patience::default(),
    }))
}

/// Options of a server of the pool.
pub(crate) fn server_options() -> Started {
    Started {
        password: Some(ADMIN.to_owned()),
        append_only: true,
        ..Started::default()
    }
}

/// Servers, and what runs over them.
pub(crate) struct Pool {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) serving: Option<Serving>,
    pub(crate) servers: BTreeMap<String, RedisServer>,
}

impl Pool {
    /// A pool that serves.
    pub(crate) async fn start(names: &[&str]) -> Self {
        Self::start_meddled(names, Arc::new(NoMeddling)).await
    }

    /// One whose driver is meddled with.
    pub(crate) async fn start_meddled(names: &[&str], meddler: Arc<dyn Meddler>) -> Self {
        let mut pool = Self::found(names, Arc::new(MemoryStore::new())).await;
        pool.serve_meddled(meddler).await;
        pool
    }

    /// Begins to serve.
    pub(crate) async fn serve_meddled(&mut self, meddler: Arc<dyn Meddler>) {
        let driver = Meddled::over(redis_driver(), meddler);
        let store = Arc::clone(&self.store);
        self.serving = Some(Serving::start(store, driver, ANY_PORT).await);
    }

    /// Servers and their first record; nothing serves yet.
    pub(crate) async fn found(names: &[&str], store: Arc<dyn Store>) -> Self {
        let start = |name: &&str| ((*name).to_owned(), RedisServer::start(server_options()));
        let servers: BTreeMap<String, RedisServer> = names.iter().map(start).collect();
        let node = |(name, server): (&String, &RedisServer)| {
            NewNode::new(name.parse().unwrap(), address(server))
        };
        let nodes = servers.iter().map(node).collect();
        let new = NewPool::new("main".parse().unwrap(), nodes);
        let record = Record::create(new, &mut nonce).unwrap();
        store.commit(Revision::new(0), record, None).await.unwrap();
        Self {
            store,
            serving: None,
            servers,
        }
    }

    pub(crate) fn serving(&self) -> &Serving {
        self.serving.as_ref().unwrap()
    }

    /// Where clients connect.
    pub(crate) fn router(&self) -> SocketAddr {
        self.serving().router.addr()
    }

    pub(crate) async fn record(&self) -> Arc<Record> {
        self.store.read().await.unwrap().unwrap()
    }

    pub(crate) async fn view(&self) -> View {
        View::from_record(&*self.record().await).unwrap()
    }

    pub(crate) fn admin(&self, name: &str) -> Client {
        Client::login(self.servers[name].socket_addr(), "default", ADMIN)
    }

    /// Starts one more server and stages it as a node.
    pub(crate) async fn stage_join(&mut self, name: &str) {
        self.stage_join_of(name, RedisServer::start(server_options()))
            .await;
    }

    pub(crate) async fn stage_join_of(&mut self, name: &str, server: RedisServer) {
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

    pub(crate) async fn stage_leave(&self, name: &str) {
        let edit = Edit::Remove {
            id: name.parse().unwrap(),
        };
        self.change(|record| record.stage(edit.clone()).unwrap())
            .await;
    }

    pub(crate) async fn throttle(&self, keys_per_second: u64) {
        let throttle = Throttle {
            keys_per_second,
            ..Throttle::default()
        };
        self.change(|record| record.with_throttle(throttle)).await;
    }

    /// The view as it will be when what is staged was applied.
    pub(crate) async fn view_ahead(&self) -> View {
        View::from_record(&applied(&*self.record().await).unwrap()).unwrap()
    }

    pub(crate) async fn apply(&self) {
        self.change(|record| applied(record).unwrap()).await;
    }

    pub(crate) async fn change(&self, next: impl Fn(&Record) -> Record) {
        loop {
            let record = self.record().await;
            let committed = self.store.commit(record.revision(), next(&record), None);
            match committed.await {
                Ok(_) => return,
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits until no change is in flight; says how long it took. What stopped before goes on by then.
    pub(crate) async fn settle(&self) -> Duration {
        let began = Instant::now();
        let mut records = self.store.watch();
        let at_rest = |record: &Option<Arc<Record>>| {
            let record = record.as_ref();
            record.is_some_and(|record| record.change().is_none())
        };
        let settled = timeout(PATIENCE, records.wait_for(at_rest)).await;
        assert!(
            matches!(settled, Ok(Ok(_))),
            "the change does not end: {:#?}",
            self.progress()
        );
        began.elapsed()
    }

    /// Waits until the change in flight ends or stops; says how long it took, or why it stopped.
    pub(crate) async fn end(&self) -> Result<Duration, String> {
        let began = Instant::now();
        let mut records = self.store.watch();
        let at_rest = |record: &Option<Arc<Record>>| {
            let record = record.as_ref();
            record.is_some_and(|record| record.change().is_none())
        };
        let mut progress = self.serving().rebalancer.progress();
        let either = async {
            tokio::select! {
                settled = records.wait_for(at_rest) => {
                    settled.unwrap();
                    Ok(began.elapsed())
                }
                stopped = progress.wait_for(|progress| why_stopped(progress).is_some()) => {
                    Err(why_stopped(&stopped.unwrap()).unwrap())
                }
            }
        };
        let ended = timeout(PATIENCE, either).await;
        ended.unwrap_or_else(|_| panic!("the change does not end: {:#?}", self.progress()))
    }

    pub(crate) fn progress(&self) -> Option<ChangeProgress> {
        let progress = self.serving().rebalancer.progress();
        let progress = progress.borrow();
        progress.change.clone()
    }

    /// Why the change in flight stopped, once it has.
    pub(crate) async fn stopped(&self) -> String {
        let mut progress = self.serving().rebalancer.progress();
        let stopped = progress.wait_for(|progress| why_stopped(progress).is_some());
        match timeout(PATIENCE, stopped).await {
            Ok(Ok(progress)) => why_stopped(&progress).unwrap(),
            _ => panic!("nothing stopped: {:#?}", self.progress()),
        }
    }

    /// Runs commands at the nodes that own their keys, the second word of each.
    pub(crate) async fn run_at_owners(&self, commands: Vec<Command>) {
        let view = self.view().await;
        let mut per_node: BTreeMap<String, Vec<Command>> = BTreeMap::new();
        for command in commands {
            let owner = view.owner(&command[1]).to_string();
            per_node.entry(owner).or_default().push(command);
        }
        for (node, commands) in per_node {
            self.admin(&node).pipeline(&commands);
        }
    }

    /// What each server holds.
    pub(crate) fn keys(&self) -> BTreeMap<String, Vec<Vec<u8>>> {
        let of = |name: &String| (name.clone(), keys_of(&mut self.admin(name)));
        self.servers.keys().map(of).collect()
    }

    /// Panics unless every key lies at its owner and nowhere else; says how many there are.
    pub(crate) async fn check_places(&self) -> usize {
        check_places(&self.view().await, &self.keys())
    }
}

fn why_stopped(progress: &Progress) -> Option<String> {
    let mut handoffs = progress.change.iter().flat_map(|change| &change.handoffs);
    handoffs.find_map(|handoff| handoff.stopped.clone())
}

/// The record with what is staged applied.
pub(crate) fn applied(record: &Record) -> Result<Record, ApplyError> {
    record.apply(Apply {
        expected: record.epoch(),
        id: format!("change-{}", record.epoch().next()).parse().unwrap(),
        now_ms: 1,
        nonces: &mut nonce,
    })
}

pub(crate) fn nonce() -> Nonce {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    Nonce::new(bytes)
}

fn address(server: &RedisServer) -> Address {
    server.addr().parse().unwrap()
}

/// Waits until something is so, looking again and again.
pub(crate) async fn wait_until(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "{what}: waited in vain");
        sleep(Duration::from_millis(5)).await;
    }
}
