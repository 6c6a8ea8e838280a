//! Bounded loads: a node that has its fill is passed over, and the next one preferred takes the request.
//!
//! Mirrokni, Thorup and Zadimoghaddam, 2016. The bound is on what the caller counts, best the requests in
//! flight, and it moves with them: every node may have up to a factor over its fair part. It is for
//! requests, not for stored data: where data lies would depend on the order in which it came.

use crate::{Member, NodeIx};

/// By how much a node's load may exceed its fair part.
///
/// ```
/// use clockwise_placement::{LoadBound, Member, Position, RingSpec, WhenFull};
/// let ring = RingSpec::new(["a", "b", "c"].map(|id| Member::new(id.parse().unwrap()))).build()?;
/// let bound = LoadBound::percent(125, WhenFull::Owner).unwrap();
/// let mut in_flight = [0u64; 3];
/// for _ in 0..30 {
///     let loads = |node: clockwise_placement::NodeIx| in_flight[node.get()];
///     let chosen = bound.choose(ring.nodes(), ring.preference(Position(7)), 30, loads).unwrap();
///     in_flight[chosen.node.get()] += 1;
/// }
/// assert_eq!(in_flight.iter().max(), Some(&13), "one hot key, and nobody above 1.25 × 10");
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadBound {
    percent: u32,
    when_full: WhenFull,
}

/// Whom to take when every node has its fill, as stale or foreign counts can make it seem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// The owner, as if there were no bound.
    Owner,
    /// The node with the smallest load over its fair part.
    LeastLoaded,
    /// Nobody: the caller sheds the request.
    Nobody,
}

/// Who takes a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// The node.
    pub node: NodeIx,
    /// How many nodes were passed over for it.
    pub passed: usize,
    /// Whether it is within its bound; otherwise every node was full.
    pub is_within: bool,
}

impl LoadBound {
    /// A bound in per cent of the fair part: 125 lets a node have a quarter more. None below 100, where
    /// not all requests would find a place.
    #[must_use]
    pub fn percent(percent: u32, when_full: WhenFull) -> Option<Self> {
        (percent >= 100).then_some(Self { percent, when_full })
    }

    /// How much a node may have of a total, rounded up.
    #[must_use]
    pub fn capacity(&self, member: &Member, weights: u64, total: u64) -> u64 {
        let weight = u128::from(member.weight.hundredths());
        let allowed = u128::from(self.percent) * u128::from(total) * weight;
        let capacity = allowed.div_ceil(100 * u128::from(weights.max(1)));
        u64::try_from(capacity).unwrap_or(u64::MAX)
    }

    /// The first node in the order of preference that is below its capacity.
    ///
    /// `total` is the load of all nodes with the request to be placed; `load` is asked for nodes of
    /// `members` only, so a node that left with requests in flight does no harm. Each node is asked once:
    /// the walk ends after one lap.
    pub fn choose(
        &self,
        members: &[Member],
        preference: impl IntoIterator<Item = NodeIx>,
        total: u64,
        load: impl Fn(NodeIx) -> u64,
    ) -> Option<Chosen> {
        let weights = members
            .iter()
            .map(|member| u64::from(member.weight.hundredths()))
            .sum();
        let mut owner = None;
        let mut least: Option<(NodeIx, u64, u64)> = None;
        for (passed, node) in preference.into_iter().enumerate() {
            let (load, capacity) = (
                load(node),
                self.capacity(&members[node.get()], weights, total),
            );
            if load < capacity {
                return Some(Chosen {
                    node,
                    passed,
                    is_within: true,
                });
            }
            owner = owner.or(Some(node));
            let weight = u64::from(members[node.get()].weight.hundredths());
            let is_less = |&(_, other, other_weight): &(NodeIx, u64, u64)| {
                u128::from(load) * u128::from(other_weight) < u128::from(other) * u128::from(weight)
            };
            if least.as_ref().is_none_or(is_less) {
                least = Some((node, load, weight));
            }
        }
        let node = match self.when_full {
            WhenFull::Owner => owner,
            WhenFull::LeastLoaded => least.map(|(node, _, _)| node),
            WhenFull::Nobody => None,
        };
        node.map(|node| Chosen {
            node,
            passed: 0,
            is_within: false,
        })
    }
}
