//! Slots: equal intervals with a stored owner table.
//!
//! The table is part of the membership, so it can be chosen freely: balance and movement are then matters
//! of planning instead of chance. A lookup is one multiplication and one load.

mod flow;
mod plan;
mod primaries;
mod share;
mod step;
mod table;
mod target;

use alloc::vec::Vec;

use crate::ends::Ends;
use crate::placement::Roll;
use crate::{Member, NodeIx, Placement, PlacementError, Scheme};

pub use plan::{Hint, SLOTS_DEFAULT, SlotShare, SlotsPlan, SlotsSpec};
pub use step::Unavoidable;

/// The most slots of a placement.
pub const SLOTS_MAX: usize = 65_536;

impl Placement {
    /// Equal intervals owned as a table says.
    ///
    /// `table` has one row per slot, clockwise from position 0, of `replicas` owners each (of as many as
    /// there are members with a weight, if they are fewer), the owner first. An entry is an index into the
    /// members as they are given. Members of weight 0 may stand in it: they are to be emptied.
    ///
    /// # Errors
    /// Faults of the members, no slots or too many, a table of another size, an unknown member, a node
    /// twice in a row.
    ///
    /// ```
    /// use clockwise_placement::{Member, Placement, Position, Scheme};
    /// let members = ["a", "b"].map(|id| Member::new(id.parse().unwrap()));
    /// let slots = Placement::from_slots(Scheme::default(), members, 1, 4, &[0, 1, 1, 0])?;
    /// assert_eq!(slots.node(slots.owner_at(Position(1 << 62))).id.as_str(), "b");
    /// assert_eq!(slots.slot_table(), Some(vec![0, 1, 1, 0]));
    /// # Ok::<(), clockwise_placement::PlacementError>(())
    /// ```
    pub fn from_slots(
        scheme: Scheme,
        members: impl IntoIterator<Item = Member>,
        replicas: u8,
        slots: usize,
        table: &[u16],
    ) -> Result<Self, PlacementError> {
        let roll = Roll::new(members, replicas)?;
        let count = check_slots(slots)?;
        let width = width(&roll)?;
        if table.len() != slots * width {
            return Err(PlacementError::TableShape {
                entries: table.len(),
                expected: slots * width,
            });
        }
        let owners = table.iter().map(|&member| roll.rank(usize::from(member)));
        let lists = owners.collect::<Result<Vec<NodeIx>, _>>()?;
        for (slot, list) in lists.chunks_exact(width).enumerate() {
            let repeated = list
                .iter()
                .enumerate()
                .find(|(rank, node)| list[..*rank].contains(node));
            if let Some((_, node)) = repeated {
                let node = roll.members[node.get()].id.clone();
                return Err(PlacementError::RepeatedOwner { slot, node });
            }
        }
        Ok(roll.into_placement(scheme, Ends::Equal(count), lists, width))
    }

    /// The owner table of a placement of slots, as [`Placement::from_slots`] reads it for the members in
    /// the order of [`Placement::nodes`]; none for a ring.
    #[must_use]
    pub fn slot_table(&self) -> Option<Vec<u16>> {
        let slots = match self.ends {
            Ends::Equal(slots) => slots as usize,
            Ends::Sorted(_) => return None,
        };
        let owners = (0..slots).flat_map(|slot| self.list(slot));
        Some(owners.map(|owner| owner.raw()).collect())
    }
}

fn check_slots(slots: usize) -> Result<u32, PlacementError> {
    let count = u32::try_from(slots)
        .ok()
        .filter(|_| (1..=SLOTS_MAX).contains(&slots));
    count.ok_or(PlacementError::SlotCount { slots })
}

/// How many owners each slot has.
fn width(roll: &Roll) -> Result<usize, PlacementError> {
    let weighty = roll
        .members
        .iter()
        .filter(|member| member.weight.hundredths() > 0)
        .count();
    match weighty.min(usize::from(roll.replicas)) {
        0 => Err(PlacementError::ZeroWeight {
            node: roll.members[0].id.clone(),
        }),
        width => Ok(width),
    }
}

/// The owners that a placement gives to one of so many equal intervals: those with the longest parts.
fn owners_of_slot(placement: &Placement, slot: usize, slots: usize) -> Vec<NodeIx> {
    let mut held = held_in_slot(placement, slot, slots);
    held.sort_by_key(|&(_, length)| core::cmp::Reverse(length));
    held.truncate(placement.replicas_placed());
    held.into_iter().map(|(node, _)| node).collect()
}

/// How many positions of one of so many equal intervals each of its owners has, in the order in which they
/// are met clockwise.
fn held_in_slot(placement: &Placement, slot: usize, slots: usize) -> Vec<(NodeIx, u128)> {
    let ends = Ends::Equal(u32::try_from(slots).expect("at most 65,536 slots"));
    let through = ends.end(slot);
    let mut at = ends.end_before(slot).next();
    let mut held: Vec<(NodeIx, u128)> = Vec::new();
    loop {
        let owned = placement.interval_at(at);
        let last = if at.steps_to(owned.interval.through) < at.steps_to(through) {
            owned.interval.through
        } else {
            through
        };
        let length = u128::from(at.steps_to(last)) + 1;
        for &owner in owned.owners {
            match held.iter_mut().find(|(node, _)| *node == owner) {
                Some((_, sum)) => *sum += length,
                None => held.push((owner, length)),
            }
        }
        if last == through {
            return held;
        }
        at = last.next();
    }
}
