//! The naive twin: the rules of the ring as one would tell them, without regard to cost.
//!
//! It knows nodes by number, in the order of their ids, and shares no code with the crate.

use clockwise_placement::{Member, Placement, Point, Position, Scheme};

/// Points as (position, node), in any order.
pub(crate) type Points = Vec<(u64, usize)>;

/// A failure domain path for each node.
pub(crate) type Domains = Vec<Vec<u8>>;

/// The nodes as the crate knows them.
pub(crate) fn members(domains: &Domains) -> Vec<Member> {
    let path = |domain: &Vec<u8>| {
        let levels: Vec<String> = domain.iter().map(|level| format!("d{level}")).collect();
        levels.join("/").parse().expect("a path of short names")
    };
    let member = |(node, domain)| {
        let id = format!("n{node:05}").parse().expect("a short name");
        Member::new(id).with_domain(path(domain))
    };
    domains.iter().enumerate().map(member).collect()
}

/// The ring as the crate builds it.
pub(crate) fn placement(points: &Points, members: &[Member], replicas: u8) -> Placement {
    let points = points.iter();
    let points = points.map(|&(position, member)| Point {
        position: Position(position),
        member,
    });
    Placement::from_points(Scheme::default(), members.to_vec(), replicas, points)
        .expect("a sound ring")
}

/// The nodes in the order in which they are first met clockwise from a position.
pub(crate) fn met_from(points: &Points, position: u64) -> Vec<usize> {
    let mut met: Vec<(u64, usize)> = points
        .iter()
        .map(|&(point, node)| (point.wrapping_sub(position), node))
        .collect();
    met.sort_unstable();
    let mut nodes = Vec::new();
    for (_, node) in met {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    nodes
}

/// The nodes in the order in which a position prefers them, given the order in which it meets them.
pub(crate) fn preference(met: &[usize], domains: &Domains) -> Vec<usize> {
    let mut left = met.to_vec();
    let mut chosen = Vec::new();
    while !left.is_empty() {
        let best = left.iter().map(|&node| crowd(node, &chosen, domains)).min();
        let first = left
            .iter()
            .position(|&node| Some(crowd(node, &chosen, domains)) == best);
        chosen.push(left.remove(first.expect("the best is among them")));
    }
    chosen
}

/// For each level, how many of the chosen share the candidate's domain there.
fn crowd(candidate: usize, chosen: &[usize], domains: &Domains) -> Vec<usize> {
    let mine = &domains[candidate];
    let shares = |node: usize, level: usize| domains[node][..=level] == mine[..=level];
    let count = |level| chosen.iter().filter(|&&node| shares(node, level)).count();
    (0..mine.len()).map(count).collect()
}
