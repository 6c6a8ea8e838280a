//! The replica list of every point: the walk clockwise over distinct nodes, spread over failure domains.
//!
//! Each further replica goes to the node whose domains hold the fewest replicas so far, compared from the
//! outermost level inwards; among several such nodes, to the first one clockwise. So a fresh zone is
//! preferred while there is one, then a fresh rack, and with six replicas over three zones of two racks
//! every rack gets one. The walk ends when the nodes do.
//!
//! Mostly every replica finds a fresh domain of the outermost level a few points on, and walking there from
//! each point is fastest. Where replicas must share domains, or some domain has so few points that the way
//! there is long, the ring is passed backwards instead, keeping every domain's members in the order in which
//! they come next: one step moves one node and its domains to the front, and a list is read off the fronts.
//! A point costs O(replicas² × levels) then, whatever the ring looks like.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::NodeIx;
use crate::topology::Topology;

const NONE: u32 = u32::MAX;
/// The mean way to a fresh domain from which on passing backwards is cheaper.
const LONG_WALK: usize = 32;

const LEVELS_MAX: usize = crate::domain::DOMAIN_DEPTH_MAX + 1;

/// The lists of all points, `width` nodes each, given the points' nodes in clockwise order.
///
/// `width` must not exceed the number of distinct nodes among the points.
pub(crate) fn lists(
    owners: Vec<NodeIx>,
    topology: &Topology,
    nodes: usize,
    width: usize,
) -> Vec<NodeIx> {
    if width == 1 {
        return owners;
    }
    if topology.outermost() > 1 && fresh_domain_is_near(&owners, topology, width) {
        return walked_lists(&owners, topology, width);
    }
    let mut order = Order::new(&owners, topology, nodes);
    for &owner in owners.iter().rev() {
        order.come_next(owner);
    }
    let mut lists = alloc::vec![NodeIx::NONE; owners.len() * width];
    for (&owner, list) in owners.iter().zip(lists.chunks_exact_mut(width)).rev() {
        order.come_next(owner);
        order.fill(list);
    }
    lists
}

/// Whether each of `width` replicas can have a domain of its own, on a way of some points in the mean.
fn fresh_domain_is_near(owners: &[NodeIx], topology: &Topology, width: usize) -> bool {
    let mut points = alloc::vec![0u32; topology.outermost()];
    for &owner in owners {
        points[topology.outermost_of(owner)] += 1;
    }
    points.sort_unstable_by_key(|&points| Reverse(points));
    // The last replica looks for any domain but those already used, which may be the largest.
    let fresh: usize = points
        .iter()
        .skip(width - 1)
        .map(|&points| points as usize)
        .sum();
    fresh > 0 && owners.len() / fresh < LONG_WALK
}

/// The lists by walking from each point to the next ones in domains not yet used.
fn walked_lists(owners: &[NodeIx], topology: &Topology, width: usize) -> Vec<NodeIx> {
    let domains: Vec<usize> = owners
        .iter()
        .map(|&owner| topology.outermost_of(owner))
        .collect();
    // For each domain the last start from which it was used.
    let mut used = alloc::vec![usize::MAX; topology.outermost()];
    let mut lists = Vec::with_capacity(owners.len() * width);
    for start in 0..owners.len() {
        let mut found = 0;
        for at in (start..owners.len()).chain(0..start) {
            let domain = &mut used[domains[at]];
            if *domain != start {
                *domain = start;
                lists.push(owners[at]);
                found += 1;
                if found == width {
                    break;
                }
            }
        }
    }
    lists
}

/// The tree of domains, each with its children in the order in which their points come next.
///
/// Numbers below `nodes` are nodes; then come the domains, outermost last, and the root.
struct Order {
    parent: Vec<u32>,
    first: Vec<u32>,
    next: Vec<u32>,
    // Invariant: a tree node that is its own predecessor stands in no list yet.
    prev: Vec<u32>,
    // How many nodes with points there are below.
    size: Vec<u16>,
    // How many nodes below are in the list being filled.
    taken: Vec<u16>,
    // When a node last came next; the latest is the nearest.
    came: Vec<u32>,
    clock: u32,
}

/// A node that a walk may take.
struct Choice {
    crowd: [u16; LEVELS_MAX],
    node: u32,
}

