//! How many copies each node should hold: the best balance that weights and failure domains allow.
//!
//! Of P slots with R copies each, a node can hold at most P, and a domain at least and at most so many
//! copies of each slot as the widest spread gives it. Within those bounds load is poured like water: all
//! nodes fill at a pace given by their weights, and what is full stays full while the others rise. A
//! domain that is full, or that must take more than its weights ask for, is poured apart from the rest.
//!
//! This is the largest s with Σ over domains of min(kP, Σ over nodes of min(P, w/s)) ≥ RP, in exact
//! fractions and for nested domains. Whole numbers next to the result can always be met: the bounds are
//! laminar, so the rows that satisfy them are the bases of a matroid, and P bases add up to any whole
//! vector that lies in P times their hull.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

use crate::NodeIx;
use crate::topology::{Crowd, Topology};

/// A fraction of small whole numbers: at most 2^24 copies over the sum of all weights in hundredths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ratio {
    pub(crate) over: u128,
    pub(crate) under: u128,
}

impl Ratio {
    pub(crate) fn floor(self) -> u64 {
        u64::try_from(self.over / self.under).expect("no node holds more than all slots")
    }

    pub(crate) fn ceil(self) -> u64 {
        u64::try_from(self.over.div_ceil(self.under)).expect("no node holds more than all slots")
    }

    pub(crate) fn as_f64(self) -> f64 {
        self.over as f64 / self.under as f64
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        (self.over * other.under).cmp(&(other.over * self.under))
    }
}

/// A node that can hold copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) node: NodeIx,
    pub(crate) weight: u64,
}

/// The bounds of one domain, and what lies in it.
#[derive(Clone, Debug)]
struct Group {
    // Its holders, which stand next to each other.
    holders: Range<usize>,
    // Its domains one level further in; empty at the innermost level.
    inner: Range<usize>,
    // The fewest and the most copies of one slot that the widest spread puts here.
    least: u64,
    most: u64,
}

/// The share of each node, and which domains keep it from being even.
pub(crate) struct Targets {
    /// In the order of the holders as they were given.
    pub(crate) copies: Vec<Ratio>,
    /// A holder of each domain that is held at a bound, with the domain's level and the bound.
    pub(crate) bound: Vec<Bound>,
}

/// A domain whose share is set by the spread of replicas and not by its weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bound {
    /// Any node of the domain.
    pub(crate) node: NodeIx,
    /// The level of the domain, 0 being the outermost.
    pub(crate) level: usize,
    /// The copies of each slot that it holds.
    pub(crate) copies: u64,
    /// Whether its weight asks for more than that; otherwise for less.
    pub(crate) full: bool,
}

/// Shares out `slots` × `width` copies. There are at least `width` holders, and each has a weight.
pub(crate) fn targets(holders: &[Holder], topology: &Topology, slots: u64, width: u64) -> Targets {
    let mut order: Vec<usize> = (0..holders.len()).collect();
    order.sort_by_key(|&at| topology.path(holders[at].node));
    let sorted: Vec<Holder> = order.iter().map(|&at| holders[at]).collect();
    let mut water = Water {
        groups: Vec::new(),
        holders: sorted,
        slots: slots.into(),
    };
    water.groups.push(Group {
        holders: 0..holders.len(),
        inner: 0..0,
        least: width,
        most: width,
    });
    water.divide(0, 0, topology);
    water.bound(0, 0);
    let mut poured = Targets {
        copies: alloc::vec![Ratio { over: 0, under: 1 }; holders.len()],
        bound: Vec::new(),
    };
    let pace = water.pace_for(0, u128::from(width) * u128::from(slots));
    water.pour(0, 0, pace, &order, &mut poured);
    poured
}

struct Water {
    groups: Vec<Group>,
    holders: Vec<Holder>,
    slots: u128,
}

