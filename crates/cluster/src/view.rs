//! What routers act on: one immutable snapshot of one epoch, from which every key's node can be told.
//!
//! Without a change in flight the owner of a position is one search in one placement. While a change runs
//! there are two placements, and the state of the handoffs says which of them holds for a key that moves:
//!
//! | forward handoff of the owner before | reverse handoff of the owner after | the key is at |
//! |---|---|---|
//! | not flipped | – | the owner before (held in `handover`) |
//! | flipped | none, or not flipped | the owner after (held in the reverse `handover`) |
//! | flipped | flipped | the owner before |
//!
//! A view decides nothing about health: a router may pass over a node, only the record may say it is out.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use clockwise_placement::{Fingerprint, NodeId, Placement, Position, Scheme};

use crate::change::{Change, HandoffState};
use crate::layout::{Layout, LayoutError};
use crate::record::Record;
use crate::{Epoch, HandoffId, Node};

/// The rank of a node among a view's nodes. Means nothing outside the view that it came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct NodeIndex(u16);

impl NodeIndex {
    fn of(rank: usize) -> Self {
        Self(u16::try_from(rank).expect("a record has at most 10,000 nodes"))
    }

    /// The rank as an index into [`View::nodes`].
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// Where a key lies: on the circle before the change in flight and on the one after it.
///
/// The two differ only while a change of the scheme itself runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyPosition {
    before: Position,
    after: Position,
}

impl KeyPosition {
    /// The position under the layout that holds, or held before the change in flight.
    #[must_use]
    pub const fn before(self) -> Position {
        self.before
    }

    /// The position under the layout after the change in flight; without one, the same.
    #[must_use]
    pub const fn after(self) -> Position {
        self.after
    }
}

impl From<Position> for KeyPosition {
    fn from(position: Position) -> Self {
        Self {
            before: position,
            after: position,
        }
    }
}

/// Where a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Route {
    /// The node that owns the key.
    pub node: NodeIndex,
    /// Whether the request has to wait: its key is about to change hands.
    pub hold: bool,
}

/// A key that changes hands in the change in flight.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Moving {
    /// Who owned it before.
    pub before: NodeIndex,
    /// Who owns it after.
    pub after: NodeIndex,
}

/// A pool at one epoch. Immutable, `Send + Sync`; share it behind an `Arc`.
///
/// ```
/// use clockwise_cluster::{NewNode, NewPool, Nonce, Record, View};
/// let node = |id: &str, port| NewNode::new(id.parse().unwrap(), format!("127.0.0.1:{port}").parse().unwrap());
/// let pool = NewPool::new("main".parse()?, vec![node("a", 7001), node("b", 7002)]);
/// let view = View::from_record(&Record::create(pool, &mut || Nonce::new([7; 16]))?)?;
/// let route = view.route(view.position(b"user:42"));
/// assert!(!route.hold);
/// assert_eq!(&view.node(route.node).id, view.owner(b"user:42"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct View {
    epoch: Epoch,
    // Invariant: sorted by id.
    nodes: Box<[Node]>,
    before: Side,
    change: Option<Moves>,
    fingerprint: Fingerprint,
}

/// One layout, built.
struct Side {
    placement: Placement,
    hash_tags: bool,
    // For each rank in the placement the rank in the view.
    index: Box<[NodeIndex]>,
}

/// The other layout of a change in flight, and how far its handoffs have got.
struct Moves {
    after: Side,
    // Whether a key has one position on both sides.
    same_space: bool,
    // By view rank: what has become of what a node gives away, and of what it got and gives back.
    given: Box<[Hand]>,
    returned: Box<[Hand]>,
}

/// Which end of a handoff owns what it moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hand {
    /// The source.
    Source,
    /// The source, but requests wait.
    SourceHeld,
    /// The targets.
    Targets,
}

impl Hand {
    const fn of(state: HandoffState) -> Self {
        match state {
            HandoffState::Handover => Self::SourceHeld,
            state if state.is_flipped() => Self::Targets,
            _ => Self::Source,
        }
    }
}

