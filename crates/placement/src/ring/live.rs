//! A ring that changes: one node at a time, at the cost of copying the points instead of sorting them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::placement::Roll;
use crate::ring::{count_points, enforce, points_of};
use crate::sorted::{Owned, Splice};
use crate::{
    Change, Domain, Member, NodeId, NodeIx, Placement, PlacementError, Position, RingSpec, Weight,
    diff,
};

/// A ring with its present members, and a version that grows with every change.
///
/// Readers hold the [`Placement`] of their version; a change makes the next one beside it. When nobody
/// holds the one before the last any more, its storage is used again.
///
/// ```
/// use clockwise_placement::{Member, Ring, RingSpec};
/// let member = |id: &str| Member::new(id.parse().unwrap());
/// let mut ring = Ring::new(RingSpec::new(["cache-a", "cache-b", "cache-c"].map(member)))?;
/// let change = ring.add_node(member("cache-d"))?;
/// assert_eq!(ring.ring_version(), 1);
/// for moved in change.primaries() {
///     assert_eq!(change.after.node(moved.new[0]).id.as_str(), "cache-d");
/// }
/// let owner = ring.owner(b"user:42").clone();
/// ring.remove_node(&owner)?;
/// assert_ne!(ring.owner(b"user:42"), &owner);
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ring {
    // Its members stand in the placement instead.
    rules: RingSpec,
    placement: Arc<Placement>,
    retired: Option<Arc<Placement>>,
    version: u64,
}

/// What one change did.
#[derive(Clone, Debug)]
pub struct RingChange {
    /// The ring before.
    pub before: Arc<Placement>,
    /// The ring after.
    pub after: Arc<Placement>,
    /// Where points came or went, ascending.
    pub points: Vec<Position>,
}

impl RingChange {
    /// The intervals whose first owner changed, from the changed points alone: O(points of one node).
    #[must_use]
    pub fn primaries(&self) -> Vec<Change<'_>> {
        diff(&self.before, &self.after)
            .expect("a change keeps the scheme")
            .primaries_at(&self.points)
    }
}

impl Ring {
    /// Builds the ring; its version is 0.
    ///
    /// # Errors
    /// As [`RingSpec::build`].
    pub fn new(spec: RingSpec) -> Result<Self, PlacementError> {
        let rules = RingSpec {
            members: Vec::new(),
            ..spec.clone()
        };
        Ok(Self {
            rules,
            placement: Arc::new(spec.build()?),
            retired: None,
            version: 0,
        })
    }

    /// The node that owns a key.
    #[must_use]
    pub fn owner(&self, key: &[u8]) -> &NodeId {
        self.placement.owner(key)
    }

    /// How many changes there were.
    #[must_use]
    pub fn ring_version(&self) -> u64 {
        self.version
    }

    /// The placement of this version.
    #[must_use]
    pub fn placement(&self) -> &Arc<Placement> {
        &self.placement
    }

    /// All that decides this version; building it gives the same placement.
    #[must_use]
    pub fn spec(&self) -> RingSpec {
        RingSpec {
            members: self.placement.nodes().to_vec(),
            ..self.rules.clone()
        }
    }

    /// Adds a node. With one replica O(points copied); the lists of several are made anew.
    ///
    /// # Errors
    /// As [`RingSpec::build`] with the new member; the ring stays as it was.
    pub fn add_node(&mut self, member: Member) -> Result<RingChange, PlacementError> {
        let mut members = self.placement.nodes().to_vec();
        let rank = members.partition_point(|other| other.id < member.id);
        members.insert(rank, member);
        count_points(&members, self.rules.points_per_weight)?;
        let node = NodeIx::of(rank);
        let coming = self.points_from(&members[rank], 0, node);
        let splice = Splice {
            leaving: Vec::new(),
            coming,
        };
        self.change(members, &splice, |owner| owner.after_join(node))
    }

    /// Removes a node. With one replica O(points copied); the lists of several are made anew.
    ///
    /// # Errors
    /// When it is no member, or as [`RingSpec::build`] without it; the ring stays as it was.
    pub fn remove_node(&mut self, id: &NodeId) -> Result<RingChange, PlacementError> {
        let node = self.rank_of(id)?;
        let mut members = self.placement.nodes().to_vec();
        let member = members.remove(node.get());
        count_points(&members, self.rules.points_per_weight)?;
        let leaving = self.points_from(&member, 0, node);
        let splice = Splice {
            leaving,
            coming: Vec::new(),
        };
        self.change(members, &splice, |owner| owner.after_leave(node))
    }

    /// Gives a node another weight: some of its points come or go, no others.
    ///
    /// # Errors
    /// When it is no member, or as [`RingSpec::build`] with the new weight; the ring stays as it was.
    pub fn set_weight(
        &mut self,
        id: &NodeId,
        weight: Weight,
    ) -> Result<RingChange, PlacementError> {
        let node = self.rank_of(id)?;
        let mut members = self.placement.nodes().to_vec();
        let old = members[node.get()].clone();
        members[node.get()].weight = weight;
        count_points(&members, self.rules.points_per_weight)?;
        let count = |member: &Member| points_of(member.weight, self.rules.points_per_weight);
        let (had, has) = (count(&old), count(&members[node.get()]));
        let splice = Splice {
            leaving: self.points_from(&old, has, node),
            coming: self.points_from(&members[node.get()], had, node),
        };
        self.change(members, &splice, |owner| owner)
    }

    /// Says that a node stands elsewhere: its points stay, replica lists may change.
    ///
    /// # Errors
    /// When it is no member, or as [`RingSpec::build`] with the new domain; the ring stays as it was.
    pub fn set_domain(
        &mut self,
        id: &NodeId,
        domain: Domain,
    ) -> Result<RingChange, PlacementError> {
        let node = self.rank_of(id)?;
        let mut members = self.placement.nodes().to_vec();
        members[node.get()].domain = domain;
        self.change(members, &Splice::default(), |owner| owner)
    }

    fn rank_of(&self, id: &NodeId) -> Result<NodeIx, PlacementError> {
        self.placement
            .index_of(id)
            .ok_or_else(|| PlacementError::NotAMember { node: id.clone() })
    }

    /// The points of a member from one copy on, ascending.
    fn points_from(&self, member: &Member, first: u32, node: NodeIx) -> Vec<Owned> {
        let copies = first..points_of(member.weight, self.rules.points_per_weight);
        let mut points = Vec::new();
        self.rules
            .scheme
            .for_each_point(&member.id, copies, |position| points.push((position, node)));
        points.sort_unstable();
        points
    }

    fn change(
        &mut self,
        members: Vec<Member>,
        splice: &Splice,
        rename: impl Fn(NodeIx) -> NodeIx,
    ) -> Result<RingChange, PlacementError> {
        let roll = Roll::new(members, self.rules.replicas)?;
        let spare = self
            .retired
            .take()
            .and_then(|retired| Arc::try_unwrap(retired).ok());
        let spare = spare.map(Placement::into_storage).unwrap_or_default();
        let (sorted, owners) = self.placement.splice(splice, rename, spare);
        let next = roll.into_sorted_ring(self.rules.scheme.clone(), sorted, owners);
        let next = Arc::new(enforce(self.rules.spread, next)?);
        let before = core::mem::replace(&mut self.placement, next);
        self.version += 1;
        self.retired = Some(before.clone());
        let changed = splice.leaving.iter().chain(&splice.coming);
        let mut points: Vec<Position> = changed.map(|&(position, _)| position).collect();
        points.sort_unstable();
        Ok(RingChange {
            before,
            after: self.placement.clone(),
            points,
        })
    }
}
