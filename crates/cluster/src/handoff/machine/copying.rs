//! From `planned` to both sides being equal but for a few dirty keys: S is the only writer throughout.

use alloc::vec::Vec;

use super::{Awaiting, Check, Interrupt, Machine};
use crate::copier::Lane;
use crate::handoff::message::{
    Command, Event, Identities, Identity, Party, RoundReport, Server, Turn,
};
use crate::handoff::preflight::{self, Facts, Refusal};
use crate::handoff::reason::StopReason;
use crate::{HandoffKind, HandoffState, Step};

/// So few dirty keys are copied within a few milliseconds under the fence.
const FEW_DIRTY_MAX: u64 = 200;
/// Rounds in a row that end with few dirty keys before that counts as steady.
const STEADY_ROUNDS: u32 = 2;
/// Rounds without a new low of dirty keys before they slow down: more repeats become one copy.
const STALLED_ROUNDS_SLOW: u32 = 8;
/// Rounds without a new low before it stops and says so.
const STALLED_ROUNDS_MAX: u32 = 24;
/// The pause before a round when they have slowed down.
const SLOW_ROUND_MS: u64 = 250;
/// The pause before a round while waiting for the turn to hand over.
const WAITING_ROUND_MS: u64 = 20;
/// What copying untracked values under the fence may cost: half of the budget.
const UNTRACKED_MS_MAX: u64 = 200;
/// Keys found different that are put down to chance, beside one in a hundred.
const MISMATCHES_FREE: u64 = 16;

/// What is known about the copy beyond the record; gone with the first broken connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Copying {
    // Whether the stream of touched keys has been whole since before the listing, which is complete.
    tracked: bool,
    // Whether both sides were compared since; what is copied after that is compared at once.
    verified: bool,
    // Whether the servers were seen to be the same after the comparison.
    rechecked: bool,
    rounds: Rounds,
    identities: Option<Identities>,
    // Survives: how many keys the source had when it was last seen.
    source_keys: Option<(Identity, u64)>,
    mismatches: u64,
    compared: u64,
}

/// Whether the dirty keys become fewer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Rounds {
    few_in_a_row: u32,
    fewest: Option<u64>,
    stalled: u32,
}

impl Copying {
    pub(super) const fn is_tracked(&self) -> bool {
        self.tracked
    }

    pub(super) fn forget(&mut self) {
        *self = Self {
            source_keys: self.source_keys.take(),
            ..Self::default()
        };
    }

    /// After a handover that failed: the dirty keys have to become few again.
    pub(super) fn begin_rounds_again(&mut self) {
        self.rounds = Rounds::default();
    }

    /// Under the fence something differed: the comparison before it cannot be relied on.
    pub(super) const fn compare_anew(&mut self) {
        self.verified = false;
    }

    pub(super) fn identities(&self) -> Option<&Identities> {
        self.identities.as_ref()
    }
}

impl Machine {
    pub(super) fn go_on_copying(&mut self, out: &mut Vec<Command>) {
        if !self.has_turn(Turn::Copy, out) {
            self.awaiting = Awaiting::Turn;
        } else if self.entry.state == HandoffState::Planned && !self.inspected {
            out.push(Command::Inspect);
            self.awaiting = Awaiting::Inspection;
        } else if self.entry.state == HandoffState::Planned
            && self.entry.kind == HandoffKind::Reverse
            && !self.source_durable
        {
            self.make_source_durable(out);
        } else if self.entry.state == HandoffState::Planned && self.entry.kind != HandoffKind::Lost
        {
            self.commit(Step::Copying, out);
        } else if !self.open {
            let lost = self.entry.kind == HandoffKind::Lost;
            self.open_party(if lost { Party::Targets } else { Party::All }, out);
        } else if self.entry.state == HandoffState::Verifying {
            // What the comparison rested on is gone.
            self.commit(Step::Copying, out);
        } else {
            self.identify(Check::Begin, out);
        }
    }

