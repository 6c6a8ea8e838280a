//! Choosing the owner table: first the best balance, then the fewest copies moved.
//!
//! Each node's share is computed first ([`super::target`]); then [`super::flow`] finds, among all tables
//! in which every node has its share to the next whole number and every slot the widest spread, one that
//! keeps the most of the present owners. At last each slot gets a first owner among its owners, so that
//! primaries are as even as the owners allow, again with the fewest changes.

use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64;

use super::flow::{Bounds, Flow, Rows};
use super::primaries;
use super::target::{Bound, Holder, Ratio, Targets, targets};
use crate::draw::{minus_log2, mix};
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
    /// The most copies that may move now, in per cent of all. What must leave a missing node moves anyway.
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
    /// Copies that move now: owners of a slot that do not own it yet.
    pub copies_moved: usize,
    /// Σ max(0, after − before): no table with these counts moves less, and not always can one so little.
    pub copies_least: usize,
    /// Copies that still have to move after this step.
    pub copies_left: usize,
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
        let rows = table.step(&owners, self.step_percent);
        let nodes = table.describe(&flow, &shared, &owners);
        let (copies_moved, copies_all) = (table.moved(&rows), table.moved(&owners));
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
            copies_left: copies_all - copies_moved,
            optimum_over_mean,
            hints,
        })
    }
}

/// The present owners of each slot, as ranks among the new members.
pub(super) struct Kept {
    // Row-major, `width` for each slot, in their order; NONE where the owner is no member any more.
    owners: Vec<NodeIx>,
    width: usize,
}

impl Kept {
    fn new(current: Option<&Placement>, members: &[Member], slots: usize) -> Self {
        let Some(current) = current else {
            return Self {
                owners: Vec::new(),
                width: 0,
            };
        };
        let rank = |id: &NodeId| members.binary_search_by(|member| member.id.cmp(id)).ok();
        let rank_of = |node: NodeIx| rank(&current.node(node).id).map_or(NodeIx::NONE, NodeIx::of);
        let width = current.replicas_placed();
        let mut owners = Vec::with_capacity(slots * width);
        for slot in 0..slots {
            owners.extend(
                super::owners_of_slot(current, slot, slots)
                    .into_iter()
                    .map(rank_of),
            );
        }
        Self { owners, width }
    }

    pub(super) fn row(&self, slot: usize) -> &[NodeIx] {
        self.owners
            .get(slot * self.width..)
            .map_or(&[], |rest| &rest[..self.width])
    }
}

/// The rules of a table: which rows are valid, and what they keep.
pub(super) struct Table<'a> {
    topology: &'a Topology,
    members: &'a [Member],
    // The nodes that may own slots.
    holders: Vec<Holder>,
    pub(super) slots: usize,
    pub(super) width: usize,
    pub(super) kept: Kept,
    // A number for each node that depends on its id alone.
    seeds: Vec<u64>,
    // The slots as a fixed shuffle, so that neighbours do not share their fate.
    pub(super) order: Vec<u32>,
}

/// What every node is to have.
struct Shared {
    targets: Targets,
    // By rank; nodes of weight 0 have nothing.
    bounds: Vec<Bounds>,
}

impl Rows for Table<'_> {
    fn worth(&self, slot: usize, node: NodeIx) -> i32 {
        i32::from(self.kept.row(slot).contains(&node))
    }

    fn may_swap(&self, _: usize, row: &[NodeIx], leaving: NodeIx, entering: NodeIx) -> bool {
        if self.members[entering.get()].weight.hundredths() == 0 {
            return false;
        }
        let others = || row.iter().copied().filter(|&node| node != leaving);
        self.topology.depth() == 0
            || self.topology.crowd(entering, others()) == self.topology.crowd(leaving, others())
    }
}

impl<'a> Table<'a> {
    fn new(roll: &'a Roll, slots: usize, width: usize, kept: Kept) -> Self {
        let weigh = |(rank, member): (usize, &Member)| Holder {
            node: NodeIx::of(rank),
            weight: member.weight.hundredths().into(),
        };
        let holders = roll
            .members
            .iter()
            .enumerate()
            .map(weigh)
            .filter(|holder| holder.weight > 0);
        let mut order: Vec<u32> = (0..).take(slots).collect();
        order.sort_by_key(|&slot| mix(slot.into()));
        Self {
            topology: &roll.topology,
            members: &roll.members,
            holders: holders.collect(),
            slots,
            width,
            kept,
            seeds: roll
                .members
                .iter()
                .map(|member| xxh3_64(member.id.as_str().as_bytes()))
                .collect(),
            order,
        }
    }

