//! Every small ring there is, against the naive twin: lookup, replicas, preference and diff.
//!
//! A release build takes them all, in some minutes: `cargo nextest run --release -p clockwise-placement
//! exhaustive`. A debug build, as the everyday gate uses it, takes every seventh.

use crate::twin::{self, Domains, Points};
use clockwise_placement::{Member, NodeIx, Placement, Position, diff};

/// Where the eight positions of the small space lie on the circle: crowded together at its seam, and far
/// apart with both ends of the circle among them.
const SPACES: [[u64; 8]; 2] = [
    [0, 1, 2, 3, 4, 5, 6, 7],
    [
        0,
        1 << 61,
        2 << 61,
        3 << 61,
        4 << 61,
        5 << 61,
        6 << 61,
        u64::MAX,
    ],
];

/// One of so many rings is checked. It divides none of the numbers of choices, so that all kinds come up.
const STRIDE: usize = if cfg!(debug_assertions) { 7 } else { 1 };

#[test]
fn every_ring_of_up_to_three_nodes_and_two_points_in_eight_positions_equals_the_twin() {
    for space in &SPACES {
        let mut rings = 0;
        for nodes in 1..=3 {
            let labellings = Labelling::all(nodes);
            for_each_choice(nodes, &point_sets(), &mut |sets: &[Vec<usize>]| {
                rings += 1;
                if rings % STRIDE != 0 {
                    return;
                }
                let of_node = |(node, set): (usize, &Vec<usize>)| {
                    set.iter()
                        .map(move |&at| (space[at], node))
                        .collect::<Vec<_>>()
                };
                let points = sets.iter().enumerate().flat_map(of_node).collect();
                let ring = Ring::new(points, space);
                for replicas in 1..=3 {
                    labellings
                        .iter()
                        .for_each(|labelling| ring.check(labelling, replicas));
                }
            });
        }
        assert_eq!(rings, 44 + 44 * 44 + 44 * 44 * 44);
    }
}

#[test]
fn every_cyclic_order_of_up_to_four_nodes_and_three_points_equals_the_twin_with_one_replica() {
    check_cyclic_orders(1);
}

#[test]
fn every_cyclic_order_of_up_to_four_nodes_and_three_points_equals_the_twin_with_two_replicas() {
    check_cyclic_orders(2);
}

#[test]
fn every_cyclic_order_of_up_to_four_nodes_and_three_points_equals_the_twin_with_three_replicas() {
    check_cyclic_orders(3);
}

fn check_cyclic_orders(replicas: u8) {
    let mut orders = 0;
    for nodes in 1..=4 {
        let labellings = Labelling::all(nodes);
        for_each_cyclic_order(nodes, 3, &mut |order| {
            orders += 1;
            if orders % STRIDE != 0 {
                return;
            }
            // Odd positions are points, even ones lie in the gaps.
            let points: Points = (0..)
                .map(|at| 2 * at + 1)
                .zip(order.iter().copied())
                .collect();
            let positions: Vec<u64> = (0..=2 * points.len() as u64).collect();
            let ring = Ring::new(points, &positions);
            labellings
                .iter()
                .for_each(|labelling| ring.check(labelling, replicas));
        });
    }
    assert_eq!(
        orders,
        1 + 4 + 188 + 30_804,
        "necklaces of three beads of each colour"
    );
}

/// One way to put the nodes into failure domains.
struct Labelling {
    members: Vec<Member>,
    // The twin's preference for each order in which nodes can be met, by the number of that order.
    preferences: Vec<Vec<usize>>,
}

impl Labelling {
    fn all(nodes: usize) -> Vec<Self> {
        labellings(nodes).iter().map(Self::new).collect()
    }

    fn new(domains: &Domains) -> Self {
        let nodes = domains.len();
        let mut preferences = vec![Vec::new(); (nodes + 1).pow(nodes as u32)];
        for length in 1..=nodes {
            for_each_choice(
                length,
                &(0..nodes).collect::<Vec<_>>(),
                &mut |met: &[usize]| {
                    if (1..length).all(|at| !met[..at].contains(&met[at])) {
                        preferences[number(met, nodes)] = twin::preference(met, domains);
                    }
                },
            );
        }
        Self {
            members: twin::members(domains),
            preferences,
        }
    }
}

