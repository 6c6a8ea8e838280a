//! What moves between the two sides of a plan, from whom to whom.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use clockwise_placement::{Diff, NodeId, NodeIx, Placement, diff};

use super::{
    Basis, Held, INTERVALS_LISTED_MAX, Moves, PlannedFlow, PlannedInterval, Sides, share_of,
};

/// How many made-up keys stand for all where no interval can be compared: shares are then within a
/// percentage point, at three standard deviations.
const SAMPLED_KEYS: u32 = 65_536;

pub(super) fn moves(sides: &Sides<'_>, held: &BTreeMap<NodeId, Held>) -> Moves {
    if sides.before.scheme() != sides.after.scheme() {
        return sampled(sides, held);
    }
    if sides.layout_before.scheme.hash_tags != sides.layout_after.scheme.hash_tags {
        return at_most(sides, held);
    }
    let diff = diff(&sides.before, &sides.after).expect("the schemes are equal");
    exact(sides, &diff, held)
}

fn exact(sides: &Sides<'_>, diff: &Diff<'_>, held: &BTreeMap<NodeId, Held>) -> Moves {
    let movement = diff.movement();
    let primaries = |flow: &&clockwise_placement::Flow| flow.primaries > 0;
    let pairs = movement.flows.iter().filter(primaries);
    let parts = pairs
        .map(|flow| ((&flow.source, &flow.target), flow.primaries))
        .collect();
    let interval = |change: clockwise_placement::Change<'_>| PlannedInterval {
        after: change.interval.after,
        through: change.interval.through,
        source: sides.before.node(change.old[0]).id.clone(),
        target: sides.after.node(change.new[0]).id.clone(),
    };
    // With other points, another number of copies or the next step of a plan the change is about every node.
    let (old, new) = (sides.layout_before, sides.layout_after);
    let about_some = old.generator.makes_as(&new.generator)
        && old.replicas == new.replicas
        && old.members != new.members;
    let count = u64::try_from(diff.primaries().count()).unwrap_or(u64::MAX);
    Moves {
        copies: movement.copies_share(),
        copies_needless: about_some.then(|| share_of(movement.copies_needless)),
        intervals_count: Some(count),
        intervals: diff
            .primaries()
            .take(INTERVALS_LISTED_MAX)
            .map(interval)
            .collect(),
        ..by_parts(
            sides,
            Basis::Exact,
            &Parts {
                parts,
                whole: 1 << 64,
            },
            held,
        )
    }
}

/// Two schemes: a key's old and new position have nothing to do with each other.
fn sampled(sides: &Sides<'_>, held: &BTreeMap<NodeId, Held>) -> Moves {
    let (before, after) = (&sides.before, &sides.after);
    let mut pairs: BTreeMap<(NodeIx, NodeIx), u128> = BTreeMap::new();
    let mut copies: u32 = 0;
    for number in 0..SAMPLED_KEYS {
        let key = number.to_string();
        let old = before.replicas_at(before.position(key.as_bytes()));
        let new = after.replicas_at(after.position(key.as_bytes()));
        let had = |target: &NodeIx| {
            let id = &after.node(*target).id;
            old.iter().any(|source| before.node(*source).id == *id)
        };
        copies += u32::try_from(new.iter().filter(|target| !had(target)).count()).unwrap_or(0);
        if before.node(old[0]).id != after.node(new[0]).id {
            *pairs.entry((old[0], new[0])).or_default() += 1;
        }
    }
    let named = |((source, target), part): ((NodeIx, NodeIx), u128)| {
        ((&before.node(source).id, &after.node(target).id), part)
    };
    let parts = pairs.into_iter().map(named).collect();
    let parts = Parts {
        parts,
        whole: u128::from(SAMPLED_KEYS),
    };
    Moves {
        copies: f64::from(copies) / f64::from(SAMPLED_KEYS),
        ..by_parts(sides, Basis::Sampled { keys: SAMPLED_KEYS }, &parts, held)
    }
}

