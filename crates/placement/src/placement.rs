//! The core type: a circle of intervals, each with the ordered list of its owners.
//!
//! Every generator ends in this list, so there is one lookup, one comparison and one measure for all of
//! them. A placement never changes; a new membership is a new placement.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::{fmt, slice};

use crate::ends::Ends;
use crate::preference::Preference;
use crate::ring::MEMBERS_MAX;
use crate::sorted::{Sorted, Splice};
use crate::topology::Topology;
use crate::{
    Fingerprint, Interval, Member, NodeId, NodeIx, PlacementError, Position, Scheme, Shortfall,
};

/// Which nodes own which positions of the circle.
///
/// Immutable and `Send + Sync`; share it behind an `Arc`. A lookup allocates nothing.
///
/// ```
/// use clockwise_placement::{Member, NodeId, RingSpec};
/// let members = ["cache-a", "cache-b", "cache-c"].map(|id| Member::new(id.parse().unwrap()));
/// let placement = RingSpec { replicas: 2, ..RingSpec::new(members) }.build()?;
/// let owner: &NodeId = placement.owner(b"user:42");
/// assert_eq!(placement.replicas(b"user:42").next(), Some(owner));
/// assert_eq!(placement.replicas(b"user:42").count(), 2);
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
#[derive(Clone)]
pub struct Placement {
    scheme: Scheme,
    // Invariant: ascending by id, no id twice.
    members: Box<[Member]>,
    pub(crate) topology: Topology,
    pub(crate) ends: Ends,
    // Invariant: row-major, `width` distinct nodes for each end, the owner first.
    lists: Vec<NodeIx>,
    width: usize,
    replicas: u8,
    // By rank: whether the node stands in any list.
    placed: Box<[bool]>,
}

/// A point of explicit position, for rings that are computed elsewhere and for small examples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// Where it lies.
    pub position: Position,
    /// Whose it is: an index into the members as they are given.
    pub member: usize,
}

impl Placement {
    /// A ring from explicit points.
    ///
    /// Points at one position are ordered by node id; the first has the interval, the others are passed
    /// by walks. A member without a point is never chosen.
    ///
    /// # Errors
    /// No members, an id twice, domains of unequal depth, no replicas, no points, a point of an unknown
    /// member.
    ///
    /// ```
    /// use clockwise_placement::{Member, Placement, Point, Position, Scheme};
    /// let members = ["A", "B", "C"].map(|id| Member::new(id.parse().unwrap()));
    /// let points = [(20, 0), (50, 1), (80, 2)]
    ///     .map(|(position, member)| Point { position: Position(position), member });
    /// let ring = Placement::from_points(Scheme::default(), members, 1, points)?;
    /// let owner = |position| ring.node(ring.owner_at(Position(position))).id.as_str();
    /// assert_eq!((owner(20), owner(21), owner(50), owner(81)), ("A", "B", "B", "A"));
    /// # Ok::<(), clockwise_placement::PlacementError>(())
    /// ```
    pub fn from_points(
        scheme: Scheme,
        members: impl IntoIterator<Item = Member>,
        replicas: u8,
        points: impl IntoIterator<Item = Point>,
    ) -> Result<Self, PlacementError> {
        let roll = Roll::new(members, replicas)?;
        let mut placed = Vec::new();
        for point in points {
            placed.push((point.position, roll.rank(point.member)?));
        }
        roll.into_ring(scheme, &placed)
    }

    /// The recipe that turns keys into positions.
    #[must_use]
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// How many replicas were asked for; lists are shorter where there are fewer nodes.
    #[must_use]
    pub fn replicas_wanted(&self) -> u8 {
        self.replicas
    }

    /// How many nodes each position has: the replicas asked for, or all nodes if they are fewer.
    #[must_use]
    pub fn replicas_placed(&self) -> usize {
        self.width
    }

    /// The members, ascending by id; a [`NodeIx`] is a rank here.
    #[must_use]
    pub fn nodes(&self) -> &[Member] {
        &self.members
    }

    /// The member of a rank.
    #[inline]
    #[must_use]
    pub fn node(&self, node: NodeIx) -> &Member {
        &self.members[node.get()]
    }

    /// The rank of a member. O(log members).
    #[must_use]
    pub fn index_of(&self, id: &NodeId) -> Option<NodeIx> {
        self.members
            .binary_search_by(|member| member.id.cmp(id))
            .ok()
            .map(NodeIx::of)
    }