    fn share(&self, overload_percent: u8) -> Shared {
        let targets = targets(
            &self.holders,
            self.topology,
            self.slots as u64,
            self.width as u64,
        );
        let mut bounds = alloc::vec![Bounds { least: 0, most: 0 }; self.members.len()];
        let scaled = |share: Ratio, percent: u128| Ratio {
            over: share.over * percent,
            under: share.under * 100,
        };
        let overload = u128::from(overload_percent);
        for (holder, &share) in self.holders.iter().zip(&targets.copies) {
            let least = scaled(share, 100 - overload.min(100)).floor() as usize;
            let most = (scaled(share, 100 + overload).ceil() as usize).min(self.slots);
            bounds[holder.node.get()] = Bounds { least, most };
        }
        Shared { targets, bounds }
    }

    /// Valid rows that keep as much as rows can. What is free goes to the nodes that lack most, by lot.
    fn first_rows(&self, bounds: &[Bounds]) -> Vec<NodeIx> {
        let mut room: Vec<i64> = bounds.iter().map(|bounds| bounds.most as i64).collect();
        for slot in 0..self.slots {
            for node in self
                .kept
                .row(slot)
                .iter()
                .filter(|&&node| node != NodeIx::NONE)
            {
                room[node.get()] -= 1;
            }
        }
        let mut rows = alloc::vec![NodeIx::NONE; self.slots * self.width];
        for &slot in &self.order {
            let slot = slot as usize;
            let row = &mut rows[slot * self.width..][..self.width];
            for taken in 0..self.width {
                row[taken] = self.draw(slot, &row[..taken], &room);
            }
            self.keep_more(slot, row);
            let kept = self.kept.row(slot);
            for node in row.iter().filter(|node| !kept.contains(node)) {
                room[node.get()] -= 1;
            }
            for node in kept
                .iter()
                .filter(|&&node| node != NodeIx::NONE && !row.contains(&node))
            {
                room[node.get()] += 1;
            }
        }
        rows
    }

    /// The next node of a row: of those that spread it widest a present owner, else one drawn by its room.
    fn draw(&self, slot: usize, row: &[NodeIx], room: &[i64]) -> NodeIx {
        let left = || {
            self.holders
                .iter()
                .map(|holder| holder.node)
                .filter(|node| !row.contains(node))
        };
        let crowd = |node: NodeIx| self.topology.crowd(node, row.iter().copied());
        let least = left()
            .map(crowd)
            .min()
            .expect("a row is no longer than there are holders");
        let mut drawn: Option<(NodeIx, u64, i64)> = None;
        for node in left().filter(|&node| crowd(node) == least) {
            if self.kept.row(slot).contains(&node) {
                return node;
            }
            let (lot, room) = (
                u64::from(minus_log2(self.lot(slot, node))),
                room[node.get()],
            );
            let wins = drawn.is_none_or(|(_, best_lot, best_room)| {
                match (room > 0, best_room > 0) {
                    // The smaller lot per room wins.
                    (true, true) => lot * best_room.unsigned_abs() < best_lot * room.unsigned_abs(),
                    (false, false) => (room, best_lot) > (best_room, lot),
                    (has_room, _) => has_room,
                }
            });
            if wins {
                drawn = Some((node, lot, room));
            }
        }
        drawn.expect("the smallest crowd is somebody's").0
    }

    /// Swaps present owners in where the row stays valid. For a matroid, none left means none possible.
    fn keep_more(&self, slot: usize, row: &mut [NodeIx]) {
        let kept = self.kept.row(slot);
        for &node in kept.iter().filter(|&&node| node != NodeIx::NONE) {
            if row.contains(&node) {
                continue;
            }
            let leaving = row.iter().position(|&leaving| {
                !kept.contains(&leaving) && self.may_swap(slot, row, leaving, node)
            });
            if let Some(at) = leaving {
                row[at] = node;
            }
        }
    }

    /// A number for a slot and a node that looks random.
    pub(super) fn lot(&self, slot: usize, node: NodeIx) -> u64 {
        mix(self.seeds[node.get()] ^ mix(slot as u64))
    }

    /// A node's weight in hundredths.
    pub(super) fn weight(&self, node: NodeIx) -> u64 {
        self.members[node.get()].weight.hundredths().into()
    }

