//! What the rebalancer asks of a node, whatever its server is.
//!
//! A node knows nothing of the ring. A [`Driver`] speaks to one kind of server and offers the few
//! primitives the handoff is made of: users per generation, a stream of dirty keys, a listing,
//! reads and writes that keep absolute expiry, logical digests. It decides nothing: order, retries
//! and what a failure means belong to the handoff machine.
//!
//! There are three users of a node. The *administrator* (a password from a file or the environment)
//! makes the *term user* of one leadership and looks at the server before a change. The term user
//! does everything else. A *client user* exists per generation, and removing it is the fence.

pub mod memcached;
pub mod redis;

use std::fmt;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use bytes::Bytes;
use clockwise_placement::NodeId;

/// Key bytes as the server stores them.
pub type Key = Bytes;

/// Tells some keys from others.
pub type OfKeys = dyn Fn(&Key) -> bool + Send + Sync;

/// Where a node is and how its administrator gets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// The node's identity in the record.
    pub id: NodeId,
    /// `host:port`, as the record has it.
    pub address: String,
}

/// The term of one leadership. Higher terms push out lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(pub u64);

/// The generation of a node's client user; never used twice for one node id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// What makes one run of one server with one history of data recognisable.
///
/// A restart changes `run_id`; a replication that replaced the data changes `replication_id`
/// although the process went on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Changes at every start of the process.
    pub run_id: String,
    /// Whether the server takes writes of its own.
    pub primary: bool,
    /// Changes when the data set is replaced by another's.
    pub replication_id: String,
}

/// How much of what a server acknowledged survives its restart. Ordered: later keeps more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Persistence {
    /// Nothing, or what an old snapshot file happens to hold.
    None,
    /// Snapshots at intervals.
    Snapshots,
    /// An append-only file, synced about once a second or by the system.
    AppendEverySecond,
    /// An append-only file, synced before each reply.
    AppendAlways,
}

/// What the administrator sees of a server before it takes part in a change.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// The server's kind and version for people, such as `redis 7.0.15`.
    pub server: String,
    /// Which run of which data this is.
    pub identity: Identity,
    /// What a restart would keep.
    pub persistence: Persistence,
    /// Bytes of memory in use.
    pub memory_used_bytes: u64,
    /// Limit of memory, where there is one.
    pub memory_limit_bytes: Option<u64>,
    /// Whether the server drops keys of its own accord when memory is full.
    pub evicts: bool,
    /// Why the server refuses writes at the moment, whoever asks. `None`: it takes them.
    pub refuses_writes: Option<String>,
    /// Keys in database 0.
    pub keys: u64,
    /// The server's clock, milliseconds since 1970.
    pub clock_ms: u64,
    /// Users who may write and are neither ours nor the administrator.
    pub foreign_writers: Vec<String>,
    /// Why a connection without a password is let in, or may be after a restart. `None`: it is refused.
    pub open_by_default: Option<String>,
    /// Our users that were not made in this run of the server: they came from its configuration or
    /// user file and would come back after every fence.
    pub persisted_users: Vec<String>,
    /// Commands or rights a move needs and this server refuses, with its own words.
    pub missing_rights: Vec<String>,
    /// The highest term whose user the server has.
    pub highest_term: Option<Term>,
    /// Connected replicas' addresses; they must be fenced with their primary.
    pub replicas: Vec<String>,
}

/// What a key holds, on its way from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The bytes of a string.
    Text(Bytes),
    /// Any other type, as the source serialised it. Equal bytes mean equal values; the reverse does
    /// not hold.
    Dump(Bytes),
}

impl Payload {
    /// Bytes that travel.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Text(bytes) | Self::Dump(bytes) => bytes.len(),
        }
    }

    /// Whether nothing travels: the empty string.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A value and its absolute expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What the key holds.
    pub payload: Payload,
    /// Milliseconds since 1970; `None` = never.
    pub expires_at_ms: Option<u64>,
    /// Whether some changes of this value stay out of the dirty-key stream (consumer groups of
    /// streams do): it is copied again under the fence.
    pub untracked: bool,
}

/// What reading one key gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The key does not exist (any more).
    Gone,
    /// Its value.
    Item(Item),
    /// Too large to be taken in one piece without stalling the server.
    Big {
        /// About this many bytes of memory.
        bytes: u64,
    },
}

/// Why one key could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteRefused {
    /// The target has no memory left.
    OutOfMemory,
    /// The target does not take the payload (another version, a damaged dump).
    BadPayload(String),
    /// The staging value went away between two pieces (purged, or the target restarted): the key
    /// starts again with its first piece.
    StagingLost,
    /// Anything else, in the server's words.
    Other(String),
}

