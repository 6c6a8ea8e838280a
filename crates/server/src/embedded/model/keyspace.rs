//! Keys and strings in memory, in an order in which a listing can keep its place.
//!
//! Entries are ordered by a hash of their key. A listing's cursor is a place in that order, and no
//! entry ever moves: whatever exists throughout a listing is listed exactly once, whatever else comes
//! and goes. Finding a key costs a search in a tree and takes no memory.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// What an entry costs beside its key and value: about what the tree keeps for it.
const ENTRY_BYTES: usize = 96;

/// A string and the time at which it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) value: Vec<u8>,
    /// Milliseconds since 1970; may lie in the past, and then nobody sees the entry.
    pub(super) expires_at_ms: Option<u64>,
}

impl Entry {
    fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at| at <= now_ms)
    }
}

/// All entries. Who looks says what time it is.
#[derive(Debug)]
pub(super) struct Keyspace {
    entries: BTreeMap<(u64, Bytes), Entry>,
    /// Entries that expire, by time.
    expiring: BTreeSet<(u64, u64, Bytes)>,
    bytes: usize,
    position: fn(&[u8]) -> u64,
}

impl Default for Keyspace {
    fn default() -> Self {
        // One bit less: some clients keep a cursor in a signed number.
        Self::with_positions(|key| xxh3_64(key) >> 1)
    }
}

impl Keyspace {
    fn with_positions(position: fn(&[u8]) -> u64) -> Self {
        Self {
            entries: BTreeMap::new(),
            expiring: BTreeSet::new(),
            bytes: 0,
            position,
        }
    }

