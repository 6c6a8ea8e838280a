//! A client that routes by itself: the real [`View`], [`Traffic`] and [`judge`] over connections of its own.
//!
//! It stands for a worker of the router. Some hear of every record at once, some late, one may go for ever by
//! what it knew at the beginning.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use clockwise_client::resp::Protocol;
use clockwise_client::routing::{
    Admission, BackoffLimits, Command, ConnectFailure, Effect, Flight, Millis, NodeSlot,
    QueueLimits, RetryLimits, Target, Traffic, TrafficLimits, Verdict, Waiting, judge,
};
use clockwise_cluster::{Record, View};

use super::Sim;
use super::executor::{MS, Micros};
use super::fact::{Executed, Fact};
use super::network::{Kept, Party, Wire};
use super::server::{Hand, Key, Value};
use super::truth::{Truth, fingerprint, rank_of};

/// Something that happens to a client.
pub(super) type Arrived = Box<dyn FnOnce(&Sim, &mut Client)>;

/// Requests that may be held.
const HELD_MAX: usize = 24;
/// How long an answer is waited for.
const LATE: Micros = 1_000 * MS;
/// How often time is let pass.
const TICK: Micros = 10 * MS;

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Get,
    Set { expires_in_ms: Option<u64> },
    Delete,
    Count,
    Expire { in_ms: u64 },
    Persist,
}

impl Op {
    pub(super) const fn writes(self) -> bool {
        !matches!(self, Self::Get)
    }

    /// What it leaves.
    fn apply(self, write: u64, found: Option<Value>, clock_ms: u64) -> Option<Value> {
        let at = |in_ms: Option<u64>| in_ms.map(|in_ms| clock_ms + in_ms);
        match self {
            Self::Get => found,
            Self::Delete => None,
            Self::Set { expires_in_ms } => Some(Value {
                write,
                count: 0,
                expires_at_ms: at(expires_in_ms),
            }),
            Self::Count => {
                let before = found.map_or((0, None), |value| (value.count, value.expires_at_ms));
                Some(Value {
                    write,
                    count: before.0 + 1,
                    expires_at_ms: before.1,
                })
            }
            Self::Expire { in_ms } => found.map(|value| Value {
                write,
                expires_at_ms: at(Some(in_ms)),
                ..value
            }),
            Self::Persist => found.map(|value| Value {
                write,
                expires_at_ms: None,
                ..value
            }),
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    number: u64,
    key: Key,
    op: Op,
    began: Micros,
    retries: u8,
}

/// One that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    request: Request,
    at: Micros,
    epoch: u64,
}

/// A connection, or an attempt at one.
struct Link {
    wire: Rc<Wire>,
    open: bool,
    sent: VecDeque<Sent>,
}

/// One client.
pub(super) struct Client {
    pub(super) rank: usize,
    pub(super) view: Rc<View>,
    traffic: Traffic<Request>,
    links: BTreeMap<NodeSlot, Link>,
    pub(super) stopped_until: Micros,
    pub(super) deaf_until: Micros,
    pub(super) open: usize,
}

impl Client {
    pub(super) fn new(rank: usize, view: Rc<View>) -> Self {
        let queue = QueueLimits {
            requests_max: HELD_MAX,
            bytes_max: 1 << 20,
            wait_ms_max: 1_000,
        };
        let limits = TrafficLimits {
            hold: queue,
            wait: queue,
            connect_ms_max: 1_000,
            denied_retry_ms: 20,
            backoff: BackoffLimits {
                ms_min: 50,
                ms_max: 500,
            },
            retries: RetryLimits {
                burst: 100,
                percent: 50,
            },
        };
        Self {
            rank,
            view,
            traffic: Traffic::new(limits),
            links: BTreeMap::new(),
            stopped_until: 0,
            deaf_until: 0,
            open: 0,
        }
    }
}

fn targets(view: &View) -> Vec<Target> {
    let nodes = view.nodes().iter();
    nodes
        .map(|node| Target {
            id: node.id.clone(),
            address: node.address.clone(),
            generation: node.generation,
            nonce: node.nonce,
        })
        .collect()
}

const PROTOCOL: Protocol = Protocol::Resp2;

impl Sim {
    fn millis(&self) -> Millis {
        Millis(self.now() / MS)
    }

