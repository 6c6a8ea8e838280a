//! How embedded nodes are moved: the driver's interface, natively.
//!
//! Everything happens under the node's lock, so a barrier is no wait and a fence is certain at once.
//! A session asks at each step whether its term's pass still counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use xxhash_rust::xxh3::xxh3_128;

use super::model::{Model, Pass, Stored, StreamId};
use super::nodes::{EmbeddedNodes, Node};
use crate::driver::{
    Digest, Dirty, DirtyStream, Driver, DriverError, Generation, Identity, Item, Key, NodeAddress,
    NodeFacts, OfKeys, Payload, Persistence, Piece, PieceCursor, PieceRead, Read, Session, Term,
    Tracker, Untracked, WriteRefused,
};

/// Bytes of values after which a read ends with what it has.
const READ_BYTES_MAX: usize = 8 << 20;

/// [`Driver`] of the embedded nodes of this process.
#[derive(Clone, Debug)]
pub struct EmbeddedDriver {
    nodes: EmbeddedNodes,
}

impl EmbeddedDriver {
    /// A driver of these nodes.
    #[must_use]
    pub fn new(nodes: EmbeddedNodes) -> Self {
        Self { nodes }
    }

    fn node(&self, address: &NodeAddress) -> Result<Arc<Node>, DriverError> {
        let found = self.nodes.get(&address.id);
        found.ok_or_else(|| unreachable(address, "no such embedded node runs in this process"))
    }
}

fn unreachable(node: &NodeAddress, why: &str) -> DriverError {
    DriverError::Unreachable {
        node: node.id.clone(),
        address: node.address.clone(),
        why: why.to_owned(),
    }
}

fn full(used: u64, limit: Option<u64>) -> Option<String> {
    let limit = limit.filter(|limit| used >= *limit)?;
    Some(format!(
        "its memory is full: {used} bytes are used, the limit is {limit}"
    ))
}

#[async_trait]
impl Driver for EmbeddedDriver {
    async fn inspect(&self, node: &NodeAddress) -> Result<NodeFacts, DriverError> {
        Ok(self.node(node)?.with(|model, now_ms| NodeFacts {
            server: format!("clockwise embedded {}", env!("CARGO_PKG_VERSION")),
            identity: model.identity().clone(),
            persistence: Persistence::None,
            memory_used_bytes: model.memory_bytes(),
            memory_limit_bytes: model.memory_limit(),
            evicts: false,
            refuses_writes: full(model.memory_bytes(), model.memory_limit()),
            keys: model.len() as u64,
            clock_ms: now_ms,
            foreign_writers: Vec::new(),
            open_by_default: None,
            persisted_users: Vec::new(),
            missing_rights: Vec::new(),
            highest_term: model.highest_term(),
            replicas: Vec::new(),
        }))
    }

    async fn canary(&self, source: &NodeAddress, target: &NodeAddress) -> Result<(), DriverError> {
        // All of them hold the same kind of value.
        self.node(source).and(self.node(target)).map(|_| ())
    }

    async fn session(
        &self,
        node: &NodeAddress,
        term: Term,
    ) -> Result<Box<dyn Session>, DriverError> {
        let found = self.node(node)?;
        let pass = found.with(|model, _| model.enter(term));
        // Sessions that have ended with this look up.
        found.touched.notify_waiters();
        let holder = Holder {
            address: node.clone(),
            node: found,
            pass,
        };
        Ok(Box::new(EmbeddedSession {
            holder,
            staged: Mutex::default(),
        }))
    }
}

/// Who works on a node for a term.
#[derive(Clone, Debug)]
struct Holder {
    address: NodeAddress,
    node: Arc<Node>,
    pass: Pass,
}

impl Holder {
    fn with<R>(&self, work: impl FnOnce(&mut Model, u64) -> R) -> Result<R, DriverError> {
        self.check_running()?;
        let done = self
            .node
            .with(|model, now_ms| model.is_in(self.pass).then(|| work(model, now_ms)));
        done.ok_or_else(|| self.ended())
    }

    /// Where connections may lose their user.
    fn with_users<R>(&self, work: impl FnOnce(&mut Model) -> R) -> Result<R, DriverError> {
        self.check_running()?;
        let done = self
            .node
            .with_users(|model, _| model.is_in(self.pass).then(|| work(model)));
        done.ok_or_else(|| self.ended())
    }

    fn check_running(&self) -> Result<(), DriverError> {
        if self.node.is_stopped() {
            Err(unreachable(&self.address, "the node has ended"))
        } else {
            Ok(())
        }
    }