/// Hash tags are switched: a key with a tag gets a position that has nothing to do with its old one.
fn at_most(sides: &Sides<'_>, held: &BTreeMap<NodeId, Held>) -> Moves {
    let (before, after) = (owned(&sides.before), owned(&sides.after));
    let mut parts = BTreeMap::new();
    for (source, from) in &before {
        for (target, to) in after.iter().filter(|(target, _)| *target != source) {
            // Both are at most 2^64, so one bit less keeps their product in range.
            let part = ((from >> 1) * to) >> 63;
            if part > 0 {
                parts.insert((*source, *target), part);
            }
        }
    }
    let moves = by_parts(
        sides,
        Basis::AtMost,
        &Parts {
            parts,
            whole: 1 << 64,
        },
        held,
    );
    Moves {
        copies: moves.share * f64::from(sides.after.replicas_wanted()),
        ..moves
    }
}

/// What each pair of nodes exchanges, as a part of a whole.
struct Parts<'a> {
    parts: BTreeMap<(&'a NodeId, &'a NodeId), u128>,
    whole: u128,
}

/// Everything about a movement that follows from what each pair exchanges.
fn by_parts(
    sides: &Sides<'_>,
    basis: Basis,
    parts: &Parts<'_>,
    held: &BTreeMap<NodeId, Held>,
) -> Moves {
    let owned = owned(&sides.before);
    let flow = |(&(source, target), &part): (&(&NodeId, &NodeId), &u128)| {
        // What the source owns of the same whole.
        let owns = owned
            .get(source)
            .map_or(0, |positions| ((positions >> 1) * parts.whole) >> 63);
        let of_held = |amount: fn(&Held) -> u64| {
            let amount = u128::from(amount(held.get(source)?));
            let moved = (amount * part + owns / 2).checked_div(owns)?;
            Some(u64::try_from(moved.min(amount)).unwrap_or(u64::MAX))
        };
        PlannedFlow {
            source: source.clone(),
            target: target.clone(),
            share: part as f64 / parts.whole as f64,
            keys: of_held(|held| held.keys),
            bytes: of_held(|held| held.bytes),
        }
    };
    let flows: Vec<PlannedFlow> = parts.parts.iter().map(flow).collect();
    Moves {
        basis,
        share: parts.parts.values().sum::<u128>() as f64 / parts.whole as f64,
        copies: 0.0,
        copies_least: copies_least(sides),
        copies_needless: None,
        modulo: sides.modulo(),
        keys: total(&flows, |flow| flow.keys),
        bytes: total(&flows, |flow| flow.bytes),
        flows,
        intervals_count: None,
        intervals: Vec::new(),
    }
}

/// The sum, unless some of it is unknown.
fn total(flows: &[PlannedFlow], amount: fn(&PlannedFlow) -> Option<u64>) -> Option<u64> {
    flows.iter().map(amount).try_fold(0_u64, |sum, amount| {
        amount.map(|amount| sum.saturating_add(amount))
    })
}

/// The positions that each node owns first.
fn owned(placement: &Placement) -> BTreeMap<&NodeId, u128> {
    let owned = |load: &clockwise_placement::Load| (&placement.node(load.node).id, load.amount);
    placement.balance().loads.iter().map(owned).collect()
}

/// Σ max(0, afterwards − before) over the copies that each node holds.
fn copies_least(sides: &Sides<'_>) -> f64 {
    let before = sides.before.balance_of_copies();
    let had = |id: &NodeId| {
        sides
            .before
            .index_of(id)
            .map_or(0, |node| before.loads[node.get()].amount)
    };
    let gains = |load: &clockwise_placement::Load| {
        load.amount
            .saturating_sub(had(&sides.after.node(load.node).id))
    };
    share_of(
        sides
            .after
            .balance_of_copies()
            .loads
            .iter()
            .map(gains)
            .sum(),
    )
}
