//! One clock for latencies and expiries: milliseconds since 1970 that never jump.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    base: Instant,
    base_ms: u64,
}

impl Clock {
    /// Takes the system's time now; later adjustments of the system's clock do not reach it.
    pub(super) fn start() -> Clock {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        Clock {
            base: Instant::now(),
            base_ms: millis(since_1970),
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.base_ms + millis(self.base.elapsed())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
