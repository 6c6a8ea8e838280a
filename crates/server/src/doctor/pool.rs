//! What is wrong with the pool: its record, its moves, and what its nodes have to do with each other.

use std::collections::{BTreeMap, BTreeSet};

use clockwise_cluster::handoff::preflight::CLOCK_SKEW_MS_MAX;
use clockwise_cluster::{NodeState, Record, View};

use super::check::Check;
use super::finding::{Finding, word};
use crate::admin::answer::{Moves, Status};
use crate::admin::shares_of;

/// With 200 points a node, one ring of ten nodes in a hundred has one above 1.21.
const SHARE_MAX: f64 = 1.25;

/// A pool, from its record or from what an admin API says of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PoolSeen {
    pub(super) epoch: u64,
    pub(super) memcached: bool,
    /// Whether nothing acknowledged may be lost.
    pub(super) store: bool,
    pub(super) slots: bool,
    pub(super) replicas: usize,
    pub(super) staged: usize,
    /// The name of the change in flight.
    pub(super) change: Option<String>,
    pub(super) nodes: Vec<NodeSeen>,
    /// Users of nodes who may write by the operator's leave; `None` where that is not known.
    pub(super) allowed_writers: Option<Vec<String>>,
}

/// A node as the record has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeSeen {
    pub(super) id: String,
    pub(super) address: String,
    pub(super) domain: String,
    /// Whether it owns keys for good: it neither joins nor leaves.
    pub(super) settled: bool,
    pub(super) weight: f64,
    pub(super) share: f64,
}

impl NodeSeen {
    /// For people.
    pub(super) fn place(&self) -> String {
        format!("node {} at {}", self.id, self.address)
    }
}

/// What a running process says of the pool beyond its record.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LiveSeen {
    pub(super) led: bool,
    /// Nodes that let no clients in, and why.
    pub(super) closed: Vec<(String, String)>,
    /// Nodes whose moves stand still, and why.
    pub(super) stopped: Vec<(String, String)>,
    /// What it says is wrong with it, as `status` does.
    pub(super) problems: Vec<String>,
}

/// What one node's server shows that has to be compared with others'.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServerSeen {
    pub(super) place: String,
    pub(super) id: String,
    pub(super) run_id: Option<String>,
    pub(super) clock: Option<Clock>,
}

/// A server's clock beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// How much it is ahead.
    pub(super) ahead_ms: i64,
    /// How much of that may be due to the way there and back.
    pub(super) unsure_ms: i64,
}

impl PoolSeen {
    /// From the record itself.
    pub(super) fn of_record(record: &Record) -> Result<Self, String> {
        let view = View::from_record(record).map_err(|error| error.to_string())?;
        let shares = shares_of(&view);
        let membership = record.membership();
        let nodes = view
            .nodes()
            .iter()
            .zip(shares)
            .map(|(node, share)| NodeSeen {
                id: node.id.to_string(),
                address: node.address.to_string(),
                domain: node.domain.to_string(),
                settled: node.state == NodeState::Active,
                weight: f64::from(node.weight.hundredths()) / 100.0,
                share,
            });
        Ok(Self {
            epoch: record.epoch().get(),
            memcached: !record.protocol().can_fence(),
            store: record.class().to_string() == STORE,
            slots: view.before().slots().is_some(),
            replicas: usize::from(membership.replicas),
            staged: record.staged().len(),
            change: record.change().map(|change| change.id.to_string()),
            nodes: nodes.collect(),
            allowed_writers: Some(record.options().foreign_writers.clone()),
        })
    }

    /// From what an admin API says.
    pub(super) fn of_status(epoch: u64, status: &Status) -> Self {
        let nodes = status.nodes.iter().map(|node| NodeSeen {
            id: node.id.clone(),
            address: node.address.clone(),
            domain: node.domain.clone(),
            settled: node.state == NodeState::Active.name(),
            weight: node.weight,
            share: node.share,
        });
        Self {
            epoch,
            memcached: status.protocol == MEMCACHED,
            store: status.class == STORE,
            slots: status.generator.contains("slots"),
            replicas: usize::from(status.replicas),
            staged: status.staged,
            change: status.change.as_ref().map(|change| change.id.clone()),
            nodes: nodes.collect(),
            allowed_writers: None,
        }
    }
}

const MEMCACHED: &str = "memcached";
const STORE: &str = "store";

impl LiveSeen {
    pub(super) fn of(status: &Status, moves: &Moves) -> Self {
        let closed = status.nodes.iter();
        let closed = closed.filter_map(|node| Some((node.id.clone(), node.closed.clone()?)));
        let stopped = moves.moves.iter();
        let stopped = stopped.filter_map(|one| Some((one.source.clone(), one.stopped.clone()?)));
        Self {
            led: status.leader.is_some(),
            closed: closed.collect(),
            stopped: stopped.collect(),
            problems: status.problems.clone(),
        }
    }
}

