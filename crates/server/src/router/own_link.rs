//! A client's connection of its own to a node: for what would block or change one that all share.
//!
//! Commands that block and `WATCH` (with the `EXEC` behind it) go over it. The request that needs it
//! stays at the front of the client's input, and nothing behind it is looked at, until the node has
//! answered; so the order of a client's requests is kept although they take two ways. It begins only
//! when everything before it has been answered.
//!
//! *Generations.* It belongs to the client user of the epoch it was made under. When a view brings
//! another one, what is on its way is answered first (nothing takes longer than a fraction of a
//! second), then it closes: the fence of a handover need not wait for the patience of blocked clients.
//! What a node was watching for it is forgotten then, and its `EXEC` does nothing.
//!
//! *Bounds.* There are so many of them at a time as [`Limits`](super::Limits) allow; each step has a
//! deadline; one that is not needed closes after a second.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clockwise_client::credentials::{client_password, client_user};
use clockwise_client::resp::Protocol;
use clockwise_client::routing::{Effect, Millis, NodeSlot, Obstacle, Target};
use clockwise_cluster::Route;
use mio::event::Event;

use super::blocking::Errand;
use super::client::{Pause, Phase};
use super::dispatch::Sending;
use super::limits::OWN_LINK_REST_MS;
use super::mailbox::Message;
use super::node_link::{Answered, Credential, Login, NodeLink, Origin};
use super::nodes::LinkError;
use super::refusal;
use super::reply_queue::Sequence;
use super::worker::{Turn, Worker, own_token, place_of};

