//! After the flip: the source loses what it gave away. After an abort: the targets lose what they got.
//!
//! Nothing is removed from a source before the copies survive a restart of their targets, and nothing
//! while a target is not the run of the data that it was at the flip.

use alloc::vec::Vec;

use super::{Awaiting, Check, Interrupt, Machine};
use crate::copier::Lane;
use crate::handoff::message::{Command, Event, Identities, Party, Turn};
use crate::handoff::reason::StopReason;
use crate::{HandoffState, Step};

/// Broken connections in a row after which copies are left where they are, at a node that leaves the pool
/// anyway: it is swept should it ever be a target again.
const ABANDON_BREAKS_MIN: u32 = 6;

impl Machine {
    /// The targets own: nothing of the copy is needed any more.
    pub(super) fn end_copying(&mut self, out: &mut Vec<Command>) {
        self.handover = None;
        self.rollbacks = 0;
        if self.open && self.copying.is_tracked() {
            out.push(Command::Untrack);
        }
        self.copying.forget();
        self.release(Turn::Handover, out);
        self.release(Turn::Copy, out);
    }

    pub(super) fn go_on_cleaning(&mut self, out: &mut Vec<Command>) {
        if self.entry.source_lost {
            self.commit(Step::Done, out);
        } else if !self.has_turn(Turn::Clean, out) {
            self.awaiting = Awaiting::Turn;
        } else if !self.open {
            self.abandoned |= self.entry.source_leaves && self.breaks >= ABANDON_BREAKS_MIN;
            self.open_party(
                if self.abandoned {
                    Party::Targets
                } else {
                    Party::All
                },
                out,
            );
        } else {
            self.identify(Check::BeforeDurable, out);
        }
    }

    pub(super) fn identified_after_flip(
        &mut self,
        check: Check,
        found: &Identities,
        out: &mut Vec<Command>,
    ) {
        if let Some(reason) = self.changed_target(found) {
            self.interrupt = Some(Interrupt::Stop(reason));
            return self.cancel(out);
        }
        match check {
            Check::BeforeDurable => {
                out.push(Command::Durable);
                self.awaiting = Awaiting::Durable;
            }
            Check::AfterDurable if self.entry.state == HandoffState::Flipped => {
                self.commit(Step::Cleaning, out)
            }
            _ => self.clean(out),
        }
    }

    /// The first target that is not what it was at the flip.
    fn changed_target(&self, found: &Identities) -> Option<StopReason> {
        let pairs = self.entry.flip.iter().zip(&found.targets);
        let (at, (expected, found)) = pairs
            .enumerate()
            .find(|(_, (expected, found))| **expected != found.incarnation)?;
        Some(StopReason::TargetChanged {
            target: Lane(u16::try_from(at).unwrap_or(u16::MAX)),
            expected: expected.clone(),
            found: found.incarnation.clone(),
        })
    }

    pub(super) fn clean(&mut self, out: &mut Vec<Command>) {
        if self.abandoned {
            return self.commit(Step::Done, out);
        }
        out.push(Command::Clean);
        self.awaiting = Awaiting::Cleaning;
    }

    pub(super) fn cleaning_answer(&mut self, event: &Event, out: &mut Vec<Command>) {
        match (&self.awaiting, event) {
            (Awaiting::Durable, Event::Durable) => self.identify(Check::AfterDurable, out),
            (
                Awaiting::Cleaning,
                Event::Cleaned {
                    finished: false, ..
                },
            ) => {
                self.breaks = 0;
                self.identify(Check::BetweenSlices, out);
            }
            (Awaiting::Cleaning, Event::Cleaned { finished: true, .. }) => {
                self.commit(Step::Done, out)
            }
            (
                Awaiting::Purging,
                Event::Cleaned {
                    finished: false, ..
                },
            ) => {
                self.breaks = 0;
                self.purge(out);
            }
            (Awaiting::Purging, Event::Cleaned { finished: true, .. }) => self.next_purge(out),
            _ => {}
        }
    }

    pub(super) fn go_on_purging(&mut self, out: &mut Vec<Command>) {
        if !self.has_turn(Turn::Purge, out) {
            self.awaiting = Awaiting::Turn;
            return;
        }
        let leaves = self.entry.targets_leave.get(usize::from(self.purging.0));
        match leaves {
            None => self.commit(Step::Undone, out),
            Some(true) if self.breaks >= ABANDON_BREAKS_MIN => {
                self.breaks = 0;
                self.purging = Lane(self.purging.0 + 1);
                self.go_on_purging(out);
            }
            Some(_) if !self.open => self.open_party(Party::Target(self.purging), out),
            Some(_) => self.purge(out),
        }
    }

    fn purge(&mut self, out: &mut Vec<Command>) {
        out.push(Command::Purge(self.purging));
        self.awaiting = Awaiting::Purging;
    }

    fn next_purge(&mut self, out: &mut Vec<Command>) {
        self.purging = Lane(self.purging.0 + 1);
        self.open = false;
        self.go_on_purging(out);
    }
}