    /// Lets a client do something, when it runs.
    pub(super) fn at_client(&self, rank: usize, act: impl FnOnce(&Sim, &mut Client) + 'static) {
        let until = self.clients[rank].borrow().stopped_until;
        let act: Arrived = Box::new(act);
        match self.mail[rank].keep(until > self.now(), act) {
            Err(act) => act(self, &mut self.clients[rank].borrow_mut()),
            Ok(Kept::First) => self.at(until.max(self.now()), move |sim| sim.go_on_client(rank)),
            Ok(Kept::Behind) => {}
        }
    }

    fn go_on_client(&self, rank: usize) {
        let until = self.clients[rank].borrow().stopped_until;
        if until > self.now() {
            return self.at(until, move |sim| sim.go_on_client(rank));
        }
        while let Some(act) = self.mail[rank].take() {
            act(self, &mut self.clients[rank].borrow_mut());
        }
    }

    /// Begins a client: its first view, and its clock.
    pub(super) fn begin_client(&self, rank: usize) {
        self.at_client(rank, |sim, client| {
            let view = Rc::clone(&client.view);
            client.take_view(sim, view);
        });
        self.tick_client(rank);
    }

    fn tick_client(&self, rank: usize) {
        self.after(TICK, move |sim| {
            sim.at_client(rank, |sim, client| client.tick(sim));
            sim.tick_client(rank);
        });
    }

    /// A client hears of a record, in whatever order.
    pub(super) fn heard_by_client(&self, rank: usize, record: &Record) {
        let record = record.clone();
        self.at_client(rank, move |sim, client| {
            if client.deaf_until > sim.now() || record.epoch() == client.view.epoch() {
                return;
            }
            // An older one is refused here, by the code that ships.
            if let Ok(view) = client.view.renewed(&record) {
                client.take_view(sim, Rc::new(view));
            }
        });
    }

    /// A client begins a request.
    pub(super) fn request(&self, rank: usize, key: Key, op: Op) {
        let request = Request {
            number: self.write_number(),
            key,
            op,
            began: self.now(),
            retries: 0,
        };
        self.at_client(rank, move |sim, client| {
            client.open += 1;
            let since = sim.millis();
            client.dispatch(
                sim,
                Waiting {
                    request,
                    bytes: 1,
                    since,
                },
            );
            client.obey(sim);
        });
    }

    /// A connection of a client has ended.
    pub(super) fn link_ended(&self, wire: &Rc<Wire>) {
        if let Party::Client(rank) = wire.from {
            let wire = Rc::clone(wire);
            self.after(0, move |sim| {
                sim.at_client(rank, move |sim, client| client.ended(sim, &wire))
            });
        }
    }
}

impl Client {
    fn take_view(&mut self, sim: &Sim, view: Rc<View>) {
        let now = sim.millis();
        let Ok(unsent) = self.traffic.adopt(view.epoch(), targets(&view), now) else {
            return;
        };
        let (client, epoch) = (self.rank, view.epoch().get());
        sim.note(&Fact::Adopted {
            client,
            epoch,
            fingerprint: fingerprint(&view),
        });
        self.view = view;
        self.obey(sim);
        for waiting in unsent {
            self.dispatch(sim, waiting);
        }
        self.obey(sim);
    }

    /// Sends a request, lets it wait, or refuses it.
    fn dispatch(&mut self, sim: &Sim, waiting: Waiting<Request>) {
        let route = self
            .view
            .route(self.view.position(waiting.request.key.as_ref()));
        if route.hold {
            if let Err(refused) = self.traffic.hold(waiting) {
                self.end(sim, refused.request);
            }
            let held = self.traffic.held();
            sim.note(&Fact::Queued {
                client: self.rank,
                held,
                held_max: HELD_MAX,
            });
            return;
        }
        let now = sim.millis();
        match self.traffic.admit(route.node.get(), PROTOCOL, now) {
            Admission::Send(slot) => self.send(sim, slot, waiting.request),
            Admission::Wait(slot) => {
                if let Err(refused) = self.traffic.wait(slot, PROTOCOL, waiting) {
                    self.end(sim, refused.request);
                }
            }
            Admission::Refuse(_) => self.end(sim, waiting.request),
        }
    }

    fn end(&mut self, sim: &Sim, request: Request) {
        self.open -= 1;
        let took = sim.now() - request.began;
        sim.note(&Fact::Ended {
            client: self.rank,
            took,
        });
    }