impl View {
    /// The view of a record. O(points × log points) of its layouts.
    ///
    /// # Errors
    /// A layout that cannot be built, or a change that would move keys no handoff covers. Whoever has an
    /// older view keeps it and reports this.
    pub fn from_record(record: &Record) -> Result<Self, ViewError> {
        let nodes: Box<[Node]> = record.membership().nodes.clone().into();
        let (before, change) = match record.change() {
            None => (Side::build(&record.membership().layout(), &nodes)?, None),
            Some(change) => {
                let before = Side::build(&change.before, &nodes)?;
                let moves = Moves::build(change, &before, &nodes)?;
                moves.refuse_uncovered(change, &before, &nodes)?;
                (before, Some(moves))
            }
        };
        let fingerprint = fingerprint(&before, change.as_ref(), &nodes);
        Ok(Self {
            epoch: record.epoch(),
            nodes,
            before,
            change,
            fingerprint,
        })
    }

    /// The epoch this is a snapshot of.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// A digest of all that decides where a key is, the state of handoffs included.
    ///
    /// Processes whose views have equal fingerprints route every key alike.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The nodes, sorted by id: of both sides while a change runs.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node.
    #[must_use]
    pub fn node(&self, index: NodeIndex) -> &Node {
        &self.nodes[index.get()]
    }

    /// The index of a node. O(log nodes).
    #[must_use]
    pub fn index_of(&self, id: &NodeId) -> Option<NodeIndex> {
        index_in(&self.nodes, id)
    }

    /// Where a key lies: one hash; two while a change of the scheme runs.
    #[inline]
    #[must_use]
    pub fn position(&self, key: &[u8]) -> KeyPosition {
        let before = self.before.position(key);
        match &self.change {
            Some(moves) if !moves.same_space => KeyPosition {
                before,
                after: moves.after.position(key),
            },
            _ => KeyPosition {
                before,
                after: before,
            },
        }
    }

    /// Where a request for a key at this position goes: one search, two while a change runs.
    ///
    /// Allocates nothing.
    #[inline]
    #[must_use]
    pub fn route(&self, position: KeyPosition) -> Route {
        let before = self.before.owner_at(position.before);
        match &self.change {
            None => Route {
                node: before,
                hold: false,
            },
            Some(moves) => moves.route(before, position.after),
        }
    }

    /// The node that owns a key now.
    #[must_use]
    pub fn owner(&self, key: &[u8]) -> &NodeId {
        &self.node(self.route(self.position(key)).node).id
    }

    /// All nodes in the order in which a position prefers them: its owner first, then the other replicas,
    /// then on clockwise. Of the layout that holds for this position.
    pub fn preference(&self, position: KeyPosition) -> impl Iterator<Item = NodeIndex> + '_ {
        let (side, at) = self.side_of(position);
        side.placement
            .preference(at)
            .map(|rank| side.index[rank.get()])
    }

    /// The nodes that hold a position, its owner first. Of the layout that holds for this position.
    pub fn replicas(&self, position: KeyPosition) -> impl ExactSizeIterator<Item = NodeIndex> + '_ {
        let (side, at) = self.side_of(position);
        side.placement
            .replicas_at(at)
            .iter()
            .map(|rank| side.index[rank.get()])
    }

    /// The placement that holds for a position, and the position on its circle: what `route` explains.
    #[must_use]
    pub fn side(&self, position: KeyPosition) -> (&Placement, Position) {
        let (side, at) = self.side_of(position);
        (&side.placement, at)
    }

    /// The placement that holds, or held before the change in flight.
    #[must_use]
    pub const fn before(&self) -> &Placement {
        &self.before.placement
    }

    /// The placement after the change in flight.
    #[must_use]
    pub fn after(&self) -> Option<&Placement> {
        self.change.as_ref().map(|moves| &moves.after.placement)
    }

    /// Whether a key at this position changes hands in the change in flight, and between whom.
    #[must_use]
    pub fn moving(&self, position: KeyPosition) -> Option<Moving> {
        let moves = self.change.as_ref()?;
        let before = self.before.owner_at(position.before);
        let after = moves.after.owner_at(position.after);
        (before != after).then_some(Moving { before, after })
    }

    /// The keys that one handoff moves. None without that handoff's nodes in a change in flight.
    #[must_use]
    pub fn moving_set(&self, handoff: &HandoffId) -> Option<MovingSet<'_>> {
        let moves = self.change.as_ref()?;
        let source = self.index_of(&handoff.source)?;
        Some(MovingSet {
            view: self,
            moves,
            source,
            reverse: handoff.reverse,
        })
    }

    fn side_of(&self, position: KeyPosition) -> (&Side, Position) {
        match &self.change {
            Some(moves) => {
                let before = self.before.owner_at(position.before);
                match moves.hand(before, moves.after.owner_at(position.after)) {
                    Hand::Targets => (&moves.after, position.after),
                    Hand::Source | Hand::SourceHeld => (&self.before, position.before),
                }
            }
            None => (&self.before, position.before),
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("epoch", &self.epoch)
            .field("fingerprint", &self.fingerprint)
            .field("nodes", &self.nodes.len())
            .field("changing", &self.change.is_some())
            .finish_non_exhaustive()
    }
}

