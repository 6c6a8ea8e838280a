//! What differs between two records of a pool: nodes, how keys are placed, and which keys have another owner.
//!
//! Owners are those that routers act on, the state of handoffs included. Costs one look at every point of both.

use std::collections::BTreeMap;

use clockwise_cluster::{KeyPosition, Node, Record, View, ViewError};
use clockwise_placement::{Interval, NodeId, Placement, Position};
use serde::Serialize;

use crate::admin::shares_of;

/// Intervals that are listed one by one; more are counted only.
pub const INTERVALS_LISTED_MAX: usize = 10_000;
/// Keys that are drawn where positions of the two cannot be compared.
const SAMPLES: u32 = 1 << 16;

/// What differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The epoch of the first.
    pub from_epoch: u64,
    /// The epoch of the other.
    pub to_epoch: u64,
    /// Whether every key has the owner that it had.
    pub same_owners: bool,
    /// How positions come about and intervals are made, where that differs.
    pub placement: Option<PlacementChange>,
    /// Every node of either.
    pub nodes: Vec<NodeChange>,
    /// The part of all positions that has another owner.
    pub moved_share: f64,
    /// How much goes from whom to whom.
    pub flows: Vec<Flow>,
    /// The intervals that have another owner; none where positions cannot be compared.
    pub intervals: Vec<MovedInterval>,
    /// How many of them are not listed.
    pub intervals_left_out: usize,
    /// Whether shares were drawn from keys, since the two hash keys in different ways.
    pub sampled: bool,
}

/// How keys were placed and are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlacementChange {
    /// Before.
    pub from: String,
    /// After.
    pub to: String,
}

/// One node of either record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeChange {
    /// Its name.
    pub id: String,
    /// What became of it: `added`, `removed`, `changed` or `same`.
    pub what: &'static str,
    /// What of it differs, in words.
    pub changes: Vec<String>,
    /// Its part of all positions before.
    pub share_from: f64,
    /// Its part after.
    pub share_to: f64,
}

/// What goes from one node to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flow {
    /// Who owned it.
    pub from: String,
    /// Who owns it.
    pub to: String,
    /// The part of all positions.
    pub share: f64,
    /// How many intervals it is; 0 where it was drawn.
    pub intervals: usize,
}

/// An interval that has another owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MovedInterval {
    /// The position before its first.
    pub after: String,
    /// Its last position.
    pub through: String,
    /// Who owned it.
    pub from: String,
    /// Who owns it.
    pub to: String,
}

/// Compares two records.
///
/// # Errors
/// When one of them makes no view.
pub fn compare(from: &Record, to: &Record) -> Result<Comparison, ViewError> {
    let (old, new) = (View::from_record(from)?, View::from_record(to)?);
    let mut tally = Tally::default();
    let sampled = !comparable(from, to);
    if sampled {
        tally.sample(&old, &new);
    } else {
        tally.intervals(&old, &new);
    }
    let flows: Vec<Flow> = tally
        .flows
        .into_iter()
        .map(|((from, to), (share, intervals))| Flow {
            from,
            to,
            share,
            intervals,
        })
        .collect();
    Ok(Comparison {
        from_epoch: from.epoch().get(),
        to_epoch: to.epoch().get(),
        same_owners: flows.is_empty(),
        placement: placement_change(from, to),
        nodes: nodes(from, to, &old, &new),
        moved_share: flows.iter().map(|flow| flow.share).sum(),
        flows,
        intervals: tally.listed,
        intervals_left_out: tally.left_out,
        sampled,
    })
}

/// The sides of a view: one at rest, two while keys move.
fn sides(view: &View) -> impl Iterator<Item = &Placement> {
    std::iter::once(view.before()).chain(view.after())
}

/// Whether a position means the same key in all that either routes by.
fn comparable(old: &Record, new: &Record) -> bool {
    let schemes = |record: &Record| {
        let change = record.change();
        let sides =
            change.map(|change| [change.before.scheme.clone(), change.after.scheme.clone()]);
        let own = record.membership().scheme.clone();
        sides.into_iter().flatten().chain([own]).collect::<Vec<_>>()
    };
    let (old, new) = (schemes(old), schemes(new));
    old.iter().chain(&new).all(|scheme| *scheme == old[0])
}

#[derive(Default)]
struct Tally {
    flows: BTreeMap<(String, String), (f64, usize)>,
    listed: Vec<MovedInterval>,
    left_out: usize,
}