    /// How many nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.members.len()
    }

    /// Rows changed to the new ones until the share of copies is used up.
    fn step(&self, owners: &[NodeIx], percent: u8) -> Vec<NodeIx> {
        let mut rows = owners.to_vec();
        if percent >= 100 || self.kept.width != self.width {
            return rows;
        }
        let mut left = owners.len() * usize::from(percent) / 100;
        let must = |slot: &u32| !self.kept.row(*slot as usize).contains(&NodeIx::NONE);
        let mut order = self.order.clone();
        order.sort_by_key(must);
        for slot in order {
            let at = slot as usize * self.width;
            let kept = self.kept.row(slot as usize);
            let row = &mut rows[at..at + self.width];
            let moved = row.iter().filter(|node| !kept.contains(node)).count();
            if must(&slot) && moved > left {
                row.copy_from_slice(kept);
            } else {
                left = left.saturating_sub(moved);
            }
        }
        rows
    }

    /// Copies that a table gives to nodes that do not have them. Without present owners nothing moves.
    fn moved(&self, rows: &[NodeIx]) -> usize {
        if self.kept.width == 0 {
            return 0;
        }
        let rows = rows.chunks_exact(self.width).enumerate();
        rows.map(|(slot, row)| {
            row.iter()
                .filter(|node| !self.kept.row(slot).contains(node))
                .count()
        })
        .sum()
    }

    fn least(&self, nodes: &[SlotShare]) -> usize {
        if self.kept.width == 0 {
            return 0;
        }
        let mut before = alloc::vec![0; self.members.len()];
        for node in self
            .kept
            .owners
            .iter()
            .filter(|&&node| node != NodeIx::NONE)
        {
            before[node.get()] += 1;
        }
        nodes
            .iter()
            .zip(before)
            .map(|(share, before)| share.copies.saturating_sub(before))
            .sum()
    }

    fn describe(
        &self,
        flow: &Flow<'_, Self>,
        shared: &Shared,
        owners: &[NodeIx],
    ) -> Vec<SlotShare> {
        let mut nodes: Vec<SlotShare> = (0..self.members.len())
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
        for (holder, target) in self.holders.iter().zip(&shared.targets.copies) {
            nodes[holder.node.get()].target = target.as_f64();
        }
        for row in owners.chunks_exact(self.width) {
            nodes[row[0].get()].primaries += 1;
        }
        nodes
    }

    /// The most loaded node's share over the part that its weight alone would give it.
    fn over_mean(&self, targets: &Targets) -> f64 {
        let weights: u64 = self.holders.iter().map(|holder| holder.weight).sum();
        let copies = (self.slots * self.width) as f64;
        let loads = self.holders.iter().zip(&targets.copies);
        let over = loads.map(|(holder, share)| share.as_f64() / holder.weight as f64);
        over.fold(0.0, f64::max) * weights as f64 / copies
    }

    /// The newcomers without which the most loaded node would have no more.
    fn newcomers_without_relief(
        &self,
        roll: &Roll,
        current: Option<&Placement>,
        shared: &Shared,
    ) -> Vec<Hint> {
        let Some(current) = current else {
            return Vec::new();
        };
        let peak = |holders: &[Holder], targets: &Targets| {
            let loads = holders.iter().zip(&targets.copies);
            let load = |(holder, share): (&Holder, &Ratio)| Ratio {
                over: share.over,
                under: share.under * u128::from(holder.weight),
            };
            loads.map(load).max_by(Ratio::compare)
        };
        let with = peak(&self.holders, &shared.targets);
        let mut hints = Vec::new();
        for newcomer in &self.holders {
            let id = &roll.members[newcomer.node.get()].id;
            let mut others = self.holders.clone();
            others.retain(|holder| holder.node != newcomer.node);
            if current.index_of(id).is_some() || others.len() < self.width {
                continue;
            }
            let without = targets(&others, self.topology, self.slots as u64, self.width as u64);
            let without = peak(&others, &without);
            if with
                .zip(without)
                .is_some_and(|(with, without)| with.compare(&without).is_ge())
            {
                hints.push(Hint::NoRelief { node: id.clone() });
            }
        }
        hints
    }
}

impl Shared {
    fn hints(&self, roll: &Roll) -> Vec<Hint> {
        let hint = |bound: &Bound| {
            let levels = roll.members[bound.node.get()]
                .domain
                .levels()
                .take(bound.level + 1);
            let domain = levels.collect::<Vec<_>>().join("/");
            let copies = bound.copies;
            if bound.full {
                Hint::DomainFull { domain, copies }
            } else {
                Hint::DomainStrained { domain, copies }
            }
        };
        self.targets.bound.iter().map(hint).collect()
    }
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
    let domains = |row: &[NodeIx]| match usize::from(depth).checked_sub(1) {
        None => width,
        Some(level) if level < roll.topology.depth() => roll.topology.distinct(row, level),
        Some(_) => 1,
    };
    match rows.chunks_exact(width).map(domains).min() {
        Some(domains) if domains < width => Err(PlacementError::TooFewDomains {
            replicas,
            domains,
            depth,
        }),
        _ => Ok(()),
    }
}
