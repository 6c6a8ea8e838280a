//! Every order of answers and mishaps, up to a number of mishaps: no forbidden order of commands is
//! ever given, and nothing gets stuck.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use clockwise_cluster::copier::Lane;
use clockwise_cluster::handoff::{
    Command, Conductor, Event, FenceFailure, Order, RoundReport, Server, Situation,
};
use clockwise_cluster::{HandoffId, Step, StepError};

use crate::book::Book;
use crate::watch::{Watch, touches_a_server};
use crate::{facts, script};

/// Everything there is at one moment.
#[derive(Clone)]
struct World {
    conductor: Option<Conductor>,
    book: Book,
    handoffs: Vec<HandoffId>,
    waiting: Vec<Order>,
    watches: Vec<Watch>,
    now_ms: u64,
    mishaps_left: u32,
    aborted: bool,
    // Somebody else changed this handoff's entry: a commit that does not fit is no fault then.
    meddled: bool,
}

impl World {
    fn new(pool: &str, edit: &str, mishaps: u32) -> Self {
        let mut book = Book::new(pool);
        book.stage(edit);
        book.apply();
        let mut world = Self {
            conductor: None,
            book,
            handoffs: Vec::new(),
            waiting: Vec::new(),
            watches: Vec::new(),
            now_ms: 0,
            mishaps_left: mishaps,
            aborted: false,
            meddled: false,
        };
        world.lead();
        world
    }

    fn lead(&mut self) {
        self.handoffs = self.book.handoffs();
        self.watches = self.handoffs.iter().map(|_| Watch::default()).collect();
        self.waiting.clear();
        self.meddled = false;
        let mut conductor = Conductor::new(&self.book.record).expect("a change in flight");
        let orders = conductor.start(self.now_ms);
        self.conductor = Some(conductor);
        self.take(orders);
    }

    fn take(&mut self, orders: Vec<Order>) {
        for order in orders {
            match &order {
                Order::Handoff(index, command) => {
                    let id = &self.handoffs[*index];
                    self.watches[*index].check(command, &self.book, id, self.now_ms);
                    match command {
                        Command::Cancel => {
                            self.waiting.retain(
                                |other| !matches!(other, Order::Handoff(at, _) if at == index),
                            );
                            self.waiting.push(order);
                        }
                        Command::Untrack | Command::Stop(_) | Command::Park | Command::Finish => {}
                        _ => self.waiting.push(order),
                    }
                }
                Order::Deposed => {
                    self.conductor = None;
                    self.waiting.clear();
                    return;
                }
                _ => self.waiting.push(order),
            }
        }
    }

    fn deliver(&mut self, index: usize, event: Event) {
        let id = self.handoffs[index].clone();
        self.watches[index].note(&event, &self.book, &id);
        let conductor = self.conductor.as_mut().expect("somebody leads");
        let orders = conductor.handle(index, event, self.now_ms);
        self.take(orders);
    }

    /// Answers one order with one of its possible answers; none if there is no such answer.
    fn answer(&self, at: usize, way: Way) -> Option<Self> {
        let mut next = self.clone();
        if way != Way::Well {
            next.mishaps_left = next.mishaps_left.checked_sub(1)?;
        }
        match next.waiting.remove(at) {
            Order::Handoff(index, command) => {
                let event = next.event(index, &command, way)?;
                let watch = &mut next.watches[index];
                if watch.outstanding.as_ref() == Some(&command) {
                    watch.outstanding = None;
                    watch.late = false;
                }
                next.deliver(index, event);
            }
            Order::TurnBack if way == Way::Well => {
                next.book.turn_back(next.now_ms);
                next.lead();
            }
            Order::End if way == Way::Well => {
                next.book.end(next.now_ms);
                next.conductor = None;
            }
            _ => return None,
        }
        Some(next)
    }

