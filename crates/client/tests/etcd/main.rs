//! The store in real etcd servers that are killed, paused, locked, restored and spoken to in TLS.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod content;
mod faults;
mod leaders;
mod registrations;

use std::sync::Arc;
use std::time::Duration;

use clockwise_client::store::{EtcdOptions, EtcdStore, ReadError, Store};
use clockwise_cluster::{NewNode, NewPool, Nonce, Record, Revision};
use serde_json::{Value, json};
use tokio::time::timeout;

/// For what should take a moment.
const PATIENCE: Duration = Duration::from_secs(30);

fn options(endpoints: Vec<String>) -> EtcdOptions {
    EtcdOptions {
        endpoints,
        check_interval: Duration::from_millis(100),
        lease_ttl: Duration::from_secs(2),
        registration_ttl: Duration::from_secs(2),
        ..EtcdOptions::default()
    }
}

fn open_with(options: EtcdOptions) -> EtcdStore {
    EtcdStore::open(&"main".parse().unwrap(), options).unwrap()
}

fn open(endpoints: Vec<String>) -> EtcdStore {
    open_with(options(endpoints))
}

fn new_pool() -> Record {
    let node = NewNode::new("a".parse().unwrap(), "127.0.0.1:6379".parse().unwrap());
    let pool = NewPool::new("main".parse().unwrap(), vec![node]);
    Record::create(pool, &mut || Nonce::new([7; 16])).unwrap()
}

/// The record with one field of its stored form set.
fn with(record: &Record, field: &str, value: Value) -> Record {
    let mut stored: Value = serde_json::from_slice(&record.encode().unwrap()).unwrap();
    stored[field] = value;
    serde_json::from_value(stored).unwrap()
}

fn at_epoch(record: &Record, epoch: u64) -> Record {
    with(record, "epoch", json!(epoch))
}

async fn make(store: &EtcdStore) -> Arc<Record> {
    let made = store.commit(Revision::new(0), new_pool(), None).await;
    made.unwrap()
}

async fn commit_epoch(store: &EtcdStore, from: &Record, epoch: u64) -> Arc<Record> {
    let next = at_epoch(from, epoch);
    store.commit(from.revision(), next, None).await.unwrap()
}

async fn wait_for_epoch(store: &EtcdStore, epoch: u64) -> Arc<Record> {
    let mut watch = store.watch();
    let seen = watch.wait_for(|record| {
        record
            .as_ref()
            .is_some_and(|record| record.epoch().get() >= epoch)
    });
    let seen = timeout(PATIENCE, seen).await.expect("seen").unwrap();
    seen.clone().unwrap()
}

async fn wait_for_trouble(store: &EtcdStore, is_it: impl FnMut(&Option<ReadError>) -> bool) {
    let mut trouble = store.trouble();
    let seen = timeout(PATIENCE, trouble.wait_for(is_it)).await;
    seen.expect("reported").unwrap();
}
