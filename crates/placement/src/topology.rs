//! Which nodes share which failure domains, as small numbers.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::domain::DOMAIN_DEPTH_MAX;
use crate::{Member, NodeIx, PlacementError};

/// How many of the nodes already taken share each level's domain with a candidate, outermost first.
///
/// A walk takes the candidate with the smallest crowd, and of several the first on its way.
pub(crate) type Crowd = [u16; DOMAIN_DEPTH_MAX];

/// The failure domains of a placement's members.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    depth: usize,
    // Row-major, `depth` per member: the rank of the path down to that level among all such paths.
    // Invariant: members share a domain at a level exactly when their numbers there are equal.
    domains: Box<[u16]>,
    outermost: usize,
}

impl Topology {
    /// Numbers the domains of `members`, which must not differ in depth.
    pub(crate) fn new(members: &[Member]) -> Result<Self, PlacementError> {
        let first = members.first().ok_or(PlacementError::NoMembers)?;
        let depth = first.domain.depth();
        if let Some(odd) = members.iter().find(|member| member.domain.depth() != depth) {
            return Err(PlacementError::UnevenDomains {
                node: odd.id.clone(),
                depth: odd.domain.depth(),
                other: first.id.clone(),
                other_depth: depth,
            });
        }
        let mut domains = alloc::vec![0; members.len() * depth];
        if depth > 0 {
            let mut by_path: Vec<usize> = (0..members.len()).collect();
            by_path.sort_by(|&a, &b| members[a].domain.cmp_by_level(&members[b].domain));
            for pair in by_path.windows(2) {
                let (a, b) = (&members[pair[0]].domain, &members[pair[1]].domain);
                let shared = a
                    .levels()
                    .zip(b.levels())
                    .take_while(|(a, b)| a == b)
                    .count();
                for level in 0..depth {
                    let step = u16::from(level >= shared);
                    domains[pair[1] * depth + level] = domains[pair[0] * depth + level] + step;
                }
            }
        }
        let highest = domains.iter().step_by(depth.max(1)).max();
        let outermost = highest.map_or(members.len(), |&highest| usize::from(highest) + 1);
        Ok(Self {
            depth,
            domains: domains.into_boxed_slice(),
            outermost,
        })
    }

    /// How many levels the paths have.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// How many domains the outermost level has; without levels every node is one.
    pub(crate) fn outermost(&self) -> usize {
        self.outermost
    }

    /// The number of a node's domain at the outermost level.
    #[inline]
    pub(crate) fn outermost_of(&self, node: NodeIx) -> usize {
        if self.depth == 0 {
            node.get()
        } else {
            self.domains[node.get() * self.depth].into()
        }
    }

    /// The number of a node's domain at a level.
    pub(crate) fn domain(&self, node: NodeIx, level: usize) -> u16 {
        self.domains[node.get() * self.depth + level]
    }

    /// The numbers of a node's domains, outermost first.
    pub(crate) fn path(&self, node: NodeIx) -> &[u16] {
        &self.domains[node.get() * self.depth..][..self.depth]
    }

    /// The crowd that a candidate would join.
    pub(crate) fn crowd(&self, candidate: NodeIx, taken: impl Iterator<Item = NodeIx>) -> Crowd {
        let mut crowd = Crowd::default();
        let mine = self.path(candidate);
        for node in taken {
            for (level, (a, b)) in mine.iter().zip(self.path(node)).enumerate() {
                crowd[level] += u16::from(a == b);
            }
        }
        crowd
    }

    /// How many domains of a level (0 is the outermost) the nodes are on.
    pub(crate) fn distinct(&self, nodes: &[NodeIx], level: usize) -> usize {
        let fresh = |&(rank, node): &(usize, &NodeIx)| {
            let domain = self.domain(*node, level);
            nodes[..rank]
                .iter()
                .all(|earlier| self.domain(*earlier, level) != domain)
        };
        nodes.iter().enumerate().filter(fresh).count()
    }
}
