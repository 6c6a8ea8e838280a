//! How far a change has got, in numbers that a person or a program can watch.

use std::sync::atomic::{AtomicU64, Ordering};

use clockwise_cluster::{ChangeId, Direction, HandoffId, HandoffState, Term};
use clockwise_placement::NodeId;
use serde::{Deserialize, Serialize};

use super::station::Door;

/// What the rebalancer is doing. Processes that do not lead ask the one that does.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The term it leads under; none while it does not lead.
    pub term: Option<Term>,
    /// Why it cannot lead, where that is known.
    pub cannot_lead: Option<String>,
    /// Whether that is because somebody else does.
    #[serde(default)]
    pub led_elsewhere: bool,
    /// The change that runs.
    pub change: Option<ChangeProgress>,
    /// Whom each node lets in.
    #[serde(with = "doors")]
    pub doors: Vec<(NodeId, Door)>,
}

impl Progress {
    /// Whether every node lets its clients in.
    #[must_use]
    pub fn all_doors_open(&self) -> bool {
        !self.doors.is_empty()
            && self
                .doors
                .iter()
                .all(|(_, door)| matches!(door, Door::Open { .. }))
    }

    /// Whether it is settled of every node that it lets its clients in, or that it must not.
    #[must_use]
    pub fn all_doors_settled(&self) -> bool {
        let settled = |door: &Door| matches!(door, Door::Open { .. } | Door::Closed(_));
        !self.doors.is_empty() && self.doors.iter().all(|(_, door)| settled(door))
    }
}

/// Nodes by their names, as they are told to other processes.
mod doors {
    use clockwise_placement::NodeId;
    use serde::{Deserialize, Deserializer, Serializer, de};

    use super::Door;

    pub(super) fn serialize<S: Serializer>(
        doors: &[(NodeId, Door)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(doors.iter().map(|(node, door)| (node.as_str(), door)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(NodeId, Door)>, D::Error> {
        let doors = Vec::<(String, Door)>::deserialize(deserializer)?;
        let parse = |(name, door): (String, Door)| {
            let node = name.parse().map_err(de::Error::custom)?;
            Ok((node, door))
        };
        doors.into_iter().map(parse).collect()
    }
}

/// How far a change has got.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChangeProgress {
    /// Its name.
    pub id: ChangeId,
    /// Which way it goes.
    pub direction: Direction,
    /// Keys that were copied a second of late, over all handoffs; none before that can be said.
    pub keys_per_second: Option<u64>,
    /// Why the store takes no commits, without which nothing goes on.
    pub unwritable: Option<String>,
    /// Its handoffs, in the record's order.
    pub handoffs: Vec<HandoffProgress>,
}

/// How far a handoff has got.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandoffProgress {
    /// Which.
    pub id: HandoffId,
    /// The recorded state.
    pub state: HandoffState,
    /// Keys listed so far that move.
    pub keys_listed: u64,
    /// Keys that it is expected to move, by what its source or others had when they were counted.
    pub keys_expected: Option<u64>,
    /// Keys copied so far, repeats counted.
    pub keys_copied: u64,
    /// Bytes copied so far.
    pub bytes_copied: u64,
    /// Keys compared so far.
    pub keys_compared: u64,
    /// Keys that differed when they were compared.
    pub mismatches: u64,
    /// Keys touched since they were copied.
    pub keys_dirty: u64,
    /// Keys removed from the source, or from targets after an abort.
    pub keys_removed: u64,
    /// The longest hold in milliseconds under this leadership.
    pub hold_ms_max: u64,
    /// Why it waits for a server, if it does.
    pub waiting: Option<String>,
    /// Why it stopped until a person has done something.
    pub stopped: Option<String>,
    /// Why its last handover was rolled back.
    pub last_rollback: Option<String>,
}

/// The numbers that a handoff's task writes and everybody else reads.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) listed: AtomicU64,
    pub(super) copied: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) compared: AtomicU64,
    pub(super) mismatches: AtomicU64,
    pub(super) dirty: AtomicU64,
    pub(super) removed: AtomicU64,
}

pub(super) fn read(counter: &AtomicU64) -> u64 {
    // Numbers for people: no order between them is promised.
    counter.load(Ordering::Relaxed)
}

pub(super) fn set(counter: &AtomicU64, value: u64) {
    counter.store(value, Ordering::Relaxed);
}

pub(super) fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}
