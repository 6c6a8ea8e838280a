//! How replicas lie on failure domains, and how much each domain carries.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use crate::balance::ratio;
use crate::interval::share_of_circle;
use crate::{NodeIx, Placement};

/// How well one level of the domains separates the replicas of a position.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dispersion {
    /// The level, 0 being the outermost.
    pub level: usize,
    /// How many domains it has.
    pub domains: usize,
    /// The share of positions whose replicas are all in different domains.
    pub distinct_share: f64,
    /// The most replicas of one position in one domain.
    pub worst: usize,
}

/// What one failure domain carries.
#[derive(Clone, PartialEq, Debug)]
pub struct DomainLoad {
    /// Its path.
    pub domain: String,
    /// How many nodes stand in it.
    pub nodes: usize,
    /// The part of all weight.
    pub weight_share: f64,
    /// The part of the circle that its nodes own first.
    pub primaries_share: f64,
    /// The part of all copies that its nodes hold.
    pub copies_share: f64,
}

impl Placement {
    /// How well each level of the domains separates replicas, outermost first. O(points × replicas²).
    #[must_use]
    pub fn dispersion(&self) -> Vec<Dispersion> {
        (0..self.topology.depth())
            .map(|level| self.dispersion_of(level))
            .collect()
    }

    fn dispersion_of(&self, level: usize) -> Dispersion {
        let (mut distinct, mut worst) = (0, 1);
        for (interval, owners) in self.intervals() {
            let domain = |node: &NodeIx| self.topology.domain(*node, level);
            let together = |node: &NodeIx| {
                owners
                    .iter()
                    .filter(|other| domain(other) == domain(node))
                    .count()
            };
            let most = owners.iter().map(together).max().unwrap_or(1);
            worst = worst.max(most);
            distinct += if most == 1 { interval.len() } else { 0 };
        }
        let all: Vec<NodeIx> = (0..self.nodes().len()).map(NodeIx::of).collect();
        let mut domains: Vec<u16> = all
            .iter()
            .map(|&node| self.topology.domain(node, level))
            .collect();
        domains.sort_unstable();
        domains.dedup();
        Dispersion {
            level,
            domains: domains.len(),
            distinct_share: share_of_circle(distinct),
            worst,
        }
    }

    /// What each domain of a level carries, by path. Empty where the members have no such level.
    #[must_use]
    pub fn domain_loads(&self, level: usize) -> Vec<DomainLoad> {
        if level >= self.topology.depth() {
            return Vec::new();
        }
        let (primaries, copies) = (self.balance(), self.balance_of_copies());
        let weights: u64 = self
            .nodes()
            .iter()
            .map(|node| u64::from(node.weight.hundredths()))
            .sum();
        let mut loads: Vec<DomainLoad> = Vec::new();
        for (rank, member) in self.nodes().iter().enumerate() {
            let levels: Vec<&str> = member.domain.levels().take(level + 1).collect();
            let domain = levels.join("/");
            let at = loads
                .iter()
                .position(|load| load.domain == domain)
                .unwrap_or_else(|| {
                    loads.push(DomainLoad {
                        domain: domain.to_owned(),
                        nodes: 0,
                        weight_share: 0.0,
                        primaries_share: 0.0,
                        copies_share: 0.0,
                    });
                    loads.len() - 1
                });
            loads[at].nodes += 1;
            loads[at].weight_share += ratio(f64::from(member.weight.hundredths()), weights as f64);
            loads[at].primaries_share += primaries.loads[rank].share;
            loads[at].copies_share += copies.loads[rank].share;
        }
        loads.sort_by(|a, b| a.domain.cmp(&b.domain));
        loads
    }
}
