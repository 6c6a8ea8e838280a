//! What happens to the others when a node is lost.
//!
//! Until the membership changes, each position of the lost node falls to the next one of its preference
//! list. Few heirs mean that those who are left fall over one after the other.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::balance::ratio;
use crate::{NodeIx, Placement};

/// The loss of one node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Loss {
    /// The node that is lost.
    pub node: NodeIx,
    /// How many others take a part of what it owned first.
    pub heirs: usize,
    /// The most loaded of those left; none when it was the only node.
    pub worst: Option<NodeIx>,
    /// The load of that one then, over its fair part of the load while all nodes were there.
    pub worst_over_mean: f64,
}

impl Placement {
    /// For each node, what its loss means to the others. O(points + nodes²).
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        let mut inherited: BTreeMap<(NodeIx, NodeIx), u128> = BTreeMap::new();
        for index in 0..self.point_count() {
            let owned = self.owned(index);
            let mut preference = self.preference_from(index);
            if let (true, Some(owner), Some(heir)) = (
                self.ends.has_interval(index),
                preference.next(),
                preference.next(),
            ) {
                *inherited.entry((owner, heir)).or_default() += owned.interval.len();
            }
        }
        let held = self.primaries_held();
        let ranks = || (0..self.nodes().len()).map(NodeIx::of);
        let weights: u64 = self
            .nodes()
            .iter()
            .map(|node| u64::from(node.weight.hundredths()))
            .sum();
        let over_mean = |load: u128, node: NodeIx| {
            let weight = f64::from(self.node(node).weight.hundredths());
            ratio(
                crate::interval::share_of_circle(load),
                ratio(weight, weights as f64),
            )
        };
        let lose = |node: NodeIx| {
            let gain = |heir: NodeIx| inherited.get(&(node, heir)).copied().unwrap_or(0);
            let after = |heir: NodeIx| over_mean(held[heir.get()] + gain(heir), heir);
            let worst = ranks()
                .filter(|&other| other != node)
                .map(|other| (other, after(other)))
                .reduce(|worst, other| if other.1 > worst.1 { other } else { worst });
            Loss {
                node,
                heirs: inherited
                    .range((node, NodeIx::of(0))..=(node, NodeIx::NONE))
                    .count(),
                worst: worst.map(|(other, _)| other),
                worst_over_mean: worst.map_or(0.0, |(_, load)| load),
            }
        };
        ranks().map(lose).collect()
    }
}
