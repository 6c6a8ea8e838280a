//! The keys of a node and who is told when one is touched.

use bytes::Bytes;

use super::dirty::DirtyStreams;
use super::keyspace::{Entry, Keyspace};
use crate::driver::Dirty;

/// Keys whose time is over that are cleared up in one go.
const DUE_MAX: usize = 100;

/// Keys, values and dirty-key streams. Whatever changes a key tells of it.
#[derive(Debug, Default)]
pub(super) struct Data {
    keys: Keyspace,
    dirty: DirtyStreams,
    /// Bytes of memory above which nothing that needs more is taken.
    memory_limit: Option<u64>,
    /// Commands executed.
    pub(super) commands: u64,
    /// Keys touched.
    touches: u64,
}

impl Data {
    pub(super) fn with_limit(memory_limit: Option<u64>) -> Self {
        Self {
            memory_limit,
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.keys.bytes() as u64
    }

    pub(super) fn memory_limit(&self) -> Option<u64> {
        self.memory_limit
    }

    pub(super) fn is_full(&self) -> bool {
        self.memory_limit
            .is_some_and(|limit| self.memory_bytes() > limit)
    }

    /// The entry of a key; one whose time is over goes.
    pub(super) fn get(&mut self, key: &[u8], now_ms: u64) -> Option<&Entry> {
        if self.keys.is_expired(key, now_ms) {
            self.remove(key);
        }
        self.keys.get(key, now_ms)
    }

    pub(super) fn value(&mut self, key: &[u8], now_ms: u64) -> Option<&[u8]> {
        self.get(key, now_ms).map(|entry| entry.value.as_slice())
    }

    pub(super) fn exists(&mut self, key: &[u8], now_ms: u64) -> bool {
        self.get(key, now_ms).is_some()
    }

    /// Stores a value, replacing what is there; one whose time is over only takes that away.
    pub(super) fn set(
        &mut self,
        key: &[u8],
        value: Vec<u8>,
        expires_at_ms: Option<u64>,
        now_ms: u64,
    ) {
        if expires_at_ms.is_some_and(|at| at <= now_ms) {
            self.remove(key);
            return;
        }
        let key = self.keys.insert(
            key,
            Entry {
                value,
                expires_at_ms,
            },
        );
        self.touched(&key);
    }

    /// Changes an entry that is there.
    pub(super) fn modify(&mut self, key: &[u8], change: impl FnOnce(&mut Entry)) {
        if let Some(key) = self.keys.modify(key, change) {
            self.touched(&key);
        }
    }

    /// Takes a key away, whether its time is over or not.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let (key, entry) = self.keys.remove(key)?;
        self.touched(&key);
        Some(entry)
    }

    /// Takes a key away if it is there for those who look now.
    pub(super) fn delete(&mut self, key: &[u8], now_ms: u64) -> Option<Entry> {
        let is_expired = self.keys.is_expired(key, now_ms);
        self.remove(key).filter(|_| !is_expired)
    }

    fn touched(&mut self, key: &Bytes) {
        self.touches += 1;
        self.dirty.touched(key);
    }

    /// How often a key was touched.
    pub(super) fn touches(&self) -> u64 {
        self.touches
    }

    pub(super) fn flush(&mut self) {
        self.touches += 1;
        self.keys.clear();
        self.dirty.everything();
    }

    /// Clears up some keys whose time is over; says whether there may be more.
    pub(super) fn expire_due(&mut self, now_ms: u64) -> bool {
        for _ in 0..DUE_MAX {
            let Some(key) = self.keys.first_due(now_ms) else {
                return false;
            };
            self.remove(&key);
        }
        true
    }

    pub(super) fn scan(&self, cursor: u64, count: usize, now_ms: u64) -> (u64, Vec<Bytes>) {
        self.keys.scan(cursor, count, now_ms)
    }

    pub(super) fn at_or_behind(&self, place: u64, now_ms: u64) -> Option<&Bytes> {
        self.keys.at_or_behind(place, now_ms)
    }

    pub(super) fn all_keys(&self, now_ms: u64) -> impl Iterator<Item = &Bytes> {
        self.keys.keys(now_ms)
    }

    pub(super) fn track(&mut self) -> u64 {
        self.dirty.open()
    }

    pub(super) fn untrack(&mut self, stream: u64) {
        self.dirty.close(stream);
    }

    pub(super) fn take_dirty(&mut self, stream: u64) -> Option<Dirty> {
        self.dirty.take(stream)
    }

    pub(super) fn backlog_bytes(&self, stream: u64) -> Option<u64> {
        self.dirty.backlog_bytes(stream)
    }
}
