//! Choosing the owner table: first the best balance, then the fewest copies moved.
//!
//! Each node's share is computed first ([`super::target`]); then [`super::flow`] finds, among all tables
//! in which every node has its share to the next whole number and every slot the widest spread, one that
//! keeps the most of the present owners. At last each slot gets a first owner among its owners, so that
//! primaries are as even as the owners allow, again with the fewest changes.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;
use core::fmt;

use super::flow::{Bounds, Flow};
use super::primaries;
use super::share::Shared;
use super::step::{Limits, Unavoidable, step};
use super::table::{Kept, Table};
use crate::ends::Ends;
use crate::placement::Roll;
use crate::topology::Topology;
use crate::{Member, NodeId, NodeIx, Placement, PlacementError, Scheme, Spread};

/// The slots of a placement unless something else is asked for.
///
/// A whole number of copies is off by up to N / (P × replicas): this many are within 1 % for 40 nodes with
/// one replica and for 120 with three.
pub const SLOTS_DEFAULT: usize = 4096;

/// All that decides an owner table, but for the present owners.
///
/// ```
/// use clockwise_placement::{Member, SlotsSpec, diff};
/// let member = |id: &str| Member::new(id.parse().unwrap());
/// let three = SlotsSpec { replicas: 2, ..SlotsSpec::new(["a", "b", "c"].map(member)) };
/// let before = three.clone().plan(None)?.placement;
///
/// let four = SlotsSpec { replicas: 2, ..SlotsSpec::new(["a", "b", "c", "d"].map(member)) };
/// let plan = four.plan(Some(&before))?;
/// assert_eq!((plan.copies_moved, plan.copies_least), (2048, 2048));
/// let movement = diff(&before, &plan.placement).unwrap().movement();
/// assert!((movement.copies_share() - 0.5).abs() < 1e-9, "a quarter of two copies of everything");
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotsSpec {
    /// The recipe for positions; only keys are hashed with it.
    pub scheme: Scheme,
    /// How many equal intervals there are.
    pub slots: usize,
    /// How many nodes hold each key.
    pub replicas: u8,
    /// What to do where they cannot be spread.
    pub spread: Spread,
    /// By how many per cent a node may be off its share when that saves moves. 0 for the best balance.
    pub overload_percent: u8,
    /// The most copies that may move now, in per cent of all; [`Unavoidable`] has what moves anyway.
    pub step_percent: u8,
    /// The nodes, in any order. A node of weight 0 gives all its copies away.
    pub members: Vec<Member>,
}

/// An owner table, and what is to be known about it.
#[derive(Clone, Debug)]
pub struct SlotsPlan {
    /// The table as a placement.
    pub placement: Placement,
    /// What each node was to have and what it has, by rank.
    pub nodes: Vec<SlotShare>,
    /// Copies that move now: owners of a slot that do not own it yet. Parts of slots are not among them, see
    /// [`Unavoidable::unaligned`].
    pub copies_moved: usize,
    /// Σ max(0, after − before): no table with these counts moves less, and not always can one so little.
    pub copies_least: usize,
    /// Copies that still have to move after this step.
    pub copies_left: usize,
    /// What moves in this step whatever its limit is. Above the limit, this is what the step moves.
    pub unavoidable: Unavoidable,
    /// The load per weight of the most loaded node over the mean: what the best real-valued shares give.
    pub optimum_over_mean: f64,
    /// Why the shares are not even, and which new nodes do not help.
    pub hints: Vec<Hint>,
}

/// The share of one node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SlotShare {
    /// The node.
    pub node: NodeIx,
    /// The copies that the best balance gives it, as a fraction.
    pub target: f64,
    /// The fewest copies it was allowed.
    pub least: usize,
    /// The most copies it was allowed.
    pub most: usize,
    /// The copies it has when the plan is carried out to its end.
    pub copies: usize,
    /// The slots of which it is the first owner then.
    pub primaries: usize,
    /// What one copy less on this node would let stay elsewhere.
    ///
    /// The prices prove that no table within the bounds keeps more: each is worth at most Σ over slots of
    /// the best row, a kept owner counting 1 and every owner its price less, plus Σ price × bound.
    pub price: i32,
}

/// Something about the nodes that an operator should know before adding more.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Hint {
    /// The domain holds all copies that the spread allows there: more nodes in it relieve only each other.
    DomainFull {
        /// The path of the domain.
        domain: alloc::string::String,
        /// How many copies of each slot it holds.
        copies: u64,
    },
    /// The domain must hold more copies than its weights ask for, since there are too few others.
    DomainStrained {
        /// The path of the domain.
        domain: alloc::string::String,
        /// How many copies of each slot it holds.
        copies: u64,
    },
    /// The most loaded node is not relieved by this new one.
    NoRelief {
        /// The new node.
        node: NodeId,
    },
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_every_key = |copies: u64| match copies {
            1 => "one copy".to_owned(),
            copies => alloc::format!("{copies} copies"),
        };
        match self {
            Self::DomainFull { domain, copies } => write!(
                f,
                "{domain} holds {} of every key, all that the spread allows: more nodes in it relieve only \
                 each other",
                of_every_key(*copies)
            ),
            Self::DomainStrained { domain, copies } => write!(
                f,
                "{domain} must hold {} of every key, more than its weights ask for, since there are too few \
                 others",
                of_every_key(*copies)
            ),
            Self::NoRelief { node } => {
                write!(
                    f,
                    "{node} does not help: the most loaded node has no less without it"
                )
            }
        }
    }
}