    pub(super) fn judge(&mut self, facts: &Facts, out: &mut Vec<Command>) {
        if self.awaiting != Awaiting::Inspection {
            return;
        }
        let refusals = preflight::check(facts);
        if !refusals.is_empty() {
            // A server that is away may come back by itself; everything else a person has to mend.
            let away = |refusal: &Refusal| matches!(refusal, Refusal::Unreachable { .. });
            self.interrupt = Some(match refusals.iter().all(away) {
                true => Interrupt::Restart,
                false => Interrupt::Stop(StopReason::Refused(refusals)),
            });
            return self.cancel(out);
        }
        self.inspected = true;
        self.go_on(out);
    }

    /// The targets of what is given back have it still, from before their flip. None of that goes until the
    /// source, which has it from them, can restart without losing it.
    fn make_source_durable(&mut self, out: &mut Vec<Command>) {
        if self.open {
            self.identify(Check::BeforeDurableSource, out);
        } else {
            self.open_party(Party::All, out);
        }
    }

    pub(super) fn identified_before_copying(
        &mut self,
        check: Check,
        found: &Identities,
        out: &mut Vec<Command>,
    ) {
        let run = |found: &Identities| {
            let source = found.source.as_ref();
            source.map(|(source, _)| source.incarnation.clone())
        };
        let before = self.copying.identities.as_ref().and_then(run);
        let expected = self.entry.source_expected.clone().or(before);
        if expected.is_some() && run(found) != expected {
            // Looked at once more it is refused, in the words for that.
            self.inspected = false;
            self.interrupt = Some(Interrupt::Restart);
            return self.cancel(out);
        }
        if check == Check::BeforeDurableSource {
            self.copying.identities = Some(found.clone());
            out.push(Command::DurableSource);
            self.awaiting = Awaiting::DurableSource;
        } else {
            self.source_durable = true;
            self.go_on(out);
        }
    }

    pub(super) fn identified_at_begin(&mut self, found: &Identities, out: &mut Vec<Command>) {
        if let Some(reason) = self.unfit(found) {
            self.interrupt = Some(Interrupt::Stop(reason));
            return self.cancel(out);
        }
        self.copying.source_keys.clone_from(&found.source);
        self.copying.identities = Some(found.clone());
        out.push(Command::Sweep);
        self.awaiting = Awaiting::Sweep;
    }

    /// Why no copy can be made of or to these servers.
    fn unfit(&self, found: &Identities) -> Option<StopReason> {
        if let Some((source, keys)) = &found.source {
            if !source.primary {
                return Some(StopReason::NotPrimary(Server::Source));
            }
            if let Some((before, keys_before)) = &self.copying.source_keys
                && before.incarnation != source.incarnation
                && *keys == 0
                && *keys_before > 0
            {
                return Some(StopReason::SourceEmptied {
                    keys_before: *keys_before,
                });
            }
        }
        for (lane, target) in (0..).map(Lane).zip(&found.targets) {
            if !target.primary {
                return Some(StopReason::NotPrimary(Server::Target(lane)));
            }
        }
        self.distrusted_target(found)
    }

    /// A target that lets nobody in until somebody decides: what is copied to it could never be handed over.
    fn distrusted_target(&self, found: &Identities) -> Option<StopReason> {
        let targets = self.entry.targets_trusted.iter().zip(&found.targets);
        let mut distrusted = (0..)
            .map(Lane)
            .zip(targets)
            .filter_map(|(lane, (trusted, found))| {
                let trusted = trusted.as_ref()?;
                (trusted.incarnation != found.incarnation).then_some((lane, trusted, found))
            });
        let (target, trusted, found) = distrusted.next()?;
        Some(StopReason::TargetClosed {
            target,
            source: trusted.source.clone(),
            expected: trusted.incarnation.clone(),
            found: found.incarnation.clone(),
        })
    }

    pub(super) fn copy_answer(&mut self, event: Event, now_ms: u64, out: &mut Vec<Command>) {
        match (&self.awaiting, event) {
            (Awaiting::Sweep, Event::Swept { .. }) if self.entry.kind == HandoffKind::Lost => {
                self.commit_flip(now_ms, out);
            }
            (Awaiting::Sweep, Event::Swept { .. }) => {
                out.push(Command::Track);
                self.awaiting = Awaiting::Tracking;
            }
            (Awaiting::Tracking, Event::Tracking) => {
                out.push(Command::List);
                self.awaiting = Awaiting::Listing;
            }
            (Awaiting::Listing, Event::Listed) => {
                self.breaks = 0;
                self.copying.tracked = true;
                self.round(0, out);
            }
            (Awaiting::Round, Event::Round(report)) => self.round_landed(&report, out),
            (
                Awaiting::Comparison,
                Event::Verified {
                    compared,
                    mismatches,
                },
            ) => {
                self.compared(compared, mismatches, out);
            }
            _ => {}
        }
    }

