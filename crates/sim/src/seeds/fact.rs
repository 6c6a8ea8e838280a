//! What happened, as the invariants are told of it.

use std::sync::Arc;

use clockwise_cluster::Record;

use super::executor::Micros;
use super::server::{Key, Value};
use super::truth::Truth;

/// Something that happened.
#[derive(Clone, Debug)]
pub(super) enum Fact {
    /// A node executed a client's request.
    Executed(Executed),
    /// A process of the rebalancer changed a key at a node.
    Moved(Moved),
    /// A record was committed; by a term, or by somebody without one.
    Committed {
        before: Arc<Record>,
        after: Arc<Record>,
        term: Option<u64>,
        leading: Option<u64>,
    },
    /// A term made its user at a node, where this was the highest before and that is now.
    Entered {
        term: u64,
        node: usize,
        highest_before: Option<u64>,
        highest_after: Option<u64>,
    },
    /// A client goes by another view.
    Adopted {
        client: usize,
        epoch: u64,
        fingerprint: u64,
    },
    /// A request came to an end, whichever.
    Ended { client: usize, took: Micros },
    /// A client's queues.
    Queued {
        client: usize,
        held: usize,
        held_max: usize,
    },
    /// A process read keys for a copy that is throttled.
    Read {
        process: usize,
        keys: u64,
        limit: Option<u64>,
    },
    /// The store was asked to commit while nobody can reach it.
    StoreAway { process: usize, committed: bool },
    /// Everything has come to rest.
    Rest(Rest),
}

/// A request of a client, as it took effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Executed {
    pub(super) node: usize,
    pub(super) run: u64,
    pub(super) key: Key,
    /// Its number, if it is a write.
    pub(super) write: Option<u64>,
    /// What it found, and what it should have found.
    pub(super) seen: Option<Value>,
    pub(super) expected: Option<Value>,
    /// Whether either is right, since it expires about now or its server lost it.
    pub(super) either: bool,
    /// The epoch under which it was routed.
    pub(super) epoch: u64,
}

/// A change made for a move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) term: u64,
    pub(super) node: usize,
    pub(super) key: Key,
    pub(super) before: Option<Value>,
    pub(super) after: Option<Value>,
    /// Why it is made.
    pub(super) why: Why,
    /// Whether the owner's copy of the key would not survive a restart.
    pub(super) unsynced_at_owner: bool,
}

/// Why a key is changed for a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    Copy,
    Sweep,
    Clean,
    Purge,
}

/// How everything was when it had come to rest.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    /// What every server has, by node.
    pub(super) held: Vec<Vec<(Key, Value)>>,
    /// Nodes that may have more than they own, for a reason that is known.
    pub(super) leftovers: Vec<bool>,
    /// Requests that never came to an end.
    pub(super) open: usize,
    /// Why the change in flight stands still, if one is.
    pub(super) unfinished: Option<String>,
    pub(super) now_ms: u64,
}

/// What must always hold.
pub(super) trait Invariant {
    /// Its name, as in a report.
    fn name(&self) -> &'static str;
    /// Looks at something that happened; says what is wrong with it.
    fn see(&mut self, fact: &Fact, truth: &Truth, now: Micros) -> Result<(), String>;
}
