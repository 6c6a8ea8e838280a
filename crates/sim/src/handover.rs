//! The model: everything that may happen next in a world.

use crate::bounds::Bounds;
use crate::bug::{Bug, Planted};
use crate::invariant::{self, Invariant};
use crate::real::{Change, Real};
use crate::search::Model;
use crate::stage::{Stage, Taken};
use crate::task::{Happened, Task};
use crate::world::{ABSENT, Life, NODES, PROCESSES, Stream, World, index};

/// Something that happens. `process` counts from 0, in the order of terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A client's write or deletion is acknowledged.
    Write {
        /// Where.
        node: usize,
        /// What is there since; 0 is nothing.
        value: u8,
    },
    /// A process takes the next step of a command.
    Work {
        /// Which.
        process: usize,
        /// The command.
        task: &'static str,
        /// How far it was.
        phase: u8,
    },
    /// The store answers a process.
    Store {
        /// Which.
        process: usize,
        /// What was asked.
        task: &'static str,
    },
    /// The store's answer to a commit is lost.
    StoreUnclear {
        /// Which process asked.
        process: usize,
        /// Whether it was committed.
        done: bool,
    },
    /// Something else.
    Other(Kind, usize),
}

/// What else happens; the number beside it is a process or a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Another process is elected; the one before may not know.
    Elect,
    /// A process begins from the record.
    Begin,
    /// A touch of the key arrives over the stream.
    Hear,
    /// A process notices that its stream broke.
    NoticeBreak,
    /// A stream breaks.
    StreamBreaks,
    /// A server is busy and does not carry out a fence.
    FenceBusy,
    /// A deadline strikes.
    Timeout,
    /// An operator wants everything back.
    Abort,
    /// A process decides whom the first node should let in.
    DecideFirst,
    /// A process decides whom the second node should let in.
    DecideSecond,
    /// It carries that out at the first node.
    AdmitFirst,
    /// It carries that out at the second node.
    AdmitSecond,
    /// What a cancelled task had sent arrives.
    LateArrives,
    /// It does not.
    LateLost,
    /// Somebody rolls back a handover that nobody ends.
    Rescue,
    /// A node restarts.
    Restart,
    /// An operator applies the next change.
    NextChange,
}

/// The handoff in a small world.
#[derive(Debug)]
pub struct Handover {
    real: Real,
    record: u16,
    bounds: Bounds,
    bug: Option<Bug>,
    only: Option<Invariant>,
    milestones: u16,
}

/// States that a search has to pass for its answer to mean anything; one for each bit.
pub const MILESTONES: [&str; 8] = [
    "handover",
    "flipped",
    "cleaning",
    "ended forward",
    "purging",
    "ended back",
    "flipped back",
    "second change",
];

impl Handover {
    /// A world with these bounds, and with a planted bug or none.
    #[must_use]
    pub fn new(bounds: Bounds, bug: Option<Bug>) -> Self {
        let (real, record) = Real::new();
        Self {
            real,
            record,
            bounds,
            bug,
            only: None,
            milestones: 0,
        }
    }

    /// The world in which a bug shows. Only the invariant that it is expected to break is looked at.
    #[must_use]
    pub fn planted(planted: &Planted) -> Self {
        Self {
            only: Some(planted.breaks),
            ..Self::new(planted.bounds, Some(planted.bug))
        }
    }

    /// Which milestones some state has passed.
    pub fn milestones(&self) -> impl Iterator<Item = &'static str> {
        let passed = self.milestones;
        let bits = (0..).zip(MILESTONES);
        bits.filter(move |(at, _)| passed & (1 << at) != 0)
            .map(|(_, name)| name)
    }

    /// How many distinct records, conductors and books of a copy there were.
    #[must_use]
    pub fn sizes(&self) -> [usize; 3] {
        self.real.sizes()
    }
}

impl Model for Handover {
    type State = World;
    type Action = Action;
    type Violation = Invariant;

    fn first(&mut self) -> World {
        World::new(self.record, &self.real, self.bounds)
    }

    fn next(&mut self, world: &World, out: &mut Vec<(Action, World)>) {
        self.milestones |= self.real.facts(world.record).milestones;
        let mut next = Next {
            real: &mut self.real,
            bug: self.bug,
            world,
            out,
        };
        next.clients();
        next.surroundings();
        for rank in 0..PROCESSES {
            match world.processes[rank].life {
                Life::Unborn => {}
                Life::Ended => next.late(rank),
                Life::AtRest => {
                    next.begin(rank);
                    next.late(rank);
                    next.looks(rank);
                }
                Life::Conducting(conductor) => {
                    next.conducting(rank, conductor);
                    next.late(rank);
                    next.looks(rank);
                }
            }
        }
    }

