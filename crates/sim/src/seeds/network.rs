//! Connections between parties: ordered within themselves, in no order among each other.
//!
//! A connection delays; it never loses one message and delivers the next. What the network does to it shows
//! as slowness, as a break that either end may notice late, or not at all before a deadline.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::rc::Rc;

use super::Sim;
use super::executor::{Flag, MS, Micros, Slot};
use super::server::Server;

/// Who may be cut off from whom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Party {
    Process(usize),
    Client(usize),
    Node(usize),
    Store,
}

/// How long a request to a node is waited for.
const CALL_WITHIN: Micros = 1_000 * MS;

/// Something that arrives.
pub(super) type Arrival = Box<dyn FnOnce(&Sim)>;

/// A connection to a node.
pub(super) struct Wire {
    pub(super) from: Party,
    pub(super) node: usize,
    up: Way,
    down: Way,
    // Whether each end takes it for open.
    pub(super) open_here: Cell<bool>,
    pub(super) open_there: Cell<bool>,
    // Who waits for an answer hears of the end from here.
    ended: Flag,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} to n{}", self.from, self.node)
    }
}

/// One direction: what is sent arrives in the order in which it was sent, whatever keeps it.
#[derive(Default)]
struct Way {
    last: Cell<Micros>,
    sent: RefCell<VecDeque<Arrival>>,
}

/// What has arrived at somebody who stands still.
pub(super) struct Inbox<T>(RefCell<VecDeque<T>>);

impl<T> Inbox<T> {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(VecDeque::new()))
    }

    /// Keeps it if something is kept already, or if nothing is taken up now.
    pub(super) fn keep(&self, stopped: bool, arrived: T) -> Result<Kept, T> {
        let mut inbox = self.0.borrow_mut();
        if !stopped && inbox.is_empty() {
            return Err(arrived);
        }
        inbox.push_back(arrived);
        Ok(if inbox.len() == 1 {
            Kept::First
        } else {
            Kept::Behind
        })
    }

    pub(super) fn take(&self) -> Option<T> {
        self.0.borrow_mut().pop_front()
    }
}

/// Whether somebody has to come back for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    First,
    Behind,
}

/// A connection that is of no use any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken;

impl Wire {
    pub(super) fn new(from: Party, node: usize) -> Rc<Self> {
        Rc::new(Self {
            from,
            node,
            up: Way::default(),
            down: Way::default(),
            open_here: Cell::new(true),
            open_there: Cell::new(true),
            ended: Flag::default(),
        })
    }

    /// Raised when whoever connected knows that it is over.
    pub(super) fn ended(&self) -> Flag {
        self.ended.clone()
    }
}

impl Sim {
    /// How long a message travels.
    pub(super) fn delay(&self) -> Micros {
        let noise = self.noise();
        let mut random = self.random.borrow_mut();
        if random.chance(noise.slow_permille) {
            random.between(5 * MS, noise.slow_max)
        } else {
            random.between(noise.quick_min, noise.quick_max)
        }
    }

    /// Until when nothing passes between two parties; none when it does.
    pub(super) fn cut_until(&self, one: Party, other: Party) -> Option<Micros> {
        let cuts = self.cuts.borrow();
        let both = |cut: &&(Party, Party, Micros)| {
            cut.2 > self.now() && ((cut.0, cut.1) == (one, other) || (cut.1, cut.0) == (one, other))
        };
        cuts.iter().filter(both).map(|cut| cut.2).max()
    }

    /// Lets the oldest message of one direction arrive, as soon as nothing cuts it off.
    fn deliver(&self, wire: Rc<Wire>, at: Micros, way: fn(&Wire) -> &Way) {
        self.at(at, move |sim| {
            if let Some(until) = sim.cut_until(wire.from, Party::Node(wire.node)) {
                return sim.deliver(wire, until, way);
            }
            let first = way(&wire).sent.borrow_mut().pop_front();
            if let Some(arrive) = first {
                arrive(sim);
            }
        });
    }

    fn send(&self, wire: &Rc<Wire>, way: fn(&Wire) -> &Way, arrive: impl FnOnce(&Sim) + 'static) {
        let at = (self.now() + self.delay()).max(way(wire).last.get());
        way(wire).last.set(at);
        way(wire).sent.borrow_mut().push_back(Box::new(arrive));
        self.deliver(Rc::clone(wire), at, way);
    }

    /// Sends to the node; nothing arrives once the node has ended the connection.
    pub(super) fn send_up(&self, wire: &Rc<Wire>, arrive: impl FnOnce(&Sim) + 'static) {
        let there = Rc::clone(wire);
        self.send(
            wire,
            |wire| &wire.up,
            move |sim| {
                sim.when_it_runs(there.node, move |sim| {
                    if there.open_there.get() {
                        arrive(sim);
                    }
                });
            },
        );
    }

