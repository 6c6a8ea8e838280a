//! What one key may hold, given what was sent to it and what was answered.
//!
//! A key has one writer at a time and one write in flight, so its writes are in order: version 1,
//! 2, 3. A read may see any version from the last acknowledged before it was sent to the last sent
//! before its answer came. An acknowledged write, and a read that saw a version, move that lower
//! end (the *floor*) up for every read sent later: a key that once was seen new never looks old
//! again. A write of unknown outcome leaves both states possible until a later one is acknowledged,
//! or until a read tells: one that was sent after a later write began, and did not see it, proves
//! that it was not executed. (The key rests in between, so it is not executed later.)
//!
//! This is linearizability of a register with one writer. The history never objects to a run that
//! has an explanation. It overlooks one kind without: two reads of nothing that each have one, and
//! together do not, around an unknown write and a delete (50 of 102,272 in the exhaustive test
//! against the naive twin). Cost per read: the versions in between, which are few.

#[cfg(test)]
mod twin;

use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// How a read differs from all that it may have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anomaly {
    /// An older version than it must be.
    Behind,
    /// Nothing, where something must be.
    Missing,
    /// A version that was deleted before.
    Resurrected,
    /// The right key with the wrong expiry, or one that should have expired.
    WrongTtl,
    /// A version that was never sent.
    NeverSent,
    /// A counter above what was sent to it.
    TooHigh,
    /// A version whose write was not executed: so its answer said, or what was read after it.
    Refused,
}

/// When a request was on its way, and how far the clocks and timers may be apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub(super) sent_ms: u64,
    pub(super) answered_ms: u64,
    pub(super) tolerance_ms: u64,
}

/// What a key holds after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    Present {
        /// The number of the version that wrote the value; setting an expiry keeps it.
        content: u64,
        expires_at_ms: Option<u64>,
    },
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    InFlight,
    Acknowledged,
    /// Executed or not: nobody can tell.
    Unknown,
    /// Certainly not executed.
    NotExecuted,
}

#[derive(Debug, Clone, Copy)]
struct Version {
    state: State,
    outcome: Outcome,
    /// A read saw this version and no other.
    seen: bool,
}

/// What reading a key's expiry gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpirySeen {
    NoKey,
    Never,
    AtMs(u64),
}

/// A read under way: it may not see versions below its floor.
#[derive(Debug)]
#[must_use]
pub(super) struct Reading {
    floor: u64,
    absent_last: u64,
    /// Writes up to this one had been executed by then, or never will be: a later one had begun.
    decided: u64,
}

/// Which versions explain what a reading saw.
#[derive(Debug, Clone, Copy)]
struct Explanation {
    lowest: u64,
    highest: u64,
}

/// The history of a key with values.
#[derive(Debug)]
pub(super) struct Register {
    /// The number of the first version kept. Older ones no read can see any more.
    first: u64,
    // Invariant: not empty.
    versions: VecDeque<Version>,
    // Invariant: first <= floor <= the last version's number.
    floor: u64,
    /// The last version at or below the floor that left nothing.
    absent_last: u64,
    readings: u32,
}

impl Register {
    /// A key that holds nothing: version 0.
    pub(super) fn new() -> Register {
        let nothing = Version {
            state: State::Absent,
            outcome: Outcome::Acknowledged,
            seen: false,
        };
        Register {
            first: 0,
            versions: VecDeque::from([nothing]),
            floor: 0,
            absent_last: 0,
            readings: 0,
        }
    }

    fn last(&self) -> u64 {
        self.first + index_to_u64(self.versions.len()) - 1
    }

    fn version(&self, number: u64) -> &Version {
        &self.versions[u64_to_index(number - self.first)]
    }

    /// The number the next write will have.
    pub(super) fn next_number(&self) -> u64 {
        self.last() + 1
    }

    /// The one state the key can have, if there is only one, expiry aside.
    pub(super) fn certain(&self) -> Option<State> {
        (self.floor == self.last()).then(|| self.version(self.floor).state)
    }

