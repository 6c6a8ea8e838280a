//! Pauses that differ, so that processes which lost the same etcd do not come back as one.

use std::time::Duration;

/// Between three and five quarters of `pause`.
pub(super) fn jittered(pause: Duration) -> Duration {
    // Without randomness all wait equally long, which only costs etcd a burst.
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    let half = pause / 2;
    pause - half / 2 + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
}
