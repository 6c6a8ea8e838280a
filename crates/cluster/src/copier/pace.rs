//! How much of a copy is under way at once, so that the source keeps answering everybody else.
//!
//! Additive increase, multiplicative decrease over the number of batches in flight, steered by delay: how
//! much later than at its quickest the source answers a small command. That is what its clients feel, and
//! unlike the answer's whole time it says the same of a server on loopback and of one far away.

/// Batches in flight at one source at the start. One keeps a source on loopback busy for most of the time.
const WINDOW_START: u32 = 1;
/// Enough for one source that is some milliseconds away.
const WINDOW_MAX: u32 = 16;
/// A delay above this halves the window. Clients at the source are promised 2 ms at the 99th percentile.
const DELAY_LATE_US: u64 = 600;
/// A delay below this widens the window: nobody waits at the server.
const DELAY_SOON_US: u64 = 60;
/// The quickest answer is that of so many probes, or up to twice as many: the way to a server may change.
const PROBES_PER_TERM: u32 = 50;

/// The number of batches that may be in flight at one source.
///
/// ```
/// use clockwise_cluster::copier::Pace;
/// let mut pace = Pace::new();
/// for _ in 0..5 {
///     pace.observe(400); // microseconds: a server across the room, answering at once
/// }
/// assert_eq!(pace.window(), 6);
/// pace.observe(5_000);
/// assert_eq!(pace.window(), 3);
/// ```
#[derive(Clone, Debug)]
pub struct Pace {
    // Invariant: 1 to WINDOW_MAX.
    window: u32,
    // The quickest answers of this term and of the one before.
    quickest_us: [u64; 2],
    probes: u32,
}

impl Pace {
    /// The pace before anything is known about the source.
    #[must_use]
    pub fn new() -> Self {
        Self {
            window: WINDOW_START,
            quickest_us: [u64::MAX; 2],
            probes: 0,
        }
    }

    /// Batches that may be in flight.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Takes in how long the source took to answer a small command.
    pub fn observe(&mut self, probe_us: u64) {
        let [now, before] = &mut self.quickest_us;
        *now = probe_us.min(*now);
        let delay_us = probe_us - (*now).min(*before);
        self.probes += 1;
        if self.probes == PROBES_PER_TERM {
            self.probes = 0;
            self.quickest_us = [u64::MAX, self.quickest_us[0]];
        }
        if delay_us > DELAY_LATE_US {
            self.window = (self.window / 2).max(1);
        } else if delay_us < DELAY_SOON_US {
            self.window = (self.window + 1).min(WINDOW_MAX);
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_answers_late_gets_one_batch_at_a_time_and_one_that_does_not_all_of_them() {
        for way_us in [0, 80, 20_000] {
            let mut pace = Pace::new();
            for _ in 0..WINDOW_MAX {
                pace.observe(way_us + DELAY_SOON_US - 1);
            }
            assert_eq!(pace.window(), WINDOW_MAX, "{way_us} us away");
            pace.observe(way_us + DELAY_SOON_US + 300);
            assert_eq!(pace.window(), WINDOW_MAX, "between the bounds it stays");
            for _ in 0..WINDOW_MAX {
                pace.observe(way_us + 2 * DELAY_LATE_US);
            }
            assert_eq!(pace.window(), 1, "{way_us} us away");
        }
    }

    #[test]
    fn a_way_that_became_longer_is_taken_as_it_is_after_a_while() {
        let mut pace = Pace::new();
        pace.observe(100);
        for _ in 0..2 * PROBES_PER_TERM {
            pace.observe(3_000);
        }
        let window = pace.window();
        pace.observe(3_000);
        assert!(pace.window() > window, "nobody waits at this server");
    }
}
