//! How everything that is under way is ended, and what follows when it has.
//!
//! Tasks end first, always; then a handover under way is rolled back; then the machine starts again,
//! stops or holds still. A commit or a read of the record is waited for, since what it says decides.

use alloc::vec::Vec;

use super::{Awaiting, Interrupt, Machine};
use crate::HandoffState;
use crate::handoff::message::{Command, Turn};
use crate::handoff::reason::{Rollback, StopReason};

/// The pause after a first broken connection; doubled each time up to the largest.
const PAUSE_MS_MIN: u64 = 50;
const PAUSE_MS_MAX: u64 = 5_000;

impl Machine {
    pub(super) fn awaits_store(&self) -> bool {
        use Awaiting::{Commit, LastRead, Leadership, Settling};
        matches!(
            self.awaiting,
            Commit(_) | Settling(_) | Leadership | LastRead
        )
    }

    /// Ends what is under way. A commit or a read is waited for: what it says decides what follows.
    pub(super) fn interrupt(&mut self, why: Interrupt, out: &mut Vec<Command>) {
        if self.is_still() {
            if why == Interrupt::Abort && self.awaiting == Awaiting::Stopped {
                self.park(out);
            }
            return;
        }
        self.note_interrupt(why);
        if !self.awaits_store() && self.awaiting != Awaiting::Cancelled {
            self.cancel(out);
        }
    }

    /// The same, said by the store itself: nothing is outstanding there any more.
    pub(super) fn interrupt_store_answer(&mut self, why: Interrupt, out: &mut Vec<Command>) {
        if self.awaits_store() {
            self.note_interrupt(why);
            self.cancel(out);
        }
    }

    pub(super) fn note_interrupt(&mut self, why: Interrupt) {
        if self
            .interrupt
            .as_ref()
            .is_none_or(|known| known.rank() < why.rank())
        {
            self.interrupt = Some(why);
        }
    }

    pub(super) fn cancel(&mut self, out: &mut Vec<Command>) {
        out.push(Command::Cancel);
        self.awaiting = Awaiting::Cancelled;
    }

    pub(super) fn cancelled(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        if self.awaiting != Awaiting::Cancelled {
            return;
        }
        self.open = false;
        self.late = false;
        self.copying.forget();
        let deposed = self.interrupt == Some(Interrupt::Deposed);
        if self.entry.state == HandoffState::Handover && !deposed {
            let why = self
                .handover
                .as_ref()
                .and_then(|handover| handover.rollback.clone());
            return self.roll_back(why.unwrap_or(Rollback::Aborted), out);
        }
        self.end_interrupt(now_ms, out);
    }

    /// All tasks have ended and no request is held: does what the interrupt was for.
    pub(super) fn end_interrupt(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        match self.interrupt.take() {
            Some(Interrupt::Abort) => self.park(out),
            Some(Interrupt::Stop(reason)) => self.stop(reason, out),
            Some(Interrupt::Deposed) => self.stop(StopReason::Deposed, out),
            Some(Interrupt::Restart) | None => {
                // A whole copy lies before its next handover: others go first.
                self.release(Turn::Handover, out);
                let doubled = PAUSE_MS_MIN << self.breaks.min(16);
                self.breaks = self.breaks.saturating_add(1);
                self.awaiting = Awaiting::Pause {
                    until_ms: now_ms + doubled.min(PAUSE_MS_MAX),
                };
            }
        }
    }

    pub(super) fn timeout(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        match self.awaiting {
            Awaiting::Pause { until_ms } if now_ms >= until_ms => self.after_pause(out),
            Awaiting::LateAnswer { until_ms } if now_ms >= until_ms => {
                self.interrupt(Interrupt::Restart, out)
            }
            _ if self.is_handing_over() && self.is_over_budget(now_ms) => {
                // What is outstanding may still be answered; requests are not held for that long.
                self.late = true;
                self.roll_back(Rollback::OverBudget, out);
            }
            _ => {}
        }
    }

    pub(super) fn after_pause(&mut self, out: &mut Vec<Command>) {
        if self.open && self.copying.is_tracked() && self.entry.state == HandoffState::Copying {
            self.round(0, out);
        } else {
            self.go_on(out);
        }
    }
}
