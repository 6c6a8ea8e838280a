//! Buckets: where the search for a position begins, and almost always ends.
//!
//! The circle is cut into buckets of equal length, of four or five points each. A bucket is half a cache line:
//! how many points come before it, and for each of its points the next 12 bits of where it lies within. The
//! high half of `position × buckets` names a position's bucket, the top of the low half is its own place
//! there. All places are compared at once, four in a word: a lane holds how far its point is from the end of
//! the bucket, and adding the position's place to it carries where the point comes before the position. So a
//! lookup touches this half line and then the owner.
//!
//! The points themselves are searched where 12 bits do not tell, where a bucket has more points than lanes,
//! and where the circle closes.

use alloc::vec::Vec;
use core::ops::Range;

use crate::Position;

/// How many points two new buckets have in the mean. One in twenty-five has more than `LANES` then.
const POINTS_OF_TWO: usize = 9;
/// With a mean outside of this the buckets are made anew.
const POINTS_FIT: Range<usize> = 3..6;

/// How many points of a bucket are compared at once.
const LANES: usize = 8;
/// The lane after the last one: it says whether all points have lanes.
const GUARD: usize = LANES;
/// The two lanes that are the number of points before the bucket.
const FIRST: usize = 14;

/// The bits of a place within a bucket.
const PLACE_BITS: u32 = 12;
/// The last place.
const PLACE_MAX: u16 = (1 << PLACE_BITS) - 1;
/// One in each lane of a word.
const ONES: u64 = 0x0001_0001_0001_0001;
/// The bit of each lane that a sum of two places carries into.
const CARRIES: u64 = ONES << PLACE_BITS;

/// Half a cache line.
// Invariant: lanes are descending, at most `PLACE_MAX`, and 0 without a point. The guard is 0 where all
// points have lanes. In a bucket that must be searched all are `PLACE_MAX`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct Bucket([u16; 16]);

impl Bucket {
    /// Makes an empty bucket, one of so many, the one that holds these of all points.
    ///
    /// Written in its place: a processor waits when it copies what it has only just written in pieces.
    #[inline]
    fn hold(&mut self, points: &[Position], count: usize, held: Range<usize>) {
        let first = u32::try_from(held.start).expect("at most 4,000,000 points");
        // Past the last point the first one is next.
        let closes = held.end == points.len();
        if closes {
            self.0.fill(PLACE_MAX);
        } else {
            if held.len() > LANES {
                self.0[GUARD] = PLACE_MAX;
            }
            let lane = |point| PLACE_MAX - locate(point, count).1;
            // How many points there are is hard to foresee, so all lanes are filled and some of them cleared.
            if let Some(points) = points[held.start..].first_chunk::<LANES>() {
                for (at, &point) in points.iter().enumerate() {
                    self.0[at] = if at < held.len() { lane(point) } else { 0 };
                }
            } else {
                let points = points[held].iter();
                let lanes = self.0[..LANES].iter_mut().zip(points);
                lanes.for_each(|(own, &point)| *own = lane(point));
            }
        }
        self.set_first(first);
    }

    /// How many points come before a place.
    #[inline]
    fn passed(&self, place: u16) -> usize {
        let places = u64::from(place) * ONES;
        let passed = |word: usize| (self.word(word) + places) & CARRIES;
        // Each lane carries at most twice, and one multiplication gathers the lanes at the top.
        let sums = passed(0) + passed(1);
        (sums.wrapping_mul(ONES) >> (48 + PLACE_BITS)) as usize
    }

    /// Four lanes in one word; a single load.
    #[inline]
    fn word(&self, word: usize) -> u64 {
        let lane = |at: usize| u64::from(self.0[4 * word + at]) << (16 * at);
        lane(0) | lane(1) | lane(2) | lane(3)
    }

    #[inline]
    fn first(&self) -> u32 {
        u32::from(self.0[FIRST]) | u32::from(self.0[FIRST + 1]) << 16
    }

    #[inline]
    fn set_first(&mut self, first: u32) {
        self.0[FIRST] = first as u16;
        self.0[FIRST + 1] = (first >> 16) as u16;
    }
}

/// The buckets of a circle of sorted points.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buckets(Vec<Bucket>);

/// How many buckets there should be for so many points.
pub(crate) fn fitting(points: usize) -> usize {
    (2 * points).div_ceil(POINTS_OF_TWO)
}

