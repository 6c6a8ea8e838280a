//! One handoff's task: does at the servers what the machine asks for. Stands for the server's engine.
//!
//! The real [`Copier`] keeps the books. What was sent for a command that is cancelled may still take effect,
//! but before anything that is sent later over the same session.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use clockwise_cluster::copier::{Copier, Lane, Limits};
use clockwise_cluster::handoff::preflight::{
    Facts, Persistence, Seen, ServerFacts, TargetFacts, Unseen,
};
use clockwise_cluster::handoff::{
    Command, Event, FenceFailure, Identities, Identity, Party as Parties, RoundReport, Server as At,
};
use clockwise_cluster::{Generation, Handoff, HandoffId, HandoffKind, View};
use clockwise_placement::NodeId;

use super::Sim;
use super::conducting::Told;
use super::executor::{Boxed, MS, Mailbox};
use super::fact::Why;
use super::network::{Broken, Party, Wire};
use super::process::Mandate;
use super::server::{Heard, Key, Server, Tracker};
use super::station::{Refused, Station};
use super::truth::rank_of;

/// Keys of a batch: small, so that much happens between two.
const BATCH_KEYS_MAX: usize = 6;

/// Why a command got no answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure(pub(super) At);

pub(super) type Done = Result<Event, Failure>;

/// What a handoff's tasks share.
pub(super) struct Books {
    pub(super) copier: Copier<Key>,
    source: Option<Rc<Wire>>,
    targets: Vec<Option<Rc<Wire>>>,
    tracker: Option<Tracker>,
    pongs: Mailbox<()>,
    // Whether what is copied is compared as soon as it has landed.
    pub(super) at_once: bool,
    pub(super) cursor: usize,
}

/// One handoff under one conductor.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) sim: Sim,
    pub(super) mandate: Rc<Mandate>,
    id: HandoffId,
    kind: HandoffKind,
    targets: Rc<Vec<NodeId>>,
    index: usize,
    view: Rc<View>,
    told: Mailbox<Told>,
    pub(super) books: Rc<RefCell<Books>>,
}

impl Desk {
    pub(super) fn new(
        sim: &Sim,
        mandate: &Rc<Mandate>,
        handoff: &Handoff,
        index: usize,
        view: &Rc<View>,
        told: Mailbox<Told>,
    ) -> Self {
        let books = Books::new(handoff.targets.len());
        Self {
            sim: sim.clone(),
            mandate: Rc::clone(mandate),
            id: handoff.id(),
            kind: handoff.kind,
            targets: Rc::new(handoff.targets.clone()),
            index,
            view: Rc::clone(view),
            told,
            books: Rc::new(RefCell::new(books)),
        }
    }

    /// Serves commands until nobody gives any.
    pub(super) async fn run(self, commands: Mailbox<Command>) {
        let mut running: Option<Boxed<Done>> = None;
        let mut failed = false;
        loop {
            let step = poll_fn(|context| {
                if let Poll::Ready(command) = commands.poll(&self.sim) {
                    return Poll::Ready(Step::Asked(command));
                }
                if self.hear() && !failed {
                    return Poll::Ready(Step::Lost);
                }
                match running.as_mut().map(|job| job.as_mut().poll(context)) {
                    Some(Poll::Ready(done)) => Poll::Ready(Step::Done(done)),
                    _ => Poll::Pending,
                }
            });
            match step.await {
                Step::Asked(Command::Cancel) => {
                    running = None;
                    failed = false;
                    self.untrack();
                    *self.books.borrow_mut() = Books::new(self.targets.len());
                    self.say(Event::Cancelled);
                }
                Step::Asked(Command::Untrack) => self.untrack(),
                Step::Asked(Command::Stop(_) | Command::Park | Command::Finish) => {}
                Step::Asked(command) => running = Some(Box::pin(self.clone().perform(command))),
                Step::Lost => {
                    failed = true;
                    running = None;
                    self.say(Event::TrackingLost);
                }
                Step::Done(done) => {
                    running = None;
                    match done {
                        Ok(event) => self.say(event),
                        Err(Failure(at)) if !failed => {
                            failed = true;
                            self.say(Event::Broken {
                                at,
                                why: String::new(),
                            });
                        }
                        Err(_) => {}
                    }
                }
            }
        }
    }

