//! A whole cluster in one thread, in virtual time, with everything that goes wrong drawn from a seed.
//!
//! What decides is the code that ships: [`Record`], [`View`], the handoff machine
//! under its conductor, the copier, `admission`, the preflight, the store's rules for commits and readers, and
//! the clients' routing core. What stands around it are stand-ins: servers, network, and the tasks of the
//! rebalancer that carry out commands. The folder `invariant` holds what must be true, one file each.
//!
//! The same seed gives the same run, byte for byte. A run that breaks an invariant is made smaller before it
//! is shown: faults are left out one after the other for as long as the same invariant still breaks.
//!
//! ```
//! let run = clockwise_sim::seeds::run(7, clockwise_sim::seeds::Tracing::Off);
//! assert!(run.violation.is_none());
//! ```

mod client;
mod conducting;
mod copying;
mod coverage;
mod desk;
mod executor;
mod fact;
mod fault;
mod invariant;
mod network;
mod operator;
mod process;
mod random;
mod server;
mod settings;
mod shrink;
mod station;
mod store;
mod truth;

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use clockwise_client::store::Store as _;
use clockwise_cluster::{
    Generator, HandoffState, NewNode, NewPool, Nonce, Options, Record, Revision, SlotRules,
    Throttle, View,
};

use client::{Client, Op};
pub use coverage::Coverage;
use executor::{Agenda, Flag, Group, MS, Micros};
use fact::{Fact, Invariant, Moved, Rest};
use network::{Inbox, Party};
use process::Process;
use random::Random;
use server::{Key, Server};
use settings::{Noise, PROCESSES, SERVERS, Settings};
pub use shrink::{Failure, shrunk};
use store::{Shared, at_once};
use truth::Truth;

/// When everything that is wrong ends, if it has not ended before.
const TROUBLE_MAX: Micros = 40_000 * MS;
/// When a run is given up.
const RUN_MAX: Micros = 240_000 * MS;
/// What breaks when the code that is run panics.
const NO_PANIC: &str = "nothing panics";
/// What comes to rest does so within this time after the last request.
const REST: Micros = 9_000 * MS;

/// Whether what happens is written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tracing {
    /// No.
    Off,
    /// All of it.
    On,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The invariant that broke first, and how.
    pub violation: Option<(&'static str, String)>,
    /// What happened, if it was written down.
    pub trace: Vec<String>,
    /// What was reached.
    pub coverage: Coverage,
}

/// Runs a seed.
#[must_use]
pub fn run(seed: u64, tracing: Tracing) -> Run {
    run_with(Settings::of(seed), tracing)
}

fn run_with(settings: Settings, tracing: Tracing) -> Run {
    let sim = Sim::new(settings, tracing);
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        sim.begin();
        sim.play();
    }));
    let mut violation = sim.violation.take();
    if let Err(panic) = played {
        let said = panic.downcast_ref::<String>().cloned();
        violation = Some((
            NO_PANIC,
            said.unwrap_or_else(|| "without a word".to_owned()),
        ));
    }
    let trace = sim.trace.take();
    let mut coverage = sim.coverage.take();
    coverage.steps = sim.agenda.actions();
    coverage.seconds = sim.now() / (1_000 * MS);
    sim.end();
    Run {
        violation,
        trace,
        coverage,
    }
}

/// The way to everything there is.
#[derive(Clone)]
struct Sim(Rc<World>);