    fn send(&mut self, sim: &Sim, slot: NodeSlot, request: Request) {
        let epoch = self.view.epoch().get();
        let client = self.rank;
        let Some(link) = self.links.get_mut(&slot) else {
            unreachable!("an open connection has a link")
        };
        link.sent.push_back(Sent {
            request,
            at: sim.now(),
            epoch,
        });
        let wire = Rc::clone(&link.wire);
        let back = Rc::clone(&wire);
        sim.send_up(&wire, move |sim| {
            sim.execute(client, back.node, request, epoch);
            let reply = Rc::clone(&back);
            sim.send_down(&back, move |sim| {
                sim.at_client(client, move |sim, client| {
                    client.answered(sim, &reply, request.number)
                });
            });
        });
    }

    fn slot_of(&self, wire: &Rc<Wire>) -> Option<NodeSlot> {
        let mut links = self.links.iter();
        links
            .find(|(_, link)| Rc::ptr_eq(&link.wire, wire))
            .map(|(slot, _)| *slot)
    }

    fn answered(&mut self, sim: &Sim, wire: &Rc<Wire>, number: u64) {
        let Some(slot) = self.slot_of(wire) else {
            return;
        };
        let Some(link) = self.links.get_mut(&slot) else {
            return;
        };
        let Some(sent) = link.sent.pop_front() else {
            return;
        };
        assert_eq!(sent.request.number, number, "answers keep their order");
        self.traffic.answered(slot, PROTOCOL, sim.millis());
        self.end(sim, sent.request);
        self.obey(sim);
    }

    /// Does with its connections what the core asks for.
    fn obey(&mut self, sim: &Sim) {
        loop {
            let commands = self.traffic.take_commands();
            if commands.is_empty() {
                return;
            }
            for command in commands {
                match command {
                    Command::Connect(slot, _) => self.connect(sim, slot),
                    Command::Close(slot, _) => {
                        if let Some(link) = self.links.remove(&slot) {
                            sim.end_here(&link.wire);
                            sim.end_there_silently(&link.wire);
                        }
                    }
                }
            }
        }
    }

    fn connect(&mut self, sim: &Sim, slot: NodeSlot) {
        let Some(target) = self.traffic.target(slot) else {
            return;
        };
        let (node, generation, nonce) = (
            rank_of(target.id.as_str()),
            target.generation.get(),
            target.nonce,
        );
        let wire = Wire::new(Party::Client(self.rank), node);
        let link = Link {
            wire: Rc::clone(&wire),
            open: false,
            sent: VecDeque::new(),
        };
        if let Some(other) = self.links.insert(slot, link) {
            sim.end_here(&other.wire);
            sim.end_there_silently(&other.wire);
        }
        let (client, back) = (self.rank, Rc::clone(&wire));
        sim.send_up(&wire, move |sim| {
            let let_in = sim.at_server(node, |_, server| {
                if !server.up {
                    return None;
                }
                let known = server.users.get(&generation) == Some(&nonce);
                if known {
                    server.clients.push((generation, Rc::clone(&back)));
                }
                Some(known)
            });
            if let_in != Some(true) {
                back.open_there.set(false);
            }
            let there = Rc::clone(&back);
            sim.send_down(&back, move |sim| {
                sim.at_client(client, move |sim, client| {
                    client.connected(sim, &there, let_in)
                });
            });
        });
    }

    fn connected(&mut self, sim: &Sim, wire: &Rc<Wire>, let_in: Option<bool>) {
        let Some(slot) = self.slot_of(wire) else {
            return;
        };
        let now = sim.millis();
        let failure = match let_in {
            Some(true) => {
                if let Some(link) = self.links.get_mut(&slot) {
                    link.open = true;
                }
                for waiting in self.traffic.connected(slot, PROTOCOL) {
                    self.send(sim, slot, waiting.request);
                }
                return self.obey(sim);
            }
            Some(false) => ConnectFailure::Denied,
            None => ConnectFailure::Unreachable,
        };
        self.links.remove(&slot);
        for (waiting, ..) in self.traffic.connect_failed(slot, PROTOCOL, failure, now) {
            self.end(sim, waiting.request);
        }
        self.obey(sim);
    }

