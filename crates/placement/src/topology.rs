//! Which nodes share which failure domains, as small numbers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::domain::DOMAIN_DEPTH_MAX;
use crate::{Domain, Member, NodeIx, PlacementError};

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

/// A path in the order of its levels, for which a separator comes before all characters.
#[derive(PartialEq, Eq)]
struct ByLevel<'a>(&'a Domain);

impl Ord for ByLevel<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |byte: u8| if byte == b'/' { 0 } else { byte };
        let ranks = |path: &Self| path.0.as_str().bytes().map(rank);
        ranks(self).cmp(ranks(other))
    }
}

impl PartialOrd for ByLevel<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
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
        // Members are many and paths are few: each path is numbered once.
        let mut paths: BTreeMap<ByLevel<'_>, usize> = BTreeMap::new();
        let path_of_member: Vec<usize> = members
            .iter()
            .map(|member| {
                let next = paths.len();
                *paths.entry(ByLevel(&member.domain)).or_insert(next)
            })
            .collect();
        let mut rows = alloc::vec![0; paths.len() * depth];
        let mut last: Option<(&Domain, usize)> = None;
        for (&ByLevel(path), &at) in &paths {
            if let Some((before, last)) = last {
                let pairs = before.levels().zip(path.levels());
                let shared = pairs.take_while(|(a, b)| a == b).count();
                for level in 0..depth {
                    rows[at * depth + level] =
                        rows[last * depth + level] + u16::from(level >= shared);
                }
            }
            last = Some((path, at));
        }
        let row = |&path: &usize| &rows[path * depth..][..depth];
        let domains: Vec<u16> = path_of_member.iter().flat_map(row).copied().collect();
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