/// How many reads from it before others get their turn.
const READS_PER_TURN: usize = 8;

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
    /// A request is on its way, and answered by then.
    Asked { until: Millis },
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
        let own = self.clients.get(place)?.own.as_mut()?;
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
            if now.since(since) < self.shared.limits.traffic.hold.wait_ms_max {
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
                own.waiting_since = None;
                own.stage = Stage::Asked {
                    until: now.after(ask.reply_ms_max),
                };
                if let Some(stats) = self.counters.node(slot.0) {
                    stats.requests += 1;
                }
                if let Err(error) = link.flush() {
                    self.end_own_link(turn, place, &error.into());
                }
                Outcome::Pending
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
            (own.waiting_since, own.errand) = (None, None);
        }
        if draining {
            client.phase = Phase::Leaving;
        }
    }

    /// Forgets what is watched, by ending the connection over which it is.
    pub(super) fn unwatch(&mut self, place: usize) {
        let Some(own) = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_mut())
        else {
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
        let (limits, epoch) = (&self.shared.limits, turn.view.epoch());
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
        let Some(own) = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_mut())
        else {
            return;
        };
        let Some(target) = &own.target else {
            return;
        };
        let credential = self.shared.secrets.pool_key.as_ref().map(|key| Credential {
            user: client_user(target.generation),
            password: client_password(key, &target.id, &target.nonce),
        });
        match NodeLink::connect(
            address,
            (slot, protocol, own.attempt),
            credential.as_ref(),
            self.shared.limits.reply_bytes_max,
            (self.poll.registry(), own_token(place)),
        ) {
            Ok(link) => own.link = Some(Box::new(link)),
            Err(error) => self.end_own_link(turn, place, &error.into()),
        }
    }

    /// Something happened at the socket.
    pub(super) fn own_event(&mut self, turn: &Turn, event: &Event) {
        let place = place_of(event.token());
        let own = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_mut());
        let Some(link) = own.and_then(|own| own.link.as_mut()) else {
            return;
        };
        link.peer_done |= event.is_read_closed();
        if (event.is_writable() || event.is_error())
            && let Err(error) = link.now_writable()
        {
            return self.end_own_link(turn, place, &error.into());
        }
        if event.is_readable() || event.is_read_closed() {
            self.own_readable(turn, place);
        }
    }

    /// Reads what the node has sent.
    pub(super) fn own_readable(&mut self, turn: &Turn, place: usize) {
        let own = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_mut());
        let Some(mut link) = own.and_then(|own| own.link.take()) else {
            return;
        };
        let mut scratch = std::mem::take(&mut self.node_scratch);
        let read = read(&mut link, &mut scratch);
        self.keep_node_scratch(scratch);
        let slot = link.slot;
        let Some(own) = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_mut())
        else {
            return;
        };
        own.link = Some(link);
        match read {
            Ok(Read { news, more }) => {
                match news {
                    Some(News::Open) => own.stage = Stage::Idle { since: turn.now },
                    Some(News::Answer(answer)) => own.stage = Stage::Answered(answer),
                    None => {}
                }
                let (news, over) = (
                    !matches!(own.stage, Stage::Asked { .. } | Stage::Connecting { .. }),
                    own.stale,
                );
                if more {
                    self.ready_own.push(place);
                }
                if news && over {
                    self.close_own_link(place);
                }
                if news {
                    self.queue(place);
                }
                self.list_client(place);
            }
            Err(error) => {
                if let Some(stats) = self.counters.node(slot.0) {
                    stats.errors += 1;
                }
                self.end_own_link(turn, place, &error);
            }
        }
    }

    /// The connection is over: what was asked gets an answer that says what is known.
    fn end_own_link(&mut self, turn: &Turn, place: usize, error: &LinkError) {
        let epoch = turn.view.epoch();
        let Some(own) = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_mut())
        else {
            return;
        };
        let name = own.target.as_ref().map_or("?", |target| target.id.as_str());
        tracing::debug!(node = name, %error, "a client's own connection ended");
        let lost = own.link.as_ref().and_then(|link| link.lost().next());
        let text = match own.stage {
            Stage::Connecting { .. } => {
                let obstacle = match error {
                    LinkError::Denied => Obstacle::Denied,
                    _ => Obstacle::Connecting,
                };
                Some(refusal::not_sent(obstacle, name, epoch))
            }
            Stage::Asked { .. } => Some(match lost {
                Some(lost) if lost.sent && lost.request.effect == Effect::Write => {
                    refusal::unknown(name, epoch)
                }
                _ => refusal::lost_read(name, epoch),
            }),
            _ => None,
        };
        if let Some(text) = text {
            own.stage = Stage::Failed(text);
            self.queue(place);
        }
        self.close_own_link(place);
    }

    /// Closes the connection, if there is one; what was watched over it is lost.
    pub(super) fn close_own_link(&mut self, place: usize) {
        let Some(own) = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_mut())
        else {
            return;
        };
        if own.watch == Watch::Kept {
            own.watch = Watch::Lost;
        }
        own.stale = false;
        if std::mem::take(&mut own.counted) {
            self.shared.own_links.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(link) = own.link.take() {
            link.close(self.poll.registry());
        }
    }

    /// A later view is in force: connections of earlier generations end, and what waited may go on.
    pub(super) fn review_own_links(&mut self) {
        let places: Vec<usize> = self.own_places.iter().copied().collect();
        for place in places {
            let Some(client) = self.clients.get(place) else {
                continue;
            };
            let waits = client.pause == Some(Pause::Own);
            let Some(own) = client.own.as_mut() else {
                continue;
            };
            let index = own
                .target
                .as_ref()
                .and_then(|target| self.view.index_of(&target.id));
            let current =
                index.and_then(|index| self.traffic.target(self.traffic.slot(index.get())));
            let same = current.is_some() && current == own.target.as_ref();
            match own.stage {
                Stage::Asked { .. } => own.stale = !same,
                Stage::Connecting { .. } if !same => {
                    own.stage = Stage::Idle { since: self.now };
                    self.close_own_link(place);
                    self.queue(place);
                }
                Stage::Connecting { .. } => {}
                _ => {
                    if !same {
                        self.close_own_link(place);
                    }
                    if waits {
                        self.queue(place);
                    }
                }
            }
        }
    }

    /// Lets time pass: what takes too long ends, and what nobody needs.
    pub(super) fn tick_own_links(&mut self, turn: &Turn) {
        let places: Vec<usize> = self.own_places.iter().copied().collect();
        let (connect_ms_max, hold_ms_max) = (
            self.shared.limits.traffic.connect_ms_max,
            self.shared.limits.traffic.hold.wait_ms_max,
        );
        for place in places {
            let Some(client) = self.clients.get(place) else {
                self.own_places.remove(&place);
                continue;
            };
            let waits = client.pause == Some(Pause::Own);
            let Some(own) = client.own.as_mut() else {
                self.own_places.remove(&place);
                continue;
            };
            match own.stage {
                Stage::Connecting { since } if turn.now.since(since) >= connect_ms_max => {
                    self.end_own_link(turn, place, &LinkError::Late(connect_ms_max));
                }
                Stage::Asked { until } if until <= turn.now => {
                    let ms_max = self.shared.limits.reply_ms_max;
                    self.end_own_link(turn, place, &LinkError::Late(ms_max));
                }
                Stage::Idle { .. } if waits => {
                    let since = own.waiting_since.unwrap_or(turn.now);
                    if turn.now.since(since) >= hold_ms_max {
                        self.queue(place);
                    }
                }
                Stage::Idle { since }
                    if own.watch == Watch::Nothing && turn.now.since(since) >= OWN_LINK_REST_MS =>
                {
                    self.close_own_link(place);
                    if let Some(client) = self.clients.get(place) {
                        client.own = None;
                    }
                    self.own_places.remove(&place);
                }
                _ => {}
            }
        }
    }

    /// Whether time passing can end anything of them.
    pub(super) fn own_links_need_ticks(&self) -> bool {
        !self.own_places.is_empty()
    }
}

enum News {
    /// The node has let us in.
    Open,
    Answer(Vec<u8>),
}

struct Read {
    news: Option<News>,
    /// There may be more to read.
    more: bool,
}

fn read(link: &mut NodeLink, scratch: &mut Vec<u8>) -> Result<Read, LinkError> {
    let mut news = None;
    for _ in 0..READS_PER_TURN {
        let Some(received) = link.receive(scratch)? else {
            return Ok(Read { news, more: false });
        };
        let mut at = 0;
        while let Some(reply) = link.next_reply(&scratch[at..])? {
            let bytes = &scratch[at..at + reply.bytes];
            at += reply.bytes;
            if reply.is_push() {
                continue;
            }
            if !link.is_open() {
                match link.log_in(bytes) {
                    Login::Done => news = Some(News::Open),
                    Login::Denied => return Err(LinkError::Denied),
                    Login::Refused(words) => return Err(LinkError::Refused(words)),
                }
            } else if let Answered::Whole { words, .. } = link.answered(bytes)? {
                news = Some(News::Answer(words.unwrap_or_else(|| bytes.to_vec())));
            }
        }
        link.keep(scratch, at);
        if !received.more {
            return Ok(Read { news, more: false });
        }
    }
    Ok(Read { news, more: true })
}
