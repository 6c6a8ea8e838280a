//! One process of the rebalancer taking one step in a world: the driver's side of the handoff.
//!
//! What it does follows the rebalancer of the server: sessions are entered with a term's own user, users of
//! lower terms go, a request fails where its session's user is gone, and what one process sends to one node
//! arrives in order.

use crate::bug::Bug;
use crate::real::{Change, Facts, Real};
use crate::task::{Happened, Job, Task};
use crate::world::{Late, Life, Process, Request, Stream, World, index};

/// A world in which the process of this rank takes a step.
pub(crate) struct Stage<'a> {
    pub(crate) real: &'a mut Real,
    pub(crate) bug: Option<Bug>,
    pub(crate) world: World,
    pub(crate) rank: usize,
}

/// Whether a step can be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    Yes,
    /// Something else comes first.
    NotYet,
}

impl Stage<'_> {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub(crate) fn me(&self) -> &Process {
        &self.world.processes[self.rank]
    }

    pub(crate) fn me_mut(&mut self) -> &mut Process {
        &mut self.world.processes[self.rank]
    }

    fn term_bit(&self) -> u8 {
        1 << self.rank
    }

    fn leads(&self) -> bool {
        self.world.leader == index(self.rank) + 1
    }

    /// Whether a read of the record says that this process leads.
    pub(crate) fn believes_to_lead(&self) -> bool {
        self.leads() || self.has(Bug::LeadershipNotRead)
    }

    /// Whether the session at a node still works.
    pub(crate) fn reaches(&self, node: usize) -> bool {
        let open = self.me().sessions & (1 << node) != 0;
        open && self.world.nodes[node].terms & self.term_bit() != 0
    }

    /// Does something at a node over the session there, or finds that it broke.
    pub(crate) fn at(&mut self, node: usize, act: impl FnOnce(&mut Self)) -> Taken {
        if self.comes_before(node) {
            return Taken::NotYet;
        }
        if self.reaches(node) {
            act(self);
        } else {
            self.broke(node);
        }
        Taken::Yes
    }

    /// Whether something that was sent to a node earlier is still on its way.
    fn comes_before(&self, node: usize) -> bool {
        let late = self.me().late.is_some_and(|late| late.node == node);
        late && !self.has(Bug::CancelledCopiesLandLate)
    }

    pub(crate) fn broke(&mut self, node: usize) {
        let (source, _) = self.ends();
        let me = self.me_mut();
        me.sessions &= !(1 << node);
        me.looks[node] = None;
        me.job = None;
        self.tell(Happened::Broken {
            at_source: node == source,
        });
    }

    /// The source and the target of the handoff that the last job was for.
    pub(crate) fn ends(&self) -> (usize, usize) {
        let Life::Conducting(conductor) = self.me().life else {
            unreachable!("only a conductor gives jobs")
        };
        let (_, source) = self.real.handoff(conductor, self.me().active);
        (source, 1 - source)
    }

    /// Answers the job that is held.
    pub(crate) fn answer(&mut self, happened: Happened) {
        self.me_mut().job = None;
        self.tell(happened);
    }

    /// Tells the conductor and takes up what it wants next.
    pub(crate) fn tell(&mut self, happened: Happened) {
        let active = self.me().active;
        self.tell_of(active, happened);
    }

    pub(crate) fn tell_of(&mut self, handoff: u8, happened: Happened) {
        if let Life::Conducting(conductor) = self.me().life {
            let (conductor, jobs) = self.real.handle(conductor, handoff, happened);
            self.me_mut().life = Life::Conducting(conductor);
            self.obey(&jobs);
        }
    }

    pub(crate) fn obey(&mut self, jobs: &[Job]) {
        for &job in jobs {
            match job.task {
                Task::Untrack => {
                    self.me_mut().stream = Stream::Off;
                    self.me_mut().pending = false;
                }
                Task::ReadRecord | Task::Commit(_) | Task::TurnBack | Task::End => {
                    assert!(
                        self.me().storing.is_none(),
                        "one question to the store at a time"
                    );
                    self.me_mut().active = job.index;
                    self.me_mut().storing = Some(job);
                }
                Task::Deposed => {
                    self.drop_task();
                    let late = self.me().late;
                    *self.me_mut() = Process {
                        life: Life::Ended,
                        late,
                        ..Process::UNBORN
                    };
                    return;
                }
                _ => {
                    if job.task == Task::Cancel {
                        self.drop_task();
                    }
                    let me = self.me_mut();
                    assert!(me.job.is_none(), "one command at a time");
                    me.active = job.index;
                    me.job = Some(job);
                    me.phase = 0;
                    me.carried = 0;
                }
            }
        }
    }

    /// Ends what is under way; what it has sent may still arrive.
    fn drop_task(&mut self) {
        let late = self.on_its_way();
        let me = self.me_mut();
        me.late = me.late.or(late);
        me.job = None;
        me.stream = Stream::Off;
        me.pending = false;
        me.books = 0;
        me.copied_last = false;
    }

    /// The request of the present job that changes something at a node.
    fn on_its_way(&self) -> Option<Late> {
        let job = self.me().job?;
        let (source, target) = self.ends();
        let (node, request) = match (job.task, self.me().phase) {
            (Task::Sweep, _) | (Task::Purge, 1) => (target, Request::Remove),
            (Task::Clean, 1) => (source, Request::Remove),
            (Task::List | Task::Round | Task::CopyLast, 2) => {
                (target, Request::Put(self.me().carried))
            }
            (Task::Fence(generation), _) => (source, Request::Fence(generation)),
            _ => return None,
        };
        self.reaches(node).then_some(Late { node, request })
    }

    /// A late request arrives, unless its user is gone.
    pub(crate) fn land_late(&mut self) {
        let Some(late) = self.me_mut().late.take() else {
            return;
        };
        if self.world.nodes[late.node].terms & self.term_bit() == 0 {
            return;
        }
        match late.request {
            Request::Put(value) => self.world.put(late.node, value),
            Request::Remove => self.world.remove(late.node),
            Request::Fence(generation) => self.fence_at(late.node, generation),
        }
    }

    /// Makes the term's own user at a node; users of lower terms go, and with them all their connections.
    pub(crate) fn enter(&mut self, node: usize) {
        let own = self.term_bit();
        let mut gone = self.world.nodes[node].terms & (own | (own - 1));
        if self.has(Bug::LowerTermsStay) {
            gone &= own;
        }
        for (rank, process) in (0..).zip(&mut self.world.processes) {
            let late = process.late;
            if gone & (1 << rank) != 0 {
                process.lose_connections(node);
            }
            if self.bug == Some(Bug::CancelledCopiesLandLate) {
                process.late = late;
            }
        }
        self.world.nodes[node].terms &= !gone;
        self.world.nodes[node].terms |= own;
        self.me_mut().sessions |= 1 << node;
    }

    pub(crate) fn fence_at(&mut self, node: usize, generation: u64) {
        if self.has(Bug::NoFence) {
            return;
        }
        let previous_only = self.has(Bug::FencePreviousOnly);
        let real = &*self.real;
        let goes = |user: u8| {
            let of_user = real.user(user).0.get();
            of_user < generation && !(previous_only && of_user + 1 < generation)
        };
        let users = self.world.nodes[node].users;
        let kept = (0..16).filter(|&user| users & (1 << user) != 0 && !goes(user));
        self.world.nodes[node].users = kept.fold(0, |users, user| users | 1 << user);
    }

    /// Makes a client user at a node, in place of any other of its generation.
    pub(crate) fn make_user(&mut self, node: usize, user: u8) {
        let (generation, _) = self.real.user(user);
        let users = self.world.nodes[node].users;
        let other = |&other: &u8| self.real.user(other).0 != generation;
        let kept = (0..16)
            .filter(|&other| users & (1 << other) != 0)
            .filter(other);
        let kept = kept.fold(0, |users, user| users | 1 << user);
        self.world.nodes[node].users = kept | 1 << user;
    }

    /// Asks the store what the job wants of it.
    pub(crate) fn store(&mut self) {
        let Some(job) = self.me_mut().storing.take() else {
            return;
        };
        match job.task {
            Task::ReadRecord => {
                let (record, leads) = (self.world.record, self.believes_to_lead());
                self.me_mut().known = record;
                self.tell_of(job.index, Happened::Record { record, leads });
            }
            Task::Commit(step) => {
                let happened = self.commit(job.index, step);
                self.tell_of(job.index, happened);
            }
            Task::TurnBack => self.change_record(Change::TurnBack),
            _ => self.change_record(Change::End),
        }
    }

    /// Commits a step from the newest record known here.
    pub(crate) fn commit(&mut self, handoff: u8, step: u16) -> Happened {
        let Life::Conducting(conductor) = self.me().life else {
            unreachable!("only a conductor commits")
        };
        let (reverse, source) = self.real.handoff(conductor, handoff);
        let change = Change::Step {
            reverse,
            source,
            step,
        };
        let (known, current) = (self.me().known, self.world.record);
        let Some(next) = self.real.changed(known, change, current) else {
            self.me_mut().known = current;
            return Happened::Conflict;
        };
        if !self.leads() && !self.has(Bug::TermNotCompared) {
            return Happened::Deposed;
        }
        if known != current && !self.has(Bug::RevisionNotCompared) {
            self.me_mut().known = current;
            return Happened::Conflict;
        }
        self.world.usurped |= !self.leads();
        self.publish(next);
        self.me_mut().known = next;
        Happened::Committed
    }

    /// Turns the change, or ends it; then everything begins again from the record.
    fn change_record(&mut self, change: Change) {
        let current = self.world.record;
        if self.leads()
            && let Some(next) = self.real.changed(current, change, current)
        {
            self.publish(next);
        }
        let Process {
            sessions,
            looks,
            prepared,
            late,
            ..
        } = *self.me();
        *self.me_mut() = Process {
            life: Life::AtRest,
            sessions,
            looks,
            prepared,
            late,
            ..Process::UNBORN
        };
    }

    /// The store has a new record: whoever reads it makes a view of it.
    pub(crate) fn publish(&mut self, next: u16) {
        let (before, after) = (self.real.facts(self.world.record), self.real.facts(next));
        let acts = |facts: &Facts| (facts.owner, facts.held, facts.named);
        let due = u64::from(acts(&before) != acts(&after));
        self.world.epoch_fell |= after.epoch < before.epoch + due;
        self.world.record = next;
        let though_held = self.has(Bug::NotHeld);
        self.world.claim(self.real, next, though_held);
    }

    /// Begins to conduct the change in flight, or finds that another leads.
    pub(crate) fn begin(&mut self) {
        if !self.believes_to_lead() {
            return self.obey(&[Job {
                index: 0,
                task: Task::Deposed,
            }]);
        }
        let record = self.world.record;
        let (conductor, jobs) = self.real.start(record);
        self.me_mut().known = record;
        self.me_mut().life = Life::Conducting(conductor);
        self.obey(&jobs);
    }
}
