//! Points in time of a workload, and what happened between two of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ledger::Ledger;

/// What had been acknowledged at one moment, key by key.
#[derive(Debug, Clone)]
pub struct Mark {
    pub(super) ledger: Arc<Ledger>,
    pub(super) at: Instant,
    pub(super) acknowledged: u64,
    pub(super) reads: u64,
    pub(super) per_key: Vec<u32>,
}

/// What was acknowledged and read between two marks. Direct writers are not counted.
#[derive(Debug)]
pub struct Span<'a> {
    from: &'a Mark,
    to: &'a Mark,
}

impl Mark {
    /// When it was set.
    #[must_use]
    pub fn at(&self) -> Instant {
        self.at
    }

    /// From an earlier mark of the same workload to this one.
    #[must_use]
    pub fn since<'a>(&'a self, earlier: &'a Mark) -> Span<'a> {
        Span {
            from: earlier,
            to: self,
        }
    }
}

impl Span<'_> {
    /// How long it was.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.to.at - self.from.at
    }

    /// Writes that were acknowledged.
    #[must_use]
    pub fn acknowledged_writes(&self) -> u64 {
        self.to.acknowledged - self.from.acknowledged
    }

    /// Reads that were answered.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.to.reads - self.from.reads
    }

    /// Acknowledged writes a second; 0 for an empty span.
    #[must_use]
    pub fn acknowledged_writes_per_second(&self) -> f64 {
        let seconds = self.duration().as_secs_f64();
        // Far below 2^53.
        let writes = self.acknowledged_writes() as f64;
        if seconds > 0.0 { writes / seconds } else { 0.0 }
    }

    /// Acknowledged writes on keys whose name is chosen, such as those that move.
    #[must_use]
    pub fn acknowledged_writes_on(&self, chosen: impl Fn(&[u8]) -> bool) -> u64 {
        let pairs = self.from.per_key.iter().zip(&self.to.per_key);
        let counted = pairs.enumerate().filter(|(_, (from, to))| from != to);
        counted
            .filter(|(key, _)| chosen(self.to.ledger.name(*key).as_bytes()))
            .map(|(_, (from, to))| u64::from(to - from))
            .sum()
    }
}
