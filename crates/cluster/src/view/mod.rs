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

mod side;

use alloc::boxed::Box;
use core::fmt;

use clockwise_placement::{Fingerprint, NodeId, Placement, Position};

use crate::layout::LayoutError;
use crate::record::{Protocol, Record};
use crate::{Epoch, HandoffId, Node};
use side::{Hand, Moves, Side};

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
    protocol: Protocol,
    scripts: bool,
    flush_all: bool,
}

impl View {
    /// The view of a record. O(points × log points) of its layouts.
    ///
    /// # Errors
    /// A layout that cannot be built, or a change that would move keys no handoff covers. Whoever has an
    /// older view keeps it and reports this.
    pub fn from_record(record: &Record) -> Result<Self, ViewError> {
        Self::build(record, None)
    }

    /// The view of a later record of the same pool. It shares with this one what both have: a step of a
    /// handoff costs O(nodes) instead of another look at every point.
    ///
    /// # Errors
    /// As [`View::from_record`], and a record of a lower epoch: whoever reads one has a store that went
    /// back, and keeps this view.
    ///
    /// ```
    /// use clockwise_cluster::{NewNode, NewPool, Nonce, Record, View};
    /// let a = NewNode::new("a".parse()?, "127.0.0.1:7001".parse()?);
    /// let record = Record::create(NewPool::new("main".parse()?, vec![a]), &mut || Nonce::new([7; 16]))?;
    /// let view = View::from_record(&record)?;
    /// let later = view.renewed(&record.with_scripts(true))?;
    /// assert_eq!(later.epoch(), view.epoch().next());
    /// assert_eq!(later.fingerprint(), view.fingerprint());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn renewed(&self, record: &Record) -> Result<Self, ViewError> {
        if record.epoch() < self.epoch {
            return Err(ViewError::EpochWentBack {
                current: self.epoch,
                found: record.epoch(),
            });
        }
        Self::build(record, Some(self))
    }

    fn build(record: &Record, older: Option<&Self>) -> Result<Self, ViewError> {
        let nodes: Box<[Node]> = record.membership().nodes.clone().into();
        let (before, change) = match record.change() {
            None => {
                let layout = record.membership().layout();
                (Side::new(layout, &nodes, older)?, None)
            }
            Some(change) => {
                let before = Side::new(change.before.clone(), &nodes, older)?;
                let moves = Moves::new(change, &before, &nodes, older)?;
                moves.refuse_uncovered(change, &before, &nodes)?;
                (before, Some(moves))
            }
        };
        let fingerprint = side::fingerprint(&before, change.as_ref(), &nodes);
        Ok(Self {
            epoch: record.epoch(),
            nodes,
            before,
            change,
            fingerprint,
            protocol: record.protocol(),
            scripts: record.options().scripts,
            flush_all: record.options().flush_all,
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

    /// What the nodes speak, and so do clients.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whether clients may empty all nodes at once, as the record's options say.
    #[must_use]
    pub const fn flush_all(&self) -> bool {
        self.flush_all
    }

    /// Whether clients may run scripts, as the record's options say.
    #[must_use]
    pub const fn scripts(&self) -> bool {
        self.scripts
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
        side.built
            .placement
            .preference(at)
            .map(|rank| side.index[rank.get()])
    }

    /// The nodes that hold a position, its owner first. Of the layout that holds for this position.
    pub fn replicas(&self, position: KeyPosition) -> impl ExactSizeIterator<Item = NodeIndex> + '_ {
        let (side, at) = self.side_of(position);
        side.built
            .placement
            .replicas_at(at)
            .iter()
            .map(|rank| side.index[rank.get()])
    }

    /// The placement that holds for a position, and the position on its circle: what `route` explains.
    #[must_use]
    pub fn side(&self, position: KeyPosition) -> (&Placement, Position) {
        let (side, at) = self.side_of(position);
        (&side.built.placement, at)
    }

    /// The placement that holds, or held before the change in flight.
    #[must_use]
    pub fn before(&self) -> &Placement {
        &self.before.built.placement
    }

    /// The placement after the change in flight.
    #[must_use]
    pub fn after(&self) -> Option<&Placement> {
        self.change
            .as_ref()
            .map(|moves| &moves.after.built.placement)
    }

    /// Whether a key at this position changes hands in the change in flight, and between whom.
    #[must_use]
    pub fn moving(&self, position: KeyPosition) -> Option<Moving> {
        let moves = self.change.as_ref()?;
        let before = self.before.owner_at(position.before);
        let after = moves.after.owner_at(position.after);
        (before != after).then_some(Moving { before, after })
    }

    /// The keys that one handoff of the change in flight moves. None without a change or without its source.
    ///
    /// ```
    /// use clockwise_cluster::{Apply, Edit, NewNode, NewPool, Nonce, Record, View};
    /// let nonces = &mut || Nonce::new([7; 16]);
    /// let node = |id: &str, port| NewNode::new(id.parse().unwrap(), format!("127.0.0.1:{port}").parse().unwrap());
    /// let pool = NewPool::new("main".parse()?, vec![node("a", 7001), node("b", 7002)]);
    /// let record = Record::create(pool, nonces)?.stage(Edit::Remove { id: "b".parse()? })?;
    /// let apply = Apply { expected: record.epoch(), id: "drain-b".parse()?, now_ms: 0, nonces };
    /// let record = record.apply(apply)?;
    /// let view = View::from_record(&record)?;
    /// let leaving = view.moving_set(&record.change().unwrap().handoffs[0].id()).unwrap();
    /// for key in ["user:1", "user:2", "user:3", "user:4"] {
    ///     let position = view.position(key.as_bytes());
    ///     let goes_to_a = view.owner(key.as_bytes()).as_str() == "b";
    ///     assert_eq!(leaving.target(position), goes_to_a.then(|| view.index_of(&"a".parse().unwrap()).unwrap()));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

fn index_in(nodes: &[Node], id: &NodeId) -> Option<NodeIndex> {
    nodes
        .binary_search_by(|node| node.id.cmp(id))
        .ok()
        .map(NodeIndex::of)
}

/// Why a record makes no view.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ViewError {
    /// A layout cannot be built.
    Layout(LayoutError),
    /// The record is older than the view that it was to follow.
    EpochWentBack {
        /// The epoch of the view.
        current: Epoch,
        /// The epoch of the record.
        found: Epoch,
    },
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
            Self::EpochWentBack { current, found } => {
                write!(
                    f,
                    "the record is at epoch {found}, this view is at {current}"
                )
            }
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
            Self::EpochWentBack { .. } | Self::Uncovered { .. } => None,
        }
    }
}
