//! From the commit of `handover` to the flip or back: requests for moving keys are held meanwhile.
//!
//! The order is the proof: client users first, then the commit; the fence only after that; the barrier
//! only after the fence's reply; the last copies only after the barrier; then their comparison, every
//! server's identity and the leadership once more; then the flip. Whatever fails on the way, or is late,
//! rolls back: the source keeps its new generation, and the next handover fences everything below its own.

use alloc::vec::Vec;

use super::{Awaiting, Check, Interrupt, Machine};
use crate::handoff::message::{Command, Event, Identities, Turn};
use crate::handoff::reason::{Rollback, StopReason};
use crate::{Generation, HandoffState, Step};

/// From sending the commit of `handover` to the flip.
pub const HANDOVER_BUDGET_MS: u64 = 400;
/// How long clients get to leave the old generation by themselves.
pub const OLD_CONNECTIONS_MS_MAX: u64 = 250;
/// When the old connections are counted, after the commit. Five times, since listing 5,000 costs a server 5 ms.
const COUNT_AT_MS: [u64; 5] = [2, 10, 30, 80, 170];
/// Handovers in a row that may fail.
const HANDOVERS_MAX: u32 = 8;
/// The pause after a first failed handover; doubled each time.
const RETRY_MS_MIN: u64 = 250;
const RETRY_MS_MAX: u64 = 10_000;
/// How long a command that outlasted its handover may go on before its connection is given up.
const LATE_ANSWER_MS_MAX: u64 = 2_000;

/// A handover under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Handover {
    // When the commit was sent, not when it was answered: the stricter of the two.
    began_ms: u64,
    generation: Generation,
    counted: usize,
    pub(super) rollback: Option<Rollback>,
}

impl Handover {
    const fn new(began_ms: u64, generation: Generation) -> Self {
        Self {
            began_ms,
            generation,
            counted: 0,
            rollback: None,
        }
    }

    pub(super) const fn over_at_ms(&self) -> u64 {
        self.began_ms + HANDOVER_BUDGET_MS
    }
}

impl Machine {
    pub(super) fn handover_answer(&mut self, event: Event, now_ms: u64, out: &mut Vec<Command>) {
        if self.is_handing_over() && event.answers_a_handover() && self.is_over_budget(now_ms) {
            return self.roll_back(Rollback::OverBudget, out);
        }
        match (&self.awaiting, event) {
            (Awaiting::Users, Event::Prepared { generation, nonce }) => {
                self.handover = Some(Handover::new(now_ms, generation));
                self.commit(Step::Handover { generation, nonce }, out);
            }
            (Awaiting::OldConnections, Event::OldConnections(0)) => self.fence(out),
            (Awaiting::OldConnections, Event::OldConnections(_)) => self.count_old(now_ms, out),
            (Awaiting::Fence, Event::Fenced) => {
                self.command(Command::Barrier, Awaiting::Barrier, out)
            }
            (Awaiting::Fence, Event::FenceFailed(why)) => self.roll_back(Rollback::Fence(why), out),
            (Awaiting::Barrier, Event::BarrierPassed) => {
                self.command(Command::CopyLast, Awaiting::LastCopies, out);
            }
            (Awaiting::LastCopies, Event::LastCopied { .. }) => {
                self.command(Command::CompareLast, Awaiting::LastComparison, out);
            }
            (Awaiting::LastComparison, Event::LastCompared { different: 0 }) => {
                self.identify(Check::BeforeFlip, out);
            }
            (Awaiting::LastComparison, Event::LastCompared { different }) => {
                self.roll_back(Rollback::LastKeysDiffered { different }, out);
            }
            _ => {}
        }
    }

    /// Whether a command to a server is outstanding while requests are held.
    pub(super) fn is_handing_over(&self) -> bool {
        use Awaiting::{Barrier, Fence, Identities, LastComparison, LastCopies, OldConnections};
        let waits = matches!(
            self.awaiting,
            OldConnections
                | Fence
                | Barrier
                | LastCopies
                | LastComparison
                | Identities(Check::BeforeFlip)
        );
        self.handover.is_some() && waits
    }

    /// The command that outlasted its handover was answered after all: its session is whole.
    pub(super) fn late_answer(&mut self, now_ms: u64) {
        self.late = false;
        if matches!(self.awaiting, Awaiting::LateAnswer { .. }) {
            self.pause_before_next_handover(now_ms);
        }
    }

    fn command(&mut self, command: Command, awaiting: Awaiting, out: &mut Vec<Command>) {
        out.push(command);
        self.awaiting = awaiting;
    }

    /// Counts the connections that have not left yet, or fences when they had their time.
    pub(super) fn count_old(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        let Some(handover) = self.handover.as_mut() else {
            return;
        };
        let passed_ms = now_ms.saturating_sub(handover.began_ms);
        let Some(&at_ms) = COUNT_AT_MS.get(handover.counted) else {
            return self.fence(out);
        };
        if passed_ms >= OLD_CONNECTIONS_MS_MAX {
            return self.fence(out);
        }
        handover.counted += 1;
        let generation = handover.generation;
        let after_ms = at_ms.saturating_sub(passed_ms);
        self.command(
            Command::CountOld {
                generation,
                after_ms,
            },
            Awaiting::OldConnections,
            out,
        );
    }

