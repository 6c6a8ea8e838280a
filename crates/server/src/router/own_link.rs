//! A client's connection of its own to a node: for what would block or change one that all share.
//!
//! Commands that block and `WATCH` (with the `EXEC` behind it) go over it. The request that needs it
//! stays at the front of the client's input, and nothing behind it is looked at, until the node has
//! answered; so the order of a client's requests is kept although they take two ways. It begins only
//! when everything before it has been answered.
//!
//! *Generations.* It belongs to the client user of the epoch it was made under. When a view brings
//! another one, what is on its way is answered first, then it closes: the fence of a handover need not
//! wait for the patience of blocked clients. The node is told over a connection of the new generation
//! that their time is over (`CLIENT UNBLOCK`); where it does not let us say so, a fraction of a second
//! passes until it is.
//! What a node was watching for it is forgotten then, and its `EXEC` does nothing.
//!
//! *Bounds.* There are so many of them at a time as [`Limits`](super::Limits) allow; each step has a
//! deadline; one that is not needed closes after a second.

mod events;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clockwise_client::credentials::{client_password, client_user};
use clockwise_client::resp::Protocol;
use clockwise_client::routing::{Credential, Effect, Greeting, Millis, NodeSlot, Obstacle, Target};
use clockwise_cluster::Route;

use super::blocking::Errand;
use super::client::Phase;
use super::dispatch::Sending;
use super::mailbox::Message;
use super::node_link::{NodeLink, Origin};
use super::nodes::LinkError;
use super::refusal;
use super::reply_queue::Sequence;
use super::worker::{Turn, Worker, own_token};

/// How often a connection is made for one request, if each ends before the request has left.
const MADE_MAX: u32 = 3;

/// What a node watches over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    Nothing,
    /// Keys, since they were named.
    Kept,
    /// The connection has ended since: nobody knows whether they were changed.
    Lost,
}

#[derive(Debug)]
enum Stage {
    /// Nothing is asked.
    Idle { since: Millis },
    /// It is being made.
    Connecting { since: Millis },
    /// A request is on its way, and answered by then; while its answer arrives, by the later time.
    Asked { until: Millis, at_last: Millis },
    /// The answer has come and is not taken yet.
    Answered(Vec<u8>),
    /// There is none; what to say of it.
    Failed(String),
}

/// See the module.
#[derive(Debug)]
pub(super) struct OwnLink {
    link: Option<Box<NodeLink>>,
    /// Whom it is to, once one was made.
    target: Option<Target>,
    /// The attempt to make it, so that a name looked up late is not taken for this one's.
    attempt: u64,
    /// How often one was made for the request at the front.
    made: u32,
    stage: Stage,
    /// The view has another target: it closes with the answer that is due.
    stale: bool,
    pub(super) watch: Watch,
    /// It is counted among those that there may be.
    counted: bool,
    /// Since when the request at the front waits to be sent.
    waiting_since: Option<Millis>,
    /// The blocking command at the front.
    pub(super) errand: Option<Errand>,
}

/// What became of a request so far.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Look at it again later.
    Pending,
    /// The node's answer.
    Answered(Vec<u8>),
    /// It was not executed, or nobody knows; the words for the client.
    Failed(String),
}

/// A request for a client's own connection.
pub(super) struct Ask {
    pub(super) route: Route,
    pub(super) effect: Effect,
    /// Replies before the one that is the answer.
    pub(super) preamble: u32,
    /// How long the node may take.
    pub(super) reply_ms_max: u64,
}

impl OwnLink {
    fn new(now: Millis) -> Self {
        Self {
            link: None,
            target: None,
            attempt: 0,
            made: 0,
            stage: Stage::Idle { since: now },
            stale: false,
            watch: Watch::Nothing,
            counted: false,
            waiting_since: None,
            errand: None,
        }
    }

    /// The socket, to be closed.
    pub(super) fn into_link(self) -> Option<Box<NodeLink>> {
        self.link
    }

    /// Whether an `EXEC` goes over it, or has done so.
    pub(super) fn concerns_exec(&self) -> bool {
        self.watch != Watch::Nothing || !matches!(self.stage, Stage::Idle { .. })
    }

    /// Whether it is a connection to this target.
    pub(super) fn is_to(&self, target: Option<&Target>) -> bool {
        self.link.is_some() && !self.stale && self.target.as_ref() == target
    }

    /// The node has said that it watches.
    pub(super) fn watches(&mut self) {
        self.watch = match self.link {
            Some(_) => Watch::Kept,
            None => Watch::Lost,
        };
    }

