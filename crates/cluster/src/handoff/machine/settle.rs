//! Commits, and the linearizable reads that settle what became of them.
//!
//! A result that is unknown is never guessed, and a conflict is not a refusal: if this handoff and the
//! leadership are as they were, the same step is committed again at once.

use alloc::vec::Vec;

use super::{Awaiting, Interrupt, Machine};
use crate::handoff::message::{Command, Situation};
use crate::handoff::reason::{Rollback, StopReason};
use crate::{HandoffState, Step};

/// Commits of one step that may meet another's before the machine gives up.
const COMMITS_MAX: u32 = 16;
/// The pause between two reads of a store that does not answer.
const STORE_PAUSE_MS: u64 = 100;

impl Machine {
    pub(super) fn commit(&mut self, step: Step, out: &mut Vec<Command>) {
        if !matches!(&self.awaiting, Awaiting::Settling(settling) if *settling == step) {
            self.conflicts = 0;
        }
        out.push(Command::Commit(step.clone()));
        self.awaiting = Awaiting::Commit(step);
    }

    pub(super) fn committed(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        if let Awaiting::Commit(step) = self.awaiting.clone() {
            self.adopt(&step);
            self.stepped(step, now_ms, out);
        }
    }

    /// What the entry is after a step.
    pub(super) fn adopt(&mut self, step: &Step) {
        self.entry.state = step.state();
        match step {
            Step::Handover { generation, .. } => self.entry.generation = *generation,
            Step::Flip { targets } => self.entry.flip.clone_from(targets),
            _ => {}
        }
    }

    /// Goes on after a step that is in the record.
    pub(super) fn stepped(&mut self, step: Step, now_ms: u64, out: &mut Vec<Command>) {
        self.breaks = 0;
        self.note_hold_end(&step, now_ms);
        if matches!(step, Step::Flip { .. }) {
            self.end_copying(out);
        }
        match step {
            Step::Rollback => self.rolled_back(now_ms, out),
            _ if self.interrupt.is_some() => self.cancel(out),
            Step::Copying | Step::Flip { .. } => self.go_on(out),
            Step::Verifying => self.verifying_begun(out),
            Step::Handover { .. } => self.count_old(now_ms, out),
            Step::Cleaning => self.clean(out),
            Step::Done | Step::Undone => self.finish(out),
        }
    }

    /// The result of a commit is unclear, or another came first: the record tells.
    pub(super) fn settle(&mut self, out: &mut Vec<Command>) {
        if let Awaiting::Commit(step) = self.awaiting.clone() {
            self.read_record(Awaiting::Settling(step), 0, out);
        }
    }

    /// The store could not be written, and may be again: after a look at the record the same step is committed
    /// once more, for as long as that takes. Nobody else came first, so that it does not count as a conflict.
    pub(super) fn settle_later(&mut self, out: &mut Vec<Command>) {
        if let Awaiting::Commit(step) = self.awaiting.clone() {
            self.conflicts = 0;
            self.read_record(Awaiting::Settling(step), STORE_PAUSE_MS, out);
        }
    }

    pub(super) fn read_record(
        &mut self,
        awaiting: Awaiting,
        after_ms: u64,
        out: &mut Vec<Command>,
    ) {
        out.push(Command::ReadRecord { after_ms });
        self.awaiting = awaiting;
    }

    pub(super) fn read_again(&mut self, out: &mut Vec<Command>) {
        if matches!(
            self.awaiting,
            Awaiting::Leadership | Awaiting::LastRead | Awaiting::Settling(_)
        ) {
            out.push(Command::ReadRecord {
                after_ms: STORE_PAUSE_MS,
            });
        }
    }

    pub(super) fn read(&mut self, situation: Situation, now_ms: u64, out: &mut Vec<Command>) {
        let awaiting = self.awaiting.clone();
        if !matches!(
            awaiting,
            Awaiting::Leadership | Awaiting::LastRead | Awaiting::Settling(_)
        ) {
            return;
        }
        if !situation.leads {
            return self.interrupt_store_answer(Interrupt::Deposed, out);
        }
        let Some(entry) = situation.entry else {
            return self.interrupt_store_answer(Interrupt::Abort, out);
        };
        let unchanged = self.entry.is_as_in(&entry);
        self.entry = entry;
        match awaiting {
            Awaiting::Settling(step) if self.is_in_record(&step) => self.stepped(step, now_ms, out),
            Awaiting::Settling(step) if unchanged => self.commit_again(step, now_ms, out),
            Awaiting::LastRead if unchanged => self.commit_flip(now_ms, out),
            Awaiting::Leadership => {
                self.open = true;
                if self.interrupt.is_some() {
                    self.cancel(out)
                } else {
                    self.go_on(out)
                }
            }
            _ => self.changed_by_another(now_ms, out),
        }
    }

    pub(super) fn is_in_record(&self, step: &Step) -> bool {
        let same = match step {
            Step::Handover { generation, .. } => self.entry.generation == *generation,
            Step::Flip { targets } => self.entry.flip == *targets,
            _ => true,
        };
        same && self.entry.state == step.state()
    }

    /// Another commit came between, but this handoff and the leadership are as they were.
    pub(super) fn commit_again(&mut self, step: Step, now_ms: u64, out: &mut Vec<Command>) {
        self.conflicts += 1;
        if self.conflicts > COMMITS_MAX {
            return self.interrupt_store_answer(Interrupt::Stop(StopReason::StoreContended), out);
        }
        if self.interrupt.is_some() && step != Step::Rollback {
            return self.cancel(out);
        }
        if matches!(step, Step::Flip { .. }) && self.is_over_budget(now_ms) {
            return self.roll_back(Rollback::OverBudget, out);
        }
        self.commit(step, out);
    }

    /// Somebody else moved this handoff on: what is under way does not fit any more.
    pub(super) fn changed_by_another(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        if self.handover.is_some() && self.entry.state == HandoffState::Copying {
            self.note_rollback(Rollback::BySomebodyElse);
            return self.stepped(Step::Rollback, now_ms, out);
        }
        self.handover = None;
        self.interrupt_store_answer(Interrupt::Restart, out);
    }
}
