//! How much of a copy is under way at once, so that the source keeps answering everybody else.
//!
//! Additive increase, multiplicative decrease over the number of batches in flight: a probe that was
//! answered late halves it, one answered soon adds one. The measure is the source's own response to a
//! small command, since that is what its clients feel.

/// Batches in flight at one source at the start. Two keep a source busy on loopback.
const WINDOW_START: u32 = 4;
/// More than this gains nothing: the server works on one command at a time.
const WINDOW_MAX: u32 = 8;
/// A probe above this halves the window. Clients at the source are promised 2 ms at the 99th percentile.
const PROBE_LATE_US: u64 = 1_500;
/// A probe below this widens the window.
const PROBE_SOON_US: u64 = 700;

/// The number of batches that may be in flight at one source.
///
/// ```
/// use clockwise_cluster::copier::Pace;
/// let mut pace = Pace::new();
/// let before = pace.window();
/// pace.observe(5_000);
/// assert!(pace.window() < before);
/// ```
#[derive(Clone, Debug)]
pub struct Pace {
    // Invariant: 1 to WINDOW_MAX.
    window: u32,
}

impl Pace {
    /// The pace before anything is known about the source.
    #[must_use]
    pub fn new() -> Self {
        Self {
            window: WINDOW_START,
        }
    }

    /// Batches that may be in flight.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Takes in how long the source took to answer a small command.
    pub fn observe(&mut self, probe_us: u64) {
        if probe_us > PROBE_LATE_US {
            self.window = (self.window / 2).max(1);
        } else if probe_us < PROBE_SOON_US {
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
    fn a_slow_source_gets_one_batch_at_a_time_and_a_quick_one_all_of_them() {
        let mut pace = Pace::new();
        for _ in 0..10 {
            pace.observe(PROBE_LATE_US + 1);
        }
        assert_eq!(pace.window(), 1);
        for _ in 0..10 {
            pace.observe(PROBE_SOON_US - 1);
        }
        assert_eq!(pace.window(), WINDOW_MAX);
        pace.observe(1_000);
        assert_eq!(
            pace.window(),
            WINDOW_MAX,
            "between the two bounds nothing changes"
        );
    }
}