impl Deref for Sim {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

/// Everything there is.
struct World {
    agenda: Agenda,
    settings: Settings,
    random: RefCell<Random>,
    nonces: RefCell<Random>,
    servers: Vec<RefCell<Server>>,
    stopped_until: RefCell<[Micros; SERVERS]>,
    inboxes: Vec<Inbox<network::Arrival>>,
    mail: Vec<Inbox<client::Arrived>>,
    slow_disk_until: Cell<Micros>,
    cuts: RefCell<Vec<(Party, Party, Micros)>>,
    shared: RefCell<Shared>,
    processes: Vec<Rc<Process>>,
    clients: Vec<RefCell<Client>>,
    truth: RefCell<Truth>,
    invariants: RefCell<Vec<Box<dyn Invariant>>>,
    violation: RefCell<Option<(&'static str, String)>>,
    waiting: RefCell<fault::Waiting>,
    coverage: RefCell<Coverage>,
    tracing: Tracing,
    trace: RefCell<Vec<String>>,
    writes: Cell<u64>,
    script_over: Cell<bool>,
    calm: Cell<bool>,
    quiet: Cell<bool>,
    last_stop: RefCell<Option<String>>,
}

impl Sim {
    fn new(settings: Settings, tracing: Tracing) -> Self {
        let mut nonces = Random::branch(settings.seed, 2);
        let record = first_record(&settings, &mut nonces);
        let shared = Shared::default();
        let record =
            at_once(shared.store.commit(Revision::new(0), record, None)).expect("the first record");
        let truth = Truth::new(record);
        let view = Rc::clone(&truth.view);
        let servers =
            (0..SERVERS).map(|rank| RefCell::new(Server::new(rank, settings.skews_ms[rank])));
        let clients =
            (0..settings.clients).map(|rank| RefCell::new(Client::new(rank, Rc::clone(&view))));
        Self(Rc::new(World {
            agenda: Agenda::default(),
            random: RefCell::new(Random::branch(settings.seed, 3)),
            nonces: RefCell::new(nonces),
            servers: servers.collect(),
            stopped_until: RefCell::new([0; SERVERS]),
            inboxes: (0..SERVERS).map(|_| Inbox::new()).collect(),
            mail: (0..settings.clients).map(|_| Inbox::new()).collect(),
            slow_disk_until: Cell::new(0),
            cuts: RefCell::default(),
            shared: RefCell::new(shared),
            processes: (0..PROCESSES)
                .map(|rank| Rc::new(Process::new(rank)))
                .collect(),
            clients: clients.collect(),
            truth: RefCell::new(truth),
            invariants: RefCell::new(invariant::all()),
            violation: RefCell::new(None),
            waiting: RefCell::default(),
            coverage: RefCell::default(),
            tracing,
            trace: RefCell::default(),
            writes: Cell::new(0),
            script_over: Cell::new(false),
            calm: Cell::new(false),
            quiet: Cell::new(false),
            last_stop: RefCell::new(None),
            settings,
        }))
    }

    fn begin(&self) {
        for process in &self.processes {
            process::begin(self, process);
        }
        for rank in 0..self.settings.clients {
            self.begin_client(rank);
            self.spawn(&Group::new(), self.clone().requests(rank));
        }
        self.spawn(&Group::new(), self.clone().operator());
        self.spawn(&Group::new(), self.clone().news_in_time());
        self.plant(&self.settings.faults);
    }

    /// Lets everything happen, until it has come to rest or something broke.
    fn play(&self) {
        let broke = |sim: &Self| sim.violation.borrow().is_some();
        let over = |sim: &Self| {
            let still = sim.truth.borrow().record.change().is_none();
            sim.script_over.get() && still && sim.now() > 1_000 * MS
        };
        while !broke(self) && !over(self) && self.now() < RUN_MAX {
            if self.now() > TROUBLE_MAX && !self.calm.get() {
                self.heal();
            }
            self.step(RUN_MAX);
        }
        self.heal();
        self.quiet.set(true);
        let until = self.now() + REST;
        while !broke(self) && self.step(until) {}
        if !broke(self) {
            self.note(&Fact::Rest(self.rest()));
        }
    }

    /// Lets go of everything: what waits holds what it waits for.
    fn end(&self) {
        self.agenda.clear();
        for inbox in &self.inboxes {
            while inbox.take().is_some() {}
        }
        for inbox in &self.mail {
            while inbox.take().is_some() {}
        }
        self.servers
            .iter()
            .for_each(|server| server.borrow_mut().forget_all());
    }

