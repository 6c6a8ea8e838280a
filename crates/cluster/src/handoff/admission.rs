//! Which clients a node lets in.
//!
//! Client users live in a server's memory only, so a restarted server admits nobody until the leader has
//! recognised it. Whoever makes and removes them asks here, with a record read after his last step.

use core::fmt;

use clockwise_placement::NodeId;
use serde::{Deserialize, Serialize};

use super::message::Identity;
use crate::{Change, Generation, Handoff, HandoffState, Incarnation, Nonce, Record, as_text};

/// Whom a node lets in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Clients of this generation, and of no other.
    Clients {
        /// The generation.
        generation: Generation,
        /// What its password is derived with.
        nonce: Nonce,
    },
    /// Nobody.
    Nobody(Closed),
}

/// Why a node lets nobody in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Closed {
    /// It is not in the pool.
    NotInPool,
    /// It is given up.
    Lost,
    /// It does not take writes of its own.
    NotPrimary,
    /// It restarted or its data was replaced after it became an owner, while the source still has its copies.
    ChangedSinceFlip {
        /// The source.
        #[serde(with = "as_text")]
        source: NodeId,
        /// Who became the owner.
        expected: Incarnation,
    },
}

/// Whom a server that answers with this identity lets in.
#[must_use]
pub fn admission(record: &Record, id: &NodeId, identity: &Identity) -> Admission {
    let Some(node) = record.node(id) else {
        return Admission::Nobody(Closed::NotInPool);
    };
    if node.state == crate::NodeState::Down {
        return Admission::Nobody(Closed::Lost);
    }
    if !identity.primary {
        return Admission::Nobody(Closed::NotPrimary);
    }
    let distrusted = record.change().and_then(|change| {
        trusted_runs(change, id).find(|run| *run.incarnation != identity.incarnation)
    });
    if let Some(TrustedRun {
        source,
        incarnation,
    }) = distrusted
    {
        return Admission::Nobody(Closed::ChangedSinceFlip {
            source: source.clone(),
            expected: incarnation.clone(),
        });
    }
    Admission::Clients {
        generation: node.generation,
        nonce: node.nonce,
    }
}

/// The run that a node was when it became an owner, and who still has what it gave then.
pub(super) struct TrustedRun<'a> {
    pub(super) source: &'a NodeId,
    pub(super) incarnation: &'a Incarnation,
}

/// The flips to this node whose sources still have what they gave: only the same run may serve that.
pub(super) fn trusted_runs<'a>(
    change: &'a Change,
    id: &'a NodeId,
) -> impl Iterator<Item = TrustedRun<'a>> {
    // Once it gives keys back, its old copies elsewhere are swept: there is nothing else to trust.
    let gives_back = change
        .reverse(id)
        .is_some_and(|reverse| reverse.state != HandoffState::Planned);
    let uncleaned = move |handoff: &&Handoff| {
        let dirty = matches!(
            handoff.state,
            HandoffState::Flipped | HandoffState::Cleaning
        );
        dirty && (handoff.is_reverse() || !gives_back)
    };
    let flips = change
        .handoffs
        .iter()
        .filter(uncleaned)
        .flat_map(|handoff| handoff.flip.iter().map(move |flip| (handoff, flip)));
    flips
        .filter(move |(_, flip)| flip.target == *id)
        .map(|(handoff, flip)| TrustedRun {
            source: &handoff.source,
            incarnation: &flip.incarnation,
        })
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInPool => f.write_str("it is not in the pool"),
            Self::Lost => f.write_str("it was given up"),
            Self::NotPrimary => f.write_str("it is a replica"),
            Self::ChangedSinceFlip { source, expected } => write!(
                f,
                "it was run {} when it became the owner of what {source} gave, which {source} still has",
                expected.run_id
            ),
        }
    }
}
