//! One node as one worker sees it: its connections, what is on them, what waits for them.

use super::health::Health;
use super::queue::{WaitQueue, Waiting};
use super::{Millis, Target};
use crate::resp::Protocol;

/// Connections a worker may have to one node: one for each version of the protocol.
pub(super) const LANES: [Protocol; 2] = [Protocol::Resp2, Protocol::Resp3];

/// The state of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// None, and none is being made.
    Closed,
    /// None; the node refused our user. Tried again at `until` if something waits.
    Pausing { until: Millis },
    /// Being made since then.
    Connecting { since: Millis },
    /// Requests go over it.
    Open,
    /// Of an older generation or address: its requests are answered, none is added.
    Draining,
}

#[derive(Debug)]
pub(super) struct Lane<R> {
    pub(super) link: Link,
    // Invariant: zero unless the link is Open or Draining.
    pub(super) in_flight: usize,
    pub(super) waiting: WaitQueue<R>,
    /// Since when the node has been refusing our user, without a success between.
    pub(super) denied_since: Option<Millis>,
    /// Had a connection, or asked for one, under the target before: make it again under the next.
    pub(super) in_use: bool,
}

impl<R> Lane<R> {
    fn new() -> Self {
        Self {
            link: Link::Closed,
            in_flight: 0,
            waiting: WaitQueue::new(),
            denied_since: None,
            in_use: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct NodeTraffic<R> {
    /// Where the current view says the node is, and which generation it lets in.
    pub(super) target: Target,
    pub(super) lanes: [Lane<R>; LANES.len()],
    pub(super) health: Health,
    /// Something is in flight on connections made for an earlier target.
    // Invariant: while set, every link is Draining or Closed; it is cleared when nothing is in flight.
    pub(super) stale: bool,
    /// The current view does not have this node.
    pub(super) departed: bool,
}

impl<R> NodeTraffic<R> {
    pub(super) fn new(target: Target) -> Self {
        let lanes = [Lane::new(), Lane::new()];
        Self {
            target,
            lanes,
            health: Health::default(),
            stale: false,
            departed: false,
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.lanes.iter().map(|lane| lane.in_flight).sum()
    }

    pub(super) fn is_down(&self) -> bool {
        self.health.down_until().is_some()
    }

    pub(super) fn lane(&mut self, protocol: Protocol) -> &mut Lane<R> {
        &mut self.lanes[protocol as usize]
    }

    /// Whether anything but the usual is going on, so that an answer must be looked at.
    pub(super) fn wants_attention(&self) -> bool {
        self.stale || self.health.failures() > 0
    }

    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = Waiting<R>> {
        self.lanes.iter_mut().flat_map(|lane| lane.waiting.take())
    }
}