    fn event(&mut self, index: usize, command: &Command, way: Way) -> Option<Event> {
        let id = self.handoffs[index].clone();
        let well = way == Way::Well;
        let broken = Event::Broken {
            at: Server::Target(Lane(0)),
            why: String::new(),
        };
        Some(match command {
            Command::Commit(step) => return self.commit(index, step, way),
            Command::ReadRecord { .. } if way == Way::Worse => Event::StoreAway,
            Command::ReadRecord { .. } if well => Event::Record(Situation {
                leads: self.book.leads,
                entry: self.book.entry(&id),
            }),
            Command::Cancel if well => Event::Cancelled,
            Command::Round { .. } if way == Way::Worse => Event::Round(RoundReport {
                copied: 1,
                dirty: 5_000,
                took_ms: 1,
                untracked_ms: 0,
            }),
            Command::Verify if way == Way::Worse => Event::Verified {
                compared: 1,
                mismatches: 1,
            },
            Command::CountOld { .. } if way == Way::Worse => Event::OldConnections(1),
            Command::Fence(_) if way == Way::Worse => Event::FenceFailed(FenceFailure::Busy),
            Command::CompareLast if way == Way::Worse => Event::LastCompared { different: 1 },
            Command::Clean | Command::Purge(_) if way == Way::Worse => Event::Cleaned {
                removed: 1,
                finished: false,
            },
            command if way == Way::Broken && touches_a_server(command) => broken,
            Command::Open(_) if way == Way::Broken => broken,
            _ if !well => return None,
            Command::Inspect => Event::Inspected(facts::good(&self.book, &id)),
            Command::Open(_) => Event::Opened,
            Command::Identify => Event::Identified(script::identities(&self.book, &id)),
            Command::Sweep => Event::Swept { removed: 0 },
            Command::Track => Event::Tracking,
            Command::List => Event::Listed,
            Command::Round { .. } => Event::Round(RoundReport::default()),
            Command::Verify => Event::Verified {
                compared: 1,
                mismatches: 0,
            },
            Command::Prepare => {
                let generation = self.book.entry(&id)?.generation.next();
                Event::Prepared {
                    generation,
                    nonce: self.book.nonce(),
                }
            }
            Command::CountOld { .. } => Event::OldConnections(0),
            Command::Fence(_) => Event::Fenced,
            Command::Barrier => Event::BarrierPassed,
            Command::CopyLast => Event::LastCopied { keys: 1 },
            Command::CompareLast => Event::LastCompared { different: 0 },
            Command::Durable | Command::DurableSource => Event::Durable,
            Command::Clean | Command::Purge(_) => Event::Cleaned {
                removed: 1,
                finished: true,
            },
            other => panic!("{other:?} has no answer"),
        })
    }

    fn commit(&mut self, index: usize, step: &Step, way: Way) -> Option<Event> {
        if way == Way::Conflict {
            return Some(Event::Conflict);
        }
        if way == Way::Broken {
            return Some(Event::Unknown);
        }
        if !self.book.leads {
            return Some(Event::Deposed);
        }
        let id = self.handoffs[index].clone();
        match self.book.commit(&id, step, self.now_ms) {
            Ok(epoch) => {
                self.watches[index].committed(step, self.now_ms);
                Some(if way == Way::Worse {
                    Event::Unknown
                } else {
                    Event::Committed { epoch }
                })
            }
            Err(StepError::OutOfOrder { .. } | StepError::GenerationReused { .. })
                if self.meddled =>
            {
                Some(Event::Conflict)
            }
            Err(error) => panic!("{step:?} of {id}: {error}"),
        }
    }

