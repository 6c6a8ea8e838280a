//! All handoffs of one change: whose turn it is, when the change turns back, when it ends.
//!
//! Copies of several sources run side by side, a few at a time. Requests are held for one source at a
//! time in a pool, since each handover grows the epoch and several would spoil each other's commit. No
//! source is cleaned before all that are on their way have flipped, and never while it is still a target
//! of a handoff that has not: what it receives is not yet its own. Copies of an aborted change are purged
//! after everything that flipped has come back.

use alloc::vec::Vec;

use clockwise_placement::NodeId;

use super::machine::Machine;
use super::message::{Command, Entry, Event, Turn};
use super::reason::StopReason;
use crate::{Direction, Handoff, HandoffId, Record};

/// Sources that are copied at a time. Each costs connections and a stream of touched keys.
pub const COPIES_AT_ONCE: usize = 4;

/// What has to be done for a change.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Order {
    /// For the handoff of this index.
    Handoff(usize, Command),
    /// Commit that the change goes back. → a new conductor from the record, whatever the result
    TurnBack,
    /// Commit that the change is over. → a new conductor from the record, whatever the result
    End,
    /// Every handoff holds still: whoever leads next goes on.
    Held,
    /// Another leads: everything of this leadership ends.
    Deposed,
}

/// The handoffs of one change under one leadership.
#[derive(Clone, Debug)]
pub struct Conductor {
    direction: Direction,
    slots: Vec<Slot>,
    // Some once every handoff was asked to hold still.
    holding: Option<Holding>,
    // Whether the last word on this change was given.
    closed: bool,
}

/// Why every handoff holds still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holding {
    ToTurnBack,
    ToLeave,
}

#[derive(Clone, Debug)]
struct Slot {
    id: HandoffId,
    targets: Vec<NodeId>,
    machine: Machine,
    asked: Vec<Turn>,
    held: Vec<Turn>,
}