    /// An `EXEC` has left, if one could: the node watches nothing behind it.
    pub(super) fn executes(&mut self) {
        if matches!(self.stage, Stage::Asked { .. }) {
            self.watch = Watch::Nothing;
        }
    }

    /// The node whose keys are watched.
    pub(super) fn watched(&self) -> Option<&Target> {
        self.target.as_ref().filter(|_| self.watch == Watch::Kept)
    }

    /// Bytes kept of an answer.
    pub(super) fn bytes(&self) -> usize {
        let answer = match &self.stage {
            Stage::Answered(answer) => answer.len(),
            _ => 0,
        };
        answer + self.link.as_ref().map_or(0, |link| link.input_bytes())
    }
}

impl Worker {
    /// What became of the request at the front; `None` when none is under way.
    pub(super) fn own_outcome(&mut self, place: usize) -> Option<Outcome> {
        let now = self.now;
        let own = self.clients.own(place)?;
        match std::mem::replace(&mut own.stage, Stage::Idle { since: now }) {
            Stage::Answered(answer) => Some(Outcome::Answered(answer)),
            Stage::Failed(text) => Some(Outcome::Failed(text)),
            idle @ Stage::Idle { .. } => {
                own.stage = idle;
                None
            }
            busy => {
                own.stage = busy;
                Some(Outcome::Pending)
            }
        }
    }

    /// This client has a blocking command under way from now on, unless it has one.
    pub(super) fn begin_errand(
        &mut self,
        turn: &Turn,
        place: usize,
        make: impl FnOnce() -> Errand,
    ) {
        let Some(client) = self.clients.get(place) else {
            return;
        };
        let own = client
            .own
            .get_or_insert_with(|| Box::new(OwnLink::new(turn.now)));
        own.errand.get_or_insert_with(make);
        self.own_places.insert(place);
    }

