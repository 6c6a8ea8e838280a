//! What an operator can ask for: one edit of a pool, as it is staged and stored.

use alloc::string::String;
use core::fmt;

use clockwise_placement::{Domain, NodeId, Weight};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::layout::has_no_levels;
use crate::{Address, Generator, SchemeSpec, SpreadRule, as_text};

/// One edit of a pool's membership.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Edit {
    /// A node joins.
    Add {
        /// Its id, which no node of the pool has.
        #[serde(with = "as_text")]
        id: NodeId,
        /// Where its server listens.
        address: Address,
        /// How much it takes.
        #[serde(with = "as_text", default)]
        weight: Weight,
        /// Where it stands.
        #[serde(with = "as_text", default, skip_serializing_if = "has_no_levels")]
        domain: Domain,
    },
    /// A node leaves and hands over all it has.
    Remove {
        /// Which.
        #[serde(with = "as_text")]
        id: NodeId,
    },
    /// A node is lost for good: its part gets new owners without its data.
    RemoveLost {
        /// Which.
        #[serde(with = "as_text")]
        id: NodeId,
        /// How many keys it had when they were last counted, as the operator confirmed; none if nobody had.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keys_counted: Option<u64>,
    },
    /// A node takes more or less.
    SetWeight {
        /// Which.
        #[serde(with = "as_text")]
        id: NodeId,
        /// The weight from then on.
        #[serde(with = "as_text")]
        weight: Weight,
    },
    /// A node stands somewhere else.
    SetDomain {
        /// Which.
        #[serde(with = "as_text")]
        id: NodeId,
        /// The place from then on.
        #[serde(with = "as_text")]
        domain: Domain,
    },
    /// A node's server, with its data, is reached under another address. No key moves.
    SetAddress {
        /// Which.
        #[serde(with = "as_text")]
        id: NodeId,
        /// The address from then on.
        address: Address,
    },
    /// A node joins in place of another, with its weight and domain unless others are given.
    Replace {
        /// Who leaves.
        #[serde(with = "as_text")]
        id: NodeId,
        /// Who joins.
        #[serde(with = "as_text")]
        by: NodeId,
        /// Where the newcomer's server listens.
        address: Address,
    },
    /// The same members under another recipe for positions.
    SetScheme {
        /// The recipe from then on.
        scheme: SchemeSpec,
    },
    /// The same members with other intervals: another number of points, or slots. A slot table that is empty
    /// is planned from the present owners; the same slots once more carry a plan in steps further.
    SetGenerator {
        /// The generator from then on.
        generator: Generator,
    },
    /// Another rule for replicas that cannot all be on distinct domains.
    SetSpread {
        /// The rule from then on.
        spread: SpreadRule,
    },
    /// Another number of nodes for each key.
    SetReplicas {
        /// How many from then on.
        replicas: u8,
    },
}

impl Edit {
    /// The node it names first; none if it concerns the whole pool.
    #[must_use]
    pub const fn node(&self) -> Option<&NodeId> {
        match self {
            Self::Add { id, .. }
            | Self::Remove { id }
            | Self::RemoveLost { id, .. }
            | Self::SetWeight { id, .. }
            | Self::SetDomain { id, .. }
            | Self::SetAddress { id, .. }
            | Self::Replace { id, .. } => Some(id),
            Self::SetScheme { .. }
            | Self::SetGenerator { .. }
            | Self::SetSpread { .. }
            | Self::SetReplicas { .. } => None,
        }
    }

    /// Whether it names a node, as the one that changes or as a newcomer.
    #[must_use]
    pub fn names(&self, node: &NodeId) -> bool {
        let newcomer = if let Self::Replace { by, .. } = self {
            Some(by)
        } else {
            None
        };
        self.node() == Some(node) || newcomer == Some(node)
    }
}

/// As a person reads it in `staged` and `plan`.
impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add {
                id,
                address,
                weight,
                domain,
            } => {
                write!(f, "add {id} at {address}, weight {weight}")?;
                if domain.depth() > 0 {
                    write!(f, ", domain {domain}")
                } else {
                    Ok(())
                }
            }
            Self::Remove { id } => write!(f, "remove {id}"),
            Self::RemoveLost {
                id,
                keys_counted: Some(keys),
            } => write!(f, "remove {id}, lost with {keys} keys"),
            Self::RemoveLost { id, .. } => {
                write!(f, "remove {id}, lost with an unknown number of keys")
            }
            Self::SetWeight { id, weight } => write!(f, "weight of {id}: {weight}"),
            Self::SetDomain { id, domain } => write!(f, "domain of {id}: {domain}"),
            Self::SetAddress { id, address } => write!(f, "address of {id}: {address}"),
            Self::Replace { id, by, address } => write!(f, "replace {id} by {by} at {address}"),
            Self::SetScheme { scheme } => write!(f, "scheme: {scheme}"),
            Self::SetGenerator { generator } => write!(f, "generator: {generator}"),
            Self::SetSpread { spread } => write!(f, "spread: {spread}"),
            Self::SetReplicas { replicas } => write!(f, "replicas: {replicas}"),
        }
    }
}

/// The number of a staged edit, by which it can be taken back. Unique in its record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StagedId(pub u32);

impl fmt::Display for StagedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// An edit that waits for `apply`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Staged {
    /// By which it can be taken back.
    pub id: StagedId,
    /// What it asks for.
    pub edit: Edit,
    // What a later format adds to an edit stands here, beside it.
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}