/// What the record alone shows.
pub(super) fn findings(pool: &PoolSeen) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut find = |check, place: &str, what: String, next: String| {
        found.push(Finding::new(check, place, what, next));
    };
    if pool.staged > 0 {
        let what = format!("{} edits at epoch {}", pool.staged, pool.epoch);
        let next = "clockwise plan      or:  clockwise unstage";
        find(Check::StagedEdits, POOL, what, next.to_owned());
    }
    if let Some(change) = &pool.change {
        let what = format!("change {change} is in flight");
        let next = "clockwise moves --watch".to_owned();
        find(Check::ChangeRunning, POOL, what, next);
    }
    let settled: Vec<&NodeSeen> = pool.nodes.iter().filter(|node| node.settled).collect();
    // While one takes the place of another neither is counted.
    if pool.change.is_none() && settled.len() < pool.replicas {
        let what = format!("{} nodes for {} replicas", settled.len(), pool.replicas);
        let next = "clockwise node add ID --addr HOST:PORT".to_owned();
        find(Check::TooFewNodes, POOL, what, next);
    }
    let domains: BTreeSet<&str> = settled.iter().map(|node| &*node.domain).collect();
    if pool.replicas > 1 && settled.len() > 1 && domains.len() == 1 {
        let what = match domains.first().filter(|domain| !domain.is_empty()) {
            Some(domain) => format!("all nodes are in {domain}"),
            None => "no node has a domain".to_owned(),
        };
        let first = settled.first().map_or("ID", |node| &*node.id);
        let next = format!(
            "say where each stands: clockwise node set {} --domain ZONE/RACK",
            word(first)
        );
        find(Check::OneDomain, POOL, what, next);
    }
    for (node, times) in uneven(pool, &settled) {
        let what = format!(
            "owns {:.1} % of positions, {times:.2} times what weight {} asks for",
            node.share * 100.0,
            node.weight
        );
        let next = match pool.slots {
            true => "clockwise pool set --placement slots --overload 0",
            false => "clockwise pool set --placement slots",
        };
        find(Check::UnevenShare, &node.place(), what, next.to_owned());
    }
    found
}

/// Nodes that own too much, and how many times what is theirs. While keys move shares say little.
fn uneven<'a>(pool: &PoolSeen, settled: &[&'a NodeSeen]) -> Vec<(&'a NodeSeen, f64)> {
    let weights: f64 = settled.iter().map(|node| node.weight).sum();
    if pool.change.is_some() || weights <= 0.0 {
        return Vec::new();
    }
    let shares: f64 = settled.iter().map(|node| node.share).sum();
    let times = settled.iter().filter(|node| node.weight > 0.0).map(|node| {
        let fair = shares * node.weight / weights;
        (*node, node.share / fair)
    });
    times.filter(|(_, times)| *times > SHARE_MAX).collect()
}

/// What a running process adds.
pub(super) fn findings_live(live: &LiveSeen) -> Vec<Finding> {
    let mut found = Vec::new();
    if !live.led {
        let why = live
            .problems
            .iter()
            .find(|problem| problem.contains("leads the pool"));
        let what = why.map_or("no leader is known", |why| why);
        let next = "start a process with the role rebalancer: clockwise serve --config FILE";
        found.push(Finding::new(Check::NobodyLeads, POOL, what, next));
    }
    for (id, why) in &live.closed {
        let next = format!("clockwise node accept {}", word(id));
        found.push(Finding::new(
            Check::NodeClosed,
            format!("node {id}"),
            why,
            next,
        ));
    }
    for (id, why) in &live.stopped {
        let next = "mend what it says, then: clockwise resume      or:  clockwise abort";
        found.push(Finding::new(
            Check::MoveStopped,
            format!("node {id}"),
            why,
            next,
        ));
    }
    found
}

/// What the nodes' servers show beside each other.
pub(super) fn findings_between(servers: &[ServerSeen]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut first_of: BTreeMap<&str, &ServerSeen> = BTreeMap::new();
    for server in servers {
        let Some(run_id) = &server.run_id else {
            continue;
        };
        if let Some(first) = first_of.get(&**run_id) {
            let what = format!("{} is the same server as {}", server.place, first.place);
            let next = format!("clockwise node set {} --addr HOST:PORT", word(&server.id));
            found.push(Finding::new(Check::SameServer, &server.place, what, next));
        } else {
            first_of.insert(run_id, server);
        }
    }
    let clocks = || {
        servers
            .iter()
            .filter_map(|server| Some((server, server.clock?)))
    };
    let slowest = clocks().min_by_key(|(_, clock)| clock.ahead_ms + clock.unsure_ms);
    let fastest = clocks().max_by_key(|(_, clock)| clock.ahead_ms - clock.unsure_ms);
    if let (Some((slow, behind)), Some((fast, ahead))) = (slowest, fastest) {
        let surely = (ahead.ahead_ms - ahead.unsure_ms) - (behind.ahead_ms + behind.unsure_ms);
        if surely > i64::try_from(CLOCK_SKEW_MS_MAX).unwrap_or(i64::MAX) {
            let what = format!("at least {surely} ms ahead of {}", slow.place);
            let next = "on each node's machine: chronyc makestep, and keep chronyd running";
            found.push(Finding::new(Check::ClockSkew, &fast.place, what, next));
        }
    }
    found
}

