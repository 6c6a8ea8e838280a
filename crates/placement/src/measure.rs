//! Measures taken with keys: how many each node has, and how many move.
//!
//! Interval lengths tell what a ring would do with endlessly many keys; keys tell what it does with these.

use alloc::vec::Vec;

use crate::balance::Balance;
use crate::{Member, NodeId, NodeIx, Placement, Scheme};

/// Anything that names an owner for a key: what can be measured and compared by keys.
pub trait Owners {
    /// The recipe that keys are hashed with.
    fn scheme(&self) -> &Scheme;
    /// The nodes, each at its rank.
    fn nodes(&self) -> &[Member];
    /// The node that owns a key.
    fn owner_of(&self, key: &[u8]) -> NodeIx;
}

impl Owners for Placement {
    fn scheme(&self) -> &Scheme {
        Self::scheme(self)
    }

    fn nodes(&self) -> &[Member] {
        Self::nodes(self)
    }

    fn owner_of(&self, key: &[u8]) -> NodeIx {
        self.owner_at(self.position(key))
    }
}

/// What keys say of a placement, and of its change to another one.
#[derive(Clone, PartialEq, Debug)]
pub struct KeyMeasure {
    /// The nodes before the change, in order, with the keys they own.
    pub nodes: Vec<NodeKeys>,
    /// The most loaded node's keys over its fair part.
    pub max_over_mean: f64,
    /// The least loaded node's keys over its fair part.
    pub min_over_mean: f64,
    /// What the change moves, if there is one.
    pub moves: Option<KeyMoves>,
}

/// The keys of one node.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeKeys {
    /// The node.
    pub id: NodeId,
    /// How many keys it owns.
    pub keys: u64,
    /// The part of all keys, 0 through 1.
    pub share: f64,
}

/// How many keys a change moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyMoves {
    /// Keys whose owner changes.
    pub moved: u64,
    /// Keys among them that move between two nodes which neither joined, left, nor changed.
    pub needless: u64,
    /// Keys that `hash % N` would have moved, with the same hash and numbers of nodes.
    pub modulo_moved: u64,
}

/// Asks for the owner of every key, before a change and after it. One pass over the keys.
///
/// ```
/// use clockwise_placement::{Member, RingSpec, measure_keys};
/// let ring = |nodes: usize| {
///     RingSpec::new((0..nodes).map(|n| Member::new(format!("cache-{n}").parse().unwrap()))).build()
/// };
/// let keys = (0..10_000).map(|n| format!("user:{n}"));
/// let measure = measure_keys(&ring(10)?, Some(&ring(11)?), keys);
/// let moves = measure.moves.unwrap();
/// assert!(moves.moved < 1_200 && moves.needless == 0 && moves.modulo_moved > 9_000);
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
#[must_use]
pub fn measure_keys<K: AsRef<[u8]>>(
    before: &dyn Owners,
    after: Option<&dyn Owners>,
    keys: impl IntoIterator<Item = K>,
) -> KeyMeasure {
    let mut counts = alloc::vec![0u64; before.nodes().len()];
    let mut moves =
        after.map(|after| (after, Counterparts::new(before, after), KeyMoves::default()));
    for key in keys {
        let key = key.as_ref();
        let owner = before.owner_of(key);
        counts[owner.get()] += 1;
        if let Some((after, counterparts, moves)) = &mut moves {
            let new_owner = after.owner_of(key);
            let moved = counterparts.new_rank[owner.get()] != new_owner;
            let needless =
                counterparts.old_settled[owner.get()] && counterparts.new_settled[new_owner.get()];
            let index = |owners: &dyn Owners| before.scheme().modulo(key, owners.nodes().len());
            moves.moved += u64::from(moved);
            moves.needless += u64::from(moved && needless);
            moves.modulo_moved += u64::from(index(before) != index(*after));
        }
    }
    let loads: Vec<u128> = counts.iter().map(|&count| count.into()).collect();
    let balance = Balance::of(before.nodes(), &loads);
    let node = |((member, &keys), load): ((&Member, &u64), &crate::Load)| NodeKeys {
        id: member.id.clone(),
        keys,
        share: load.share,
    };
    KeyMeasure {
        nodes: before
            .nodes()
            .iter()
            .zip(&counts)
            .zip(&balance.loads)
            .map(node)
            .collect(),
        max_over_mean: balance.max_over_mean,
        min_over_mean: balance.min_over_mean,
        moves: moves.map(|(_, _, moves)| moves),
    }
}

/// The load of every node when keys are asked for so often each: equal keys are not equal requests.
///
/// ```
/// use clockwise_placement::{Member, RingSpec, weigh_requests};
/// let ring = RingSpec::new(["a", "b", "c"].map(|id| Member::new(id.parse().unwrap()))).build()?;
/// let mut requests: Vec<(String, u64)> = (0..1000).map(|n| (format!("user:{n}"), 1)).collect();
/// requests.push(("user:hot".into(), 1000));
/// assert!(weigh_requests(&ring, requests).max_over_mean > 1.5);
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
#[must_use]
pub fn weigh_requests<K: AsRef<[u8]>>(
    owners: &dyn Owners,
    requests: impl IntoIterator<Item = (K, u64)>,
) -> Balance {
    let mut loads = alloc::vec![0u128; owners.nodes().len()];
    for (key, count) in requests {
        loads[owners.owner_of(key.as_ref()).get()] += u128::from(count);
    }
    Balance::of(owners.nodes(), &loads)
}

/// Which nodes of two memberships are the same, and which of those stayed as they were.
struct Counterparts {
    new_rank: Vec<NodeIx>,
    old_settled: Vec<bool>,
    new_settled: Vec<bool>,
}

impl Counterparts {
    fn new(before: &dyn Owners, after: &dyn Owners) -> Self {
        let mut new: Vec<(&Member, NodeIx)> = after
            .nodes()
            .iter()
            .enumerate()
            .map(|(rank, member)| (member, NodeIx::of(rank)))
            .collect();
        new.sort_unstable_by(|(a, _), (b, _)| a.id.cmp(&b.id));
        let mut counterparts = Self {
            new_rank: Vec::new(),
            old_settled: Vec::new(),
            new_settled: alloc::vec![false; after.nodes().len()],
        };
        for old in before.nodes() {
            let found = new
                .binary_search_by(|(member, _)| member.id.cmp(&old.id))
                .ok();
            let found = found.map(|at| new[at]);
            let settled =
                found.is_some_and(|(new, _)| new.weight == old.weight && new.domain == old.domain);
            counterparts
                .new_rank
                .push(found.map_or(NodeIx::NONE, |(_, rank)| rank));
            counterparts.old_settled.push(settled);
            if let Some((_, rank)) = found {
                counterparts.new_settled[rank.get()] = settled;
            }
        }
        counterparts
    }
}
