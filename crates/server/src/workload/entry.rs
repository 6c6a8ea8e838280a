//! One key: its history, who writes it, and what was found wrong with it.

use super::counter::{Counter, CounterReading};
use super::finding::Finding;
use super::history::{Anomaly, ExpirySeen, Flight, Outcome, Reading, Register, State};
use super::payload::{Origin, Payloads};

/// Who writes: a connection, or a direct writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    Connection(usize),
    Direct(usize),
}

/// An expiry is only changed if the value surely lives until then, held requests included.
const EXPIRE_MARGIN_MS: u64 = 3_000;

#[derive(Debug)]
pub(super) struct Entry {
    history: History,
    pub(super) writer: Writer,
    writing: bool,
    /// A write of unknown outcome may still be executed until then.
    pub(super) rests_until_ms: u64,
    /// By connections; direct writers count their own.
    pub(super) acknowledged: u32,
    pub(super) found: Option<Finding>,
}

#[derive(Debug)]
enum History {
    Register(Register),
    Counter(Counter),
}

/// A read under way of either kind of key.
#[derive(Debug)]
#[must_use]
pub(super) enum EntryReading {
    Register(Reading),
    Counter(CounterReading),
}

/// What a writer would like to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Set,
    SetExpiring { at_ms: u64 },
    Expire { at_ms: u64 },
    Delete,
    Increment,
}

/// What a writer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Set {
        content: u64,
        expires_at_ms: Option<u64>,
    },
    Expire {
        at_ms: u64,
    },
    Delete,
    Increment,
    /// Makes a counter.
    Zero,
}

/// What the server answered to a write it executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Stored,
    Existed(bool),
    Count(u64),
}

/// Something wrong, and what it was for people.
pub(super) type Wrong = (Anomaly, String);

impl Action {
    pub(super) fn verb(self) -> &'static str {
        match self {
            Action::Set { .. } | Action::Zero => "SET",
            Action::Expire { .. } => "PEXPIREAT",
            Action::Delete => "DEL",
            Action::Increment => "INCR",
        }
    }
}

impl Entry {
    pub(super) fn register(writer: Writer) -> Entry {
        Entry::new(History::Register(Register::new()), writer)
    }

    pub(super) fn counter(writer: Writer) -> Entry {
        Entry::new(History::Counter(Counter::default()), writer)
    }

    fn new(history: History, writer: Writer) -> Entry {
        Entry {
            history,
            writer,
            writing: false,
            rests_until_ms: 0,
            acknowledged: 0,
            found: None,
        }
    }

    /// Whether this writer may write the key now. One on which something wrong was seen is left
    /// alone, as evidence.
    pub(super) fn takes_writes_of(&self, writer: Writer, now_ms: u64) -> bool {
        self.writer == writer
            && !self.writing
            && self.found.is_none()
            && self.rests_until_ms <= now_ms
    }

    /// Notes a write as sent, as near to the wish as makes sense.
    pub(super) fn begin(&mut self, wish: Wish, now_ms: u64) -> Action {
        self.writing = true;
        match &mut self.history {
            History::Register(register) => begin_on_register(register, wish, now_ms),
            History::Counter(counter) => {
                counter.send();
                Action::Increment
            }
        }
    }

    /// Notes the write that makes the key as sent.
    pub(super) fn begin_making(&mut self) -> Action {
        self.writing = true;
        match &mut self.history {
            History::Register(register) => begin_on_register(register, Wish::Set, 0),
            History::Counter(_) => Action::Zero,
        }
    }

    pub(super) fn acknowledge(
        &mut self,
        action: Action,
        done: Done,
        flight: Flight,
    ) -> Result<(), Wrong> {
        self.writing = false;
        if let Writer::Connection(_) = self.writer {
            self.acknowledged += 1;
        }
        let mut judged = match (&mut self.history, done) {
            (History::Register(register), Done::Existed(existed)) => {
                register.check_existed(existed, flight)
            }
            (History::Counter(counter), Done::Count(value)) => counter.acknowledge(value),
            _ => Ok(()),
        };
        let before = judged.is_err().then(|| self.expected());
        if let History::Register(register) = &mut self.history {
            if let (Action::Expire { .. }, Done::Existed(false)) = (action, done) {
                register.leaves_nothing();
            }
            judged = judged.and(register.settle(Outcome::Acknowledged));
        }
        let before = before.unwrap_or_default();
        let verb = action.verb();
        judged.map_err(|anomaly| {
            (
                anomaly,
                format!("{verb} was answered {done:?} after {before}"),
            )
        })
    }

    /// Notes a write that was answered with an error, or not at all.
    pub(super) fn give_up(
        &mut self,
        action: Action,
        outcome: Outcome,
        rests_until_ms: u64,
    ) -> Result<(), Wrong> {
        self.writing = false;
        if outcome == Outcome::Unknown {
            self.rests_until_ms = rests_until_ms;
        }
        let judged = match (&mut self.history, action) {
            (History::Register(register), _) => register.settle(outcome),
            (History::Counter(counter), Action::Increment) => {
                counter.settle_unanswered(outcome);
                Ok(())
            }
            (History::Counter(_), _) => Ok(()),
        };
        let verb = action.verb();
        judged.map_err(|anomaly| (anomaly, format!("{verb} was refused and had been seen")))
    }

