//! The state machine of one worker's connections and queues.

use std::collections::BTreeMap;
use std::fmt;

use clockwise_cluster::Epoch;
use clockwise_placement::NodeId;

use super::Millis;
use super::admission::{
    Admission, Command, ConnectFailure, NodeSlot, Obstacle, Refused, StaleEpoch, Target,
    TrafficLimits,
};
use super::budget::RetryBudget;
use super::health::Health;
use super::lane::{LANES, Link, NodeTraffic};
use super::queue::{WaitQueue, Waiting};
use crate::resp::Protocol;

/// Connections, requests in flight and queues of one worker. `R` is what the owner keeps of a request.
pub struct Traffic<R> {
    pub(super) limits: TrafficLimits,
    epoch: Option<Epoch>,
    pub(super) nodes: Vec<Option<NodeTraffic<R>>>,
    /// Slots in the order of the current view's nodes.
    by_index: Vec<NodeSlot>,
    pub(super) held: WaitQueue<R>,
    pub(super) commands: Vec<Command>,
    budget: RetryBudget,
}

impl<R> fmt::Debug for Traffic<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic")
            .field("epoch", &self.epoch)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

impl<R> Traffic<R> {
    /// Without nodes; the first [`adopt`](Self::adopt) brings them.
    pub fn new(limits: TrafficLimits) -> Self {
        let (nodes, by_index, commands) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            limits,
            epoch: None,
            nodes,
            by_index,
            held: WaitQueue::new(),
            commands,
            budget: RetryBudget::new(limits.retries),
        }
    }

    /// Takes over a later view, given by its nodes in its own order, and gives back everything that
    /// has not been sent: the caller routes it anew, in this order, keeping `since`.
    ///
    /// # Errors
    /// An epoch below the current one changes nothing. The current one again changes nothing either, silently.
    pub fn adopt(
        &mut self,
        epoch: Epoch,
        targets: Vec<Target>,
        now: Millis,
    ) -> Result<Vec<Waiting<R>>, StaleEpoch> {
        match self.epoch {
            Some(current) if epoch < current => {
                return Err(StaleEpoch {
                    offered: epoch,
                    current,
                });
            }
            Some(current) if epoch == current => return Ok(Vec::new()),
            _ => self.epoch = Some(epoch),
        }
        let mut unsent: Vec<_> = self
            .nodes
            .iter_mut()
            .flatten()
            .flat_map(NodeTraffic::take_waiting)
            .collect();
        unsent.extend(self.held.take());
        let lanes_in_use = LANES.map(|lane| {
            self.nodes
                .iter_mut()
                .flatten()
                .any(|node| node.lane(lane).in_use)
        });
        for node in self.nodes.iter_mut().flatten() {
            node.departed = true;
            // Another epoch, another chance to be let in.
            node.lanes
                .iter_mut()
                .for_each(|lane| lane.denied_since = None);
        }
        let known = self.slots_by_id();
        self.by_index.clear();
        for target in targets {
            let slot = known.get(&target.id).copied();
            let slot = self.place(slot, target);
            self.by_index.push(slot);
        }
        for slot in (0..self.nodes.len()).map(NodeSlot) {
            self.settle(slot, now);
            self.connect_ahead(slot, lanes_in_use, now);
        }
        Ok(unsent)
    }

    /// Decides about a request for the node at `index` of the current view. Cost: two lookups
    /// while the connection is open.
    ///
    /// # Panics
    /// When the current view has no such node.
    #[inline]
    pub fn admit(&mut self, index: usize, protocol: Protocol, now: Millis) -> Admission {
        let slot = self.by_index[index];
        let node = self.nodes[slot.0]
            .as_mut()
            .expect("a slot of the current view is taken");
        let lane = node.lane(protocol);
        if lane.link == Link::Open {
            lane.in_flight += 1;
            return Admission::Send(slot);
        }
        lane.in_use = true;
        if node.is_down() {
            return Admission::Refuse(slot);
        }
        if !node.stale && node.lane(protocol).link == Link::Closed {
            self.connect(slot, protocol, now);
        }
        Admission::Wait(slot)
    }

    /// Keeps a request until the node's connection is there, or gives it back when the queue is full.
    pub fn wait(
        &mut self,
        slot: NodeSlot,
        protocol: Protocol,
        waiting: Waiting<R>,
    ) -> Result<(), Waiting<R>> {
        let limits = self.limits.wait;
        self.node(slot)
            .lane(protocol)
            .waiting
            .push(&limits, waiting)
    }

    /// Holds a request until the next view, or gives it back when the queue is full.
    pub fn hold(&mut self, waiting: Waiting<R>) -> Result<(), Waiting<R>> {
        self.held.push(&self.limits.hold, waiting)
    }

    /// One request in flight was answered.
    #[inline]
    pub fn answered(&mut self, slot: NodeSlot, protocol: Protocol, now: Millis) {
        let node = self.node(slot);
        let lane = node.lane(protocol);
        assert!(lane.in_flight > 0, "an answer without a request");
        lane.in_flight -= 1;
        if node.wants_attention() {
            node.health.answered();
            self.settle(slot, now);
        }
    }

    /// One request that was admitted is not sent after all.
    pub fn withdraw(&mut self, slot: NodeSlot, protocol: Protocol, now: Millis) {
        let node = self.node(slot);
        let lane = node.lane(protocol);
        assert!(lane.in_flight > 0, "a withdrawal without a request");
        lane.in_flight -= 1;
        if node.stale {
            self.settle(slot, now);
        }
    }

    /// The connection asked for is open and logged in: these requests, in this order, go over it
    /// now and are in flight.
    pub fn connected(&mut self, slot: NodeSlot, protocol: Protocol) -> Vec<Waiting<R>> {
        let node = self.node(slot);
        node.health.connected();
        let lane = node.lane(protocol);
        assert!(
            matches!(lane.link, Link::Connecting { .. }),
            "a connection nobody asked for"
        );
        lane.link = Link::Open;
        lane.denied_since = None;
        let waiting: Vec<_> = lane.waiting.take().collect();
        lane.in_flight = waiting.len();
        waiting
    }

    /// The connection asked for could not be made. What cannot wait any longer is given back.
    pub fn connect_failed(
        &mut self,
        slot: NodeSlot,
        protocol: Protocol,
        failure: ConnectFailure,
        now: Millis,
    ) -> Vec<Refused<R>> {
        let limits = self.limits;
        let node = self.node(slot);
        let lane = node.lane(protocol);
        lane.link = Link::Closed;
        let denied_for = match failure {
            ConnectFailure::Unreachable => {
                lane.denied_since = None;
                None
            }
            ConnectFailure::Denied => Some(now.since(*lane.denied_since.get_or_insert(now))),
        };
        match denied_for {
            // The record or the leader may be about to let us in.
            Some(ms) if ms < limits.wait.wait_ms_max && !node.is_down() => {
                node.lane(protocol).link = Link::Pausing {
                    until: now.after(limits.denied_retry_ms),
                };
                Vec::new()
            }
            _ => {
                node.health.failed(&limits.backoff, now);
                self.reconnect_or_refuse(slot, protocol, now)
            }
        }
    }

    /// A connection broke, or its node did not answer in time. Its requests are not in flight any
    /// more; the caller [judges](super::judge) them and gives those to repeat to [`retry`](Self::retry).
    pub fn broken(&mut self, slot: NodeSlot, protocol: Protocol, now: Millis) -> Vec<Refused<R>> {
        let backoff = self.limits.backoff;
        let node = self.node(slot);
        node.health.failed(&backoff, now);
        let lane = node.lane(protocol);
        lane.in_flight = 0;
        lane.link = Link::Closed;
        if node.stale {
            self.settle(slot, now);
            return Vec::new();
        }
        self.reconnect_or_refuse(slot, protocol, now)
    }

    /// Whether [`retry`](Self::retry) takes requests for this node.
    pub fn takes_retries(&mut self, slot: NodeSlot) -> bool {
        self.nodes[slot.0]
            .as_ref()
            .is_some_and(|node| !node.departed && !node.is_down())
    }

    /// Whether so many requests may be sent again, all or none, when so many have come in all. What is
    /// not granted is refused, as if the node did not take it.
    pub fn grants_retries(&mut self, count: usize, requests: u64) -> bool {
        self.budget.take(count as u64, requests)
    }

    /// Takes back requests of the connection that just broke, in order. Nothing else waits for it,
    /// since an open connection has no queue. They wait since now.
    pub fn retry(
        &mut self,
        slot: NodeSlot,
        protocol: Protocol,
        requests: Vec<Waiting<R>>,
        now: Millis,
    ) {
        let node = self.node(slot);
        let stale = node.stale;
        let lane = node.lane(protocol);
        lane.waiting.readmit(requests);
        if !stale && lane.link == Link::Closed {
            self.connect(slot, protocol, now);
        }
    }

    /// What to do next with sockets; empties the list.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Where to connect for this slot.
    pub fn target(&self, slot: NodeSlot) -> Option<&Target> {
        self.nodes.get(slot.0)?.as_ref().map(|node| &node.target)
    }

    /// The slot of the node at `index` of the current view.
    pub fn slot(&self, index: usize) -> NodeSlot {
        self.by_index[index]
    }

    /// Whether the node is down: requests are refused until a background attempt finds it back.
    pub fn is_down(&self, slot: NodeSlot) -> bool {
        self.nodes
            .get(slot.0)
            .and_then(Option::as_ref)
            .is_some_and(NodeTraffic::is_down)
    }

    /// Whether requests for this node wait for those of an earlier generation.
    pub fn is_draining(&self, slot: NodeSlot) -> bool {
        self.nodes
            .get(slot.0)
            .and_then(Option::as_ref)
            .is_some_and(|node| node.stale)
    }

    /// Requests held now.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Failures of the node in a row.
    pub fn failures(&self, slot: NodeSlot) -> u32 {
        self.nodes
            .get(slot.0)
            .and_then(Option::as_ref)
            .map_or(0, |node| node.health.failures())
    }
}