    /// Where a key lies.
    #[inline]
    #[must_use]
    pub fn position(&self, key: &[u8]) -> Position {
        self.scheme.position(key)
    }

    /// The node that owns a key: one hash and one search.
    #[inline]
    #[must_use]
    pub fn owner(&self, key: &[u8]) -> &NodeId {
        // A call on the way would have to save what is needed after it: each is the end of a way.
        let Some(position) = self.scheme.position_in_place(key) else {
            return self.owner_by_call(key);
        };
        match self.ends.find_in_place(position) {
            Some(index) => &self.node(self.lists[index * self.width]).id,
            None => self.owner_by_search(position),
        }
    }

    #[inline(never)]
    fn owner_by_call(&self, key: &[u8]) -> &NodeId {
        &self.node(self.owner_at(self.position(key))).id
    }

    #[cold]
    #[inline(never)]
    fn owner_by_search(&self, position: Position) -> &NodeId {
        &self.node(self.owner_at(position)).id
    }

    /// The nodes that hold a key, the owner first.
    pub fn replicas(&self, key: &[u8]) -> impl ExactSizeIterator<Item = &NodeId> {
        self.replicas_at(self.position(key))
            .iter()
            .map(|&node| &self.node(node).id)
    }

    /// The node that owns a position.
    #[inline]
    #[must_use]
    pub fn owner_at(&self, position: Position) -> NodeIx {
        self.lists[self.ends.find(position) * self.width]
    }

    /// The nodes that hold a position, the owner first: a slice of a precomputed list.
    #[inline]
    #[must_use]
    pub fn replicas_at(&self, position: Position) -> &[NodeIx] {
        self.list(self.ends.find(position))
    }

    /// What is missing at a position of the replicas asked for and of their spread.
    #[must_use]
    pub fn shortfall_at(&self, position: Position) -> Shortfall {
        Shortfall::of(self.replicas, self.replicas_at(position), &self.topology)
    }

    /// All nodes in the order in which a position prefers them; the replicas come first.
    ///
    /// After them it goes on clockwise by the same rule, so that a router which must skip a node comes to
    /// another failure domain first. Health belongs to the caller: `preference(p).find(|n| up(n))`.
    #[must_use]
    pub fn preference(&self, position: Position) -> Preference<'_> {
        self.preference_from(self.ends.find(position))
    }

    /// The point that owns a position, with its interval and its index.
    #[must_use]
    pub fn interval_at(&self, position: Position) -> OwnedInterval<'_> {
        self.owned(self.ends.find(position))
    }

    /// The intervals clockwise from the lowest end, each with its owners; together they are the circle.
    pub fn intervals(&self) -> impl Iterator<Item = (Interval, &[NodeIx])> {
        (0..self.ends.count())
            .filter(|&index| self.ends.has_interval(index))
            .map(|index| {
                let owned = self.owned(index);
                (owned.interval, owned.owners)
            })
    }

    /// The points clockwise from the lowest, those included that share their position with an earlier one.
    pub fn points(&self) -> impl ExactSizeIterator<Item = (Position, NodeIx)> {
        (0..self.ends.count()).map(|index| (self.ends.end(index), self.list(index)[0]))
    }

    /// The owners of many positions at once: `owners[i]` becomes the owner of `positions[i]`.
    ///
    /// On rings too large for the cache it hides one lookup's wait behind the others'.
    ///
    /// # Panics
    /// When the two slices differ in length.
    pub fn owners_at(&self, positions: &[Position], owners: &mut [NodeIx]) {
        assert_eq!(positions.len(), owners.len(), "one owner for each position");
        let mut found = [0; 32];
        for (positions, owners) in positions
            .chunks(found.len())
            .zip(owners.chunks_mut(found.len()))
        {
            self.ends.find_all(positions, &mut found[..positions.len()]);
            for (owner, &index) in owners.iter_mut().zip(&found) {
                *owner = self.lists[index * self.width];
            }
        }
    }

    /// How many equal intervals there are; none for a ring.
    #[must_use]
    pub fn slots(&self) -> Option<usize> {
        match self.ends {
            Ends::Equal(_) => Some(self.ends.count()),
            Ends::Sorted(_) => None,
        }
    }

    /// How many points there are, or slots.
    #[must_use]
    pub fn point_count(&self) -> usize {
        self.ends.count()
    }

    /// A digest of all that decides who owns what: equal fingerprints place every key alike.
    ///
    /// O(points); keep it rather than ask again.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self)
    }

    /// Bytes on the heap for points and lists, members not counted.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.ends.heap_bytes() + self.lists.capacity() * size_of::<NodeIx>()
    }

    /// The preference list of the interval of this index.
    pub(crate) fn preference_from(&self, index: usize) -> Preference<'_> {
        Preference::new(self, index)
    }

    /// The points of this ring with some taken out and some put in, and their owners.
    pub(crate) fn splice(
        &self,
        splice: &Splice,
        rename: impl Fn(NodeIx) -> NodeIx,
        spare: (Sorted, Vec<NodeIx>),
    ) -> (Sorted, Vec<NodeIx>) {
        let Ends::Sorted(sorted) = &self.ends else {
            unreachable!("a ring has sorted points");
        };
        if self.width == 1 {
            return sorted.splice(&self.lists, splice, rename, spare);
        }
        let owners: Vec<NodeIx> = self.lists.iter().step_by(self.width).copied().collect();
        sorted.splice(&owners, splice, rename, spare)
    }

    /// The storage of a placement that nobody uses any more, and its owners.
    pub(crate) fn into_storage(self) -> (Sorted, Vec<NodeIx>) {
        match self.ends {
            Ends::Sorted(sorted) => (sorted, self.lists),
            Ends::Equal(_) => (Sorted::default(), self.lists),
        }
    }

    /// The owners of all ends, one after the other.
    pub(crate) fn all_lists(&self) -> &[NodeIx] {
        &self.lists
    }

    #[inline]
    pub(crate) fn list(&self, index: usize) -> &[NodeIx] {
        &self.lists[index * self.width..][..self.width]
    }

    /// Whether a node holds any position at all.
    pub(crate) fn places(&self, node: NodeIx) -> bool {
        self.placed[node.get()]
    }

    pub(crate) fn owned(&self, index: usize) -> OwnedInterval<'_> {
        let through = self.ends.end(index);
        OwnedInterval {
            interval: Interval {
                after: self.ends.end_before(index),
                through,
            },
            owners: self.list(index),
            index,
        }
    }
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placement")
            .field("scheme", &self.scheme)
            .field("members", &self.members.len())
            .field("points", &self.ends.count())
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