    fn say(&self, event: Event) {
        self.told
            .push(&self.sim, Told::Event(self.index, Box::new(event)));
    }

    fn untrack(&self) {
        if let Some(tracker) = self.books.borrow_mut().tracker.take() {
            self.sim.end_here(&tracker.wire);
        }
    }

    /// Takes in what the stream said; whether it has broken.
    fn hear(&self) -> bool {
        let Some(tracker) = self.books.borrow().tracker.clone() else {
            return false;
        };
        while let Poll::Ready(heard) = tracker.heard.poll(&self.sim) {
            match heard {
                Heard::Touched(key) => {
                    if let Some(lane) = self.lane_of(key) {
                        self.books.borrow_mut().copier.touched(lane, key);
                    }
                }
                Heard::Pong => {
                    let pongs = self.books.borrow().pongs.clone();
                    pongs.push(&self.sim, ());
                }
                Heard::Lost => {
                    self.books.borrow_mut().tracker = None;
                    return true;
                }
            }
        }
        false
    }

    pub(super) fn lane_of(&self, key: Key) -> Option<Lane> {
        let moving = self.view.moving_set(&self.id)?;
        let target = moving.target(self.view.position(key.as_ref()))?;
        let at = self
            .targets
            .iter()
            .position(|id| *id == self.view.node(target).id)?;
        u16::try_from(at).ok().map(Lane)
    }

    pub(super) fn node(&self, at: At) -> &NodeId {
        match at {
            At::Source => &self.id.source,
            At::Target(lane) => &self.targets[usize::from(lane.0)],
        }
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = Lane> + use<> {
        (0..u16::try_from(self.targets.len()).unwrap_or(0)).map(Lane)
    }

    fn station(&self, at: At) -> Result<Station, Failure> {
        let stations = self.mandate.stations.borrow();
        stations.get(self.node(at)).cloned().ok_or(Failure(at))
    }

    fn wire(&self, at: At) -> Result<Rc<Wire>, Failure> {
        let books = self.books.borrow();
        let wire = match at {
            At::Source => books.source.clone(),
            At::Target(lane) => books.targets[usize::from(lane.0)].clone(),
        };
        wire.ok_or(Failure(at))
    }

    /// Asks a server something over its session.
    pub(super) async fn ask<T: 'static>(
        &self,
        at: At,
        question: impl FnOnce(&Sim, &mut Server) -> T + 'static,
    ) -> Result<T, Failure> {
        let wire = self.wire(at)?;
        self.sim
            .ask(&wire, question)
            .await
            .map_err(|Broken| Failure(at))
    }

    async fn perform(self, command: Command) -> Done {
        match command {
            Command::Inspect => Ok(Event::Inspected(self.inspect().await)),
            Command::Open(party) => self.open(party).await,
            Command::Identify => self.identify().await,
            Command::DurableSource => self.durable(At::Source).await.map(|()| Event::Durable),
            Command::Sweep => self.sweep().await,
            Command::Track => self.track().await,
            Command::List => self.list().await,
            Command::Round { after_ms } => {
                if after_ms > 0 {
                    self.sim.sleep(after_ms * MS).await;
                }
                self.books.borrow_mut().copier.begin_round();
                self.copy(true, None).await?;
                let dirty = self.books.borrow().copier.dirty() as u64;
                Ok(Event::Round(RoundReport {
                    dirty,
                    ..RoundReport::default()
                }))
            }
            Command::Verify => self.verify().await,
            Command::Prepare => self.prepare().await,
            Command::CountOld {
                generation,
                after_ms,
            } => self.count_old(generation, after_ms).await,
            Command::Fence(generation) => self.fence(generation).await,
            Command::Barrier => self.barrier().await.map(|()| Event::BarrierPassed),
            Command::CopyLast => {
                {
                    let mut books = self.books.borrow_mut();
                    books.copier.begin_round();
                    books.copier.add_untracked_to_round();
                    books.at_once = true;
                }
                self.copy(false, None).await?;
                Ok(Event::LastCopied { keys: 0 })
            }
            Command::CompareLast => {
                let different = self.second_look().await?;
                Ok(Event::LastCompared { different })
            }
            Command::Durable => {
                for lane in self.lanes() {
                    self.durable(At::Target(lane)).await?;
                }
                Ok(Event::Durable)
            }
            Command::Clean => self.clean(At::Source, Why::Clean).await,
            Command::Purge(lane) => self.clean(At::Target(lane), Why::Purge).await,
            other => unreachable!("{other:?} is not done at a server"),
        }
    }