/// Content of a key independent of its encoding: type, elements in no order where the type has none,
/// absolute expiry. Equal digests mean equal values on both sides of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest(pub [u8; 16]);

/// What of a value stays out of the dirty-key stream, in its driver's own form. Equal bytes mean equal
/// content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untracked(pub Bytes);

/// One message of the dirty-key stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dirty {
    /// These keys were touched.
    Keys(Vec<Key>),
    /// Everything may have changed (a flush): the copy starts again.
    Everything,
    /// The stream broke; what happened since is unknown.
    Lost,
}

/// What went wrong with a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// Nobody answers, or not in time. The connection is gone; a fresh one may work.
    #[error("node {node} at {address} cannot be reached: {why}")]
    Unreachable {
        /// Which node.
        node: NodeId,
        /// Its address.
        address: String,
        /// The system's or the client's words.
        why: String,
    },
    /// The server refuses our password or user.
    #[error("node {node} refuses user {user}: {why}")]
    Denied {
        /// Which node.
        node: NodeId,
        /// The user tried.
        user: String,
        /// The server's words.
        why: String,
    },
    /// Not a server of this kind, or too old.
    #[error("node {node} at {address} is not a server this pool can use: {why}")]
    WrongServer {
        /// Which node.
        node: NodeId,
        /// Its address.
        address: String,
        /// What answered.
        why: String,
    },
    /// A long script blocks the server; nothing was done.
    #[error("node {node} is busy with a long script")]
    Busy {
        /// Which node.
        node: NodeId,
    },
    /// The server answered with an error.
    #[error("node {node} answered to {command}: {why}")]
    Refused {
        /// Which node.
        node: NodeId,
        /// The command sent.
        command: &'static str,
        /// The server's words.
        why: String,
    },
}

/// One kind of server.
#[async_trait]
pub trait Driver: Send + Sync + fmt::Debug {
    /// Looks at a server with the administrator's rights; changes nothing that stays.
    async fn inspect(&self, node: &NodeAddress) -> Result<NodeFacts, DriverError>;

    /// Whether `target` can take what `source` serialises: one canary value there and away again.
    async fn canary(&self, source: &NodeAddress, target: &NodeAddress) -> Result<(), DriverError>;

    /// Makes the term's own user on the node and its replicas (from nothing: `reset`), removes those
    /// of lower terms, and opens a session as that user. A session of a term whose user a higher term
    /// removed is dead.
    ///
    /// One session a node and term: opening one kills the earlier one of the same term, so that what
    /// a broken connection still had on its way can never land after this returns.
    async fn session(
        &self,
        node: &NodeAddress,
        term: Term,
    ) -> Result<Box<dyn Session>, DriverError>;

    /// Removes every key from a server that nobody can be kept from, but those to be kept; says how many it
    /// removed, and counts them up while it does. What is written meanwhile may be passed over.
    async fn sweep(
        &self,
        node: &NodeAddress,
        _keep: &(dyn for<'a> Fn(&'a [u8]) -> bool + Send + Sync),
        _removed: &AtomicU64,
    ) -> Result<u64, DriverError> {
        Err(DriverError::Refused {
            node: node.id.clone(),
            command: "a sweep",
            why: "keys of servers of this kind are moved under a session".to_owned(),
        })
    }
}

/// The term user's connections to one node. Any error leaves it unusable: open a new one.
///
/// Calls may be made concurrently; each keeps its own order on the wire, and writes take effect in the
/// order in which they were made. A call whose future is dropped may still be executed, but before
/// every later one. Keys under the reserved prefix are listed by no call.
#[async_trait]
pub trait Session: Send + Sync {
    /// Which run of which data answers now.
    async fn identity(&self) -> Result<Identity, DriverError>;

    /// Starts the stream of dirty keys on a connection of its own and returns after the server
    /// confirmed it: what is touched from now on is reported.
    async fn track(&self) -> Result<Tracker, DriverError>;

    /// One step of the listing; begins and ends at cursor 0. What exists throughout is listed at least once.
    async fn scan(&self, cursor: u64, count: u32) -> Result<(u64, Vec<Key>), DriverError>;

    /// Values with their absolute expiry, in the order of `keys`: at least the first one's, and as
    /// many as fit into some megabytes. Ask again for the rest.
    ///
    /// A key that changes while it is read may be reported as it never was, or as gone; the dirty-key
    /// stream then tells of it.
    async fn read(&self, keys: &[Key]) -> Result<Vec<Read>, DriverError>;

    /// As [`Session::read`], of keys that were strings of some kilobytes at most when they were last read;
    /// cheaper than that.
    async fn read_small(&self, keys: &[Key]) -> Result<Vec<Read>, DriverError>;

