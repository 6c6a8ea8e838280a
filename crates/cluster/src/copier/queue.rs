//! The keys of one target that wait to be read.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Listed, dirty and round keys of one lane.
#[derive(Clone, Debug)]
pub(super) struct Queue<K> {
    /// From the listing, in its order; may name a key twice.
    pub(super) listed: VecDeque<K>,
    // Invariant: no key is in both.
    dirty: BTreeSet<K>,
    round: BTreeSet<K>,
    // Invariant: no key is in both.
    /// Keys whose changes the stream does not show, with the bytes last seen.
    pub(super) untracked: BTreeMap<K, u64>,
    /// Large values a part of which the stream does not show, with the bytes of that part.
    pub(super) parts: BTreeMap<K, u64>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            listed: VecDeque::new(),
            dirty: BTreeSet::new(),
            round: BTreeSet::new(),
            untracked: BTreeMap::new(),
            parts: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    pub(super) fn in_round(&self, key: &K) -> bool {
        self.round.contains(key)
    }

    pub(super) fn waits(&self, key: &K) -> bool {
        self.dirty.contains(key) || self.round.contains(key)
    }

    pub(super) fn dirty_len(&self) -> usize {
        self.dirty.len()
    }

    pub(super) fn round_is_empty(&self) -> bool {
        self.round.is_empty()
    }

    /// Whether it was not there before.
    pub(super) fn dirty_insert(&mut self, key: K) -> bool {
        self.dirty.insert(key)
    }

    pub(super) fn begin_round(&mut self) {
        if self.round.is_empty() {
            core::mem::swap(&mut self.round, &mut self.dirty);
        } else {
            self.round.append(&mut self.dirty);
        }
    }

    /// Adds the untracked keys that neither wait nor fly to the round, and names those it added.
    pub(super) fn untracked_to_round(&mut self, flies: impl Fn(&K) -> bool) -> Vec<K> {
        let idle = |key: &&K| !flies(key) && !self.waits(key);
        let added: Vec<K> = self.untracked.keys().filter(idle).cloned().collect();
        self.round.extend(added.iter().cloned());
        added
    }

    pub(super) fn round_pop(&mut self) -> Option<K> {
        self.round.pop_first()
    }

    /// Remembers or forgets a key as one whose changes the stream does not show.
    pub(super) fn note_kind(&mut self, key: &K, bytes: u64, untracked: bool) {
        self.forget(key);
        if untracked {
            self.untracked.insert(key.clone(), bytes);
        }
    }

    /// The same of a large value, of which only a part is not shown.
    pub(super) fn note_part(&mut self, key: &K, bytes: Option<u64>) {
        self.forget(key);
        if let Some(bytes) = bytes {
            self.parts.insert(key.clone(), bytes);
        }
    }

    pub(super) fn forget(&mut self, key: &K) {
        // Most pools have none of either kind.
        if !self.untracked.is_empty() {
            self.untracked.remove(key);
        }
        if !self.parts.is_empty() {
            self.parts.remove(key);
        }
    }
}
