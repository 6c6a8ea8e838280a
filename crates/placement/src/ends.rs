//! Where the intervals end, and which one holds a position.
//!
//! Sorted points are found through an index table with one bucket a point: the high half of
//! `position × buckets` names the bucket, the bucket names its first point, and the answer is almost
//! always among the next four. They are compared without branches; a crowded bucket falls back to binary
//! search within itself. A lookup touches three or four cache lines where binary search touches its depth.
//!
//! Equal intervals need no table: the same multiplication gives the interval itself.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::Position;

/// How many points past the bucket's first are compared without branches.
const WINDOW: usize = 4;

/// The ends of a circle's intervals, in clockwise order.
#[derive(Clone, Debug)]
pub(crate) enum Ends {
    /// At any positions; several may be equal, and then the first has the interval.
    Sorted(Sorted),
    /// So many intervals of equal length, the last ending at the last position.
    Equal(u32),
}

impl Ends {
    /// How many there are, those without an interval included.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Sorted(sorted) => sorted.count,
            Self::Equal(slots) => *slots as usize,
        }
    }

    /// The index of the interval that holds `position`.
    #[inline]
    pub(crate) fn find(&self, position: Position) -> usize {
        match self {
            Self::Sorted(sorted) => sorted.find(position),
            Self::Equal(slots) => scale(position, *slots) as usize,
        }
    }

    /// Where the interval of this index ends.
    #[inline]
    pub(crate) fn end(&self, index: usize) -> Position {
        match self {
            Self::Sorted(sorted) => sorted.points[index],
            Self::Equal(slots) => equal_end(index, *slots),
        }
    }

    /// The end before this one, which is equal to it when it has no interval of its own.
    ///
    /// For the first one it is the last: the interval wraps.
    #[inline]
    pub(crate) fn end_before(&self, index: usize) -> Position {
        self.end(if index == 0 {
            self.count() - 1
        } else {
            index - 1
        })
    }

    /// Whether the point of this index has an interval: the first of several at one position does.
    #[inline]
    pub(crate) fn has_interval(&self, index: usize) -> bool {
        index == 0 || self.end_before(index) != self.end(index)
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Sorted(sorted) => {
                size_of_val(&*sorted.points) + size_of_val(&*sorted.bucket_first)
            }
            Self::Equal(_) => 0,
        }
    }
}

/// Sorted points with their index table.
#[derive(Clone, Debug)]
pub(crate) struct Sorted {
    // Invariant: ascending, then `WINDOW` times the last position, which never counts as a point.
    points: Box<[Position]>,
    count: usize,
    // Invariant: entry b is the number of points in buckets before b; one entry more than buckets.
    bucket_first: Box<[u32]>,
    buckets: u32,
}

impl Sorted {
    /// `points` must be ascending and not empty.
    pub(crate) fn new(mut points: Vec<Position>) -> Self {
        assert!(
            points.is_sorted(),
            "points are searched, so they are sorted"
        );
        assert!(
            !points.is_empty(),
            "a circle without points has no intervals"
        );
        let count = points.len();
        let buckets = u32::try_from(count).expect("at most 4,000,000 points");
        let mut bucket_first = alloc::vec![0u32; count + 1];
        let mut filled = 0;
        for (index, &point) in (0u32..).zip(&points) {
            let bucket = scale(point, buckets) as usize;
            for first in &mut bucket_first[filled..=bucket] {
                *first = index;
            }
            filled = filled.max(bucket + 1);
        }
        for first in &mut bucket_first[filled..] {
            *first = buckets;
        }
        points.reserve_exact(WINDOW);
        points.extend([Position::MAX; WINDOW]);
        Self {
            points: points.into(),
            count,
            bucket_first: bucket_first.into(),
            buckets,
        }
    }

    #[inline]
    fn find(&self, position: Position) -> usize {
        let bucket = scale(position, self.buckets) as usize;
        let first = self.bucket_first[bucket] as usize;
        let window = &self.points[first..first + WINDOW];
        let passed = window.iter().filter(|&&point| point < position).count();
        let mut index = first + passed;
        if passed == WINDOW {
            index = self.find_in_crowd(bucket, position);
        }
        if index == self.count { 0 } else { index }
    }

    #[cold]
    fn find_in_crowd(&self, bucket: usize, position: Position) -> usize {
        let first = self.bucket_first[bucket] as usize;
        let end = self.bucket_first[bucket + 1] as usize;
        first + self.points[first..end].partition_point(|&point| point < position)
    }
}

/// The bucket of a position among so many of equal width: less than `buckets`, never a division.
#[inline]
fn scale(position: Position, buckets: u32) -> u32 {
    ((u128::from(position.0) * u128::from(buckets)) >> 64) as u32
}

/// The last position that scales to this bucket.
fn equal_end(bucket: usize, buckets: u32) -> Position {
    let past = ((bucket as u128 + 1) << 64).div_ceil(u128::from(buckets));
    Position((past - 1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(points: &[u64], positions: impl IntoIterator<Item = u64>) {
        let sorted = Sorted::new(points.iter().copied().map(Position).collect());
        for position in positions {
            let next = points.partition_point(|&point| point < position);
            let expected = if next == points.len() { 0 } else { next };
            assert_eq!(
                sorted.find(Position(position)),
                expected,
                "{position} among {points:?}"
            );
        }
    }

    #[test]
    fn a_position_on_a_point_is_found_there_and_the_next_one_after_it() {
        check(&[20, 50, 80], 0..=100);
        check(&[0, u64::MAX], [0, 1, u64::MAX - 1, u64::MAX]);
        check(&[0], [0, 1, u64::MAX]);
        check(&[u64::MAX], [0, 1, u64::MAX]);
    }

    #[test]
    fn a_crowded_bucket_is_searched_through() {
        let crowd: Vec<u64> = (0..1000).map(|n| n * 3).collect();
        check(&crowd, 0..=3010);
        let at_the_end: Vec<u64> = (0..100).map(|n| u64::MAX - 99 + n).collect();
        check(
            &at_the_end,
            at_the_end
                .iter()
                .flat_map(|&p| [p - 1, p])
                .chain([0, 1 << 63]),
        );
        check(&[7; 40], [0, 6, 7, 8, u64::MAX]);
    }

    #[test]
    fn equal_intervals_end_at_the_last_position_that_scales_to_them() {
        for slots in [1, 2, 3, 7, 16, 1000, 65_536] {
            let ends = Ends::Equal(slots);
            assert_eq!(ends.end(slots as usize - 1), Position::MAX);
            for slot in 0..slots as usize {
                let end = ends.end(slot);
                assert_eq!(ends.find(end), slot);
                assert_eq!(ends.find(end.next()), (slot + 1) % slots as usize);
            }
        }
    }
}
