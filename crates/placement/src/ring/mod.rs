//! The ring: every node stands at many hashed points, as many as its weight asks for.
//!
//! Karger and others, 1997, with virtual nodes. Points depend on the node's id and on the scheme alone, so
//! a join takes only what lies before the newcomer's points, a leave gives away only what the leaver had,
//! and a new weight adds or removes points of that node only: points are never scaled by the total.

mod live;

use alloc::vec::Vec;

use crate::modulo::gcd;
use crate::placement::Roll;
use crate::sorted::Sorted;
pub use live::{Ring, RingChange};

use crate::{Member, NodeIx, Placement, PlacementError, Scheme, Weight};

/// The most members of a placement.
pub const MEMBERS_MAX: usize = 10_000;

/// The most points of a ring: 64 MB of them.
pub const POINTS_MAX: u64 = 4_000_000;

/// The points of a node of weight 1 unless something else is asked for.
pub const POINTS_PER_WEIGHT: u32 = 200;

/// What to do where replicas cannot all be on distinct domains, or on distinct nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spread {
    /// Spread them as widely as the members allow, and report what is missing.
    #[default]
    Widest,
    /// Refuse to build unless all replicas are on distinct domains of this depth.
    Distinct {
        /// 0 for distinct nodes only, 1 for the outermost level of the domains, and so on.
        depth: u8,
    },
}

/// All that decides a ring.
///
/// ```
/// use clockwise_placement::{Member, RingSpec};
/// let members = ["a", "b"].map(|id| Member::new(id.parse().unwrap()));
/// let ring = RingSpec::new(members).build()?;
/// assert_eq!(ring.point_count(), 400);
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingSpec {
    /// The recipe for positions.
    pub scheme: Scheme,
    /// Points of a node of weight 1. Every member's weight must come to a whole number of them.
    pub points_per_weight: u32,
    /// How many nodes hold each key.
    pub replicas: u8,
    /// What to do where they cannot be spread.
    pub spread: Spread,
    /// The nodes, in any order.
    pub members: Vec<Member>,
}

impl RingSpec {
    /// A ring of `clockwise/v1` with 200 points per weight and one replica.
    #[must_use]
    pub fn new(members: impl IntoIterator<Item = Member>) -> Self {
        Self {
            scheme: Scheme::default(),
            points_per_weight: POINTS_PER_WEIGHT,
            replicas: 1,
            spread: Spread::default(),
            members: members.into_iter().collect(),
        }
    }

    /// Builds the ring. O(points) in the mean.
    ///
    /// # Errors
    /// See [`PlacementError`]: each names the member or the figure that stands in the way.
    pub fn build(self) -> Result<Placement, PlacementError> {
        let roll = Roll::new(self.members, self.replicas)?;
        let total = count_points(&roll.members, self.points_per_weight)?;
        let copies = |member: &Member| points_of(member.weight, self.points_per_weight);
        let mut points = Vec::with_capacity(total);
        for member in &roll.members {
            let act = |position| points.push(position);
            self.scheme
                .for_each_point(&member.id, 0..copies(member), act);
        }
        let ranked = roll.members.iter().enumerate();
        let runs = ranked.scan(points.as_slice(), |left, (rank, member)| {
            let (run, rest) = left.split_at(copies(member) as usize);
            *left = rest;
            Some((NodeIx::of(rank), run))
        });
        let (sorted, owners) = Sorted::scatter(total, runs);
        let placement = roll.into_sorted_ring(self.scheme, sorted, owners);
        enforce(self.spread, placement)
    }
}

/// Refuses a ring whose replicas are not spread as they must be.
fn enforce(spread: Spread, ring: Placement) -> Result<Placement, PlacementError> {
    match spread {
        Spread::Widest => Ok(ring),
        Spread::Distinct { depth } => refuse_shared_domains(ring, depth),
    }
}

/// The points of a node of this weight; exact wherever `count_points` has passed.
fn points_of(weight: Weight, points_per_weight: u32) -> u32 {
    let points = u64::from(weight.hundredths()) * u64::from(points_per_weight) / 100;
    u32::try_from(points).expect("the total was found to be within the limit")
}

/// How many points all members have together, if each has a whole number and they are not too many.
fn count_points(members: &[Member], points_per_weight: u32) -> Result<usize, PlacementError> {
    let mut total: u64 = 0;
    for Member { id, weight, .. } in members {
        if weight.hundredths() == 0 {
            return Err(PlacementError::ZeroWeight { node: id.clone() });
        }
        let hundredfold = u64::from(weight.hundredths()) * u64::from(points_per_weight);
        if hundredfold == 0 || hundredfold % 100 != 0 {
            return Err(PlacementError::UnevenPoints {
                node: id.clone(),
                weight: *weight,
                points_per_weight,
            });
        }
        // At most 10,000 times 2^64 / 100.
        total = total.saturating_add(hundredfold / 100);
    }
    if total > POINTS_MAX {
        return Err(PlacementError::TooManyPoints {
            points: total,
            points_per_weight,
            points_per_weight_max: fitting_unit(members),
        });
    }
    Ok(usize::try_from(total).expect("4,000,000 fit"))
}

/// The most points per weight that are whole for every member and within the limit together.
fn fitting_unit(members: &[Member]) -> Option<u32> {
    let weights = || {
        members
            .iter()
            .map(|member| u64::from(member.weight.hundredths()))
    };
    let step = 100 / gcd(weights().fold(0, gcd), 100);
    let points_per_step = weights().sum::<u64>() * step / 100;
    let steps = POINTS_MAX / points_per_step;
    u32::try_from(steps * step).ok().filter(|&unit| unit > 0)
}

/// Every point of a ring spreads its replicas equally well, so one of them speaks for all.
fn refuse_shared_domains(ring: Placement, depth: u8) -> Result<Placement, PlacementError> {
    let replicas = ring.replicas_wanted();
    let list = ring.list(0);
    if list.len() < usize::from(replicas) {
        return Err(PlacementError::TooFewNodes {
            replicas,
            nodes: list.len(),
        });
    }
    let domains = match usize::from(depth).checked_sub(1) {
        None => list.len(),
        Some(level) if level < ring.topology.depth() => ring.topology.distinct(list, level),
        // Nobody said where the nodes stand: they may all be in one place.
        Some(_) => 1,
    };
    if domains < usize::from(replicas) {
        return Err(PlacementError::TooFewDomains {
            replicas,
            domains,
            depth,
        });
    }
    Ok(ring)
}
