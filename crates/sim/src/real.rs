//! The real code, run once for each thing that can happen to each value, and remembered.
//!
//! Records, conductors and copiers are pure: what becomes of one depends on nothing but itself and on what
//! happens to it. A state of the model names them by number; what comes next is looked up, and only what was
//! never asked before is asked of the real code. That is why millions of states cost seconds.
//!
//! Time stands still at 0, except that a deadline may strike at any moment after it was set.

use std::collections::HashMap;
use std::rc::Rc;

use clockwise_cluster::handoff::preflight::{
    Facts as Preflight, Persistence, Seen, ServerFacts, TargetFacts,
};
use clockwise_cluster::handoff::{Admission, Conductor, Entry, Event, Order, Situation, admission};
use clockwise_cluster::{
    Apply, Direction, Edit, Generation, HANDOVER_MS_MAX, HandoffState, Incarnation, NewNode,
    NewPool, Nonce, Record, Step, View,
};
use clockwise_placement::NodeId;

use crate::books::{Books, Note, Noted};
use crate::intern::Interner;
use crate::task::{Happened, Job, event_of, identity, job_of};

/// The node that is there from the beginning, and the one that joins.
pub(crate) const NODES: [&str; 2] = ["a", "b"];

/// What the model has to know of a record.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) owner: usize,
    pub(crate) held: bool,
    pub(crate) epoch: u64,
    pub(crate) changing: bool,
    pub(crate) in_handover: bool,
    pub(crate) may_abort: bool,
    /// Whom each node should let in; none for a node that is not in the pool.
    pub(crate) named: [Option<u8>; 2],
    /// Whether users of older generations stay at each node.
    pub(crate) older_stay: [bool; 2],
    /// What is true of how far it has got, for the account of a search.
    pub(crate) milestones: u16,
}

/// A commit that somebody wants: what the next record would be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Change {
    Step {
        reverse: bool,
        source: usize,
        step: u16,
    },
    Rescue,
    TurnBack,
    End,
    Next,
}

type Answered = (u16, Rc<[Job]>);

/// A conductor, and what is asked of it most.
#[derive(Debug)]
struct Conducting {
    conductor: Conductor,
    deadline: Option<u8>,
    // Which way each handoff goes, and the node that gives in it.
    handoffs: Vec<(bool, usize)>,
}

/// The real code and all that it said so far.
#[derive(Debug)]
pub(crate) struct Real {
    key: Vec<u8>,
    records: Interner<Record>,
    facts: Vec<Rc<Facts>>,
    changes: HashMap<(u16, Change), Option<u16>>,
    conductors: Interner<Conducting>,
    started: HashMap<u16, Answered>,
    handled: HashMap<(u16, u8, Happened), Answered>,
    aborted: HashMap<u16, Answered>,
    admitted: HashMap<(u16, usize, u8), Option<u8>>,
    books: Interner<Books>,
    noted: HashMap<(u16, Note), (u16, Noted)>,
    steps: Vec<Step>,
    users: Vec<(Generation, Nonce)>,
}

impl Real {
    /// A pool of one node in which another is about to join and to get the key.
    pub(crate) fn new() -> (Self, u16) {
        let mut real = Self {
            key: Vec::new(),
            records: Interner::new(),
            facts: Vec::new(),
            changes: HashMap::new(),
            conductors: Interner::new(),
            started: HashMap::new(),
            handled: HashMap::new(),
            aborted: HashMap::new(),
            admitted: HashMap::new(),
            books: Interner::new(),
            noted: HashMap::new(),
            steps: Vec::new(),
            users: Vec::new(),
        };
        let pool = NewPool::new("main".parse().expect("a name"), vec![new_node(0)]);
        let record = Record::create(pool, &mut || first_nonce(0)).expect("a good pool");
        let record = next_change(&record).expect("a node may join");
        let view = View::from_record(&record).expect("a good record");
        let moves = |key: &Vec<u8>| {
            let moving = view.moving(view.position(key));
            moving.is_some()
        };
        let mut keys = (0..100).map(|number| format!("k{number}").into_bytes());
        real.key = keys.find(moves).expect("half of all keys move");
        let record = real.record_id(record.at_revision(clockwise_cluster::Revision::new(1)));
        (real, record)
    }

