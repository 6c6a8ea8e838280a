//! Writers that know nothing of a move: with the fence none of their acknowledged writes is lost;
//! without it some are, so that the test can be trusted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use async_trait::async_trait;
use clockwise::driver::{
    Digest, Driver, DriverError, Generation, Identity, Item, Key, NodeAddress, NodeFacts, OfKeys,
    Piece, PieceCursor, PieceRead, Read, Session, Term, Tracker, Untracked, WriteRefused,
};
use clockwise_client::credentials::{PoolKey, client_login};
use clockwise_client::resp::Value;
use clockwise_placement::NodeId;

use crate::client::Client;
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
    let (lost, writes) = lost_writes(|driver| Arc::new(Unfenced(driver))).await;
    assert!(lost > 0, "none of {writes} writes was lost");
}

/// A driver whose fence only says that it stands.
#[derive(Debug)]
struct Unfenced(Arc<dyn Driver>);

struct UnfencedSession(Box<dyn Session>);

#[async_trait]
impl Driver for Unfenced {
    async fn inspect(&self, node: &NodeAddress) -> Result<NodeFacts, DriverError> {
        self.0.inspect(node).await
    }

    async fn canary(&self, source: &NodeAddress, target: &NodeAddress) -> Result<(), DriverError> {
        self.0.canary(source, target).await
    }

    async fn session(
        &self,
        node: &NodeAddress,
        term: Term,
    ) -> Result<Box<dyn Session>, DriverError> {
        Ok(Box::new(UnfencedSession(self.0.session(node, term).await?)))
    }
}

#[async_trait]
impl Session for UnfencedSession {
    async fn fence(&self, _generation: Generation) -> Result<(), DriverError> {
        Ok(())
    }

    async fn keep_client_users(&self, _keep: &[Generation]) -> Result<(), DriverError> {
        Ok(())
    }

    async fn identity(&self) -> Result<Identity, DriverError> {
        self.0.identity().await
    }

    async fn track(&self) -> Result<Tracker, DriverError> {
        self.0.track().await
    }

    async fn scan(&self, cursor: u64, count: u32) -> Result<(u64, Vec<Key>), DriverError> {
        self.0.scan(cursor, count).await
    }

    async fn read(&self, keys: &[Key]) -> Result<Vec<Read>, DriverError> {
        self.0.read(keys).await
    }

    async fn read_small(&self, keys: &[Key]) -> Result<Vec<Read>, DriverError> {
        self.0.read_small(keys).await
    }

    async fn write(
        &self,
        items: Vec<(Key, Item)>,
    ) -> Result<Vec<Result<(), WriteRefused>>, DriverError> {
        self.0.write(items).await
    }

    async fn remove(&self, keys: &[Key]) -> Result<u64, DriverError> {
        self.0.remove(keys).await
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, DriverError> {
        self.0.exists(keys).await
    }

    async fn digests(&self, keys: &[Key]) -> Result<Vec<Option<Digest>>, DriverError> {
        self.0.digests(keys).await
    }

    async fn tracked_digests(&self, keys: &[Key]) -> Result<Vec<Option<Digest>>, DriverError> {
        self.0.tracked_digests(keys).await
    }

    async fn read_untracked(&self, key: &Key) -> Result<Option<Untracked>, DriverError> {
        self.0.read_untracked(key).await
    }

    async fn write_untracked(
        &self,
        key: &Key,
        here: &Untracked,
        new: &Untracked,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        self.0.write_untracked(key, here, new).await
    }

    async fn read_piece(
        &self,
        key: &Key,
        cursor: Option<PieceCursor>,
    ) -> Result<PieceRead, DriverError> {
        self.0.read_piece(key, cursor).await
    }

    async fn write_piece(
        &self,
        key: &Key,
        piece: Piece,
        first: bool,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        self.0.write_piece(key, piece, first).await
    }

    async fn finish_pieces(&self, key: &Key) -> Result<Result<(), WriteRefused>, DriverError> {
        self.0.finish_pieces(key).await
    }

    async fn purge_staging(&self, of: &OfKeys) -> Result<u64, DriverError> {
        self.0.purge_staging(of).await
    }

    async fn client_users(&self) -> Result<Vec<Generation>, DriverError> {
        self.0.client_users().await
    }

    async fn make_client_user(
        &self,
        generation: Generation,
        password: &str,
    ) -> Result<(), DriverError> {
        self.0.make_client_user(generation, password).await
    }

    async fn connections_below(&self, generation: Generation) -> Result<usize, DriverError> {
        self.0.connections_below(generation).await
    }

    async fn durable(&self) -> Result<(), DriverError> {
        self.0.durable().await
    }

    async fn size(&self) -> Result<(u64, u64), DriverError> {
        self.0.size().await
    }
}
