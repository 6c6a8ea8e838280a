//! Sorted points: how they are found, built and changed.
//!
//! Points are found by way of buckets ([`crate::buckets`]). They are sorted by being scattered twice: into regions
//! of the circle that fit into the nearest cache, and there into cells so fine that they are almost in order.
//! A change of a few points is a copy of the arrays, not another sort.

use alloc::vec::Vec;
use core::ops::Range;

use crate::buckets::{Buckets, PointChange, fitting, locate};
use crate::{NodeIx, Position};

/// With more points than this in one cell a region is sorted without regard to cells.
const CROWD: u32 = 24;

/// Cells of a bucket: some four for each point.
const CELLS: usize = 8;

/// So many buckets are sorted together: some 300 points.
const REGION: usize = 256;

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
    /// They come in runs of one node each, so many points in all, at least one. The owners come back in the
    /// points' order.
    pub(crate) fn scatter<'a>(
        count: usize,
        runs: impl Iterator<Item = (NodeIx, &'a [Position])> + Clone,
    ) -> (Self, Vec<NodeIx>) {
        assert!(count > 0, "a circle without points has no intervals");
        let buckets = fitting(count);
        let (mut positions, mut owners, region_ends) = into_regions(count, runs, buckets);
        let mut filled = Buckets::empty(buckets);
        let mut region = Region::default();
        let mut start = 0;
        for (first, end) in (0..buckets).step_by(REGION).zip(region_ends) {
            let end = end as usize;
            let within = first..buckets.min(first + REGION);
            region.sort(
                &mut positions[start..end],
                &mut owners[start..end],
                within.clone(),
                buckets,
            );
            for (bucket, held) in within.zip(region.buckets()) {
                filled.hold(bucket, &positions, start + held.start..start + held.end);
            }
            start = end;
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

/// The points and their owners region by region, and where each region ends.
fn into_regions<'a>(
    count: usize,
    runs: impl Iterator<Item = (NodeIx, &'a [Position])> + Clone,
    buckets: usize,
) -> (Vec<Position>, Vec<NodeIx>, Vec<u32>) {
    let region_of = |position| locate(position, buckets).0 / REGION;
    // First the number of points before each region; every point then takes the next free place.
    let mut next = alloc::vec![0u32; buckets.div_ceil(REGION)];
    for (_, run) in runs.clone() {
        for &position in run {
            next[region_of(position)] += 1;
        }
    }
    let mut before = 0;
    for next in &mut next {
        before += core::mem::replace(next, before);
    }
    let mut positions = alloc::vec![Position::MIN; count];
    let mut owners = alloc::vec![NodeIx::NONE; count];
    for (owner, run) in runs {
        for &position in run {
            let place = &mut next[region_of(position)];
            positions[*place as usize] = position;
            owners[*place as usize] = owner;
            *place += 1;
        }
    }
    (positions, owners, next)
}

/// Sorts the points of one part of the circle after the other, each within the nearest cache.
#[derive(Default)]
struct Region {
    points: Vec<Owned>,
    // How many points come before each cell, and all.
    cells: Vec<u32>,
}

impl Region {
    /// Sorts the points of these buckets by position and node.
    ///
    /// Scattered into cells that mostly hold one point or none, they are almost in order.
    fn sort(
        &mut self,
        positions: &mut [Position],
        owners: &mut [NodeIx],
        within: Range<usize>,
        buckets: usize,
    ) {
        let first = within.start * CELLS;
        let cell_of = |position| locate(position, buckets * CELLS).0 - first;
        self.points.clear();
        let both = positions.iter().copied().zip(owners.iter().copied());
        self.points.extend(both);
        // The number of points up to each cell; every point then takes the last free place below.
        self.cells.clear();
        self.cells.resize(within.len() * CELLS + 1, 0);
        for &(position, _) in &self.points {
            self.cells[cell_of(position)] += 1;
        }
        let (mut below, mut most) = (0, 0);
        for cell in &mut self.cells {
            most = most.max(*cell);
            below += *cell;
            *cell = below;
        }
        for &(position, owner) in &self.points {
            let place = &mut self.cells[cell_of(position)];
            *place -= 1;
            positions[*place as usize] = position;
            owners[*place as usize] = owner;
        }
        if most > CROWD {
            sort_crowded(positions, owners);
        } else {
            sort_almost_sorted(positions, owners);
        }
    }

    /// Which of the points are in each bucket.
    fn buckets(&self) -> impl Iterator<Item = Range<usize>> {
        let ends = self
            .cells
            .chunks_exact(CELLS)
            .zip(self.cells[CELLS..].iter().step_by(CELLS));
        ends.map(|(cells, &end)| cells[0] as usize..end as usize)
    }
}

/// Insertion, which costs next to nothing where almost every point is in its place.
fn sort_almost_sorted(positions: &mut [Position], owners: &mut [NodeIx]) {
    for end in 1..positions.len() {
        if positions[end - 1] < positions[end] {
            continue;
        }
        let point = (positions[end], owners[end]);
        let mut at = end;
        while at > 0 && point < (positions[at - 1], owners[at - 1]) {
            (positions[at], owners[at]) = (positions[at - 1], owners[at - 1]);
            at -= 1;
        }
        (positions[at], owners[at]) = point;
    }
}

fn sort_crowded(positions: &mut [Position], owners: &mut [NodeIx]) {
    let both = positions.iter().copied().zip(owners.iter().copied());
    let mut points: Vec<Owned> = both.collect();
    points.sort_unstable();
    for (at, (position, owner)) in points.into_iter().enumerate() {
        (positions[at], owners[at]) = (position, owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scattered(points: &[Owned]) -> (Sorted, Vec<NodeIx>) {
        Sorted::scatter(
            points.len(),
            points
                .iter()
                .map(|(at, node)| (*node, core::slice::from_ref(at))),
        )
    }

    fn sorted(points: &[u64]) -> Sorted {
        let points: Vec<Owned> = points
            .iter()
            .map(|&point| (Position(point), NodeIx::of(0)))
            .collect();
        scattered(&points).0
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
            let long = scattered(&owned(&all));
            let short = scattered(&owned(few));
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
            let (sorted, owners) = scattered(&points);
            let mut expected = points.clone();
            expected.sort_unstable();
            let found = sorted.positions().iter().copied().zip(owners);
            assert!(found.eq(expected), "spread {spread}");
        }
    }
}
