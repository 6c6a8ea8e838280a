//! Counts and latencies of one client, added up over all at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::answer::Refusal;
use super::history::Outcome;

/// Digits.
const PRECISION: u8 = 3;
/// An hour; what took longer counts as this.
const LATENCY_US_MAX: u64 = 3_600_000_000;

#[derive(Debug)]
pub(super) struct Tally {
    pub(super) acknowledged: u64,
    pub(super) reads: u64,
    pub(super) not_executed: u64,
    pub(super) unknown: u64,
    pub(super) connects: u64,
    pub(super) errors: BTreeMap<String, ErrorCount>,
    pub(super) read_us: Histogram<u64>,
    pub(super) write_us: Histogram<u64>,
    /// The longest delay of our own that latencies leave out.
    pub(super) own_delay_max: Duration,
}

/// How often an error came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct ErrorCount {
    /// So often.
    pub count: u64,
    /// Whether the same request may succeed in a moment: it was not executed, or changed nothing.
    pub retryable: bool,
}

impl Tally {
    pub(super) fn new() -> Tally {
        Tally {
            acknowledged: 0,
            reads: 0,
            not_executed: 0,
            unknown: 0,
            connects: 0,
            errors: BTreeMap::new(),
            read_us: histogram(),
            write_us: histogram(),
            own_delay_max: Duration::ZERO,
        }
    }

    pub(super) fn answers(&self) -> u64 {
        self.acknowledged + self.reads
    }

    pub(super) fn settled(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Acknowledged => self.acknowledged += 1,
            Outcome::NotExecuted => self.not_executed += 1,
            Outcome::Unknown | Outcome::InFlight => self.unknown += 1,
        }
    }

    pub(super) fn refused(&mut self, refusal: &Refusal) {
        self.error(&refusal.kind, refusal.retryable);
    }

    pub(super) fn error(&mut self, kind: &str, retryable: bool) {
        let error = self.errors.entry(kind.to_owned()).or_default();
        error.count += 1;
        error.retryable = retryable;
    }

    pub(super) fn delayed(&mut self, own_delay: Duration) {
        self.own_delay_max = self.own_delay_max.max(own_delay);
    }

    pub(super) fn read_took(&mut self, duration: Duration) {
        self.read_us.saturating_record(micros(duration));
    }

    pub(super) fn write_took(&mut self, duration: Duration) {
        self.write_us.saturating_record(micros(duration));
    }

    pub(super) fn add(&mut self, other: &Tally) {
        self.acknowledged += other.acknowledged;
        self.reads += other.reads;
        self.not_executed += other.not_executed;
        self.unknown += other.unknown;
        self.connects += other.connects;
        self.own_delay_max = self.own_delay_max.max(other.own_delay_max);
        for (kind, error) in &other.errors {
            let sum = self.errors.entry(kind.clone()).or_default();
            sum.count += error.count;
            sum.retryable = error.retryable;
        }
        self.read_us
            .add(&other.read_us)
            .expect("both have the same bounds");
        self.write_us
            .add(&other.write_us)
            .expect("both have the same bounds");
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, PRECISION).expect("these bounds are possible")
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros())
        .unwrap_or(u64::MAX)
        .max(1)
}
