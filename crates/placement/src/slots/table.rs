//! The rules of an owner table, the rows to begin with, and what moves to another one.

use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64;

use super::flow::{Bounds, Rows};
use super::plan::SlotShare;
use super::target::Holder;
use crate::draw::{minus_log2, mix};
use crate::placement::Roll;
use crate::topology::Topology;
use crate::{Member, NodeId, NodeIx, Placement};

/// The present owners of each slot, as ranks among the new members.
pub(super) struct Kept {
    // Row-major, `width` for each slot, in their order; NONE where the owner is no member any more.
    owners: Vec<NodeIx>,
    width: usize,
}

impl Kept {
    pub(super) fn new(current: Option<&Placement>, members: &[Member], slots: usize) -> Self {
        let Some(current) = current else {
            return Self {
                owners: Vec::new(),
                width: 0,
            };
        };
        let rank = |node| rank_of(members, &current.node(node).id).unwrap_or(NodeIx::NONE);
        let width = current.replicas_placed();
        let mut owners = Vec::with_capacity(slots * width);
        for slot in 0..slots {
            owners.extend(
                super::owners_of_slot(current, slot, slots)
                    .into_iter()
                    .map(rank),
            );
        }
        Self { owners, width }
    }

    /// How many owners each slot has now; none without present owners.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn row(&self, slot: usize) -> &[NodeIx] {
        self.owners
            .get(slot * self.width..)
            .map_or(&[], |rest| &rest[..self.width])
    }
}

/// The rank of a node among members, which are sorted by id.
pub(super) fn rank_of(members: &[Member], id: &NodeId) -> Option<NodeIx> {
    let found = members.binary_search_by(|member| member.id.cmp(id));
    found.ok().map(NodeIx::of)
}

/// The rules of a table: which rows are valid, and what they keep.
pub(super) struct Table<'a> {
    pub(super) topology: &'a Topology,
    pub(super) members: &'a [Member],
    // The nodes that may own slots.
    pub(super) holders: Vec<Holder>,
    pub(super) slots: usize,
    pub(super) width: usize,
    pub(super) kept: Kept,
    // A number for each node that depends on its id alone.
    seeds: Vec<u64>,
    // The slots as a fixed shuffle, so that neighbours do not share their fate.
    pub(super) order: Vec<u32>,
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
    pub(super) fn new(roll: &'a Roll, slots: usize, width: usize, kept: Kept) -> Self {
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

    /// Valid rows that keep as much as rows can. What is free goes to the nodes that lack most, by lot.
    pub(super) fn first_rows(&self, bounds: &[Bounds]) -> Vec<NodeIx> {
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

    /// Copies that a table gives to nodes that do not have them. Without present owners nothing moves.
    pub(super) fn moved(&self, rows: &[NodeIx]) -> usize {
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

    /// Copies of a table that its nodes do not have after a step.
    pub(super) fn left(&self, rows: &[NodeIx], target: &[NodeIx]) -> usize {
        let rows = rows.chunks_exact(self.width);
        let missing = |(row, target): (&[NodeIx], &[NodeIx])| {
            target.iter().filter(|node| !row.contains(node)).count()
        };
        rows.zip(target.chunks_exact(self.width)).map(missing).sum()
    }

    /// Σ max(0, after − before), given every node's copies after.
    pub(super) fn least(&self, nodes: &[SlotShare]) -> usize {
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
}
