//! The commands of the handoff machine, one visible effect at a time.

use clockwise_cluster::Nonce;

use crate::books::{Note, Noted};
use crate::bug::Bug;
use crate::stage::{Stage, Taken};
use crate::task::{Happened, Sides, Task};
use crate::world::{ABSENT, Look, Stream, index};

impl Stage<'_> {
    /// What a node has survives a restart from here on.
    fn durable(&mut self, node: usize, unless: Bug) -> Taken {
        self.at(node, |stage| {
            if !stage.has(unless) {
                stage.world.nodes[node].disk = stage.world.nodes[node].value;
            }
            stage.answer(Happened::Durable);
        })
    }

    /// The next effect of the job that is held.
    pub(crate) fn work(&mut self) -> Taken {
        let Some(job) = self.me().job else {
            return Taken::NotYet;
        };
        let (source, target) = self.ends();
        match job.task {
            Task::Inspect => {
                let nodes = self.world.nodes;
                self.answer(Happened::Inspected {
                    record: self.me().known,
                    source: nodes[source].restarts,
                    target: nodes[target].restarts,
                });
            }
            Task::Open(sides) => self.open(sides),
            Task::Identify => return self.identify(source, target),
            Task::Sweep => {
                return self.at(target, |stage| {
                    if !stage.has(Bug::StraysNotSwept) {
                        stage.world.remove(target);
                    }
                    stage.answer(Happened::Swept);
                });
            }
            Task::Track => return self.at(source, |stage| stage.track(source)),
            Task::List => return self.list(source, target),
            Task::Round => return self.round(Note::BeginRound, source, target),
            Task::CopyLast => return self.copy_last(source, target),
            Task::CompareLast => return self.compare_last(source, target),
            Task::Verify => return self.verify(source, target),
            Task::Prepare => return self.prepare(source, target),
            Task::CountOld => self.answer(Happened::NoneOld),
            Task::Fence(generation) => return self.fence(source, generation),
            Task::Barrier => return self.barrier(),
            Task::Durable => return self.durable(target, Bug::CleanedBeforeDurable),
            Task::DurableSource => return self.durable(source, Bug::GivenBackBeforeDurable),
            Task::Clean => return self.clean(source),
            Task::Purge if self.has(Bug::NotPurged) => self.answer(Happened::Cleaned),
            Task::Purge => return self.clean(target),
            Task::Cancel => self.answer(Happened::Cancelled),
            other => unreachable!("{other:?} is not done at a node"),
        }
        Taken::Yes
    }

    /// Enters one node after the other.
    fn open(&mut self, sides: Sides) {
        let (source, target) = self.ends();
        let nodes = match sides {
            Sides::Both => vec![source, target],
            Sides::Target => vec![target],
        };
        let closed = |stage: &Self| {
            let mut nodes = nodes.iter();
            nodes
                .find(|&&node| stage.me().sessions & (1 << node) == 0)
                .copied()
        };
        if let Some(node) = closed(self) {
            self.enter(node);
        }
        if closed(self).is_none() {
            self.answer(Happened::Opened);
        }
    }

    fn identify(&mut self, source: usize, target: usize) -> Taken {
        if !self.reaches(target) {
            return self.at(target, |_| {});
        }
        self.at(source, |stage| {
            let nodes = stage.world.nodes;
            stage.answer(Happened::Identified {
                source: nodes[source].restarts,
                target: nodes[target].restarts,
                keys: u8::from(nodes[source].value != ABSENT),
            });
        })
    }

    fn track(&mut self, source: usize) {
        let books = self.real.new_books();
        let late = self.has(Bug::TrackedAfterListing);
        let me = self.me_mut();
        me.books = books;
        me.pending = false;
        if !late {
            me.stream = Stream::On(index(source));
        }
        self.answer(Happened::Tracking);
    }

    fn note(&mut self, note: Note) -> Noted {
        let (books, noted) = self.real.note(self.me().books, note);
        self.me_mut().books = books;
        noted
    }

    /// A touch arrives over the stream.
    pub(crate) fn hear(&mut self) {
        self.me_mut().pending = false;
        let forgets = self.has(Bug::TouchInFlightForgotten);
        if !(forgets && self.me().phase == 2) {
            self.note(Note::Touched);
        }
    }

    fn list(&mut self, source: usize, target: usize) -> Taken {
        if self.me().phase > 0 {
            return self.copy(source, target);
        }
        self.at(source, |stage| {
            stage.me_mut().phase = 1;
            if stage.world.nodes[source].value == ABSENT {
                stage.finish_copying();
            } else {
                stage.note(Note::Listed);
            }
        })
    }

    fn copy_last(&mut self, source: usize, target: usize) -> Taken {
        if self.me().phase == 0 {
            self.me_mut().copied_last = false;
        }
        if self.has(Bug::LastCopiesSkipped) {
            self.answer(Happened::LastCopied);
            return Taken::Yes;
        }
        self.round(Note::BeginLast, source, target)
    }

    fn round(&mut self, begin: Note, source: usize, target: usize) -> Taken {
        if self.me().phase > 0 {
            return self.copy(source, target);
        }
        let noted = self.note(begin);
        self.me_mut().phase = 1;
        if noted.landed {
            self.finish_copying();
            return Taken::Yes;
        }
        self.copy(source, target)
    }

    /// Reads what the copier hands out, then writes it: two effects, between which anything may happen.
    fn copy(&mut self, source: usize, target: usize) -> Taken {
        if self.me().phase == 2 {
            return self.at(target, |stage| {
                let value = stage.me().carried;
                if value != ABSENT || !stage.has(Bug::DeletionsNotCopied) {
                    stage.world.put(target, value);
                }
                stage.me_mut().phase = 1;
                stage.me_mut().carried = 0;
                if stage.note(Note::Landed).landed {
                    stage.finish_copying();
                }
            });
        }
        self.at(source, |stage| {
            if stage.note(Note::Next).out {
                let value = stage.world.nodes[source].value;
                stage.note(Note::Read {
                    exists: value != ABSENT,
                });
                stage.me_mut().carried = value;
                stage.me_mut().phase = 2;
                stage.me_mut().copied_last = true;
            } else {
                stage.finish_copying();
            }
        })
    }

    fn finish_copying(&mut self) {
        let dirty = self.real.peek(self.me().books).dirty;
        let (source, _) = self.ends();
        match self.me().job.map(|job| job.task) {
            Some(Task::List) => {
                if self.has(Bug::TrackedAfterListing) {
                    self.me_mut().stream = Stream::On(index(source));
                }
                self.answer(Happened::Listed);
            }
            Some(Task::Round) => self.answer(Happened::Round {
                dirty: u8::from(dirty),
            }),
            _ => self.answer(Happened::LastCopied),
        }
    }

    fn compare_last(&mut self, source: usize, target: usize) -> Taken {
        if !self.me().copied_last {
            self.answer(Happened::LastCompared { different: 0 });
            return Taken::Yes;
        }
        if !self.reaches(target) {
            return self.at(target, |_| {});
        }
        self.at(source, |stage| {
            let nodes = stage.world.nodes;
            let different = u8::from(nodes[source].value != nodes[target].value);
            stage.answer(Happened::LastCompared { different });
        })
    }

    /// Looks at both sides, one after the other; a difference counts once the stream has caught up.
    fn verify(&mut self, source: usize, target: usize) -> Taken {
        match self.me().phase {
            0 => self.at(source, |stage| {
                stage.me_mut().carried = stage.world.nodes[source].value;
                stage.me_mut().phase = 1;
            }),
            1 => self.at(target, |stage| {
                if stage.world.nodes[target].value != stage.me().carried {
                    stage.note(Note::Suspect);
                }
                stage.me_mut().carried = 0;
                stage.me_mut().phase = 2;
            }),
            _ if self.has_caught_up() => {
                let mismatches = self.note(Note::Settle).mismatches;
                self.world.differed |= mismatches > 0;
                self.answer(Happened::Verified { mismatches });
                Taken::Yes
            }
            _ => Taken::NotYet,
        }
    }

    fn has_caught_up(&self) -> bool {
        matches!(self.me().stream, Stream::On(_)) && !self.me().pending
    }

    fn barrier(&mut self) -> Taken {
        if !self.has_caught_up() && !self.has(Bug::NoBarrier) {
            return Taken::NotYet;
        }
        self.answer(Happened::BarrierPassed);
        Taken::Yes
    }

    /// The target lets its clients in, then the source gets the user of the next generation.
    fn prepare(&mut self, source: usize, target: usize) -> Taken {
        let node = if self.me().phase == 0 { target } else { source };
        if self.me().looks[node].is_some() {
            return Taken::NotYet;
        }
        self.at(node, |stage| {
            if !stage.believes_to_lead() {
                return stage.broke(node);
            }
            stage.me_mut().known = stage.world.record;
            if node == source {
                let user = stage.next_user(source);
                stage.make_user(source, user);
                stage.me_mut().prepared[source] = stage.real.user(user).0.get();
                return stage.answer(Happened::Prepared { user });
            }
            let look = stage.decide(target);
            if look.admitted.is_none() {
                return stage.broke(target);
            }
            stage.carry_out(target, look);
            stage.me_mut().phase = 1;
        })
    }

    /// A user above the record's and above every one that the node has.
    fn next_user(&mut self, node: usize) -> u8 {
        let record = self.real.record(self.world.record);
        let id = crate::real::node_id(node);
        let named = record
            .node(&id)
            .expect("a source is in the pool")
            .generation;
        let users = self.world.nodes[node].users;
        let found = (0..16).filter(|user| users & (1 << user) != 0);
        let highest = found
            .map(|user| self.real.user(user).0)
            .fold(named, Ord::max);
        let generation = highest.next();
        let mut bytes = [0xff; 16];
        bytes[0] = index(self.rank);
        bytes[1] = u8::try_from(generation.get()).expect("few generations");
        bytes[2] = index(node);
        self.real.user_id(generation, Nonce::new(bytes))
    }

    fn fence(&mut self, source: usize, generation: u64) -> Taken {
        let looked_at = self.me().looks[source].is_some();
        if looked_at && !self.has(Bug::UsersFromAnOldRead) {
            return Taken::NotYet;
        }
        self.at(source, |stage| {
            stage.fence_at(source, generation);
            stage.answer(Happened::Fenced);
        })
    }

    /// Decides by the newest record known here, then removes: two effects.
    fn clean(&mut self, node: usize) -> Taken {
        if self.me().phase == 1 {
            return self.at(node, |stage| {
                stage.world.remove(node);
                stage.answer(Happened::Cleaned);
            });
        }
        self.at(node, |stage| {
            let owner = stage.real.facts(stage.me().known).owner;
            if owner != node && stage.world.nodes[node].value != ABSENT {
                stage.me_mut().phase = 1;
            } else {
                stage.answer(Happened::Cleaned);
            }
        })
    }

    /// Whom a node should let in, from the record as of now.
    pub(crate) fn decide(&mut self, node: usize) -> Look {
        let record = self.world.record;
        let run = self.world.nodes[node].restarts;
        let admitted = match self.has(Bug::AnyRunAdmitted) {
            true => self.real.facts(record).named[node],
            false => self.real.admits(record, node, run),
        };
        Look { record, admitted }
    }

    /// Removes the users that the record does not name, then makes the one that it names.
    pub(crate) fn carry_out(&mut self, node: usize, look: Look) {
        let older_stay = self.real.facts(look.record).older_stay[node];
        if !older_stay {
            self.me_mut().prepared[node] = 0;
        }
        let prepared = self.me().prepared[node];
        let named = look.admitted.map(|user| self.real.user(user).0.get());
        let stays = |generation: u64| {
            named.is_some_and(|named| {
                generation == named || (older_stay && generation < named) || generation == prepared
            })
        };
        let users = self.world.nodes[node].users;
        let kept = (0..16)
            .filter(|&user| users & (1 << user) != 0 && stays(self.real.user(user).0.get()))
            .fold(0, |users, user| users | 1 << user);
        self.world.nodes[node].users = kept;
        if let (Some(user), Some(generation)) = (look.admitted, named) {
            self.make_user(node, user);
            if prepared <= generation {
                self.me_mut().prepared[node] = 0;
            }
        }
    }
}
