//! Sorted points: how they are found, built and changed.
//!
//! An index table has about one bucket a point: the high half of `position × buckets` names the bucket, the
//! bucket names its first point, and the answer is almost always among the next four. They are compared
//! without branches; a crowded bucket falls back to binary search within itself. A lookup touches three or
//! four cache lines where binary search touches its depth.
//!
//! The same table sorts: points are scattered into their buckets, which almost puts them in order. A change
//! of a few points is a copy of the arrays with the table shifted, not another sort.

use alloc::vec::Vec;

use crate::{NodeIx, Position};

/// How many points past the bucket's first are compared without branches.
const WINDOW: usize = 4;

/// A bucket with more points than this is sorted by itself instead of by insertion.
const CROWD: usize = 24;

/// Sorted points with their index table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorted {
    // Invariant: ascending, then `WINDOW` times the last position, which never counts as a point.
    points: Vec<Position>,
    count: usize,
    // Invariant: entry b is the number of points in buckets before b; one entry more than buckets.
    bucket_first: Vec<u32>,
    buckets: u32,
}

/// A point of a ring that is being changed; its rank belongs to the older ring when it leaves, to the newer
/// one when it comes.
pub(crate) type Owned = (Position, NodeIx);

/// What a change does to the points of a ring.
#[derive(Default)]
pub(crate) struct Splice {
    /// Points that leave, ascending.
    pub(crate) leaving: Vec<Owned>,
    /// Points that come, in any order.
    pub(crate) coming: Vec<Owned>,
}

/// A point that leaves from its place or comes before the point there.
struct Edit {
    place: usize,
    leaves: bool,
    position: Position,
    node: NodeIx,
}

impl Sorted {
    /// Sorts points by position and then by node, in expected linear time when they are spread evenly.
    ///
    /// There is at least one point. The owners come back in the points' order.
    pub(crate) fn scatter(points: &[Owned]) -> (Self, Vec<NodeIx>) {
        assert!(
            !points.is_empty(),
            "a circle without points has no intervals"
        );
        let count = points.len();
        let buckets = u32::try_from(count).expect("at most 4,000,000 points");
        // First the number of points up to each bucket; every point then takes the last free place below.
        let mut bucket_first = alloc::vec![0u32; count + 1];
        for &(position, _) in points {
            bucket_first[scale(position, buckets) as usize] += 1;
        }
        let mut below = 0;
        for first in &mut bucket_first {
            below += *first;
            *first = below;
        }
        let mut positions = alloc::vec![Position::MAX; count + WINDOW];
        let mut owners = alloc::vec![NodeIx::NONE; count];
        for &(position, owner) in points {
            let place = &mut bucket_first[scale(position, buckets) as usize];
            *place -= 1;
            positions[*place as usize] = position;
            owners[*place as usize] = owner;
        }
        for bucket in bucket_first.windows(2) {
            let (first, end) = (bucket[0] as usize, bucket[1] as usize);
            sort_bucket(&mut positions[first..end], &mut owners[first..end]);
        }
        (
            Self {
                points: positions,
                count,
                bucket_first,
                buckets,
            },
            owners,
        )
    }

    /// The points with some taken out and some put in, and the owners with ranks renamed by `rename`.
    ///
    /// One pass of copying. Storage of `spare` is used again.
    pub(crate) fn splice(
        &self,
        owners: &[NodeIx],
        splice: &Splice,
        rename: impl Fn(NodeIx) -> NodeIx,
        spare: (Self, Vec<NodeIx>),
    ) -> (Self, Vec<NodeIx>) {
        let (
            Self {
                mut points,
                mut bucket_first,
                ..
            },
            mut new_owners,
        ) = spare;
        points.clear();
        bucket_first.clear();
        new_owners.clear();
        let count = self.count - splice.leaving.len() + splice.coming.len();
        points.reserve(count + WINDOW);
        new_owners.reserve(count);
        bucket_first.reserve(self.bucket_first.len());
        let (mut at, mut shift) = (0, 0u32);
        for Edit {
            place,
            leaves,
            position,
            node,
        } in self.edits(owners, splice, &rename)
        {
            points.extend_from_slice(&self.points[at..place]);
            new_owners.extend(owners[at..place].iter().map(|&owner| rename(owner)));
            at = place;
            let bucket = scale(position, self.buckets) as usize;
            let passed = bucket_first.len();
            if let Some(unchanged) = self.bucket_first.get(passed..=bucket) {
                bucket_first.extend(unchanged.iter().map(|first| first.wrapping_add(shift)));
            }
            if leaves {
                at += 1;
                shift = shift.wrapping_sub(1);
            } else {
                points.push(position);
                new_owners.push(node);
                shift = shift.wrapping_add(1);
            }
        }
        points.extend_from_slice(&self.points[at..]);
        new_owners.extend(owners[at..].iter().map(|&owner| rename(owner)));
        let rest = &self.bucket_first[bucket_first.len()..];
        bucket_first.extend(rest.iter().map(|first| first.wrapping_add(shift)));
        let mut sorted = Self {
            points,
            count,
            bucket_first,
            buckets: self.buckets,
        };
        sorted.fit_buckets();
        (sorted, new_owners)
    }