    pub(crate) fn record(&self, id: u16) -> Rc<Record> {
        self.records.get(id)
    }

    pub(crate) fn facts(&self, id: u16) -> Rc<Facts> {
        Rc::clone(&self.facts[usize::from(id)])
    }

    fn record_id(&mut self, record: Record) -> u16 {
        let key = format!("{record:?}");
        let facts = self.look_at(&record);
        let id = self.records.id(key, record);
        if usize::from(id) == self.facts.len() {
            self.facts.push(Rc::new(facts));
        }
        id
    }

    fn look_at(&mut self, record: &Record) -> Facts {
        let view = View::from_record(record).expect("a checked record");
        let route = view.route(view.position(&self.key));
        let change = record.change();
        let states = |node: usize| {
            let handoffs = change.into_iter().flat_map(|change| &change.handoffs);
            let of_node = handoffs.filter(move |handoff| handoff.source.as_str() == NODES[node]);
            of_node.map(|handoff| handoff.state).collect::<Vec<_>>()
        };
        let stay = |node: usize| {
            use HandoffState::{Copying, Handover, Verifying};
            states(node)
                .iter()
                .any(|state| matches!(state, Copying | Verifying | Handover))
        };
        let all: Vec<_> = states(0).into_iter().chain(states(1)).collect();
        let named = [0, 1].map(|node| {
            let node = record.node(&node_id(node))?;
            Some(self.user_id(node.generation, node.nonce))
        });
        Facts {
            owner: index_of(&view.node(route.node).id),
            held: route.hold,
            epoch: record.epoch().get(),
            changing: change.is_some(),
            in_handover: all.contains(&HandoffState::Handover),
            may_abort: change.is_some_and(|change| change.direction == Direction::Forward),
            named,
            older_stay: [stay(0), stay(1)],
            milestones: milestones(record, &all),
        }
    }

    /// The record after a commit, under the revision after `current`'s; none if it cannot be made.
    pub(crate) fn changed(&mut self, from: u16, change: Change, current: u16) -> Option<u16> {
        let next = self.changed_content(from, change)?;
        let revision = self.record(current).revision().next();
        if self.record(next).revision() == revision {
            return Some(next);
        }
        let record = self.record(next).as_ref().clone().at_revision(revision);
        Some(self.record_id(record))
    }

    fn changed_content(&mut self, from: u16, change: Change) -> Option<u16> {
        if let Some(&known) = self.changes.get(&(from, change)) {
            return known;
        }
        let record = self.record(from);
        let next = match change {
            Change::Step {
                reverse,
                source,
                step,
            } => {
                let source = node_id(source);
                let id = clockwise_cluster::HandoffId { source, reverse };
                record.step(&id, &self.steps[usize::from(step)], 0).ok()
            }
            Change::Rescue => record.roll_back_stale_handover(2 * HANDOVER_MS_MAX).ok(),
            Change::TurnBack => record.abort(0).ok(),
            Change::End => record.end_change(0).ok(),
            Change::Next => next_change(&record),
        };
        let next = next.map(|next| {
            let next = next.at_revision(record.revision().next());
            self.record_id(next)
        });
        self.changes.insert((from, change), next);
        next
    }

    pub(crate) fn situation(
        &self,
        conductor: &Conductor,
        index: u8,
        record: u16,
        leads: bool,
    ) -> Situation {
        let id = conductor.handoffs().nth(usize::from(index));
        let entry = id.and_then(|id| Entry::of(&self.record(record), id));
        Situation { leads, entry }
    }

    /// Whom a node lets in that is this run, as the real rule decides; none for nobody.
    pub(crate) fn admits(&mut self, record: u16, node: usize, run: u8) -> Option<u8> {
        if let Some(&known) = self.admitted.get(&(record, node, run)) {
            return known;
        }
        let decided = admission(&self.record(record), &node_id(node), &identity(node, run));
        let admitted = match decided {
            Admission::Clients { generation, nonce } => Some(self.user_id(generation, nonce)),
            Admission::Nobody(_) => None,
        };
        self.admitted.insert((record, node, run), admitted);
        admitted
    }

