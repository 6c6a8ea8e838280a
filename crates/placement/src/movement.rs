//! How much moves between two placements, from whom to whom, and how much had to.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::diff::Diff;
use crate::interval::share_of_circle;
use crate::{NodeId, NodeIx, Placement};

/// What moves between two placements, counted in positions of the circle.
///
/// A position held by two nodes counts twice among copies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Movement {
    /// What each source hands to each target, by source and then target.
    pub flows: Vec<Flow>,
    /// Positions whose first owner changes.
    pub primaries: u128,
    /// Copies that some node gains.
    pub copies: u128,
    /// The fewest copies that could move to give each node what it has now: Σ max(0, after − before).
    ///
    /// Replicas may make it unreachable, since a copy may not move to where its position already is.
    pub copies_least: u128,
    /// Copies moved between two nodes of which neither joined, left, or changed weight or domain.
    pub copies_needless: u128,
}

/// What one node hands to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Who gives. Where a list grew, the first owner.
    pub source: NodeId,
    /// Who takes.
    pub target: NodeId,
    /// Positions whose first owner was the source and is the target.
    pub primaries: u128,
    /// Copies that the target gains in the place of the source.
    pub copies: u128,
    /// Whether neither of the two joined, left, or changed weight or domain.
    pub needless: bool,
}

impl Movement {
    /// Copies moved as a share of the circle; above 1 when more than the whole key space moves.
    #[must_use]
    pub fn copies_share(&self) -> f64 {
        share_of_circle(self.copies)
    }

    /// Primaries moved as a share of the circle.
    #[must_use]
    pub fn primaries_share(&self) -> f64 {
        share_of_circle(self.primaries)
    }

    /// The least possible movement of copies as a share of the circle.
    #[must_use]
    pub fn least_share(&self) -> f64 {
        share_of_circle(self.copies_least)
    }
}

#[derive(Default)]
struct Tally {
    primaries: u128,
    copies: u128,
}

impl Diff<'_> {
    /// Sums up what moves. O(points of both), with one entry per pair of nodes.
    #[must_use]
    pub fn movement(&self) -> Movement {
        let mut tallies: BTreeMap<(NodeIx, NodeIx), Tally> = BTreeMap::new();
        for change in self.primaries() {
            let pair = (change.old[0], change.new[0]);
            tallies.entry(pair).or_default().primaries += change.interval.len();
        }
        for change in self.replica_sets() {
            let arrived = |node: &&NodeIx| {
                !change
                    .old
                    .iter()
                    .any(|&old| self.new_rank[old.get()] == **node)
            };
            let departed = |node: &&NodeIx| !change.new.contains(&self.new_rank[node.get()]);
            let sources = change
                .old
                .iter()
                .filter(departed)
                .chain(core::iter::repeat(&change.old[0]));
            for (&target, &source) in change.new.iter().filter(arrived).zip(sources) {
                tallies.entry((source, target)).or_default().copies += change.interval.len();
            }
        }
        let mut movement = Movement {
            copies_least: self.copies_least(),
            ..Movement::default()
        };
        for ((source, target), Tally { primaries, copies }) in tallies {
            let needless = self.is_settled(source, target);
            movement.primaries += primaries;
            movement.copies += copies;
            movement.copies_needless += if needless { copies } else { 0 };
            let source = self.old.node(source).id.clone();
            let target = self.new.node(target).id.clone();
            movement.flows.push(Flow {
                source,
                target,
                primaries,
                copies,
                needless,
            });
        }
        movement
    }

    /// Whether the change is about neither of the two.
    fn is_settled(&self, source: NodeIx, target: NodeIx) -> bool {
        let old_target = self.old.index_of(&self.new.node(target).id);
        let settled = |old: NodeIx| {
            self.new_rank(old).is_some_and(|new| {
                let (old, new) = (self.old.node(old), self.new.node(new));
                old.weight == new.weight && old.domain == new.domain
            })
        };
        settled(source) && old_target.is_some_and(settled)
    }

    fn copies_least(&self) -> u128 {
        let before = copies_held(self.old);
        let mut had = alloc::vec![0; self.new.nodes().len()];
        for (old, held) in before.iter().enumerate() {
            if let Some(new) = self.new_rank(NodeIx::of(old)) {
                had[new.get()] = *held;
            }
        }
        copies_held(self.new)
            .iter()
            .zip(had)
            .map(|(has, had)| has.saturating_sub(had))
            .sum()
    }
}

/// The positions that each node holds as any replica.
pub(crate) fn copies_held(placement: &Placement) -> Vec<u128> {
    let mut held = alloc::vec![0; placement.nodes().len()];
    for (interval, owners) in placement.intervals() {
        for owner in owners {
            held[owner.get()] += interval.len();
        }
    }
    held
}
