//! The node as a model: keys, users, connections, and nothing of the outside.
//!
//! No socket, task, clock or chance is in here. Time comes with every call, requests as lists of
//! words, replies go into a buffer. The embedded node puts a socket in front of it, and a simulation
//! may drive it directly.
//!
//! ```
//! use clockwise::embedded::Model;
//! use clockwise::driver::Generation;
//!
//! let mut node = Model::new("run-1", None);
//! node.make_client_user(Generation(1), "secret");
//! let connection = node.connect("10.0.0.1:5000");
//! let mut reply = Vec::new();
//! for request in [&[&b"AUTH"[..], b"cw-g1", b"secret"][..], &[b"SET", b"k", b"v", b"PX", b"10"], &[b"GET", b"k"]] {
//!     node.execute(connection, request, 1000, &mut reply);
//! }
//! node.execute(connection, &[b"GET", b"k"], 1010, &mut reply);
//! assert_eq!(reply, b"+OK\r\n+OK\r\n$1\r\nv\r\n$-1\r\n");
//!
//! node.fence(Generation(2));
//! assert!(!node.execute(connection, &[b"GET", b"k"], 1011, &mut reply));
//! ```

mod access;
mod call;
mod connection;
mod counters;
mod data;
mod dirty;
mod expiry;
mod extended;
mod glob;
mod keys;
mod keyspace;
mod natural;
mod number;
mod strings;
mod table;

use std::collections::BTreeMap;

use bytes::Bytes;
use clockwise_client::resp::Protocol;

pub use access::Pass;

use self::access::Access;
use self::call::{Call, Connection, quoted};
use self::data::Data;
use self::table::Effect;
use crate::driver::redis::RESERVED_PREFIX;
use crate::driver::{Dirty, Generation, Identity, Term};

/// A client's connection to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// A stream of dirty keys of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId(u64);

/// A string and when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The string.
    pub value: Bytes,
    /// Milliseconds since 1970; `None` = never.
    pub expires_at_ms: Option<u64>,
}

/// A node in memory.
///
/// Cost: a command costs a search in a tree of all keys, and copies the value it reads or writes.
#[derive(Debug)]
pub struct Model {
    identity: Identity,
    data: Data,
    access: Access,
    connections: BTreeMap<ConnectionId, Connection>,
    connected: u64,
}

impl Model {
    /// A node without keys and users. `run` is what tells this life of the node from others; above
    /// `memory_limit` bytes nothing is taken that needs more.
    #[must_use]
    pub fn new(run: &str, memory_limit: Option<u64>) -> Self {
        Self {
            identity: Identity {
                run_id: run.to_owned(),
                primary: true,
                replication_id: run.to_owned(),
            },
            data: Data::with_limit(memory_limit),
            access: Access::default(),
            connections: BTreeMap::new(),
            connected: 0,
        }
    }

    /// Which life of the node this is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A client connects.
    pub fn connect(&mut self, address: &str) -> ConnectionId {
        self.connected += 1;
        let id = ConnectionId(self.connected);
        let connection = Connection {
            id: self.connected,
            address: address.to_owned(),
            name: Bytes::new(),
            protocol: Protocol::Resp2,
            admission: None,
            quits: false,
        };
        self.connections.insert(id, connection);
        id
    }

    /// A client is gone.
    pub fn disconnect(&mut self, id: ConnectionId) {
        self.connections.remove(&id);
    }

    /// Whether a connection may go on. One whose user was removed may not.
    #[must_use]
    pub fn is_connected(&self, id: ConnectionId) -> bool {
        self.connections.contains_key(&id)
    }

    /// Whether a client has logged in.
    #[must_use]
    pub fn is_admitted(&self, id: ConnectionId) -> bool {
        self.connections
            .get(&id)
            .is_some_and(|connection| connection.admission.is_some())
    }

    /// Executes one request, its name first, and appends the reply to `out`. False: the connection is
    /// over, and nothing was executed if the client did not ask for that.
    pub fn execute(
        &mut self,
        id: ConnectionId,
        args: &[&[u8]],
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let (data, access) = (&mut self.data, &self.access);
        data.commands += 1;
        let begun = out.len();
        let mut call = Call {
            data,
            access,
            connection,
            args,
            name: "",
            now_ms,
            out,
        };
        if let Err(words) = run(&mut call) {
            call.out.truncate(begun);
            call.reply_error(&words);
        }
        let quits = connection.quits;
        if quits {
            self.connections.remove(&id);
        }
        !quits
    }

    /// Clears up some keys whose time is over; says whether there may be more.
    pub fn expire_due(&mut self, now_ms: u64) -> bool {
        self.data.expire_due(now_ms)
    }

    /// The highest term that has entered.
    pub fn highest_term(&self) -> Option<Term> {
        self.access.highest_term()
    }

    /// Enters as a term; ends lower terms' passes and an earlier one of the same.
    pub fn enter(&mut self, term: Term) -> Pass {
        self.access.enter(term)
    }

    /// Whether a pass was not ended by another.
    #[must_use]
    pub fn is_in(&self, pass: Pass) -> bool {
        self.access.is_in(pass)
    }