impl<R> Traffic<R> {
    fn node(&mut self, slot: NodeSlot) -> &mut NodeTraffic<R> {
        self.nodes[slot.0]
            .as_mut()
            .expect("a slot stays taken while its owner refers to it")
    }

    fn slots_by_id(&self) -> BTreeMap<NodeId, NodeSlot> {
        let taken = self
            .nodes
            .iter()
            .enumerate()
            .filter_map(|(slot, node)| Some((slot, node.as_ref()?)));
        taken
            .map(|(slot, node)| (node.target.id.clone(), NodeSlot(slot)))
            .collect()
    }

    /// Points the node's slot, a new one if it has none, at its target of the new view.
    fn place(&mut self, known: Option<NodeSlot>, target: Target) -> NodeSlot {
        let Some(slot) = known else {
            let free = self
                .nodes
                .iter()
                .position(Option::is_none)
                .unwrap_or(self.nodes.len());
            if free == self.nodes.len() {
                self.nodes.push(None);
            }
            self.nodes[free] = Some(NodeTraffic::new(target));
            return NodeSlot(free);
        };
        let node = self.node(slot);
        node.departed = false;
        if node.target != target {
            node.target = target;
            node.stale = true;
            node.health = Health::default();
        }
        slot
    }

    /// Brings a node's connections in line with its target: closes what is idle and of an earlier
    /// one, and when nothing of that is left, opens the next or forgets a node that has departed.
    fn settle(&mut self, slot: NodeSlot, now: Millis) {
        let Some(node) = self.nodes[slot.0].as_mut() else {
            return;
        };
        if !node.stale && !node.departed {
            return;
        }
        node.stale = true;
        for (lane, protocol) in node.lanes.iter_mut().zip(LANES) {
            lane.denied_since = None;
            if lane.in_flight > 0 {
                lane.link = Link::Draining;
            } else if matches!(
                lane.link,
                Link::Open | Link::Draining | Link::Connecting { .. }
            ) {
                lane.link = Link::Closed;
                self.commands.push(Command::Close(slot, protocol));
            } else {
                lane.link = Link::Closed;
            }
        }
        if node.in_flight() > 0 {
            return;
        }
        if node.departed {
            debug_assert!(
                node.lanes.iter().all(|lane| lane.waiting.is_empty()),
                "what waits was routed anew"
            );
            self.nodes[slot.0] = None;
            return;
        }
        node.stale = false;
        for protocol in LANES {
            if self.node(slot).lane(protocol).in_use {
                self.connect(slot, protocol, now);
            }
        }
    }