    async fn inspect(&self) -> Facts {
        let mut seen = Vec::new();
        for at in std::iter::once(At::Source).chain(self.lanes().map(At::Target)) {
            let id = self.node(at).clone();
            let wire = Wire::new(
                Party::Process(self.mandate.process.rank),
                rank_of(id.as_str()),
            );
            let now_ms = self.sim.now_ms();
            let looked = self.sim.ask(&wire, move |_, server| {
                server
                    .up
                    .then(|| (server.identity(), server.clock_ms(now_ms)))
            });
            let facts = match looked.await {
                Ok(Some((identity, clock_ms))) => Ok(facts(identity, clock_ms)),
                _ => Err(Unseen::Unreachable("no answer".to_owned())),
            };
            seen.push((Seen { node: id, facts }, self.sim.now_ms()));
        }
        let record = self.mandate.record();
        let entry = record
            .as_ref()
            .and_then(|record| clockwise_cluster::handoff::Entry::of(record, &self.id));
        let (source, clock_ms) = seen.remove(0);
        let leaving = |at: usize| {
            entry.as_ref().is_some_and(|entry| {
                entry.direction == clockwise_cluster::Direction::Back && entry.targets_leave[at]
            })
        };
        let targets = seen
            .into_iter()
            .enumerate()
            .map(|(at, (seen, _))| TargetFacts {
                seen,
                leaving: leaving(at),
                bytes_expected: 0,
                canary: Ok(()),
            });
        Facts {
            source,
            source_lost: self.kind == HandoffKind::Lost,
            source_expected: entry
                .as_ref()
                .and_then(|entry| entry.source_expected.clone()),
            targets: targets.collect(),
            foreign_writers_allowed: Vec::new(),
            clock_ms,
        }
    }

    async fn open(&self, party: Parties) -> Done {
        let servers: Vec<At> = match party {
            Parties::All => std::iter::once(At::Source)
                .chain(self.lanes().map(At::Target))
                .collect(),
            Parties::Targets => self.lanes().map(At::Target).collect(),
            Parties::Target(lane) => vec![At::Target(lane)],
        };
        *self.books.borrow_mut() = Books::new(self.targets.len());
        for at in servers {
            let station = self.station(at)?;
            let wire = station.link(&self.sim).await.map_err(|_| Failure(at))?;
            let mut books = self.books.borrow_mut();
            match at {
                At::Source => books.source = Some(wire),
                At::Target(lane) => books.targets[usize::from(lane.0)] = Some(wire),
            }
        }
        Ok(Event::Opened)
    }

    async fn identify(&self) -> Done {
        let mut found = Identities {
            source: None,
            targets: Vec::new(),
        };
        if self.books.borrow().source.is_some() {
            let look =
                |_: &Sim, server: &mut Server| (server.identity(), server.values.len() as u64);
            found.source = Some(self.ask(At::Source, look).await?);
        }
        for lane in self.lanes() {
            if self.wire(At::Target(lane)).is_ok() {
                let identity = self
                    .ask(At::Target(lane), |_, server| server.identity())
                    .await?;
                found.targets.push(identity);
            }
        }
        Ok(Event::Identified(found))
    }

    async fn durable(&self, at: At) -> Result<(), Failure> {
        // As long as a sync takes.
        let slow = self
            .sim
            .slow_disk_until
            .get()
            .saturating_sub(self.sim.now());
        self.sim.sleep(self.sim.settings.sync.max(slow)).await;
        self.ask(at, |_, server| server.sync()).await
    }

