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
mod tests;
