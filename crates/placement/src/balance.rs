//! How evenly load lies on the nodes, beside what chance would give.

use alloc::vec::Vec;

use crate::movement::copies_held;
use crate::{Member, NodeIx, Placement};

/// Loads of nodes, each beside the fair part that its weight asks for.
///
/// Over nodes of equal weight "over mean" is what it says; with weights, a node's mean is its fair part.
#[derive(Clone, PartialEq, Debug)]
pub struct Balance {
    /// One for each member, by rank.
    pub loads: Vec<Load>,
    /// The most loaded node's load over its fair part.
    pub max_over_mean: f64,
    /// The least loaded node's load over its fair part.
    pub min_over_mean: f64,
    /// The standard deviation of the loads over their fair parts.
    pub cv: f64,
}

/// The load of one node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// The node.
    pub node: NodeIx,
    /// Positions, keys or requests.
    pub amount: u128,
    /// The part of all load, 0 through 1.
    pub share: f64,
    /// The load over the fair part; 1 is even. Infinite for load on a node of weight 0.
    pub over_mean: f64,
}

impl Balance {
    /// Weighs loads, given by rank, against the weights of `members`.
    ///
    /// Without any load or any weight every figure is 0.
    #[must_use]
    pub fn of(members: &[Member], loads: &[u128]) -> Self {
        assert_eq!(members.len(), loads.len(), "one load for each member");
        let total = loads.iter().sum::<u128>() as f64;
        let weights: u64 = members
            .iter()
            .map(|member| u64::from(member.weight.hundredths()))
            .sum();
        let weigh = |(rank, (&amount, member)): (usize, (&u128, &Member))| {
            let share = ratio(amount as f64, total);
            let fair = ratio(f64::from(member.weight.hundredths()), weights as f64);
            Load {
                node: NodeIx::of(rank),
                amount,
                share,
                over_mean: ratio(share, fair),
            }
        };
        let loads: Vec<Load> = loads.iter().zip(members).enumerate().map(weigh).collect();
        // A node that shall have nothing and has nothing is no outlier.
        let weighed = || {
            let idle =
                |load: &&Load| load.amount > 0 || members[load.node.get()].weight.hundredths() > 0;
            loads.iter().filter(idle).map(|load| load.over_mean)
        };
        let count = weighed().count() as f64;
        let square = weighed()
            .map(|over| (over - 1.0) * (over - 1.0))
            .sum::<f64>();
        Self {
            max_over_mean: weighed().fold(0.0, f64::max),
            min_over_mean: weighed().reduce(f64::min).unwrap_or(0.0),
            cv: if total > 0.0 {
                square_root(ratio(square, count))
            } else {
                0.0
            },
            loads,
        }
    }
}

impl Placement {
    /// How evenly the first owners share the circle: exact, by interval length.
    #[must_use]
    pub fn balance(&self) -> Balance {
        Balance::of(self.nodes(), &self.primaries_held())
    }

    /// How evenly the circle's copies lie, all replicas counted.
    #[must_use]
    pub fn balance_of_copies(&self) -> Balance {
        Balance::of(self.nodes(), &copies_held(self))
    }

    /// The positions that each node owns first, by rank.
    pub(crate) fn primaries_held(&self) -> Vec<u128> {
        let mut held = alloc::vec![0; self.nodes().len()];
        for (interval, owners) in self.intervals() {
            held[owners[0].get()] += interval.len();
        }
        held
    }
}

/// The spread that chance gives to `nodes` equal nodes of `points` hashed points each:
/// the standard deviation of a share over its mean, √((N−1)/(NV+1)).
///
/// A share is a beta variable; with one point per node it spreads by almost 100 %, with 200 by 7 %.
#[must_use]
pub fn expected_cv(nodes: usize, points: usize) -> f64 {
    let (nodes, points) = (nodes as f64, points as f64);
    square_root(ratio(nodes - 1.0, nodes * points + 1.0))
}

/// 0 where there is nothing to compare.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if part == 0.0 { 0.0 } else { part / whole }
}

/// Newton's method; `core` has no square root.
fn square_root(x: f64) -> f64 {
    if x <= 0.0 || !x.is_finite() {
        return x.max(0.0);
    }
    // Halving the exponent starts within a factor of two: six steps are beyond the last bit.
    let mut root = f64::from_bits((x.to_bits() >> 1) + (1023 << 51));
    for _ in 0..6 {
        root = 0.5 * (root + x / root);
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_square_root_is_that_of_the_standard_library() {
        for x in [0.0, 1e-300, 1e-9, 0.5, 1.0, 2.0, 3.0, 1e9, 1e300] {
            let (ours, theirs) = (square_root(x), f64::sqrt(x));
            assert!(
                (ours - theirs).abs() <= theirs * 1e-15,
                "{x}: {ours} {theirs}"
            );
        }
    }

    #[test]
    fn one_point_a_node_spreads_by_ninety_percent_and_two_hundred_by_seven() {
        assert!((expected_cv(10, 1) - 0.905).abs() < 0.001);
        assert!((expected_cv(10, 200) - 0.067).abs() < 0.001);
    }
}
