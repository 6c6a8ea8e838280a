//! When the next request is due.
//!
//! In an open loop each request has a time of its own, fixed in advance, and its latency counts
//! from then: if the server stalls, the requests that should have been made meanwhile are slow too,
//! although they were sent later. (Counting from when they were sent would leave them out: the
//! *coordinated omission* that Gil Tene named.)

use std::time::{Duration, Instant};

/// The runtime's timers count in milliseconds and wake us up to this much too late. That is our own
/// delay, not the server's: a request that had room when it was due and was sent within this time
/// counts from when it was sent, and the delay is reported apart.
const TIMER_SLACK: Duration = Duration::from_millis(3);

#[derive(Debug, Clone)]
pub(super) enum Pace {
    /// As soon as there is room.
    Closed,
    /// At fixed times.
    Open {
        next: Instant,
        step: Duration,
        /// Since when there is room for a request.
        room_since: Instant,
    },
}

/// A request that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begin {
    /// From when its latency counts.
    pub(super) from: Instant,
    /// How late our own timer was for it, which its latency leaves out.
    pub(super) own_delay: Duration,
}

impl Pace {
    /// The times of one of `clients` that make `rate` requests a second together.
    pub(super) fn open(rate: u64, client: usize, clients: usize, start: Instant) -> Pace {
        let all = u32::try_from(clients).unwrap_or(u32::MAX);
        let own = u32::try_from(client).unwrap_or(u32::MAX);
        let between = Duration::from_secs(1).div_f64(to_f64(rate));
        Pace::Open {
            next: start + between * own,
            step: between * all,
            room_since: start,
        }
    }

    /// Takes the next request, if it is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Begin> {
        match self {
            Pace::Closed => Some(Begin {
                from: now,
                own_delay: Duration::ZERO,
            }),
            Pace::Open { next, .. } if *next > now => None,
            Pace::Open {
                next,
                step,
                room_since,
            } => {
                let due = *next;
                *next += *step;
                let delay = now - due;
                Some(if due >= *room_since && delay <= TIMER_SLACK {
                    Begin {
                        from: now,
                        own_delay: delay,
                    }
                } else {
                    Begin {
                        from: due,
                        own_delay: Duration::ZERO,
                    }
                })
            }
        }
    }

    /// There is room for a request again.
    pub(super) fn room(&mut self, now: Instant) {
        if let Pace::Open { room_since, .. } = self {
            *room_since = now;
        }
    }

    /// When the next request is due; `None`: at once.
    pub(super) fn next(&self) -> Option<Instant> {
        match self {
            Pace::Closed => None,
            Pace::Open { next, .. } => Some(*next),
        }
    }
}

/// Rates are far below 2^53.
fn to_f64(rate: u64) -> f64 {
    f64::from(u32::try_from(rate).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn clients_take_turns() {
        let start = Instant::now();
        let mut due = Vec::new();
        for client in 0..4 {
            let mut pace = Pace::open(1_000, client, 4, start);
            for _ in 0..3 {
                due.push(pace.next().unwrap() - start);
                pace.take(pace.next().unwrap()).unwrap();
            }
        }
        due.sort();
        let expected: Vec<Duration> = (0..12).map(|at| MS * at).collect();
        assert_eq!(due, expected);
    }

    #[test]
    fn a_stall_makes_every_request_slow_that_was_due_in_it() {
        let start = Instant::now();
        let mut pace = Pace::open(100, 0, 1, start);
        assert_eq!(pace.take(start).unwrap().from, start);
        // The answer comes 100 ms later; ten more were due at 10, 20, … 100 ms.
        let late = start + 100 * MS;
        pace.room(late);
        let begins = std::iter::from_fn(|| pace.take(late));
        let from: Vec<Instant> = begins.map(|begin| begin.from).collect();
        let expected: Vec<Instant> = (1..=10).map(|at| start + at * 10 * MS).collect();
        assert_eq!(from, expected);
    }

    #[test]
    fn our_own_timer_counts_against_us_only_when_it_is_very_late() {
        let start = Instant::now();
        let mut pace = Pace::open(10, 0, 1, start);
        pace.take(start);
        pace.room(start + MS);
        let woken = start + 102 * MS;
        let begin = pace.take(woken).unwrap();
        assert_eq!((begin.from, begin.own_delay), (woken, 2 * MS));
        let begin = pace.take(start + 204 * MS).unwrap();
        assert_eq!(
            (begin.from, begin.own_delay),
            (start + 200 * MS, Duration::ZERO)
        );
    }
}