/// A number for each order in which some of the nodes can be met.
fn number(met: &[usize], nodes: usize) -> usize {
    met.iter()
        .fold(0, |number, node| number * (nodes + 1) + node + 1)
}

/// A ring, and the rings that lack one of its nodes.
struct Ring<'a> {
    points: Points,
    // Ascending, with every point among them.
    positions: &'a [u64],
    met: Vec<usize>,
    lacking: Vec<(Points, Vec<usize>)>,
}

impl<'a> Ring<'a> {
    fn new(points: Points, positions: &'a [u64]) -> Self {
        let nodes = 1 + points
            .iter()
            .map(|&(_, node)| node)
            .max()
            .expect("a ring has points");
        let met = |points: &Points| {
            let at = |&position| number(&twin::met_from(points, position), nodes);
            positions.iter().map(at).collect::<Vec<_>>()
        };
        let lacking = |node: usize| {
            let left = points
                .iter()
                .copied()
                .filter(|&(_, owner)| owner != node)
                .collect();
            let met = met(&left);
            (left, met)
        };
        let lacking = if nodes > 1 {
            (0..nodes).map(lacking).collect()
        } else {
            Vec::new()
        };
        Self {
            met: met(&points),
            points,
            positions,
            lacking,
        }
    }

    /// Compares lookup, replicas, preference, and the diff with each ring that lacks a node, both ways.
    fn check(&self, labelling: &Labelling, replicas: u8) {
        let ring = twin::placement(&self.points, &labelling.members, replicas);
        let preferences: Vec<&[usize]> = self
            .met
            .iter()
            .map(|&met| &*labelling.preferences[met])
            .collect();
        for (&position, preference) in self.positions.iter().zip(&preferences) {
            let at = Position(position);
            let expected = cut(preference, replicas);
            assert_eq!(
                ring.owner_at(at).get(),
                expected[0],
                "owner at {position}: {:?}",
                self.points
            );
            let found = ring.replicas_at(at);
            assert!(
                are(found, expected),
                "replicas at {position}: {:?}",
                self.points
            );
            let owned = ring.interval_at(at);
            assert!(
                owned.interval.contains(at) && owned.owners == found,
                "interval of {position}"
            );
            let found = ring.preference(at).map(NodeIx::get);
            assert!(
                found.eq(preference.iter().copied()),
                "preference at {position}: {:?}",
                self.points
            );
        }
        let is_point = |position| self.points.iter().any(|&(point, _)| point == position);
        let ends: Vec<usize> = (0..self.positions.len())
            .filter(|&at| is_point(self.positions[at]))
            .collect();
        for (points, met) in &self.lacking {
            let without = twin::placement(points, &labelling.members, replicas);
            let end = |&at: &usize| {
                let before = cut(preferences[at], replicas);
                (
                    self.positions[at],
                    before,
                    cut(&labelling.preferences[met[at]], replicas),
                )
            };
            let ends: Vec<End> = ends.iter().map(end).collect();
            check_diff(&ring, &without, &ends);
            let back: Vec<End> = ends.iter().map(|end| (end.0, end.2, end.1)).collect();
            check_diff(&without, &ring, &back);
        }
    }
}

/// What the twin says of the interval that ends at a position: owners before and after.
type End<'a> = (u64, &'a [usize], &'a [usize]);

fn cut(preference: &[usize], replicas: u8) -> &[usize] {
    &preference[..preference.len().min(replicas.into())]
}

fn are(owners: &[NodeIx], expected: &[usize]) -> bool {
    owners
        .iter()
        .map(|owner| owner.get())
        .eq(expected.iter().copied())
}

/// The diff must be the maximal runs of differing intervals, given all intervals in clockwise order.
fn check_diff(old: &Placement, new: &Placement, ends: &[End]) {
    let diff = diff(old, new).expect("one scheme");
    let last = ends.len() - 1;
    let same = |a: &End, b: &End| (a.1, a.2) == (b.1, b.2);
    let run_ends = |at: &usize| !same(&ends[*at], &ends[if *at == last { 0 } else { *at + 1 }]);
    let mut expected: Vec<(u64, End)> = Vec::new();
    let mut after = (0..=last).rev().find(run_ends).map(|at| ends[at].0);
    for at in (0..=last).filter(run_ends) {
        expected.push((after.expect("a run ends"), ends[at]));
        after = Some(ends[at].0);
    }
    if expected.is_empty() {
        expected.push((ends[last].0, ends[last]));
    }
    expected.retain(|(_, (_, before, after))| before != after);
    let found: Vec<_> = diff.lists().collect();
    assert_eq!(
        found.len(),
        expected.len(),
        "{found:?} instead of {expected:?}"
    );
    for change in found {
        let is_this = |(after, (through, old, new)): &(u64, End)| {
            (change.interval.after.0, change.interval.through.0) == (*after, *through)
                && are(change.old, old)
                && are(change.new, new)
        };
        assert!(
            expected.iter().any(is_this),
            "{change:?} is not among {expected:?}"
        );
    }
}

