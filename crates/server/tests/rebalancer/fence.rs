//! Writers that know nothing of a move: with the fence none of their acknowledged writes is lost;
//! without it some are, so that the test can be trusted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use clockwise::driver::Driver;
use clockwise_client::credentials::{PoolKey, client_login};
use clockwise_client::resp::Value;
use clockwise_placement::NodeId;

use crate::client::Client;
use crate::meddled::{Meddling, meddled};
use crate::pool::{Pool, numbered};

/// One key, written over and over with the next number until the server refuses.
struct Writer {
    key: Vec<u8>,
    acknowledged: u64,
}

/// Writes to the old owner, with its old credential, whatever happens elsewhere.
fn write_until_refused(
    mut client: Client,
    keys: Vec<Vec<u8>>,
    stop: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
) -> JoinHandle<Vec<Writer>> {
    std::thread::spawn(move || {
        let mut writers: Vec<Writer> = keys
            .into_iter()
            .map(|key| Writer {
                key,
                acknowledged: 0,
            })
            .collect();
        let mut number = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            for writer in &mut writers {
                let text = number.to_string();
                match client.try_ask(&[b"SET", &writer.key, text.as_bytes()]) {
                    Some(Value::Simple(_)) => writer.acknowledged = number,
                    _ => return writers,
                }
                writes.fetch_add(1, Ordering::Relaxed);
            }
        }
        writers
    })
}

/// Runs a join under stale writers; returns acknowledged writes that are gone, and how many there were.
async fn lost_writes(driver: impl FnOnce(Arc<dyn Driver>) -> Arc<dyn Driver>) -> (u64, u64) {
    let mut pool = Pool::without_rebalancer(&["a", "b"]).await;
    pool.driver = driver(Arc::clone(&pool.driver));
    pool.lead().await;
    let keys = numbered(20_000);
    pool.fill(&keys, |key| key.to_vec()).await;
    pool.add("c").await;
    let key = PoolKey::from([7; 32]);
    let record = pool.record().await;
    let view = pool.view().await;
    let stop = Arc::new(AtomicBool::new(false));
    let writes = Arc::new(AtomicU64::new(0));
    let mut writing = Vec::new();
    for (at, name) in ["a", "b"].into_iter().enumerate() {
        let id: NodeId = name.parse().unwrap();
        let (user, password) = client_login(&key, record.node(&id).unwrap());
        let own: Vec<Vec<u8>> = keys
            .iter()
            .filter(|key| *view.owner(key) == id)
            .cloned()
            .collect();
        for chunk in own.chunks(own.len().div_ceil(2)).take(2) {
            let client = Client::login(&pool.servers[name], &user, password.reveal());
            let keys: Vec<_> = chunk.iter().skip(at).step_by(20).cloned().collect();
            writing.push(write_until_refused(
                client,
                keys,
                Arc::clone(&stop),
                Arc::clone(&writes),
            ));
        }
    }
    pool.apply().await;
    pool.settle().await;
    stop.store(true, Ordering::Relaxed);
    let writers: Vec<Writer> = writing
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    let names: Vec<Vec<u8>> = writers.iter().map(|writer| writer.key.clone()).collect();
    let mut lost = 0;
    for (writer, value) in writers.iter().zip(pool.values(&names).await) {
        let found = match &value {
            Value::Bulk(text) => std::str::from_utf8(text).unwrap().parse().unwrap_or(0),
            _ => 0,
        };
        lost += u64::from(found < writer.acknowledged);
    }
    (lost, writes.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_fence_no_acknowledged_write_of_a_stale_writer_is_lost() {
    let (lost, writes) = lost_writes(|driver| driver).await;
    assert_eq!(lost, 0, "of {writes} writes");
    assert!(writes > 1_000, "only {writes} writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_fence_writes_are_lost_and_the_test_sees_it() {
    let (lost, writes) = lost_writes(|driver| meddled(driver, Meddling::Unfenced)).await;
    assert!(lost > 0, "none of {writes} writes was lost");
}