    /// Notes a write as sent. There is never more than one in flight.
    pub(super) fn send(&mut self, state: State) -> u64 {
        self.versions.push_back(Version {
            state,
            outcome: Outcome::InFlight,
            seen: false,
        });
        self.last()
    }

    /// Notes what became of the write in flight. An anomaly if it was said not to be executed, and
    /// was seen.
    pub(super) fn settle(&mut self, outcome: Outcome) -> Result<(), Anomaly> {
        let last = self.last();
        if let Some(version) = self.versions.back_mut() {
            debug_assert_eq!(version.outcome, Outcome::InFlight, "one write at a time");
            version.outcome = outcome;
        }
        match outcome {
            Outcome::Acknowledged => self.raise(last),
            Outcome::NotExecuted if self.floor == last => return Err(Anomaly::Refused),
            Outcome::NotExecuted | Outcome::Unknown | Outcome::InFlight => {}
        }
        Ok(())
    }

    /// The write in flight left nothing, contrary to what its sender expected.
    pub(super) fn leaves_nothing(&mut self) {
        if let Some(version) = self.versions.back_mut() {
            version.state = State::Absent;
        }
    }

    /// What the answer to the write in flight says about the state before it: whether the key
    /// existed. Says nothing where that state was not certain.
    pub(super) fn check_existed(&self, existed: bool, flight: Flight) -> Result<(), Anomaly> {
        let before = self.last() - 1;
        if self.floor != before {
            return Ok(());
        }
        match (self.version(before).state, existed) {
            (State::Absent, true) => Err(Anomaly::Resurrected),
            (State::Present { expires_at_ms, .. }, false) if !expired(expires_at_ms, flight) => {
                Err(Anomaly::Missing)
            }
            (State::Present { expires_at_ms, .. }, true) if !alive(expires_at_ms, flight) => {
                Err(Anomaly::WrongTtl)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn begin_reading(&mut self) -> Reading {
        self.readings += 1;
        Reading {
            floor: self.floor,
            absent_last: self.absent_last,
            decided: self.last().saturating_sub(1),
        }
    }

    /// A reading that got no answer.
    pub(super) fn abandon(&mut self, _reading: Reading) {
        self.readings -= 1;
        self.prune();
    }

    /// Judges a value: the content of this version.
    pub(super) fn saw_content(
        &mut self,
        reading: Reading,
        content: u64,
        flight: Flight,
    ) -> Result<(), Anomaly> {
        let fits = |state| match state {
            State::Present {
                content: held,
                expires_at_ms,
            } => held == content && alive(expires_at_ms, flight),
            State::Absent => false,
        };
        let expired =
            |state| matches!(state, State::Present { content: held, .. } if held == content);
        let judged = self
            .explain(&reading, fits)
            .map_err(|anomaly| match anomaly {
                Some(refused) => refused,
                None if self.lowest_that(&reading, expired).is_some() => Anomaly::WrongTtl,
                None => self.foreign(&reading, content),
            });
        self.finish(reading, judged)
    }

    /// Judges a read that found nothing.
    pub(super) fn saw_nothing(&mut self, reading: Reading, flight: Flight) -> Result<(), Anomaly> {
        let fits = |state| match state {
            State::Absent => true,
            State::Present { expires_at_ms, .. } => expired(expires_at_ms, flight),
        };
        let judged = self.explain(&reading, fits);
        let judged = judged.map_err(|refused| refused.unwrap_or(Anomaly::Missing));
        self.finish(reading, judged)
    }

    /// Judges an expiry.
    pub(super) fn saw_expiry(
        &mut self,
        reading: Reading,
        seen: ExpirySeen,
        flight: Flight,
    ) -> Result<(), Anomaly> {
        if seen == ExpirySeen::NoKey {
            return self.saw_nothing(reading, flight);
        }
        let fits = |state| match (state, seen) {
            (
                State::Present {
                    expires_at_ms: None,
                    ..
                },
                ExpirySeen::Never,
            ) => true,
            (
                State::Present {
                    expires_at_ms: Some(at_ms),
                    ..
                },
                ExpirySeen::AtMs(seen_ms),
            ) => at_ms.abs_diff(seen_ms) <= flight.tolerance_ms && alive(Some(at_ms), flight),
            _ => false,
        };
        let present = |state| matches!(state, State::Present { .. });
        let judged = self
            .explain(&reading, fits)
            .map_err(|anomaly| match anomaly {
                Some(refused) => refused,
                None if self.lowest_that(&reading, present).is_some() => Anomaly::WrongTtl,
                None => Anomaly::Resurrected,
            });
        self.finish(reading, judged)
    }

    /// The lowest and the highest version the reading may have seen that fit. If there are none,
    /// the anomaly that a write was executed all the same that was not, if that fits.
    fn explain(
        &self,
        reading: &Reading,
        fits: impl Fn(State) -> bool,
    ) -> Result<Explanation, Option<Anomaly>> {
        if let Some(lowest) = self.lowest_that(reading, &fits) {
            let visible = |number: &u64| {
                let version = self.version(*number);
                version.outcome != Outcome::NotExecuted && fits(version.state)
            };
            let highest = (lowest..=self.last()).rfind(visible).unwrap_or(lowest);
            return Ok(Explanation { lowest, highest });
        }
        let refused = (reading.floor..=self.last()).any(|number| {
            let version = self.version(number);
            version.outcome == Outcome::NotExecuted && fits(version.state)
        });
        Err(refused.then_some(Anomaly::Refused))
    }

    /// The lowest version the reading may have seen that was not refused and fits.
    fn lowest_that(&self, reading: &Reading, fits: impl Fn(State) -> bool) -> Option<u64> {
        (reading.floor..=self.last()).find(|number| {
            let version = self.version(*number);
            version.outcome != Outcome::NotExecuted && fits(version.state)
        })
    }

    /// What a read sent now may see, for people.
    pub(super) fn expected(&self) -> String {
        let describe = |number: u64| {
            let version = self.version(number);
            let state = match version.state {
                State::Absent => "nothing".to_owned(),
                State::Present {
                    content,
                    expires_at_ms: None,
                } => format!("version {content}"),
                State::Present {
                    content,
                    expires_at_ms: Some(at_ms),
                } => {
                    format!("version {content} until {at_ms}")
                }
            };
            match version.outcome {
                Outcome::Acknowledged => state,
                Outcome::Unknown => format!("{state} (unknown)"),
                Outcome::InFlight => format!("{state} (under way)"),
                Outcome::NotExecuted => format!("not {state} (refused)"),
            }
        };
        let states: Vec<String> = (self.floor..=self.last()).map(describe).collect();
        states.join(" or ")
    }

    /// Why a reading may not have seen this content.
    fn foreign(&self, reading: &Reading, content: u64) -> Anomaly {
        if content > reading.floor {
            // Those that were sent would have explained it.
            Anomaly::NeverSent
        } else if content < reading.absent_last {
            Anomaly::Resurrected
        } else {
            Anomaly::Behind
        }
    }

    fn finish(
        &mut self,
        reading: Reading,
        judged: Result<Explanation, Anomaly>,
    ) -> Result<(), Anomaly> {
        let judged = judged.and_then(|Explanation { lowest, highest }| {
            self.rule_out(highest + 1..=reading.decided)?;
            if lowest == highest {
                let at = u64_to_index(lowest - self.first);
                self.versions[at].seen = true;
            }
            self.raise(lowest);
            Ok(())
        });
        self.readings -= 1;
        self.prune();
        judged
    }

    /// Writes of unknown outcome that were decided before a read that did not see them: they were
    /// not executed.
    fn rule_out(&mut self, numbers: RangeInclusive<u64>) -> Result<(), Anomaly> {
        for number in numbers {
            let at = u64_to_index(number - self.first);
            let version = &mut self.versions[at];
            if version.outcome == Outcome::Unknown {
                if version.seen {
                    return Err(Anomaly::Behind);
                }
                version.outcome = Outcome::NotExecuted;
            }
        }
        Ok(())
    }

    fn raise(&mut self, number: u64) {
        let absent = |number: &u64| {
            let version = self.version(*number);
            version.state == State::Absent && version.outcome != Outcome::NotExecuted
        };
        if number > self.floor {
            let absent_last = (self.floor + 1..=number).rev().find(absent);
            self.absent_last = absent_last.unwrap_or(self.absent_last);
            self.floor = number;
        }
        self.prune();
    }

    /// Forgets what no reading can see any more.
    fn prune(&mut self) {
        while self.readings == 0 && self.first < self.floor {
            self.versions.pop_front();
            self.first += 1;
        }
    }
}

/// Whether a value may still have been there when the request was executed.
fn alive(expires_at_ms: Option<u64>, flight: Flight) -> bool {
    expires_at_ms.is_none_or(|at_ms| flight.sent_ms <= at_ms + flight.tolerance_ms)
}

/// Whether a value may have been gone when the request was executed.
fn expired(expires_at_ms: Option<u64>, flight: Flight) -> bool {
    expires_at_ms.is_some_and(|at_ms| flight.answered_ms + flight.tolerance_ms >= at_ms)
}

fn index_to_u64(index: usize) -> u64 {
    u64::try_from(index).expect("a length fits into 64 bits")
}

fn u64_to_index(offset: u64) -> usize {
    usize::try_from(offset).expect("versions that are kept are in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At 1,000 ms, with clocks at most 50 ms apart.
    const NOW: Flight = Flight {
        sent_ms: 1_000,
        answered_ms: 1_010,
        tolerance_ms: 50,
    };

    fn value(content: u64) -> State {
        expiring(content, None)
    }

    fn expiring(content: u64, expires_at_ms: Option<u64>) -> State {
        State::Present {
            content,
            expires_at_ms,
        }
    }

    /// A key after these writes.
    fn register(writes: &[(State, Outcome)]) -> Register {
        let mut register = Register::new();
        for (state, outcome) in writes {
            register.send(*state);
            if *outcome != Outcome::InFlight {
                register.settle(*outcome).unwrap();
            }
        }
        register
    }

    fn read(register: &mut Register, seen: Option<u64>) -> Result<(), Anomaly> {
        let reading = register.begin_reading();
        match seen {
            Some(content) => register.saw_content(reading, content, NOW),
            None => register.saw_nothing(reading, NOW),
        }
    }

    use Outcome::{Acknowledged, InFlight, NotExecuted, Unknown};

    #[test]
    fn a_read_sees_what_was_acknowledged_or_is_under_way() {
        let absent = State::Absent;
        // After these writes, a read that sees this (None: nothing) is judged so.
        type Case<'a> = (&'a [(State, Outcome)], Option<u64>, Result<(), Anomaly>);
        let cases: &[Case] = &[
            (&[], None, Ok(())),
            (&[], Some(1), Err(Anomaly::NeverSent)),
            (&[(value(1), Acknowledged)], Some(1), Ok(())),
            (&[(value(1), Acknowledged)], None, Err(Anomaly::Missing)),
            (&[(value(1), InFlight)], Some(1), Ok(())),
            (&[(value(1), InFlight)], None, Ok(())),
            (
                &[(value(1), Acknowledged), (value(2), InFlight)],
                Some(1),
                Ok(()),
            ),
            (
                &[(value(1), Acknowledged), (value(2), InFlight)],
                Some(2),
                Ok(()),
            ),
            (
                &[(value(1), Acknowledged), (value(2), InFlight)],
                None,
                Err(Anomaly::Missing),
            ),
            (
                &[(value(1), Acknowledged), (value(2), Unknown)],
                Some(1),
                Ok(()),
            ),
            (
                &[(value(1), Acknowledged), (value(2), Unknown)],
                Some(2),
                Ok(()),
            ),
            (
                &[(value(1), Acknowledged), (value(2), NotExecuted)],
                Some(1),
                Ok(()),
            ),
            (
                &[(value(1), Acknowledged), (value(2), NotExecuted)],
                Some(2),
                Err(Anomaly::Refused),
            ),
            (
                &[(value(1), Acknowledged), (value(2), Acknowledged)],
                Some(1),
                Err(Anomaly::Behind),
            ),
            (
                &[(value(1), Unknown), (value(2), Acknowledged)],
                Some(1),
                Err(Anomaly::Behind),
            ),
            (
                &[(value(1), Acknowledged), (absent, Acknowledged)],
                None,
                Ok(()),
            ),
            (
                &[(value(1), Acknowledged), (absent, Acknowledged)],
                Some(1),
                Err(Anomaly::Resurrected),
            ),
            (
                &[(value(1), Acknowledged), (absent, Unknown)],
                Some(1),
                Ok(()),
            ),
            (&[(value(1), Acknowledged), (absent, Unknown)], None, Ok(())),
            (
                &[(value(1), Acknowledged), (absent, NotExecuted)],
                None,
                Err(Anomaly::Refused),
            ),
            (
                &[
                    (value(1), Acknowledged),
                    (absent, Acknowledged),
                    (value(3), Acknowledged),
                ],
                Some(1),
                Err(Anomaly::Resurrected),
            ),
            (
                &[
                    (value(1), Acknowledged),
                    (value(2), Acknowledged),
                    (value(3), InFlight),
                ],
                Some(1),
                Err(Anomaly::Behind),
            ),
        ];
        for (writes, seen, expected) in cases {
            assert_eq!(
                read(&mut register(writes), *seen),
                *expected,
                "{writes:?} {seen:?}"
            );
        }
    }

    #[test]
    fn a_read_under_way_may_see_what_it_overlaps() {
        let mut key = register(&[(value(1), Acknowledged)]);
        let readings: Vec<Reading> = (0..3).map(|_| key.begin_reading()).collect();
        key.send(value(2));
        key.settle(Acknowledged).unwrap();
        key.send(value(3));
        // Sent before version 2, answered after version 3 was sent: all three are possible, but a
        // reader that answers later than another never sees an older one it could not overlap.
        for (reading, content) in readings.into_iter().zip([3, 1, 2]) {
            key.saw_content(reading, content, NOW).unwrap();
        }
        assert_eq!(read(&mut key, Some(2)), Err(Anomaly::Behind));
        assert_eq!(read(&mut key, Some(3)), Ok(()));
    }

    #[test]
    fn what_was_seen_new_never_looks_old_again() {
        let mut key = register(&[(value(1), Acknowledged), (value(2), Unknown)]);
        assert_eq!(read(&mut key, Some(1)), Ok(()));
        assert_eq!(read(&mut key, Some(2)), Ok(()));
        assert_eq!(read(&mut key, Some(1)), Err(Anomaly::Behind));
        let mut key = register(&[(value(1), Acknowledged), (State::Absent, Unknown)]);
        assert_eq!(read(&mut key, None), Ok(()));
        assert_eq!(read(&mut key, Some(1)), Err(Anomaly::Resurrected));
    }

    #[test]
    fn a_refused_write_that_was_seen_in_flight_is_found() {
        let mut key = register(&[(value(1), Acknowledged), (value(2), InFlight)]);
        assert_eq!(read(&mut key, Some(2)), Ok(()));
        assert_eq!(key.settle(NotExecuted), Err(Anomaly::Refused));
    }

    #[test]
    fn a_value_goes_at_its_expiry_give_or_take_the_tolerance() {
        // A read sent at 1,000 and answered at 1,010: (expiry, may be seen, may be missing).
        let cases = [
            (900, false, true),
            (949, false, true),
            (950, true, true),
            (1_000, true, true),
            (1_060, true, true),
            (1_061, true, false),
            (9_000, true, false),
        ];
        for (at_ms, may_be_seen, may_be_missing) in cases {
            let mut key = register(&[(expiring(1, Some(at_ms)), Acknowledged)]);
            let seen = if may_be_seen {
                Ok(())
            } else {
                Err(Anomaly::WrongTtl)
            };
            assert_eq!(read(&mut key, Some(1)), seen, "expiry {at_ms}");
            let missing = if may_be_missing {
                Ok(())
            } else {
                Err(Anomaly::Missing)
            };
            assert_eq!(read(&mut key, None), missing, "expiry {at_ms}");
        }
    }

    #[test]
    fn an_expiry_is_that_of_a_version_that_may_be_seen() {
        use ExpirySeen::{AtMs, Never, NoKey};
        type Case<'a> = (&'a [(State, Outcome)], ExpirySeen, Result<(), Anomaly>);
        let at_9000 = expiring(1, Some(9_000));
        let cases: &[Case] = &[
            (&[(value(1), Acknowledged)], Never, Ok(())),
            (
                &[(value(1), Acknowledged)],
                AtMs(9_000),
                Err(Anomaly::WrongTtl),
            ),
            (&[(value(1), Acknowledged)], NoKey, Err(Anomaly::Missing)),
            (&[(at_9000, Acknowledged)], AtMs(9_000), Ok(())),
            (&[(at_9000, Acknowledged)], AtMs(8_950), Ok(())),
            (
                &[(at_9000, Acknowledged)],
                AtMs(9_051),
                Err(Anomaly::WrongTtl),
            ),
            (&[(at_9000, Acknowledged)], Never, Err(Anomaly::WrongTtl)),
            (
                &[(value(1), Acknowledged), (at_9000, Unknown)],
                Never,
                Ok(()),
            ),
            (
                &[(value(1), Acknowledged), (at_9000, Unknown)],
                AtMs(9_000),
                Ok(()),
            ),
            (
                &[(value(1), Acknowledged), (at_9000, NotExecuted)],
                AtMs(9_000),
                Err(Anomaly::Refused),
            ),
            (&[(State::Absent, Acknowledged)], NoKey, Ok(())),
            (
                &[(State::Absent, Acknowledged)],
                AtMs(9_000),
                Err(Anomaly::Resurrected),
            ),
            (
                &[(State::Absent, Acknowledged)],
                Never,
                Err(Anomaly::Resurrected),
            ),
        ];
        for (writes, seen, expected) in cases {
            let mut key = register(writes);
            let reading = key.begin_reading();
            assert_eq!(
                key.saw_expiry(reading, *seen, NOW),
                *expected,
                "{writes:?} {seen:?}"
            );
        }
    }

    #[test]
    fn setting_an_expiry_keeps_the_value() {
        let touched = expiring(1, Some(9_000));
        let mut key = register(&[(value(1), Acknowledged), (touched, Acknowledged)]);
        assert_eq!(read(&mut key, Some(1)), Ok(()));
        assert_eq!(read(&mut key, Some(2)), Err(Anomaly::Behind));
        let reading = key.begin_reading();
        let seen = ExpirySeen::Never;
        assert_eq!(key.saw_expiry(reading, seen, NOW), Err(Anomaly::WrongTtl));
    }

    #[test]
    fn the_answer_of_a_delete_says_what_was_there() {
        let check = |writes: &[(State, Outcome)], existed| {
            let mut key = register(writes);
            key.send(State::Absent);
            key.check_existed(existed, NOW)
        };
        let gone = expiring(1, Some(900));
        assert_eq!(check(&[(value(1), Acknowledged)], true), Ok(()));
        assert_eq!(
            check(&[(value(1), Acknowledged)], false),
            Err(Anomaly::Missing)
        );
        assert_eq!(
            check(&[(State::Absent, Acknowledged)], true),
            Err(Anomaly::Resurrected)
        );
        assert_eq!(check(&[(State::Absent, Acknowledged)], false), Ok(()));
        assert_eq!(check(&[(gone, Acknowledged)], false), Ok(()));
        assert_eq!(check(&[(gone, Acknowledged)], true), Err(Anomaly::WrongTtl));
        let unsure = [(value(1), Acknowledged), (State::Absent, Unknown)];
        assert_eq!(check(&unsure, true).and(check(&unsure, false)), Ok(()));
    }

    #[test]
    fn only_versions_that_can_be_seen_are_kept() {
        let mut key = Register::new();
        let early = key.begin_reading();
        for number in 1..=100 {
            key.send(value(number));
            key.settle(Acknowledged).unwrap();
        }
        assert_eq!(key.versions.len(), 101);
        key.abandon(early);
        assert_eq!(key.versions.len(), 1);
        assert_eq!((key.next_number(), key.certain()), (101, Some(value(100))));
    }
}