impl Water {
    /// Splits a group into its domains of a level and those within them.
    fn divide(&mut self, at: usize, level: usize, topology: &Topology) {
        if level == topology.depth() {
            return;
        }
        let all = self.groups[at].holders.clone();
        let first = self.groups.len();
        let domain = |holder: &Holder| topology.domain(holder.node, level);
        let mut start = all.start;
        for part in self.holders[all].chunk_by(|a, b| domain(a) == domain(b)) {
            let holders = start..start + part.len();
            start = holders.end;
            self.groups.push(Group {
                holders,
                inner: 0..0,
                least: 0,
                most: 0,
            });
        }
        let inner = first..self.groups.len();
        self.groups[at].inner = inner.clone();
        inner.for_each(|group| self.divide(group, level + 1, topology));
    }

    /// Sets the bounds of what lies in a group from its own.
    fn bound(&mut self, at: usize, level: usize) {
        let Group {
            inner, least, most, ..
        } = self.groups[at].clone();
        if inner.is_empty() {
            return;
        }
        let units: Vec<Vec<Crowd>> = inner
            .clone()
            .map(|group| self.units(group, level + 1, most))
            .collect();
        let (fewest, _) = spread(&units, level, least);
        let (_, most) = spread(&units, level, most);
        for (at, group) in inner.clone().enumerate() {
            (self.groups[group].least, self.groups[group].most) = (fewest[at], most[at]);
            self.bound(group, level + 1);
        }
    }

    /// The crowds that the first copies of a slot in a group meet one after the other, from `level` inwards.
    fn units(&self, at: usize, level: usize, copies: u64) -> Vec<Crowd> {
        let group = &self.groups[at];
        let copies = usize::try_from(copies).expect("at most 255 replicas");
        if group.inner.is_empty() {
            return alloc::vec![Crowd::default(); copies.min(group.holders.len())];
        }
        let inner = group
            .inner
            .clone()
            .map(|inner| self.units(inner, level + 1, copies as u64));
        let mut units: Vec<Crowd> = inner
            .flat_map(|units| counted(&units, level).collect::<Vec<_>>())
            .collect();
        units.sort_unstable();
        units.truncate(copies);
        units
    }

    /// What a group holds at a pace, times the pace's denominator, its own bounds left aside.
    fn level_at(&self, at: usize, pace: Ratio) -> u128 {
        let (fixed, rising) = self.piece_at(at, pace);
        fixed * pace.under + rising * pace.over
    }

    /// What in a group is fixed at a pace and the weight of what still rises with it.
    fn piece_at(&self, at: usize, pace: Ratio) -> (u128, u128) {
        let group = &self.groups[at];
        let add = |(a, b): (u128, u128), (c, d): (u128, u128)| (a + c, b + d);
        if group.inner.is_empty() {
            let holders = self.holders[group.holders.clone()].iter();
            let piece = holders.map(|holder| {
                let weight = u128::from(holder.weight);
                let full = pace.over * weight >= self.slots * pace.under;
                if full { (self.slots, 0) } else { (0, weight) }
            });
            return piece.fold((0, 0), add);
        }
        group
            .inner
            .clone()
            .map(|inner| self.bounded_piece_at(inner, pace))
            .fold((0, 0), add)
    }

    fn bounded_piece_at(&self, at: usize, pace: Ratio) -> (u128, u128) {
        let (least, most) = self.bounds(at);
        let (fixed, rising) = self.piece_at(at, pace);
        let level = fixed * pace.under + rising * pace.over;
        if level < least * pace.under {
            (least, 0)
        } else if level >= most * pace.under {
            (most, 0)
        } else {
            (fixed, rising)
        }
    }

    /// The fewest and the most copies that a group holds over all slots.
    fn bounds(&self, at: usize) -> (u128, u128) {
        let group = &self.groups[at];
        (
            u128::from(group.least) * self.slots,
            u128::from(group.most) * self.slots,
        )
    }

    /// The smallest pace at which a group holds so much, its own bounds left aside.
    fn pace_for(&self, at: usize, copies: u128) -> Ratio {
        let mut bends = Vec::new();
        self.bends(at, &mut bends);
        bends.sort_unstable_by(Ratio::compare);
        let below = bends.partition_point(|&pace| self.level_at(at, pace) < copies * pace.under);
        // From the last bend below on, the level is a straight line until it is reached.
        let from = below
            .checked_sub(1)
            .map_or(Ratio { over: 0, under: 1 }, |last| bends[last]);
        let (fixed, rising) = self.piece_at(at, from);
        if rising == 0 {
            return from;
        }
        Ratio {
            over: copies.saturating_sub(fixed),
            under: rising,
        }
    }