/// An interval with its owners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnedInterval<'a> {
    /// The positions; the point lies at their end.
    pub interval: Interval,
    /// The nodes that hold them, the owner first.
    pub owners: &'a [NodeIx],
    /// The index of the point among all points, clockwise from the lowest.
    pub index: usize,
}

/// The members of a placement that is being built, in order, with their places.
pub(crate) struct Roll {
    pub(crate) members: Vec<Member>,
    pub(crate) topology: Topology,
    pub(crate) replicas: u8,
    // The rank of each member in the order in which they were given.
    rank_of_given: Vec<NodeIx>,
}

impl Roll {
    /// Sorts the members by id and checks what concerns them all.
    pub(crate) fn new(
        members: impl IntoIterator<Item = Member>,
        replicas: u8,
    ) -> Result<Self, PlacementError> {
        let mut given: Vec<(usize, Member)> = members.into_iter().enumerate().collect();
        check_count(given.len())?;
        given.sort_unstable_by(|(_, a), (_, b)| a.id.cmp(&b.id));
        refuse_twins(given.iter().map(|(_, member)| &member.id))?;
        if replicas == 0 {
            return Err(PlacementError::ZeroReplicas);
        }
        let mut rank_of_given = alloc::vec![NodeIx::NONE; given.len()];
        for (rank, (at, _)) in given.iter().enumerate() {
            rank_of_given[*at] = NodeIx::of(rank);
        }
        let members: Vec<Member> = given.into_iter().map(|(_, member)| member).collect();
        let topology = Topology::new(&members)?;
        Ok(Self {
            members,
            topology,
            replicas,
            rank_of_given,
        })
    }

    /// The rank of the member that was given at this index.
    pub(crate) fn rank(&self, given: usize) -> Result<NodeIx, PlacementError> {
        let unknown = PlacementError::UnknownMember {
            member: given,
            members: self.members.len(),
        };
        self.rank_of_given.get(given).copied().ok_or(unknown)
    }

    /// Refuses members that would own nothing.
    pub(crate) fn refuse_zero_weights(&self) -> Result<(), PlacementError> {
        match self
            .members
            .iter()
            .find(|member| member.weight.hundredths() == 0)
        {
            Some(member) => Err(PlacementError::ZeroWeight {
                node: member.id.clone(),
            }),
            None => Ok(()),
        }
    }

