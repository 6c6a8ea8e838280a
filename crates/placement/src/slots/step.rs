//! One step on the way to a table: as many slots take their new owners as the limit of a step lets.
//!
//! Some copies move whatever the limit is, since their slots cannot stay as they are: a slot has one list of
//! owners, so where the present intervals end within it the lesser owners give their parts away (a point of
//! a ring costs a quarter of a slot on average); what a missing node had goes to somebody; a table of more
//! owners a slot has them in every slot; and where a strict spread is asked for, owners that share a domain
//! cannot wait. These are counted first, and what is left of the limit goes to the other slots in their
//! shuffled order; where it is less than a slot, one slot moves all the same, or the steps would never end.
//! So a step is above its limit only where it has to be, and [`Unavoidable`] says why.

use alloc::vec::Vec;

use super::table::{Table, rank_of};
use crate::{NodeIx, Placement, Spread};

/// A whole slot, in the unit in which parts of slots are counted: exact where slots move whole.
const SLOT: u128 = 1 << 32;

/// What moves in a step whatever its limit is, by the reason, each as a part of all copies.
///
/// All are 0 for a plan without a limit or without present owners.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Unavoidable {
    /// In slots of which a present owner is no member any more.
    pub leaving: f64,
    /// Parts of slots that others hold than the slot's present owners, who hold the longest parts.
    pub unaligned: f64,
    /// Further owners, where slots had fewer.
    pub further: f64,
    /// In slots whose present owners share a domain that a strict spread keeps apart.
    pub crowded: f64,
    /// The one slot that moves where the limit is less than that.
    pub slot: f64,
}

impl Unavoidable {
    /// All of it, as a part of all copies.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.leaving + self.unaligned + self.further + self.crowded + self.slot
    }
}

/// The limits of a step.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) percent: u8,
    pub(super) spread: Spread,
}

/// The rows after a step towards `target`, and what could not wait.
pub(super) fn step(
    table: &Table<'_>,
    current: Option<&Placement>,
    target: &[NodeIx],
    limits: Limits,
) -> (Vec<NodeIx>, Unavoidable) {
    let mut rows = target.to_vec();
    let Some(current) = current.filter(|_| limits.percent < 100) else {
        return (rows, Unavoidable::default());
    };
    let mut moved = Moved::default();
    let mut waiting = Vec::new();
    for &slot in &table.order {
        let slot = slot as usize;
        let wanted = &target[slot * table.width..][..table.width];
        let held = Held::of(current, table, slot);
        match table.staying(slot, wanted, limits.spread) {
            Err(Cause::Leaving) => moved.leaving += held.gained_by(wanted),
            Err(Cause::Crowded) => moved.crowded += held.gained_by(wanted),
            Ok(row) => {
                let (kept, further) = row.split_at(table.kept.width().min(table.width));
                moved.unaligned += held.gained_by(kept);
                moved.further += held.gained_by(further);
                let more = held.gained_by(wanted).saturating_sub(held.gained_by(&row));
                waiting.push((slot, row, more));
            }
        }
    }
    let limit = SLOT * target.len() as u128 * u128::from(limits.percent) / 100;
    let least = waiting.iter().map(|&(_, _, more)| more);
    let least = least.filter(|&more| more > 0).min().unwrap_or(0);
    if moved.total() == 0 && least > limit && limit > 0 {
        // With nothing moved, the next step would find what this one has found.
        moved.slot = least;
    }
    let mut left = moved.slot.max(limit.saturating_sub(moved.total()));
    for (slot, row, more) in waiting {
        if more > left {
            rows[slot * table.width..][..table.width].copy_from_slice(&row);
        } else {
            left -= more;
        }
    }
    (rows, moved.of(target.len()))
}

/// [`Unavoidable`] while it is counted, in parts of slots.
#[derive(Default)]
struct Moved {
    leaving: u128,
    unaligned: u128,
    further: u128,
    crowded: u128,
    slot: u128,
}

impl Moved {
    fn total(&self) -> u128 {
        self.leaving + self.unaligned + self.further + self.crowded + self.slot
    }

    fn of(&self, copies: usize) -> Unavoidable {
        let part = |moved: u128| moved as f64 / (SLOT as f64 * copies as f64);
        Unavoidable {
            leaving: part(self.leaving),
            unaligned: part(self.unaligned),
            further: part(self.further),
            crowded: part(self.crowded),
            slot: part(self.slot),
        }
    }
}

/// Why a slot cannot stay as it is.
enum Cause {
    Leaving,
    Crowded,
}

/// The parts of one slot that each node holds now.
struct Held(Vec<(NodeIx, u128)>);

impl Held {
    fn of(current: &Placement, table: &Table<'_>, slot: usize) -> Self {
        let held = super::held_in_slot(current, slot, table.slots);
        let copies: u128 = held.iter().map(|(_, positions)| positions).sum();
        let length = copies / current.replicas_placed() as u128;
        let part = |(node, positions): (NodeIx, u128)| {
            let rank = rank_of(table.members, &current.node(node).id)?;
            Some((rank, positions * SLOT / length))
        };
        Self(held.into_iter().filter_map(part).collect())
    }

    /// What nodes have to get to hold all of the slot.
    fn gained_by(&self, row: &[NodeIx]) -> u128 {
        let held = |node: &NodeIx| {
            let found = self.0.iter().find(|(holder, _)| holder == node);
            found.map_or(0, |&(_, part)| part)
        };
        row.iter().map(|node| SLOT - held(node)).sum()
    }
}

impl Table<'_> {
    /// The row of a slot that waits: its present owners, as many as a row has.
    fn staying(
        &self,
        slot: usize,
        wanted: &[NodeIx],
        spread: Spread,
    ) -> Result<Vec<NodeIx>, Cause> {
        let kept = self.kept.row(slot).iter().copied();
        let mut row: Vec<NodeIx> = kept.filter(|&node| node != NodeIx::NONE).collect();
        if row.len() < self.width.min(self.kept.width()) {
            return Err(Cause::Leaving);
        }
        while row.len() > self.width {
            let unwanted = row.iter().rposition(|node| !wanted.contains(node));
            row.remove(unwanted.expect("a longer row has a node that is not wanted"));
        }
        let further = wanted.iter().filter(|node| !row.contains(node)).copied();
        let further: Vec<NodeIx> = further.take(self.width - row.len()).collect();
        row.extend(further);
        if super::plan::is_spread(&row, spread, self.topology) {
            Ok(row)
        } else {
            Err(Cause::Crowded)
        }
    }
}
