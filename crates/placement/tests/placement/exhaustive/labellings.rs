//! All ways to put nodes into failure domains, with what the twin prefers under each.

use super::compare::List;
use super::for_each_choice;
use crate::twin::{self, Domains, Points};
use clockwise_placement::{Member, Placement, Point, Position, Scheme};

/// One way to put the nodes into failure domains.
pub(super) struct Labelling {
    domains: Domains,
    members: Vec<Member>,
    // The twin's preference for each order in which nodes can be met, by the number of that order.
    preferences: Vec<List>,
}

impl Labelling {
    pub(super) fn all(nodes: usize) -> Vec<Self> {
        labellings(nodes).into_iter().map(Self::new).collect()
    }

    fn new(domains: Domains) -> Self {
        let nodes = domains.len();
        let mut preferences = vec![List::default(); (nodes + 1).pow(nodes as u32)];
        for length in 1..=nodes {
            for_each_choice(
                length,
                &(0..nodes).collect::<Vec<_>>(),
                &mut |met: &[usize]| {
                    if (1..length).all(|at| !met[..at].contains(&met[at])) {
                        let preference = twin::preference(met, &domains);
                        preferences[number(met, nodes)] = List::of(preference);
                    }
                },
            );
        }
        Self {
            members: twin::members(&domains),
            domains,
            preferences,
        }
    }

    /// What the twin prefers where it meets nodes in the order of this number.
    pub(super) fn preference(&self, met: u16) -> List {
        self.preferences[usize::from(met)]
    }

    /// A ring of these nodes alone, as the crate builds it. All points are theirs.
    pub(super) fn ring(&self, points: &Points, nodes: &[usize], replicas: u8) -> Placement {
        let members = nodes.iter().map(|&node| self.members[node].clone());
        let member = |owner| nodes.iter().position(|&node| node == owner);
        let points = points.iter().map(|&(position, owner)| Point {
            position: Position(position),
            member: member(owner).expect("a point of one of them"),
        });
        Placement::from_points(Scheme::default(), members, replicas, points).expect("a sound ring")
    }

    /// Which of these nodes share which domains, whatever the domains are called.
    pub(super) fn sharing(&self, nodes: &[usize]) -> Vec<Vec<usize>> {
        let domain = |node: usize, level: usize| &self.domains[node][..=level];
        let first_mate = |&node: &usize, level| {
            let is_mate = |&&mate: &&usize| domain(mate, level) == domain(node, level);
            *nodes.iter().find(is_mate).expect("itself at the latest")
        };
        let levels = 0..self.domains[0].len();
        let at_level = |level| nodes.iter().map(|node| first_mate(node, level)).collect();
        levels.map(at_level).collect()
    }
}

/// The number of the order in which a position meets the nodes.
pub(super) fn met_from(points: &Points, position: u64, nodes: usize) -> u16 {
    let met = twin::met_from(points, position);
    u16::try_from(number(&met, nodes)).expect("few nodes")
}

fn number(met: &[usize], nodes: usize) -> usize {
    met.iter()
        .fold(0, |number, node| number * (nodes + 1) + node + 1)
}

/// None, one level, and two levels with the inner within the outer.
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

#[test]
fn the_labellings_are_all_there_are() {
    // One without domains, then Bell numbers, then chains of two partitions.
    let counts: Vec<usize> = (1..=4).map(|nodes| labellings(nodes).len()).collect();
    assert_eq!(counts, [1 + 1 + 1, 1 + 2 + 3, 1 + 5 + 12, 1 + 15 + 60]);
}
