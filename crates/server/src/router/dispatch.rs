//! Requests on their way: onto a connection, into a queue, and their answers back into line.

use std::sync::Arc;

use clockwise_client::resp::Protocol;
use clockwise_client::routing::{Admission, Effect, Millis, NodeSlot, Obstacle, Refused, Waiting};
use clockwise_cluster::{NodeIndex, Route, View};
use clockwise_placement::NodeId;

use super::gather::{Gather, PartNumber};
use super::limits::ANSWER_BYTES_UNCOUNTED;
use super::node_link::Origin;
use super::refusal;
use super::scan::ScanReply;
use super::worker::{Parked, Turn, Worker};

/// A request, or a part of one, about to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) origin: Origin,
    pub(super) effect: Effect,
    pub(super) retries: u8,
    /// Replies of the node before the one that is the answer: those to `MULTI` and what is queued.
    pub(super) preamble: u32,
    /// When it arrived.
    pub(super) since: Millis,
}

impl Sending {
    /// For the first time.
    pub(super) fn first(origin: Origin, effect: Effect, turn: &Turn) -> Self {
        Self {
            origin,
            effect,
            retries: 0,
            preamble: 0,
            since: turn.now,
        }
    }
}

/// Where the bytes of a request are.
#[derive(Clone, Copy)]
enum Body<'a> {
    Frame(&'a [u8]),
    /// In the gather of its place.
    Part(PartNumber),
}

impl Worker {
    /// Sends a whole request to the node of its route, or parks it.
    pub(super) fn dispatch_frame(
        &mut self,
        turn: &Turn,
        sending: Sending,
        route: Route,
        frame: &[u8],
    ) {
        self.dispatch(turn, sending, route, Body::Frame(frame));
    }

    /// Sends keys of a gather to their nodes, those of one node together; what is held waits.
    pub(super) fn dispatch_keys(&mut self, turn: &Turn, sending: Sending, keys: Vec<u32>) {
        let Some(client) = self.clients.of(sending.origin) else {
            return;
        };
        let Some(gather) = client.replies.gathering(sending.origin.sequence) else {
            return;
        };
        let mut groups: Vec<(Route, Vec<u32>)> = Vec::new();
        // For each node, and whether the keys are held, the number of its group.
        let mut group_of: Vec<[Option<usize>; 2]> = vec![[None; 2]; turn.view.nodes().len()];
        for key in keys {
            let route = turn.view.route(turn.view.position(gather.key(key)));
            let group =
                group_of[route.node.get()][usize::from(route.hold)].get_or_insert_with(|| {
                    groups.push((route, Vec::new()));
                    groups.len() - 1
                });
            groups[*group].1.push(key);
        }
        // All parts exist before the first is sent: one that fails at once must not seem the last.
        let parts: Vec<_> = groups
            .into_iter()
            .map(|(route, keys)| (route, gather.add_keys(keys)))
            .collect();
        for (route, part) in parts {
            let origin = Origin {
                part: Some(part),
                ..sending.origin
            };
            self.dispatch(turn, Sending { origin, ..sending }, route, Body::Part(part));
        }
    }

    /// Sends a part that is meant for one node, whoever owns which keys.
    pub(super) fn dispatch_whole(&mut self, turn: &Turn, sending: Sending) {
        let Some(part) = sending.origin.part else {
            return;
        };
        let node = self.clients.of(sending.origin).and_then(|client| {
            let gather = client.replies.gathering(sending.origin.sequence)?;
            gather.node(part).cloned()
        });
        let index = node.as_ref().and_then(|id| turn.view.index_of(id));
        match index {
            Some(node) => {
                self.dispatch(turn, sending, Route { node, hold: false }, Body::Part(part))
            }
            None => {
                let name = node.as_ref().map_or("?", NodeId::as_str);
                let text = refusal::not_sent(Obstacle::Down, name, turn.view.epoch());
                self.fail(turn, sending.origin, &text, false);
            }
        }
    }

