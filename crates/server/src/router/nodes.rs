//! The worker's side of the nodes: views adopted, connections made and ended, replies read.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use clockwise_client::credentials::{client_password, client_user};
use clockwise_client::resp::Protocol;
use clockwise_client::routing::{
    Command, ConnectFailure, Credential, Flight, Front, Greeting, Login, NoReply, NodeSlot, Target,
    Unmatched, Verdict, Waiting, judge,
};
use clockwise_cluster::{Protocol as PoolProtocol, View};
use clockwise_placement::NodeId;
use mio::event::Event;

use super::limits::NODE_READ_BYTES;
use super::mailbox::Message;
use super::node_link::{Answered, InFlight, Lost, NodeLink};
use super::refusal;
use super::worker::{Parked, Turn, Worker, lane_of, link_token};

/// Reads from one node before others get their turn.
const READS_PER_TURN: usize = 8;

/// Why a connection to a node ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("{0}")]
    Reply(#[from] NoReply),
    #[error("{0}")]
    Unmatched(#[from] Unmatched),
    #[error("no answer within {0} ms")]
    Late(u64),
    #[error("it does not let us in: {0}")]
    Refused(String),
    #[error("it does not know our user")]
    Denied,
    #[error("its name does not resolve")]
    Name,
}

impl Worker {
    /// Routes by a later view from now on. Epochs below the present one are refused by the core.
    pub(super) fn adopt(&mut self, view: Arc<View>) {
        let target = |node: &clockwise_cluster::Node| Target {
            id: node.id.clone(),
            address: node.address.clone(),
            generation: node.generation,
            nonce: node.nonce,
        };
        let targets = view.nodes().iter().map(target).collect();
        let unsent = match self.traffic.adopt(view.epoch(), targets, self.now) {
            Ok(unsent) => unsent,
            Err(error) => {
                tracing::error!(%error, worker = self.number, "the view was not adopted");
                return;
            }
        };
        for link in self.links.iter_mut().flatten().flatten() {
            link.outdate();
        }
        for (index, node) in view.nodes().iter().enumerate() {
            let slot = self.traffic.slot(index).0;
            self.counters.assign(slot, &node.id);
            if self.links.len() <= slot {
                self.links.resize_with(slot + 1, || [None, None]);
            }
        }
        self.view = view;
        self.owners = None;
        (self.next_tick, self.next_show) = (self.now, self.now);
        let turn = self.begin_turn();
        self.review_own_links(&turn);
        self.obey(&turn);
        for waiting in unsent {
            let (held, since) = (waiting.request.held, waiting.since);
            self.dispatch_again(&turn, waiting);
            if held {
                self.note_hold(&turn, since);
            }
        }
        self.obey(&turn);
    }

    /// Does with the sockets what the core asks for.
    pub(super) fn obey(&mut self, turn: &Turn) {
        loop {
            let commands = self.traffic.take_commands();
            if commands.is_empty() {
                return;
            }
            for command in commands {
                match command {
                    Command::Connect(slot, protocol) => self.connect(turn, slot, protocol),
                    Command::Close(slot, protocol) => self.close_link(slot, protocol),
                }
            }
        }
    }

    fn connect(&mut self, turn: &Turn, slot: NodeSlot, protocol: Protocol) {
        self.connect_attempts += 1;
        let Some(target) = self.traffic.target(slot) else {
            return;
        };
        let (host, port) = (target.address.host(), target.address.port());
        match host.parse::<IpAddr>() {
            Ok(ip) => self.connect_to(turn, slot, protocol, SocketAddr::new(ip, port)),
            Err(_) => {
                let (mailbox, attempt) = (Arc::clone(&self.mailbox), self.connect_attempts);
                let address = target.address.clone();
                self.attempts_by_name.insert((slot, protocol), attempt);
                self.shared.resolver.look_up(address, move |addresses| {
                    mailbox.post(Message::Resolved {
                        slot,
                        protocol,
                        attempt,
                        addresses,
                    });
                });
            }
        }
    }

    /// A node's name was looked up, unless the attempt has been given up meanwhile.
    pub(super) fn resolved(
        &mut self,
        turn: &Turn,
        slot: NodeSlot,
        protocol: Protocol,
        attempt: u64,
        to: &[SocketAddr],
    ) {
        if self.attempts_by_name.get(&(slot, protocol)) != Some(&attempt) {
            return;
        }
        self.attempts_by_name.remove(&(slot, protocol));
        match to.first() {
            Some(address) => self.connect_to(turn, slot, protocol, *address),
            None => self.connect_failed(turn, slot, protocol, &LinkError::Name),
        }
        self.obey(turn);
    }

    fn connect_to(&mut self, turn: &Turn, slot: NodeSlot, protocol: Protocol, address: SocketAddr) {
        let Some(target) = self.traffic.target(slot) else {
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
        let greeting = match self.shared.protocol {
            PoolProtocol::Memcached => Greeting::Version,
            _ => Greeting::Hello(protocol, credential.as_ref()),
        };
        let registry = (self.poll.registry(), link_token(slot, protocol));
        let id = self.connect_attempts;
        match NodeLink::connect(
            address,
            (slot, protocol, id),
            greeting,
            &self.settings.limits,
            registry,
        ) {
            Ok(link) => self.links[slot.0][protocol as usize] = Some(Box::new(link)),
            Err(error) => self.connect_failed(turn, slot, protocol, &error.into()),
        }
    }

    fn close_link(&mut self, slot: NodeSlot, protocol: Protocol) {
        self.attempts_by_name.remove(&(slot, protocol));
        if let Some(link) = self.links[slot.0][protocol as usize].take() {
            self.forget_link(*link);
        }
    }

    fn forget_link(&mut self, link: NodeLink) {
        if link.is_open()
            && let Some(stats) = self.counters.node(link.slot.0)
        {
            stats.connections -= 1;
        }
        link.close(self.poll.registry());
    }

    fn connect_failed(
        &mut self,
        turn: &Turn,
        slot: NodeSlot,
        protocol: Protocol,
        error: &LinkError,
    ) {
        let failure = match error {
            LinkError::Denied => ConnectFailure::Denied,
            _ => ConnectFailure::Unreachable,
        };
        if let Some(target) = self.traffic.target(slot) {
            tracing::debug!(node = %target.id, generation = %target.generation, %error, "no connection to a node");
        }
        let known = self.traffic.is_down(slot);
        let refused = self
            .traffic
            .connect_failed(slot, protocol, failure, turn.now);
        if let Some(target) = self
            .traffic
            .target(slot)
            .filter(|_| !known && self.traffic.is_down(slot))
        {
            tracing::warn!(node = %target.id, address = %target.address, %error, worker = self.number, "a node is down");
        }
        self.refuse_all(turn, refused);
    }

    pub(super) fn link_event(&mut self, turn: &Turn, event: &Event) {
        let (slot, protocol) = lane_of(event.token());
        let Some(Some(link)) = self
            .links
            .get_mut(slot.0)
            .map(|links| &mut links[protocol as usize])
        else {
            return;
        };
        link.peer_done |= event.is_read_closed();
        if (event.is_writable() || event.is_error())
            && let Err(error) = link.now_writable()
        {
            return self.end_link(turn, slot, protocol, &error.into());
        }
        if event.is_readable() || event.is_read_closed() {
            self.link_readable(turn, slot, protocol);
        }
    }

    /// Reads what a node has sent and hands the answers out.
    pub(super) fn link_readable(&mut self, turn: &Turn, slot: NodeSlot, protocol: Protocol) {
        if self.chokes(slot, protocol) {
            return;
        }
        let Some(mut link) = self
            .links
            .get_mut(slot.0)
            .and_then(|links| links[protocol as usize].take())
        else {
            return;
        };
        let mut scratch = std::mem::take(&mut self.node_scratch);
        let (id, was_open) = (link.id, link.is_open());
        let outcome = self.read_replies(turn, &mut link, &mut scratch);
        self.keep_node_scratch(scratch);
        let opened = !was_open && link.is_open();
        if link.has_more_to_send() && !link.listed {
            link.listed = true;
            self.unflushed_links.push((slot, protocol));
        }
        self.links[slot.0][protocol as usize] = Some(link);
        if opened {
            self.link_opened(turn, slot, protocol);
        }
        // An answer may have been the last of an earlier generation: its connection goes first.
        self.obey(turn);
        let same = self.links[slot.0][protocol as usize]
            .as_ref()
            .is_some_and(|link| link.id == id);
        match outcome {
            Err(error) if same => self.end_link(turn, slot, protocol, &error),
            Ok(true) if same => self.ready_links.push((slot, protocol)),
            _ => {}
        }
        self.obey(turn);
    }

    /// Takes back what nodes' bytes are read into, at its usual size.
    pub(super) fn keep_node_scratch(&mut self, mut scratch: Vec<u8>) {
        if scratch.capacity() > 4 * NODE_READ_BYTES || scratch.capacity() < NODE_READ_BYTES {
            scratch = Vec::with_capacity(NODE_READ_BYTES);
        }
        self.node_scratch = scratch;
    }

    fn link_opened(&mut self, turn: &Turn, slot: NodeSlot, protocol: Protocol) {
        if let Some(stats) = self.counters.node(slot.0) {
            stats.connections += 1;
        }
        if let Some(target) = self
            .traffic
            .target(slot)
            .filter(|_| self.traffic.is_down(slot))
        {
            tracing::info!(node = %target.id, worker = self.number, "a node is back");
        }
        let waiting = self.traffic.connected(slot, protocol);
        self.send_waiting(turn, (slot, protocol), waiting);
    }

    /// Says whether there may be more to read.
    fn read_replies(
        &mut self,
        turn: &Turn,
        link: &mut NodeLink,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, LinkError> {
        for _ in 0..READS_PER_TURN {
            let Some(received) = link.receive(scratch, turn.now)? else {
                return Ok(false);
            };
            let mut at = 0;
            while let Some(heard) = hear(link, scratch, &mut at)? {
                let Heard::Answer {
                    request,
                    bytes: sent,
                    reply,
                    words,
                } = heard
                else {
                    continue;
                };
                self.traffic.answered(link.slot, link.protocol, turn.now);
                let of = (request.origin, request.effect);
                self.deliver(turn, link.slot, of, sent, words.as_deref().unwrap_or(reply));
            }
            link.keep(scratch, at);
            if !received.more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn flush_link(&mut self, turn: &Turn, slot: NodeSlot, protocol: Protocol) {
        let Some(link) = self.links[slot.0][protocol as usize].as_mut() else {
            return;
        };
        link.listed = false;
        if let Err(error) = link.flush() {
            self.end_link(turn, slot, protocol, &error.into());
        }
    }

    /// Ends connections whose oldest request has waited too long for its answer.
    pub(super) fn end_late_links(&mut self, turn: &Turn) {
        let links = self.links.iter().flatten().flatten();
        let late: Vec<_> = links
            .filter_map(|link| {
                let ms_max = link.is_late(&self.settings.limits, turn.now)?;
                Some((link.slot, link.protocol, ms_max))
            })
            .collect();
        for (slot, protocol, ms_max) in late {
            self.end_link(turn, slot, protocol, &LinkError::Late(ms_max));
        }
    }

    /// A connection or the attempt at one is over: its requests are sent again or answered with
    /// what is known of them.
    fn end_link(&mut self, turn: &Turn, slot: NodeSlot, protocol: Protocol, error: &LinkError) {
        let Some(link) = self.links[slot.0][protocol as usize].take() else {
            return;
        };
        if !link.is_open() {
            self.forget_link(*link);
            return self.connect_failed(turn, slot, protocol, error);
        }
        let node = self.traffic.target(slot).map(|target| target.id.clone());
        let name = node.as_ref().map_or("?", NodeId::as_str);
        let lost: Vec<Lost> = link.lost().collect();
        tracing::warn!(node = name, %error, in_flight = lost.len(), epoch = %turn.view.epoch(), "a node connection ended");
        let refused = self.traffic.broken(slot, protocol, turn.now);
        self.refuse_all(turn, refused);
        let takes_retries = self.traffic.takes_retries(slot);
        let mut verdicts = judge(&lost.iter().map(flight).collect::<Vec<_>>(), |index| {
            takes_retries && !lost[index].outdated
        });
        let repeated = |verdict: &&mut Verdict| **verdict == Verdict::Retry;
        let count = verdicts.iter_mut().filter(repeated).count();
        if !self.traffic.grants_retries(count, self.counters.requests) {
            let refused = verdicts.iter_mut().filter(repeated);
            refused.for_each(|verdict| *verdict = Verdict::Refuse);
        }
        let mut retried = Vec::new();
        for (index, (lost, verdict)) in lost.iter().zip(verdicts).enumerate() {
            let frame = link.frame(index);
            let origin = lost.request.origin;
            if let Some(client) = self.clients.of(origin) {
                client.in_flight_bytes -= frame.len();
            }
            if verdict != Verdict::Retry
                && let Some(stats) = self.counters.node(slot.0)
            {
                stats.errors += 1;
            }
            match verdict {
                Verdict::Retry => {
                    let frame = origin.part.is_none().then(|| frame.into());
                    let request = Parked {
                        origin,
                        effect: lost.request.effect,
                        retries: lost.request.retries + 1,
                        preamble: lost.request.preamble,
                        frame,
                        held: false,
                        slot,
                    };
                    retried.push(Waiting {
                        request,
                        bytes: link.frame(index).len(),
                        since: turn.now,
                    });
                }
                Verdict::Refuse => self.fail(
                    turn,
                    origin,
                    &refusal::lost_read(name, turn.view.epoch()),
                    false,
                ),
                Verdict::Unknown => self.fail(
                    turn,
                    origin,
                    &refusal::unknown(name, turn.view.epoch()),
                    true,
                ),
            }
        }
        self.forget_link(*link);
        if !retried.is_empty() {
            self.traffic.retry(slot, protocol, retried, turn.now);
        }
    }
}

/// What a node has said that concerns somebody.
pub(super) enum Heard<'a> {
    /// It has let us in.
    Open,
    /// The answer to a request of so many bytes; in other words, where the node's say too little.
    Answer {
        request: InFlight,
        bytes: usize,
        reply: &'a [u8],
        words: Option<Vec<u8>>,
    },
}

/// Takes the next of what has arrived from `at` on, passing over what concerns nobody.
pub(super) fn hear<'a>(
    link: &mut NodeLink,
    arrived: &'a [u8],
    at: &mut usize,
) -> Result<Option<Heard<'a>>, LinkError> {
    loop {
        let (reply, answered) = match link.front(&arrived[*at..])? {
            Front::Nothing => return Ok(None),
            Front::Passed(bytes) => {
                *at += bytes;
                continue;
            }
            Front::Reply(reply) => {
                *at += reply.len();
                if !link.is_open() {
                    log_in(link, reply)?;
                    return Ok(Some(Heard::Open));
                }
                (reply, link.answered(reply)?)
            }
            Front::TooLong { rest, whole } => {
                *at += rest;
                (&[][..], link.answered_too_long(whole)?)
            }
        };
        if let Answered::Whole {
            request,
            bytes,
            words,
        } = answered
        {
            return Ok(Some(Heard::Answer {
                request,
                bytes,
                reply,
                words,
            }));
        }
    }
}

/// Takes the answer to the greeting.
fn log_in(link: &mut NodeLink, reply: &[u8]) -> Result<(), LinkError> {
    match link.log_in(reply) {
        Login::Done => Ok(()),
        Login::Denied => Err(LinkError::Denied),
        Login::Refused(words) => Err(LinkError::Refused(words)),
    }
}

fn flight(lost: &Lost) -> Flight {
    let Lost { request, sent, .. } = lost;
    let caller = (u64::from(request.origin.serial) << 32) | request.origin.client as u64;
    Flight {
        caller,
        effect: request.effect,
        sent: *sent,
        retries: request.retries,
    }
}