    /// Where each point of a change leaves or comes, in the order of the places.
    fn edits(
        &self,
        owners: &[NodeIx],
        splice: &Splice,
        rename: impl Fn(NodeIx) -> NodeIx,
    ) -> Vec<Edit> {
        let mut edits = Vec::with_capacity(splice.leaving.len() + splice.coming.len());
        let mut past = 0;
        for &(position, node) in &splice.leaving {
            // Points of one node at one position stand next to each other.
            let first = self.first_from(position).max(past);
            let offset = owners[first..].iter().position(|&owner| owner == node);
            let place = first + offset.expect("a point that leaves is there");
            past = place + 1;
            edits.push(Edit {
                place,
                leaves: true,
                position,
                node,
            });
        }
        for &(position, node) in &splice.coming {
            let place = self.place_for(owners, position, |owner| rename(owner) < node);
            edits.push(Edit {
                place,
                leaves: false,
                position,
                node,
            });
        }
        // What comes to a place stands before what leaves it.
        edits.sort_unstable_by_key(|edit| (edit.place, edit.leaves, edit.position, edit.node));
        edits
    }

    /// The index before which a new point of this position belongs.
    fn place_for(
        &self,
        owners: &[NodeIx],
        position: Position,
        before: impl Fn(NodeIx) -> bool,
    ) -> usize {
        let first = self.first_from(position);
        let same = self.points[first..self.count]
            .iter()
            .take_while(|&&point| point == position)
            .count();
        first
            + owners[first..first + same]
                .iter()
                .take_while(|&&owner| before(owner))
                .count()
    }

    /// Makes the table anew once it has far more or far fewer buckets than there are points.
    fn fit_buckets(&mut self) {
        if (self.buckets as usize / 2..self.buckets as usize * 2).contains(&self.count) {
            return;
        }
        self.buckets = u32::try_from(self.count).expect("at most 4,000,000 points");
        self.bucket_first.clear();
        for (index, &point) in (0u32..).zip(&self.points[..self.count]) {
            let bucket = scale(point, self.buckets) as usize;
            let passed = self.bucket_first.len();
            self.bucket_first.extend((passed..=bucket).map(|_| index));
        }
        self.bucket_first.resize(self.count + 1, self.buckets);
    }

    /// How many points there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The positions, ascending.
    pub(crate) fn positions(&self) -> &[Position] {
        &self.points[..self.count]
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.points.capacity() * size_of::<Position>()
            + self.bucket_first.capacity() * size_of::<u32>()
    }

    /// The index of the point whose interval holds a position.
    #[inline]
    pub(crate) fn find(&self, position: Position) -> usize {
        let index = self.first_from(position);
        if index == self.count { 0 } else { index }
    }

    /// The index of the first point that is not before a position; the number of points if all are.
    #[inline]
    fn first_from(&self, position: Position) -> usize {
        let bucket = scale(position, self.buckets) as usize;
        let first = self.bucket_first[bucket] as usize;
        let window = &self.points[first..first + WINDOW];
        let passed = window.iter().filter(|&&point| point < position).count();
        if passed == WINDOW {
            self.first_in_crowd(bucket, position)
        } else {
            first + passed
        }
    }

    #[cold]
    fn first_in_crowd(&self, bucket: usize, position: Position) -> usize {
        let first = self.bucket_first[bucket] as usize;
        let end = self.bucket_first[bucket + 1] as usize;
        first + self.points[first..end].partition_point(|&point| point < position)
    }
}

/// Sorts the points of one bucket by position and node.
fn sort_bucket(positions: &mut [Position], owners: &mut [NodeIx]) {
    if positions.len() > CROWD {
        let mut points: Vec<Owned> = positions
            .iter()
            .copied()
            .zip(owners.iter().copied())
            .collect();
        points.sort_unstable();
        for (at, (position, owner)) in points.into_iter().enumerate() {
            (positions[at], owners[at]) = (position, owner);
        }
        return;
    }
    for end in 1..positions.len() {
        let mut at = end;
        while at > 0 && (positions[at], owners[at]) < (positions[at - 1], owners[at - 1]) {
            positions.swap(at, at - 1);
            owners.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// The bucket of a position among so many of equal width: less than `buckets`, never a division.
#[inline]
pub(crate) fn scale(position: Position, buckets: u32) -> u32 {
    ((u128::from(position.0) * u128::from(buckets)) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(points: &[u64]) -> Sorted {
        let points: Vec<Owned> = points
            .iter()
            .map(|&point| (Position(point), NodeIx::of(0)))
            .collect();
        Sorted::scatter(&points).0
    }

    fn check(points: &[u64], positions: impl IntoIterator<Item = u64>) {
        let sorted = sorted(points);
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
    fn scattering_sorts_by_position_and_then_by_node() {
        for (spread, nodes) in [(u64::MAX / 500, 7), (3, 11), (1, 2), (0, 5)] {
            let points: Vec<Owned> = (0..500u64)
                .map(|n| {
                    (
                        Position((n * 197 % 500) * spread),
                        NodeIx::of((n % nodes) as usize),
                    )
                })
                .collect();
            let (sorted, owners) = Sorted::scatter(&points);
            let mut expected = points.clone();
            expected.sort_unstable();
            let found = sorted.positions().iter().copied().zip(owners);
            assert!(found.eq(expected), "spread {spread}");
        }
    }
}