    /// Routes a part again that could not be sent under an earlier view. Its keys may be apart now.
    pub(super) fn dispatch_part_again(&mut self, turn: &Turn, sending: Sending) {
        let Some(part) = sending.origin.part else {
            return;
        };
        let Some(client) = self.clients.of(sending.origin) else {
            return;
        };
        let Some(gather) = client.replies.gathering(sending.origin.sequence) else {
            return;
        };
        if gather.node(part).is_some() {
            return self.dispatch_whole(turn, sending);
        }
        let keys = gather.take_back(part);
        self.dispatch_keys(turn, sending, keys);
    }

    fn dispatch(&mut self, turn: &Turn, sending: Sending, route: Route, body: Body<'_>) {
        let protocol = match self.clients.of(sending.origin) {
            Some(client) => client.protocol,
            None => return,
        };
        if route.hold {
            let source = self.traffic.slot(route.node.get());
            let waiting = self.park(sending, source, body, true);
            if let Err(waiting) = self.traffic.hold(waiting) {
                self.refuse_all(turn, vec![(waiting, None, Obstacle::QueueFull)]);
            }
            return;
        }
        match self.traffic.admit(route.node.get(), protocol, turn.now) {
            Admission::Send(slot) => self.send(turn, (slot, protocol), sending, body),
            Admission::Wait(slot) => {
                // Behind requests of the generation before, it waits for the handover.
                let held = self.traffic.is_draining(slot);
                let waiting = self.park(sending, slot, body, held);
                if let Err(waiting) = self.traffic.wait(slot, protocol, waiting) {
                    self.refuse_all(turn, vec![(waiting, Some(slot), Obstacle::QueueFull)]);
                }
            }
            Admission::Refuse(slot) => {
                let waiting = self.park(sending, slot, body, false);
                self.refuse_all(turn, vec![(waiting, Some(slot), Obstacle::Down)]);
            }
        }
    }

    /// Sends a request of our own, once, whose answer does not matter, nor whether it arrives.
    pub(super) fn dispatch_unasked(
        &mut self,
        turn: &Turn,
        (node, protocol): (NodeIndex, Protocol),
        frame: &[u8],
    ) {
        let body = Body::Frame(frame);
        let sending = Sending {
            retries: u8::MAX,
            ..Sending::first(Origin::NOBODY, Effect::Read, turn)
        };
        match self.traffic.admit(node.get(), protocol, turn.now) {
            Admission::Send(slot) => self.send(turn, (slot, protocol), sending, body),
            Admission::Wait(slot) => {
                let waiting = self.park(sending, slot, body, false);
                if self.traffic.wait(slot, protocol, waiting).is_err() {
                    tracing::debug!("a request of our own found no room");
                }
            }
            Admission::Refuse(_) => {}
        }
    }

    fn park(
        &mut self,
        sending: Sending,
        slot: NodeSlot,
        body: Body<'_>,
        held: bool,
    ) -> Waiting<Parked> {
        let Sending {
            origin,
            effect,
            retries,
            preamble,
            since,
        } = sending;
        let (frame, bytes) = match body {
            Body::Frame(frame) => (Some(frame.into()), frame.len()),
            Body::Part(part) => {
                let gather = self
                    .clients
                    .of(origin)
                    .and_then(|client| client.replies.gathering(origin.sequence));
                (None, gather.map_or(0, |gather| gather.part_bytes(part)))
            }
        };
        Waiting {
            request: Parked {
                origin,
                effect,
                retries,
                preamble,
                frame,
                held,
                slot,
            },
            bytes,
            since,
        }
    }