impl SlotsSpec {
    /// 4,096 slots of `clockwise/v1` with one replica, best balance, everything moved at once.
    #[must_use]
    pub fn new(members: impl IntoIterator<Item = Member>) -> Self {
        Self {
            scheme: Scheme::default(),
            slots: SLOTS_DEFAULT,
            replicas: 1,
            spread: Spread::default(),
            overload_percent: 0,
            step_percent: 100,
            members: members.into_iter().collect(),
        }
    }

    /// Plans the owner table, keeping what it can of the present owners.
    ///
    /// `current` may be any placement of these keys; with another number of slots or another generator,
    /// a slot's present owners are those with the longest parts of it.
    ///
    /// # Errors
    /// See [`PlacementError`]: faults of the members, of the number of slots, and strict spread.
    pub fn plan(self, current: Option<&Placement>) -> Result<SlotsPlan, PlacementError> {
        let roll = Roll::new(self.members, self.replicas)?;
        let count = super::check_slots(self.slots)?;
        let width = super::width(&roll)?;
        let kept = Kept::new(current, &roll.members, self.slots);
        let table = Table::new(&roll, self.slots, width, kept);
        let shared = table.share(self.overload_percent);
        let mut flow = Flow::new(
            &table,
            table.first_rows(&shared.bounds),
            width,
            shared.bounds.clone(),
            &table.order,
        );
        flow.relieve()
            .and_then(|()| flow.fill())
            .expect("whole numbers next to the shares can be met");
        let owners = primaries::choose(&flow.rows, width, &table);
        let limits = Limits {
            percent: self.step_percent,
            spread: self.spread,
        };
        let (rows, unavoidable) = step(&table, current, &owners, limits);
        let nodes = describe(&table, &flow, &shared, &owners);
        let (copies_moved, copies_left) = (table.moved(&rows), table.left(&rows, &owners));
        let copies_least = table.least(&nodes);
        let mut hints = shared.hints(&roll);
        hints.extend(table.newcomers_without_relief(&roll, current, &shared));
        let optimum_over_mean = table.over_mean(&shared.targets);
        check_spread(&rows, width, self.spread, &roll)?;
        let placement = roll.into_placement(self.scheme, Ends::Equal(count), rows, width);
        Ok(SlotsPlan {
            placement,
            nodes,
            copies_moved,
            copies_least,
            copies_left,
            unavoidable,
            optimum_over_mean,
            hints,
        })
    }
}

fn describe(
    table: &Table<'_>,
    flow: &Flow<'_, Table<'_>>,
    shared: &Shared,
    owners: &[NodeIx],
) -> Vec<SlotShare> {
    let mut nodes: Vec<SlotShare> = (0..table.members.len())
        .map(|rank| {
            let node = NodeIx::of(rank);
            let Bounds { least, most } = shared.bounds[rank];
            let (copies, price) = (flow.count(node), flow.prices[rank]);
            SlotShare {
                node,
                target: 0.0,
                least,
                most,
                copies,
                primaries: 0,
                price,
            }
        })
        .collect();
    for (holder, target) in table.holders.iter().zip(&shared.targets.copies) {
        nodes[holder.node.get()].target = target.as_f64();
    }
    for row in owners.chunks_exact(table.width) {
        nodes[row[0].get()].primaries += 1;
    }
    nodes
}

/// Refuses a table whose slots do not all have the spread that was asked for.
fn check_spread(
    rows: &[NodeIx],
    width: usize,
    spread: Spread,
    roll: &Roll,
) -> Result<(), PlacementError> {
    let Spread::Distinct { depth } = spread else {
        return Ok(());
    };
    let replicas = roll.replicas;
    if width < usize::from(replicas) {
        return Err(PlacementError::TooFewNodes {
            replicas,
            nodes: width,
        });
    }
    let domains = |row: &[NodeIx]| distinct(row, depth, &roll.topology);
    match rows.chunks_exact(width).map(domains).min() {
        Some(domains) if domains < width => Err(PlacementError::TooFewDomains {
            replicas,
            domains,
            depth,
        }),
        _ => Ok(()),
    }
}

/// Whether a row is spread as strictly as is asked for.
pub(super) fn is_spread(row: &[NodeIx], spread: Spread, topology: &Topology) -> bool {
    match spread {
        Spread::Distinct { depth } => distinct(row, depth, topology) == row.len(),
        Spread::Widest => true,
    }
}

/// On how many domains of a depth the owners of a row are, 0 standing for the nodes themselves.
fn distinct(row: &[NodeIx], depth: u8, topology: &Topology) -> usize {
    match usize::from(depth).checked_sub(1) {
        None => row.len(),
        Some(level) if level < topology.depth() => topology.distinct(row, level),
        Some(_) => 1,
    }
}
