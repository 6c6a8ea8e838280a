//! A change in flight: what an operator applied as one unit, and how far each source has got.
//!
//! This file holds what is stored. The steps from one record to the next are in the `transition` module.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use clockwise_placement::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{ChangeId, Edit, Epoch, Incarnation, Layout, as_text};

/// Two layouts and the handoffs that lead from one to the other. It ends whole or undone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// The name it was applied under.
    pub id: ChangeId,
    /// The epoch it was planned at.
    pub base_epoch: Epoch,
    /// When it was applied, milliseconds since 1970.
    pub applied_at_ms: u64,
    /// Who owned what when it was applied.
    pub before: Layout,
    /// Who owns what when it is done.
    pub after: Layout,
    /// Which of the two it is going to.
    pub direction: Direction,
    // Invariant: one per source and kind, sorted by source; reverse ones follow the others.
    /// One per source node; reverse ones only after an abort.
    pub handoffs: Vec<Handoff>,
    /// What was staged.
    #[serde(default)]
    pub edits: Vec<Edit>,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

impl Change {
    /// A handoff by its name. O(log handoffs).
    #[must_use]
    pub fn handoff(&self, id: &HandoffId) -> Option<&Handoff> {
        self.position(id).map(|at| &self.handoffs[at])
    }

    /// The handoff of a source that owned before the change. O(log handoffs).
    #[must_use]
    pub fn forward(&self, source: &NodeId) -> Option<&Handoff> {
        self.find(false, source)
    }

    /// The handoff that brings back what a new owner got. O(log handoffs).
    #[must_use]
    pub fn reverse(&self, source: &NodeId) -> Option<&Handoff> {
        self.find(true, source)
    }

    /// The rank of a handoff.
    pub(crate) fn position(&self, id: &HandoffId) -> Option<usize> {
        self.rank(id.reverse, &id.source)
    }

    fn find(&self, reverse: bool, source: &NodeId) -> Option<&Handoff> {
        self.rank(reverse, source).map(|at| &self.handoffs[at])
    }

    fn rank(&self, reverse: bool, source: &NodeId) -> Option<usize> {
        self.handoffs
            .binary_search_by(|handoff| handoff.order().cmp(&(reverse, source)))
            .ok()
    }
}

/// Where a change is going.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the layout after it.
    Forward,
    /// Aborted: to the layout before it.
    Back,
}

/// Moving out of one source node everything it gives away in a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Handoff {
    /// The node that gives.
    #[serde(with = "as_text")]
    pub source: NodeId,
    // Invariant: sorted, no id twice, without the source.
    /// The nodes it gives to.
    #[serde(with = "as_text::list")]
    pub targets: Vec<NodeId>,
    /// Whether it moves data, and which way.
    #[serde(default)]
    pub kind: HandoffKind,
    /// How far it has got.
    pub state: HandoffState,
    /// When it entered that state, milliseconds since 1970.
    pub entered_at_ms: u64,
    /// Which run of which data each target was when it became the owner. Empty before the flip.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flip: Vec<FlippedTo>,
    /// What was moved and how long it took.
    #[serde(default)]
    pub report: Report,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

impl Handoff {
    /// Whether it brings keys back after an abort.
    #[must_use]
    pub const fn is_reverse(&self) -> bool {
        matches!(self.kind, HandoffKind::Reverse)
    }

    /// Its name among the handoffs of its change.
    #[must_use]
    pub fn id(&self) -> HandoffId {
        HandoffId {
            source: self.source.clone(),
            reverse: self.is_reverse(),
        }
    }

    /// The order in a change: those from before it first, then by source.
    pub(crate) const fn order(&self) -> (bool, &NodeId) {
        (self.is_reverse(), &self.source)
    }
}

/// Names a handoff of the change in flight: one per source and way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct HandoffId {
    /// The node that gives.
    #[serde(with = "as_text")]
    pub source: NodeId,
    /// Whether it brings keys back after an abort.
    pub reverse: bool,
}

impl HandoffId {
    /// From an owner before the change.
    #[must_use]
    pub const fn forward(source: NodeId) -> Self {
        Self {
            source,
            reverse: false,
        }
    }

    /// Back from an owner after the change.
    #[must_use]
    pub const fn reverse(source: NodeId) -> Self {
        Self {
            source,
            reverse: true,
        }
    }
}

impl fmt::Display for HandoffId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            if self.reverse { "back from" } else { "from" },
            self.source
        )
    }
}

/// What kind of handoff it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HandoffKind {
    /// From the owner before the change to those after it.
    #[default]
    Forward,
    /// Of a node that is lost for good: flips without a copy.
    Lost,
    /// After an abort, from a new owner back to the old ones.
    Reverse,
}

/// How far a handoff has got.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HandoffState {
    /// Checked, nothing copied yet.
    Planned,
    /// The source serves while its keys are copied under tracking.
    Copying,
    /// Both sides are compared.
    Verifying,
    /// The source is being fenced; requests for moving keys wait.
    Handover,
    /// The targets own.
    Flipped,
    /// The source loses what it does not own any more.
    Cleaning,
    /// Over, or nothing was left to do.
    Done,
    /// Aborted before the flip: the targets lose the copies they got.
    Purging,
    /// Aborted before the flip, no copy left behind.
    Undone,
}

impl HandoffState {
    /// The word in the record, on the command line and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Copying => "copying",
            Self::Verifying => "verifying",
            Self::Handover => "handover",
            Self::Flipped => "flipped",
            Self::Cleaning => "cleaning",
            Self::Done => "done",
            Self::Purging => "purging",
            Self::Undone => "undone",
        }
    }

    /// Whether the targets own what moves.
    #[must_use]
    pub const fn is_flipped(self) -> bool {
        matches!(self, Self::Flipped | Self::Cleaning | Self::Done)
    }

    /// Whether nothing more happens to it.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Undone)
    }
}

impl fmt::Display for HandoffState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which run of which data a target was when it became the owner.
///
/// A target that comes back as another stays closed while its source still has the keys.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlippedTo {
    /// The target.
    #[serde(with = "as_text")]
    pub target: NodeId,
    /// Its run and data.
    #[serde(flatten)]
    pub incarnation: Incarnation,
}

/// What a handoff moved and how long it took.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Report {
    /// Keys that changed their owner.
    pub keys_moved: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Keys whose digests differed when they were compared, each copied again.
    pub mismatches: u64,
    /// The longest time from a fence's commit to its flip or rollback.
    pub hold_ms_max: u64,
    /// From `copying` to `done`.
    pub duration_ms: u64,
    /// Keys of a lost source, as last counted, that are gone; none where nobody had counted them.
    pub keys_lost: u64,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}
