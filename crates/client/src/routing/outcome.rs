//! What becomes of the requests that were on a connection when it broke.
//!
//! A request whose last byte was handed to the system may have been executed, now or a little
//! later, since a server works through what it has received before it notices the end. Repeating a
//! read does no harm. Repeating a write does, idempotent or not: a repeated `SET` can bring back what another
//! client deleted in between. So a write that may have left is *unknown*, and the only honest
//! answer is to say so.
//!
//! One thing more: requests of one caller keep their order. Behind or before a write of unknown
//! outcome none of that caller's requests is repeated, because it could then be executed on the wrong side of it.

use std::collections::HashSet;

/// Whether a request may change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Surely not: it can be repeated.
    Read,
    /// It may.
    Write,
}

/// A request that was on the broken connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Whose it is; requests of one caller have an order.
    pub caller: u64,
    /// What it may do.
    pub effect: Effect,
    /// Whether its last byte was handed to the system.
    pub sent: bool,
    /// How often it was sent before.
    pub retries: u8,
}

/// What to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it again over a fresh connection.
    Retry,
    /// Tell the caller that it was not executed, or that it was a read, and can be repeated.
    Refuse,
    /// Tell the caller that nobody knows whether it was executed.
    Unknown,
}

/// How often a request is sent again before its caller is told.
const RETRIES_MAX: u8 = 2;

/// Judges all requests of a broken connection, given in the order they were sent.
///
/// `current` says of a request whether it was sent under the epoch that is in force. A key sent
/// under an earlier one may have moved since, even away and back, and later requests of the same
/// caller may be ahead already: such a request is not sent again.
pub fn judge(flights: &[Flight], current: impl Fn(usize) -> bool) -> Vec<Verdict> {
    let unknown = |flight: &Flight| flight.sent && flight.effect == Effect::Write;
    let with_unknown: HashSet<u64> = flights
        .iter()
        .filter(|flight| unknown(flight))
        .map(|flight| flight.caller)
        .collect();
    let verdict = |(index, flight): (usize, &Flight)| {
        if unknown(flight) {
            Verdict::Unknown
        } else if with_unknown.contains(&flight.caller)
            || flight.retries >= RETRIES_MAX
            || !current(index)
        {
            Verdict::Refuse
        } else {
            Verdict::Retry
        }
    };
    flights.iter().enumerate().map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Effect::{Read, Write};
    use Verdict::{Refuse, Retry, Unknown};

    fn check(flights: &[(u64, Effect, bool)], expected: &[Verdict]) {
        let flights: Vec<Flight> = flights
            .iter()
            .map(|&(caller, effect, sent)| Flight {
                caller,
                effect,
                sent,
                retries: 0,
            })
            .collect();
        assert_eq!(judge(&flights, |_| true), expected, "{flights:?}");
    }

    #[test]
    fn a_write_that_may_have_left_is_unknown_and_never_retried() {
        check(&[(1, Write, true), (2, Write, true)], &[Unknown, Unknown]);
    }

    #[test]
    fn a_read_and_what_never_left_are_retried() {
        check(
            &[(1, Read, true), (2, Write, false), (3, Read, false)],
            &[Retry, Retry, Retry],
        );
    }

    #[test]
    fn nothing_of_a_caller_is_retried_around_its_unknown_write() {
        check(
            &[
                (1, Read, true),
                (1, Write, true),
                (1, Write, false),
                (1, Read, false),
                (2, Read, true),
            ],
            &[Refuse, Unknown, Refuse, Refuse, Retry],
        );
    }

    #[test]
    fn retries_are_bounded() {
        let flight = Flight {
            caller: 1,
            effect: Read,
            sent: true,
            retries: RETRIES_MAX,
        };
        assert_eq!(judge(&[flight], |_| true), [Refuse]);
    }

    #[test]
    fn nothing_is_retried_under_another_epoch() {
        let flight = |effect, sent| Flight {
            caller: 1,
            effect,
            sent,
            retries: 0,
        };
        assert_eq!(
            judge(&[flight(Read, true), flight(Write, false)], |index| index
                == 0),
            [Retry, Refuse]
        );
        assert_eq!(judge(&[flight(Write, true)], |_| false), [Unknown]);
    }
}
