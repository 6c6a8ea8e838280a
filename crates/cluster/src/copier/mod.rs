//! The bookkeeping of a copy from one source to several targets: which key is read next, and what
//! has to be read again.
//!
//! It decides and never looks: whoever drives it lists keys, hears which were touched, reads, writes
//! and reports. Two orders decide whether a write is lost, and both are kept here:
//!
//! - **A key leaves the dirty set before it is read.** What touches it after that puts it back.
//! - **At most one copy of a key is in flight**, so that an older value never lands after a newer one.
//!   With one ordered connection per target ([`Lane`]) this holds across batches too.
//!
//! Keys go out in [`Batch`]es bounded by number and by estimated bytes, as the [`Throttle`] allows.
//! Large values are not batched: one of them at a time travels in pieces. After the listing, the dirty
//! keys are copied in *rounds*; the handoff machine decides when enough rounds have been made.
//!
//! Memory: keys, never values. At most [`Limits::listed_keys_max`] listed keys and
//! [`Limits::dirty_bytes_max`] bytes of touched ones (with [`KEY_OVERHEAD_BYTES`] counted for each)
//! wait; beyond that listing pauses, and beyond twice that the copy stops and says so. With the
//! defaults that is about 70 MiB a source in the worst case. Cost per key: a few look-ups in ordered
//! sets that are small unless the writes outpace the copy.

mod batch;
mod pace;
mod queue;
mod throttle;

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use batch::cost;
pub use batch::{
    Batch, CopyStop, Counts, Found, KEY_OVERHEAD_BYTES, Lane, Limits, Next, Untracked,
};
pub use pace::Pace;
use queue::Queue;
pub use throttle::{Rate, Throttle};

/// Dirty passes over one large value before the copy gives up on it.
const BIG_PASSES_MAX: u32 = 3;

/// Which keys of one source wait, travel and have landed.
///
/// `K` is whatever holds a key's bytes cheaply. See the [module](self) for the two rules it keeps.
#[derive(Clone, Debug)]
pub struct Copier<K> {
    limits: Limits,
    queues: Vec<Queue<K>>,
    // Invariant: a key waits dirty, waits in a round, waits as a big one or flies: at most one of them.
    flying: BTreeMap<K, Touched>,
    big_waiting: BTreeMap<K, Lane>,
    big_flying: Option<(Lane, K)>,
    // Dirty passes in a row of large values.
    big_passes: BTreeMap<K, u32>,
    // Found different while comparing; real only if untouched until the stream has caught up.
    suspects: BTreeMap<K, Lane>,
    dirty_bytes: usize,
    bytes_per_key: u64,
    next_lane: usize,
    counts: Counts,
    stop: Option<CopyStop>,
}

/// Whether a key in flight was touched after it was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Touched {
    No,
    Yes,
}

/// A guess before any value was seen; soon replaced by a running average.
const BYTES_PER_KEY_START: u64 = 256;

impl<K: Ord + Clone + AsRef<[u8]>> Copier<K> {
    /// Nothing listed, nothing touched.
    #[must_use]
    pub fn new(lanes: u16, limits: Limits) -> Self {
        Self {
            limits,
            queues: (0..lanes).map(|_| Queue::default()).collect(),
            flying: BTreeMap::new(),
            big_waiting: BTreeMap::new(),
            big_flying: None,
            big_passes: BTreeMap::new(),
            suspects: BTreeMap::new(),
            dirty_bytes: 0,
            bytes_per_key: BYTES_PER_KEY_START,
            next_lane: 0,
            counts: Counts::default(),
            stop: None,
        }
    }

    /// Whether more keys should be listed. No while enough of them wait or the touched ones go first.
    #[must_use]
    pub fn wants_listing(&self) -> bool {
        let listed: usize = self.queues.iter().map(|queue| queue.listed.len()).sum();
        listed < self.limits.listed_keys_max && !self.dirt_goes_first()
    }

    /// Takes in a key from the listing of the source.
    pub fn listed(&mut self, lane: Lane, key: K) {
        self.counts.listed += 1;
        self.queues[lane.index()].listed.push_back(key);
    }