    /// A node may become an owner with the next view, or its user may just have been made: connect
    /// before the first request needs it.
    fn connect_ahead(&mut self, slot: NodeSlot, lanes_in_use: [bool; LANES.len()], now: Millis) {
        for (protocol, in_use) in LANES.into_iter().zip(lanes_in_use) {
            let Some(node) = self.nodes[slot.0].as_mut() else {
                return;
            };
            let idle = matches!(
                node.lane(protocol).link,
                Link::Closed | Link::Pausing { .. }
            );
            if in_use && idle && !node.stale && !node.is_down() {
                self.connect(slot, protocol, now);
            }
        }
    }

    pub(super) fn connect(&mut self, slot: NodeSlot, protocol: Protocol, now: Millis) {
        let lane = self.node(slot).lane(protocol);
        lane.link = Link::Connecting { since: now };
        lane.in_use = true;
        self.commands.push(Command::Connect(slot, protocol));
    }

    /// After a failure: once more if the node is not down and something waits, else give it up.
    fn reconnect_or_refuse(
        &mut self,
        slot: NodeSlot,
        protocol: Protocol,
        now: Millis,
    ) -> Vec<Refused<R>> {
        let node = self.node(slot);
        let down = node.is_down();
        let lane = node.lane(protocol);
        if lane.waiting.is_empty() {
            return Vec::new();
        }
        if !down {
            self.connect(slot, protocol, now);
            return Vec::new();
        }
        let obstacle = if lane.denied_since.is_some() {
            Obstacle::Denied
        } else {
            Obstacle::Down
        };
        lane.waiting
            .take()
            .map(|waiting| (waiting, Some(slot), obstacle))
            .collect()
    }
}