    fn violation(&mut self, world: &World) -> Option<Invariant> {
        invariant::broken(world, &self.real, self.only)
    }
}

/// What may happen next, as it is gathered.
struct Next<'a> {
    real: &'a mut Real,
    bug: Option<Bug>,
    world: &'a World,
    out: &'a mut Vec<(Action, World)>,
}

impl Next<'_> {
    fn push(&mut self, kind: Kind, at: usize, change: impl FnOnce(&mut Stage<'_>)) {
        self.push_as(Action::Other(kind, at), at.min(PROCESSES - 1), |stage| {
            change(stage);
            Taken::Yes
        });
    }

    fn push_as(
        &mut self,
        action: Action,
        rank: usize,
        change: impl FnOnce(&mut Stage<'_>) -> Taken,
    ) {
        let mut stage = Stage {
            real: self.real,
            bug: self.bug,
            world: self.world.clone(),
            rank,
        };
        if change(&mut stage) == Taken::Yes {
            self.out.push((action, stage.world));
        }
    }

    /// A client writes wherever it is let in, with whatever view.
    fn clients(&mut self) {
        if self.world.left.writes == 0 {
            return;
        }
        for node in (0..NODES).filter(|&node| self.world.serves(node)) {
            for value in [ABSENT, self.world.written + 1] {
                let mut next = self.world.clone();
                next.left.writes -= 1;
                next.written += 1;
                next.write(node, value);
                self.out.push((Action::Write { node, value }, next));
            }
        }
    }

    /// What neither a client nor a process of the rebalancer does.
    fn surroundings(&mut self) {
        let left = self.world.left;
        let facts = self.real.facts(self.world.record);
        let current = self.world.record;
        if left.terms > 0 {
            let rank = usize::from(self.world.leader);
            self.push(Kind::Elect, rank, |stage| {
                stage.world.left.terms -= 1;
                stage.world.leader += 1;
                stage.me_mut().life = Life::AtRest;
            });
        }
        if left.rescues > 0 && facts.in_handover {
            self.push(Kind::Rescue, 0, |stage| {
                stage.world.left.rescues -= 1;
                let next = stage.real.changed(current, Change::Rescue, current);
                stage.publish(next.expect("a handover can be rolled back"));
            });
        }
        if left.changes > 0 && !facts.changing {
            self.push(Kind::NextChange, 0, |stage| {
                stage.world.left.changes -= 1;
                let next = stage.real.changed(current, Change::Next, current);
                stage.publish(next.expect("a pool at rest can be changed"));
            });
        }
        if left.restarts > 0 {
            for node in 0..NODES {
                self.push(Kind::Restart, node, |stage| {
                    stage.world.left.restarts -= 1;
                    let persisted = stage.has(Bug::UsersPersisted);
                    let users = if persisted {
                        stage.first_users(node)
                    } else {
                        0
                    };
                    stage.world.restart(node, users);
                });
            }
        }
    }

    fn begin(&mut self, rank: usize) {
        let leads =
            self.world.leader == index(rank) + 1 || self.bug == Some(Bug::LeadershipNotRead);
        if !leads || self.real.facts(self.world.record).changing {
            self.push(Kind::Begin, rank, |stage| stage.begin());
        }
    }

    fn late(&mut self, rank: usize) {
        if self.world.processes[rank].late.is_some() {
            self.push(Kind::LateArrives, rank, |stage| stage.land_late());
            self.push(Kind::LateLost, rank, |stage| stage.me_mut().late = None);
        }
    }

    fn conducting(&mut self, rank: usize, conductor: u16) {
        let process = self.world.processes[rank];
        let left = self.world.left;
        if let Some(job) = process.job {
            let action = Action::Work {
                process: rank,
                task: name(job.task),
                phase: process.phase,
            };
            self.push_as(action, rank, |stage| stage.work());
            if left.busy_fences > 0 && matches!(job.task, Task::Fence(_)) {
                self.push(Kind::FenceBusy, rank, |stage| {
                    stage.world.left.busy_fences -= 1;
                    let taken_for_fence = stage.has(Bug::BusyTakenForFence);
                    stage.answer(match taken_for_fence {
                        true => Happened::Fenced,
                        false => Happened::Busy,
                    });
                });
            }
        }
        if let Some(job) = process.storing {
            let task = name(job.task);
            let action = Action::Store {
                process: rank,
                task,
            };
            self.push_as(action, rank, |stage| {
                stage.store();
                Taken::Yes
            });
            if let (Task::Commit(step), true) = (job.task, left.unknown_commits > 0) {
                self.unclear(rank, job.index, step);
            }
        }
        self.stream(rank);
        if let Some(handoff) = self.real.deadline(conductor) {
            let pauses = process.job.is_none() && process.storing.is_none();
            if pauses || left.timeouts > 0 {
                self.push(Kind::Timeout, rank, |stage| {
                    stage.world.left.timeouts -= u8::from(!pauses);
                    stage.tell_of(handoff, Happened::Timeout);
                });
            }
        }
        if left.aborts > 0 && self.real.facts(process.known).may_abort {
            self.push(Kind::Abort, rank, |stage| {
                stage.world.left.aborts -= 1;
                let (conductor, jobs) = stage.real.abort(conductor);
                stage.me_mut().life = Life::Conducting(conductor);
                stage.obey(&jobs);
            });
        }
    }

    fn unclear(&mut self, rank: usize, handoff: u8, step: u16) {
        for done in [false, true] {
            let action = Action::StoreUnclear {
                process: rank,
                done,
            };
            self.push_as(action, rank, |stage| {
                stage.world.left.unknown_commits -= 1;
                stage.me_mut().storing = None;
                if done {
                    let known = stage.me().known;
                    stage.commit(handoff, step);
                    stage.me_mut().known = known;
                }
                stage.tell_of(handoff, Happened::Unknown);
                Taken::Yes
            });
        }
    }

    fn stream(&mut self, rank: usize) {
        let process = self.world.processes[rank];
        match process.stream {
            Stream::On(_) => {
                if process.pending {
                    self.push(Kind::Hear, rank, |stage| stage.hear());
                }
                if self.world.left.stream_breaks > 0 {
                    self.push(Kind::StreamBreaks, rank, |stage| {
                        stage.world.left.stream_breaks -= 1;
                        stage.me_mut().stream = Stream::Broken;
                        stage.me_mut().pending = false;
                    });
                }
            }
            Stream::Broken => self.push(Kind::NoticeBreak, rank, |stage| {
                stage.me_mut().stream = Stream::Off;
                stage.tell(Happened::TrackingLost);
            }),
            Stream::Off => {}
        }
    }

    /// The task of each node: it decides whom the node lets in, and carries that out.
    fn looks(&mut self, rank: usize) {
        for node in 0..NODES {
            let (decide, admit) = match node {
                0 => (Kind::DecideFirst, Kind::AdmitFirst),
                _ => (Kind::DecideSecond, Kind::AdmitSecond),
            };
            if let Some(look) = self.world.processes[rank].looks[node] {
                self.push(admit, rank, |stage| {
                    stage.me_mut().looks[node] = None;
                    if stage.reaches(node) {
                        stage.carry_out(node, look);
                    }
                });
                continue;
            }
            let action = Action::Other(decide, rank);
            self.push_as(action, rank, |stage| {
                if !stage.reaches(node) || !stage.believes_to_lead() {
                    return Taken::NotYet;
                }
                let look = stage.decide(node);
                let (nodes, me) = (stage.world.nodes, *stage.me());
                stage.carry_out(node, look);
                let changes = stage.world.nodes != nodes;
                stage.world.nodes = nodes;
                *stage.me_mut() = me;
                stage.me_mut().looks[node] = Some(look);
                if changes { Taken::Yes } else { Taken::NotYet }
            });
        }
    }
}

impl Stage<'_> {
    /// The users that a node had at the beginning.
    fn first_users(&self, node: usize) -> u16 {
        let named = self.real.facts(0).named[node];
        named.map_or(0, |user| 1 << user)
    }
}

/// The word for a command in a trace.
const fn name(task: Task) -> &'static str {
    match task {
        Task::Inspect => "inspect",
        Task::Open(_) => "open",
        Task::ReadRecord => "read record",
        Task::Identify => "identify",
        Task::DurableSource => "durable source",
        Task::Sweep => "sweep",
        Task::Track => "track",
        Task::List => "list",
        Task::Round => "round",
        Task::Verify => "verify",
        Task::Prepare => "prepare",
        Task::Commit(_) => "commit",
        Task::CountOld => "count old",
        Task::Fence(_) => "fence",
        Task::Barrier => "barrier",
        Task::CopyLast => "copy last",
        Task::CompareLast => "compare last",
        Task::Untrack => "untrack",
        Task::Durable => "durable",
        Task::Clean => "clean",
        Task::Purge => "purge",
        Task::Cancel => "cancel",
        Task::TurnBack => "turn back",
        Task::End => "end",
        Task::Deposed => "deposed",
    }
}
