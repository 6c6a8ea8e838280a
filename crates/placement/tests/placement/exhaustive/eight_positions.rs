//! Every ring of up to three nodes and two points of each in a space of eight positions, collisions and wraps
//! included, with every change of one node: it joins, it leaves, it gets a point more or less.

use std::cell::OnceCell;

use super::compare::{Comparison, Known, List};
use super::is_taken;
use super::labellings::{Labelling, met_from};
use crate::twin::Points;
use clockwise_placement::{Placement, Position};

/// Crowded together at the seam of the circle, or far apart with both its ends among them.
const AT_THE_SEAM: [u64; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
const AROUND: [u64; 8] = [
    0,
    1 << 61,
    2 << 61,
    3 << 61,
    4 << 61,
    5 << 61,
    6 << 61,
    u64::MAX,
];

const NODES: usize = 3;
/// How many choices there are for the points of one node: none, one of eight, or two of eight that may be equal.
const CHOICES: usize = 1 + 8 + 36;

#[test]
fn every_ring_in_eight_positions_at_the_seam_equals_the_twin_with_one_replica() {
    check_all(&AT_THE_SEAM, 1);
}

#[test]
fn every_ring_in_eight_positions_at_the_seam_equals_the_twin_with_two_replicas() {
    check_all(&AT_THE_SEAM, 2);
}

#[test]
fn every_ring_in_eight_positions_at_the_seam_equals_the_twin_with_three_replicas() {
    check_all(&AT_THE_SEAM, 3);
}

#[test]
fn every_ring_in_eight_positions_around_the_circle_equals_the_twin_with_one_replica() {
    check_all(&AROUND, 1);
}

#[test]
fn every_ring_in_eight_positions_around_the_circle_equals_the_twin_with_two_replicas() {
    check_all(&AROUND, 2);
}

#[test]
fn every_ring_in_eight_positions_around_the_circle_equals_the_twin_with_three_replicas() {
    check_all(&AROUND, 3);
}

fn check_all(space: &'static [u64; 8], replicas: u8) {
    let rings: Vec<Ring> = (0..CHOICES.pow(NODES as u32))
        .map(|number| Ring::new(number, space))
        .collect();
    let of_three = rings.iter().filter(|ring| ring.nodes.len() == 3).count();
    assert_eq!((rings.len(), of_three), (45 * 45 * 45, 44 * 44 * 44));
    let mut comparison = Comparison::default();
    for (at, labelling) in Labelling::all(NODES).iter().enumerate() {
        let built = (0..rings.len()).map(|_| OnceCell::new()).collect();
        let table = Table {
            space,
            replicas,
            rings: &rings,
            labelling,
            built,
        };
        // The number 0 is the ring without points.
        (1..rings.len())
            .filter(|&number| is_taken(number, at))
            .for_each(|number| table.check(number, &mut comparison));
    }
}

/// A ring by its number, whose digits are the choices of its nodes.
struct Ring {
    points: Points,
    nodes: Vec<usize>,
    // In which order each position meets the nodes.
    met: [u16; 8],
    // Which of the eight positions are points.
    taken: [bool; 8],
    lesser: Vec<Lesser>,
}

impl Ring {
    fn new(number: usize, space: &[u64; 8]) -> Self {
        let choices = [
            number % CHOICES,
            number / CHOICES % CHOICES,
            number / CHOICES / CHOICES,
        ];
        let mut points = Points::new();
        let mut taken = [false; 8];
        for (node, &choice) in choices.iter().enumerate() {
            for at in point_sets()[choice].iter().copied() {
                points.push((space[at], node));
                taken[at] = true;
            }
        }
        Self {
            lesser: Self::lesser(choices, space),
            nodes: (0..NODES).filter(|&node| choices[node] > 0).collect(),
            met: space.map(|position| met_from(&points, position, NODES)),
            points,
            taken,
        }
    }

    /// The rings in which one node is gone, or has one point left of two.
    fn lesser(choices: [usize; NODES], space: &[u64; 8]) -> Vec<Lesser> {
        let place = |node: usize| CHOICES.pow(node as u32);
        let number: usize = (0..NODES).map(|node| choices[node] * place(node)).sum();
        let mut lesser = Vec::new();
        for (node, &choice) in choices.iter().enumerate() {
            for (fewer, left) in point_sets()[..choice].iter().enumerate() {
                let mut gone = point_sets()[choice].clone();
                let is_own = |at: &usize| {
                    let found = gone.iter().position(|own| own == at);
                    found.map(|found| gone.remove(found)).is_some()
                };
                let number = number - (choice - fewer) * place(node);
                if left.iter().all(is_own) && !gone.is_empty() && number > 0 {
                    let at = |at: usize| Position(space[gone[at]]);
                    let changed = [at(0), at(gone.len() - 1)];
                    lesser.push(Lesser { number, changed });
                }
            }
        }
        lesser
    }
}

/// A ring that lacks some points of another one.
struct Lesser {
    number: usize,
    // Where those points were, twice the same if it was one.
    changed: [Position; 2],
}

/// All rings under one labelling, each built when it is first asked for.
struct Table<'a> {
    space: &'a [u64; 8],
    replicas: u8,
    rings: &'a [Ring],
    labelling: &'a Labelling,
    built: Vec<OnceCell<Placement>>,
}

impl Table<'_> {
    fn check(&self, number: usize, comparison: &mut Comparison) {
        let ring = &self.rings[number];
        let preferences = self.preferences(ring);
        let known = self.known(number, &preferences);
        known.check_lookups(self.space, self.replicas);
        for &Lesser {
            number,
            ref changed,
        } in &ring.lesser
        {
            let preferences = self.preferences(&self.rings[number]);
            let lesser = self.known(number, &preferences);
            let ends = (0..8).filter(|&at| ring.taken[at]);
            comparison.check_change([known, lesser], self.space, ends, changed, self.replicas);
        }
    }

    fn preferences(&self, ring: &Ring) -> [List; 8] {
        ring.met.map(|met| self.labelling.preference(met))
    }

    fn known<'a>(&'a self, number: usize, preferences: &'a [List]) -> Known<'a> {
        let Ring { points, nodes, .. } = &self.rings[number];
        let build = || self.labelling.ring(points, nodes, self.replicas);
        let ring = self.built[number].get_or_init(build);
        Known {
            ring,
            nodes,
            preferences,
        }
    }
}

/// No point, one, or two in any order of the eight positions, equal ones included.
fn point_sets() -> &'static [Vec<usize>] {
    static SETS: std::sync::LazyLock<Vec<Vec<usize>>> = std::sync::LazyLock::new(|| {
        let one = (0..8).map(|a| vec![a]);
        let two = (0..8).flat_map(|a| (a..8).map(move |b| vec![a, b]));
        [Vec::new()].into_iter().chain(one).chain(two).collect()
    });
    &SETS
}