    /// A connection ended without being asked to.
    fn ended(&mut self, sim: &Sim, wire: &Rc<Wire>) {
        let Some(slot) = self.slot_of(wire) else {
            return;
        };
        let Some(link) = self.links.remove(&slot) else {
            return;
        };
        sim.end_there_silently(&link.wire);
        let now = sim.millis();
        if !link.open {
            let unreachable = ConnectFailure::Unreachable;
            for (waiting, ..) in self
                .traffic
                .connect_failed(slot, PROTOCOL, unreachable, now)
            {
                self.end(sim, waiting.request);
            }
            return self.obey(sim);
        }
        let epoch = self.view.epoch().get();
        let sent: Vec<Sent> = link.sent.into_iter().collect();
        let flight = |sent: &Sent| Flight {
            caller: sent.request.number,
            effect: if sent.request.op.writes() {
                Effect::Write
            } else {
                Effect::Read
            },
            sent: true,
            retries: sent.request.retries,
        };
        let flights: Vec<Flight> = sent.iter().map(flight).collect();
        let refused = self.traffic.broken(slot, PROTOCOL, now);
        let takes = self.traffic.takes_retries(slot);
        let verdicts = judge(&flights, |index| takes && sent[index].epoch == epoch);
        let again = verdicts
            .iter()
            .filter(|verdict| **verdict == Verdict::Retry)
            .count();
        let granted = self
            .traffic
            .grants_retries(again, sent.last().map_or(0, |sent| sent.request.number));
        let mut retried = Vec::new();
        for (sent, verdict) in sent.into_iter().zip(verdicts) {
            if verdict == Verdict::Retry && granted {
                let request = Request {
                    retries: sent.request.retries + 1,
                    ..sent.request
                };
                retried.push(Waiting {
                    request,
                    bytes: 1,
                    since: now,
                });
            } else {
                self.end(sim, sent.request);
            }
        }
        if !retried.is_empty() {
            self.traffic.retry(slot, PROTOCOL, retried, now);
        }
        for (waiting, ..) in refused {
            self.end(sim, waiting.request);
        }
        self.obey(sim);
    }

    fn tick(&mut self, sim: &Sim) {
        let late: Vec<Rc<Wire>> = {
            let links = self.links.values();
            let is_late = |link: &&Link| {
                let first = link.sent.front();
                first.is_some_and(|sent| sent.at + LATE <= sim.now())
            };
            links
                .filter(is_late)
                .map(|link| Rc::clone(&link.wire))
                .collect()
        };
        for wire in late {
            wire.open_here.set(false);
            self.ended(sim, &wire);
        }
        for (waiting, ..) in self.traffic.tick(sim.millis()) {
            self.end(sim, waiting.request);
        }
        self.obey(sim);
    }
}

impl Sim {
    /// A request takes effect at a node.
    fn execute(&self, client: usize, node: usize, request: Request, epoch: u64) {
        let now_ms = self.now_ms();
        let Request {
            key, op, number, ..
        } = request;
        let expected = self.truth.borrow().value(key);
        let (seen, left, run) = self.at_server(node, |_, server| {
            let clock_ms = server.clock_ms(now_ms);
            let seen = server.get(key, now_ms);
            let left = op.apply(number, seen, clock_ms);
            if op.writes() {
                server.put(key, left, Hand::Client, now_ms);
                if self.settings.syncs_always {
                    server.sync();
                }
            }
            (seen, left, server.run)
        });
        let excused = self.truth.borrow().is_excused(key);
        let either = excused
            || Truth::may_have_expired(expected, now_ms)
            || Truth::may_have_expired(seen, now_ms) && expected.is_none();
        self.trace(|| {
            format!(
                "c{client} {op:?} {} at n{node} under epoch {epoch}: {seen:?}",
                key.name()
            )
        });
        self.note(&Fact::Executed(Executed {
            node,
            run,
            key,
            write: op.writes().then_some(number),
            seen,
            expected,
            either,
            epoch,
        }));
        if op.writes() || excused || (either && seen.is_none()) {
            self.truth.borrow_mut().set(key, left);
        }
    }

    /// Whoever connected ends it: what was sent and not executed may still be, a little later.
    fn end_there_silently(&self, wire: &Rc<Wire>) {
        let there = Rc::clone(wire);
        let at = self.now() + self.delay() + MS;
        self.at(at, move |sim| {
            if sim.random.borrow_mut().chance(950) {
                there.open_there.set(false);
            }
        });
    }
}
