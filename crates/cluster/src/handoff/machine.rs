//! One handoff, from its recorded state to `done`: events and time in, commands out.
//!
//! A machine is made from what the record says and from nothing else, so that whoever leads next goes
//! on where the last one stopped. It holds at most one command outstanding. What it knows beyond the
//! record (that tracking is on, that both sides were compared) is lost with any connection: then every
//! task ends ([`Command::Cancel`]), and it begins again with its own user, the removal of lower terms'
//! users and a linearizable read.
//!
//! The stages are in files of their own: [`copying`] up to the comparison, [`handover`] from the fence
//! to the flip or back, [`cleaning`] for what is removed afterwards. So are the two things that can happen
//! in each of them: how a commit is settled ([`settle`]) and how everything ends ([`interrupt`]).

mod cleaning;
mod copying;
mod handover;
mod interrupt;
mod settle;

use alloc::vec::Vec;

use super::message::{Command, Entry, Event, Identities, Party, Turn};
use super::reason::{Rollback, StopReason};
use crate::copier::Lane;
use crate::{Direction, HandoffKind, HandoffState, Step};
use copying::Copying;
use handover::Handover;
pub use handover::{HANDOVER_BUDGET_MS, OLD_CONNECTIONS_MS_MAX};

/// One handoff under one leadership.
#[derive(Clone, Debug)]
pub struct Machine {
    entry: Entry,
    awaiting: Awaiting,
    interrupt: Option<Interrupt>,
    // Invariant: no turn is in both.
    asked: Vec<Turn>,
    held: Vec<Turn>,
    // Whether sessions are open, under a leadership read after they were.
    open: bool,
    inspected: bool,
    // Whether what the source has is known to survive a restart of it; of one that gives back.
    source_durable: bool,
    copying: Copying,
    // Some from the commit of `handover` until it is flipped or rolled back.
    handover: Option<Handover>,
    rollbacks: u32,
    last_rollback: Option<Rollback>,
    hold_ms_max: u64,
    // Broken connections in a row.
    breaks: u32,
    // Commits of the present step that met another's.
    conflicts: u32,
    // Whether a command of a handover that ran out of time is still to be answered.
    late: bool,
    // Whether nobody waits any more for the source, which leaves the pool and cannot be reached.
    abandoned: bool,
    // Where the next copies are purged.
    purging: Lane,
}

/// What is outstanding.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Awaiting {
    Start,
    Turn,
    Inspection,
    Sessions,
    Leadership,
    Identities(Check),
    DurableSource,
    Sweep,
    Tracking,
    Listing,
    Round,
    Comparison,
    Users,
    Commit(Step),
    /// A linearizable read after a commit whose result is unclear.
    Settling(Step),
    OldConnections,
    Fence,
    Barrier,
    LastCopies,
    LastComparison,
    LastRead,
    Durable,
    Cleaning,
    Purging,
    Cancelled,
    /// The answer to a command of a handover that was rolled back meanwhile.
    LateAnswer {
        until_ms: u64,
    },
    Pause {
        until_ms: u64,
    },
    Stopped,
    Parked,
    Finished,
}

/// What identities are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    BeforeDurableSource,
    AfterDurableSource,
    Begin,
    BeforeHandover,
    BeforeFlip,
    BeforeDurable,
    AfterDurable,
    BetweenSlices,
}

/// Why everything ends. Ordered: the later one wins over the earlier.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Interrupt {
    Restart,
    Stop(StopReason),
    Abort,
    Deposed,
}

impl Interrupt {
    const fn rank(&self) -> u8 {
        match self {
            Self::Restart => 0,
            Self::Stop(_) => 1,
            Self::Abort => 2,
            Self::Deposed => 3,
        }
    }
}

impl Machine {
    /// A machine that goes on from what the record says.
    ///
    /// # Panics
    /// When the entry has no targets.
    #[must_use]
    pub fn new(entry: Entry) -> Self {
        assert!(!entry.targets_leave.is_empty(), "a handoff has targets");
        Self {
            entry,
            awaiting: Awaiting::Start,
            interrupt: None,
            asked: Vec::new(),
            held: Vec::new(),
            open: false,
            inspected: false,
            source_durable: false,
            copying: Copying::default(),
            handover: None,
            rollbacks: 0,
            last_rollback: None,
            hold_ms_max: 0,
            breaks: 0,
            conflicts: 0,
            late: false,
            abandoned: false,
            purging: Lane(0),
        }
    }