impl Order {
    fn new(owners: &[NodeIx], topology: &Topology, nodes: usize) -> Self {
        let mut base = alloc::vec![0; topology.depth()];
        let mut size = nodes;
        for level in (0..topology.depth()).rev() {
            base[level] = size;
            let highest = (0..nodes)
                .map(|node| topology.domain(NodeIx::of(node), level))
                .max();
            size += highest.map_or(0, |highest| usize::from(highest) + 1);
        }
        let root = number(size);
        let mut parent = alloc::vec![root; size + 1];
        for node in 0..nodes {
            let mut child = node;
            for level in (0..topology.depth()).rev() {
                let domain = base[level] + usize::from(topology.domain(NodeIx::of(node), level));
                parent[child] = number(domain);
                child = domain;
            }
        }
        let mut order = Self {
            parent,
            first: alloc::vec![NONE; size + 1],
            next: alloc::vec![NONE; size + 1],
            prev: (0..=root).collect(),
            size: alloc::vec![0; size + 1],
            taken: alloc::vec![0; size + 1],
            came: alloc::vec![0; nodes],
            clock: 0,
        };
        for owner in owners {
            if order.size[owner.get()] == 0 {
                order.for_path(number(owner.get()), |order, at| order.size[at] += 1);
            }
        }
        order
    }

    fn root(&self) -> u32 {
        number(self.parent.len() - 1)
    }

    fn for_path(&mut self, node: u32, mut act: impl FnMut(&mut Self, usize)) {
        let (mut at, root) = (node, self.root());
        loop {
            act(self, index(at));
            if at == root {
                return;
            }
            at = self.parent[index(at)];
        }
    }

    /// The pass has reached a point of this node: it is now the next one.
    fn come_next(&mut self, node: NodeIx) {
        self.clock += 1;
        self.came[node.get()] = self.clock;
        let (mut at, root) = (number(node.get()), self.root());
        while at != root {
            let parent = index(self.parent[index(at)]);
            if self.first[parent] != at {
                self.unlink(at);
                self.link_first(at, parent);
            }
            at = self.parent[index(at)];
        }
    }

    fn unlink(&mut self, at: u32) {
        let (prev, next) = (self.prev[index(at)], self.next[index(at)]);
        if prev == at {
            return;
        }
        // Only a later one is ever unlinked: the first stays where it is.
        self.next[index(prev)] = next;
        if next != NONE {
            self.prev[index(next)] = prev;
        }
    }

    fn link_first(&mut self, at: u32, parent: usize) {
        let second = self.first[parent];
        self.next[index(at)] = second;
        self.prev[index(at)] = NONE;
        if second != NONE {
            self.prev[index(second)] = at;
        }
        self.first[parent] = at;
    }

    fn fill(&mut self, list: &mut [NodeIx]) {
        for slot in list.iter_mut() {
            let node = self
                .pick(self.root(), 0)
                .expect("a list is no longer than there are nodes")
                .node;
            *slot = NodeIx::of(index(node));
            self.for_path(node, |order, at| order.taken[at] += 1);
        }
        for slot in list.iter() {
            self.for_path(number(slot.get()), |order, at| order.taken[at] -= 1);
        }
    }

    /// The node below `domain` that the walk takes next. None when all are taken.
    fn pick(&self, domain: u32, level: usize) -> Option<Choice> {
        let nodes = self.came.len();
        if index(domain) < nodes {
            return Some(Choice {
                crowd: [0; LEVELS_MAX],
                node: domain,
            });
        }
        let children = || {
            let mut at = self.first[index(domain)];
            core::iter::from_fn(move || {
                let child = at;
                (child != NONE).then(|| {
                    at = self.next[index(child)];
                    child
                })
            })
        };
        // At most as many children are passed over as there are replicas already.
        if let Some(fresh) = children().find(|&child| self.taken[index(child)] == 0) {
            return Some(Choice {
                crowd: [0; LEVELS_MAX],
                node: self.front(fresh),
            });
        }
        children()
            .filter(|&child| self.taken[index(child)] < self.size[index(child)])
            .filter_map(|child| {
                let mut choice = self.pick(child, level + 1)?;
                choice.crowd[level] = self.taken[index(child)];
                Some(choice)
            })
            .min_by_key(|choice| (choice.crowd, Reverse(self.came[index(choice.node)])))
    }

    /// The node below `at` whose point comes next.
    fn front(&self, mut at: u32) -> u32 {
        while index(at) >= self.came.len() {
            at = self.first[index(at)];
        }
        at
    }
}

fn index(number: u32) -> usize {
    number as usize
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("nodes and their domains are at most 50,001")
}
