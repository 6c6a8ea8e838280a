//! What the passing of time does: waits end, attempts to connect end, failing nodes are tried again.

use super::Millis;
use super::admission::{Command, ConnectFailure, NodeSlot, Obstacle, Refused};
use super::lane::{LANES, Link, NodeTraffic};
use super::traffic::Traffic;
use crate::resp::Protocol;

impl<R> Traffic<R> {
    /// Lets time pass: ends waits and attempts that took too long, starts those that are due.
    pub fn tick(&mut self, now: Millis) -> Vec<Refused<R>> {
        let mut refused = Vec::new();
        let mut expired = Vec::new();
        self.held.take_expired(&self.limits.hold, now, &mut expired);
        refused.extend(
            expired
                .drain(..)
                .map(|waiting| (waiting, None, Obstacle::Handover)),
        );
        for slot in (0..self.nodes.len()).map(NodeSlot) {
            for protocol in LANES {
                refused.append(&mut self.tick_lane(slot, protocol, now));
            }
            self.probe(slot, now);
        }
        refused
    }

    /// Whether time passing can change anything: something waits, is held, is being connected, or a
    /// node is down.
    pub fn needs_ticks(&self) -> bool {
        !self.held.is_empty()
            || self.nodes.iter().flatten().any(|node| {
                node.is_down()
                    || node.lanes.iter().any(|lane| {
                        !lane.waiting.is_empty()
                            || matches!(lane.link, Link::Connecting { .. } | Link::Pausing { .. })
                    })
            })
    }

    fn tick_lane(&mut self, slot: NodeSlot, protocol: Protocol, now: Millis) -> Vec<Refused<R>> {
        let limits = self.limits;
        let Some(node) = self.nodes[slot.0].as_mut() else {
            return Vec::new();
        };
        let stale = node.stale;
        let lane = node.lane(protocol);
        let obstacle = match lane.link {
            _ if stale => Obstacle::Draining,
            Link::Pausing { .. } => Obstacle::Denied,
            _ if lane.denied_since.is_some() => Obstacle::Denied,
            _ => Obstacle::Connecting,
        };
        let mut expired = Vec::new();
        lane.waiting.take_expired(&limits.wait, now, &mut expired);
        let mut refused: Vec<_> = expired
            .into_iter()
            .map(|waiting| (waiting, Some(slot), obstacle))
            .collect();
        match lane.link {
            Link::Connecting { since } if now.since(since) >= limits.connect_ms_max => {
                self.commands.push(Command::Close(slot, protocol));
                refused.append(&mut self.connect_failed(
                    slot,
                    protocol,
                    ConnectFailure::Unreachable,
                    now,
                ));
            }
            Link::Pausing { until } if until <= now => {
                lane.link = Link::Closed;
                if lane.waiting.is_empty() {
                    lane.denied_since = None;
                } else {
                    self.connect(slot, protocol, now);
                }
            }
            _ => {}
        }
        refused
    }

    /// Starts the background attempt that finds out whether a node that was down is back.
    fn probe(&mut self, slot: NodeSlot, now: Millis) {
        let Some(node) = self.nodes[slot.0].as_mut() else {
            return;
        };
        let due = node.health.down_until().is_some_and(|until| until <= now);
        if !due || node.stale {
            return;
        }
        let idle = |node: &NodeTraffic<R>| node.lanes.iter().all(|lane| lane.link == Link::Closed);
        let protocol = LANES
            .into_iter()
            .find(|lane| node.lane(*lane).in_use)
            .unwrap_or_default();
        if idle(node) {
            self.connect(slot, protocol, now);
        }
    }
}
