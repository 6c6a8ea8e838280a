//! One worker: a thread, its clients, its connections to the nodes, and the loop that serves them.
//!
//! Workers share nothing but the view and the command table, both immutable. A turn of the loop
//! takes what the sockets announce, reads requests and replies, and only then writes: once to each
//! node and once to each client, however many requests the turn had. Under load this is where the
//! speed comes from, since sending costs ten times more than anything done per request.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use clockwise_client::commands::CommandTable;
use clockwise_client::resp::Protocol;
use clockwise_client::routing::{Effect, Millis, NodeSlot, Traffic};
use clockwise_cluster::{Protocol as PoolProtocol, View};
use mio::net::TcpListener;
use mio::{Events, Poll, Token};

use super::Secrets;
use super::client::Pause;
use super::clients::Clients;
use super::limits::{CLIENT_READ_BYTES, Limits, NODE_READ_BYTES, SWEEP_MS};
use super::mailbox::{Mailbox, Message};
use super::node_link::{NodeLink, Origin};
use super::resolver::Resolver;
use super::stats::Counters;

/// What all workers of a router have in common.
#[derive(Debug)]
pub(super) struct Shared {
    /// What clients and nodes speak.
    pub(super) protocol: PoolProtocol,
    pub(super) resolver: Resolver,
    /// Clients of all workers, counted when they come and go.
    pub(super) clients: AtomicUsize,
    /// Connections of clients' own to nodes, likewise.
    pub(super) own_links: AtomicUsize,
    pub(super) workers: usize,
}

/// What a router may be told anew while it serves.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) limits: Limits,
    pub(super) secrets: Secrets,
}

/// A request that could not be sent yet.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) origin: Origin,
    pub(super) effect: Effect,
    pub(super) retries: u8,
    /// Replies of the node before the one that is the answer.
    pub(super) preamble: u32,
    /// Its bytes; a part of a spread request is written when it leaves.
    pub(super) frame: Option<Box<[u8]>>,
    /// It waits because of a handover, not because of a node.
    pub(super) held: bool,
    /// The node it waits for, or whose handover.
    pub(super) slot: NodeSlot,
}

/// What holds throughout one turn. A turn routes everything by one view.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) view: Arc<View>,
    pub(super) table: Arc<CommandTable>,
    pub(super) now: Millis,
}

const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
const FIRST_TOKEN: usize = 2;
/// Behind it, tokens of three kinds take turns: clients, connections to nodes, clients' own ones.
const KINDS: usize = 3;
const LINK: usize = 1;
const OWN: usize = 2;

pub(super) fn client_token(place: usize) -> Token {
    Token(FIRST_TOKEN + place * KINDS)
}

/// Of the connection of this client's own.
pub(super) fn own_token(place: usize) -> Token {
    Token(FIRST_TOKEN + place * KINDS + OWN)
}

/// The client whose token, or whose own connection's, this is.
pub(super) fn place_of(token: Token) -> usize {
    (token.0 - FIRST_TOKEN) / KINDS
}

pub(super) fn link_token(slot: NodeSlot, protocol: Protocol) -> Token {
    Token(FIRST_TOKEN + (slot.0 * 2 + protocol as usize) * KINDS + LINK)
}

fn is_link(token: Token) -> bool {
    token.0 >= FIRST_TOKEN && (token.0 - FIRST_TOKEN) % KINDS == LINK
}

fn is_own(token: Token) -> bool {
    token.0 >= FIRST_TOKEN && (token.0 - FIRST_TOKEN) % KINDS == OWN
}

pub(super) fn lane_of(link: Token) -> (NodeSlot, Protocol) {
    let lane = (link.0 - FIRST_TOKEN) / KINDS;
    (
        NodeSlot(lane / 2),
        if lane.is_multiple_of(2) {
            Protocol::Resp2
        } else {
            Protocol::Resp3
        },
    )
}

/// How often what depends on time is looked at while something waits, while something is in flight,
/// and how soon after anything happened at all.
const TICK_MS: u64 = 5;
const IN_FLIGHT_TICK_MS: u64 = 50;
const IDLE_TICK_MS: u64 = 100;

/// When a worker at rest looks at the clock again: when something happens.
const NEVER: Millis = Millis(u64::MAX);