    /// Takes in that a key was touched at the source.
    pub fn touched(&mut self, lane: Lane, key: K) {
        if let Some(touched) = self.flying.get_mut(&key) {
            *touched = Touched::Yes;
            return;
        }
        self.suspects.remove(&key);
        if self.big_waiting.contains_key(&key) || self.queues[lane.index()].in_round(&key) {
            return;
        }
        self.make_dirty(lane, key);
    }

    /// Starts a round: the keys that are dirty now, and from here on the others make the next one.
    pub fn begin_round(&mut self) {
        for queue in &mut self.queues {
            queue.begin_round();
        }
    }

    /// Adds to the round every key whose changes the stream does not show.
    ///
    /// Only under the fence is this the last word on them.
    pub fn add_untracked_to_round(&mut self) {
        for queue in &mut self.queues {
            let flies =
                |key: &K| self.flying.contains_key(key) || self.big_waiting.contains_key(key);
            for key in queue.untracked_to_round(flies) {
                self.dirty_bytes += cost(&key);
            }
        }
    }

    /// Whether everything listed, everything in the round and everything in flight has landed.
    #[must_use]
    pub fn is_landed(&self) -> bool {
        self.flying.is_empty()
            && self.big_waiting.is_empty()
            && self
                .queues
                .iter()
                .all(|queue| queue.listed.is_empty() && queue.round_is_empty())
    }

    /// Touched keys that wait for the next round.
    #[must_use]
    pub fn dirty(&self) -> usize {
        self.queues.iter().map(Queue::dirty_len).sum()
    }

