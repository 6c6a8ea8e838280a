//! Whether a node is worth a request now.
//!
//! Trouble is counted, not guessed: a broken connection, a failed attempt, a reply that did not
//! come. The first time the node gets another chance at once. From the second on it is *down* for a
//! while that doubles with each further failure; meanwhile requests are refused without delay, and
//! only background attempts, never a user's request, find out whether it is back.

use super::Millis;

/// How long a failing node is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffLimits {
    /// After the second failure in a row.
    pub ms_min: u64,
    /// At most.
    pub ms_max: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    failures: u32,
    down_until: Option<Millis>,
}

impl Health {
    /// Counts a failure. From the second in a row on the node is down.
    pub(super) fn failed(&mut self, limits: &BackoffLimits, now: Millis) {
        self.failures = self.failures.saturating_add(1);
        if let Some(doublings) = self.failures.checked_sub(2) {
            let backoff = limits
                .ms_min
                .saturating_mul(1u64.checked_shl(doublings).unwrap_or(u64::MAX));
            self.down_until = Some(now.after(backoff.min(limits.ms_max)));
        }
    }

    /// The node let us in. It is not down any more, but one more failure takes it down again: some
    /// accept connections and then break them.
    pub(super) fn connected(&mut self) {
        self.failures = self.failures.min(1);
        self.down_until = None;
    }

    /// The node answered a request.
    pub(super) fn answered(&mut self) {
        *self = Self::default();
    }

    /// Until when the node is left alone.
    pub(super) fn down_until(&self) -> Option<Millis> {
        self.down_until
    }

    /// Failures in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_forgiven_and_the_next_ones_double_the_wait() {
        let limits = BackoffLimits {
            ms_min: 50,
            ms_max: 300,
        };
        let mut health = Health::default();
        let mut until = || {
            health.failed(&limits, Millis(1000));
            health.down_until().map(|until| until.0 - 1000)
        };
        assert_eq!(
            [until(), until(), until(), until(), until()],
            [None, Some(50), Some(100), Some(200), Some(300)]
        );
        for _ in 0..100 {
            until();
        }
        assert_eq!(until(), Some(300));
    }

    #[test]
    fn a_node_that_only_lets_us_in_is_down_again_after_one_failure() {
        let limits = BackoffLimits {
            ms_min: 50,
            ms_max: 300,
        };
        let mut health = Health::default();
        health.failed(&limits, Millis(0));
        health.failed(&limits, Millis(0));
        health.connected();
        assert_eq!(health.down_until(), None);
        health.failed(&limits, Millis(0));
        assert_eq!(health.down_until(), Some(Millis(50)));
        health.answered();
        health.failed(&limits, Millis(0));
        assert_eq!(health.down_until(), None);
    }
}
