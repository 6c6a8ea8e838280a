//! How fast a copy may go: keys and bytes per second, with time passed in.
//!
//! Two token buckets. Over any window of one second no more than the limit of keys passes, and no
//! more than the limit of bytes plus what the last batch held beyond its estimate, which is paid back
//! before the next one. Both limits can be changed at any moment. Cost: a few additions per batch.

/// Part of a limit that may pass at once: a twentieth. The rest of the second runs at 95 %, so that
/// burst and flow together never exceed the limit within one second.
const BURST_PARTS: u64 = 20;
const FLOW_PERCENT: u64 = 95;

/// Limits in force; `None` is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rate {
    /// Keys read from sources per second.
    pub keys_per_second: Option<u64>,
    /// Bytes of values read from sources per second.
    pub bytes_per_second: Option<u64>,
}

/// What a copy may take now and when it may take more.
///
/// ```
/// use clockwise_cluster::copier::{Rate, Throttle};
/// let rate = Rate { keys_per_second: Some(100), bytes_per_second: None };
/// let mut throttle = Throttle::new(rate, 0);
/// assert_eq!(throttle.keys_allowed(0), 5);
/// throttle.spend(5, 5_000);
/// assert_eq!(throttle.keys_allowed(0), 0);
/// assert_eq!(throttle.ready_at(0), 11);
/// ```
#[derive(Clone, Debug)]
pub struct Throttle {
    keys: Bucket,
    bytes: Bucket,
}

impl Throttle {
    /// Full buckets at `now_ms`.
    #[must_use]
    pub fn new(rate: Rate, now_ms: u64) -> Self {
        Self {
            keys: Bucket::new(rate.keys_per_second, now_ms),
            bytes: Bucket::new(rate.bytes_per_second, now_ms),
        }
    }

    /// Other limits from now on; what was saved up or owed under the old ones is kept within the new burst.
    pub fn set(&mut self, rate: Rate, now_ms: u64) {
        self.keys.set(rate.keys_per_second, now_ms);
        self.bytes.set(rate.bytes_per_second, now_ms);
    }

    /// The limits in force.
    #[must_use]
    pub fn rate(&self) -> Rate {
        Rate {
            keys_per_second: self.keys.limit,
            bytes_per_second: self.bytes.limit,
        }
    }

    /// How many keys may be read now; 0 also while bytes are owed.
    pub fn keys_allowed(&mut self, now_ms: u64) -> u64 {
        if self.bytes.available(now_ms) == 0 {
            0
        } else {
            self.keys.available(now_ms)
        }
    }

    /// How many bytes may be read now.
    pub fn bytes_allowed(&mut self, now_ms: u64) -> u64 {
        self.bytes.available(now_ms)
    }

    /// Takes keys and bytes out, below zero if need be.
    pub fn spend(&mut self, keys: u64, bytes: u64) {
        self.keys.spend(keys);
        self.bytes.spend(bytes);
    }

    /// Puts back bytes that a batch was estimated to hold and did not.
    pub fn refund_bytes(&mut self, bytes: u64) {
        self.bytes.refund(bytes);
    }

    /// The first millisecond, not before `now_ms`, at which a key may be read.
    #[must_use]
    pub fn ready_at(&self, now_ms: u64) -> u64 {
        self.keys.ready_at(now_ms).max(self.bytes.ready_at(now_ms))
    }
}

/// A token in the unit that buckets count in, which makes the flow of a millisecond a whole number.
const TOKEN: i64 = 100_000;

#[derive(Clone, Debug)]
struct Bucket {
    limit: Option<u64>,
    // Invariant: at most the burst. In units of 1 / TOKEN.
    level: i64,
    filled_at_ms: u64,
}

impl Bucket {
    fn new(limit: Option<u64>, now_ms: u64) -> Self {
        Self {
            limit,
            level: Self::burst(limit),
            filled_at_ms: now_ms,
        }
    }

    fn set(&mut self, limit: Option<u64>, now_ms: u64) {
        self.fill(now_ms);
        let burst = Self::burst(limit);
        self.level = if self.limit.is_none() {
            burst
        } else {
            self.level.min(burst)
        };
        self.limit = limit;
    }

    fn burst(limit: Option<u64>) -> i64 {
        in_units((limit.unwrap_or(0) / BURST_PARTS).max(1))
    }

    /// Units that flow in per millisecond.
    fn flow(limit: u64) -> u64 {
        limit.saturating_mul(FLOW_PERCENT).max(1)
    }

    fn fill(&mut self, now_ms: u64) {
        let elapsed_ms = now_ms.saturating_sub(self.filled_at_ms);
        self.filled_at_ms = now_ms.max(self.filled_at_ms);
        if let Some(limit) = self.limit {
            let inflow =
                i64::try_from(Self::flow(limit).saturating_mul(elapsed_ms)).unwrap_or(i64::MAX);
            self.level = self
                .level
                .saturating_add(inflow)
                .min(Self::burst(self.limit));
        }
    }

