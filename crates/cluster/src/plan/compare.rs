//! The pool before and afterwards: nodes, balance, domains, what a loss would mean.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use clockwise_placement::{Balance, Load, NodeId, Placement, expected_cv};

use super::{
    Evenness, Fate, Held, Missing, PlannedDomain, PlannedLoss, PlannedNode, PlannedSlots, Sides,
};
use crate::draft::Draft;
use crate::generator::{Generator, Outlook};
use crate::layout::{Layout, Seat};

pub(super) fn nodes(
    sides: &Sides<'_>,
    draft: &Draft,
    held: &BTreeMap<NodeId, Held>,
) -> Vec<PlannedNode> {
    let before = by_id(&sides.before, &sides.before.balance());
    let after = by_id(&sides.after, &sides.after.balance());
    let held_before = by_id(&sides.before, &sides.before.balance_of_copies());
    let held_after = by_id(&sides.after, &sides.after.balance_of_copies());
    let mut seats: BTreeMap<&NodeId, &Seat> = BTreeMap::new();
    for seat in sides
        .layout_before
        .members
        .iter()
        .chain(&sides.layout_after.members)
    {
        seats.insert(&seat.id, seat);
    }
    let node = |(&id, &seat): (&&NodeId, &&Seat)| {
        let (was, is) = (before.get(id), after.get(id));
        PlannedNode {
            id: id.clone(),
            fate: match (was, is) {
                (None, _) => Fate::Joins,
                (Some(_), Some(_)) => Fate::Stays,
                (Some(_), None) if draft.lost.contains_key(id) => Fate::Lost,
                (Some(_), None) => Fate::Leaves,
            },
            weight: seat.weight,
            domain: seat.domain.clone(),
            share_before: was.map_or(0.0, |load| load.share),
            share_after: is.map_or(0.0, |load| load.share),
            over_mean_before: held_before.get(id).map_or(0.0, |load| load.over_mean),
            over_mean_after: held_after.get(id).map_or(0.0, |load| load.over_mean),
            copies_before: held_before.get(id).map_or(0.0, |load| load.share),
            copies_after: held_after.get(id).map_or(0.0, |load| load.share),
            keys: held.get(id).map(|held| held.keys),
        }
    };
    seats.iter().map(node).collect()
}

fn by_id<'a>(placement: &'a Placement, balance: &Balance) -> BTreeMap<&'a NodeId, Load> {
    let id = |load: &Load| &placement.node(load.node).id;
    balance.loads.iter().map(|load| (id(load), *load)).collect()
}

pub(super) fn evenness(placement: &Placement, layout: &Layout) -> Evenness {
    let cv_expected = match layout.generator {
        Generator::Ring { .. } => {
            let nodes = placement.nodes().len();
            Some(expected_cv(nodes, placement.point_count() / nodes))
        }
        Generator::Slots { .. } => None,
    };
    Evenness {
        cv_expected,
        ..evenness_of(&placement.balance())
    }
}

pub(super) fn evenness_of_copies(placement: &Placement) -> Option<Evenness> {
    (placement.replicas_wanted() > 1).then(|| evenness_of(&placement.balance_of_copies()))
}

fn evenness_of(balance: &Balance) -> Evenness {
    Evenness {
        max_over_mean: balance.max_over_mean,
        min_over_mean: balance.min_over_mean,
        cv: balance.cv,
        cv_expected: None,
    }
}

/// What the slots afterwards could be at best; none where none were planned.
pub(super) fn slots(layout: &Layout, outlook: Option<&Outlook>) -> Option<PlannedSlots> {
    match (&layout.generator, outlook) {
        (Generator::Slots { slots, .. }, Some(outlook)) => Some(PlannedSlots {
            slots: *slots,
            optimum_over_mean: outlook.optimum_over_mean,
            copies_left: outlook.copies_left,
        }),
        _ => None,
    }
}

/// Every domain of every level on either side.
pub(super) fn domains(sides: &Sides<'_>) -> Vec<PlannedDomain> {
    let (before, after) = (
        shares_by_domain(&sides.before),
        shares_by_domain(&sides.after),
    );
    let mut paths: Vec<&(usize, String)> = before.keys().chain(after.keys()).collect();
    paths.sort();
    paths.dedup();
    let domain = |key: &(usize, String)| {
        let nothing = (0, 0.0);
        let (_, share_before) = before.get(key).unwrap_or(&nothing);
        let (nodes, share_after) = after.get(key).unwrap_or(&nothing);
        PlannedDomain {
            path: key.1.clone(),
            nodes: *nodes,
            share_before: *share_before,
            share_after: *share_after,
        }
    };
    paths.into_iter().map(domain).collect()
}

/// For each domain, by depth and path, its nodes and the part of all copies it holds.
fn shares_by_domain(placement: &Placement) -> BTreeMap<(usize, String), (u64, f64)> {
    let mut shares: BTreeMap<(usize, String), (u64, f64)> = BTreeMap::new();
    for load in placement.balance_of_copies().loads {
        let mut path = String::new();
        for (level, name) in placement.node(load.node).domain.levels().enumerate() {
            if level > 0 {
                path.push('/');
            }
            path.push_str(name);
            let entry = shares.entry((level, path.clone())).or_default();
            entry.0 += 1;
            entry.1 += load.share;
        }
    }
    shares
}

pub(super) fn losses(placement: &Placement) -> Vec<PlannedLoss> {
    let losses = placement.losses();
    let loss = |loss: &clockwise_placement::Loss| PlannedLoss {
        node: placement.node(loss.node).id.clone(),
        heirs: u64::try_from(loss.heirs).unwrap_or(u64::MAX),
        worst: loss.worst.map(|worst| placement.node(worst).id.clone()),
        worst_over_mean: loss.worst_over_mean,
    };
    losses.iter().map(loss).collect()
}

/// The worst that is missing at any position.
pub(super) fn missing(placement: &Placement) -> Missing {
    let depth = placement
        .nodes()
        .first()
        .map_or(0, |member| member.domain.depth());
    let mut missing = Missing {
        nodes: 0,
        domains: alloc::vec![0; depth],
    };
    if placement.replicas_wanted() == 1 {
        return missing;
    }
    for (interval, _) in placement.intervals() {
        let shortfall = placement.shortfall_at(interval.through);
        missing.nodes = missing.nodes.max(shortfall.nodes);
        for (worst, here) in missing.domains.iter_mut().zip(shortfall.domains) {
            *worst = (*worst).max(here);
        }
    }
    missing
}