    /// Makes the client user of a generation from nothing.
    pub fn make_client_user(&mut self, generation: Generation, password: &str) {
        self.access.make(generation, password);
        self.drop_connections_without_user();
    }

    /// Removes every client user below a generation. Nothing of theirs is executed any more.
    pub fn fence(&mut self, generation: Generation) {
        self.keep_client_users(|other| other >= generation);
    }

    /// Removes client users that do not stay.
    pub fn keep_client_users(&mut self, stays: impl Fn(Generation) -> bool) {
        self.access.retain(stays);
        self.drop_connections_without_user();
    }

    fn drop_connections_without_user(&mut self) {
        let access = &self.access;
        self.connections.retain(|_, connection| {
            connection
                .admission
                .is_none_or(|user| access.is_admitted(user))
        });
    }

    /// Generations that have a client user.
    #[must_use]
    pub fn client_users(&self) -> Vec<Generation> {
        self.access.generations()
    }

    /// Open connections of client users below a generation.
    #[must_use]
    pub fn connections_below(&self, generation: Generation) -> usize {
        let admissions = self
            .connections
            .values()
            .filter_map(|connection| connection.admission);
        admissions
            .filter(|admission| admission.generation < generation)
            .count()
    }

    /// Starts a stream of dirty keys.
    pub fn track(&mut self) -> StreamId {
        StreamId(self.data.track())
    }

    /// Ends a stream of dirty keys.
    pub fn untrack(&mut self, stream: StreamId) {
        self.data.untrack(stream.0);
    }

    /// How often a key was touched; changes when there may be something to take from a stream.
    #[must_use]
    pub fn touches(&self) -> u64 {
        self.data.touches()
    }

    /// The next message of a stream, if there is one.
    pub fn take_dirty(&mut self, stream: StreamId) -> Option<Dirty> {
        self.data.take_dirty(stream.0)
    }

    /// Bytes kept for a stream; `None` when it is lost.
    #[must_use]
    pub fn backlog_bytes(&self, stream: StreamId) -> Option<u64> {
        self.data.backlog_bytes(stream.0)
    }

    /// Some keys from `cursor` on, and where the listing goes on; 0 is the beginning and the end.
    #[must_use]
    pub fn scan(&self, cursor: u64, count: usize, now_ms: u64) -> (u64, Vec<Bytes>) {
        self.data.scan(cursor, count, now_ms)
    }

    /// What a key holds.
    pub fn read(&mut self, key: &[u8], now_ms: u64) -> Option<Stored> {
        let entry = self.data.get(key, now_ms)?;
        Some(Stored {
            value: Bytes::copy_from_slice(&entry.value),
            expires_at_ms: entry.expires_at_ms,
        })
    }

    /// Stores a string; one whose time is over takes away what is there. False: there is no memory.
    #[must_use]
    pub fn write(&mut self, key: &[u8], stored: &Stored, now_ms: u64) -> bool {
        let is_over = stored.expires_at_ms.is_some_and(|at| at <= now_ms);
        let fits = is_over || !self.data.is_full();
        if fits {
            let value = stored.value.to_vec();
            self.data.set(key, value, stored.expires_at_ms, now_ms);
        }
        fits
    }

    /// Takes a key away; says whether it was there.
    pub fn remove(&mut self, key: &[u8], now_ms: u64) -> bool {
        self.data.delete(key, now_ms).is_some()
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes the keys and values take.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.data.memory_bytes()
    }

    /// Bytes above which nothing is taken.
    #[must_use]
    pub fn memory_limit(&self) -> Option<u64> {
        self.data.memory_limit()
    }
}

/// Looks a command up and runs it, with the checks that all commands share, in the servers' order.
fn run(call: &mut Call<'_>) -> Result<(), String> {
    let Some(command) = call.args.first().and_then(|name| table::find(name)) else {
        return Err(unknown(call.args));
    };
    call.name = command.name;
    if !command.takes(call.args.len()) {
        return Err(format!(
            "ERR wrong number of arguments for '{}' command",
            command.name
        ));
    }
    if call.connection.admission.is_none() && command.effect != Effect::Open {
        return Err("NOAUTH Authentication required.".to_owned());
    }
    if command
        .keys_of(call.args)
        .any(|key| key.starts_with(RESERVED_PREFIX))
    {
        return Err(
            "NOPERM this user has no permissions to access one of the keys used as arguments"
                .to_owned(),
        );
    }
    if command.effect == Effect::Write && call.data.is_full() {
        return Err("OOM command not allowed when used memory > 'maxmemory'.".to_owned());
    }
    (command.run)(call)
}

/// Quotes the name and the beginning of the arguments.
fn unknown(args: &[&[u8]]) -> String {
    const QUOTED_BYTES: usize = 128;
    let mut shown = String::new();
    for arg in args.iter().skip(1) {
        if shown.len() >= QUOTED_BYTES {
            break;
        }
        shown.push_str(&format!("'{}' ", quoted(arg, QUOTED_BYTES - shown.len())));
    }
    let name = quoted(args.first().copied().unwrap_or_default(), QUOTED_BYTES);
    format!("ERR unknown command '{name}', with args beginning with: {shown}")
}