impl Tally {
    fn intervals(&mut self, old: &View, new: &View) {
        let mut ends: Vec<Position> = sides(old)
            .chain(sides(new))
            .flat_map(|side| side.points().map(|(position, _)| position))
            .collect();
        ends.sort_unstable();
        ends.dedup();
        // Between two ends nothing changes hands, in any of the placements.
        let Some(mut after) = ends.last().copied() else {
            return;
        };
        // An interval that goes on: who gives, who takes, and where it began.
        let mut open: Option<(&NodeId, &NodeId, Position)> = None;
        for through in ends {
            let at = KeyPosition::from(through);
            let (gives, takes) = (owner(old, at), owner(new, at));
            let moves = (gives != takes).then_some((gives, takes));
            if let Some((from, to, begin)) = open
                && moves != Some((from, to))
            {
                self.add(from, to, begin, after);
                open = None;
            }
            if let (None, Some((gives, takes))) = (open, moves) {
                open = Some((gives, takes, after));
            }
            after = through;
        }
        if let Some((from, to, begin)) = open {
            self.add(from, to, begin, after);
        }
    }

    fn add(&mut self, from: &NodeId, to: &NodeId, after: Position, through: Position) {
        let share = Interval { after, through }.share();
        let flow = self.flows.entry((from.to_string(), to.to_string()));
        let (sum, count) = flow.or_default();
        *sum += share;
        *count += 1;
        if self.listed.len() == INTERVALS_LISTED_MAX {
            self.left_out += 1;
            return;
        }
        self.listed.push(MovedInterval {
            after: after.to_string(),
            through: through.to_string(),
            from: from.to_string(),
            to: to.to_string(),
        });
    }

    fn sample(&mut self, old: &View, new: &View) {
        for number in 0..SAMPLES {
            let key = number.to_le_bytes();
            let (gives, takes) = (
                owner(old, old.position(&key)),
                owner(new, new.position(&key)),
            );
            if gives != takes {
                let flow = self.flows.entry((gives.to_string(), takes.to_string()));
                flow.or_default().0 += 1.0 / f64::from(SAMPLES);
            }
        }
    }
}

fn owner(view: &View, at: KeyPosition) -> &NodeId {
    &view.node(view.route(at).node).id
}

/// How positions come about and intervals are made, for people.
#[must_use]
pub fn placed_by(record: &Record) -> String {
    let membership = record.membership();
    format!("{}, {}", membership.scheme, membership.generator)
}

fn placement_change(from: &Record, to: &Record) -> Option<PlacementChange> {
    let (from, to) = (placed_by(from), placed_by(to));
    (from != to).then_some(PlacementChange { from, to })
}

