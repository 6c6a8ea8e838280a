//! What goes wrong, and when: at a moment, or some time after the record has entered a state.

use std::collections::BTreeMap;
use std::rc::Rc;

use clockwise_cluster::{Direction, HandoffState, Record, Throttle};

use super::Sim;
use super::coverage::Place;
use super::executor::{MS, Micros};
use super::network::Party;
use super::process::{self, Request};
use super::random::Random;
use super::server::Disk;
use super::settings::{PROCESSES, SERVERS};
use super::truth::rank_of;

/// A fault, when it happens, and a number that picks whom it hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    pub(super) when: When,
    pub(super) what: What,
    pub(super) pick: u64,
    pub(super) lasts: Micros,
}

/// When a fault happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum When {
    At(Micros),
    /// So long after a handoff has entered this state for the so-manieth time, on the way there or back.
    In(Way, HandoffState, u32, Micros),
}

/// Where the change is going.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Way {
    There,
    Back,
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum What {
    /// A process dies and is started again.
    Crash,
    /// A process stands still, longer than its lease or not.
    Pause,
    /// A node restarts with what its disk has.
    Restart(Disk),
    /// A node stands still.
    Stop,
    /// A process and a node do not reach each other.
    CutNode,
    /// A client and a node do not reach each other.
    CutClient,
    /// A process does not reach the store.
    CutStore,
    /// Nobody reaches the store.
    StoreAway,
    /// A process's wall clock jumps.
    ClockJump,
    /// A lease ends early.
    LoseLease,
    /// The streams of touched keys of a node break.
    BreakStream,
    /// A script keeps a node from fencing.
    Busy,
    /// A disk is slow: syncs take long.
    SlowDisk,
    /// A client hears of no record.
    Deafen,
    /// A client stands still.
    StopClient,
    /// An operator sets another limit.
    Throttle,
    /// An operator takes the change back.
    Abort,
}

/// All kinds, in the order of the table.
pub(super) const KINDS: [What; 19] = [
    What::Crash,
    What::Pause,
    What::Restart(Disk::Full),
    What::Restart(Disk::Old),
    What::Restart(Disk::Empty),
    What::Stop,
    What::CutNode,
    What::CutClient,
    What::CutStore,
    What::StoreAway,
    What::ClockJump,
    What::LoseLease,
    What::BreakStream,
    What::Busy,
    What::SlowDisk,
    What::Deafen,
    What::StopClient,
    What::Throttle,
    What::Abort,
];

impl Fault {
    /// Somebody takes the change back once this much has happened.
    pub(super) fn abort(random: &mut Random) -> Self {
        use HandoffState::{Cleaning, Copying, Flipped, Handover, Verifying};
        let state = random.one(&[
            Flipped, Flipped, Flipped, Handover, Copying, Verifying, Cleaning,
        ]);
        let nth = u32::try_from(random.between(1, 3)).unwrap_or(1);
        let when = When::In(Way::There, state, nth, random.between(0, 8 * MS));
        Self {
            when,
            what: What::Abort,
            pick: random.bits(),
            lasts: 0,
        }
    }

    /// Any; so many in a thousand on the way back.
    pub(super) fn of(random: &mut Random, back_permille: u64) -> Self {
        use HandoffState::{Cleaning, Copying, Flipped, Handover, Planned, Purging, Verifying};
        let way = if random.chance(back_permille) {
            Way::Back
        } else {
            Way::There
        };
        let states: &[HandoffState] = match way {
            Way::There => &[
                Planned, Copying, Verifying, Handover, Handover, Flipped, Cleaning,
            ],
            Way::Back => &[
                Planned, Copying, Verifying, Handover, Flipped, Cleaning, Purging, Purging,
            ],
        };
        let when = if random.chance(250) {
            When::At(random.between(50 * MS, 4_000 * MS))
        } else {
            let state = random.one(states);
            let soon = match state {
                Handover | Verifying | Flipped | Cleaning => 12 * MS,
                _ => 60 * MS,
            };
            let nth_max = if way == Way::Back { 2 } else { 4 };
            let nth = u32::try_from(random.between(1, nth_max)).unwrap_or(1);
            When::In(way, state, nth, random.between(0, soon))
        };
        let lasts = match random.below(3) {
            0 => random.between(1, 50 * MS),
            1 => random.between(50 * MS, 600 * MS),
            _ => random.between(600 * MS, 5_000 * MS),
        };
        Self {
            when,
            what: random.one(&KINDS),
            pick: random.bits(),
            lasts,
        }
    }
}

