//! Rendezvous: every node draws a number for the key, and the best draw owns it.
//!
//! Thaler and Ravishankar, 1998; with weights Schindelhauer and Schomaker, 2005. There is no ring and no
//! table: a join takes exactly the keys that the newcomer wins, a leave gives away exactly what the leaver
//! had, balance is that of the hash, and weights are met exactly. The price is one draw per node and
//! lookup, so it is for tens of nodes.
//!
//! A node's draw is a mix of the key's position and a number made from its id. With weights the smallest
//! −log2(draw)/weight wins; the logarithm is in integers, so every machine agrees. Nodes of one weight
//! keep their order among themselves whether others have another weight or not.

use alloc::boxed::Box;
use core::cmp::Ordering;

use crate::draw::{minus_log2, mix};
use crate::measure::Owners;
use crate::placement::Roll;
use crate::preference::Taken;
use crate::topology::{Crowd, Topology};
use crate::{Member, NodeIx, PlacementError, Position, Scheme};

/// Nodes that own keys by draw.
///
/// ```
/// use clockwise_placement::{Member, Owners, Rendezvous, Scheme};
/// let nodes = ["a", "b", "c"].map(|id| Member::new(id.parse().unwrap()));
/// let nodes = Rendezvous::new(Scheme::default(), nodes)?;
/// let best: Vec<_> = nodes.preference(nodes.scheme().position(b"user:42")).collect();
/// assert_eq!((best.len(), best[0]), (3, nodes.owner_of(b"user:42")));
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rendezvous {
    scheme: Scheme,
    members: Box<[Member]>,
    topology: Topology,
    // By rank: what a draw is mixed from.
    seeds: Box<[u64]>,
    is_weighted: bool,
}

/// What a node drew: the smaller wins.
#[derive(Clone, Copy)]
struct Draw {
    log: u32,
    weight: u32,
    hash: u64,
}

impl Draw {
    /// By log/weight. Among nodes of one weight that is the order of the hashes, the greatest first.
    #[inline]
    fn beats(self, other: Self) -> Ordering {
        let mine = u64::from(self.log) * u64::from(other.weight);
        let theirs = u64::from(other.log) * u64::from(self.weight);
        mine.cmp(&theirs).then(other.hash.cmp(&self.hash))
    }
}

impl Rendezvous {
    /// Nodes in any order; only their ids, weights and domains count.
    ///
    /// # Errors
    /// No members, too many, an id twice, a weight of 0, domains of unequal depth.
    pub fn new(
        scheme: Scheme,
        members: impl IntoIterator<Item = Member>,
    ) -> Result<Self, PlacementError> {
        let roll = Roll::new(members, 1)?;
        roll.refuse_zero_weights()?;
        let weights = || roll.members.iter().map(|member| member.weight);
        Ok(Self {
            is_weighted: weights().min() != weights().max(),
            seeds: roll
                .members
                .iter()
                .map(|member| scheme.point(&member.id, 0).0)
                .collect(),
            topology: roll.topology,
            members: roll.members.into(),
            scheme,
        })
    }

    /// The node that owns a position. O(nodes), no allocation.
    #[must_use]
    pub fn owner_at(&self, position: Position) -> NodeIx {
        let nodes = || (0..self.members.len()).map(NodeIx::of);
        let best = if self.is_weighted {
            nodes().min_by(|&a, &b| self.draw(position, a).beats(self.draw(position, b)))
        } else {
            nodes().min_by_key(|&node| !self.hash(position, node))
        };
        best.expect("there is at least one member")
    }

    /// All nodes in the order in which a position prefers them: by draw, spread over failure domains as
    /// the replicas of a ring are. O(nodes) a step; allocates only past the fourteenth.
    pub fn preference(&self, position: Position) -> impl Iterator<Item = NodeIx> + '_ {
        let mut taken = Taken::new();
        core::iter::from_fn(move || {
            let next = self.next_of(position, &taken)?;
            taken.push(next);
            Some(next)
        })
    }

    fn next_of(&self, position: Position, taken: &Taken) -> Option<NodeIx> {
        let left = (0..self.members.len())
            .map(NodeIx::of)
            .filter(|&node| !taken.contains(node));
        let ranked = left.map(|node| {
            let crowd: Crowd = self.topology.crowd(node, taken.iter());
            (crowd, self.draw(position, node), node)
        });
        let best = ranked.min_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.beats(b.1)));
        best.map(|(_, _, node)| node)
    }

    #[inline]
    fn hash(&self, position: Position, node: NodeIx) -> u64 {
        mix(position.0 ^ self.seeds[node.get()])
    }

    #[inline]
    fn draw(&self, position: Position, node: NodeIx) -> Draw {
        let hash = self.hash(position, node);
        Draw {
            log: minus_log2(hash),
            weight: self.members[node.get()].weight.hundredths(),
            hash,
        }
    }
}

impl Owners for Rendezvous {
    fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    fn nodes(&self) -> &[Member] {
        &self.members
    }

    fn owner_of(&self, key: &[u8]) -> NodeIx {
        self.owner_at(self.scheme.position(key))
    }
}