    pub(super) fn round(&mut self, after_ms: u64, out: &mut Vec<Command>) {
        out.push(Command::Round { after_ms });
        self.awaiting = Awaiting::Round;
    }

    fn round_landed(&mut self, report: &RoundReport, out: &mut Vec<Command>) {
        let rounds = &mut self.copying.rounds;
        if report.dirty <= FEW_DIRTY_MAX {
            rounds.few_in_a_row = (rounds.few_in_a_row + 1).min(STEADY_ROUNDS);
            rounds.stalled = 0;
        } else if rounds.fewest.is_none_or(|fewest| report.dirty < fewest) {
            rounds.few_in_a_row = 0;
            rounds.fewest = Some(report.dirty);
            rounds.stalled = 0;
        } else {
            rounds.few_in_a_row = 0;
            rounds.stalled += 1;
        }
        if rounds.stalled >= STALLED_ROUNDS_MAX {
            let copied_per_second = report.copied * 1000 / report.took_ms.max(1);
            let reason = StopReason::DirtOutgrowsCopying {
                dirty: report.dirty,
                copied_per_second,
            };
            return self.interrupt(Interrupt::Stop(reason), out);
        }
        if report.untracked_ms > UNTRACKED_MS_MAX {
            let reason = StopReason::UntrackedTooSlow {
                expected_ms: report.untracked_ms,
            };
            return self.interrupt(Interrupt::Stop(reason), out);
        }
        if rounds.few_in_a_row >= STEADY_ROUNDS {
            return self.steady(out);
        }
        let after_ms = if rounds.stalled >= STALLED_ROUNDS_SLOW {
            SLOW_ROUND_MS
        } else {
            0
        };
        self.round(after_ms, out);
    }

    /// Few keys are dirty: on to the comparison, then to the handover as soon as it is its turn.
    fn steady(&mut self, out: &mut Vec<Command>) {
        if self.entry.state == HandoffState::Copying {
            self.commit(Step::Verifying, out);
        } else if !self.copying.rechecked {
            self.identify(Check::BeforeHandover, out);
        } else if self.has_turn(Turn::Handover, out) {
            out.push(Command::Prepare);
            self.awaiting = Awaiting::Users;
        } else {
            self.round(WAITING_ROUND_MS, out);
        }
    }

    pub(super) fn verifying_begun(&mut self, out: &mut Vec<Command>) {
        if self.copying.verified {
            return self.round(0, out);
        }
        out.push(Command::Verify);
        self.awaiting = Awaiting::Comparison;
    }

    fn compared(&mut self, compared: u64, mismatches: u64, out: &mut Vec<Command>) {
        self.copying.compared += compared;
        self.copying.mismatches += mismatches;
        if self.copying.mismatches > MISMATCHES_FREE + self.copying.compared / 100 {
            let (mismatches, compared) = (self.copying.mismatches, self.copying.compared);
            let reason = StopReason::TooManyMismatches {
                mismatches,
                compared,
            };
            return self.interrupt(Interrupt::Stop(reason), out);
        }
        self.copying.verified = true;
        self.copying.rounds = Rounds::default();
        self.round(0, out);
    }

    pub(super) fn identified_before_handover(
        &mut self,
        found: &Identities,
        out: &mut Vec<Command>,
    ) {
        if !self.are_the_same(found) {
            return self.interrupt(Interrupt::Restart, out);
        }
        self.copying.rechecked = true;
        self.steady(out);
    }

    /// Whether every server is still the run of the data that the copy began with.
    pub(super) fn are_the_same(&self, found: &Identities) -> bool {
        let Some(known) = self.copying.identities() else {
            return false;
        };
        let identity =
            |side: &Identities| side.source.as_ref().map(|(identity, _)| identity.clone());
        identity(known) == identity(found) && known.targets == found.targets
    }
}
