//! What was sent to every key and what was answered, shared by all connections.
//!
//! Each key has a history of its own under a lock of its own. A key on which something wrong was
//! seen is left alone from then on, as evidence: nothing is written over it, and it is read again
//! soon and at the end, which tells whether the right value was late or is lost.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::Clock;
use super::entry::{Action, Done, Entry, EntryReading, Wish, Writer, Wrong};
use super::fault::Fault;
use super::finding::Finding;
use super::history::{Anomaly, ExpirySeen, Flight, Outcome};
use super::options::{KEYS_PER_COUNTER, WorkloadOptions};
use super::payload::Payloads;

#[derive(Debug)]
pub(super) struct Ledger {
    keys: Vec<Mutex<Entry>>,
    /// Keys on which something wrong was seen, to be read again soon: their values may expire.
    suspects: Mutex<Vec<usize>>,
    /// Spares the lock: nearly always there are none.
    has_suspects: AtomicBool,
    connections: usize,
    prefix: String,
    payloads: Payloads,
    pub(super) clock: Clock,
    tolerance_ms: u64,
    unknown_rest_ms: u64,
}

/// A write that was noted as sent. It must be settled, exactly once.
#[derive(Debug)]
#[must_use]
pub(super) struct Write {
    pub(super) key: usize,
    pub(super) action: Action,
}

/// A read under way. It must be judged or abandoned.
#[derive(Debug)]
#[must_use]
pub(super) struct KeyReading {
    pub(super) key: usize,
    reading: EntryReading,
    /// Something wrong had been seen on the key before.
    is_second_look: bool,
}

/// When a request was sent and answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) sent_ms: u64,
    pub(super) answered_ms: u64,
}