pub(super) struct Worker {
    pub(super) number: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) settings: Arc<Settings>,
    /// Why no request is routed, if none is.
    pub(super) halted: Option<Arc<str>>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) poll: Poll,
    pub(super) listener: Option<TcpListener>,
    /// The listener may have more connections to accept.
    pub(super) acceptable: bool,
    pub(super) started: Instant,
    pub(super) now: Millis,
    pub(super) view: Arc<View>,
    pub(super) table: Arc<CommandTable>,
    pub(super) clients: Clients,
    pub(super) next_serial: u32,
    /// Bytes kept for clients, as last counted for each.
    pub(super) kept_bytes: usize,
    /// Those of them that clients could read.
    pub(super) unread_bytes: usize,
    /// Connections to nodes that are not read from, and since when there are any.
    pub(super) choked_links: Vec<(NodeSlot, Protocol)>,
    pub(super) choked_since: Option<Millis>,
    pub(super) links: Vec<[Option<Box<NodeLink>>; 2]>,
    pub(super) traffic: Traffic<Parked>,
    /// Which nodes of the view own anything; found out when first asked.
    pub(super) owners: Option<Arc<[bool]>>,
    pub(super) counters: Counters,
    /// Connections and clients with something to write, each once.
    pub(super) unflushed_links: Vec<(NodeSlot, Protocol)>,
    pub(super) unflushed_clients: Vec<usize>,
    /// Clients and links to look at again in the next turn, without an event.
    pub(super) ready_clients: Vec<usize>,
    pub(super) ready_links: Vec<(NodeSlot, Protocol)>,
    pub(super) ready_own: Vec<usize>,
    /// Clients that have, or need, a connection of their own.
    pub(super) own_places: BTreeSet<usize>,
    pub(super) client_scratch: Vec<u8>,
    pub(super) node_scratch: Vec<u8>,
    pub(super) connect_attempts: u64,
    /// Attempts that wait for a node's name to be looked up.
    pub(super) attempts_by_name: BTreeMap<(NodeSlot, Protocol), u64>,
    pub(super) next_tick: Millis,
    pub(super) next_sweep: Millis,
    pub(super) next_show: Millis,
    pub(super) draining: bool,
    pub(super) stopping: bool,
}

impl Worker {
    pub(super) fn new(
        number: usize,
        (shared, settings): (Arc<Shared>, Arc<Settings>),
        mailbox: Arc<Mailbox>,
        poll: Poll,
        mut listener: TcpListener,
        view: Arc<View>,
    ) -> io::Result<Self> {
        poll.registry()
            .register(&mut listener, LISTENER, mio::Interest::READABLE)?;
        let traffic = Traffic::new(settings.limits.traffic);
        let table = Arc::new(match shared.protocol {
            PoolProtocol::Memcached => CommandTable::unneeded(),
            _ => CommandTable::without_nodes(),
        });
        Ok(Self {
            number,
            shared,
            settings,
            halted: None,
            mailbox,
            poll,
            listener: Some(listener),
            acceptable: true,
            started: Instant::now(),
            now: Millis(0),
            view,
            table,
            clients: Clients::default(),
            next_serial: 0,
            kept_bytes: 0,
            unread_bytes: 0,
            choked_links: Vec::new(),
            choked_since: None,
            links: Vec::new(),
            traffic,
            owners: None,
            counters: Counters::default(),
            unflushed_links: Vec::new(),
            unflushed_clients: Vec::new(),
            ready_clients: Vec::new(),
            ready_links: Vec::new(),
            ready_own: Vec::new(),
            own_places: BTreeSet::new(),
            client_scratch: Vec::with_capacity(CLIENT_READ_BYTES),
            node_scratch: Vec::with_capacity(NODE_READ_BYTES),
            connect_attempts: 0,
            attempts_by_name: BTreeMap::new(),
            next_tick: Millis(0),
            next_sweep: Millis(0),
            next_show: Millis(0),
            draining: false,
            stopping: false,
        })
    }

    /// The token under which a worker's mailbox wakes it.
    pub(super) const WAKER: Token = WAKER;