    /// Stores values, replacing what is there; each in order, each answered. One that has expired
    /// meanwhile leaves nothing behind.
    async fn write(
        &self,
        items: Vec<(Key, Item)>,
    ) -> Result<Vec<Result<(), WriteRefused>>, DriverError>;

    /// Removes keys without blocking the server; says how many existed.
    async fn remove(&self, keys: &[Key]) -> Result<u64, DriverError>;

    /// Which of the keys exist.
    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, DriverError>;

    /// Logical digests; `None` where the key does not exist. Large values are read in pieces.
    async fn digests(&self, keys: &[Key]) -> Result<Vec<Option<Digest>>, DriverError>;

    /// As [`Session::digests`], without what stays out of the dirty-key stream.
    async fn tracked_digests(&self, keys: &[Key]) -> Result<Vec<Option<Digest>>, DriverError>;

    /// What of a value stays out of the dirty-key stream; `None` when nothing does or there is no such key.
    /// It may be large: the groups of a stream with all that is pending.
    async fn read_untracked(&self, key: &Key) -> Result<Option<Untracked>, DriverError>;

    /// Makes `new` of what [`Session::read_untracked`] just gave here, leaving the rest of the value as it
    /// is. A value that changes meanwhile may be left between the two.
    async fn write_untracked(
        &self,
        key: &Key,
        here: &Untracked,
        new: &Untracked,
    ) -> Result<Result<(), WriteRefused>, DriverError>;

    /// One piece of a large value, from `cursor` (begin with `None`).
    async fn read_piece(
        &self,
        key: &Key,
        cursor: Option<PieceCursor>,
    ) -> Result<PieceRead, DriverError>;

    /// Appends a piece to the staging value of `key`; `first` starts it anew. The staging value lives
    /// under the reserved prefix and has the final expiry from its first piece on.
    async fn write_piece(
        &self,
        key: &Key,
        piece: Piece,
        first: bool,
    ) -> Result<Result<(), WriteRefused>, DriverError>;

    /// Puts the staged value in place of `key` in one step. A staged value that has expired meanwhile
    /// leaves nothing behind.
    async fn finish_pieces(&self, key: &Key) -> Result<Result<(), WriteRefused>, DriverError>;

    /// Removes the staging values of these keys, whoever left them; says how many there were.
    async fn purge_staging(&self, of: &OfKeys) -> Result<u64, DriverError>;

    /// Generations of client users that exist on the server.
    async fn client_users(&self) -> Result<Vec<Generation>, DriverError>;

    /// Makes (from nothing: `reset`) the client user of a generation, on the server and its replicas.
    async fn make_client_user(
        &self,
        generation: Generation,
        password: &str,
    ) -> Result<(), DriverError>;

    /// The fence: removes every client user below `generation`, on the server and its replicas, and
    /// returns only when it is certain that none is left. Commands of such users are not executed after this returns.
    async fn fence(&self, generation: Generation) -> Result<(), DriverError>;

    /// Removes client users other than these: what the record does not name.
    async fn keep_client_users(&self, keep: &[Generation]) -> Result<(), DriverError>;

    /// Open connections of client users below `generation`.
    async fn connections_below(&self, generation: Generation) -> Result<usize, DriverError>;

    /// Returns once everything written so far survives a restart as well as the server can promise.
    async fn durable(&self) -> Result<(), DriverError>;

    /// Keys in database 0, and bytes of memory in use.
    async fn size(&self) -> Result<(u64, u64), DriverError>;
}

/// Where in a large value the next piece starts; opaque to everybody but its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceCursor(pub Bytes);

/// A piece of a large value in its driver's own form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Opaque content.
    pub payload: Bytes,
    /// The whole value's absolute expiry.
    pub expires_at_ms: Option<u64>,
}

/// What reading a piece gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceRead {
    /// The key is gone.
    Gone,
    /// A piece, and where the next one starts; `None` after the last.
    Piece(Piece, Option<PieceCursor>),
}

/// The receiving end of a dirty-key stream. Dropping it ends the tracking.
#[async_trait]
pub trait DirtyStream: Send {
    /// Waits for the next message. Dropping the future loses nothing. After [`Dirty::Lost`] it says
    /// only that again.
    async fn next(&mut self) -> Dirty;

    /// What has arrived and was not taken yet, without waiting.
    fn try_next(&mut self) -> Option<Dirty>;

    /// Returns when everything the server did before this call has been delivered to `next`/`try_next`
    /// (two round trips, one after the other).
    async fn barrier(&mut self) -> Result<(), DriverError>;

    /// Bytes the server holds back for this stream; grows when we read too slowly.
    async fn backlog_bytes(&mut self) -> Result<u64, DriverError>;
}

/// A boxed [`DirtyStream`].
pub type Tracker = Box<dyn DirtyStream>;
