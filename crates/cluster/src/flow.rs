//! Who gives keys to whom between two placements.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use clockwise_placement::{NodeIx, Placement, diff};

/// The pairs of first owners between which keys move, in ranks of either placement.
///
/// In one key space the pairs are exact. Where a key has another position afterwards, any owner may give to
/// any: what moves is then decided per key, and all pairs are named.
pub(crate) fn moving_pairs(
    before: &Placement,
    after: &Placement,
    same_space: bool,
) -> Vec<(NodeIx, NodeIx)> {
    let compared = if same_space {
        diff(before, after).ok()
    } else {
        None
    };
    let pairs: BTreeSet<(NodeIx, NodeIx)> = match compared {
        Some(diff) => diff
            .primaries()
            .map(|change| (change.old[0], change.new[0]))
            .collect(),
        None => {
            let targets = owners(after);
            let give = |source: NodeIx| targets.iter().map(move |&target| (source, target));
            let differ = |&(source, target): &(NodeIx, NodeIx)| {
                before.node(source).id != after.node(target).id
            };
            owners(before)
                .iter()
                .flat_map(|&source| give(source))
                .filter(differ)
                .collect()
        }
    };
    pairs.into_iter().collect()
}

/// The nodes that own something first.
fn owners(placement: &Placement) -> BTreeSet<NodeIx> {
    placement.intervals().map(|(_, owners)| owners[0]).collect()
}
