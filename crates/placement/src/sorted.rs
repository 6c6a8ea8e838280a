//! Sorted points: how they are found, built and changed.
//!
//! Points are found by way of buckets ([`crate::buckets`]), and sorted by way of them: scattered into their
//! buckets they are almost in order. A change of a few points is a copy of the arrays, not another sort.

use alloc::vec::Vec;

use crate::buckets::{Buckets, PointChange, fitting, locate};
use crate::{NodeIx, Position};

/// A bucket with more points than this is sorted by itself instead of by insertion.
const CROWD: usize = 24;

/// Sorted points with their buckets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorted {
    // Invariant: ascending.
    points: Vec<Position>,
    buckets: Buckets,
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
        let buckets = fitting(points.len());
        // First the number of points up to each bucket; every point then takes the last free place below.
        let mut bucket_first = alloc::vec![0u32; buckets + 1];
        for &(position, _) in points {
            bucket_first[locate(position, buckets).0] += 1;
        }
        let mut below = 0;
        for first in &mut bucket_first {
            below += *first;
            *first = below;
        }
        let mut positions = alloc::vec![Position::MAX; points.len()];
        let mut owners = alloc::vec![NodeIx::NONE; points.len()];
        for &(position, owner) in points {
            let place = &mut bucket_first[locate(position, buckets).0];
            *place -= 1;
            positions[*place as usize] = position;
            owners[*place as usize] = owner;
        }
        let mut filled = Buckets::with_room_for(buckets);
        for bucket in bucket_first.windows(2) {
            let (first, end) = (bucket[0] as usize, bucket[1] as usize);
            sort_bucket(&mut positions[first..end], &mut owners[first..end]);
            filled.push(&positions, buckets, first..end);
        }
        let sorted = Self {
            points: positions,
            buckets: filled,
        };
        (sorted, owners)
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
                buckets,
            },
            mut new_owners,
        ) = spare;
        points.clear();
        new_owners.clear();
        let count = self.count() - splice.leaving.len() + splice.coming.len();
        points.reserve_exact(count);
        new_owners.reserve_exact(count);
        let edits = self.edits(owners, splice, &rename);
        let mut at = 0;
        for edit in &edits {
            points.extend_from_slice(&self.points[at..edit.place]);
            new_owners.extend(owners[at..edit.place].iter().map(|&owner| rename(owner)));
            at = edit.place;
            if edit.leaves {
                at += 1;
            } else {
                points.push(edit.position);
                new_owners.push(edit.node);
            }
        }
        points.extend_from_slice(&self.points[at..]);
        new_owners.extend(owners[at..].iter().map(|&owner| rename(owner)));
        let changes = edits.iter().map(|edit| PointChange {
            position: edit.position,
            leaves: edit.leaves,
        });
        let changes: Vec<PointChange> = changes.collect();
        let buckets = self
            .buckets
            .changed(&changes, &self.points, &points, buckets);
        (Self { points, buckets }, new_owners)
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
        let same = self.points[first..]
            .iter()
            .take_while(|&&point| point == position)
            .count();
        first
            + owners[first..first + same]
                .iter()
                .take_while(|&&owner| before(owner))
                .count()
    }

    /// How many points there are.
    pub(crate) fn count(&self) -> usize {
        self.points.len()
    }

    /// The positions, ascending.
    pub(crate) fn positions(&self) -> &[Position] {
        &self.points
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.points.capacity() * size_of::<Position>() + self.buckets.heap_bytes()
    }

    /// The index of the point whose interval holds a position.
    #[inline]
    pub(crate) fn find(&self, position: Position) -> usize {
        match self.find_in_place(position) {
            Some(index) => index,
            None => self.search(position),
        }
    }

    /// The same, if its bucket can tell.
    #[inline]
    pub(crate) fn find_in_place(&self, position: Position) -> Option<usize> {
        self.buckets.find(position)
    }

    /// The same, among the points themselves.
    #[cold]
    #[inline(never)]
    fn search(&self, position: Position) -> usize {
        let index = self.first_from(position);
        if index == self.count() { 0 } else { index }
    }

    /// The index of the first point that is not before a position; the number of points if all are.
    fn first_from(&self, position: Position) -> usize {
        self.buckets.search(position, &self.points)
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
        let point = (positions[end], owners[end]);
        let mut at = end;
        while at > 0 && point < (positions[at - 1], owners[at - 1]) {
            (positions[at], owners[at]) = (positions[at - 1], owners[at - 1]);
            at -= 1;
        }
        (positions[at], owners[at]) = point;
    }
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
    fn a_bucket_of_any_number_of_points_is_found_through() {
        let bucket = u64::MAX / 20;
        for crowd in 0..=24u64 {
            let crowded = (1..=crowd).map(|n| 3 * bucket + n * (bucket / 32));
            let points: Vec<u64> = (0..crowd.max(90) - crowd)
                .map(|n| 5 * bucket + n * (bucket / 8))
                .chain(crowded)
                .collect::<std::collections::BTreeSet<u64>>()
                .into_iter()
                .collect();
            let around = |&point: &u64| [point - 1, point, point + 1, point + bucket / 64];
            check(&points, points.iter().flat_map(around).chain([4 * bucket]));
        }
    }

    #[test]
    fn points_and_positions_that_a_bucket_cannot_tell_apart_are_searched() {
        // Some points lie one step apart, far below what a place within a bucket resolves.
        let close = (1..=500u64).flat_map(|n| [n << 53, (n << 53) + 1 + n % 3]);
        let points: Vec<u64> = close.collect();
        let around = |&point: &u64| point - 2..=point + 2;
        check(&points, points.iter().flat_map(around).chain([0, u64::MAX]));
        let even: Vec<u64> = (0..5000u64)
            .map(|n| n * (u64::MAX / 5000) + n * n % 977)
            .collect();
        check(
            &even,
            even.iter().flat_map(|&p| [p.wrapping_sub(1), p, p + 1]),
        );
    }

    #[test]
    fn a_circle_that_closes_earlier_or_later_than_before_is_found_through() {
        let all: Vec<u64> = (1..=60).map(|n| n * (u64::MAX / 61)).collect();
        let owned = |points: &[u64]| -> Vec<Owned> {
            points
                .iter()
                .map(|&point| (Position(point), NodeIx::of(0)))
                .collect()
        };
        for kept in 45..60 {
            let (few, rest) = all.split_at(kept);
            let long = Sorted::scatter(&owned(&all));
            let short = Sorted::scatter(&owned(few));
            let leave = Splice {
                leaving: owned(rest),
                coming: Vec::new(),
            };
            let come = Splice {
                leaving: Vec::new(),
                coming: owned(rest),
            };
            let change = |(sorted, owners): &(Sorted, Vec<NodeIx>), splice| {
                let spare = (Sorted::default(), Vec::new());
                sorted.splice(owners, splice, |owner| owner, spare).0
            };
            for (sorted, points) in [(change(&long, &leave), few), (change(&short, &come), &all)] {
                let beside = all
                    .iter()
                    .flat_map(|&point| [point, point + 1, point + (1 << 53)]);
                for position in beside.chain([0, u64::MAX]) {
                    let next = points.partition_point(|&point| point < position);
                    assert_eq!(sorted.find(Position(position)), next % points.len());
                }
            }
        }
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