/// The keys that one handoff moves, and where each goes.
#[derive(Clone, Copy)]
pub struct MovingSet<'a> {
    view: &'a View,
    moves: &'a Moves,
    source: NodeIndex,
    reverse: bool,
}

impl MovingSet<'_> {
    /// The node that a key goes to; none if this handoff does not move it. Allocates nothing.
    ///
    /// A reverse handoff brings back what its source got by handoffs that had flipped.
    #[inline]
    #[must_use]
    pub fn target(&self, position: KeyPosition) -> Option<NodeIndex> {
        let before = self.view.before.owner_at(position.before);
        let after = self.moves.after.owner_at(position.after);
        let (source, target) = if self.reverse {
            (after, before)
        } else {
            (before, after)
        };
        let moves = source == self.source && target != source;
        let came = !self.reverse || self.moves.given[before.get()] == Hand::Targets;
        (moves && came).then_some(target)
    }
}

impl Side {
    fn build(layout: &Layout, nodes: &[Node]) -> Result<Self, ViewError> {
        let placement = layout.build()?;
        let index = |id: &NodeId| {
            index_in(nodes, id).expect("a record has a node for every member of its layouts")
        };
        let index = placement
            .nodes()
            .iter()
            .map(|member| index(&member.id))
            .collect();
        Ok(Self {
            placement,
            hash_tags: layout.scheme.hash_tags,
            index,
        })
    }

    #[inline]
    fn position(&self, key: &[u8]) -> Position {
        self.placement
            .position(if self.hash_tags { hash_tag(key) } else { key })
    }

    #[inline]
    fn owner_at(&self, position: Position) -> NodeIndex {
        self.index[self.placement.owner_at(position).get()]
    }
}

impl Moves {
    fn build(change: &Change, before: &Side, nodes: &[Node]) -> Result<Self, ViewError> {
        let after = Side::build(&change.after, nodes)?;
        let same_space = before.placement.scheme() == after.placement.scheme()
            && before.hash_tags == after.hash_tags;
        let mut given: Box<[Hand]> = alloc::vec![Hand::Source; nodes.len()].into();
        let mut returned = given.clone();
        for handoff in &change.handoffs {
            let hands = if handoff.is_reverse() {
                &mut returned
            } else {
                &mut given
            };
            let source = index_in(nodes, &handoff.source).expect("a handoff's source is a member");
            hands[source.get()] = Hand::of(handoff.state);
        }
        Ok(Self {
            after,
            same_space,
            given,
            returned,
        })
    }

    #[inline]
    fn route(&self, before: NodeIndex, position_after: Position) -> Route {
        let after = self.after.owner_at(position_after);
        if before == after {
            return Route {
                node: before,
                hold: false,
            };
        }
        match self.given[before.get()] {
            Hand::Source => Route {
                node: before,
                hold: false,
            },
            Hand::SourceHeld => Route {
                node: before,
                hold: true,
            },
            Hand::Targets => match self.returned[after.get()] {
                Hand::Source => Route {
                    node: after,
                    hold: false,
                },
                Hand::SourceHeld => Route {
                    node: after,
                    hold: true,
                },
                Hand::Targets => Route {
                    node: before,
                    hold: false,
                },
            },
        }
    }

