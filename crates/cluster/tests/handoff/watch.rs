//! A watch beside the machine: it knows the rules of the handoff and nothing of how the machine is written.

use clockwise_cluster::handoff::{Command, Event, HANDOVER_BUDGET_MS};
use clockwise_cluster::{HandoffId, HandoffKind, HandoffState, Step};

use crate::book::Book;

/// What one handoff has been allowed to do so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Watch {
    pub(crate) outstanding: Option<Command>,
    pub(crate) late: bool,
    cancelling: bool,
    opened: bool,
    led: bool,
    deposed: bool,
    pub(crate) tracking: bool,
    listed: bool,
    compared: bool,
    handover: Option<(u64, u64)>,
    towards_flip: TowardsFlip,
    durable: bool,
    source_durable: bool,
    asked_source: bool,
    as_flipped: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum TowardsFlip {
    #[default]
    Nothing,
    Fenced,
    Barrier,
    LastCopied,
    LastCompared,
    SameServers,
    StillLeads,
}

impl Watch {
    /// Holds a command against the rules.
    pub(crate) fn check(&mut self, command: &Command, world: &Book, id: &HandoffId, now_ms: u64) {
        let answered = !matches!(
            command,
            Command::Untrack | Command::Stop(_) | Command::Park | Command::Finish
        );
        if self.cancelling {
            panic!("{command:?} before the tasks have ended");
        }
        let settles = matches!(
            command,
            Command::Commit(Step::Rollback) | Command::ReadRecord { .. }
        );
        if answered && *command != Command::Cancel && self.outstanding.is_some() {
            let begins = self.handover.is_some() && *command == Command::Commit(Step::Rollback);
            assert!(
                begins || (self.late && settles),
                "{command:?} while {:?} is outstanding",
                self.outstanding
            );
            self.late = true;
        }
        if self.deposed {
            let ends = matches!(
                command,
                Command::Cancel | Command::Stop(_) | Command::Park | Command::Untrack
            );
            assert!(ends, "{command:?} after it was deposed");
        }
        if touches_a_server(command) {
            assert!(
                self.led,
                "{command:?} before the leadership was read with sessions open"
            );
        }
        match command {
            Command::List => assert!(self.tracking, "listed before tracking was confirmed"),
            Command::Verify => assert!(self.listed, "compared before everything was listed"),
            Command::Prepare => assert!(
                self.listed && self.compared,
                "handed over without a comparison"
            ),
            Command::Fence(generation) => {
                let committed = self.handover.map(|(generation, _)| generation);
                assert_eq!(
                    committed,
                    Some(generation.get()),
                    "fenced before the commit"
                );
            }
            Command::Commit(Step::Flip { .. }) => {
                let lost = world
                    .entry(id)
                    .is_none_or(|entry| entry.kind == HandoffKind::Lost);
                assert!(
                    lost || self.towards_flip == TowardsFlip::StillLeads,
                    "flipped after {:?}",
                    self.towards_flip
                );
                let late = self
                    .handover
                    .is_some_and(|(_, began_ms)| now_ms >= began_ms + HANDOVER_BUDGET_MS);
                assert!(!late, "flipped beyond the budget");
            }
            Command::Durable => self.asked_source = false,
            Command::DurableSource => self.asked_source = true,
            Command::Commit(Step::Copying) => {
                let gives_back = world.entry(id).is_some_and(|entry| {
                    entry.kind == HandoffKind::Reverse && entry.state == HandoffState::Planned
                });
                assert!(
                    !gives_back || self.source_durable,
                    "given back by a server that a restart could empty"
                );
            }
            Command::Sweep => {
                let begun = world.entry(id).is_some_and(|entry| {
                    entry.kind == HandoffKind::Lost || entry.state != HandoffState::Planned
                });
                assert!(begun, "swept before the copy was to begin");
            }
            Command::Clean => {
                assert!(self.durable, "cleaned before the copies were durable");
                assert!(
                    self.as_flipped,
                    "cleaned although a target is not what it was at the flip"
                );
                self.as_flipped = false;
                self.check_not_a_target(world, id);
            }
            _ => {}
        }
        if *command == Command::Cancel {
            self.cancelling = true;
        }
        if answered && !self.late {
            self.outstanding = Some(command.clone());
        }
    }

    fn check_not_a_target(&self, book: &Book, id: &HandoffId) {
        let change = book.record.change().expect("in flight");
        let gives_here = change.handoffs.iter().find(|other| {
            other.is_reverse() == id.reverse
                && !other.state.is_flipped()
                && other.targets.contains(&id.source)
        });
        assert!(
            gives_here.is_none(),
            "cleaned {} while it is a target of {gives_here:?}",
            id.source
        );
    }

    /// Takes in an event that is delivered.
    pub(crate) fn note(&mut self, event: &Event, book: &Book, id: &HandoffId) {
        match event {
            Event::Opened => self.opened = true,
            Event::Record(situation) => {
                self.led = situation.leads && self.opened;
                self.deposed |= !situation.leads;
                self.step(TowardsFlip::SameServers, TowardsFlip::StillLeads);
            }
            Event::Deposed => self.deposed = true,
            Event::Tracking => self.tracking = true,
            Event::Listed => self.listed = true,
            Event::Verified { .. } => self.compared = true,
            Event::Fenced => self.towards_flip = TowardsFlip::Fenced,
            Event::BarrierPassed => self.step(TowardsFlip::Fenced, TowardsFlip::Barrier),
            Event::LastCopied { .. } => self.step(TowardsFlip::Barrier, TowardsFlip::LastCopied),
            Event::LastCompared { different: 0 } => {
                self.step(TowardsFlip::LastCopied, TowardsFlip::LastCompared)
            }
            Event::LastCompared { .. } => self.compared = false,
            Event::Identified(found) => {
                self.step(TowardsFlip::LastCompared, TowardsFlip::SameServers);
                let flip = book.entry(id).map(|entry| entry.flip).unwrap_or_default();
                let now: Vec<_> = found
                    .targets
                    .iter()
                    .map(|target| target.incarnation.clone())
                    .collect();
                self.as_flipped = flip == now;
            }
            Event::Durable if self.asked_source => self.source_durable = true,
            Event::Durable => self.durable = true,
            Event::Cancelled => {
                *self = Self {
                    deposed: self.deposed,
                    handover: self.handover,
                    source_durable: self.source_durable,
                    ..Self::default()
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, from: TowardsFlip, to: TowardsFlip) {
        if self.towards_flip == from {
            self.towards_flip = to;
        }
    }

    pub(crate) fn committed(&mut self, step: &Step, began_ms: u64) {
        match step {
            Step::Handover { generation, .. } => self.handover = Some((generation.get(), began_ms)),
            Step::Rollback | Step::Flip { .. } => {
                self.handover = None;
                self.towards_flip = TowardsFlip::Nothing;
            }
            _ => {}
        }
    }
}

pub(crate) fn touches_a_server(command: &Command) -> bool {
    !matches!(
        command,
        Command::Inspect
            | Command::Open(_)
            | Command::ReadRecord { .. }
            | Command::Commit(_)
            | Command::Untrack
            | Command::Cancel
            | Command::Stop(_)
            | Command::Park
            | Command::Finish
    )
}