fn nodes(from: &Record, to: &Record, old: &View, new: &View) -> Vec<NodeChange> {
    let shares = |view: &View| -> BTreeMap<NodeId, f64> {
        let ids = view.nodes().iter().map(|node| node.id.clone());
        ids.zip(shares_of(view)).collect()
    };
    let (old, new) = (shares(old), shares(new));
    let mut ids: Vec<&NodeId> = old.keys().chain(new.keys()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter()
        .map(|id| {
            let (before, after) = (from.node(id), to.node(id));
            let changes = match (before, after) {
                (Some(before), Some(after)) => changes(before, after),
                _ => Vec::new(),
            };
            let what = match (before, after) {
                (None, _) => "added",
                (_, None) => "removed",
                _ if changes.is_empty() => "same",
                _ => "changed",
            };
            NodeChange {
                id: id.to_string(),
                what,
                changes,
                share_from: old.get(id).copied().unwrap_or(0.0),
                share_to: new.get(id).copied().unwrap_or(0.0),
            }
        })
        .collect()
}

/// What of a node differs, in words.
fn changes(before: &Node, after: &Node) -> Vec<String> {
    let fields = [
        (
            "address",
            before.address.to_string(),
            after.address.to_string(),
        ),
        (
            "weight",
            before.weight.to_string(),
            after.weight.to_string(),
        ),
        (
            "domain",
            before.domain.to_string(),
            after.domain.to_string(),
        ),
        (
            "state",
            before.state.name().to_owned(),
            after.state.name().to_owned(),
        ),
    ];
    fields
        .into_iter()
        .filter(|(_, before, after)| before != after)
        .map(|(field, before, after)| format!("{field} {} -> {}", word(&before), word(&after)))
        .collect()
}

fn word(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// What happened between two epochs that follow each other, in words, for a list of epochs.
#[must_use]
pub fn told(before: &Record, after: &Record) -> Vec<String> {
    let mut told = Vec::new();
    for node in &after.membership().nodes {
        match before.node(&node.id) {
            None => told.push(format!("{} at {} comes in", node.id, node.address)),
            Some(known) => told.extend(
                changes(known, node)
                    .into_iter()
                    .map(|change| format!("{}: {change}", node.id)),
            ),
        }
    }
    for node in &before.membership().nodes {
        if after.node(&node.id).is_none() {
            told.push(format!("{} is gone", node.id));
        }
    }
    if let Some(PlacementChange { from, to }) = placement_change(before, after) {
        told.push(format!("placed by {from} -> {to}"));
    }
    match (before.change(), after.change()) {
        (None, Some(change)) => told.push(format!("{} begins", change.id)),
        (Some(change), None) => told.push(format!("{} ends", change.id)),
        (Some(old), Some(new)) => {
            if old.direction != new.direction {
                told.push(format!("{} turns back", new.id));
            }
            for handoff in &new.handoffs {
                let known = old.handoffs.iter().find(|old| old.id() == handoff.id());
                if known.is_none_or(|known| known.state != handoff.state) {
                    told.push(format!("handoff {} is {}", handoff.id(), handoff.state));
                }
            }
        }
        (None, None) => {}
    }
    if before.options().scripts != after.options().scripts {
        let may = if after.options().scripts {
            "may"
        } else {
            "may not"
        };
        told.push(format!("clients {may} run scripts"));
    }
    if told.is_empty() {
        told.push("credentials or options".to_owned());
    }
    told
}

#[cfg(test)]
mod tests {
    use clockwise_cluster::{NewNode, NewPool, Nonce};

    use super::*;

    fn pool(ids: &[&str], weights: &[&str]) -> Record {
        let nodes = ids
            .iter()
            .zip(weights)
            .enumerate()
            .map(|(at, (id, weight))| {
                let address = format!("127.0.0.1:{}", at + 1).parse().unwrap();
                NewNode {
                    weight: weight.parse().unwrap(),
                    ..NewNode::new(id.parse().unwrap(), address)
                }
            });
        let pool = NewPool::new("main".parse().unwrap(), nodes.collect());
        Record::create(pool, &mut || Nonce::new([1; 16])).unwrap()
    }

    #[test]
    fn what_moves_between_two_records_is_what_their_owners_say_key_by_key() {
        let (old, new) = (
            pool(&["a", "b", "c"], &["1", "1", "1"]),
            pool(&["a", "b", "d"], &["1", "2", "1"]),
        );
        let compared = compare(&old, &new).unwrap();
        let (before, after) = (
            View::from_record(&old).unwrap(),
            View::from_record(&new).unwrap(),
        );
        let keys = 20_000;
        let mut moved: BTreeMap<(String, String), u32> = BTreeMap::new();
        for number in 0..keys {
            let key = format!("user:{number}");
            let pair = (
                before.owner(key.as_bytes()).to_string(),
                after.owner(key.as_bytes()).to_string(),
            );
            if pair.0 != pair.1 {
                *moved.entry(pair).or_default() += 1;
            }
        }
        assert_eq!(
            compared
                .flows
                .iter()
                .map(|flow| (flow.from.clone(), flow.to.clone()))
                .collect::<Vec<_>>(),
            moved.keys().cloned().collect::<Vec<_>>()
        );
        for flow in &compared.flows {
            let counted = f64::from(moved[&(flow.from.clone(), flow.to.clone())]) / f64::from(keys);
            assert!((flow.share - counted).abs() < 0.02, "{flow:?} {counted}");
        }
        let listed: usize = compared.flows.iter().map(|flow| flow.intervals).sum();
        assert_eq!(listed, compared.intervals.len());
        let what: Vec<_> = compared
            .nodes
            .iter()
            .map(|node| (node.id.as_str(), node.what))
            .collect();
        assert_eq!(
            what,
            [
                ("a", "same"),
                ("b", "changed"),
                ("c", "removed"),
                ("d", "added")
            ]
        );
        assert_eq!(compared.nodes[1].changes, ["weight 1 -> 2"]);
    }

    #[test]
    fn a_record_moves_nothing_from_itself() {
        let record = pool(&["a", "b"], &["1", "1"]);
        let same = compare(&record, &record).unwrap();
        assert!(same.same_owners && same.moved_share == 0.0 && same.placement.is_none());
    }
}
