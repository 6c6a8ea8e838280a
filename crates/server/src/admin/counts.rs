//! How many keys nodes had when they last said so, for when they say nothing any more.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use clockwise_placement::NodeId;

use crate::driver::NodeFacts;

/// The keys of each node when it was last looked at by this process. As many entries as the pool has nodes.
#[derive(Debug, Default)]
pub struct Counts(Mutex<BTreeMap<NodeId, u64>>);

impl Counts {
    /// Takes what nodes say now, and forgets nodes that were not asked.
    pub(super) fn note(&self, facts: &BTreeMap<NodeId, Result<NodeFacts, String>>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|node, _| facts.contains_key(node));
        for (node, facts) in facts {
            if let Ok(facts) = facts {
                counts.insert(node.clone(), facts.keys);
            }
        }
    }

    /// What a node last said; none if this process never heard it.
    pub(super) fn of(&self, node: &NodeId) -> Option<u64> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(node).copied()
    }
}
