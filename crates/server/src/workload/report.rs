//! What a workload saw, for people and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::fault::{Fault, FaultKind};
use super::tally::{ErrorCount, Tally};

/// So many faults are described; all are counted.
const FAULTS_DESCRIBED_MAX: usize = 20;

/// What a workload saw.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// With which its choices were made.
    pub seed: u64,
    /// How requests were made: as soon as there was room, or at fixed times.
    #[serde(rename = "loop")]
    pub pacing: Pacing,
    /// How long the load ran.
    pub seconds: f64,
    /// How many connections made it.
    pub connections: usize,
    /// On how many keys.
    pub keys: usize,
    /// Writes that were acknowledged, direct writers' not included.
    pub acknowledged_writes: u64,
    /// Reads that were answered, each checked.
    pub reads: u64,
    /// Writes of which nobody knows whether they were executed.
    pub unknown_writes: u64,
    /// Writes that certainly were not executed.
    pub refused_writes: u64,
    /// Connections that were made; more than `connections` where some broke.
    pub connects: u64,
    /// Keys with a fault, by the first that was seen on them.
    pub faults: FaultCounts,
    /// Keys that the audit at the end read, through the address of the workload.
    pub keys_audited: usize,
    /// Keys that it could not read: nothing is known about their last state.
    pub keys_not_audited: usize,
    /// Errors by code word, or `connection`, `closed`, `timeout`, `protocol`, `denied`.
    pub errors: BTreeMap<String, ErrorCount>,
    /// Latency of reads.
    pub read_latency: Latency,
    /// Latency of writes.
    pub write_latency: Latency,
    /// How late timers of the workload's own made a request at most; latencies leave that out.
    pub own_delay_us_max: u64,
    /// What direct writers did.
    pub direct: Vec<DirectReport>,
    /// The first of the faults in full.
    pub described: Vec<Fault>,
}

/// How requests were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Pacing {
    /// Each as soon as there was room for it. Its latencies leave out the requests that a stalled
    /// server kept from being made.
    Closed,
    /// At fixed times, from which latencies count.
    Open {
        /// Requests a second.
        rate: u64,
    },
}

/// Keys with faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct FaultCounts {
    /// See [`FaultKind::Lost`].
    pub lost: u64,
    /// See [`FaultKind::Stale`].
    pub stale: u64,
    /// See [`FaultKind::Resurrected`].
    pub resurrected: u64,
    /// See [`FaultKind::WrongTtl`].
    pub wrong_ttl: u64,
    /// See [`FaultKind::Corrupt`].
    pub corrupt: u64,
    /// See [`FaultKind::Duplicated`].
    pub duplicated: u64,
    /// See [`FaultKind::Phantom`].
    pub phantom: u64,
}

impl FaultCounts {
    /// Of one kind.
    #[must_use]
    pub fn of(&self, kind: FaultKind) -> u64 {
        match kind {
            FaultKind::Lost => self.lost,
            FaultKind::Stale => self.stale,
            FaultKind::Resurrected => self.resurrected,
            FaultKind::WrongTtl => self.wrong_ttl,
            FaultKind::Corrupt => self.corrupt,
            FaultKind::Duplicated => self.duplicated,
            FaultKind::Phantom => self.phantom,
        }
    }

    /// Of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        FaultKind::ALL.iter().map(|kind| self.of(*kind)).sum()
    }

    pub(super) fn count(faults: &[Fault]) -> FaultCounts {
        let of = |kind: FaultKind| {
            let count = faults.iter().filter(|fault| fault.kind == kind).count();
            u64::try_from(count).unwrap_or(u64::MAX)
        };
        FaultCounts {
            lost: of(FaultKind::Lost),
            stale: of(FaultKind::Stale),
            resurrected: of(FaultKind::Resurrected),
            wrong_ttl: of(FaultKind::WrongTtl),
            corrupt: of(FaultKind::Corrupt),
            duplicated: of(FaultKind::Duplicated),
            phantom: of(FaultKind::Phantom),
        }
    }
}

/// Latencies in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Half of them took at most this.
    pub p50_us: u64,
    /// 90 of 100.
    pub p90_us: u64,
    /// 99 of 100.
    pub p99_us: u64,
    /// 999 of 1,000.
    pub p999_us: u64,
    /// The slowest.
    pub max_us: u64,
}

impl From<&Histogram<u64>> for Latency {
    fn from(histogram: &Histogram<u64>) -> Self {
        Latency {
            count: histogram.len(),
            p50_us: histogram.value_at_quantile(0.5),
            p90_us: histogram.value_at_quantile(0.9),
            p99_us: histogram.value_at_quantile(0.99),
            p999_us: histogram.value_at_quantile(0.999),
            max_us: histogram.max(),
        }
    }
}