impl Ledger {
    /// Keys of which nothing is known yet.
    pub(super) fn new(options: &WorkloadOptions) -> Ledger {
        let connections = options.connections;
        let entry = |key: usize| {
            let writer = Writer::Connection(key % connections);
            Mutex::new(if is_counter(key, connections) {
                Entry::counter(writer)
            } else {
                Entry::register(writer)
            })
        };
        Ledger {
            keys: (0..options.keys).map(entry).collect(),
            suspects: Mutex::default(),
            has_suspects: AtomicBool::new(false),
            connections,
            prefix: options.key_prefix.clone(),
            payloads: Payloads {
                seed: options.seed,
                bytes: options.value_bytes,
            },
            clock: Clock::start(),
            tolerance_ms: millis(options.expiry_tolerance),
            unknown_rest_ms: millis(options.unknown_rest),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn name(&self, key: usize) -> String {
        format!("{}:{key}", self.prefix)
    }

    pub(super) fn is_counter(&self, key: usize) -> bool {
        is_counter(key, self.connections)
    }

    pub(super) fn value(&self, key: usize, content: u64) -> Vec<u8> {
        self.payloads.value(key, content)
    }

    /// Acknowledged writes of connections, key by key.
    pub(super) fn acknowledged(&self) -> Vec<u32> {
        self.keys()
            .map(|key| self.entry(key).acknowledged)
            .collect()
    }

    /// Hands keys over to another writer, which gets them for good, and returns them.
    pub(super) fn claim(&self, writer: Writer, wanted: impl Fn(&[u8]) -> bool) -> Vec<usize> {
        let wanted = |key: &usize| wanted(self.name(*key).as_bytes());
        let claimed: Vec<usize> = self.keys().filter(wanted).collect();
        for key in &claimed {
            self.entry(*key).writer = writer;
        }
        claimed
    }

    /// Until when a write of unknown outcome may still be executed somewhere.
    pub(super) fn rests_until_ms(&self) -> u64 {
        let rests = self.keys().map(|key| self.entry(key).rests_until_ms);
        rests.max().unwrap_or(0)
    }

    /// Notes a write as sent, if this writer may write the key now.
    pub(super) fn begin_write(&self, key: usize, writer: Writer, wish: Wish) -> Option<Write> {
        let mut entry = self.entry(key);
        let now_ms = self.clock.now_ms();
        let takes = entry.takes_writes_of(writer, now_ms);
        takes.then(|| Write {
            key,
            action: entry.begin(wish, now_ms),
        })
    }

    /// Notes the write that makes the key, before anything else happens to it.
    pub(super) fn begin_making(&self, key: usize) -> Write {
        let action = self.entry(key).begin_making();
        Write { key, action }
    }

    pub(super) fn acknowledge(&self, write: Write, done: Done, times: Times) {
        let mut entry = self.entry(write.key);
        if let Err(wrong) = entry.acknowledge(write.action, done, self.flight(times)) {
            self.note(write.key, &mut entry, wrong);
            if let Some(found) = &mut entry.found {
                found.close();
            }
        }
    }

    /// Notes a write that was answered with an error, or not at all.
    pub(super) fn give_up(&self, write: Write, outcome: Outcome) {
        let mut entry = self.entry(write.key);
        let rests_until_ms = self.clock.now_ms() + self.unknown_rest_ms;
        if let Err(wrong) = entry.give_up(write.action, outcome, rests_until_ms) {
            self.note(write.key, &mut entry, wrong);
        }
    }

    pub(super) fn begin_read(&self, key: usize) -> KeyReading {
        let mut entry = self.entry(key);
        KeyReading {
            key,
            reading: entry.begin_reading(),
            is_second_look: entry.found.is_some(),
        }
    }

    /// Begins to read a key again on which something wrong was seen, if there is one.
    pub(super) fn begin_second_look(&self) -> Option<KeyReading> {
        if !self.has_suspects.load(Ordering::Relaxed) {
            return None;
        }
        let suspect = {
            let mut suspects = self.suspects();
            self.has_suspects
                .store(suspects.len() > 1, Ordering::Relaxed);
            suspects.pop()?
        };
        Some(self.begin_read(suspect))
    }

    pub(super) fn abandon(&self, reading: KeyReading) {
        self.entry(reading.key).abandon(reading.reading);
    }

    /// Judges the value a read got; `None` is nothing.
    pub(super) fn saw_value(&self, reading: KeyReading, value: Option<&[u8]>, times: Times) {
        let KeyReading {
            key,
            reading,
            is_second_look,
        } = reading;
        let mut entry = self.entry(key);
        let judged = entry.saw_value(key, reading, value, self.payloads, self.flight(times));
        if is_second_look {
            entry.looked_again(value.is_some(), judged.is_ok());
        }
        if let Err(wrong) = judged {
            self.note(key, &mut entry, wrong);
        }
    }

    /// Judges an expiry that is known to within `slack_ms`.
    pub(super) fn saw_expiry(
        &self,
        reading: KeyReading,
        seen: ExpirySeen,
        slack_ms: u64,
        times: Times,
    ) {
        let mut flight = self.flight(times);
        flight.tolerance_ms += slack_ms;
        let mut entry = self.entry(reading.key);
        if let Err(wrong) = entry.saw_expiry(reading.reading, seen, flight) {
            self.note(reading.key, &mut entry, wrong);
        }
    }

    /// Notes an answer that cannot belong to the request, such as a number to a GET.
    pub(super) fn saw_wrong_form(&self, key: usize, detail: String) {
        self.note(key, &mut self.entry(key), (Anomaly::NeverSent, detail));
    }

    /// Keys on which something wrong was seen.
    pub(super) fn faulty(&self) -> Vec<usize> {
        self.keys()
            .filter(|key| self.entry(*key).found.is_some())
            .collect()
    }

    /// What was found, key by key.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let fault = |key: usize| {
            let entry = self.entry(key);
            let found = entry.found.as_ref()?;
            Some(Fault {
                kind: found.kind(),
                key: self.name(key),
                detail: found.detail.clone(),
                at_ms: found.at_ms,
            })
        };
        self.keys().filter_map(fault).collect()
    }

    fn note(&self, key: usize, entry: &mut Entry, (anomaly, detail): Wrong) {
        let replaces = |found: &Finding| found.is_explained_by(anomaly);
        if entry.found.as_ref().is_none_or(replaces) {
            entry.found = Some(Finding::new(anomaly, detail, self.clock.now_ms()));
            let mut suspects = self.suspects();
            suspects.push(key);
            self.has_suspects.store(true, Ordering::Relaxed);
        }
    }

    fn keys(&self) -> Range<usize> {
        0..self.keys.len()
    }

    fn suspects(&self) -> MutexGuard<'_, Vec<usize>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flight(&self, times: Times) -> Flight {
        Flight {
            sent_ms: times.sent_ms,
            answered_ms: times.answered_ms,
            tolerance_ms: self.tolerance_ms,
        }
    }

    fn entry(&self, key: usize) -> MutexGuard<'_, Entry> {
        self.keys[key]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_counter(key: usize, connections: usize) -> bool {
    (key / connections) % KEYS_PER_COUNTER == KEYS_PER_COUNTER - 1
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