    fn ended(&self) -> DriverError {
        DriverError::Denied {
            node: self.address.id.clone(),
            user: format!("cw-t{}", self.pass.term.0),
            why: "a later session has taken its place".to_owned(),
        }
    }
}

struct EmbeddedSession {
    holder: Holder,
    /// Values on their way in pieces.
    staged: Mutex<BTreeMap<Key, Stored>>,
}

impl EmbeddedSession {
    fn staged(&self) -> MutexGuard<'_, BTreeMap<Key, Stored>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Session for EmbeddedSession {
    async fn identity(&self) -> Result<Identity, DriverError> {
        self.holder.with(|model, _| model.identity().clone())
    }

    async fn track(&self) -> Result<Tracker, DriverError> {
        let stream = self.holder.with(|model, _| model.track())?;
        Ok(Box::new(EmbeddedStream {
            holder: self.holder.clone(),
            stream,
        }))
    }

    async fn scan(&self, cursor: u64, count: u32) -> Result<(u64, Vec<Key>), DriverError> {
        let count = usize::try_from(count.max(1)).unwrap_or(usize::MAX);
        self.holder
            .with(|model, now_ms| model.scan(cursor, count, now_ms))
    }

    async fn read(&self, keys: &[Key]) -> Result<Vec<Read>, DriverError> {
        self.holder.with(|model, now_ms| {
            let mut read = Vec::new();
            let mut bytes = 0;
            for key in keys {
                let stored = model.read(key, now_ms);
                bytes += stored.as_ref().map_or(0, |stored| stored.value.len());
                if bytes > READ_BYTES_MAX && !read.is_empty() {
                    break;
                }
                read.push(stored.map_or(Read::Gone, |stored| {
                    let payload = Payload::Text(stored.value);
                    Read::Item(Item {
                        payload,
                        expires_at_ms: stored.expires_at_ms,
                        untracked: false,
                    })
                }));
            }
            read
        })
    }

    async fn read_small(&self, keys: &[Key]) -> Result<Vec<Read>, DriverError> {
        self.read(keys).await
    }

    async fn write(
        &self,
        items: Vec<(Key, Item)>,
    ) -> Result<Vec<Result<(), WriteRefused>>, DriverError> {
        self.holder.with(|model, now_ms| {
            let written = items.into_iter().map(|(key, item)| {
                let Payload::Text(value) = item.payload else {
                    return Err(WriteRefused::BadPayload(
                        "an embedded node keeps strings only".to_owned(),
                    ));
                };
                write(
                    model,
                    &key,
                    &Stored {
                        value,
                        expires_at_ms: item.expires_at_ms,
                    },
                    now_ms,
                )
            });
            written.collect()
        })
    }

