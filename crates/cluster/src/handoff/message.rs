//! What goes into the handoff machine and what comes out of it.
//!
//! An outstanding [`Command`] is answered by exactly one [`Event`], named beside it. While one is
//! outstanding only [`Command::Cancel`], the commands marked *not answered* and, when a handover runs out
//! of time, the commit of its rollback with the reads that settle it are issued. After [`Event::Cancelled`] no answer to an earlier
//! command arrives any more.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::admission::trusted_runs;
use super::preflight::Facts;
use super::reason::{FenceFailure, StopReason, WriteRefusal};
use crate::copier::{CopyStop, Lane};
use crate::{
    Change, Direction, Epoch, Generation, Handoff, HandoffId, HandoffKind, HandoffState,
    Incarnation, NodeState, Nonce, Record, Step,
};
use clockwise_placement::NodeId;

/// What the rebalancer has to do next for one handoff.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Command {
    /// Ask whoever conducts the change for a turn. → [`Event::Granted`], whenever it comes.
    Ask(Turn),
    /// The turn is over. *Not answered.*
    Release(Turn),
    /// Look at every server with the administrator's rights. → [`Event::Inspected`]
    Inspect,
    /// Make the term's own user, remove those of lower terms, open sessions. → [`Event::Opened`]
    Open(Party),
    /// Read the record linearizably, and whether this leadership still stands. → [`Event::Record`]
    ReadRecord {
        /// How long to wait before it.
        after_ms: u64,
    },
    /// Ask every open session which run of which data answers. → [`Event::Identified`]
    Identify,
    /// Return when what the source has survives a restart of it. → [`Event::Durable`]
    DurableSource,
    /// Remove keys of the moving set from the targets: none of them can be right. → [`Event::Swept`]
    Sweep,
    /// Start the stream of touched keys and wait until the source confirmed it. → [`Event::Tracking`]
    Track,
    /// List the source once and copy what moves. → [`Event::Listed`] when all of it has landed
    List,
    /// Copy the keys that are dirty when it begins. → [`Event::Round`]
    Round {
        /// How long to wait before it, so that repeated writes of a key become one copy.
        after_ms: u64,
    },
    /// Compare both sides, in both directions. → [`Event::Verified`]
    Verify,
    /// Make the source's next client user and make sure that the targets have theirs. → [`Event::Prepared`]
    Prepare,
    /// Commit a step to the record, comparing revision and leadership.
    /// → [`Event::Committed`], [`Event::Conflict`], [`Event::NotCommitted`], [`Event::Unknown`], [`Event::Deposed`]
    Commit(Step),
    /// Count the source's connections of older generations. → [`Event::OldConnections`]
    CountOld {
        /// Generations below this are older.
        generation: Generation,
        /// How long to wait before it.
        after_ms: u64,
    },
    /// Remove every client user of the source below this generation.
    /// → [`Event::Fenced`] only if it is certain that none is left, else [`Event::FenceFailed`]
    Fence(Generation),
    /// Wait until the stream has delivered everything from before this moment. → [`Event::BarrierPassed`]
    Barrier,
    /// Copy the last dirty keys and every value whose changes the stream does not show. → [`Event::LastCopied`]
    CopyLast,
    /// Compare what [`Command::CopyLast`] copied. → [`Event::LastCompared`]
    CompareLast,
    /// End the stream of touched keys. *Not answered.*
    Untrack,
    /// Return when the copies survive a restart of the targets. → [`Event::Durable`]
    Durable,
    /// Remove from the source a slice of what it does not own in the current epoch. → [`Event::Cleaned`]
    Clean,
    /// Remove from a target a slice of what it does not own in the current epoch. → [`Event::Cleaned`]
    Purge(Lane),
    /// End every task of this handoff and drop its sessions. → [`Event::Cancelled`] once all have ended
    Cancel,
    /// It cannot go on by itself; say so. *Not answered.*
    Stop(StopReason),
    /// It holds still, so that the change may turn back. *Not answered.*
    Park,
    /// Nothing is left to do. *Not answered.*
    Finish,
}

/// Servers to open sessions at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Party {
    /// The source with its replicas, and all targets.
    All,
    /// All targets; the source is lost.
    Targets,
    /// One target.
    Target(Lane),
}

