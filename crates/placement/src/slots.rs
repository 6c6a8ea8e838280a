//! Slots: equal intervals with a stored owner table.
//!
//! The table is part of the membership, so it can be chosen freely: balance and movement are then matters
//! of planning instead of chance. A lookup is one multiplication and one load.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::ends::Ends;
use crate::placement::Roll;
use crate::{Member, NodeIx, Placement, PlacementError, Scheme};

/// The most slots of a placement.
pub const SLOTS_MAX: usize = 65_536;

impl Placement {
    /// Equal intervals owned as a table says.
    ///
    /// `table` has one row per slot, clockwise from position 0, of `replicas` owners each (of all members
    /// if they are fewer), the owner first. An entry is an index into the members as they are given.
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
        let count = u32::try_from(slots)
            .ok()
            .filter(|_| (1..=SLOTS_MAX).contains(&slots));
        let count = count.ok_or(PlacementError::SlotCount { slots })?;
        let width = roll.members.len().min(usize::from(replicas));
        if table.len() != slots * width {
            return Err(PlacementError::TableShape {
                entries: table.len(),
                expected: slots * width,
            });
        }
        let owners = table.iter().map(|&member| roll.rank(usize::from(member)));
        let lists: Box<[NodeIx]> = owners.collect::<Result<Vec<_>, _>>()?.into();
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
}
