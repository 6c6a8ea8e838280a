//! What is said about a record that contradicts itself.

use core::fmt;

use clockwise_placement::{MEMBERS_MAX, NodeId, PlacementError};

use crate::layout::LayoutError;
use crate::{Address, Generation, NodeState, StagedId, TooLarge};

/// The most edits that may wait for `apply`: one change should be something a person can read.
pub const STAGED_MAX: usize = 1_024;

/// The most users on a node that a record may allow to write.
pub const FOREIGN_WRITERS_MAX: usize = 64;

/// How a record contradicts itself.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InvalidRecord {
    /// The epoch is 0, before the first.
    NoEpoch,
    /// No nodes: nobody could own a key.
    NoNodes,
    /// More nodes than a placement holds.
    TooManyNodes {
        /// How many there are.
        nodes: usize,
    },
    /// Two nodes of one id.
    DuplicateNode {
        /// The id.
        node: NodeId,
    },
    /// Two nodes at one address would take each other's keys for their own.
    SharedAddress {
        /// The address.
        address: Address,
        /// One of them.
        node: NodeId,
        /// The other.
        other: NodeId,
    },
    /// A weight of 0.
    ZeroWeight {
        /// The node.
        node: NodeId,
    },
    /// A node whose generation is 0, or not above the one its tombstone keeps.
    GenerationReused {
        /// The node.
        node: NodeId,
        /// The generation it has.
        generation: Generation,
        /// The highest that was used before.
        used: Generation,
    },
    /// Two tombstones of one id.
    DuplicateTombstone {
        /// The id.
        node: NodeId,
    },
    /// A pool of class store keeps one copy of each key.
    ReplicasInStore {
        /// How many were asked for.
        replicas: u8,
    },
    /// A node comes or goes, but no change runs, or the change in flight says otherwise.
    StateWithoutChange {
        /// The node.
        node: NodeId,
        /// The state it is in.
        state: NodeState,
    },
    /// Two staged edits of one number.
    DuplicateStaged {
        /// The number.
        id: StagedId,
    },
    /// More staged edits than one change may have.
    TooManyStaged {
        /// How many there are.
        staged: usize,
    },
    /// More names of foreign writers than a record may have, or one that is no user name.
    ForeignWriters,
    /// A layout of the change in flight names a node that the record does not have.
    UnknownMember {
        /// The id.
        node: NodeId,
    },
    /// A layout of the change in flight names a node twice.
    DuplicateMember {
        /// The id.
        node: NodeId,
    },
    /// A node that is in neither layout of the change in flight.
    UnplacedNode {
        /// The id.
        node: NodeId,
    },
    /// A handoff that cannot be: its source or a target does not fit the layouts, or there are two of them.
    Handoff {
        /// Its source.
        source: NodeId,
        /// What does not fit.
        fault: HandoffFault,
    },
    /// Two handoffs in handover: only one source is fenced at a time.
    TwoHandovers {
        /// The source of one.
        source: NodeId,
        /// The source of the other.
        other: NodeId,
    },
    /// A layout that cannot be built.
    Layout(LayoutError),
    /// A slot table that leaves no room for a change.
    TooLarge(TooLarge),
}

/// What does not fit about a handoff.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HandoffFault {
    /// Another of the same source and kind.
    Duplicate,
    /// It gives to nobody.
    NoTargets,
    /// It gives to its own source, or to one target twice.
    Target {
        /// The target.
        target: NodeId,
    },
    /// Its source or a target is not in the layout it should be in.
    NotInLayout {
        /// The node.
        node: NodeId,
    },
    /// Its kind or state does not go with the direction of the change.
    Direction,
    /// It is flipped without saying to which run of which data, or the reverse.
    Flip,
    /// It is flipped in a change that goes back, and nothing brings the keys back from a target.
    NoReverse {
        /// The target that keeps them.
        target: NodeId,
    },
}

impl From<LayoutError> for InvalidRecord {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl From<TooLarge> for InvalidRecord {
    fn from(error: TooLarge) -> Self {
        Self::TooLarge(error)
    }
}

impl From<PlacementError> for InvalidRecord {
    fn from(error: PlacementError) -> Self {
        Self::Layout(LayoutError::Placement(error))
    }
}

impl fmt::Display for InvalidRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEpoch => f.write_str("the epoch is 0, the first is 1"),
            Self::NoNodes => f.write_str("no nodes: nobody could own a key"),
            Self::TooManyNodes { nodes } => {
                write!(f, "{nodes} nodes, at most {MEMBERS_MAX} are allowed")
            }
            Self::DuplicateNode { node } => write!(f, "node {node} is there twice"),
            Self::SharedAddress {
                address,
                node,
                other,
            } => {
                write!(f, "nodes {node} and {other} have one address, {address}")
            }
            Self::ZeroWeight { node } => write!(f, "node {node} has weight 0"),
            Self::GenerationReused {
                node,
                generation,
                used,
            } => write!(
                f,
                "node {node} has generation {generation}, which is not above {used}, the highest used before"
            ),
            Self::DuplicateTombstone { node } => write!(f, "removed node {node} is kept twice"),
            Self::ReplicasInStore { replicas } => {
                write!(
                    f,
                    "{replicas} replicas: a pool of class store keeps one copy of each key"
                )
            }
            Self::StateWithoutChange { node, state } => {
                write!(
                    f,
                    "node {node} is {state}, which does not go with the change in flight or with none"
                )
            }
            Self::DuplicateStaged { id } => write!(f, "two staged edits have the number {id}"),
            Self::TooManyStaged { staged } => {
                write!(f, "{staged} staged edits, at most {STAGED_MAX} are allowed")
            }
            Self::ForeignWriters => write!(
                f,
                "foreign writers are not at most {FOREIGN_WRITERS_MAX} user names of 1 to 256 printable characters"
            ),
            Self::UnknownMember { node } => {
                write!(
                    f,
                    "the change in flight places node {node}, which does not exist"
                )
            }
            Self::DuplicateMember { node } => {
                write!(
                    f,
                    "the change in flight places node {node} twice on one side"
                )
            }
            Self::UnplacedNode { node } => {
                write!(f, "node {node} is on neither side of the change in flight")
            }
            Self::Handoff { source, fault } => write!(f, "handoff of node {source} {fault}"),
            Self::TwoHandovers { source, other } => {
                write!(f, "nodes {source} and {other} are both in handover")
            }
            Self::Layout(error) => error.fmt(f),
            Self::TooLarge(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for HandoffFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate => f.write_str("is there twice"),
            Self::NoTargets => f.write_str("has no targets"),
            Self::Target { target } => write!(f, "gives to {target} twice, or to itself"),
            Self::NotInLayout { node } => {
                write!(f, "names node {node}, which has no part on that side")
            }
            Self::Direction => f.write_str("does not go with the direction of its change"),
            Self::Flip => {
                f.write_str("does not name the runs of exactly the targets it flipped to")
            }
            Self::NoReverse { target } => {
                write!(
                    f,
                    "is flipped in an aborted change, and nothing brings its keys back from {target}"
                )
            }
        }
    }
}

impl core::error::Error for InvalidRecord {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Layout(error) => Some(error),
            Self::TooLarge(error) => Some(error),
            _ => None,
        }
    }
}
