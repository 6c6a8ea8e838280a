//! Why a placement cannot be built.

use core::fmt;

use crate::maglev::MAGLEV_SIZE_MAX;
use crate::ring::{MEMBERS_MAX, POINTS_MAX};
use crate::slots::SLOTS_MAX;
use crate::{NodeId, Weight};

/// Why a placement cannot be built. Every one is a fault of what was asked for: mend it and build again.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PlacementError {
    /// No members: there is nobody to own a key.
    NoMembers,
    /// More members than a placement holds.
    TooManyMembers {
        /// How many were given.
        members: usize,
    },
    /// Two members have one id.
    DuplicateNode {
        /// The id.
        node: NodeId,
    },
    /// A node that is to change is no member.
    NotAMember {
        /// The node.
        node: NodeId,
    },
    /// A member of weight 0 would own nothing: leave it out instead.
    ZeroWeight {
        /// The member.
        node: NodeId,
    },
    /// Two members of different weight for an algorithm that knows no weights.
    UnequalWeights {
        /// The algorithm.
        algorithm: &'static str,
        /// A member.
        node: NodeId,
        /// Its weight.
        weight: Weight,
        /// Another one.
        other: NodeId,
        /// Its weight.
        other_weight: Weight,
    },
    /// Zero replicas were asked for.
    ZeroReplicas,
    /// Members name their domains to different depths, so that nobody can say whether two of them share one.
    UnevenDomains {
        /// A member.
        node: NodeId,
        /// How many levels its path has.
        depth: usize,
        /// Another one.
        other: NodeId,
        /// How many levels that path has.
        other_depth: usize,
    },
    /// A weight that does not come to a whole number of points, at least one.
    UnevenPoints {
        /// The member.
        node: NodeId,
        /// Its weight.
        weight: Weight,
        /// The points for a weight of 1.
        points_per_weight: u32,
    },
    /// More points than a ring holds.
    TooManyPoints {
        /// How many there would be.
        points: u64,
        /// The points for a weight of 1 that were asked for.
        points_per_weight: u32,
        /// The most points for a weight of 1 that fit and keep the ratios, if any do.
        points_per_weight_max: Option<u32>,
    },
    /// No points: there is no interval to own.
    NoPoints,
    /// A point or a slot names a member that was not given.
    UnknownMember {
        /// The index of the member.
        member: usize,
        /// How many members were given.
        members: usize,
    },
    /// No slots, or more than a placement holds.
    SlotCount {
        /// How many were asked for.
        slots: usize,
    },
    /// A Maglev table whose size is no prime, below the number of nodes, or above the largest.
    TableSize {
        /// The size that was asked for.
        size: u32,
        /// The next one that would do.
        next: u32,
    },
    /// A node so light beside the others that a Maglev table has no entry for it.
    NoTableEntry {
        /// The node.
        node: NodeId,
        /// Its weight.
        weight: Weight,
        /// The size of the table.
        size: u32,
    },
    /// An owner table that does not have one row per slot of as many owners as there can be.
    TableShape {
        /// How many owners the table has.
        entries: usize,
        /// How many it should have: slots × owners of a slot.
        expected: usize,
    },
    /// A slot names one node twice.
    RepeatedOwner {
        /// The slot.
        slot: usize,
        /// The node.
        node: NodeId,
    },
    /// Strict spread: fewer nodes than replicas.
    TooFewNodes {
        /// How many replicas were asked for.
        replicas: u8,
        /// How many nodes there are.
        nodes: usize,
    },
    /// Strict spread: replicas would share a domain.
    TooFewDomains {
        /// How many replicas were asked for.
        replicas: u8,
        /// How many distinct domains of the depth they would be on.
        domains: usize,
        /// The depth, 1 being the outermost level.
        depth: u8,
    },
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMembers => f.write_str("no members: nobody can own a key"),
            Self::TooManyMembers { members } => {
                write!(f, "{members} members, at most {MEMBERS_MAX} are allowed")
            }
            Self::DuplicateNode { node } => write!(f, "node {node} is given twice"),
            Self::NotAMember { node } => write!(f, "node {node} is no member"),
            Self::ZeroWeight { node } => write!(f, "node {node} has weight 0"),
            Self::UnequalWeights {
                algorithm,
                node,
                weight,
                other,
                other_weight,
            } => write!(
                f,
                "{algorithm} cannot weigh nodes: {node} has weight {weight}, {other} has {other_weight}"
            ),
            Self::ZeroReplicas => f.write_str("0 replicas: a key needs at least one owner"),
            Self::UnevenDomains {
                node,
                depth,
                other,
                other_depth,
            } => write!(
                f,
                "domain of node {node} has {depth} levels, that of node {other} has {other_depth}"
            ),
            Self::UnevenPoints {
                node,
                weight,
                points_per_weight,
            } => write!(
                f,
                "node {node} of weight {weight} would have no whole number of points at \
                 {points_per_weight} points for a weight of 1"
            ),
            Self::TooManyPoints {
                points,
                points_per_weight,
                points_per_weight_max,
            } => {
                write!(
                    f,
                    "{points} points at {points_per_weight} for a weight of 1, at most {POINTS_MAX} are \
                     allowed: "
                )?;
                match points_per_weight_max {
                    Some(fitting) => write!(f, "{fitting} for a weight of 1 keep the ratios"),
                    None => {
                        f.write_str("no smaller number keeps the ratios, choose closer weights")
                    }
                }
            }
            Self::NoPoints => f.write_str("no points: nothing can be owned"),
            Self::UnknownMember { member, members } => {
                write!(f, "member {member} is named, but there are only {members}")
            }
            Self::SlotCount { slots } => write!(f, "{slots} slots, 1 to {SLOTS_MAX} are allowed"),
            Self::TableSize { size, next } => write!(
                f,
                "a table of {size} entries is no prime within 1 a node and {MAGLEV_SIZE_MAX}, {next} would do"
            ),
            Self::NoTableEntry { node, weight, size } => write!(
                f,
                "node {node} of weight {weight} gets none of {size} entries: take a larger table or closer weights"
            ),
            Self::TableShape { entries, expected } => {
                write!(f, "owner table has {entries} entries instead of {expected}")
            }
            Self::RepeatedOwner { slot, node } => write!(f, "slot {slot} names node {node} twice"),
            Self::TooFewNodes { replicas, nodes } => {
                write!(
                    f,
                    "{replicas} replicas need as many nodes, there are {nodes}"
                )
            }
            Self::TooFewDomains {
                replicas,
                domains,
                depth,
            } => write!(
                f,
                "{replicas} replicas would be on {domains} domains of depth {depth} only"
            ),
        }
    }
}

impl core::error::Error for PlacementError {}