/// What only some handoffs of a change may do at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Turn {
    /// Copy: a few at a time, until the flip.
    Copy,
    /// Hold requests and flip: one at a time in a pool.
    Handover,
    /// Remove keys from the source: not while it is a target of a handoff that has not flipped.
    Clean,
    /// Remove copies from targets: after everything that flipped has come back.
    Purge,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// It is this handoff's turn.
    Granted(Turn),
    /// What the servers look like.
    Inspected(Facts),
    /// Sessions are open, and no user of a lower term is left.
    Opened,
    /// The record as read linearizably.
    Record(Situation),
    /// The store did not answer a read.
    StoreAway,
    /// Who answered.
    Identified(Identities),
    /// Stray keys were removed.
    Swept {
        /// How many existed.
        removed: u64,
    },
    /// What is touched from now on is reported.
    Tracking,
    /// The listing is complete and all of it has landed.
    Listed,
    /// A round has landed.
    Round(RoundReport),
    /// Both sides were compared.
    Verified {
        /// Keys compared.
        compared: u64,
        /// Keys that differed although nobody touched them; they are dirty now.
        mismatches: u64,
    },
    /// The client users exist.
    Prepared {
        /// The source's next generation: above the record's and above every one found on the server.
        generation: Generation,
        /// The nonce its password was derived with.
        nonce: Nonce,
    },
    /// The commit took place.
    Committed {
        /// The epoch since.
        epoch: Epoch,
    },
    /// Something else was committed since the record was read.
    Conflict,
    /// The store cannot be written: nothing was committed.
    NotCommitted,
    /// Whether the commit took place is unknown.
    Unknown,
    /// Another leads, or nobody.
    Deposed,
    /// The store has no room for the record.
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// How many connections of older generations the source has.
    OldConnections(u64),
    /// No client user below the generation is left.
    Fenced,
    /// The fence may not stand.
    FenceFailed(FenceFailure),
    /// Everything from before the barrier has been delivered.
    BarrierPassed,
    /// The last keys have landed.
    LastCopied {
        /// How many there were.
        keys: u64,
    },
    /// The last keys were compared.
    LastCompared {
        /// How many differ.
        different: u64,
    },
    /// The copies survive a restart of the targets.
    Durable,
    /// A slice was removed.
    Cleaned {
        /// How many keys.
        removed: u64,
        /// Whether it was the last slice.
        finished: bool,
    },
    /// Every task has ended, every session is dropped.
    Cancelled,
    /// A server cannot be reached or answered with an error; its session is unusable. Also unasked.
    Broken {
        /// Which server.
        at: Server,
        /// What it said.
        why: String,
    },
    /// The stream of touched keys broke: what happened since is unknown. Unasked.
    TrackingLost,
    /// The source was flushed. Unasked.
    Flushed,
    /// The copy cannot go on. Unasked.
    CopyStopped(CopyStop),
    /// A target does not take a value. Unasked.
    WriteRefused {
        /// Which target.
        target: Lane,
        /// Why.
        why: WriteRefusal,
    },
    /// The operator wants everything back. Unasked.
    Abort,
    /// [`Machine::deadline`](super::Machine::deadline) has come. Unasked.
    Timeout,
}

impl Event {
    /// Whether it answers a command that is given while requests are held.
    pub(super) const fn answers_a_handover(&self) -> bool {
        matches!(
            self,
            Self::OldConnections(_)
                | Self::Fenced
                | Self::FenceFailed(_)
                | Self::BarrierPassed
                | Self::LastCopied { .. }
                | Self::LastCompared { .. }
                | Self::Identified(_)
        )
    }
}

/// A server of a handoff.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Server {
    /// The one that gives, or one of its replicas.
    Source,
    /// One of those that take.
    Target(Lane),
}

/// What a round of copying dirty keys was like.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct RoundReport {
    /// Keys it copied.
    pub copied: u64,
    /// Keys dirty at its end.
    pub dirty: u64,
    /// How long it took.
    pub took_ms: u64,
    /// How long copying what must be copied under the fence is expected to take.
    pub untracked_ms: u64,
}

