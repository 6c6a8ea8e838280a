//! What the router counts, for `status`, metrics and tests.

use std::collections::BTreeMap;

use clockwise_cluster::Epoch;
use clockwise_placement::NodeId;

/// What was sent to one node, by all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Requests sent since the start.
    pub requests: u64,
    /// Of these, in the last whole second.
    pub requests_per_second: u64,
    /// Requests that got no answer of the node, since the start.
    pub errors: u64,
    /// Open connections.
    pub connections: usize,
}

/// What the router does, as of at most a tenth of a second ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// The lowest epoch a worker routes by.
    pub epoch: Option<Epoch>,
    /// By node; also nodes that have left since the start.
    pub nodes: BTreeMap<NodeId, NodeStats>,
    /// Clients connected.
    pub clients: usize,
    /// Clients sent away because there were too many.
    pub clients_refused: u64,
    /// Clients dropped for not reading, not sending, or sending what is no request.
    pub clients_dropped: u64,
    /// Requests of clients since the start, whoever answered them.
    pub requests: u64,
    /// Of these, in the last whole second.
    pub requests_per_second: u64,
    /// Requests answered by the router with an error of its own.
    pub refused: u64,
    /// Requests held now, for keys being handed over.
    pub held: usize,
    /// The longest that a request was held or waited for a handover, since the last reset.
    pub hold_ms_max: u64,
    /// Connections to nodes that are not read from now, since clients do not read what has come.
    pub choked: usize,
}

/// One worker's share.
pub(super) type WorkerStats = RouterStats;

impl RouterStats {
    /// The sum of two workers' shares.
    pub(super) fn merged(mut self, other: &Self) -> Self {
        self.epoch = match (self.epoch, other.epoch) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        for (id, node) in &other.nodes {
            let sum = self.nodes.entry(id.clone()).or_default();
            sum.requests += node.requests;
            sum.requests_per_second += node.requests_per_second;
            sum.errors += node.errors;
            sum.connections += node.connections;
        }
        self.clients += other.clients;
        self.clients_refused += other.clients_refused;
        self.clients_dropped += other.clients_dropped;
        self.requests += other.requests;
        self.requests_per_second += other.requests_per_second;
        self.refused += other.refused;
        self.held += other.held;
        self.hold_ms_max = self.hold_ms_max.max(other.hold_ms_max);
        self.choked += other.choked;
        self
    }
}

/// The hot counters of one worker. Slots are used again, so a node's counts move on when it leaves.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) clients_refused: u64,
    pub(super) clients_dropped: u64,
    pub(super) hold_ms_max: u64,
    nodes: Vec<Option<(NodeId, NodeStats)>>,
    departed: BTreeMap<NodeId, NodeStats>,
    /// Counts at the start of the present second.
    second: BTreeMap<NodeId, u64>,
    second_requests: u64,
    rates: BTreeMap<NodeId, u64>,
    rate: u64,
}

impl Counters {
    /// A slot belongs to this node now.
    pub(super) fn assign(&mut self, slot: usize, id: &NodeId) {
        if self.nodes.len() <= slot {
            self.nodes.resize(slot + 1, None);
        }
        if self.nodes[slot]
            .as_ref()
            .is_some_and(|(known, _)| known == id)
        {
            return;
        }
        if let Some((known, stats)) = self.nodes[slot].take() {
            self.departed.insert(known, stats);
        }
        let stats = self.departed.remove(id).unwrap_or_default();
        self.nodes[slot] = Some((id.clone(), stats));
    }

    pub(super) fn node(&mut self, slot: usize) -> Option<&mut NodeStats> {
        self.nodes.get_mut(slot)?.as_mut().map(|(_, stats)| stats)
    }

    fn all(&self) -> impl Iterator<Item = (&NodeId, &NodeStats)> {
        self.nodes
            .iter()
            .flatten()
            .map(|(id, stats)| (id, stats))
            .chain(&self.departed)
    }

    /// A second or a little more has passed: what it brought is the rate until the next.
    pub(super) fn end_second(&mut self, elapsed_ms: u64) {
        let counts: BTreeMap<_, _> = self
            .all()
            .map(|(id, stats)| (id.clone(), stats.requests))
            .collect();
        let before = |id: &NodeId| self.second.get(id).copied().unwrap_or(0);
        let rate = |count: u64| count * 1_000 / elapsed_ms.max(1);
        self.rates = counts
            .iter()
            .map(|(id, count)| (id.clone(), rate(count - before(id))))
            .collect();
        self.second = counts;
        self.rate = rate(self.requests - self.second_requests);
        self.second_requests = self.requests;
    }

    /// Nothing was asked in the last second, and the rates say so.
    pub(super) fn is_at_rest(&self) -> bool {
        let still = self.rate == 0 && self.rates.values().all(|rate| *rate == 0);
        still && self.requests == self.second_requests
    }

    /// Writes everything counted here to what is shown.
    pub(super) fn show(&self, shown: &mut WorkerStats) {
        shown.nodes = self
            .all()
            .map(|(id, stats)| {
                let requests_per_second = self.rates.get(id).copied().unwrap_or(0);
                (
                    id.clone(),
                    NodeStats {
                        requests_per_second,
                        ..stats.clone()
                    },
                )
            })
            .collect();
        shown.requests = self.requests;
        shown.requests_per_second = self.rate;
        shown.refused = self.refused;
        shown.clients_refused = self.clients_refused;
        shown.clients_dropped = self.clients_dropped;
        shown.hold_ms_max = self.hold_ms_max;
    }
}
