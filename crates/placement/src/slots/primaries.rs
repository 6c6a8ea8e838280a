//! Choosing the first owner of each slot among its owners.
//!
//! Primaries should be as even as weights ask for, as far as the owners allow, and change as little as can
//! be. Where some nodes own so much together that they cannot be first so seldom, the bound of the one
//! that minds least is raised, one by one: the greatest load per weight stays as small as it can.

use alloc::vec::Vec;

use super::flow::{Bounds, Flow, Rows, Stuck};
use super::table::Table;
use crate::NodeIx;
use crate::draw::minus_log2;

/// The rows again, each in its final order: the first owner, present owners as they stood, then new ones.
pub(super) fn choose(rows: &[NodeIx], width: usize, table: &Table<'_>) -> Vec<NodeIx> {
    let sets = Sets { rows, width, table };
    let mut owners = sets.in_order();
    if width > 1 {
        for (row, first) in owners.chunks_exact_mut(width).zip(sets.firsts()) {
            let at = row
                .iter()
                .position(|&node| node == first)
                .expect("a first owner is an owner");
            row[..=at].rotate_right(1);
        }
    }
    owners
}

/// A first owner may be swapped for any other owner of its slot.
struct Sets<'a> {
    rows: &'a [NodeIx],
    width: usize,
    table: &'a Table<'a>,
}

impl Rows for Sets<'_> {
    fn worth(&self, slot: usize, node: NodeIx) -> i32 {
        i32::from(self.table.kept.row(slot).first() == Some(&node))
    }

    fn may_swap(&self, slot: usize, _: &[NodeIx], _: NodeIx, entering: NodeIx) -> bool {
        self.set(slot).contains(&entering)
    }
}

impl Sets<'_> {
    fn set(&self, slot: usize) -> &[NodeIx] {
        &self.rows[slot * self.width..][..self.width]
    }

    /// Present owners as they stood, then new ones by lot, so that the second in line is not always the same.
    fn in_order(&self) -> Vec<NodeIx> {
        let mut owners = self.rows.to_vec();
        for (slot, row) in owners.chunks_exact_mut(self.width).enumerate() {
            let kept = self.table.kept.row(slot);
            let place = |node: &NodeIx| {
                kept.iter()
                    .position(|kept| kept == node)
                    .unwrap_or(kept.len())
            };
            row.sort_by_key(|node| (place(node), self.table.lot(slot, *node)));
        }
        owners
    }

    fn firsts(&self) -> Vec<NodeIx> {
        let bounds = self.bounds();
        let firsts = self.first_firsts(&bounds);
        let mut flow = Flow::new(self, firsts, 1, bounds, &self.table.order);
        while let Err(stuck) = flow.relieve() {
            let raise = self.least_minding(&flow, &stuck);
            flow.bounds[raise.get()].most += 1;
        }
        while let Err(stuck) = flow.fill() {
            let lower = self.most_minding(&flow, &stuck);
            flow.bounds[lower.get()].least -= 1;
        }
        flow.rows
    }

    /// By weight, to the next whole numbers, but no more than a node owns.
    fn bounds(&self) -> Vec<Bounds> {
        let mut owned = alloc::vec![0; self.table.nodes()];
        self.rows.iter().for_each(|node| owned[node.get()] += 1);
        let nodes = || (0..self.table.nodes()).map(NodeIx::of);
        let weights: u64 = nodes().map(|node| self.table.weight(node)).sum();
        let share = |node: NodeIx| {
            let (over, under) = (
                self.table.slots as u128 * u128::from(self.table.weight(node)),
                u128::from(weights),
            );
            let (least, most) = ((over / under) as usize, over.div_ceil(under) as usize);
            let owned: usize = owned[node.get()];
            Bounds {
                least: least.min(owned),
                most: most.min(owned),
            }
        };
        nodes().map(share).collect()
    }

    /// The present first owner where it still owns the slot, else the owner with the most room, by lot.
    fn first_firsts(&self, bounds: &[Bounds]) -> Vec<NodeIx> {
        let present = |slot: usize| {
            let first = self.table.kept.row(slot).first();
            first
                .copied()
                .filter(|first| self.set(slot).contains(first))
        };
        let mut room: Vec<i64> = bounds.iter().map(|bounds| bounds.most as i64).collect();
        let slots = 0..self.table.slots;
        slots
            .clone()
            .filter_map(present)
            .for_each(|node| room[node.get()] -= 1);
        let mut firsts = alloc::vec![NodeIx::NONE; self.table.slots];
        for &slot in &self.table.order {
            let slot = slot as usize;
            firsts[slot] = present(slot).unwrap_or_else(|| {
                let lot = |node: NodeIx| {
                    let room = u64::try_from(room[node.get()]).unwrap_or(0);
                    // The smaller lot per room wins, and any room wins over none.
                    let lot = u128::from(minus_log2(self.table.lot(slot, node))) << 32;
                    if room == 0 {
                        u128::MAX
                    } else {
                        lot / u128::from(room)
                    }
                };
                let drawn = self
                    .set(slot)
                    .iter()
                    .copied()
                    .min_by_key(|&node| (lot(node), node));
                let drawn = drawn.expect("every slot has an owner");
                room[drawn.get()] -= 1;
                drawn
            });
        }
        firsts
    }

    /// Of the nodes that cannot get rid of their slots, the one whose load per weight would be smallest.
    fn least_minding(&self, flow: &Flow<'_, Self>, stuck: &Stuck) -> NodeIx {
        let minds = |node: &&NodeIx| Load {
            load: flow.bounds[node.get()].most + 1,
            weight: self.table.weight(**node),
        };
        *stuck
            .nodes
            .iter()
            .min_by_key(minds)
            .expect("somebody is stuck")
    }

    /// Of the nodes that cannot get slots, the one with the greatest least load per weight.
    fn most_minding(&self, flow: &Flow<'_, Self>, stuck: &Stuck) -> NodeIx {
        let minds = |node: &&NodeIx| Load {
            load: flow.bounds[node.get()].least,
            weight: self.table.weight(**node),
        };
        *stuck
            .nodes
            .iter()
            .max_by_key(minds)
            .expect("somebody is stuck")
    }
}

/// A load per weight, compared exactly.
#[derive(PartialEq, Eq)]
struct Load {
    load: usize,
    weight: u64,
}

impl Ord for Load {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        let cross = |load: usize, weight: u64| load as u128 * u128::from(weight);
        cross(self.load, other.weight).cmp(&cross(other.load, self.weight))
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