    /// The first commands.
    ///
    /// # Panics
    /// When it was started before.
    #[must_use]
    pub fn start(&mut self) -> Vec<Command> {
        assert_eq!(self.awaiting, Awaiting::Start, "a machine starts once");
        let mut out = Vec::new();
        self.go_on(&mut out);
        out
    }

    /// Takes in what happened and says what to do next.
    #[must_use]
    pub fn handle(&mut self, event: Event, now_ms: u64) -> Vec<Command> {
        let mut out = Vec::new();
        if let Event::LastCompared { different: 1.. } = event {
            self.copying.compare_anew();
        }
        if self.late && event.answers_a_handover() {
            self.late_answer(now_ms);
            return out;
        }
        match event {
            Event::Abort => self.interrupt(Interrupt::Abort, &mut out),
            Event::Deposed => self.interrupt_store_answer(Interrupt::Deposed, &mut out),
            Event::Broken { .. } | Event::TrackingLost | Event::Flushed => {
                self.note_rollback(Rollback::Broken);
                let why = self.handover_not_begun().unwrap_or(Interrupt::Restart);
                self.interrupt(why, &mut out);
            }
            Event::CopyStopped(stop) => {
                self.note_rollback(Rollback::Copy);
                self.interrupt(Interrupt::Stop(StopReason::Copy(stop)), &mut out);
            }
            Event::WriteRefused { target, why } => {
                self.note_rollback(Rollback::Copy);
                self.interrupt(Interrupt::Stop(StopReason::Write { target, why }), &mut out);
            }
            Event::Timeout => self.timeout(now_ms, &mut out),
            Event::Granted(turn) => self.granted(turn, &mut out),
            Event::Cancelled => self.cancelled(now_ms, &mut out),
            Event::Record(situation) => self.read(situation, now_ms, &mut out),
            Event::StoreAway => self.read_again(&mut out),
            Event::Committed { .. } => self.committed(now_ms, &mut out),
            Event::Conflict | Event::Unknown => self.settle(&mut out),
            Event::NotCommitted => self.settle_later(&mut out),
            Event::TooLarge { bytes, limit } => {
                let reason = StopReason::TooLarge { bytes, limit };
                self.interrupt_store_answer(Interrupt::Stop(reason), &mut out);
            }
            answer => self.answer(answer, now_ms, &mut out),
        }
        out
    }