    /// Sends a request over the client's own connection, or begins to make one; when nothing else is
    /// under way. Until there is an [outcome](Self::own_outcome) the same call is made again whenever
    /// the client is looked at.
    pub(super) fn ask_own(
        &mut self,
        turn: &Turn,
        place: usize,
        ask: &Ask,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Outcome {
        let now = turn.now;
        let Some(client) = self.clients.get(place) else {
            return Outcome::Pending;
        };
        let (protocol, serial) = (client.protocol, client.serial);
        let own = client
            .own
            .get_or_insert_with(|| Box::new(OwnLink::new(now)));
        self.own_places.insert(place);
        let (epoch, name) = (
            turn.view.epoch(),
            turn.view.node(ask.route.node).id.as_str(),
        );
        let since = *own.waiting_since.get_or_insert(now);
        if ask.route.hold {
            if now.since(since) < self.settings.limits.traffic.hold.wait_ms_max {
                return Outcome::Pending;
            }
            return Outcome::Failed(refusal::not_sent(Obstacle::Handover, name, epoch));
        }
        let slot = self.traffic.slot(ask.route.node.get());
        let fits = own.is_to(self.traffic.target(slot));
        match own.link.as_mut() {
            Some(link) if fits && link.protocol == protocol => {
                let origin = Origin {
                    client: place,
                    serial,
                    sequence: Sequence(0),
                    part: None,
                };
                let sending = Sending {
                    preamble: ask.preamble,
                    ..Sending::first(origin, ask.effect, turn)
                };
                link.push(&sending, now, write);
                (own.waiting_since, own.made) = (None, 0);
                let longest = ask.reply_ms_max.max(self.settings.limits.answer_ms_max);
                own.stage = Stage::Asked {
                    until: now.after(ask.reply_ms_max),
                    at_last: now.after(longest),
                };
                if let Some(stats) = self.counters.node(slot.0) {
                    stats.requests += 1;
                }
                if let Err(error) = link.flush() {
                    self.end_own_link(turn, place, &error.into());
                }
                Outcome::Pending
            }
            // It lets us in and leaves, again and again.
            _ if own.made >= MADE_MAX => {
                Outcome::Failed(refusal::not_sent(Obstacle::Connecting, name, epoch))
            }
            _ => match self.begin_own_link(turn, place, slot) {
                Ok(()) => Outcome::Pending,
                Err(text) => Outcome::Failed(text),
            },
        }
    }

    /// The request at the front has its answer: on to the next.
    pub(super) fn finish_own(&mut self, turn: &Turn, place: usize) {
        let draining = self.draining;
        let Some(client) = self.clients.get(place) else {
            return;
        };
        if let Some(own) = client.own.as_mut() {
            own.stage = Stage::Idle { since: turn.now };
            (own.waiting_since, own.errand, own.made) = (None, None, 0);
        }
        if draining {
            client.phase = Phase::Leaving;
        }
    }

    /// Forgets what is watched, by ending the connection over which it is.
    pub(super) fn unwatch(&mut self, place: usize) {
        let Some(own) = self.clients.own(place) else {
            return;
        };
        let watching = std::mem::replace(&mut own.watch, Watch::Nothing) == Watch::Kept;
        if watching {
            self.close_own_link(place);
        }
    }

    /// Makes a connection for this client to the node at `slot`, in place of any other.
    fn begin_own_link(&mut self, turn: &Turn, place: usize, slot: NodeSlot) -> Result<(), String> {
        self.close_own_link(place);
        let (limits, epoch) = (&self.settings.limits, turn.view.epoch());
        let Some(target) = self.traffic.target(slot).cloned() else {
            return Err(refusal::no_nodes());
        };
        if self.traffic.is_down(slot) {
            return Err(refusal::not_sent(Obstacle::Down, target.id.as_str(), epoch));
        }
        let others = self.shared.own_links.fetch_add(1, Ordering::Relaxed);
        if others >= limits.own_links_max {
            self.shared.own_links.fetch_sub(1, Ordering::Relaxed);
            return Err(refusal::no_own_link(limits.own_links_max));
        }
        self.connect_attempts += 1;
        let attempt = self.connect_attempts;
        let Some(client) = self.clients.get(place) else {
            self.shared.own_links.fetch_sub(1, Ordering::Relaxed);
            return Ok(());
        };
        let (serial, protocol) = (client.serial, client.protocol);
        if let Some(own) = client.own.as_mut() {
            own.counted = true;
            own.made += 1;
            own.attempt = attempt;
            own.stale = false;
            own.stage = Stage::Connecting { since: turn.now };
            own.target = Some(target.clone());
        }
        let port = target.address.port();
        match target.address.host().parse::<IpAddr>() {
            Ok(ip) => self.connect_own_link(turn, place, slot, protocol, SocketAddr::new(ip, port)),
            Err(_) => {
                let mailbox = Arc::clone(&self.mailbox);
                self.shared
                    .resolver
                    .look_up(target.address, move |addresses| {
                        mailbox.post(Message::OwnResolved {
                            place,
                            serial,
                            attempt,
                            addresses,
                        });
                    });
            }
        }
        Ok(())
    }

    /// The name of the node was looked up for a client that may have gone meanwhile.
    pub(super) fn own_resolved(
        &mut self,
        turn: &Turn,
        place: usize,
        (serial, attempt): (u32, u64),
        addresses: &[SocketAddr],
    ) {
        let client = self
            .clients
            .get(place)
            .filter(|client| client.serial == serial);
        let Some((own, protocol)) = client.and_then(|client| {
            let protocol = client.protocol;
            Some((client.own.as_ref()?, protocol))
        }) else {
            return;
        };
        let awaited = own.attempt == attempt && matches!(own.stage, Stage::Connecting { .. });
        let index = own
            .target
            .as_ref()
            .and_then(|target| turn.view.index_of(&target.id));
        let (true, Some(index)) = (awaited, index) else {
            return;
        };
        let slot = self.traffic.slot(index.get());
        match addresses.first() {
            Some(address) => self.connect_own_link(turn, place, slot, protocol, *address),
            None => self.end_own_link(turn, place, &LinkError::Name),
        }
    }

    fn connect_own_link(
        &mut self,
        turn: &Turn,
        place: usize,
        slot: NodeSlot,
        protocol: Protocol,
        address: SocketAddr,
    ) {
        let Some(own) = self.clients.own(place) else {
            return;
        };
        let Some(target) = &own.target else {
            return;
        };
        let credential = self
            .settings
            .secrets
            .pool_key
            .as_ref()
            .map(|key| Credential {
                user: client_user(target.generation),
                password: client_password(key, &target.id, &target.nonce),
            });
        match NodeLink::connect(
            address,
            (slot, protocol, own.attempt),
            Greeting::Hello(protocol, credential.as_ref()),
            &self.settings.limits,
            (self.poll.registry(), own_token(place)),
        ) {
            Ok(link) => own.link = Some(Box::new(link)),
            Err(error) => self.end_own_link(turn, place, &error.into()),
        }
    }
}
