//! All nodes in the order in which a position prefers them.
//!
//! The replicas come first. Then the walk goes on clockwise over the points by the rule that chose the
//! replicas: the smallest crowd of nodes already taken, outermost level first, then the nearest. Nodes
//! that own no point themselves, which an owner table may have, come last in the order of their ids.

use alloc::vec::Vec;

use crate::topology::Crowd;
use crate::{NodeIx, Placement};

/// How many nodes are remembered without an allocation.
const INLINE: usize = 14;

/// An iterator over distinct nodes; see [`Placement::preference`].
///
/// Replicas cost nothing; the next few nodes cost a walk over a few points each. Allocates only past the
/// fourteenth node.
#[derive(Clone)]
pub struct Preference<'a> {
    placement: &'a Placement,
    start: usize,
    taken: Taken,
    // The points already passed over for the present crowd.
    passed: usize,
    crowd: Crowd,
}

impl<'a> Preference<'a> {
    pub(crate) fn new(placement: &'a Placement, start: usize) -> Self {
        let taken = Taken::new();
        Self {
            placement,
            start,
            taken,
            passed: 0,
            crowd: Crowd::default(),
        }
    }

    /// The next one that the walk finds, once the replicas are through.
    fn walk(&mut self) -> Option<NodeIx> {
        let crowd = self.smallest_crowd()?;
        if crowd != self.crowd {
            self.crowd = crowd;
            self.passed = 0;
        }
        let points = self.placement.point_count();
        while self.passed < points {
            let index = (self.start + self.passed) % points;
            let node = self.placement.list(index)[0];
            if self.is_next(node) {
                return Some(node);
            }
            self.passed += 1;
        }
        self.placed().find(|&node| self.is_next(node))
    }

    fn is_next(&self, node: NodeIx) -> bool {
        !self.taken.contains(node)
            && self.placement.topology.crowd(node, self.taken.iter()) == self.crowd
    }

    /// The smallest crowd that any node left would join; none when no node is left.
    fn smallest_crowd(&self) -> Option<Crowd> {
        let topology = &self.placement.topology;
        let left = self.placed().filter(|&node| !self.taken.contains(node));
        let mut smallest = None;
        for node in left {
            let crowd = topology.crowd(node, self.taken.iter());
            if crowd == Crowd::default() {
                return Some(crowd);
            }
            smallest = Some(smallest.map_or(crowd, |least: Crowd| least.min(crowd)));
        }
        smallest
    }

    /// The nodes that own anything.
    fn placed(&self) -> impl Iterator<Item = NodeIx> + use<'a> {
        let placement = self.placement;
        (0..placement.nodes().len())
            .map(NodeIx::of)
            .filter(|&node| placement.places(node))
    }
}

impl Iterator for Preference<'_> {
    type Item = NodeIx;

    fn next(&mut self) -> Option<NodeIx> {
        let node = match self.placement.list(self.start).get(self.taken.count) {
            Some(&replica) => replica,
            None => self.walk()?,
        };
        self.taken.push(node);
        Some(node)
    }
}

/// The nodes already given out.
#[derive(Clone)]
pub(crate) struct Taken {
    inline: [NodeIx; INLINE],
    spilled: Vec<NodeIx>,
    count: usize,
}

impl Taken {
    pub(crate) fn new() -> Self {
        Self {
            inline: [NodeIx::NONE; INLINE],
            spilled: Vec::new(),
            count: 0,
        }
    }

    pub(crate) fn push(&mut self, node: NodeIx) {
        match self.inline.get_mut(self.count) {
            Some(free) => *free = node,
            None => self.spilled.push(node),
        }
        self.count += 1;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeIx> {
        self.inline[..self.count.min(INLINE)]
            .iter()
            .chain(&self.spilled)
            .copied()
    }

    pub(crate) fn contains(&self, node: NodeIx) -> bool {
        self.iter().any(|taken| taken == node)
    }
}