/// The bucket of a position among so many, and its place there.
#[inline]
pub(crate) fn locate(position: Position, buckets: usize) -> (usize, u16) {
    let product = u128::from(position.0) * buckets as u128;
    (
        (product >> 64) as usize,
        (product as u64 >> (64 - PLACE_BITS)) as u16,
    )
}

impl Buckets {
    /// So many empty buckets.
    pub(crate) fn empty(count: usize) -> Self {
        Self(alloc::vec![Bucket::default(); count])
    }

    /// Fills an empty bucket with these of all points. Only its own points need to be in order yet.
    #[inline]
    pub(crate) fn hold(&mut self, bucket: usize, points: &[Position], held: Range<usize>) {
        let count = self.0.len();
        self.0[bucket].hold(points, count, held);
    }

    /// So many buckets over sorted points. O(points + buckets). Storage of `spare` is used again.
    fn over(points: &[Position], count: usize, spare: Self) -> Self {
        let mut buckets = spare;
        buckets.0.clear();
        buckets.0.reserve_exact(count);
        buckets.0.resize(count, Bucket::default());
        let mut start = 0;
        for bucket in 0..count {
            let is_within = |&&point: &&Position| locate(point, count).0 == bucket;
            let end = start + points[start..].iter().take_while(is_within).count();
            buckets.hold(bucket, points, start..end);
            start = end;
        }
        buckets
    }

    /// The buckets after some points have come or gone, ascending, given the points that there are now.
    ///
    /// O(buckets + changes). Storage of `spare` is used again.
    pub(crate) fn changed(
        &self,
        changes: &[PointChange],
        before: &[Position],
        after: &[Position],
        spare: Self,
    ) -> Self {
        let count = self.0.len();
        if !POINTS_FIT.contains(&(after.len() / count)) {
            return Self::over(after, fitting(after.len()), spare);
        }
        let mut buckets = spare;
        buckets.0.clear();
        buckets.0.reserve_exact(count);
        let mut shift = 0u32;
        for change in changes {
            buckets.shift_through(self, locate(change.position, count).0, shift);
            shift = shift.wrapping_add(if change.leaves { u32::MAX } else { 1 });
        }
        buckets.shift_through(self, count - 1, shift);
        for change in changes {
            buckets.fill(locate(change.position, count).0, after);
        }
        // Where the circle closed and where it closes now.
        let last = |points: &[Position]| points.last().map_or(0, |&last| locate(last, count).0);
        for bucket in last(before).min(last(after))..count {
            buckets.fill(bucket, after);
        }
        buckets
    }

    /// Takes what is missing through a bucket from older ones, with other numbers of points before them.
    fn shift_through(&mut self, older: &Self, bucket: usize, shift: u32) {
        let done = self.0.len();
        let Some(missing) = older.0.get(done..=bucket) else {
            return;
        };
        self.0.extend_from_slice(missing);
        if shift != 0 {
            for bucket in &mut self.0[done..] {
                bucket.set_first(bucket.first().wrapping_add(shift));
            }
        }
    }

    fn fill(&mut self, bucket: usize, points: &[Position]) {
        let range = self.range(bucket, points);
        self.0[bucket] = Bucket::default();
        self.hold(bucket, points, range);
    }

    /// The points in a bucket.
    fn range(&self, bucket: usize, points: &[Position]) -> Range<usize> {
        let next = self.0.get(bucket + 1);
        self.0[bucket].first() as usize..next.map_or(points.len(), |next| next.first() as usize)
    }

    /// The index of the first point that is not before a position, if the bucket can tell and there is one.
    #[inline]
    pub(crate) fn find(&self, position: Position) -> Option<usize> {
        let (at, place) = locate(position, self.0.len());
        let bucket = &self.0[at];
        let passed = bucket.passed(place);
        // The next point may lie at the same place, on either side; behind the last lane stands the guard.
        let is_told = bucket.0[passed] < PLACE_MAX - place;
        is_told.then(|| bucket.first() as usize + passed)
    }

    /// The index of the first point that is not before a position; the number of points if all are.
    pub(crate) fn search(&self, position: Position, points: &[Position]) -> usize {
        let range = self.range(locate(position, self.0.len()).0, points);
        range.start + points[range].partition_point(|&point| point < position)
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Bucket>()
    }
}

/// A point that comes or goes.
#[derive(Clone, Copy)]
pub(crate) struct PointChange {
    pub(crate) position: Position,
    pub(crate) leaves: bool,
}
