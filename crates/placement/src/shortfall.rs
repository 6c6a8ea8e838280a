//! What a replica list lacks beside what was asked for.

use crate::NodeIx;
use crate::domain::DOMAIN_DEPTH_MAX;
use crate::topology::Topology;

/// What is missing of the replicas of a position. All zero when nothing is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shortfall {
    /// Replicas that there are no nodes for.
    pub nodes: u8,
    /// For each level of the domains, outermost first: replicas that share a domain with an earlier one.
    ///
    /// With one region it is `replicas - 1` at that level, whatever the zones are. Levels that the
    /// members do not have are 0.
    pub domains: [u8; DOMAIN_DEPTH_MAX],
}

impl Shortfall {
    pub(crate) fn of(wanted: u8, owners: &[NodeIx], topology: &Topology) -> Self {
        let placed = u8::try_from(owners.len()).expect("a list is no longer than was asked for");
        let mut shortfall = Self {
            nodes: wanted - placed,
            ..Self::default()
        };
        for (level, shared) in shortfall
            .domains
            .iter_mut()
            .enumerate()
            .take(topology.depth())
        {
            let distinct = topology.distinct(owners, level);
            *shared = u8::try_from(owners.len() - distinct).expect("part of the list's length");
        }
        shortfall
    }

    /// Whether every replica has a node and every level a domain for each.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
