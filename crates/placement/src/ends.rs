//! Where the intervals end, and which one holds a position.
//!
//! Sorted points are searched ([`crate::sorted`]); equal intervals need no table, one multiplication gives
//! the interval itself.

use alloc::borrow::Cow;

use crate::Position;
use crate::buckets::locate;
use crate::sorted::Sorted;

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
            Self::Sorted(sorted) => sorted.count(),
            Self::Equal(slots) => *slots as usize,
        }
    }

    /// The index of the interval that holds `position`.
    #[inline]
    pub(crate) fn find(&self, position: Position) -> usize {
        match self {
            Self::Sorted(sorted) => sorted.find(position),
            Self::Equal(slots) => locate(position, *slots as usize).0,
        }
    }

    /// The same without a call, where the points need no search.
    #[inline]
    pub(crate) fn find_in_place(&self, position: Position) -> Option<usize> {
        match self {
            Self::Sorted(sorted) => sorted.find_in_place(position),
            Self::Equal(slots) => Some(locate(position, *slots as usize).0),
        }
    }

    /// All ends in clockwise order.
    pub(crate) fn positions(&self) -> Cow<'_, [Position]> {
        match self {
            Self::Sorted(sorted) => Cow::Borrowed(sorted.positions()),
            Self::Equal(slots) => (0..*slots as usize)
                .map(|slot| equal_end(slot, *slots))
                .collect(),
        }
    }

    /// The indexes of the intervals that hold these positions.
    #[inline]
    pub(crate) fn find_all(&self, positions: &[Position], found: &mut [usize]) {
        for (index, &position) in found.iter_mut().zip(positions) {
            *index = self.find(position);
        }
    }

    /// Where the interval of this index ends.
    #[inline]
    pub(crate) fn end(&self, index: usize) -> Position {
        match self {
            Self::Sorted(sorted) => sorted.positions()[index],
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
            Self::Sorted(sorted) => sorted.heap_bytes(),
            Self::Equal(_) => 0,
        }
    }
}

/// The last position that scales to this bucket.
fn equal_end(bucket: usize, buckets: u32) -> Position {
    let past = ((bucket as u128 + 1) << 64).div_ceil(u128::from(buckets));
    Position((past - 1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