    /// Keys taken and not yet answered for.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flying.len()
    }

    /// What will be brought over once more under the fence.
    #[must_use]
    pub fn untracked(&self) -> Untracked {
        let mut all = Untracked::default();
        for queue in &self.queues {
            all.keys += queue.untracked.len() as u64;
            all.bytes += queue.untracked.values().sum::<u64>();
            all.parts += queue.parts.len() as u64;
            all.part_bytes += queue.parts.values().sum::<u64>();
        }
        all
    }

    /// Large values a part of which the stream does not show. They are not in
    /// [`Self::add_untracked_to_round`]: whoever drives the copy brings these parts over, and says so to
    /// [`Self::part_landed`].
    pub fn parts(&self) -> impl Iterator<Item = (Lane, &K)> {
        let lanes = (0..).map(Lane).zip(&self.queues);
        lanes.flat_map(|(lane, queue)| queue.parts.keys().map(move |key| (lane, key)))
    }

    /// Whether [`Self::parts`] has this key.
    #[must_use]
    pub fn has_part(&self, lane: Lane, key: &K) -> bool {
        self.queues[lane.index()].parts.contains_key(key)
    }

    /// Takes in how many bytes a part had that was brought over; none if there is none any more.
    pub fn part_landed(&mut self, lane: Lane, key: &K, bytes: Option<u64>) {
        if self.has_part(lane, key) {
            self.note_part(lane, key, bytes);
        }
    }

    /// What has been done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Why the copy cannot go on, once that is so.
    #[must_use]
    pub fn stop(&self) -> Option<&CopyStop> {
        self.stop.as_ref()
    }

    /// What to read next; what it hands out is in flight from then on.
    pub fn next(&mut self, throttle: &mut Throttle, now_ms: u64) -> Next<K> {
        if self.stop.is_some() {
            return Next::Nothing;
        }
        if self.dirt_goes_first() && self.queues.iter().all(Queue::round_is_empty) {
            self.begin_round();
        }
        let allowed = throttle.keys_allowed(now_ms);
        if allowed == 0 {
            return if self.has_work() {
                Next::At(throttle.ready_at(now_ms))
            } else {
                Next::Nothing
            };
        }
        if let Some((key, lane)) = self.next_big() {
            throttle.spend(1, 0);
            return Next::Big(lane, key);
        }
        let bytes = self
            .limits
            .batch_bytes_max
            .min(throttle.bytes_allowed(now_ms))
            .max(1);
        let fitting = usize::try_from(bytes / self.bytes_per_key.max(1))
            .unwrap_or(usize::MAX)
            .max(1);
        let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
        match self.next_batch(self.limits.batch_keys_max.min(fitting).min(allowed)) {
            Some(batch) => {
                throttle.spend(batch.keys.len() as u64, batch.bytes_estimated);
                Next::Batch(batch)
            }
            None => Next::Nothing,
        }
    }

    /// Takes in what reading the keys of a batch gave, in their order. Big ones leave the batch.
    ///
    /// # Panics
    /// When there is not one result for each key.
    pub fn read(&mut self, batch: &mut Batch<K>, found: &[Found], throttle: &mut Throttle) {
        assert_eq!(batch.keys.len(), found.len(), "one result for each key");
        let queue = &mut self.queues[batch.lane.index()];
        let mut bytes_read = 0;
        let mut bigs = BTreeSet::new();
        for (key, found) in batch.keys.iter().zip(found) {
            match *found {
                Found::Gone => {
                    self.counts.removed += 1;
                    queue.forget(key);
                }
                Found::Value { bytes, untracked } => {
                    bytes_read += bytes;
                    self.counts.copied += 1;
                    queue.note_kind(key, bytes, untracked);
                }
                Found::Big => {
                    bigs.insert(key.clone());
                }
            }
        }
        for key in bigs {
            self.flying.remove(&key);
            batch.keys.retain(|other| *other != key);
            self.big_waiting.insert(key, batch.lane);
        }
        self.account(batch, bytes_read, found.len(), throttle);
        self.check_untracked();
    }

    /// Takes in that the target has answered for every key of a batch.
    pub fn landed(&mut self, batch: Batch<K>) {
        for key in batch.keys {
            if self.flying.remove(&key) == Some(Touched::Yes) {
                self.make_dirty(batch.lane, key);
            }
        }
    }

    /// Takes in that the large value in flight is in place at its target, or gone, and the bytes of the
    /// part whose changes the stream does not show, if it has one. Its bytes were taken out of the throttle
    /// piece by piece.
    ///
    /// # Panics
    /// When none is in flight.
    pub fn big_landed(&mut self, bytes: u64, part: Option<u64>) {
        let (lane, key) = self.big_flying.take().expect("a large value is in flight");
        self.counts.copied += 1;
        self.counts.bytes += bytes;
        self.note_part(lane, &key, part);
        if self.flying.remove(&key) != Some(Touched::Yes) {
            self.big_passes.remove(&key);
            return;
        }
        let passes = self.big_passes.entry(key.clone()).or_insert(0);
        *passes += 1;
        if *passes >= BIG_PASSES_MAX {
            self.stop = Some(CopyStop::BigKeyUnsteady {
                key: key.as_ref().to_vec(),
                passes: *passes,
            });
        }
        self.make_dirty(lane, key);
    }

    /// Notes that both sides differed. Counts only if [`Self::settle_suspects`] finds it untouched.
    pub fn suspect(&mut self, lane: Lane, key: K) {
        if !self.is_on_its_way(lane, &key) {
            self.suspects.insert(key, lane);
        }
    }

    /// The keys that differed and were not touched since: they deserve a second look.
    pub fn suspects(&self) -> impl Iterator<Item = (Lane, &K)> {
        self.suspects.iter().map(|(key, &lane)| (lane, key))
    }

    /// A second look found no difference.
    pub fn acquit(&mut self, key: &K) {
        self.suspects.remove(key);
    }

    /// Decides about suspects once the stream has delivered everything up to their comparison: those
    /// nobody touched differ in earnest. They are counted and copied again. Returns their number.
    pub fn settle_suspects(&mut self) -> u64 {
        let real = core::mem::take(&mut self.suspects);
        let count = real.len() as u64;
        self.counts.mismatches += count;
        for (key, lane) in real {
            self.make_dirty(lane, key);
        }
        count
    }

    /// Whether a difference of this key means nothing yet, because it will be copied again anyway.
    #[must_use]
    pub fn will_be_copied(&self, lane: Lane, key: &K) -> bool {
        self.is_on_its_way(lane, key) || self.queues[lane.index()].untracked.contains_key(key)
    }

    fn is_on_its_way(&self, lane: Lane, key: &K) -> bool {
        self.flying.contains_key(key)
            || self.big_waiting.contains_key(key)
            || self.queues[lane.index()].waits(key)
    }

    fn dirt_goes_first(&self) -> bool {
        self.dirty_bytes > self.limits.dirty_bytes_max
    }

    fn has_work(&self) -> bool {
        let waits = |queue: &Queue<K>| !queue.listed.is_empty() || !queue.round_is_empty();
        !self.big_waiting.is_empty() || self.queues.iter().any(waits)
    }

    fn make_dirty(&mut self, lane: Lane, key: K) {
        let bytes = cost(&key);
        if self.queues[lane.index()].dirty_insert(key) {
            self.counts.touched += 1;
            self.dirty_bytes += bytes;
        }
        if self.dirty_bytes > 2 * self.limits.dirty_bytes_max && self.stop.is_none() {
            self.stop = Some(CopyStop::DirtOutgrowsCopying {
                waiting: self.dirty() as u64,
            });
        }
    }

    fn next_big(&mut self) -> Option<(K, Lane)> {
        if self.big_flying.is_some() {
            return None;
        }
        let (key, lane) = self.big_waiting.pop_first()?;
        self.flying.insert(key.clone(), Touched::No);
        self.big_flying = Some((lane, key.clone()));
        Some((key, lane))
    }

    /// The next lane in turn that has something, so that no target waits for another.
    fn next_batch(&mut self, keys_max: usize) -> Option<Batch<K>> {
        let lanes = self.queues.len();
        for step in 0..lanes {
            let index = (self.next_lane + step) % lanes;
            let keys = self.take(index, keys_max);
            if keys.is_empty() {
                continue;
            }
            self.next_lane = index + 1;
            let lane = Lane(u16::try_from(index).expect("lanes are counted by u16"));
            let bytes_estimated = self.bytes_per_key.saturating_mul(keys.len() as u64);
            return Some(Batch {
                lane,
                keys,
                bytes_estimated,
            });
        }
        None
    }

    /// Takes keys out of the round first, then out of the listing; each is in flight from here on.
    fn take(&mut self, index: usize, keys_max: usize) -> Vec<K> {
        let queue = &mut self.queues[index];
        let mut keys = Vec::new();
        while keys.len() < keys_max {
            if let Some(key) = queue.round_pop() {
                self.dirty_bytes -= cost(&key);
                self.flying.insert(key.clone(), Touched::No);
                keys.push(key);
                continue;
            }
            let Some(key) = queue.listed.pop_front() else {
                break;
            };
            // It was read after tracking began, or will be: what touched it since is known.
            let covered = queue.waits(&key) || self.big_waiting.contains_key(&key);
            if !covered && !self.flying.contains_key(&key) {
                self.flying.insert(key.clone(), Touched::No);
                keys.push(key);
            }
        }
        keys
    }

    fn account(&mut self, batch: &Batch<K>, bytes: u64, keys: usize, throttle: &mut Throttle) {
        self.counts.bytes += bytes;
        if bytes > batch.bytes_estimated {
            throttle.spend(0, bytes - batch.bytes_estimated);
        } else {
            throttle.refund_bytes(batch.bytes_estimated - bytes);
        }
        if keys > 0 {
            let seen = bytes / keys as u64;
            // A larger value counts at once, a smaller one slowly: a batch should rather be short.
            self.bytes_per_key = seen.max((self.bytes_per_key * 7 + seen) / 8).max(1);
        }
    }

    fn note_part(&mut self, lane: Lane, key: &K, part: Option<u64>) {
        self.queues[lane.index()].note_part(key, part);
        if let Some(bytes) = part.filter(|bytes| *bytes > self.limits.part_bytes_max)
            && self.stop.is_none()
        {
            let key = key.as_ref().to_vec();
            self.stop = Some(CopyStop::PartTooLarge { key, bytes });
        }
    }

    fn check_untracked(&mut self) {
        let keys: usize = self.queues.iter().map(|queue| queue.untracked.len()).sum();
        if keys > self.limits.untracked_keys_max && self.stop.is_none() {
            self.stop = Some(CopyStop::TooManyUntracked { keys: keys as u64 });
        }
    }
}
