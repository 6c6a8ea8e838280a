//! What chance does with so many points: rings are drawn and looked at.
//!
//! A formula gives the spread of one node's share ([`crate::expected_cv`]); how loaded the most loaded of N
//! nodes is depends on their number too, and is found fastest by drawing rings.

use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::ring::POINTS_MAX;
use crate::sorted::Sorted;
use crate::{NodeIx, Position};

/// Points drawn for one answer: a fraction of a second's work.
const POINTS_DRAWN: usize = 2_000_000;

/// How loaded the most loaded node is over rings of equal nodes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RingSample {
    /// Points of each node.
    pub points: u32,
    /// How many rings were drawn.
    pub rings: usize,
    /// The mean over the rings of the most loaded node's load over the mean.
    pub max_over_mean: f64,
    /// The one ring in twenty that is worse has at least this.
    pub max_over_mean_p95: f64,
}

/// Draws rings of so many equal nodes and points each. The same arguments give the same answer.
///
/// # Panics
/// When there are no nodes or no points, or more than a ring holds.
///
/// ```
/// let one = clockwise_placement::sample_rings(10, 1);
/// let many = clockwise_placement::sample_rings(10, 200);
/// assert!((2.7..3.2).contains(&one.max_over_mean), "one point a node spreads by 90 %, not 40");
/// assert!((1.09..1.13).contains(&many.max_over_mean));
/// ```
#[must_use]
pub fn sample_rings(nodes: usize, points: u32) -> RingSample {
    assert!(nodes > 0 && points > 0, "a ring has nodes and points");
    assert!(
        nodes as u64 * u64::from(points) <= POINTS_MAX,
        "more points than a ring holds"
    );
    let rings = (POINTS_DRAWN / (nodes * points as usize)).clamp(4, 400);
    let mut peaks: Vec<f64> = (0..)
        .take(rings)
        .map(|seed| peak(nodes, points, seed))
        .collect();
    peaks.sort_unstable_by(f64::total_cmp);
    RingSample {
        points,
        rings,
        max_over_mean: peaks.iter().sum::<f64>() / rings as f64,
        max_over_mean_p95: peaks[rings * 95 / 100],
    }
}

/// The fewest points, to within 2 %, with which rings of so many equal nodes have a mean of at most
/// `max_over_mean` for their most loaded node. None when a ring cannot hold so many.
///
/// ```
/// let plan = clockwise_placement::points_for(10, 1.11).unwrap();
/// assert!((170..240).contains(&plan.points));
/// assert_eq!(clockwise_placement::points_for(10, 0.99), None, "nothing is more even than even");
/// ```
#[must_use]
pub fn points_for(nodes: usize, max_over_mean: f64) -> Option<RingSample> {
    let most = u32::try_from(POINTS_MAX / nodes.max(1) as u64)
        .ok()
        .filter(|&most| most > 0)?;
    if nodes > 1 && max_over_mean <= 1.0 {
        return None;
    }
    let is_even = |sample: &RingSample| sample.max_over_mean <= max_over_mean;
    let (mut low, mut high) = (0, sample_rings(nodes, 1));
    while !is_even(&high) {
        low = high.points;
        if low == most {
            return None;
        }
        high = sample_rings(nodes, low.saturating_mul(2).min(most));
    }
    while high.points - low > (high.points / 50).max(1) {
        let middle = sample_rings(nodes, low + (high.points - low) / 2);
        if is_even(&middle) {
            high = middle;
        } else {
            low = middle.points;
        }
    }
    Some(high)
}

/// The most loaded node's load over the mean, in one ring.
fn peak(nodes: usize, points: u32, seed: u64) -> f64 {
    let point = |node: usize, copy: u32| {
        let label = (node as u64) << 32 | u64::from(copy);
        Position(xxh3_64_with_seed(&label.to_le_bytes(), seed))
    };
    let points = points as usize;
    let drawn: Vec<Position> = (0..nodes * points)
        .map(|at| point(at / points, (at % points) as u32))
        .collect();
    let runs = drawn.chunks_exact(points).enumerate();
    let runs = runs.map(|(node, run)| (NodeIx::of(node), run));
    let (sorted, owners) = Sorted::scatter(drawn.len(), runs);
    let positions = sorted.positions();
    let mut held = alloc::vec![0u128; nodes];
    let mut before = positions[positions.len() - 1];
    for (&position, owner) in positions.iter().zip(owners) {
        held[owner.get()] += u128::from(before.steps_to(position));
        before = position;
    }
    let most = held.into_iter().max().unwrap_or(0);
    crate::interval::share_of_circle(most) * nodes as f64
}