    /// Which side holds for keys of these two owners.
    fn hand(&self, before: NodeIndex, after: NodeIndex) -> Hand {
        let given = self.given[before.get()];
        if given == Hand::Targets && self.returned[after.get()] == Hand::Targets && before != after
        {
            return Hand::Source;
        }
        given
    }

    /// Every key that changes hands needs a handoff from its owner before to its owner after.
    fn refuse_uncovered(
        &self,
        change: &Change,
        before: &Side,
        nodes: &[Node],
    ) -> Result<(), ViewError> {
        let covered = |source: NodeIndex, target: NodeIndex| {
            let (source, target) = (&nodes[source.get()].id, &nodes[target.get()].id);
            let handoff = change.forward(source);
            match handoff.is_some_and(|handoff| handoff.targets.binary_search(target).is_ok()) {
                true => Ok(()),
                false => Err(ViewError::Uncovered {
                    source: source.clone(),
                    target: target.clone(),
                }),
            }
        };
        for (source, target) in moving_pairs(before, &self.after, self.same_space) {
            covered(source, target)?;
        }
        Ok(())
    }
}

/// Who gives to whom between two layouts.
fn moving_pairs(before: &Side, after: &Side, same_space: bool) -> Vec<(NodeIndex, NodeIndex)> {
    crate::flow::moving_pairs(&before.placement, &after.placement, same_space)
        .into_iter()
        .map(|(source, target)| (before.index[source.get()], after.index[target.get()]))
        .collect()
}

fn index_in(nodes: &[Node], id: &NodeId) -> Option<NodeIndex> {
    nodes
        .binary_search_by(|node| node.id.cmp(id))
        .ok()
        .map(NodeIndex::of)
}

/// The part of a key that is hashed where hash tags are on: what stands between the first `{` and the next
/// `}`, or all of it if there is no such part or it is empty.
///
/// ```
/// use clockwise_cluster::hash_tag;
/// assert_eq!(hash_tag(b"user:{42}:name"), b"42");
/// assert_eq!(hash_tag(b"user:{}:name"), b"user:{}:name");
/// ```
#[must_use]
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else {
        return key;
    };
    let tail = &key[open + 1..];
    match tail.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &tail[..close],
    }
}

/// Covers the placements, what of a key is hashed, and who holds what moves.
fn fingerprint(before: &Side, change: Option<&Moves>, nodes: &[Node]) -> Fingerprint {
    let mut bytes = Vec::new();
    let mut put = |side: &Side| {
        bytes.extend_from_slice(&side.placement.fingerprint().0.to_le_bytes());
        bytes.push(u8::from(side.hash_tags));
    };
    put(before);
    if let Some(moves) = change {
        put(&moves.after);
        for (node, (given, returned)) in nodes.iter().zip(moves.given.iter().zip(&moves.returned)) {
            if (*given, *returned) != (Hand::Source, Hand::Source) {
                bytes.extend_from_slice(node.id.as_str().as_bytes());
                bytes.extend_from_slice(&[0, hand_byte(*given), hand_byte(*returned)]);
            }
        }
    }
    Fingerprint(Scheme::default().position(&bytes).0)
}

const fn hand_byte(hand: Hand) -> u8 {
    match hand {
        Hand::Source => 0,
        Hand::SourceHeld => 1,
        Hand::Targets => 2,
    }
}

/// Why a record makes no view.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ViewError {
    /// A layout cannot be built.
    Layout(LayoutError),
    /// Keys would change hands without a handoff.
    Uncovered {
        /// Who would lose them.
        source: NodeId,
        /// Who would get them.
        target: NodeId,
    },
}

impl From<LayoutError> for ViewError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(error) => error.fmt(f),
            Self::Uncovered { source, target } => {
                write!(
                    f,
                    "keys go from node {source} to node {target} without a handoff"
                )
            }
        }
    }
}

impl core::error::Error for ViewError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Layout(error) => Some(error),
            Self::Uncovered { .. } => None,
        }
    }
}
