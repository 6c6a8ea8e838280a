//! A server that knows nothing of the ring: values, users, the stream of touched keys, a disk.
//!
//! It does what redis-server was seen to do, as far as the handoff rests on it: a user that is removed takes
//! its connections with it; users live in memory only; touches are told at the end of the turn in which they
//! happen, after the answers of that turn; a session's requests take effect in the order in which they were
//! sent; what was written since the last sync may be gone after a restart, the newest first.

use std::collections::BTreeMap;
use std::rc::Rc;

use clockwise_cluster::handoff::Identity;
use clockwise_cluster::{Incarnation, Nonce};

use super::executor::Mailbox;
use super::network::Wire;

/// A key. Its name is what is hashed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key(pub(super) [u8; 4]);

impl Key {
    pub(super) fn new(number: usize) -> Self {
        let digits = [number / 100, number / 10, number]
            .map(|digit| b'0' + u8::try_from(digit % 10).unwrap_or(0));
        Self([b'k', digits[0], digits[1], digits[2]])
    }

    fn number(&self) -> usize {
        self.name()[1..].parse().unwrap_or(0)
    }

    pub(super) fn name(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("?")
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// What a key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Value {
    /// The write that left it; no two have the same.
    pub(super) write: u64,
    pub(super) count: u64,
    pub(super) expires_at_ms: Option<u64>,
}

/// Who wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hand {
    Client,
    Mover,
}

/// What a restart brings back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Disk {
    /// All there was.
    Full,
    /// All that was synced, and some of the rest.
    Old,
    /// Nothing.
    Empty,
}

/// What a change that is not synced yet took the place of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsynced {
    pub(super) key: Key,
    pub(super) before: Option<Value>,
    pub(super) hand: Hand,
}

/// A connection over which touched keys are told.
#[derive(Clone, Debug)]
pub(super) struct Tracker {
    pub(super) term: u64,
    pub(super) wire: Rc<Wire>,
    pub(super) heard: Mailbox<Heard>,
}

/// What it tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    Touched(Key),
    Pong,
    Lost,
}

/// One server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) node: usize,
    pub(super) run: u64,
    pub(super) up: bool,
    // Its clock, against the true one.
    pub(super) skew_ms: i64,
    pub(super) values: BTreeMap<Key, Value>,
    pub(super) unsynced: Vec<Unsynced>,
    pub(super) users: BTreeMap<u64, Nonce>,
    // The session of each term's user.
    pub(super) terms: BTreeMap<u64, Rc<Wire>>,
    pub(super) clients: Vec<(u64, Rc<Wire>)>,
    pub(super) trackers: Vec<Tracker>,
    // Touches of this turn.
    pub(super) touched: Vec<Key>,
    // A long script.
    pub(super) busy: bool,
    // Whether it may have what had been removed: a restart brought it back, or it could not be reached then.
    pub(super) leftovers: bool,
}

impl Server {
    pub(super) fn new(node: usize, skew_ms: i64) -> Self {
        Self {
            node,
            run: 1,
            up: true,
            skew_ms,
            values: BTreeMap::new(),
            unsynced: Vec::new(),
            users: BTreeMap::new(),
            terms: BTreeMap::new(),
            clients: Vec::new(),
            trackers: Vec::new(),
            touched: Vec::new(),
            busy: false,
            leftovers: false,
        }
    }