    /// Serves until told to stop.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(1_024);
        self.adopt(Arc::clone(&self.view));
        while !self.stopping {
            if let Err(error) = self.poll.poll(&mut events, self.patience()) {
                if error.kind() != io::ErrorKind::Interrupted {
                    tracing::error!(%error, worker = self.number, "polling failed; the router worker ends");
                    return;
                }
                continue;
            }
            self.now =
                Millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX));
            self.turn(&events);
        }
        self.show();
    }

    /// How long to sleep if nothing happens; for ever, if `None`.
    fn patience(&self) -> Option<Duration> {
        let busy = !self.ready_clients.is_empty()
            || !self.ready_links.is_empty()
            || !self.ready_own.is_empty()
            || self.accepts_more();
        if busy {
            return Some(Duration::ZERO);
        }
        let wait = self.next_tick.since(self.now).max(1);
        (self.next_tick != NEVER).then(|| Duration::from_millis(wait))
    }

    fn turn(&mut self, events: &Events) {
        if !events.is_empty() {
            self.end_rest();
        }
        let mut woken = false;
        let mut turn = self.begin_turn();
        // Replies first: they make room for requests, and their nodes wait for nothing else.
        for (slot, protocol) in std::mem::take(&mut self.ready_links) {
            self.link_readable(&turn, slot, protocol);
        }
        for place in std::mem::take(&mut self.ready_own) {
            self.own_readable(&turn, place);
        }
        for event in events {
            match event.token() {
                WAKER => woken = true,
                LISTENER => self.acceptable = true,
                token if is_link(token) => self.link_event(&turn, event),
                token if is_own(token) => self.own_event(&turn, event),
                _ => {}
            }
        }
        if woken {
            self.read_mail();
            turn = self.begin_turn();
        }
        for place in std::mem::take(&mut self.ready_clients) {
            if let Some(client) = self.clients.get(place) {
                client.queued = false;
                self.work(&turn, place);
            }
        }
        for event in events {
            match event.token() {
                WAKER | LISTENER => {}
                token if is_link(token) || is_own(token) => {}
                token => self.client_event(&turn, place_of(token), event),
            }
        }
        self.accept();
        self.flush(&turn);
        self.unchoke_links();
        if self.next_tick <= self.now {
            self.tick(&turn);
        }
    }

    pub(super) fn begin_turn(&self) -> Turn {
        Turn {
            view: Arc::clone(&self.view),
            table: Arc::clone(&self.table),
            now: self.now,
        }
    }

    fn read_mail(&mut self) {
        for message in self.mailbox.take() {
            match message {
                Message::View(view) => self.adopt(view),
                Message::Table(table) => {
                    self.table = table;
                    self.resume_all(Pause::Table);
                }
                Message::Resolved {
                    slot,
                    protocol,
                    attempt,
                    addresses,
                } => {
                    let turn = self.begin_turn();
                    self.resolved(&turn, slot, protocol, attempt, &addresses);
                }
                Message::OwnResolved {
                    place,
                    serial,
                    attempt,
                    addresses,
                } => {
                    let turn = self.begin_turn();
                    self.own_resolved(&turn, place, (serial, attempt), &addresses);
                }
                Message::Settings(settings) => self.settings = settings,
                Message::Halt(why) => self.halted = why,
                Message::Drain => self.drain(),
                Message::Stop => self.stopping = true,
                Message::ResetHold => {
                    self.counters.hold_ms_max = 0;
                    self.show();
                }
            }
        }
    }

    /// Looks again at all clients that pause for this reason.
    pub(super) fn resume_all(&mut self, reason: Pause) {
        for place in self.clients.taken() {
            if self
                .clients
                .get(place)
                .is_some_and(|client| client.pause == Some(reason))
            {
                self.queue(place);
            }
        }
    }

    /// Writes to nodes, then to clients: what nodes are to do takes longer.
    fn flush(&mut self, turn: &Turn) {
        self.obey(turn);
        for (slot, protocol) in std::mem::take(&mut self.unflushed_links) {
            self.flush_link(turn, slot, protocol);
        }
        self.obey(turn);
        for place in std::mem::take(&mut self.unflushed_clients) {
            self.flush_client(place);
        }
    }

    fn tick(&mut self, turn: &Turn) {
        self.acceptable = true;
        let refused = self.traffic.tick(self.now);
        self.obey(turn);
        self.refuse_all(turn, refused);
        self.end_late_links(turn);
        self.end_choke(turn);
        self.tick_own_links(turn);
        if self.table_is_late(turn) {
            self.resume_all(Pause::Table);
        }
        self.flush(turn);
        if self.next_sweep <= self.now {
            self.sweep(turn);
        }
        if self.next_show <= self.now {
            self.show();
            self.next_show = self.now.after(IDLE_TICK_MS);
        }
        if self.draining && self.clients.len() == 0 {
            self.stopping = true;
        }
        self.next_tick = self.next_look(turn);
    }

    /// When time passing can matter next, if nothing else happens.
    fn next_look(&self, turn: &Turn) -> Millis {
        let mut links = self.links.iter().flatten().flatten();
        let shown = self.next_show == self.now.after(IDLE_TICK_MS);
        if self.traffic.needs_ticks() {
            self.now.after(TICK_MS)
        } else if self.own_links_need_ticks() || links.any(|link| link.owes()) {
            self.now.after(IN_FLIGHT_TICK_MS)
        } else if shown && turn.table.is_complete() {
            // What is left to do with time: rates fall to zero, and clients may take too long.
            let rests = self.clients.len() == 0 && self.counters.is_at_rest();
            if rests { NEVER } else { self.next_sweep }
        } else {
            self.now.after(IDLE_TICK_MS)
        }
    }

    /// Something happened: the clock counts again.
    fn end_rest(&mut self) {
        if self.next_tick == NEVER {
            self.next_sweep = self.now.after(SWEEP_MS);
        }
        self.next_tick = self.next_tick.min(self.now.after(IDLE_TICK_MS));
    }

    /// No node has said which commands there are in the time that a request may wait for a node.
    pub(super) fn table_is_late(&self, turn: &Turn) -> bool {
        !turn.table.is_complete() && turn.now.0 >= self.settings.limits.traffic.wait.wait_ms_max
    }

    fn show(&mut self) {
        let (clients, held, epoch) = (self.clients.len(), self.traffic.held(), self.view.epoch());
        self.mailbox.show(|shown| {
            self.counters.show(shown);
            (shown.clients, shown.held, shown.epoch) = (clients, held, Some(epoch));
            shown.choked = self.choked_links.len();
        });
    }
}