    /// When [`Event::Timeout`] is due, if at all.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        if let Awaiting::Pause { until_ms } | Awaiting::LateAnswer { until_ms } = self.awaiting {
            return Some(until_ms);
        }
        let handover = self.handover.as_ref()?;
        self.is_handing_over().then(|| handover.over_at_ms())
    }

    /// What the record says about this handoff, as last read or committed.
    #[must_use]
    pub fn state(&self) -> HandoffState {
        self.entry.state
    }

    /// The longest hold so far, from sending the commit of `handover` to its flip or rollback.
    #[must_use]
    pub fn hold_ms_max(&self) -> u64 {
        self.hold_ms_max
    }

    /// Why the last handover was rolled back, if one was.
    #[must_use]
    pub fn last_rollback(&self) -> Option<&Rollback> {
        self.last_rollback.as_ref()
    }

    /// Broken connections in a row; above 0 it is waiting for a server.
    #[must_use]
    pub fn breaks(&self) -> u32 {
        self.breaks
    }

    /// Whether nothing happens any more unless somebody asks for it.
    #[must_use]
    pub fn is_still(&self) -> bool {
        matches!(
            self.awaiting,
            Awaiting::Stopped | Awaiting::Parked | Awaiting::Finished
        )
    }

    /// The answers that belong to one stage.
    fn answer(&mut self, event: Event, now_ms: u64, out: &mut Vec<Command>) {
        match event {
            Event::Opened if self.awaiting == Awaiting::Sessions => {
                self.read_record(Awaiting::Leadership, 0, out);
            }
            Event::Identified(found) => self.identified(&found, now_ms, out),
            Event::Inspected(facts) => self.judge(&facts, out),
            Event::Swept { .. }
            | Event::Tracking
            | Event::Listed
            | Event::Round(_)
            | Event::Verified { .. } => {
                self.copy_answer(event, now_ms, out);
            }
            Event::Durable if self.awaiting == Awaiting::DurableSource => {
                self.identify(Check::AfterDurableSource, out);
            }
            Event::Durable | Event::Cleaned { .. } => self.cleaning_answer(&event, out),
            other => self.handover_answer(other, now_ms, out),
        }
    }

    /// Goes on by the record's state and by what is already there: turns, sessions.
    fn go_on(&mut self, out: &mut Vec<Command>) {
        let entry = &self.entry;
        if entry.state.is_over() || (self.is_turned_back() && entry.state.is_flipped()) {
            return self.finish(out);
        }
        match entry.state {
            HandoffState::Handover => self.roll_back(Rollback::Resumed, out),
            HandoffState::Purging => self.go_on_purging(out),
            HandoffState::Flipped | HandoffState::Cleaning => self.go_on_cleaning(out),
            _ if self.is_turned_back() => self.park(out),
            _ => self.go_on_copying(out),
        }
    }

    /// Whether the change goes back and this is one of those that were to go forward.
    fn is_turned_back(&self) -> bool {
        self.entry.direction == Direction::Back && self.entry.kind != HandoffKind::Reverse
    }

    /// Whether it is its turn; asks for it if not.
    fn has_turn(&mut self, turn: Turn, out: &mut Vec<Command>) -> bool {
        if self.held.contains(&turn) {
            return true;
        }
        if !self.asked.contains(&turn) {
            self.asked.push(turn);
            out.push(Command::Ask(turn));
        }
        false
    }

    fn granted(&mut self, turn: Turn, out: &mut Vec<Command>) {
        let Some(at) = self.asked.iter().position(|&asked| asked == turn) else {
            return;
        };
        self.asked.remove(at);
        self.held.push(turn);
        if self.awaiting == Awaiting::Turn {
            self.go_on(out);
        }
    }

    fn release(&mut self, turn: Turn, out: &mut Vec<Command>) {
        let before = self.asked.len() + self.held.len();
        self.asked.retain(|&other| other != turn);
        self.held.retain(|&other| other != turn);
        if self.asked.len() + self.held.len() < before {
            out.push(Command::Release(turn));
        }
    }

    fn end(&mut self, out: &mut Vec<Command>) {
        self.handover = None;
        for turn in [Turn::Handover, Turn::Copy, Turn::Clean, Turn::Purge] {
            self.release(turn, out);
        }
    }

    fn open_party(&mut self, party: Party, out: &mut Vec<Command>) {
        out.push(Command::Open(party));
        self.awaiting = Awaiting::Sessions;
    }

    fn identify(&mut self, check: Check, out: &mut Vec<Command>) {
        out.push(Command::Identify);
        self.awaiting = Awaiting::Identities(check);
    }

    fn identified(&mut self, found: &Identities, now_ms: u64, out: &mut Vec<Command>) {
        match self.awaiting {
            Awaiting::Identities(
                check @ (Check::BeforeDurableSource | Check::AfterDurableSource),
            ) => self.identified_before_copying(check, found, out),
            Awaiting::Identities(Check::Begin) => self.identified_at_begin(found, out),
            Awaiting::Identities(Check::BeforeHandover) => {
                self.identified_before_handover(found, out)
            }
            Awaiting::Identities(Check::BeforeFlip) => {
                self.identified_before_flip(found, now_ms, out)
            }
            Awaiting::Identities(check) => self.identified_after_flip(check, found, out),
            _ => {}
        }
    }

    fn stop(&mut self, reason: StopReason, out: &mut Vec<Command>) {
        self.end(out);
        out.push(Command::Stop(reason));
        self.awaiting = Awaiting::Stopped;
    }

    fn park(&mut self, out: &mut Vec<Command>) {
        self.end(out);
        out.push(Command::Park);
        self.awaiting = Awaiting::Parked;
    }

    fn finish(&mut self, out: &mut Vec<Command>) {
        self.end(out);
        out.push(Command::Finish);
        self.awaiting = Awaiting::Finished;
    }
}