    async fn track(&self) -> Done {
        let node = rank_of(self.id.source.as_str());
        let wire = Wire::new(Party::Process(self.mandate.process.rank), node);
        let term = self.mandate.term;
        let tracker = Tracker {
            term,
            wire: Rc::clone(&wire),
            heard: Mailbox::new(),
        };
        let there = tracker.clone();
        let began = self.sim.ask(&wire, move |sim, server| {
            // It logs in as the term's user, if that is still there.
            if !server.up || !server.terms.contains_key(&term) {
                sim.end_there(&there.wire);
                return false;
            }
            server.trackers.push(there);
            true
        });
        if !began.await.unwrap_or(false) {
            return Err(Failure(At::Source));
        }
        let (sim, heard) = (self.sim.clone(), tracker.heard.clone());
        self.sim.spawn(&self.mandate.group, async move {
            wire.ended().wait(&sim).await;
            heard.push(&sim, Heard::Lost);
        });
        self.books.borrow_mut().tracker = Some(tracker);
        Ok(Event::Tracking)
    }

    /// Everything that the source did before this moment has been heard: two round trips, one after the other.
    pub(super) async fn barrier(&self) -> Result<(), Failure> {
        for _ in 0..2 {
            let (tracker, pongs) = {
                let books = self.books.borrow();
                (
                    books.tracker.clone().ok_or(Failure(At::Source))?,
                    books.pongs.clone(),
                )
            };
            let there = tracker.clone();
            self.sim
                .send_up(&tracker.wire, move |sim| sim.tell(&there, Heard::Pong));
            pongs.next(&self.sim).await;
        }
        Ok(())
    }

    async fn prepare(&self) -> Done {
        self.books.borrow_mut().copier.begin_round();
        for lane in self.lanes() {
            let at = At::Target(lane);
            self.station(at)?
                .admit(&self.sim)
                .await
                .map_err(|_| Failure(at))?;
        }
        let prepared = self.station(At::Source)?.prepare(&self.sim).await;
        let (generation, nonce) = prepared.map_err(|_| Failure(At::Source))?;
        Ok(Event::Prepared { generation, nonce })
    }

    async fn count_old(&self, generation: Generation, after_ms: u64) -> Done {
        // What is dirty is copied while the old connections leave.
        let until_ms = self.mandate.now_ms(&self.sim) + after_ms;
        self.books.borrow_mut().copier.begin_round();
        self.copy(true, Some(until_ms)).await?;
        let rest = until_ms.saturating_sub(self.mandate.now_ms(&self.sim));
        if rest > 0 {
            self.sim.sleep(rest * MS).await;
        }
        let below = generation.get();
        let count = self.ask(At::Source, move |_, server| {
            let open = server
                .clients
                .iter()
                .filter(|(of, wire)| *of < below && wire.open_there.get());
            open.count() as u64
        });
        Ok(Event::OldConnections(count.await?))
    }

    async fn fence(&self, generation: Generation) -> Done {
        match self.station(At::Source)?.fence(&self.sim, generation).await {
            Ok(()) => Ok(Event::Fenced),
            Err(Refused::Busy) => Ok(Event::FenceFailed(FenceFailure::Busy)),
            Err(_) => Err(Failure(At::Source)),
        }
    }
}

enum Step {
    Asked(Command),
    Lost,
    Done(Done),
}

impl Books {
    fn new(targets: usize) -> Self {
        let limits = Limits {
            batch_keys_max: BATCH_KEYS_MAX,
            ..Limits::default()
        };
        Self {
            copier: Copier::new(u16::try_from(targets).unwrap_or(0), limits),
            source: None,
            targets: vec![None; targets],
            tracker: None,
            pongs: Mailbox::new(),
            at_once: false,
            cursor: 0,
        }
    }
}

fn facts(identity: Identity, clock_ms: u64) -> ServerFacts {
    ServerFacts {
        identity,
        persistence: Persistence::AppendEverySecond,
        memory_used_bytes: 0,
        memory_limit_bytes: None,
        evicts: false,
        clock_ms,
        foreign_writers: Vec::new(),
        open_by_default: None,
        persisted_users: Vec::new(),
        missing_rights: Vec::new(),
    }
}