    pub(super) fn clock_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_add_signed(self.skew_ms)
    }

    pub(super) fn identity(&self) -> Identity {
        let name = |what: char| format!("{what}{}.{}", self.node, self.run);
        Identity {
            incarnation: Incarnation {
                run_id: name('r').parse().expect("a plain name"),
                replication_id: name('d').parse().expect("a plain name"),
            },
            primary: true,
        }
    }

    /// What is there now; a value that has expired is not.
    pub(super) fn get(&self, key: Key, now_ms: u64) -> Option<Value> {
        let clock_ms = self.clock_ms(now_ms);
        let value = self.values.get(&key).copied()?;
        let expired = value.expires_at_ms.is_some_and(|at_ms| at_ms <= clock_ms);
        (!expired).then_some(value)
    }

    /// Keys that exist, some at a time: from a cursor on, and where to go on, 0 at the end. What exists
    /// throughout is listed.
    pub(super) fn scan(&self, cursor: usize, count: usize) -> (usize, Vec<Key>) {
        let from = Key::new(cursor);
        let some: Vec<Key> = self
            .values
            .range(from..)
            .take(count)
            .map(|(key, _)| *key)
            .collect();
        let next = match some.last() {
            Some(last) if some.len() == count => last.number() + 1,
            _ => 0,
        };
        (next, some)
    }

    pub(super) fn put(&mut self, key: Key, value: Option<Value>, hand: Hand, now_ms: u64) {
        let clock_ms = self.clock_ms(now_ms);
        let lives = |value: &Value| value.expires_at_ms.is_none_or(|at_ms| at_ms > clock_ms);
        let value = value.filter(lives);
        let before = match value {
            Some(value) => self.values.insert(key, value),
            None => self.values.remove(&key),
        };
        if before.is_some() || value.is_some() {
            self.unsynced.push(Unsynced { key, before, hand });
            self.touched.push(key);
        }
    }

    /// Lets go of every connection.
    pub(super) fn forget_all(&mut self) {
        self.terms.clear();
        self.clients.clear();
        self.trackers.clear();
    }

    /// Whether a copy of this key is not on the disk yet.
    pub(super) fn copy_is_unsynced(&self, key: Key) -> bool {
        let mut unsynced = self.unsynced.iter();
        unsynced.any(|change| change.key == key && change.hand == Hand::Mover)
    }

    /// Everything written so far is on the disk.
    pub(super) fn sync(&mut self) {
        self.unsynced.clear();
    }

    /// Starts again with what the disk has; `lost` of the newest changes were not on it. Returns the keys of
    /// clients' changes that are gone.
    pub(super) fn restart(&mut self, disk: Disk, lost: usize) -> Vec<Key> {
        let mut gone = Vec::new();
        match disk {
            Disk::Full => {}
            Disk::Old => {
                for _ in 0..lost {
                    let Some(Unsynced { key, before, hand }) = self.unsynced.pop() else {
                        break;
                    };
                    self.leftovers = true;
                    match before {
                        Some(value) => self.values.insert(key, value),
                        None => self.values.remove(&key),
                    };
                    if hand == Hand::Client {
                        gone.push(key);
                    }
                }
            }
            Disk::Empty => {
                gone.extend(self.values.keys().copied());
                self.values.clear();
            }
        }
        self.unsynced.clear();
        self.touched.clear();
        self.users.clear();
        self.run += 1;
        self.up = true;
        gone
    }

    /// Makes a client user in place of any other of its generation, whose connections go.
    pub(super) fn make_user(&mut self, generation: u64, nonce: Nonce) -> Vec<Rc<Wire>> {
        let other = self.users.insert(generation, nonce);
        match other {
            Some(before) if before != nonce => self.drop_clients(|of| of == generation),
            _ => Vec::new(),
        }
    }

    /// Removes client users, and gives back the connections that go with them.
    pub(super) fn remove_users(&mut self, goes: impl Fn(u64) -> bool) -> Vec<Rc<Wire>> {
        self.users.retain(|&generation, _| !goes(generation));
        self.drop_clients(goes)
    }

    fn drop_clients(&mut self, goes: impl Fn(u64) -> bool) -> Vec<Rc<Wire>> {
        let (gone, kept) = self
            .clients
            .drain(..)
            .partition(|(generation, _)| goes(*generation));
        self.clients = kept;
        let gone: Vec<(u64, Rc<Wire>)> = gone;
        gone.into_iter().map(|(_, wire)| wire).collect()
    }

    pub(super) fn highest_term(&self) -> Option<u64> {
        self.terms.last_key_value().map(|(term, _)| *term)
    }

    /// Makes the user of a term; those of lower terms go, and the session that this term had.
    pub(super) fn enter(&mut self, term: u64, wire: &Rc<Wire>) -> Vec<Rc<Wire>> {
        let higher = self.terms.split_off(&(term + 1));
        let gone = std::mem::replace(&mut self.terms, higher);
        self.terms.insert(term, Rc::clone(wire));
        let (out, kept) = self
            .trackers
            .drain(..)
            .partition(|tracker| tracker.term <= term);
        self.trackers = kept;
        let out: Vec<Tracker> = out;
        let trackers = out.into_iter().map(|tracker| tracker.wire);
        gone.into_values().chain(trackers).collect()
    }
}