    pub(crate) fn user_id(&mut self, generation: Generation, nonce: Nonce) -> u8 {
        let user = (generation, nonce);
        let at = self.users.iter().position(|known| *known == user);
        let at = at.unwrap_or_else(|| {
            self.users.push(user);
            self.users.len() - 1
        });
        u8::try_from(at).expect("few users")
    }

    pub(crate) fn user(&self, id: u8) -> (Generation, Nonce) {
        self.users[usize::from(id)]
    }

    pub(crate) fn step_id(&mut self, step: &Step) -> u16 {
        let at = self.steps.iter().position(|known| known == step);
        let at = at.unwrap_or_else(|| {
            self.steps.push(step.clone());
            self.steps.len() - 1
        });
        u16::try_from(at).expect("few steps")
    }

    /// A conductor of the change in flight, with its first jobs.
    pub(crate) fn start(&mut self, record: u16) -> Answered {
        if let Some(known) = self.started.get(&record) {
            return known.clone();
        }
        let mut conductor = Conductor::new(&self.record(record)).expect("a change in flight");
        let orders = conductor.start(0);
        let answered = self.answered(conductor, &orders);
        self.started.insert(record, answered.clone());
        answered
    }

    /// What a conductor does about something that happened.
    pub(crate) fn handle(&mut self, conductor: u16, index: u8, happened: Happened) -> Answered {
        if let Some(known) = self.handled.get(&(conductor, index, happened)) {
            return known.clone();
        }
        let mut next = self.conductors.get(conductor).conductor.clone();
        let event = event_of(self, &next, index, happened);
        let now_ms = match event {
            Event::Timeout => next.deadline().map_or(0, |(at_ms, _)| at_ms),
            _ => 0,
        };
        let orders = next.handle(usize::from(index), event, now_ms);
        let answered = self.answered(next, &orders);
        self.handled
            .insert((conductor, index, happened), answered.clone());
        answered
    }

    /// What a conductor does when it is asked to take everything back.
    pub(crate) fn abort(&mut self, conductor: u16) -> Answered {
        if let Some(known) = self.aborted.get(&conductor) {
            return known.clone();
        }
        let mut next = self.conductors.get(conductor).conductor.clone();
        let orders = next.abort(0);
        let answered = self.answered(next, &orders);
        self.aborted.insert(conductor, answered.clone());
        answered
    }

    fn answered(&mut self, conductor: Conductor, orders: &[Order]) -> Answered {
        let jobs = orders
            .iter()
            .filter_map(|order| job_of(order, self))
            .collect();
        let key = format!("{conductor:?}");
        let deadline = conductor.deadline();
        let handoffs = conductor.handoffs();
        let conducting = Conducting {
            deadline: deadline.and_then(|(_, index)| u8::try_from(index).ok()),
            handoffs: handoffs
                .map(|id| (id.reverse, index_of(&id.source)))
                .collect(),
            conductor,
        };
        (self.conductors.id(key, conducting), jobs)
    }

    /// The handoff for which a deadline is set.
    pub(crate) fn deadline(&self, conductor: u16) -> Option<u8> {
        self.conductors.get(conductor).deadline
    }

    /// Which way a handoff goes, and the node that gives in it.
    pub(crate) fn handoff(&self, conductor: u16, index: u8) -> (bool, usize) {
        self.conductors.get(conductor).handoffs[usize::from(index)]
    }

    pub(crate) fn source_of(&self, conductor: &Conductor, index: u8) -> usize {
        let id = conductor
            .handoffs()
            .nth(usize::from(index))
            .expect("its own handoff");
        index_of(&id.source)
    }

    /// The books of a copy that has just begun.
    pub(crate) fn new_books(&mut self) -> u16 {
        let books = Books::new();
        self.books.id(books.key(), books)
    }