    async fn remove(&self, keys: &[Key]) -> Result<u64, DriverError> {
        self.holder.with(|model, now_ms| {
            keys.iter().filter(|key| model.remove(key, now_ms)).count() as u64
        })
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, DriverError> {
        self.holder.with(|model, now_ms| {
            keys.iter()
                .map(|key| model.read(key, now_ms).is_some())
                .collect()
        })
    }

    async fn digests(&self, keys: &[Key]) -> Result<Vec<Option<Digest>>, DriverError> {
        self.holder.with(|model, now_ms| {
            keys.iter()
                .map(|key| model.read(key, now_ms).map(|stored| digest(&stored)))
                .collect()
        })
    }

    async fn tracked_digests(&self, keys: &[Key]) -> Result<Vec<Option<Digest>>, DriverError> {
        self.digests(keys).await
    }

    async fn read_untracked(&self, _key: &Key) -> Result<Option<Untracked>, DriverError> {
        // Every change of a string is told.
        self.holder.with(|_, _| None)
    }

    async fn write_untracked(
        &self,
        _key: &Key,
        _here: &Untracked,
        _new: &Untracked,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        let why = "strings have nothing that is not told".to_owned();
        self.holder.with(|_, _| Err(WriteRefused::BadPayload(why)))
    }

    async fn read_piece(
        &self,
        key: &Key,
        _cursor: Option<PieceCursor>,
    ) -> Result<PieceRead, DriverError> {
        self.holder
            .with(|model, now_ms| match model.read(key, now_ms) {
                Some(stored) => PieceRead::Piece(
                    Piece {
                        payload: stored.value,
                        expires_at_ms: stored.expires_at_ms,
                    },
                    None,
                ),
                None => PieceRead::Gone,
            })
    }

    async fn write_piece(
        &self,
        key: &Key,
        piece: Piece,
        first: bool,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        self.holder.with(|_, _| ())?;
        let mut staged = self.staged();
        let mut value = match staged.remove(key) {
            Some(stored) if !first => stored.value.to_vec(),
            None if !first => return Ok(Err(WriteRefused::StagingLost)),
            _ => Vec::new(),
        };
        value.extend_from_slice(&piece.payload);
        staged.insert(
            key.clone(),
            Stored {
                value: value.into(),
                expires_at_ms: piece.expires_at_ms,
            },
        );
        Ok(Ok(()))
    }

    async fn finish_pieces(&self, key: &Key) -> Result<Result<(), WriteRefused>, DriverError> {
        let Some(stored) = self.staged().remove(key) else {
            return Ok(Err(WriteRefused::StagingLost));
        };
        self.holder
            .with(|model, now_ms| write(model, key, &stored, now_ms))
    }

    async fn purge_staging(&self, of: &OfKeys) -> Result<u64, DriverError> {
        self.holder.with(|_, _| ())?;
        let mut staged = self.staged();
        let before = staged.len();
        staged.retain(|key, _| !of(key));
        Ok((before - staged.len()) as u64)
    }

    async fn client_users(&self) -> Result<Vec<Generation>, DriverError> {
        self.holder.with(|model, _| model.client_users())
    }

    async fn make_client_user(
        &self,
        generation: Generation,
        password: &str,
    ) -> Result<(), DriverError> {
        self.holder
            .with_users(|model| model.make_client_user(generation, password))
    }

    async fn fence(&self, generation: Generation) -> Result<(), DriverError> {
        self.holder.with_users(|model| model.fence(generation))
    }

    async fn keep_client_users(&self, keep: &[Generation]) -> Result<(), DriverError> {
        self.holder
            .with_users(|model| model.keep_client_users(|generation| keep.contains(&generation)))
    }

    async fn connections_below(&self, generation: Generation) -> Result<usize, DriverError> {
        self.holder
            .with(|model, _| model.connections_below(generation))
    }

    async fn durable(&self) -> Result<(), DriverError> {
        // Nothing survives a restart, and nobody was told otherwise.
        self.holder.with(|_, _| ())
    }

    async fn size(&self) -> Result<(u64, u64), DriverError> {
        self.holder
            .with(|model, _| (model.len() as u64, model.memory_bytes()))
    }
}

fn write(model: &mut Model, key: &Key, stored: &Stored, now_ms: u64) -> Result<(), WriteRefused> {
    if model.write(key, stored, now_ms) {
        Ok(())
    } else {
        Err(WriteRefused::OutOfMemory)
    }
}

fn digest(stored: &Stored) -> Digest {
    let mut content = Vec::with_capacity(9 + stored.value.len());
    content.push(u8::from(stored.expires_at_ms.is_some()));
    content.extend_from_slice(&stored.expires_at_ms.unwrap_or(0).to_be_bytes());
    content.extend_from_slice(&stored.value);
    Digest(xxh3_128(&content).to_be_bytes())
}

/// A stream of dirty keys; ends with this value.
struct EmbeddedStream {
    holder: Holder,
    stream: StreamId,
}

impl Drop for EmbeddedStream {
    fn drop(&mut self) {
        self.holder.node.with(|model, _| model.untrack(self.stream));
    }
}

#[async_trait]
impl DirtyStream for EmbeddedStream {
    async fn next(&mut self) -> Dirty {
        loop {
            let node = Arc::clone(&self.holder.node);
            // Asked for before looking: what is touched in between wakes this wait.
            let touched = node.touched.notified();
            tokio::pin!(touched);
            touched.as_mut().enable();
            if let Some(dirty) = self.try_next() {
                return dirty;
            }
            touched.await;
        }
    }

    fn try_next(&mut self) -> Option<Dirty> {
        // A session that was ended hears no more.
        self.holder
            .with(|model, _| model.take_dirty(self.stream))
            .unwrap_or(Some(Dirty::Lost))
    }

    async fn barrier(&mut self) -> Result<(), DriverError> {
        // What was executed has been told.
        self.holder.with(|_, _| ())
    }

    async fn backlog_bytes(&mut self) -> Result<u64, DriverError> {
        let bytes = self
            .holder
            .with(|model, _| model.backlog_bytes(self.stream))?;
        bytes.ok_or_else(|| unreachable(&self.holder.address, "the stream of dirty keys is lost"))
    }
}
