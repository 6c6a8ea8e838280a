//! How the intervals of a layout come about: hashed points, or equal slots with an owner table.
//!
//! An owner table is part of the record, so every reader decides alike from the record alone. A table with
//! [`SlotRules`] is planned anew whenever who takes part changes, from the present owners: first the best
//! balance, then the fewest copies moved. One without rules is somebody's own and stays as it was given.

use alloc::vec::Vec;
use core::fmt;

use clockwise_placement::{
    Hint, NodeId, POINTS_PER_WEIGHT, Placement, SLOTS_DEFAULT, SlotsPlan, SlotsSpec, Unavoidable,
    Weight,
};
use serde::{Deserialize, Serialize};

use crate::as_text;
use crate::layout::{Layout, LayoutError, Seat};

/// How the intervals of a layout come about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Generator {
    /// Hashed points, so many for a weight of 1.
    Ring {
        /// Points of a node of weight 1.
        points_per_weight: u32,
    },
    /// Equal intervals whose owners stand in a table.
    Slots {
        /// How many intervals there are.
        slots: u32,
        /// The nodes that the table names. Members that are not among them own nothing.
        #[serde(with = "as_text::list", default)]
        owners: Vec<NodeId>,
        /// One row per slot, clockwise from position 0: ranks in `owners`, the first owner of a slot first.
        /// Empty in an edit that asks for a table to be planned.
        #[serde(default)]
        table: Vec<u16>,
        /// How the table is planned when members change; none for a table that stays as it was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rules: Option<SlotRules>,
    },
}

impl Generator {
    /// So many slots whose owner table is still to be planned, by `apply` or when the pool is made.
    ///
    /// ```
    /// use clockwise_cluster::{Generator, NewNode, NewPool, Nonce, Record, SlotRules};
    /// let node = |id: &str, port| NewNode::new(id.parse().unwrap(), format!("127.0.0.1:{port}").parse().unwrap());
    /// let pool = NewPool {
    ///     generator: Generator::planned_slots(4, SlotRules::default()),
    ///     ..NewPool::new("main".parse()?, vec![node("a", 7001), node("b", 7002)])
    /// };
    /// let record = Record::create(pool, &mut || Nonce::new([7; 16]))?;
    /// let Generator::Slots { table, .. } = &record.membership().generator else { panic!() };
    /// assert_eq!(table.iter().filter(|&&owner| owner == 0).count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn planned_slots(slots: u32, rules: SlotRules) -> Self {
        Self::Slots {
            slots,
            owners: Vec::new(),
            table: Vec::new(),
            rules: Some(rules),
        }
    }

    /// How many bytes it takes in a record.
    pub(crate) fn bytes(&self) -> usize {
        // Its numbers are integers and its names are text, so nothing in it can fail to be written.
        serde_json::to_vec(self).map_or(0, |bytes| bytes.len())
    }

    /// Whether both make intervals in the same way, so that only members tell their tables apart.
    pub(crate) fn makes_as(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Slots { slots, rules, .. },
                Self::Slots {
                    slots: other_slots,
                    rules: other_rules,
                    ..
                },
            ) => (slots, rules) == (other_slots, other_rules),
            _ => self == other,
        }
    }
}

impl Default for Generator {
    fn default() -> Self {
        Self::Ring {
            points_per_weight: POINTS_PER_WEIGHT,
        }
    }
}

impl fmt::Display for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring { points_per_weight } => {
                write!(f, "ring, {points_per_weight} points per weight")
            }
            Self::Slots {
                slots, rules: None, ..
            } => write!(f, "{slots} slots"),
            Self::Slots {
                slots,
                rules: Some(rules),
                ..
            } => write!(f, "{slots} planned slots{rules}"),
        }
    }
}

/// How an owner table is planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct SlotRules {
    /// By how many per cent a node may be off its share when that saves moves. 0 for the best balance.
    pub overload_percent: u8,
    /// The most copies that one change may move, in per cent of all. Where more cannot be helped, as with what
    /// a leaving node has, the plan says so.
    pub step_percent: u8,
}