    fn available(&mut self, now_ms: u64) -> u64 {
        if self.limit.is_none() {
            return u64::MAX;
        }
        self.fill(now_ms);
        u64::try_from(self.level / TOKEN).unwrap_or(0)
    }

    fn spend(&mut self, tokens: u64) {
        if self.limit.is_some() {
            self.level = self.level.saturating_sub(in_units(tokens));
        }
    }

    fn refund(&mut self, tokens: u64) {
        if self.limit.is_some() {
            self.level = self
                .level
                .saturating_add(in_units(tokens))
                .min(Self::burst(self.limit));
        }
    }

    fn ready_at(&self, now_ms: u64) -> u64 {
        match (self.limit, u64::try_from(TOKEN.saturating_sub(self.level))) {
            (Some(limit), Ok(missing)) => self
                .filled_at_ms
                .saturating_add(missing.div_ceil(Self::flow(limit)))
                .max(now_ms),
            _ => now_ms,
        }
    }
}

fn in_units(tokens: u64) -> i64 {
    i64::try_from(tokens)
        .unwrap_or(i64::MAX)
        .saturating_mul(TOKEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn keys(limit: u64) -> Rate {
        Rate {
            keys_per_second: Some(limit),
            bytes_per_second: None,
        }
    }

    /// Takes whatever is allowed at every millisecond and returns when each key passed.
    fn greedy(throttle: &mut Throttle, from_ms: u64, through_ms: u64) -> Vec<u64> {
        let mut passed = Vec::new();
        for now_ms in from_ms..=through_ms {
            let allowed = throttle.keys_allowed(now_ms);
            throttle.spend(allowed, 0);
            passed.extend((0..allowed).map(|_| now_ms));
        }
        passed
    }

    fn most_in_one_second(passed: &[u64]) -> u64 {
        let window = |&start: &u64| {
            passed
                .iter()
                .filter(|&&at| (start..start + 1000).contains(&at))
                .count() as u64
        };
        passed.iter().map(window).max().unwrap_or(0)
    }

    #[test]
    fn no_second_sees_more_keys_than_the_limit_and_most_of_the_limit_is_used() {
        for limit in [1, 2, 3, 10, 19, 20, 21, 100, 333] {
            let mut throttle = Throttle::new(keys(limit), 0);
            let passed = greedy(&mut throttle, 0, 10_000);
            assert!(most_in_one_second(&passed) <= limit, "limit {limit}");
            assert!(
                passed.len() as u64 >= limit * 9,
                "limit {limit}: {} keys in 10 s",
                passed.len()
            );
        }
    }

    #[test]
    fn a_limit_set_while_copying_holds_from_that_moment() {
        let mut throttle = Throttle::new(Rate::default(), 0);
        assert_eq!(throttle.keys_allowed(5), u64::MAX);
        throttle.spend(1_000_000, 1_000_000);
        throttle.set(keys(100), 1_000);
        let slowed = greedy(&mut throttle, 1_000, 5_000);
        assert!(most_in_one_second(&slowed) <= 100);
        throttle.set(Rate::default(), 5_000);
        assert_eq!(throttle.keys_allowed(5_000), u64::MAX);
    }

    #[test]
    fn bytes_beyond_the_estimate_are_paid_back_before_the_next_key() {
        let rate = Rate {
            keys_per_second: None,
            bytes_per_second: Some(1_000_000),
        };
        let mut throttle = Throttle::new(rate, 0);
        throttle.spend(1, 1_000_000);
        assert_eq!(throttle.keys_allowed(0), 0);
        let ready_ms = throttle.ready_at(0);
        assert_eq!(ready_ms, 1_001);
        assert_eq!(throttle.keys_allowed(ready_ms - 2), 0);
        assert!(throttle.keys_allowed(ready_ms) > 0);
    }

    #[test]
    fn being_ready_means_that_a_key_is_allowed_at_that_moment_and_not_before() {
        for limit in [1, 7, 100, 50_000] {
            let mut throttle = Throttle::new(keys(limit), 0);
            throttle.spend(throttle.clone().keys_allowed(0), 0);
            let ready_ms = throttle.ready_at(0);
            assert_eq!(
                throttle.clone().keys_allowed(ready_ms - 1),
                0,
                "limit {limit}"
            );
            assert!(throttle.keys_allowed(ready_ms) >= 1, "limit {limit}");
        }
    }

    #[test]
    fn a_clock_that_stands_or_steps_back_adds_nothing() {
        let mut throttle = Throttle::new(keys(100), 1_000);
        throttle.spend(5, 0);
        assert_eq!(throttle.keys_allowed(1_000), 0);
        assert_eq!(throttle.keys_allowed(0), 0);
    }
}