    fn fence(&mut self, out: &mut Vec<Command>) {
        debug_assert_eq!(
            self.entry.state,
            HandoffState::Handover,
            "never before the commit"
        );
        self.command(Command::Fence(self.entry.generation), Awaiting::Fence, out);
    }

    pub(super) fn identified_before_flip(
        &mut self,
        found: &Identities,
        now_ms: u64,
        out: &mut Vec<Command>,
    ) {
        if self.is_over_budget(now_ms) {
            self.roll_back(Rollback::OverBudget, out);
        } else if self.are_the_same(found) {
            self.read_record(Awaiting::LastRead, 0, out);
        } else {
            self.note_rollback(Rollback::IdentityChanged);
            self.interrupt(Interrupt::Restart, out);
        }
    }

    /// The last look at the leadership was good: flips, unless it is too late or something came up.
    pub(super) fn commit_flip(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        if self.interrupt.is_some() {
            return self.cancel(out);
        }
        if self.is_over_budget(now_ms) {
            return self.roll_back(Rollback::OverBudget, out);
        }
        let identities = self
            .copying
            .identities()
            .expect("known since the copy began");
        let targets = identities
            .targets
            .iter()
            .map(|target| target.incarnation.clone())
            .collect();
        self.commit(Step::Flip { targets }, out);
    }

    pub(super) fn is_over_budget(&self, now_ms: u64) -> bool {
        self.handover
            .as_ref()
            .is_some_and(|handover| now_ms >= handover.over_at_ms())
    }

    /// Remembers the first reason why a handover under way will be rolled back.
    pub(super) fn note_rollback(&mut self, why: Rollback) {
        if let Some(handover) = self.handover.as_mut() {
            handover.rollback.get_or_insert(why);
        }
    }

    pub(super) fn roll_back(&mut self, why: Rollback, out: &mut Vec<Command>) {
        if self.handover.is_none() {
            // Begun by a leader that is gone: how long ago does not matter any more.
            self.handover = Some(Handover::new(0, self.entry.generation));
        }
        self.note_rollback(why);
        self.commit(Step::Rollback, out);
    }

    pub(super) fn note_hold_end(&mut self, step: &Step, now_ms: u64) {
        if matches!(step, Step::Flip { .. } | Step::Rollback)
            && let Some(handover) = &self.handover
            && handover.rollback != Some(Rollback::Resumed)
        {
            self.hold_ms_max = self
                .hold_ms_max
                .max(now_ms.saturating_sub(handover.began_ms));
        }
    }

    /// The source owns everything again, under its new generation.
    pub(super) fn rolled_back(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        let why = self.handover.take().and_then(|handover| handover.rollback);
        let why = why.unwrap_or(Rollback::BySomebodyElse);
        self.release(Turn::Handover, out);
        self.last_rollback = Some(why.clone());
        if why == Rollback::Resumed {
            return self.go_on(out);
        }
        let fails = !matches!(why, Rollback::Aborted | Rollback::Copy);
        self.rollbacks += u32::from(fails);
        self.copying.begin_rounds_again();
        if let Some(hopeless) = self.is_hopeless(why) {
            self.note_interrupt(hopeless);
        }
        match (&self.interrupt, self.open) {
            (Some(_), true) => self.cancel(out),
            (Some(_), false) => self.end_interrupt(now_ms, out),
            (None, _) if self.late => {
                self.awaiting = Awaiting::LateAnswer {
                    until_ms: now_ms + LATE_ANSWER_MS_MAX,
                };
            }
            (None, _) => self.pause_before_next_handover(now_ms),
        }
    }

    /// Counts a handover that could not even be begun like one that failed: a whole copy lies before the next
    /// one, and what the servers refuse here they may refuse for ever.
    pub(super) fn handover_not_begun(&mut self) -> Option<Interrupt> {
        if self.awaiting != Awaiting::Users {
            return None;
        }
        self.rollbacks += 1;
        self.is_hopeless(Rollback::Broken)
    }

    /// Whether so many handovers failed that the next one would be no different.
    fn is_hopeless(&self, last: Rollback) -> Option<Interrupt> {
        (self.rollbacks >= HANDOVERS_MAX).then_some(Interrupt::Stop(StopReason::HandoverFails {
            attempts: self.rollbacks,
            last,
        }))
    }

    fn pause_before_next_handover(&mut self, now_ms: u64) {
        let pause_ms = (RETRY_MS_MIN << self.rollbacks.saturating_sub(1).min(16)).min(RETRY_MS_MAX);
        self.awaiting = Awaiting::Pause {
            until_ms: now_ms + pause_ms,
        };
    }
}
