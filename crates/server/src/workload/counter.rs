//! What a counter may hold, given what was sent to it and what was answered.
//!
//! As with values, a counter has one writer and one write in flight. Each increment that was
//! acknowledged is in it, and each of unknown outcome may be: a read is between the two sums. An
//! acknowledged increment names the count at that moment, which settles what was unknown before.

use super::history::{Anomaly, Outcome};

/// A read under way: it may not see less than its floor.
#[derive(Debug)]
#[must_use]
pub(super) struct CounterReading {
    floor: u64,
}

/// The history of a key that is only counted up, by one each time.
#[derive(Debug, Default)]
pub(super) struct Counter {
    /// Every value read from now on is at least this.
    low: u64,
    /// Increments that may have been executed.
    high: u64,
    /// What the increment in flight is answered at least.
    answer_min: u64,
}

impl Counter {
    /// Notes an increment as sent. There is never more than one in flight.
    pub(super) fn send(&mut self) {
        self.answer_min = self.low + 1;
        self.high += 1;
    }

    /// The increment in flight was answered with this value.
    pub(super) fn acknowledge(&mut self, value: u64) -> Result<(), Anomaly> {
        // A read may have seen it already, and so raised the lower end to it.
        let judged = judge_count(self.answer_min.max(self.low), value, self.high);
        if judged.is_ok() {
            // The value now; increments of unknown outcome are in it or never were.
            self.low = value;
            self.high = value;
        }
        judged
    }

    pub(super) fn settle_unanswered(&mut self, outcome: Outcome) {
        if outcome == Outcome::NotExecuted {
            self.high -= 1;
        }
    }

    /// What a read sent now may see, for people.
    pub(super) fn expected(&self) -> String {
        format!("{} to {}", self.low, self.high)
    }

    pub(super) fn begin_reading(&self) -> CounterReading {
        CounterReading { floor: self.low }
    }

    pub(super) fn saw(&mut self, reading: &CounterReading, value: u64) -> Result<(), Anomaly> {
        let judged = judge_count(reading.floor, value, self.high);
        if judged.is_ok() {
            self.low = self.low.max(value);
        }
        judged
    }
}

fn judge_count(low: u64, value: u64, high: u64) -> Result<(), Anomaly> {
    if value < low {
        Err(Anomaly::Behind)
    } else if value > high {
        Err(Anomaly::TooHigh)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{NotExecuted, Unknown};

    #[test]
    fn a_counter_is_between_what_was_acknowledged_and_what_was_sent() {
        let mut counter = Counter::default();
        counter.send();
        assert_eq!(counter.acknowledge(1), Ok(()));
        counter.send();
        counter.settle_unanswered(Unknown);
        counter.send();
        counter.settle_unanswered(NotExecuted);
        // One acknowledged, one unknown, one under way.
        counter.send();
        for (value, expected) in [
            (0, Err(Anomaly::Behind)),
            (1, Ok(())),
            (3, Ok(())),
            (4, Err(Anomaly::TooHigh)),
        ] {
            let mut counter = Counter { ..counter };
            let reading = counter.begin_reading();
            assert_eq!(counter.saw(&reading, value), expected, "{value}");
        }
        for (value, expected) in [
            (1, Err(Anomaly::Behind)),
            (2, Ok(())),
            (3, Ok(())),
            (4, Err(Anomaly::TooHigh)),
        ] {
            let mut counter = Counter { ..counter };
            assert_eq!(counter.acknowledge(value), expected, "{value}");
        }
    }

    #[test]
    fn a_counter_that_was_seen_high_never_reads_lower() {
        let mut counter = Counter {
            low: 1,
            high: 3,
            answer_min: 0,
        };
        let (early, late) = (counter.begin_reading(), counter.begin_reading());
        assert_eq!(counter.saw(&early, 3), Ok(()));
        assert_eq!(counter.saw(&late, 2), Ok(()), "both were under way");
        let after = counter.begin_reading();
        assert_eq!(counter.saw(&after, 2), Err(Anomaly::Behind));
    }

    #[test]
    fn an_increment_may_be_seen_before_its_answer() {
        let mut counter = Counter::default();
        counter.send();
        let reading = counter.begin_reading();
        assert_eq!(counter.saw(&reading, 1), Ok(()));
        assert_eq!(counter.acknowledge(1), Ok(()));
    }

    #[test]
    fn an_acknowledged_increment_settles_the_unknown_ones() {
        let mut counter = Counter {
            low: 1,
            high: 1,
            answer_min: 0,
        };
        counter.send();
        counter.settle_unanswered(Unknown);
        counter.send();
        assert_eq!(counter.acknowledge(2), Ok(()));
        let reading = counter.begin_reading();
        assert_eq!(counter.saw(&reading, 3), Err(Anomaly::TooHigh));
    }
}