/// What a direct writer did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DirectReport {
    /// To which server.
    pub addr: String,
    /// On how many keys.
    pub keys: usize,
    /// Writes that the server acknowledged.
    pub acknowledged_writes: u64,
    /// Writes of which nobody knows whether they were executed.
    pub unknown_writes: u64,
    /// Writes that certainly were not executed.
    pub refused_writes: u64,
    /// Connections that were let in.
    pub connects: u64,
    /// Errors by code word or kind.
    pub errors: BTreeMap<String, ErrorCount>,
}

impl DirectReport {
    pub(super) fn new(addr: String, keys: usize, tally: Tally) -> DirectReport {
        DirectReport {
            addr,
            keys,
            acknowledged_writes: tally.acknowledged,
            unknown_writes: tally.unknown,
            refused_writes: tally.not_executed,
            connects: tally.connects,
            errors: tally.errors,
        }
    }
}

pub(super) fn described(faults: Vec<Fault>) -> Vec<Fault> {
    let mut faults = faults;
    faults.sort_by_key(|fault| fault.at_ms);
    faults.truncate(FAULTS_DESCRIBED_MAX);
    faults
}

impl Report {
    /// Nothing wrong was seen, and all keys were read at the end.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.total() == 0 && self.keys_not_audited == 0
    }

    /// Errors after which the same request may have succeeded a moment later.
    #[must_use]
    pub fn retryable_errors(&self) -> u64 {
        self.errors
            .values()
            .filter(|error| error.retryable)
            .map(|error| error.count)
            .sum()
    }

    /// All other errors.
    #[must_use]
    pub fn other_errors(&self) -> u64 {
        self.errors
            .values()
            .filter(|error| !error.retryable)
            .map(|error| error.count)
            .sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pacing = match self.pacing {
            Pacing::Closed => {
                "closed loop (no rate given: latencies leave out what a stall kept from being sent)"
                    .to_owned()
            }
            Pacing::Open { rate } => format!("open loop at {rate} requests/s"),
        };
        let (connections, keys, seed) = (self.connections, self.keys, self.seed);
        writeln!(
            f,
            "{pacing}, {connections} connections, {keys} keys, seed {seed}"
        )?;
        let answered = self.acknowledged_writes + self.reads;
        // Far below 2^53.
        let rate = answered as f64 / self.seconds.max(f64::MIN_POSITIVE);
        writeln!(f, "{:.1} s, {rate:.0} answered/s", self.seconds)?;
        writeln!(
            f,
            "writes     {} acknowledged, {} unknown, {} not executed",
            self.acknowledged_writes, self.unknown_writes, self.refused_writes
        )?;
        writeln!(f, "reads      {} checked", self.reads)?;
        write!(f, "faults    ")?;
        for kind in FaultKind::ALL {
            write!(f, " {} {kind}", self.faults.of(kind))?;
        }
        writeln!(f, " (keys)")?;
        writeln!(
            f,
            "audit      {} keys read, {} not",
            self.keys_audited, self.keys_not_audited
        )?;
        write_latency(f, "read ", &self.read_latency)?;
        write_latency(f, "write", &self.write_latency)?;
        if let Pacing::Open { .. } = self.pacing {
            writeln!(
                f,
                "own delay µs max {} (not in the latencies)",
                self.own_delay_us_max
            )?;
        }
        for (kind, error) in &self.errors {
            let retryable = if error.retryable {
                "retryable"
            } else {
                "not retryable"
            };
            writeln!(f, "error      {} {kind} ({retryable})", error.count)?;
        }
        for direct in &self.direct {
            writeln!(
                f,
                "direct     {}: {} acknowledged, {} unknown, {} not executed",
                direct.addr,
                direct.acknowledged_writes,
                direct.unknown_writes,
                direct.refused_writes
            )?;
        }
        for fault in &self.described {
            writeln!(
                f,
                "{:<10} {}: {}",
                fault.kind.name(),
                fault.key,
                fault.detail
            )?;
        }
        Ok(())
    }
}

fn write_latency(f: &mut fmt::Formatter<'_>, name: &str, latency: &Latency) -> fmt::Result {
    let Latency {
        p50_us,
        p90_us,
        p99_us,
        p999_us,
        max_us,
        ..
    } = latency;
    writeln!(
        f,
        "{name} µs   p50 {p50_us}  p90 {p90_us}  p99 {p99_us}  p99.9 {p999_us}  max {max_us}"
    )
}