impl SlotRules {
    /// How many slots a pool has unless something else is asked for.
    pub const SLOTS: u32 = SLOTS_DEFAULT as u32;

    pub(crate) fn check(&self) -> Result<(), LayoutError> {
        match self.overload_percent <= 100 && (1..=100).contains(&self.step_percent) {
            true => Ok(()),
            false => Err(LayoutError::SlotRules { rules: *self }),
        }
    }
}

impl Default for SlotRules {
    fn default() -> Self {
        Self {
            overload_percent: 0,
            step_percent: 100,
        }
    }
}

impl fmt::Display for SlotRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.overload_percent > 0 {
            write!(f, ", overload {} %", self.overload_percent)?;
        }
        if self.step_percent < 100 {
            write!(f, ", steps of {} %", self.step_percent)?;
        }
        Ok(())
    }
}

/// What planning a slot table has shown beside the table.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Outlook {
    /// The most loaded node over its fair part, at best.
    pub(crate) optimum_over_mean: f64,
    /// The part of all copies that still has to move after this change.
    pub(crate) copies_left: f64,
    /// The most of all copies that a step was to move, in per cent.
    pub(crate) step_percent: u8,
    /// What moves now whatever that is.
    pub(crate) unavoidable: Unavoidable,
    /// Why shares are not even, and which newcomers do not help.
    pub(crate) hints: Vec<Hint>,
}

impl Layout {
    /// The same with its owner table planned, where it has rules for one and is not the present layout.
    ///
    /// Without a present layout, a table that is there already is taken as it is.
    pub(crate) fn planned(
        self,
        present: Option<&Self>,
    ) -> Result<(Self, Option<Outlook>), LayoutError> {
        let Generator::Slots {
            slots,
            table,
            rules: Some(rules),
            ..
        } = &self.generator
        else {
            return Ok((self, None));
        };
        if present.map_or(!table.is_empty(), |present| *present == self) {
            return Ok((self, None));
        }
        rules.check()?;
        let current = present
            .map(|present| self.present_owners(present))
            .transpose()?;
        let (slots, rules) = (*slots, *rules);
        let spec = SlotsSpec {
            scheme: self.recipe()?,
            slots: usize::try_from(slots).unwrap_or(usize::MAX),
            replicas: self.replicas,
            spread: self.spread.spread(),
            overload_percent: rules.overload_percent,
            step_percent: rules.step_percent,
            members: self.seated(),
        };
        let plan = spec.plan(current.as_ref())?;
        let nodes = plan.placement.nodes().iter();
        let generator = Generator::Slots {
            slots,
            owners: nodes.map(|member| member.id.clone()).collect(),
            table: plan
                .placement
                .slot_table()
                .expect("it was planned as slots"),
            rules: Some(rules),
        };
        Ok((Self { generator, ..self }, Some(Outlook::of(&plan, rules))))
    }

    /// Who owns what now, in the names of those who own it afterwards: a table's newcomer that takes
    /// another's place has what that one has.
    fn present_owners(&self, present: &Self) -> Result<Placement, LayoutError> {
        let owners = match &self.generator {
            Generator::Slots { owners, table, .. } if !table.is_empty() => owners,
            _ => return present.build(),
        };
        let stay = present.members.iter().map(|seat| &seat.id);
        let mut ids: Vec<&NodeId> = stay.filter(|id| self.has(id)).chain(owners).collect();
        ids.sort();
        ids.dedup();
        // Only names count here: weights and places are those of the layout to come.
        let seat = |id: &NodeId| Seat::new(id.clone(), Weight::ONE, Default::default());
        let named = Self {
            generator: self.generator.clone(),
            members: ids.into_iter().map(seat).collect(),
            ..present.clone()
        };
        named.build()
    }
}

impl Outlook {
    fn of(plan: &SlotsPlan, rules: SlotRules) -> Self {
        let copies: usize = plan.nodes.iter().map(|node| node.copies).sum();
        Self {
            optimum_over_mean: plan.optimum_over_mean,
            copies_left: plan.copies_left as f64 / copies.max(1) as f64,
            step_percent: rules.step_percent,
            unavoidable: plan.unavoidable,
            hints: plan.hints.clone(),
        }
    }
}