    fn rest(&self) -> Rest {
        let change = self.truth.borrow().record.change().is_some();
        let why = || {
            self.last_stop
                .borrow()
                .clone()
                .unwrap_or_else(|| "nobody says why".to_owned())
        };
        let held = self.servers.iter().map(|server| {
            let server = server.borrow();
            server
                .values
                .iter()
                .map(|(key, value)| (*key, *value))
                .collect()
        });
        Rest {
            held: held.collect(),
            leftovers: self
                .servers
                .iter()
                .map(|server| server.borrow().leftovers)
                .collect(),
            open: self.clients.iter().map(|client| client.borrow().open).sum(),
            unfinished: change.then(why),
            now_ms: self.now_ms(),
        }
    }

    /// One client's requests, until all is quiet.
    async fn requests(self, rank: usize) {
        let mut random = Random::branch(self.settings.seed, 100 + rank as u64);
        while !self.quiet.get() {
            let key = Key::new(random.below(self.settings.keys));
            let op = match random.between(0, 100) {
                0..30 => Op::Get,
                30..60 => Op::Set {
                    expires_in_ms: random.chance(250).then(|| random.between(200, 20_000)),
                },
                60..75 => Op::Count,
                75..90 => Op::Delete,
                90..95 => Op::Expire {
                    in_ms: random.between(300, 20_000),
                },
                _ => Op::Persist,
            };
            self.request(rank, key, op);
            let pause = random.between(MS, self.settings.pause_max.max(2 * MS));
            self.sleep(pause).await;
        }
    }

    /// Whoever has heard nothing looks by himself, once a second.
    async fn news_in_time(self) {
        loop {
            self.sleep(1_000 * MS).await;
            let record = Arc::clone(&self.truth.borrow().record);
            self.spread(&record, 0);
        }
    }

    /// A record was committed: everybody hears of it, sooner or later, once or twice, or not.
    fn published(&self, before: &Record, after: &Arc<Record>) {
        self.trace(|| {
            let change = after.change().map(|change| {
                let states = change
                    .handoffs
                    .iter()
                    .map(|handoff| format!("{} {}", handoff.id(), handoff.state));
                states.collect::<Vec<_>>().join(", ")
            });
            let change = change.unwrap_or_else(|| "at rest".to_owned());
            format!(
                "COMMIT revision {} epoch {}: {change}",
                after.revision(),
                after.epoch()
            )
        });
        {
            let mut coverage = self.coverage.borrow_mut();
            coverage.commits += 1;
            let held = |record: &Record| {
                let mut handoffs = record
                    .change()
                    .into_iter()
                    .flat_map(|change| &change.handoffs);
                handoffs.any(|handoff| handoff.state == HandoffState::Handover)
            };
            let copies = after.change().is_some_and(|change| {
                change
                    .handoffs
                    .iter()
                    .any(|handoff| handoff.state == HandoffState::Copying)
            });
            coverage.rollbacks += u64::from(held(before) && !held(after) && copies);
        }
        for node in &before.membership().nodes {
            if after.node(&node.id).is_none() {
                let mut server = self.servers[truth::rank_of(node.id.as_str())].borrow_mut();
                server.leftovers |= !server.values.is_empty();
            }
        }
        self.entered(before, after);
        self.spread(after, self.noise().unheard_permille);
    }

    fn spread(&self, record: &Arc<Record>, unheard_permille: u64) {
        for rank in 0..PROCESSES {
            for _ in 0..self.copies(unheard_permille) {
                let (record, delay) = (Arc::clone(record), self.delay());
                self.after(delay, move |sim| {
                    if sim.cut_until(Party::Process(rank), Party::Store).is_none() {
                        sim.heard_by_process(rank, &record);
                    }
                });
            }
        }
        for rank in 0..self.settings.clients {
            for _ in 0..self.copies(unheard_permille) {
                // The last client is always late.
                let late = if rank + 1 == self.settings.clients {
                    self.delay() * 100
                } else {
                    0
                };
                let (record, delay) = (Arc::clone(record), self.delay() + late);
                self.after(delay, move |sim| {
                    if sim.cut_until(Party::Client(rank), Party::Store).is_none() {
                        sim.heard_by_client(rank, &record);
                    }
                });
            }
        }
    }

