//! The columns: where a handoff stands, on the way there or on the way back after an abort.

use std::time::Duration;

use clockwise_cluster::{Handoff, HandoffState};

/// Which way a change goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    There,
    /// Aborted, after the first handoff has flipped, or for [`HandoffState::Purging`] before it.
    Back,
}

/// A state of a handoff that a fault can wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stage {
    pub(super) way: Way,
    pub(super) state: HandoffState,
}

/// In the order of the table. `done` and `undone` are ends: nothing happens in them.
pub(super) const STAGES: [Stage; 11] = [
    there(HandoffState::Planned),
    there(HandoffState::Copying),
    there(HandoffState::Verifying),
    there(HandoffState::Handover),
    there(HandoffState::Flipped),
    there(HandoffState::Cleaning),
    back(HandoffState::Purging),
    back(HandoffState::Copying),
    back(HandoffState::Handover),
    back(HandoffState::Flipped),
    back(HandoffState::Cleaning),
];

const fn there(state: HandoffState) -> Stage {
    Stage {
        way: Way::There,
        state,
    }
}

const fn back(state: HandoffState) -> Stage {
    Stage {
        way: Way::Back,
        state,
    }
}

impl Stage {
    /// The word of the command line and of the table.
    pub(super) fn name(self) -> String {
        match (self.way, self.state) {
            (Way::There, state) | (Way::Back, state @ HandoffState::Purging) => {
                state.name().to_owned()
            }
            (Way::Back, state) => format!("back-{}", state.name()),
        }
    }

    /// Whether a handoff is in it.
    pub(super) fn is_of(self, handoff: &Handoff) -> bool {
        let is_back = handoff.is_reverse() || handoff.state == HandoffState::Purging;
        handoff.state == self.state && is_back == (self.way == Way::Back)
    }

    /// When whoever operates takes the change back: once a handoff is in this state.
    pub(super) fn abort_in(self) -> Option<HandoffState> {
        match (self.way, self.state) {
            (Way::There, _) => None,
            (Way::Back, HandoffState::Purging) => Some(HandoffState::Copying),
            (Way::Back, _) => Some(HandoffState::Flipped),
        }
    }

    /// How far into it a fault may strike: less than it lasts in a quiet run.
    pub(super) fn spread(self) -> Duration {
        Duration::from_millis(match self.state {
            HandoffState::Copying => 150,
            HandoffState::Cleaning => 400,
            HandoffState::Handover => 8,
            HandoffState::Verifying => 4,
            _ => 1,
        })
    }
}