    pub(super) fn begin_reading(&mut self) -> EntryReading {
        match &mut self.history {
            History::Register(register) => EntryReading::Register(register.begin_reading()),
            History::Counter(counter) => EntryReading::Counter(counter.begin_reading()),
        }
    }

    pub(super) fn abandon(&mut self, reading: EntryReading) {
        if let (History::Register(register), EntryReading::Register(reading)) =
            (&mut self.history, reading)
        {
            register.abandon(reading);
        }
    }

    /// Judges a value read from this key, whose number is `key`; `None` is nothing.
    pub(super) fn saw_value(
        &mut self,
        key: usize,
        reading: EntryReading,
        value: Option<&[u8]>,
        payloads: Payloads,
        flight: Flight,
    ) -> Result<(), Wrong> {
        let judged = match (&mut self.history, reading) {
            (History::Register(register), EntryReading::Register(reading)) => {
                match value.map(|value| payloads.origin(value)) {
                    None => register.saw_nothing(reading, flight),
                    Some(Origin::Ours { key: seen, content }) if seen == key => {
                        register.saw_content(reading, content, flight)
                    }
                    Some(_) => {
                        register.abandon(reading);
                        Err(Anomaly::NeverSent)
                    }
                }
            }
            (History::Counter(counter), EntryReading::Counter(reading)) => match value.map(count) {
                None => Err(Anomaly::Missing),
                Some(None) => Err(Anomaly::NeverSent),
                Some(Some(value)) => counter.saw(&reading, value),
            },
            (History::Register(_), EntryReading::Counter(_))
            | (History::Counter(_), EntryReading::Register(_)) => {
                unreachable!("a key stays what it was made")
            }
        };
        judged.map_err(|anomaly| {
            let seen = value.map_or("nothing".to_owned(), |value| {
                format!(
                    "{:?}",
                    String::from_utf8_lossy(&value[..value.len().min(40)])
                )
            });
            (
                anomaly,
                format!("read {seen}, expected {}", self.expected()),
            )
        })
    }

    pub(super) fn saw_expiry(
        &mut self,
        reading: EntryReading,
        seen: ExpirySeen,
        flight: Flight,
    ) -> Result<(), Wrong> {
        let judged = match (&mut self.history, reading) {
            (History::Register(register), EntryReading::Register(reading)) => {
                register.saw_expiry(reading, seen, flight)
            }
            _ => match seen {
                ExpirySeen::NoKey => Err(Anomaly::Missing),
                ExpirySeen::Never => Ok(()),
                ExpirySeen::AtMs(_) => Err(Anomaly::WrongTtl),
            },
        };
        judged.map_err(|anomaly| {
            (
                anomaly,
                format!("expiry read as {seen:?}, expected {}", self.expected()),
            )
        })
    }

    /// Takes note of a read that was sent after something wrong was seen.
    pub(super) fn looked_again(&mut self, present: bool, right: bool) {
        let certainly_nothing = match &self.history {
            History::Register(register) => register.certain() == Some(State::Absent),
            History::Counter(_) => false,
        };
        // That something expired meanwhile tells nothing.
        let tells = !right || present || certainly_nothing;
        if let (Some(found), true) = (&mut self.found, tells) {
            found.looked_again(right);
        }
    }

    fn expected(&self) -> String {
        match &self.history {
            History::Register(register) => register.expected(),
            History::Counter(counter) => counter.expected(),
        }
    }
}

fn begin_on_register(register: &mut Register, wish: Wish, now_ms: u64) -> Action {
    let content = register.next_number();
    match (wish, register.certain()) {
        (Wish::Delete, _) => {
            register.send(State::Absent);
            Action::Delete
        }
        (
            Wish::Expire { at_ms },
            Some(State::Present {
                content,
                expires_at_ms,
            }),
        ) if expires_at_ms.is_none_or(|at_ms| at_ms > now_ms + EXPIRE_MARGIN_MS) => {
            let expires_at_ms = Some(at_ms);
            register.send(State::Present {
                content,
                expires_at_ms,
            });
            Action::Expire { at_ms }
        }
        (Wish::SetExpiring { at_ms } | Wish::Expire { at_ms }, _) => {
            let expires_at_ms = Some(at_ms);
            register.send(State::Present {
                content,
                expires_at_ms,
            });
            Action::Set {
                content,
                expires_at_ms,
            }
        }
        (Wish::Set | Wish::Increment, _) => {
            let expires_at_ms = None;
            register.send(State::Present {
                content,
                expires_at_ms,
            });
            Action::Set {
                content,
                expires_at_ms,
            }
        }
    }
}

fn count(value: &[u8]) -> Option<u64> {
    str::from_utf8(value).ok()?.parse().ok()
}