    /// What happens unasked.
    fn mishaps(&self) -> Vec<Self> {
        let mut nexts = Vec::new();
        let (Some(conductor), Some(mishaps_left)) =
            (&self.conductor, self.mishaps_left.checked_sub(1))
        else {
            return nexts;
        };
        let base = Self {
            mishaps_left,
            ..self.clone()
        };
        for index in 0..self.handoffs.len() {
            if self.watches[index].tracking {
                let mut next = base.clone();
                next.deliver(index, Event::TrackingLost);
                nexts.push(next);
            }
        }
        if self.book.leads {
            let mut next = base.clone();
            next.book.leads = false;
            nexts.push(next);
        }
        if !self.aborted && !self.handoffs.iter().any(|id| id.reverse) {
            let mut next = base.clone();
            next.aborted = true;
            let now_ms = next.now_ms;
            let orders = next
                .conductor
                .as_mut()
                .expect("somebody leads")
                .abort(now_ms);
            next.take(orders);
            nexts.push(next);
        }
        if let Ok(record) = self
            .book
            .record
            .roll_back_stale_handover(self.now_ms + 2_000)
        {
            let mut next = base.clone();
            next.book.record = Rc::new(record);
            next.meddled = true;
            nexts.push(next);
        }
        let mut next = base.clone();
        next.book.restart(self.handoffs[0].source.as_str());
        nexts.push(next);
        if let Some((at_ms, index)) = conductor.deadline()
            && !self.waiting.is_empty()
        {
            let mut next = base;
            next.now_ms = next.now_ms.max(at_ms);
            next.deliver(index, Event::Timeout);
            nexts.push(next);
        }
        nexts
    }

    fn nexts(&self) -> Vec<Self> {
        let mut nexts = Vec::new();
        for at in 0..self.waiting.len() {
            let ways = [Way::Well, Way::Worse, Way::Broken, Way::Conflict];
            nexts.extend(ways.into_iter().filter_map(|way| self.answer(at, way)));
        }
        nexts.extend(self.mishaps());
        let deadline = self.conductor.as_ref().and_then(Conductor::deadline);
        if let Some((at_ms, index)) = deadline
            && self.waiting.is_empty()
        {
            let mut next = self.clone();
            next.now_ms = next.now_ms.max(at_ms);
            next.deliver(index, Event::Timeout);
            nexts.push(next);
        }
        nexts
    }

    fn check_not_stuck(&self) {
        let Some(conductor) = &self.conductor else {
            return;
        };
        if self.waiting.is_empty() && conductor.deadline().is_none() {
            let machines = || (0..self.handoffs.len()).map(|index| conductor.machine(index));
            assert!(
                machines().any(|machine| machine.is_still()),
                "stuck: {conductor:?}"
            );
        }
    }

    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{:?}{:?}{:?}", self.conductor, self.waiting, self.watches).hash(&mut hasher);
        (
            self.book.text(),
            self.book.leads,
            self.mishaps_left,
            self.aborted,
            self.meddled,
        )
            .hash(&mut hasher);
        hasher.finish()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Well,
    Worse,
    Broken,
    Conflict,
}

/// Explores everything; returns how many worlds there are and how many changes ended.
fn explore(start: World) -> (usize, usize) {
    let mut seen = BTreeSet::from([start.hash()]);
    let mut todo = vec![start];
    let mut ends = 0;
    while let Some(world) = todo.pop() {
        world.check_not_stuck();
        ends += usize::from(world.book.record.change().is_none());
        todo.extend(
            world
                .nexts()
                .into_iter()
                .filter(|next| seen.insert(next.hash())),
        );
    }
    (seen.len(), ends)
}

#[test]
fn one_source_with_three_mishaps_never_breaks_a_rule() {
    let (worlds, ends) = explore(World::new("a", "add d", 3));
    println!("{worlds} worlds, {ends} ends");
    assert!(
        worlds > 30_000 && ends > 100,
        "{worlds} worlds, {ends} ends"
    );
}

#[test]
fn two_sources_that_give_to_each_other_with_one_mishap_never_break_a_rule() {
    let (worlds, ends) = explore(World::new("a b", "points 3", 1));
    println!("{worlds} worlds, {ends} ends");
    assert!(worlds > 10_000 && ends > 10, "{worlds} worlds, {ends} ends");
}

#[test]
fn a_lost_source_with_three_mishaps_never_breaks_a_rule() {
    let (worlds, ends) = explore(World::new("a b", "lose a", 3));
    println!("{worlds} worlds, {ends} ends");
    assert!(worlds > 500 && ends > 10, "{worlds} worlds, {ends} ends");
}