/// Which faults wait for which state.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    entered: BTreeMap<(Way, HandoffState), u32>,
    faults: Vec<Fault>,
}

impl Sim {
    /// Puts the faults of a run where they belong.
    pub(super) fn plant(&self, faults: &[Fault]) {
        for &fault in faults {
            match fault.when {
                When::At(at) => self.at(at, move |sim| sim.inject(fault)),
                When::In(..) => self.waiting.borrow_mut().faults.push(fault),
            }
        }
    }

    /// Lets happen what waited for a state that a handoff has entered.
    pub(super) fn entered(&self, before: &Record, after: &Record) {
        let Some(change) = after.change() else { return };
        for handoff in &change.handoffs {
            let known = before
                .change()
                .and_then(|change| change.handoff(&handoff.id()));
            if known.is_some_and(|known| known.state == handoff.state) {
                continue;
            }
            let mut waiting = self.waiting.borrow_mut();
            let way = match change.direction {
                Direction::Forward => Way::There,
                Direction::Back => Way::Back,
            };
            let count = waiting.entered.entry((way, handoff.state)).or_default();
            *count += 1;
            let count = *count;
            let due = |fault: &Fault| match fault.when {
                When::In(of, state, nth, delay) => {
                    ((of, state, nth) == (way, handoff.state, count)).then_some(delay)
                }
                When::At(_) => None,
            };
            for fault in waiting.faults.clone() {
                if let Some(delay) = due(&fault) {
                    self.after(delay, move |sim| sim.inject(fault));
                }
            }
        }
    }

    fn cut(&self, one: Party, other: Party, lasts: Micros) {
        self.cuts
            .borrow_mut()
            .push((one, other, self.now() + lasts));
    }

    /// A process that matters: mostly the one that leads.
    fn some_process(&self, pick: u64) -> usize {
        match self.leading() {
            Some(lease) if !pick.is_multiple_of(4) => lease.process,
            _ => usize::try_from(pick / 4).unwrap_or(0) % PROCESSES,
        }
    }

    /// A node that matters: mostly one that gives or gets.
    fn some_node(&self, pick: u64) -> usize {
        let truth = self.truth.borrow();
        let change = truth.record.change();
        let mut busy: Vec<usize> = Vec::new();
        for handoff in change.into_iter().flat_map(|change| &change.handoffs) {
            if !handoff.state.is_over() {
                busy.push(rank_of(handoff.source.as_str()));
                busy.extend(handoff.targets.iter().map(|id| rank_of(id.as_str())));
            }
        }
        let pick = usize::try_from(pick >> 8).unwrap_or(0);
        if busy.is_empty() {
            let nodes = &truth.record.membership().nodes;
            return rank_of(nodes[pick % nodes.len()].id.as_str());
        }
        busy[pick % busy.len()]
    }

    fn inject(&self, fault: Fault) {
        if self.calm.get() {
            return;
        }
        let Fault {
            what, pick, lasts, ..
        } = fault;
        let places = Place::all_of(&self.truth.borrow().record);
        self.coverage.borrow_mut().note(&places, what);
        let (process, node) = (self.some_process(pick), self.some_node(pick));
        let client = usize::try_from(pick >> 16).unwrap_or(0) % self.settings.clients;
        self.trace(|| {
            format!(
                "FAULT {what:?} p{process} n{node} c{client} for {} ms",
                lasts / MS
            )
        });
        match what {
            What::Crash => self.crash(process, lasts),
            What::Pause => {
                let group = Rc::clone(&self.processes[process].group.borrow());
                self.set_paused(&group, true);
                self.after(lasts, move |sim| sim.set_paused(&group, false));
            }
            What::Restart(disk) => self.restart_node(node, disk, lasts, pick),
            What::Stop => {
                let until = &mut self.stopped_until.borrow_mut()[node];
                *until = (*until).max(self.now() + lasts);
            }
            What::CutNode => self.cut(Party::Process(process), Party::Node(node), lasts),
            What::CutClient => self.cut(Party::Client(client), Party::Node(node), lasts),
            What::CutStore => self.cut(Party::Process(process), Party::Store, lasts),
            What::StoreAway => {
                for process in 0..PROCESSES {
                    self.cut(Party::Process(process), Party::Store, lasts);
                }
                for client in 0..self.settings.clients {
                    self.cut(Party::Client(client), Party::Store, lasts);
                }
            }
            What::ClockJump => {
                let off_ms = i64::try_from(pick % 7_200_000).unwrap_or(0) - 3_600_000;
                self.processes[process].clock_off_ms.set(off_ms);
            }
            What::LoseLease => {
                if let Some(lease) = self.shared.borrow_mut().leader.as_mut() {
                    lease.until = self.now();
                }
                self.leading();
            }
            What::BreakStream => {
                let trackers = std::mem::take(&mut self.servers[node].borrow_mut().trackers);
                for tracker in trackers {
                    self.end_there(&tracker.wire);
                }
            }
            What::Busy => {
                self.servers[node].borrow_mut().busy = true;
                self.after(lasts, move |sim| {
                    sim.servers[node].borrow_mut().busy = false
                });
            }
            What::SlowDisk => {
                self.slow_disk_until.set(self.now() + lasts);
            }
            What::Deafen => self.clients[client].borrow_mut().deaf_until = self.now() + lasts,
            What::StopClient => {
                let until = &mut self.clients[client].borrow_mut().stopped_until;
                *until = (*until).max(self.now() + lasts);
            }
            What::Throttle => {
                let keys_per_second = if pick.is_multiple_of(3) {
                    0
                } else {
                    60 + pick % 300
                };
                self.operate(|record| {
                    Some(record.with_throttle(Throttle {
                        keys_per_second,
                        bytes_per_second: 0,
                    }))
                });
            }
            What::Abort => {
                let forward = self
                    .truth
                    .borrow()
                    .record
                    .change()
                    .is_some_and(|change| change.direction == Direction::Forward);
                if forward {
                    self.ask_leader(Request::Abort);
                }
            }
        }
    }