    fn copies(&self, unheard_permille: u64) -> usize {
        let mut random = self.random.borrow_mut();
        match random.between(0, 1_000) {
            dice if dice < unheard_permille => 0,
            dice if dice < unheard_permille + unheard_permille / 2 => 2,
            _ => 1,
        }
    }

    fn heard_by_process(&self, rank: usize, record: &Arc<Record>) {
        let process = &self.processes[rank];
        let mut heard = process.heard.borrow_mut();
        let newer = heard
            .as_ref()
            .is_none_or(|known| known.revision() < record.revision());
        if newer {
            *heard = Some(Arc::clone(record));
            let flag = process.news.replace(Flag::default());
            drop(heard);
            flag.raise(self);
        }
    }

    /// How bad the network is now.
    fn noise(&self) -> Noise {
        if self.calm.get() {
            Noise::CALM
        } else {
            self.settings.noise
        }
    }

    fn now_ms(&self) -> u64 {
        1_000_000 + self.now() / MS
    }

    fn write_number(&self) -> u64 {
        self.writes.set(self.writes.get() + 1);
        self.writes.get()
    }

    fn nonce(&self) -> Nonce {
        nonce_of(&mut self.nonces.borrow_mut())
    }

    /// A handoff stands still.
    fn stopped(&self, process: usize, why: String) {
        self.trace(|| format!("p{process} stops: {why}"));
        *self.last_stop.borrow_mut() = Some(why);
    }

    fn trace(&self, line: impl FnOnce() -> String) {
        if self.tracing == Tracing::On {
            let line = format!("{:>12.3} {}", self.now() as f64 / 1e3, line());
            self.trace.borrow_mut().push(line);
        }
    }

    /// Something was changed for a move.
    fn moved(&self, mut moved: Moved) {
        let owner = self.truth.borrow().owner(moved.key);
        if owner != moved.node {
            moved.unsynced_at_owner = self.servers[owner].borrow().copy_is_unsynced(moved.key);
        }
        self.trace(|| {
            format!(
                "t{} {:?} {} at n{}: {:?}",
                moved.term,
                moved.why,
                moved.key.name(),
                moved.node,
                moved.after
            )
        });
        self.note(&Fact::Moved(moved));
    }

    /// Tells the invariants.
    fn note(&self, fact: &Fact) {
        if self.violation.borrow().is_some() {
            return;
        }
        match fact {
            Fact::Executed(_) => self.coverage.borrow_mut().requests += 1,
            Fact::Queued { .. } => self.coverage.borrow_mut().held += 1,
            Fact::Committed { leading, .. } => {
                let terms = &mut self.coverage.borrow_mut().terms;
                *terms = (*terms).max(leading.unwrap_or(0));
            }
            _ => {}
        }
        let truth = self.truth.borrow();
        for invariant in self.invariants.borrow_mut().iter_mut() {
            if let Err(how) = invariant.see(fact, &truth, self.now()) {
                self.trace(|| format!("VIOLATION {}: {how}", invariant.name()));
                *self.violation.borrow_mut() = Some((invariant.name(), how));
                return;
            }
        }
    }
}

fn nonce_of(random: &mut Random) -> Nonce {
    let (high, low) = (random.bits().to_be_bytes(), random.bits().to_be_bytes());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high);
    bytes[8..].copy_from_slice(&low);
    Nonce::new(bytes)
}

fn first_record(settings: &Settings, nonces: &mut Random) -> Record {
    let node = |rank| NewNode::new(operator::id_of(rank), operator::address_of(rank));
    let nodes = (0..settings.nodes).map(node).collect();
    let generator = match settings.slots {
        true => Generator::planned_slots(24, SlotRules::default()),
        false => Generator::Ring {
            points_per_weight: 12,
        },
    };
    let throttle = Throttle {
        keys_per_second: settings.throttle,
        bytes_per_second: 0,
    };
    let mut options = Options::default();
    options.throttle = throttle;
    let pool = NewPool {
        generator,
        options,
        ..NewPool::new("main".parse().expect("a name"), nodes)
    };
    let record = Record::create(pool, &mut || nonce_of(nonces)).expect("a good pool");
    View::from_record(&record).expect("a good view");
    record
}
