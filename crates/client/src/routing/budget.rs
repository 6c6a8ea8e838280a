//! How many requests are sent again, of all that are sent.
//!
//! One connection that breaks is worth repeating everything that can be. A node, or a network, that
//! breaks them again and again is not: what is sent again comes on top of what is sent anyway, and
//! keeps down what is down already. So repetitions are paid from an account that each request fills by
//! a fraction, up to a sum that one broken connection may need.

/// What may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// At once, after a time without repetitions.
    pub burst: u64,
    /// Of all requests, in the long run.
    pub percent: u64,
}

/// The account. It is told how many requests there were when it is asked, so it costs them nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryBudget {
    limits: RetryLimits,
    /// Hundredths of a repetition.
    // Invariant: at most `burst` repetitions.
    hundredths: u64,
    /// Requests that have been paid in for.
    counted: u64,
}

impl RetryBudget {
    pub(super) fn new(limits: RetryLimits) -> Self {
        Self {
            limits,
            hundredths: limits.burst.saturating_mul(100),
            counted: 0,
        }
    }

    /// Whether `count` requests may be sent again, all of them or none, after `requests` in all.
    pub(super) fn take(&mut self, count: u64, requests: u64) -> bool {
        let paid_in = requests
            .saturating_sub(self.counted)
            .saturating_mul(self.limits.percent);
        self.counted = self.counted.max(requests);
        let full = self.limits.burst.saturating_mul(100);
        self.hundredths = self.hundredths.saturating_add(paid_in).min(full);
        let price = count.saturating_mul(100);
        let granted = price <= self.hundredths;
        if granted {
            self.hundredths -= price;
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(burst: u64, percent: u64) -> RetryBudget {
        RetryBudget::new(RetryLimits { burst, percent })
    }

    #[test]
    fn a_burst_is_granted_and_then_a_fraction_of_all_requests() {
        let mut budget = budget(10, 20);
        assert!(budget.take(10, 100));
        assert!(!budget.take(1, 104));
        assert!(budget.take(1, 105));
        assert!(!budget.take(2, 110));
        assert!(budget.take(1, 110));
        // Nobody saves more than the burst.
        assert!(!budget.take(11, 1_000_000));
        assert!(budget.take(10, 1_000_000));
        assert!(!budget.take(1, 1_000_000));
    }

    #[test]
    fn in_the_long_run_no_more_is_repeated_than_the_fraction() {
        let mut budget = budget(5, 10);
        let repeated = (1..=10_000u64)
            .filter(|requests| budget.take(1, *requests))
            .count();
        assert!((1_000..=1_005).contains(&repeated), "{repeated}");
        let mut none = super::RetryBudget::new(RetryLimits {
            burst: 0,
            percent: 100,
        });
        assert!(!none.take(1, 1_000));
        assert!(none.take(0, 1_000));
    }
}