    /// Puts an admitted request onto its open connection.
    fn send(
        &mut self,
        turn: &Turn,
        (slot, protocol): (NodeSlot, Protocol),
        sending: Sending,
        body: Body<'_>,
    ) {
        let origin = sending.origin;
        let link = self.links[slot.0][protocol as usize]
            .as_mut()
            .expect("an admitted request has a connection");
        if link.unanswered_bytes() > self.settings.limits.node_pending_bytes_max {
            self.traffic.withdraw(slot, protocol, turn.now);
            let node = self.traffic.target(slot).map(|target| target.id.clone());
            let name = node.as_ref().map_or("?", NodeId::as_str);
            return self.fail(
                turn,
                origin,
                &refusal::overloaded(name, turn.view.epoch()),
                false,
            );
        }
        let before = link.unanswered_bytes();
        match (body, self.clients.of(origin)) {
            (Body::Frame(frame), Some(client)) => {
                link.push(&sending, turn.now, |out| out.extend_from_slice(frame));
                client.in_flight_bytes += link.unanswered_bytes() - before;
            }
            (Body::Frame(frame), None) if origin == Origin::NOBODY => {
                link.push(&sending, turn.now, |out| out.extend_from_slice(frame));
            }
            (Body::Part(part), Some(client)) => {
                let Some(gather) = client.replies.gathering(origin.sequence) else {
                    return self.traffic.withdraw(slot, protocol, turn.now);
                };
                link.push(&sending, turn.now, |out| gather.write_part(part, out));
                client.in_flight_bytes += link.unanswered_bytes() - before;
            }
            (_, None) => return self.traffic.withdraw(slot, protocol, turn.now),
        }
        if !link.listed {
            link.listed = true;
            self.unflushed_links.push((slot, protocol));
        }
        if let Some(stats) = self.counters.node(slot.0) {
            stats.requests += 1;
        }
    }

    /// Sends what waited for a connection, over it, in order.
    pub(super) fn send_waiting(
        &mut self,
        turn: &Turn,
        at: (NodeSlot, Protocol),
        waiting: Vec<Waiting<Parked>>,
    ) {
        for Waiting { request, since, .. } in waiting {
            let Parked {
                origin,
                effect,
                retries,
                preamble,
                frame,
                held,
                ..
            } = request;
            if held {
                self.note_hold(turn, since);
            }
            let body = match (&frame, origin.part) {
                (Some(frame), _) => Body::Frame(frame),
                (None, Some(part)) => Body::Part(part),
                (None, None) => {
                    unreachable!("a parked request has its bytes, or a gather has them")
                }
            };
            self.send(
                turn,
                at,
                Sending {
                    origin,
                    effect,
                    retries,
                    preamble,
                    since,
                },
                body,
            );
        }
    }

    /// A request that was held is sent or given up.
    pub(super) fn note_hold(&mut self, turn: &Turn, since: Millis) {
        self.counters.hold_ms_max = self.counters.hold_ms_max.max(turn.now.since(since));
    }

    /// The answer of the node at `slot` to a request of `bytes` bytes.
    ///
    /// A client that does not read is sent errors instead of values once it has more unread than it
    /// may: what was asked before that was known cannot be held back any more, since the connection to
    /// the node is others' too.
    pub(super) fn deliver(
        &mut self,
        turn: &Turn,
        slot: NodeSlot,
        (origin, effect): (Origin, Effect),
        bytes: usize,
        answer: &[u8],
    ) {
        let (limits, protocol) = (&self.settings.limits, self.shared.protocol);
        let Some(client) = self.clients.of(origin) else {
            return;
        };
        client.in_flight_bytes -= bytes;
        if answer.len() > ANSWER_BYTES_UNCOUNTED {
            let unread = client.replies.kept_bytes();
            if unread > limits.output_bytes_max {
                let text = refusal::not_kept(effect, answer.len(), unread, limits.output_bytes_max);
                return self.fail(turn, origin, &text, false);
            }
        }
        match origin.part {
            None => client.replies.deliver(origin.sequence, answer),
            Some(part) => {
                let Some(target) = self.traffic.target(slot) else {
                    return;
                };
                let bytes_max = limits.reply_bytes_max;
                let done = client.replies.gather_more(origin.sequence, |gather| {
                    let together = gather.answer_bytes() + answer.len();
                    if together > bytes_max {
                        let text = refusal::too_large_together(together, bytes_max);
                        gather.fail(refusal::line(protocol, &text), false)
                    } else {
                        gather.absorb(part, answer, &target.id)
                    }
                });
                if done == Some(true) {
                    self.finish_gather(turn, origin);
                }
            }
        }
        self.list_client(origin.client);
    }

