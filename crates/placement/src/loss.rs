//! What happens to the others when a node is lost.
//!
//! Until the membership changes, each position of the lost node falls to the next one of its preference
//! list. Few heirs mean that those who are left fall over one after the other.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::algorithm::{Algorithm, Edit, EditError};
use crate::balance::{Balance, ratio};
use crate::{Member, NodeIx, Placement};

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

/// For each node, what its loss means to the others, as these keys show it.
///
/// An algorithm with a preference list goes on to the next node of it. One without, such as Maglev, places
/// all keys anew without the node; what it cannot do is an error for that node, as with jump for all nodes
/// but the last. Costs one pass over the keys, or one for each node and as many builds.
///
/// ```
/// use clockwise_placement::{Member, Modulo, Scheme, losses_by_keys};
/// let nodes = ["a", "b", "c", "d"].map(|id| Member::new(id.parse().unwrap()));
/// let modulo = Modulo::new(Scheme::default(), nodes)?;
/// let keys = (0..10_000).map(|n| format!("user:{n}"));
/// for loss in losses_by_keys(&modulo, keys) {
///     let loss = loss.unwrap();
///     assert!(loss.heirs == 3 && (1.3..1.4).contains(&loss.worst_over_mean), "{loss:?}");
/// }
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
#[must_use]
pub fn losses_by_keys<K: AsRef<[u8]>>(
    algorithm: &dyn Algorithm,
    keys: impl Iterator<Item = K> + Clone,
) -> Vec<Result<Loss, EditError>> {
    let nodes = algorithm.nodes().len();
    let mut two = [NodeIx::NONE; 2];
    let walks = algorithm.replicas_of(b"", &mut two).is_some();
    if nodes == 1 || !walks {
        let without = |node| lost_by_edit(algorithm, NodeIx::of(node), keys.clone());
        return (0..nodes).map(without).collect();
    }
    let mut held = alloc::vec![0u128; nodes];
    let mut inherited: BTreeMap<(NodeIx, NodeIx), u128> = BTreeMap::new();
    for key in keys {
        algorithm.replicas_of(key.as_ref(), &mut two);
        let [owner, heir] = two;
        held[owner.get()] += 1;
        *inherited.entry((owner, heir)).or_default() += 1;
    }
    let lose = |node: NodeIx| {
        let mut after = held.clone();
        after[node.get()] = 0;
        let heirs = inherited.range((node, NodeIx::of(0))..=(node, NodeIx::NONE));
        for (&(_, heir), keys) in heirs.clone() {
            after[heir.get()] += keys;
        }
        Ok(Loss::of(algorithm.nodes(), node, heirs.count(), &after))
    };
    (0..nodes).map(NodeIx::of).map(lose).collect()
}

/// The loss of a node that the algorithm places all keys anew without.
fn lost_by_edit<K: AsRef<[u8]>>(
    algorithm: &dyn Algorithm,
    node: NodeIx,
    keys: impl Iterator<Item = K>,
) -> Result<Loss, EditError> {
    let members = algorithm.nodes();
    let mut after = alloc::vec![0u128; members.len()];
    if members.len() == 1 {
        return Ok(Loss::of(members, node, 0, &after));
    }
    let without = algorithm.edited(&Edit::Leave(members[node.get()].id.clone()))?;
    let mut rank_of_id: BTreeMap<_, _> = (0..)
        .map(NodeIx::of)
        .zip(members)
        .map(|(rank, member)| (&member.id, rank))
        .collect();
    rank_of_id.remove(&members[node.get()].id);
    let ranks: Vec<NodeIx> = without
        .nodes()
        .iter()
        .map(|member| rank_of_id[&member.id])
        .collect();
    let mut is_heir = alloc::vec![false; members.len()];
    for key in keys {
        let key = key.as_ref();
        let owner = ranks[without.owner_of(key).get()];
        after[owner.get()] += 1;
        is_heir[owner.get()] |= algorithm.owner_of(key) == node;
    }
    let heirs = is_heir.into_iter().filter(|&is_heir| is_heir).count();
    Ok(Loss::of(members, node, heirs, &after))
}

impl Loss {
    /// The loss of a node after which the others have these loads, beside their fair parts before.
    fn of(members: &[Member], node: NodeIx, heirs: usize, after: &[u128]) -> Self {
        let loads = Balance::of(members, after).loads;
        let others = loads.iter().filter(|load| load.node != node);
        let worst = others.reduce(|worst, load| {
            if load.over_mean > worst.over_mean {
                load
            } else {
                worst
            }
        });
        Self {
            node,
            heirs,
            worst: worst.map(|load| load.node),
            worst_over_mean: worst.map_or(0.0, |load| load.over_mean),
        }
    }
}