    /// What the real copier makes of a note in its books.
    pub(crate) fn note(&mut self, books: u16, note: Note) -> (u16, Noted) {
        if let Some(&known) = self.noted.get(&(books, note)) {
            return known;
        }
        let mut next = self.books.get(books).as_ref().clone();
        let noted = next.note(note, &self.key);
        let answered = (self.books.id(next.key(), next), noted);
        self.noted.insert((books, note), answered);
        answered
    }

    /// What is to be seen of books as they are.
    pub(crate) fn peek(&self, books: u16) -> Noted {
        self.books.get(books).seen()
    }

    /// A preflight that finds nothing wrong, unless the source is another run than it has to be.
    pub(crate) fn facts_of(
        &self,
        source: usize,
        runs: [u8; 2],
        source_expected: Option<Incarnation>,
    ) -> Preflight {
        let seen = |node: usize, run: u8| Seen {
            node: node_id(node),
            facts: Ok(ServerFacts {
                identity: identity(node, run),
                persistence: Persistence::AppendEverySecond,
                memory_used_bytes: 0,
                memory_limit_bytes: None,
                evicts: false,
                clock_ms: 0,
                foreign_writers: Vec::new(),
                open_by_default: None,
                persisted_users: Vec::new(),
                missing_rights: Vec::new(),
            }),
        };
        Preflight {
            source: seen(source, runs[0]),
            source_lost: false,
            source_expected,
            targets: vec![TargetFacts {
                seen: seen(1 - source, runs[1]),
                leaving: false,
                bytes_expected: 0,
                canary: Ok(()),
            }],
            foreign_writers_allowed: Vec::new(),
            clock_ms: 0,
        }
    }

    /// How many distinct records, conductors and books there were.
    pub(crate) fn sizes(&self) -> [usize; 3] {
        [self.records.len(), self.conductors.len(), self.books.len()]
    }
}

/// The change after this record: the second node joins, or leaves again.
fn next_change(record: &Record) -> Option<Record> {
    let edit = match record.node(&node_id(1)) {
        None => {
            let new = new_node(1);
            Edit::Add {
                id: new.id,
                address: new.address,
                weight: new.weight,
                domain: new.domain,
            }
        }
        Some(_) => Edit::Remove { id: node_id(1) },
    };
    let staged = record.stage(edit).ok()?;
    let apply = Apply {
        expected: staged.epoch(),
        id: "change".parse().ok()?,
        now_ms: 0,
        nonces: &mut || first_nonce(1),
    };
    staged.apply(apply).ok()
}

/// What is true of how far a record has got, for the account of a search: one bit each.
fn milestones(record: &Record, states: &[HandoffState]) -> u16 {
    let has = |state| states.contains(&state);
    let back = record
        .change()
        .is_some_and(|change| change.direction == Direction::Back);
    let ended = |way| {
        record
            .finished()
            .is_some_and(|finished| finished.direction == way)
    };
    let reverse = record.change().is_some_and(|change| {
        let mut handoffs = change.handoffs.iter();
        handoffs.any(|handoff| handoff.is_reverse() && handoff.state.is_flipped())
    });
    let bits = [
        has(HandoffState::Handover),
        has(HandoffState::Flipped),
        has(HandoffState::Cleaning),
        ended(Direction::Forward),
        has(HandoffState::Purging),
        ended(Direction::Back),
        back && reverse,
        record.change().is_some() && record.finished().is_some(),
    ];
    (0..).zip(bits).map(|(at, bit)| u16::from(bit) << at).sum()
}

fn new_node(node: usize) -> NewNode {
    let address = format!("127.0.0.1:700{node}").parse().expect("an address");
    NewNode::new(node_id(node), address)
}

fn first_nonce(node: u8) -> Nonce {
    Nonce::new([node; 16])
}

pub(crate) fn node_id(node: usize) -> NodeId {
    NODES[node].parse().expect("a plain name")
}

fn index_of(id: &NodeId) -> usize {
    let found = NODES.iter().position(|name| *name == id.as_str());
    found.expect("one of the two")
}