    /// The paces at which something in a group becomes full or begins to rise.
    fn bends(&self, at: usize, bends: &mut Vec<Ratio>) {
        let group = &self.groups[at];
        if group.inner.is_empty() {
            let full = |holder: &Holder| Ratio {
                over: self.slots,
                under: holder.weight.into(),
            };
            bends.extend(self.holders[group.holders.clone()].iter().map(full));
        }
        for inner in group.inner.clone() {
            let (least, most) = self.bounds(inner);
            bends.extend([self.pace_for(inner, least), self.pace_for(inner, most)]);
            self.bends(inner, bends);
        }
    }

    /// Gives every node of a group its share at a pace.
    fn pour(&self, at: usize, level: usize, pace: Ratio, order: &[usize], poured: &mut Targets) {
        let group = &self.groups[at];
        if group.inner.is_empty() {
            for rank in group.holders.clone() {
                let weight = u128::from(self.holders[rank].weight);
                let share = Ratio {
                    over: pace.over * weight,
                    under: pace.under,
                };
                let full = Ratio {
                    over: self.slots,
                    under: 1,
                };
                poured.copies[order[rank]] = if share.compare(&full).is_lt() {
                    share
                } else {
                    full
                };
            }
        }
        for inner in group.inner.clone() {
            let (least, most) = self.bounds(inner);
            let asked = self.level_at(inner, pace);
            let held = if asked < least * pace.under {
                least
            } else if asked > most * pace.under {
                most
            } else {
                self.pour(inner, level + 1, pace, order, poured);
                continue;
            };
            // Beside the mean over all nodes, since what is forced has no pace of its own.
            let of_all = held * self.weight_of(0);
            let by_weight = u128::from(self.groups[0].most) * self.slots * self.weight_of(inner);
            if of_all != by_weight {
                let node = self.holders[self.groups[inner].holders.start].node;
                let copies = u64::try_from(held / self.slots).expect("at most 255 replicas");
                poured.bound.push(Bound {
                    node,
                    level,
                    copies,
                    full: of_all < by_weight,
                });
            }
            self.pour(inner, level + 1, self.pace_for(inner, held), order, poured);
        }
    }

    fn weight_of(&self, at: usize) -> u128 {
        let holders = &self.holders[self.groups[at].holders.clone()];
        holders.iter().map(|holder| u128::from(holder.weight)).sum()
    }
}

/// The crowds that the copies in one part meet, with the copies before them in that part counted in.
fn counted(units: &[Crowd], level: usize) -> impl Iterator<Item = Crowd> {
    (0..).zip(units).map(move |(before, unit)| {
        let mut crowd = *unit;
        crowd[level] = before;
        crowd
    })
}

/// The fewest and the most copies that the widest spread of `copies` puts into each of some parts.
///
/// The walk takes the smallest crowds. Up to the last one it takes, all are taken for certain; of several
/// that are as large as the last, any may be.
fn spread(parts: &[Vec<Crowd>], level: usize, copies: u64) -> (Vec<u64>, Vec<u64>) {
    let mut all: Vec<Crowd> = parts
        .iter()
        .flat_map(|units| counted(units, level).collect::<Vec<_>>())
        .collect();
    all.sort_unstable();
    let copies = usize::try_from(copies).expect("at most 255 replicas");
    let Some(last) = copies.checked_sub(1).map(|last| all[last]) else {
        return (alloc::vec![0; parts.len()], alloc::vec![0; parts.len()]);
    };
    let count = |holds: &dyn Fn(Crowd) -> bool| -> Vec<u64> {
        let of =
            |units: &Vec<Crowd>| counted(units, level).filter(|&crowd| holds(crowd)).count() as u64;
        parts.iter().map(of).collect()
    };
    let most = count(&|crowd| crowd <= last);
    let certain = all.get(copies) != Some(&last);
    let fewest = if certain {
        most.clone()
    } else {
        count(&|crowd| crowd < last)
    };
    (fewest, most)
}
