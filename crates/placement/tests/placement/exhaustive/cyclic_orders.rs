//! Every cyclic order of up to four nodes and three points of each, with gaps between the points, and every
//! change by which one of the nodes leaves or joins.

use super::compare::{Comparison, Known, List};
use super::is_taken;
use super::labellings::{Labelling, met_from};
use crate::twin::Points;
use clockwise_placement::{Placement, Position};

#[test]
fn every_cyclic_order_of_up_to_four_nodes_and_three_points_equals_the_twin_with_one_replica() {
    check_all(1);
}

#[test]
fn every_cyclic_order_of_up_to_four_nodes_and_three_points_equals_the_twin_with_two_replicas() {
    check_all(2);
}

#[test]
fn every_cyclic_order_of_up_to_four_nodes_and_three_points_equals_the_twin_with_three_replicas() {
    check_all(3);
}

fn check_all(replicas: u8) {
    let mut orders = 0;
    for nodes in 1..=4 {
        let labellings = Labellings::new(nodes);
        for_each_cyclic_order(nodes, 3, &mut |order| {
            orders += 1;
            labellings.check(orders, order, replicas);
        });
    }
    assert_eq!(
        orders,
        1 + 4 + 188 + 30_804,
        "necklaces of three beads of each colour"
    );
}

/// The labellings of so many nodes.
struct Labellings {
    nodes: usize,
    all: Vec<Labelling>,
    // For each node, and each labelling, the first labelling under which all the others share domains alike.
    alike_without: Vec<Vec<usize>>,
}

impl Labellings {
    fn new(nodes: usize) -> Self {
        let all = Labelling::all(nodes);
        let alike = |node: usize| {
            let others = others(nodes, node);
            let first_like = |labelling: &Labelling| {
                let sharing = labelling.sharing(&others);
                all.iter()
                    .position(|other| other.sharing(&others) == sharing)
            };
            let alike = all.iter().map(first_like);
            alike
                .map(|first| first.expect("itself at the latest"))
                .collect()
        };
        let alike_without = (0..nodes).map(alike).collect();
        Self {
            nodes,
            all,
            alike_without,
        }
    }

    /// Checks the ring of this order and number under all labellings, and those that lack one of its nodes.
    fn check(&self, number: usize, order: &[usize], replicas: u8) {
        let is_taken = |&at: &usize| is_taken(number, at);
        let taken: Vec<usize> = (0..self.all.len()).filter(is_taken).collect();
        if taken.is_empty() {
            return;
        }
        // Odd positions are points, even ones lie in the gaps.
        let points: Points = (0..)
            .map(|at| 2 * at + 1)
            .zip(order.iter().copied())
            .collect();
        let positions: Vec<u64> = (0..=2 * points.len() as u64).collect();
        let met = |points: &Points| -> Vec<u16> {
            let met = |&position| met_from(points, position, self.nodes);
            positions.iter().map(met).collect()
        };
        let all: Vec<usize> = (0..self.nodes).collect();
        let whole = (points.clone(), met(&points));
        let mut lesser: Vec<Lesser> = (0..self.nodes)
            .filter(|_| self.nodes > 1)
            .map(|node| {
                let is_left = |&(_, owner): &(u64, usize)| owner != node;
                let (points, gone): (Points, Points) = points.iter().copied().partition(is_left);
                Lesser {
                    gone: node,
                    changed: gone
                        .iter()
                        .map(|&(position, _)| Position(position))
                        .collect(),
                    nodes: others(self.nodes, node),
                    met: met(&points),
                    points,
                    built: self.all.iter().map(|_| None).collect(),
                }
            })
            .collect();
        let mut comparison = Comparison::default();
        for at in taken {
            let labelling = &self.all[at];
            let ring = labelling.ring(&whole.0, &all, replicas);
            let preferences = preferences(labelling, &whole.1);
            let known = Known {
                ring: &ring,
                nodes: &all,
                preferences: &preferences,
            };
            known.check_lookups(&positions, replicas);
            for lesser in &mut lesser {
                let alike = self.alike_without[lesser.gone][at];
                let build = || self.all[alike].ring(&lesser.points, &lesser.nodes, replicas);
                let ring = &*lesser.built[alike].get_or_insert_with(build);
                let preferences = self::preferences(labelling, &lesser.met);
                let known_lesser = Known {
                    ring,
                    nodes: &lesser.nodes,
                    preferences: &preferences,
                };
                let ends = (1..positions.len()).step_by(2);
                comparison.check_change(
                    [known, known_lesser],
                    &positions,
                    ends,
                    &lesser.changed,
                    replicas,
                );
            }
        }
    }
}

/// A ring that lacks a node of another one.
struct Lesser {
    gone: usize,
    points: Points,
    // Where the points were that it lacks.
    changed: Vec<Position>,
    nodes: Vec<usize>,
    met: Vec<u16>,
    // Built once for all labellings under which its nodes share domains alike.
    built: Vec<Option<Placement>>,
}

fn others(nodes: usize, node: usize) -> Vec<usize> {
    (0..nodes).filter(|&other| other != node).collect()
}

fn preferences(labelling: &Labelling, met: &[u16]) -> Vec<List> {
    met.iter().map(|&met| labelling.preference(met)).collect()
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
