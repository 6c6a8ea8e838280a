//! What every node is to have, and why it is not even.

use alloc::vec::Vec;

use super::flow::Bounds;
use super::plan::Hint;
use super::table::Table;
use super::target::{Bound, Holder, Ratio, Targets, targets};
use crate::Placement;
use crate::placement::Roll;

/// What every node is to have.
pub(super) struct Shared {
    pub(super) targets: Targets,
    // By rank; nodes of weight 0 have nothing.
    pub(super) bounds: Vec<Bounds>,
}

impl Table<'_> {
    /// Every node's share, and the whole numbers next to it, widened by the allowed overload.
    pub(super) fn share(&self, overload_percent: u8) -> Shared {
        let targets = targets(
            &self.holders,
            self.topology,
            self.slots as u64,
            self.width as u64,
        );
        let mut bounds = alloc::vec![Bounds { least: 0, most: 0 }; self.members.len()];
        let scaled = |share: Ratio, percent: u128| Ratio {
            over: share.over * percent,
            under: share.under * 100,
        };
        let overload = u128::from(overload_percent);
        for (holder, &share) in self.holders.iter().zip(&targets.copies) {
            let least = scaled(share, 100 - overload.min(100)).floor() as usize;
            let most = (scaled(share, 100 + overload).ceil() as usize).min(self.slots);
            bounds[holder.node.get()] = Bounds { least, most };
        }
        Shared { targets, bounds }
    }

    /// The most loaded node's share over the part that its weight alone would give it.
    pub(super) fn over_mean(&self, targets: &Targets) -> f64 {
        let weights: u64 = self.holders.iter().map(|holder| holder.weight).sum();
        let copies = (self.slots * self.width) as f64;
        let loads = self.holders.iter().zip(&targets.copies);
        let over = loads.map(|(holder, share)| share.as_f64() / holder.weight as f64);
        over.fold(0.0, f64::max) * weights as f64 / copies
    }

    /// The newcomers without which the most loaded node would have no more.
    pub(super) fn newcomers_without_relief(
        &self,
        roll: &Roll,
        current: Option<&Placement>,
        shared: &Shared,
    ) -> Vec<Hint> {
        let Some(current) = current else {
            return Vec::new();
        };
        let peak = |holders: &[Holder], targets: &Targets| {
            let loads = holders.iter().zip(&targets.copies);
            let load = |(holder, share): (&Holder, &Ratio)| Ratio {
                over: share.over,
                under: share.under * u128::from(holder.weight),
            };
            loads.map(load).max_by(Ratio::compare)
        };
        let with = peak(&self.holders, &shared.targets);
        let mut hints = Vec::new();
        for newcomer in &self.holders {
            let id = &roll.members[newcomer.node.get()].id;
            let mut others = self.holders.clone();
            others.retain(|holder| holder.node != newcomer.node);
            if current.index_of(id).is_some() || others.len() < self.width {
                continue;
            }
            let without = targets(&others, self.topology, self.slots as u64, self.width as u64);
            let without = peak(&others, &without);
            if with
                .zip(without)
                .is_some_and(|(with, without)| with.compare(&without).is_ge())
            {
                hints.push(Hint::NoRelief { node: id.clone() });
            }
        }
        hints
    }
}

impl Shared {
    pub(super) fn hints(&self, roll: &Roll) -> Vec<Hint> {
        let hint = |bound: &Bound| {
            let levels = roll.members[bound.node.get()]
                .domain
                .levels()
                .take(bound.level + 1);
            let domain = levels.collect::<Vec<_>>().join("/");
            let copies = bound.copies;
            if bound.full {
                Hint::DomainFull { domain, copies }
            } else {
                Hint::DomainStrained { domain, copies }
            }
        };
        self.targets.bound.iter().map(hint).collect()
    }
}