    /// Entries, expired ones that nobody has touched included.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// About how many bytes of memory they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, key: &[u8], now_ms: u64) -> Option<&Entry> {
        let (_, entry) = self.find(key)?;
        (!entry.is_expired(now_ms)).then_some(entry)
    }

    /// Whether an entry is there whose time is over.
    pub(super) fn is_expired(&self, key: &[u8], now_ms: u64) -> bool {
        self.find(key)
            .is_some_and(|(_, entry)| entry.is_expired(now_ms))
    }

    fn find(&self, key: &[u8]) -> Option<(&(u64, Bytes), &Entry)> {
        let position = (self.position)(key);
        let from_here = self.entries.range((position, Bytes::new())..);
        from_here
            .take_while(|((at, _), _)| *at == position)
            .find(|((_, found), _)| found == key)
    }

    /// Puts an entry in the place of what is there. Gives back the key as it is kept.
    pub(super) fn insert(&mut self, key: &[u8], entry: Entry) -> Bytes {
        let key = self
            .remove(key)
            .map_or_else(|| Bytes::copy_from_slice(key), |(key, _)| key);
        let position = (self.position)(&key);
        self.bytes += ENTRY_BYTES + key.len() + entry.value.len();
        if let Some(at) = entry.expires_at_ms {
            self.expiring.insert((at, position, key.clone()));
        }
        self.entries.insert((position, key.clone()), entry);
        key
    }

    /// Changes an entry where it is. Gives back the key as it is kept.
    pub(super) fn modify(&mut self, key: &[u8], change: impl FnOnce(&mut Entry)) -> Option<Bytes> {
        let at = self.find(key)?.0.clone();
        let entry = self.entries.get_mut(&at)?;
        let (position, key) = at;
        let before = (entry.value.len(), entry.expires_at_ms);
        change(entry);
        self.bytes = self.bytes - before.0 + entry.value.len();
        if entry.expires_at_ms != before.1 {
            if let Some(at) = before.1 {
                self.expiring.remove(&(at, position, key.clone()));
            }
            if let Some(at) = entry.expires_at_ms {
                self.expiring.insert((at, position, key.clone()));
            }
        }
        Some(key)
    }

    /// Takes an entry out, expired or not.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<(Bytes, Entry)> {
        let (position, key) = self.find(key)?.0.clone();
        let ((_, key), entry) = self.entries.remove_entry(&(position, key))?;
        self.bytes -= ENTRY_BYTES + key.len() + entry.value.len();
        if let Some(at) = entry.expires_at_ms {
            self.expiring.remove(&(at, position, key.clone()));
        }
        Some((key, entry))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::with_positions(self.position);
    }

    /// A key whose time is over, if there is one.
    pub(super) fn first_due(&self, now_ms: u64) -> Option<Bytes> {
        let (at, _, key) = self.expiring.first()?;
        (*at <= now_ms).then(|| key.clone())
    }

    /// Some keys from `cursor` on, at least `count` unless it is the end, and where the next listing
    /// goes on; 0 is both the beginning and the end.
    pub(super) fn scan(&self, cursor: u64, count: usize, now_ms: u64) -> (u64, Vec<Bytes>) {
        let mut keys = Vec::new();
        let mut listed = None;
        for ((position, key), entry) in self.entries.range((cursor, Bytes::new())..) {
            // Keys in one place stay together: a cursor cannot point between them.
            if keys.len() >= count && listed != Some(*position) {
                return (*position, keys);
            }
            listed = Some(*position);
            if !entry.is_expired(now_ms) {
                keys.push(key.clone());
            }
        }
        (0, keys)
    }

    /// The first key at or behind a place, or else the first of all: what a random number picks.
    pub(super) fn at_or_behind(&self, place: u64, now_ms: u64) -> Option<&Bytes> {
        let behind = self.entries.range((place, Bytes::new())..);
        let mut alive = behind
            .chain(&self.entries)
            .filter(|(_, entry)| !entry.is_expired(now_ms));
        alive.next().map(|((_, key), _)| key)
    }

    /// All keys, for `KEYS`.
    pub(super) fn keys(&self, now_ms: u64) -> impl Iterator<Item = &Bytes> {
        let alive = self
            .entries
            .iter()
            .filter(move |(_, entry)| !entry.is_expired(now_ms));
        alive.map(|((_, key), _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: &str, expires_at_ms: Option<u64>) -> Entry {
        Entry {
            value: value.as_bytes().to_vec(),
            expires_at_ms,
        }
    }

    /// All keys share eight places.
    fn crowded() -> Keyspace {
        Keyspace::with_positions(|key| u64::from(key.last().copied().unwrap_or(0) % 8))
    }

    fn list(keyspace: &Keyspace, count: usize) -> Vec<Bytes> {
        let (mut cursor, mut all) = (0, Vec::new());
        loop {
            let (next, keys) = keyspace.scan(cursor, count, 0);
            all.extend(keys);
            cursor = next;
            if cursor == 0 {
                return all;
            }
        }
    }

    #[test]
    fn keys_in_one_place_are_told_apart_and_counted() {
        let mut keyspace = crowded();
        for rank in 0..100 {
            keyspace.insert(format!("key{rank}").as_bytes(), entry("v", Some(rank)));
        }
        keyspace.insert(b"key42", entry("w", None));
        assert_eq!(keyspace.len(), 100);
        assert_eq!(keyspace.get(b"key42", u64::MAX).unwrap().value, b"w");
        assert_eq!(keyspace.get(b"key4", 0).unwrap().value, b"v");
        assert!(keyspace.get(b"key", 0).is_none());
        for rank in 0..100 {
            assert!(keyspace.remove(format!("key{rank}").as_bytes()).is_some());
        }
        assert_eq!(
            (keyspace.len(), keyspace.bytes(), keyspace.expiring.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn a_listing_shows_what_stays_exactly_once_whatever_comes_and_goes() {
        for count in [1, 3, 10, 1000] {
            let mut keyspace = crowded();
            for rank in 0..60 {
                keyspace.insert(format!("stays{rank}").as_bytes(), entry("v", None));
                keyspace.insert(format!("goes{rank}").as_bytes(), entry("v", None));
            }
            let (mut cursor, mut listed, mut rank) = (0, Vec::new(), 0);
            loop {
                let (next, keys) = keyspace.scan(cursor, count, 0);
                listed.extend(keys.into_iter().filter(|key| key.starts_with(b"stays")));
                keyspace.remove(format!("goes{rank}").as_bytes());
                keyspace.insert(format!("comes{rank}").as_bytes(), entry("v", None));
                rank += 1;
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            listed.sort();
            let mut expected: Vec<_> = (0..60)
                .map(|rank| Bytes::from(format!("stays{rank}")))
                .collect();
            expected.sort();
            assert_eq!(listed, expected, "count {count}");
        }
    }

    #[test]
    fn what_has_expired_is_seen_by_nobody_and_found_by_who_clears_up() {
        let mut keyspace = Keyspace::default();
        keyspace.insert(b"a", entry("v", Some(10)));
        keyspace.insert(b"b", entry("v", Some(20)));
        keyspace.insert(b"c", entry("v", None));
        assert_eq!(list(&keyspace, 10).len(), 3);
        assert!(keyspace.get(b"a", 9).is_some() && keyspace.get(b"a", 10).is_none());
        assert_eq!(keyspace.keys(15).count(), 2);
        assert_eq!(keyspace.scan(0, 10, 15).1.len(), 2);
        assert_eq!(keyspace.first_due(9), None);
        assert_eq!(keyspace.first_due(15).as_deref(), Some(&b"a"[..]));
        keyspace.remove(b"a");
        assert_eq!(keyspace.first_due(15), None);
        keyspace.modify(b"b", |entry| entry.expires_at_ms = Some(12));
        assert_eq!(keyspace.first_due(15).as_deref(), Some(&b"b"[..]));
        let before = keyspace.bytes();
        keyspace.modify(b"b", |entry| {
            (entry.expires_at_ms, entry.value) = (None, b"longer".to_vec())
        });
        assert_eq!(
            (keyspace.first_due(u64::MAX), keyspace.bytes()),
            (None, before + 5)
        );
    }
}