impl Conductor {
    /// One machine for each handoff of the change in flight; none without one.
    #[must_use]
    pub fn new(record: &Record) -> Option<Self> {
        let change = record.change()?;
        let slot = |handoff: &Handoff| {
            let entry = Entry::of(record, &handoff.id())?;
            Some(Slot {
                id: handoff.id(),
                targets: handoff.targets.clone(),
                machine: Machine::new(entry),
                asked: Vec::new(),
                held: Vec::new(),
            })
        };
        let slots = change
            .handoffs
            .iter()
            .map(slot)
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            direction: change.direction,
            slots,
            holding: None,
            closed: false,
        })
    }

    /// The first orders.
    #[must_use]
    pub fn start(&mut self, now_ms: u64) -> Vec<Order> {
        let mut orders = Vec::new();
        for index in 0..self.slots.len() {
            let commands = self.slots[index].machine.start();
            self.take(index, commands, &mut orders);
        }
        self.grant(now_ms, &mut orders);
        self.close(&mut orders);
        orders
    }

    /// Takes in what happened to one handoff.
    ///
    /// # Panics
    /// When there is no such handoff.
    #[must_use]
    pub fn handle(&mut self, index: usize, event: Event, now_ms: u64) -> Vec<Order> {
        let mut orders = Vec::new();
        let commands = self.slots[index].machine.handle(event, now_ms);
        self.take(index, commands, &mut orders);
        self.grant(now_ms, &mut orders);
        self.close(&mut orders);
        orders
    }

    /// Takes everything back: holds every handoff still, then turns the change.
    #[must_use]
    pub fn abort(&mut self, now_ms: u64) -> Vec<Order> {
        if self.direction == Direction::Back {
            Vec::new()
        } else {
            self.hold(Holding::ToTurnBack, now_ms)
        }
    }

    /// Holds every handoff still, with no request held: this leader leaves in good order.
    #[must_use]
    pub fn leave(&mut self, now_ms: u64) -> Vec<Order> {
        self.hold(Holding::ToLeave, now_ms)
    }

    fn hold(&mut self, why: Holding, now_ms: u64) -> Vec<Order> {
        let mut orders = Vec::new();
        if self.closed {
            return orders;
        }
        let first = self.holding.is_none();
        self.holding = Some(why);
        for index in (0..self.slots.len()).filter(|_| first) {
            let commands = self.slots[index].machine.handle(Event::Abort, now_ms);
            self.take(index, commands, &mut orders);
        }
        self.close(&mut orders);
        orders
    }

    /// The handoffs in the order of their indices.
    pub fn handoffs(&self) -> impl ExactSizeIterator<Item = &HandoffId> {
        self.slots.iter().map(|slot| &slot.id)
    }

    /// The machine of one handoff, to look at.
    #[must_use]
    pub fn machine(&self, index: usize) -> &Machine {
        &self.slots[index].machine
    }

    /// When the first machine needs [`Event::Timeout`], and which.
    #[must_use]
    pub fn deadline(&self) -> Option<(u64, usize)> {
        let deadlines = self.slots.iter().enumerate();
        deadlines
            .filter_map(|(index, slot)| slot.machine.deadline().map(|at_ms| (at_ms, index)))
            .min()
    }

    fn take(&mut self, index: usize, commands: Vec<Command>, orders: &mut Vec<Order>) {
        let slot = &mut self.slots[index];
        for command in commands {
            match command {
                Command::Ask(turn) => slot.asked.push(turn),
                Command::Release(turn) => {
                    slot.asked.retain(|&other| other != turn);
                    slot.held.retain(|&other| other != turn);
                }
                Command::Stop(StopReason::Deposed) => orders.push(Order::Deposed),
                command => orders.push(Order::Handoff(index, command)),
            }
        }
    }

    /// Gives turns to whoever asked, until nobody else may have one.
    fn grant(&mut self, now_ms: u64, orders: &mut Vec<Order>) {
        while let Some((index, turn)) = self.next_turn() {
            let slot = &mut self.slots[index];
            slot.asked.retain(|&other| other != turn);
            slot.held.push(turn);
            let commands = slot.machine.handle(Event::Granted(turn), now_ms);
            self.take(index, commands, orders);
        }
    }

    fn next_turn(&self) -> Option<(usize, Turn)> {
        if self.holding.is_some() {
            return None;
        }
        let asked = self.slots.iter().enumerate();
        let asked =
            asked.flat_map(|(index, slot)| slot.asked.iter().map(move |&turn| (index, turn)));
        asked
            .into_iter()
            .find(|&(index, turn)| self.may(index, turn))
    }

    fn may(&self, index: usize, turn: Turn) -> bool {
        let holders = |turn: Turn| {
            self.slots
                .iter()
                .filter(move |slot| slot.held.contains(&turn))
                .count()
        };
        match turn {
            Turn::Copy => holders(turn) < COPIES_AT_ONCE,
            Turn::Handover => holders(turn) == 0,
            Turn::Clean => {
                !self.some_still_copy() && !self.still_receives(&self.slots[index].id.source)
            }
            Turn::Purge => {
                let reverse = |slot: &&Slot| slot.id.reverse;
                self.slots
                    .iter()
                    .filter(reverse)
                    .all(|slot| slot.machine.state().is_over())
            }
        }
    }

    /// Whether a handoff makes its way to its flip. Cleaning would only slow it down, and would have to
    /// be made good should the change be aborted. One that has stopped or waits for a server is not
    /// waited for.
    fn some_still_copy(&self) -> bool {
        let moving = |machine: &Machine| !machine.is_still() && machine.breaks() == 0;
        self.of_this_way()
            .any(|slot| !slot.machine.state().is_flipped() && moving(&slot.machine))
    }

    /// The handoffs that go where the change goes.
    fn of_this_way(&self) -> impl Iterator<Item = &Slot> {
        let back = self.direction == Direction::Back;
        self.slots
            .iter()
            .filter(move |slot| slot.id.reverse == back)
    }

    /// Whether a node is a target of a handoff that has not flipped in the direction of the change.
    fn still_receives(&self, node: &NodeId) -> bool {
        self.of_this_way()
            .any(|slot| !slot.machine.state().is_flipped() && slot.targets.contains(node))
    }

    /// Ends or turns the change once every machine is still.
    fn close(&mut self, orders: &mut Vec<Order>) {
        if self.closed || !self.slots.iter().all(|slot| slot.machine.is_still()) {
            return;
        }
        let is_over = |slot: &Slot| {
            // What had flipped stays so in the record; a reverse handoff has brought it back.
            let came_back = self.direction == Direction::Back && !slot.id.reverse;
            slot.machine.state().is_over() || (came_back && slot.machine.state().is_flipped())
        };
        let last = match self.holding {
            _ if self.slots.iter().all(is_over) => Order::End,
            Some(Holding::ToTurnBack) => Order::TurnBack,
            Some(Holding::ToLeave) => Order::Held,
            None => return,
        };
        self.closed = true;
        orders.push(last);
    }
}