    /// A node that stands still takes up what has arrived when it goes on.
    fn when_it_runs(&self, node: usize, act: impl FnOnce(&Sim) + 'static) {
        let until = self.stopped_until.borrow()[node];
        let act: Arrival = Box::new(act);
        match self.inboxes[node].keep(until > self.now(), act) {
            Err(act) => act(self),
            Ok(Kept::First) => self.at(until.max(self.now()), move |sim| sim.take_up(node)),
            Ok(Kept::Behind) => {}
        }
    }

    fn take_up(&self, node: usize) {
        let until = self.stopped_until.borrow()[node];
        if until > self.now() {
            return self.at(until, move |sim| sim.take_up(node));
        }
        while let Some(act) = self.inboxes[node].take() {
            act(self);
        }
    }

    /// Sends to whoever connected.
    pub(super) fn send_down(&self, wire: &Rc<Wire>, arrive: impl FnOnce(&Sim) + 'static) {
        let here = Rc::clone(wire);
        self.send(
            wire,
            |wire| &wire.down,
            move |sim| {
                if here.open_here.get() {
                    arrive(sim);
                }
            },
        );
    }

    /// The node ends a connection: nothing more of it takes effect, and the other end hears of it.
    pub(super) fn end_there(&self, wire: &Rc<Wire>) {
        if !wire.open_there.replace(false) {
            return;
        }
        let here = Rc::clone(wire);
        if self.random.borrow_mut().chance(500) {
            // Answers on their way are read first.
            self.send_down(wire, move |sim| sim.end_here(&here));
        } else {
            self.end_here_later(here);
        }
    }

    fn end_here_later(&self, wire: Rc<Wire>) {
        let delay = self.delay();
        self.after(delay, move |sim| {
            match sim.cut_until(wire.from, Party::Node(wire.node)) {
                Some(until) => sim.at(until, move |sim| sim.end_here_later(wire)),
                None => sim.end_here(&wire),
            }
        });
    }

    /// Whoever connected ends it, or has heard that it ended. What was sent may still arrive.
    pub(super) fn end_here(&self, wire: &Rc<Wire>) {
        if wire.open_here.replace(false) {
            wire.ended.raise(self);
            self.link_ended(wire);
        }
    }

    /// Asks the node something over an open connection.
    pub(super) fn ask<T: 'static>(
        &self,
        wire: &Rc<Wire>,
        question: impl FnOnce(&Sim, &mut Server) -> T + 'static,
    ) -> impl Future<Output = Result<T, Broken>> + 'static {
        let (sim, wire) = (self.clone(), Rc::clone(wire));
        let slot = Slot::new();
        let answer = slot.clone();
        let back = Rc::clone(&wire);
        let sent = wire.open_here.get();
        if sent {
            self.send_up(&wire, move |sim| {
                let answered = sim.at_server(back.node, question);
                sim.send_down(&back, move |sim| answer.set(sim, answered));
            });
        }
        async move {
            if !sent {
                return Err(Broken);
            }
            let first = first_of(slot.wait(&sim), wire.ended.wait(&sim));
            let got = sim.within(CALL_WITHIN, first).await.flatten();
            if got.is_none() {
                sim.end_here(&wire);
            }
            got.ok_or(Broken)
        }
    }

    /// Something a server does in one turn; what it touched is told after that.
    pub(super) fn at_server<T>(&self, node: usize, act: impl FnOnce(&Sim, &mut Server) -> T) -> T {
        let mut server = self.servers[node].borrow_mut();
        let done = act(self, &mut server);
        let touched = std::mem::take(&mut server.touched);
        let trackers = if touched.is_empty() {
            Vec::new()
        } else {
            server.trackers.clone()
        };
        drop(server);
        for tracker in trackers {
            for &key in &touched {
                let to = tracker.clone();
                // After the answers of this turn.
                self.after(0, move |sim| {
                    sim.tell(&to, super::server::Heard::Touched(key))
                });
            }
        }
        done
    }

    /// Tells one thing over a connection of touched keys.
    pub(super) fn tell(&self, tracker: &super::server::Tracker, heard: super::server::Heard) {
        if tracker.wire.open_there.get() {
            let mailbox = tracker.heard.clone();
            self.send_down(&tracker.wire, move |sim| mailbox.push(sim, heard));
        }
    }
}

/// What comes first: an answer, or the end.
async fn first_of<T>(answer: impl Future<Output = T>, over: impl Future<Output = ()>) -> Option<T> {
    let mut answer = Box::pin(answer);
    let mut over = Box::pin(over);
    std::future::poll_fn(move |context| {
        use std::task::Poll;
        if let Poll::Ready(got) = answer.as_mut().poll(context) {
            return Poll::Ready(Some(got));
        }
        over.as_mut().poll(context).map(|()| None)
    })
    .await
}