/// What the record says about one handoff.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What kind of handoff it is.
    pub kind: HandoffKind,
    /// How far it has got.
    pub state: HandoffState,
    /// Where the change is going.
    pub direction: Direction,
    /// The source's generation.
    pub generation: Generation,
    /// Which run of which data each target was at the flip, in their order; empty before.
    pub flip: Vec<Incarnation>,
    /// Whether the source is lost for good.
    pub source_lost: bool,
    /// Of a handoff that brings keys back: the run of the data that its source was when it became their
    /// owner, as long as the old owners may still have what they gave.
    pub source_expected: Option<Incarnation>,
    /// Whether the source leaves the pool with the change.
    pub source_leaves: bool,
    /// For each target whether it leaves the pool if the change is undone.
    pub targets_leave: Vec<bool>,
    /// For each target the owner it already became in this change, as long as the source of that may still
    /// have what it gave.
    pub targets_trusted: Vec<Option<Trusted>>,
}

/// The one run of a node that may serve what it became the owner of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trusted {
    /// Who gave it.
    pub source: NodeId,
    /// The run of the data that the node was then.
    pub incarnation: Incarnation,
}

impl Entry {
    /// What a record says about a handoff; none if it is not in flight there.
    #[must_use]
    pub fn of(record: &Record, id: &HandoffId) -> Option<Self> {
        let change = record.change()?;
        let handoff = change.handoff(id)?;
        let source = record.node(&handoff.source)?;
        let goal = match change.direction {
            Direction::Forward => &change.after,
            Direction::Back => &change.before,
        };
        let leaves = |node| !change.before.has(node);
        let trusted = |node| {
            let run = trusted_runs(change, node).next()?;
            Some(Trusted {
                source: run.source.clone(),
                incarnation: run.incarnation.clone(),
            })
        };
        Some(Self {
            kind: handoff.kind,
            state: handoff.state,
            direction: change.direction,
            generation: source.generation,
            flip: handoff
                .flip
                .iter()
                .map(|flip| flip.incarnation.clone())
                .collect(),
            source_lost: source.state == NodeState::Down,
            source_expected: change.flipped_as(handoff),
            source_leaves: !goal.has(&handoff.source),
            targets_leave: handoff.targets.iter().map(leaves).collect(),
            targets_trusted: handoff.targets.iter().map(trusted).collect(),
        })
    }

    /// Whether this handoff is as it was, whatever other handoffs of its change have done.
    pub(super) fn is_as_in(&self, other: &Self) -> bool {
        let of_others = other.targets_trusted.clone();
        *other
            == Self {
                targets_trusted: of_others,
                ..self.clone()
            }
    }
}

impl Change {
    /// The run of the data that the source of a reverse handoff was when it became an owner.
    fn flipped_as(&self, reverse: &Handoff) -> Option<Incarnation> {
        let uncleaned =
            |handoff: &&Handoff| !handoff.is_reverse() && handoff.state == HandoffState::Flipped;
        let flips = self
            .handoffs
            .iter()
            .filter(uncleaned)
            .flat_map(|handoff| &handoff.flip);
        let mut to_it = flips.filter(|flip| reverse.is_reverse() && flip.target == reverse.source);
        to_it.next().map(|flip| flip.incarnation.clone())
    }
}

/// What a linearizable read showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Situation {
    /// Whether the reader's leadership stands.
    pub leads: bool,
    /// This handoff's entry; none if its change is not in flight any more.
    pub entry: Option<Entry>,
}

/// Which run of which data a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The run and the data.
    pub incarnation: Incarnation,
    /// Whether it takes writes of its own.
    pub primary: bool,
}

/// Who answers at each open session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identities {
    /// The source and its number of keys; none where no session to it is open.
    pub source: Option<(Identity, u64)>,
    /// The targets in their order.
    pub targets: Vec<Identity>,
}

impl Server {
    /// The server for a person, who knows the nodes of the handoff by their names.
    #[must_use]
    pub fn node(self, source: &NodeId, targets: &[NodeId]) -> String {
        let node = match self {
            Self::Source => Some(source),
            Self::Target(lane) => targets.get(usize::from(lane.0)),
        };
        node.map_or_else(|| self.to_string(), |node| format!("node {node}"))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source => f.write_str("source"),
            Self::Target(lane) => write!(f, "target {}", lane.0),
        }
    }
}
