//! What places the keys of a pool, as an operator says it: a ring, or planned slots, each with its numbers.

use std::fmt;

use clockwise_cluster::{Generator, SlotRules};
use serde::{Deserialize, Serialize};

/// The two placements that a pool can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Hashed points, as many as weights ask for.
    Ring,
    /// Equal intervals with a planned owner table: the best balance, then the fewest moves.
    Slots,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ring => "ring",
            Self::Slots => "slots",
        })
    }
}

/// A placement with its numbers, without the owner table of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Placing {
    /// A ring.
    Ring {
        /// Points of a node of weight 1.
        points_per_weight: u32,
    },
    /// Slots.
    Slots {
        /// How many there are.
        slots: u32,
        /// By how many per cent a node may be off its share when that saves moves.
        overload_percent: u8,
        /// The most copies that one change may move, in per cent of all.
        step_percent: u8,
    },
}

impl Placing {
    /// That kind with the numbers that it has unless others are asked for.
    #[must_use]
    pub fn usual(kind: Kind) -> Self {
        let generator = match kind {
            Kind::Ring => Generator::default(),
            Kind::Slots => Generator::planned_slots(SlotRules::SLOTS, SlotRules::default()),
        };
        Self::of(&generator).expect("a ring and slots are known here")
    }

    /// What a record has; none if it is of a kind that this version does not know.
    #[must_use]
    pub fn of(generator: &Generator) -> Option<Self> {
        match generator {
            Generator::Ring { points_per_weight } => Some(Self::Ring {
                points_per_weight: *points_per_weight,
            }),
            Generator::Slots { slots, rules, .. } => {
                let rules = rules.unwrap_or_default();
                Some(Self::Slots {
                    slots: *slots,
                    overload_percent: rules.overload_percent,
                    step_percent: rules.step_percent,
                })
            }
            _ => None,
        }
    }

    /// Which of the two it is.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Ring { .. } => Kind::Ring,
            Self::Slots { .. } => Kind::Slots,
        }
    }

    /// What a record is asked for; the table of slots is planned when the change is applied.
    #[must_use]
    pub const fn generator(self) -> Generator {
        match self {
            Self::Ring { points_per_weight } => Generator::Ring { points_per_weight },
            Self::Slots {
                slots,
                overload_percent,
                step_percent,
            } => {
                let rules = SlotRules {
                    overload_percent,
                    step_percent,
                };
                Generator::planned_slots(slots, rules)
            }
        }
    }
}