    /// Ends a request, or a part of one, without an answer of its node. `unknown` says that it may
    /// have been executed all the same.
    pub(super) fn fail(&mut self, turn: &Turn, origin: Origin, text: &str, unknown: bool) {
        self.counters.refused += 1;
        let line = refusal::line(self.shared.protocol, text);
        let Some(client) = self.clients.of(origin) else {
            return;
        };
        match origin.part {
            None => client.replies.deliver(origin.sequence, &line),
            Some(_) => {
                let fail = |gather: &mut Gather| gather.fail(line, unknown);
                if client.replies.gather_more(origin.sequence, fail) == Some(true) {
                    self.finish_gather(turn, origin);
                }
            }
        }
        self.list_client(origin.client);
    }

    /// All parts of a request have ended: the answer made of them takes its place.
    fn finish_gather(&mut self, turn: &Turn, origin: Origin) {
        let mut answer = Vec::new();
        let Some(client) = self.clients.of(origin) else {
            return;
        };
        let Some(gather) = client.replies.take_gather(origin.sequence) else {
            return;
        };
        match gather.page() {
            Some((page, reply)) => {
                let node = gather.node(0).map_or("?", NodeId::as_str);
                let owners = self.owners(turn);
                ScanReply {
                    view: &turn.view,
                    owners: &owners,
                }
                .write(page, node, reply, &mut answer);
            }
            None => gather.write_answer(&mut answer),
        }
        if let Some(client) = self.clients.of(origin) {
            client.replies.deliver(origin.sequence, &answer);
        }
    }

    /// Tells clients whose requests could not be sent.
    pub(super) fn refuse_all(&mut self, turn: &Turn, refused: Vec<Refused<Parked>>) {
        for (waiting, slot, obstacle) in refused {
            if waiting.request.held {
                self.note_hold(turn, waiting.since);
            }
            let target = self.traffic.target(waiting.request.slot);
            let name = target.map_or("?", |target| target.id.as_str());
            let text = refusal::not_sent(obstacle, name, turn.view.epoch());
            if let Some(stats) = slot.and_then(|slot| self.counters.node(slot.0)) {
                stats.errors += 1;
            }
            self.fail(turn, waiting.request.origin, &text, false);
        }
    }

    /// Which nodes of the view own anything. A node that joins owns nothing before its first keys
    /// have been handed over, and may not even let us in. Found out once for each view, when asked.
    pub(super) fn owners(&mut self, turn: &Turn) -> Arc<[bool]> {
        if let Some(owners) = &self.owners {
            return Arc::clone(owners);
        }
        let owners: Arc<[bool]> = owners_of(&turn.view).into();
        self.owners = Some(Arc::clone(&owners));
        owners
    }
}

fn owners_of(view: &View) -> Vec<bool> {
    let mut owners = vec![false; view.nodes().len()];
    let placements = std::iter::once(view.before()).chain(view.after());
    let same_space = view
        .after()
        .is_none_or(|after| after.scheme() == view.before().scheme());
    for placement in placements {
        if !same_space {
            for member in placement.nodes() {
                if let Some(index) = view.index_of(&member.id) {
                    owners[index.get()] = true;
                }
            }
            continue;
        }
        // Ownership changes only at ends of intervals of either placement.
        for (interval, _) in placement.intervals() {
            owners[view.route(interval.through.into()).node.get()] = true;
        }
    }
    owners
}