    /// A ring of these points, in any order.
    pub(crate) fn into_ring(
        self,
        scheme: Scheme,
        points: &[(Position, NodeIx)],
    ) -> Result<Placement, PlacementError> {
        if points.is_empty() {
            return Err(PlacementError::NoPoints);
        }
        // Members stand in the order of their ids, so this is the order by (position, node id).
        let runs = points.iter().map(|(at, node)| (*node, slice::from_ref(at)));
        let (sorted, owners) = Sorted::scatter(points.len(), runs);
        let placed = self.placed(&owners);
        Ok(self.into_ring_with(scheme, sorted, owners, placed))
    }

    /// A ring of these points, of every member at least one, with their owners in the same order.
    pub(crate) fn into_sorted_ring(
        self,
        scheme: Scheme,
        sorted: Sorted,
        owners: Vec<NodeIx>,
    ) -> Placement {
        let placed = alloc::vec![true; self.members.len()].into_boxed_slice();
        self.into_ring_with(scheme, sorted, owners, placed)
    }

    fn into_ring_with(
        self,
        scheme: Scheme,
        sorted: Sorted,
        owners: Vec<NodeIx>,
        placed: Box<[bool]>,
    ) -> Placement {
        let nodes = placed.iter().filter(|&&placed| placed).count();
        let width = nodes.min(usize::from(self.replicas));
        let lists = crate::replicas::lists(owners, &self.topology, self.members.len(), width);
        self.into_placement_with(scheme, Ends::Sorted(sorted), lists, width, placed)
    }

    /// A placement of these lists, which the caller has checked.
    pub(crate) fn into_placement(
        self,
        scheme: Scheme,
        ends: Ends,
        lists: Vec<NodeIx>,
        width: usize,
    ) -> Placement {
        let placed = self.placed(&lists);
        self.into_placement_with(scheme, ends, lists, width, placed)
    }

    fn into_placement_with(
        self,
        scheme: Scheme,
        ends: Ends,
        lists: Vec<NodeIx>,
        width: usize,
        placed: Box<[bool]>,
    ) -> Placement {
        assert_eq!(lists.len(), ends.count() * width, "every end has its list");
        Placement {
            scheme,
            members: self.members.into_boxed_slice(),
            topology: self.topology,
            ends,
            lists,
            width,
            replicas: self.replicas,
            placed,
        }
    }

    /// By rank, whether a node stands among these.
    fn placed(&self, owners: &[NodeIx]) -> Box<[bool]> {
        let mut placed = alloc::vec![false; self.members.len()];
        for owner in owners {
            placed[owner.get()] = true;
        }
        placed.into_boxed_slice()
    }
}

/// The members of a numbered list, which keep their order and know no weights.
///
/// Refuses a list without members or with more than there are ranks, an id that comes up twice, and weights
/// that are 0 or differ.
pub(crate) fn numbered(
    algorithm: &'static str,
    members: impl IntoIterator<Item = Member>,
) -> Result<Box<[Member]>, PlacementError> {
    let members: Box<[Member]> = members.into_iter().collect();
    let first = members.first().ok_or(PlacementError::NoMembers)?;
    check_count(members.len())?;
    let mut ids: Vec<&NodeId> = members.iter().map(|member| &member.id).collect();
    ids.sort_unstable();
    refuse_twins(ids)?;
    if first.weight.hundredths() == 0 {
        let node = first.id.clone();
        return Err(PlacementError::ZeroWeight { node });
    }
    if let Some(odd) = members.iter().find(|member| member.weight != first.weight) {
        return Err(PlacementError::UnequalWeights {
            algorithm,
            node: odd.id.clone(),
            weight: odd.weight,
            other: first.id.clone(),
            other_weight: first.weight,
        });
    }
    Ok(members)
}

fn check_count(members: usize) -> Result<(), PlacementError> {
    if members > MEMBERS_MAX {
        return Err(PlacementError::TooManyMembers { members });
    }
    Ok(())
}

/// Refuses an id that comes up twice among sorted ones.
fn refuse_twins<'a>(ids: impl IntoIterator<Item = &'a NodeId>) -> Result<(), PlacementError> {
    let mut last = None;
    for id in ids {
        if last.replace(id) == Some(id) {
            return Err(PlacementError::DuplicateNode { node: id.clone() });
        }
    }
    Ok(())
}