/// One point, or two in any order of the eight positions, equal ones included.
fn point_sets() -> Vec<Vec<usize>> {
    let one = (0..8).map(|a| vec![a]);
    let two = (0..8).flat_map(|a| (a..8).map(move |b| vec![a, b]));
    one.chain(two).collect()
}

fn for_each_choice<T: Clone>(length: usize, options: &[T], act: &mut impl FnMut(&[T])) {
    fn go<T: Clone>(left: usize, options: &[T], chosen: &mut Vec<T>, act: &mut impl FnMut(&[T])) {
        if left == 0 {
            return act(chosen);
        }
        for option in options {
            chosen.push(option.clone());
            go(left - 1, options, chosen, act);
            chosen.pop();
        }
    }
    go(length, options, &mut Vec::new(), act);
}

/// All ways to put nodes into domains: none, one level, and two levels with the inner within the outer.
fn labellings(nodes: usize) -> Vec<Domains> {
    let flat = partitions(nodes);
    let mut all = vec![vec![vec![]; nodes]];
    all.extend(
        flat.iter()
            .map(|outer| outer.iter().map(|&zone| vec![zone]).collect()),
    );
    let labels: Vec<u8> = (0..).take(nodes).collect();
    for outer in &flat {
        // Inner labels are told apart within their outer domain only, so each refinement comes up once
        // when the labels count up from 0 inside every outer domain.
        for_each_choice(nodes, &labels, &mut |inner: &[u8]| {
            let counts_up = (0..nodes).all(|node| {
                let mates = (0..node).filter(|&mate| outer[mate] == outer[node]);
                inner[node] <= mates.map(|mate| inner[mate] + 1).max().unwrap_or(0)
            });
            if counts_up {
                all.push(
                    outer
                        .iter()
                        .zip(inner)
                        .map(|(&zone, &rack)| vec![zone, rack])
                        .collect(),
                );
            }
        });
    }
    all
}

/// All partitions of nodes into sets, as labels that count up.
fn partitions(nodes: usize) -> Vec<Vec<u8>> {
    let grow = |labels: Vec<u8>| {
        let fresh = labels.iter().map(|label| label + 1).max().unwrap_or(0);
        (0..=fresh).map(move |label| [labels.as_slice(), &[label]].concat())
    };
    (0..nodes).fold(vec![vec![]], |partitions, _| {
        partitions.into_iter().flat_map(grow).collect()
    })
}

/// All circular orders of so many points of each node, each once: the smallest of its rotations.
fn for_each_cyclic_order(nodes: usize, points: usize, act: &mut impl FnMut(&[usize])) {
    fn go(left: &mut [usize], order: &mut Vec<usize>, act: &mut impl FnMut(&[usize])) {
        if left.iter().all(|&left| left == 0) {
            let rotated = |by: usize| order[by..].iter().chain(&order[..by]);
            if (1..order.len()).all(|by| order.iter().le(rotated(by))) {
                act(order);
            }
            return;
        }
        for node in 0..left.len() {
            if left[node] > 0 {
                left[node] -= 1;
                order.push(node);
                go(left, order, act);
                order.pop();
                left[node] += 1;
            }
        }
    }
    go(&mut vec![points; nodes], &mut Vec::new(), act);
}

#[test]
fn the_labellings_are_all_there_are() {
    // One without domains, then Bell numbers, then chains of two partitions.
    let counts: Vec<usize> = (1..=4).map(|nodes| labellings(nodes).len()).collect();
    assert_eq!(counts, [1 + 1 + 1, 1 + 2 + 3, 1 + 5 + 12, 1 + 15 + 60]);
}
