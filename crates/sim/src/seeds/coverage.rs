//! How often which fault happened in which state: a simulation that never gets there says nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clockwise_cluster::{Direction, HandoffState, Record};

use super::fault::{KINDS, What};

/// Where a change stands, as a column of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Place {
    Rest,
    Forward(HandoffState),
    Back(HandoffState),
    /// Aborted: the copies of what never flipped go.
    Purging,
}

const COLUMNS: [(Place, &str); 13] = [
    (Place::Rest, "rest"),
    (Place::Forward(HandoffState::Planned), "planned"),
    (Place::Forward(HandoffState::Copying), "copying"),
    (Place::Forward(HandoffState::Verifying), "verify"),
    (Place::Forward(HandoffState::Handover), "handover"),
    (Place::Forward(HandoffState::Flipped), "flipped"),
    (Place::Forward(HandoffState::Cleaning), "cleaning"),
    (Place::Purging, "purging"),
    (Place::Back(HandoffState::Planned), "b.plan"),
    (Place::Back(HandoffState::Copying), "b.copy"),
    (Place::Back(HandoffState::Handover), "b.hand"),
    (Place::Back(HandoffState::Flipped), "b.flip"),
    (Place::Back(HandoffState::Cleaning), "b.clean"),
];

impl Place {
    /// Every place that a record is in: one for each handoff that is not over.
    pub(super) fn all_of(record: &Record) -> Vec<Self> {
        let Some(change) = record.change() else {
            return vec![Self::Rest];
        };
        let mut places = Vec::new();
        for handoff in change
            .handoffs
            .iter()
            .filter(|handoff| !handoff.state.is_over())
        {
            places.push(match (handoff.state, change.direction) {
                (HandoffState::Purging, _) => Self::Purging,
                (HandoffState::Verifying, Direction::Back) => Self::Back(HandoffState::Copying),
                (state, _) if handoff.is_reverse() => Self::Back(state),
                (_, Direction::Back) => continue,
                (state, Direction::Forward) => Self::Forward(state),
            });
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// What was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    cells: BTreeMap<(What, Place), u64>,
    /// Requests of clients that were executed.
    pub requests: u64,
    /// Requests that were held during a handover.
    pub held: u64,
    /// Changes that came to their end, whole or undone.
    pub changes: u64,
    /// Commits of the record.
    pub commits: u64,
    /// Handovers that were rolled back.
    pub rollbacks: u64,
    /// Leaderships.
    pub terms: u64,
    /// Things that happened, each at one moment.
    pub steps: u64,
    /// Virtual time.
    pub seconds: u64,
}

impl Coverage {
    pub(super) fn note(&mut self, places: &[Place], what: What) {
        for place in places {
            *self.cells.entry((what, *place)).or_default() += 1;
        }
    }

    /// Adds what another run reached.
    pub fn add(&mut self, other: &Self) {
        for (cell, count) in &other.cells {
            *self.cells.entry(*cell).or_default() += count;
        }
        self.requests += other.requests;
        self.held += other.held;
        self.changes += other.changes;
        self.commits += other.commits;
        self.rollbacks += other.rollbacks;
        self.terms += other.terms;
        self.steps += other.steps;
        self.seconds += other.seconds;
    }

    fn cell(&self, what: What, place: Place) -> u64 {
        self.cells.get(&(what, place)).copied().unwrap_or(0)
    }

    /// Faults by states, as a table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{:<16}", "fault \\ state");
        for (_, name) in COLUMNS {
            let _ = write!(text, "{name:>9}");
        }
        for what in KINDS {
            let name = format!("{what:?}").to_lowercase();
            let _ = write!(text, "\n{name:<16}");
            for (place, _) in COLUMNS {
                let _ = write!(text, "{:>9}", self.cell(what, place));
            }
        }
        text
    }

    /// Cells that no run has reached although every run could; the states on the way there.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for what in KINDS {
            for (place, name) in COLUMNS {
                // There is nothing to take back at rest or once it goes back.
                let void = what == What::Abort && !matches!(place, Place::Forward(_));
                if !void && self.cell(what, place) == 0 {
                    missing.push(format!("{what:?} while {name}"));
                }
            }
        }
        missing
    }
}