    /// Asks whoever leads, by its own mailbox.
    pub(super) fn ask_leader(&self, request: Request) {
        if let Some(lease) = self.leading() {
            let requests = self.processes[lease.process].requests.borrow().clone();
            requests.push(self, request);
        }
    }

    fn crash(&self, rank: usize, lasts: Micros) {
        let process = Rc::clone(&self.processes[rank]);
        let group = Rc::clone(&process.group.borrow());
        if group.is_dead() {
            return;
        }
        self.kill(&group);
        // What it had sent may still arrive; then its connections end, unless nobody tells the node.
        for node in 0..SERVERS {
            let linger = self.random.borrow_mut().between(0, 40 * MS);
            if self.random.borrow_mut().chance(800) {
                self.after(linger, move |sim| sim.forget_process(node, rank));
            }
        }
        self.after(lasts, move |sim| process::begin(sim, &process));
    }

    fn forget_process(&self, node: usize, rank: usize) {
        let mut server = self.servers[node].borrow_mut();
        let of_it = |wire: &super::network::Wire| {
            wire.from == Party::Process(rank) && !wire.open_here.get()
        };
        for wire in server.terms.values().filter(|wire| of_it(wire)) {
            wire.open_there.set(false);
        }
        server.trackers.retain(|tracker| !of_it(&tracker.wire));
    }

    fn restart_node(&self, node: usize, disk: Disk, lasts: Micros, pick: u64) {
        let mut server = self.servers[node].borrow_mut();
        if !server.up {
            return;
        }
        server.up = false;
        let terms = std::mem::take(&mut server.terms);
        let clients = std::mem::take(&mut server.clients);
        let trackers = std::mem::take(&mut server.trackers);
        drop(server);
        let wires = terms.into_values();
        let wires = wires.chain(clients.into_iter().map(|(_, wire)| wire));
        for wire in wires.chain(trackers.into_iter().map(|tracker| tracker.wire)) {
            self.end_there(&wire);
        }
        self.after(lasts, move |sim| {
            let lost = usize::try_from(pick >> 20).unwrap_or(0) % 12;
            let gone = sim.servers[node].borrow_mut().restart(disk, lost);
            sim.trace(|| {
                format!(
                    "n{node} is back with {disk:?}, {} keys went back",
                    gone.len()
                )
            });
            let mut truth = sim.truth.borrow_mut();
            for key in gone {
                if truth.owner(key) == node {
                    truth.excuse(key);
                }
            }
        });
    }

    /// Ends everything that is wrong.
    pub(super) fn heal(&self) {
        self.calm.set(true);
        self.cuts.borrow_mut().clear();
        for process in &self.processes {
            let group = Rc::clone(&process.group.borrow());
            self.set_paused(&group, false);
        }
        for client in &self.clients {
            let mut client = client.borrow_mut();
            client.deaf_until = 0;
        }
    }
}