/// The place of what concerns the pool as a whole.
const POOL: &str = "pool";

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, domain: &str, share: f64) -> NodeSeen {
        NodeSeen {
            id: id.to_owned(),
            address: format!("10.0.0.1:{}", 6000 + id.len()),
            domain: domain.to_owned(),
            settled: true,
            weight: 1.0,
            share,
        }
    }

    fn pool() -> PoolSeen {
        PoolSeen {
            epoch: 3,
            memcached: false,
            store: true,
            slots: false,
            replicas: 1,
            staged: 0,
            change: None,
            nodes: vec![node("a", "", 0.5), node("b", "", 0.5)],
            allowed_writers: None,
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut PoolSeen), expected: &[Check]) {
        let mut seen = pool();
        change(&mut seen);
        let mut found: Vec<_> = findings(&seen)
            .iter()
            .map(|finding| finding.check)
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{seen:#?}");
    }

    #[test]
    fn what_the_record_shows_is_judged() {
        check(|_| (), &[]);
        check(|pool| pool.staged = 2, &[Check::StagedEdits]);
        check(
            |pool| pool.change = Some("change-1".to_owned()),
            &[Check::ChangeRunning],
        );
        check(|pool| pool.replicas = 2, &[Check::OneDomain]);
        check(
            |pool| pool.replicas = 3,
            &[Check::TooFewNodes, Check::OneDomain],
        );
        let replaced = |pool: &mut PoolSeen| {
            pool.change = Some("change-1".to_owned());
            pool.nodes.iter_mut().for_each(|node| node.settled = false);
        };
        check(replaced, &[Check::ChangeRunning]);
        let apart = |pool: &mut PoolSeen| {
            pool.replicas = 2;
            pool.nodes = vec![node("a", "z1", 0.5), node("b", "z2", 0.5)];
        };
        check(apart, &[]);
    }

    #[test]
    fn a_share_is_uneven_beside_the_weights() {
        let shares = |one: f64, two: f64| {
            move |pool: &mut PoolSeen| {
                pool.nodes = vec![node("a", "", one), node("b", "", two)];
            }
        };
        check(shares(0.62, 0.38), &[]);
        check(shares(0.64, 0.36), &[Check::UnevenShare]);
        let heavy = |pool: &mut PoolSeen| {
            shares(0.64, 0.36)(pool);
            pool.nodes[0].weight = 2.0;
        };
        check(heavy, &[]);
        let moving = |pool: &mut PoolSeen| {
            shares(0.9, 0.1)(pool);
            pool.change = Some("change-1".to_owned());
        };
        check(moving, &[Check::ChangeRunning]);
    }

    #[test]
    fn servers_are_told_apart_by_their_runs_and_clocks_by_what_is_sure() {
        let server = |id: &str, run_id: &str, ahead_ms, unsure_ms| ServerSeen {
            place: format!("node {id}"),
            id: id.to_owned(),
            run_id: Some(run_id.to_owned()),
            clock: Some(Clock {
                ahead_ms,
                unsure_ms,
            }),
        };
        let found = |servers: &[ServerSeen]| {
            let found = findings_between(servers);
            found
                .iter()
                .map(|finding| finding.check)
                .collect::<Vec<_>>()
        };
        assert_eq!(found(&[]), []);
        assert_eq!(
            found(&[server("a", "x", 0, 1), server("b", "y", 90, 1)]),
            []
        );
        assert_eq!(
            found(&[server("a", "x", 0, 1), server("b", "x", 0, 1)]),
            [Check::SameServer]
        );
        assert_eq!(
            found(&[server("a", "x", -60, 1), server("b", "y", 60, 1)]),
            [Check::ClockSkew]
        );
        let slow_way = [server("a", "x", -60, 400), server("b", "y", 60, 1)];
        assert_eq!(found(&slow_way), [], "the way may be all of it");
    }

    #[test]
    fn what_a_process_says_is_passed_on_with_what_to_type() {
        let live = LiveSeen {
            led: false,
            closed: vec![("n1".to_owned(), "another run".to_owned())],
            stopped: vec![("n2".to_owned(), "no memory".to_owned())],
            problems: vec!["nobody leads the pool, so …".to_owned()],
        };
        let found = findings_live(&live);
        let checks: Vec<_> = found.iter().map(|finding| finding.check).collect();
        assert_eq!(
            checks,
            [Check::NobodyLeads, Check::NodeClosed, Check::MoveStopped]
        );
        assert_eq!(found[1].next, "clockwise node accept n1");
    }
}
