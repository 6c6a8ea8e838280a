//! The one or two layouts of a view, built, and the rule that says which of them holds for a key.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use clockwise_placement::{Fingerprint, NodeId, NodeIx, Placement, Position, Scheme};

use super::{NodeIndex, Route, View, ViewError, index_in};
use crate::Node;
use crate::change::{Change, HandoffState};
use crate::flow::moving_pairs;
use crate::hash_tag::hash_tag;
use crate::layout::Layout;

/// A layout and what was built from it, shared by all views that have it.
pub(super) struct Built {
    layout: Layout,
    pub(super) placement: Placement,
    fingerprint: Fingerprint,
}

/// One layout in terms of a view's nodes.
pub(super) struct Side {
    pub(super) built: Arc<Built>,
    hash_tags: bool,
    // For each rank in the placement the rank in the view.
    pub(super) index: Box<[NodeIndex]>,
}

impl Side {
    /// Takes what an older view has of this layout, or builds it.
    pub(super) fn new(
        layout: Layout,
        nodes: &[Node],
        older: Option<&View>,
    ) -> Result<Self, ViewError> {
        let built = match older.and_then(|view| view.built(&layout)) {
            Some(built) => Arc::clone(built),
            None => {
                let placement = layout.build()?;
                let fingerprint = placement.fingerprint();
                Arc::new(Built {
                    layout,
                    placement,
                    fingerprint,
                })
            }
        };
        let index = |id: &NodeId| {
            index_in(nodes, id).expect("a record has a node for every member of its layouts")
        };
        let members = built.placement.nodes().iter();
        Ok(Self {
            index: members.map(|member| index(&member.id)).collect(),
            hash_tags: built.layout.scheme.hash_tags,
            built,
        })
    }

    #[inline]
    pub(super) fn position(&self, key: &[u8]) -> Position {
        self.built
            .placement
            .position(if self.hash_tags { hash_tag(key) } else { key })
    }

    #[inline]
    pub(super) fn owner_at(&self, position: Position) -> NodeIndex {
        self.index[self.built.placement.owner_at(position).get()]
    }
}

/// The other layout of a change in flight, and how far its handoffs have got.
pub(super) struct Moves {
    pub(super) after: Side,
    // Whether a key has one position on both sides.
    pub(super) same_space: bool,
    // By view rank: what has become of what a node gives away, and of what it got and gives back.
    pub(super) given: Box<[Hand]>,
    pub(super) returned: Box<[Hand]>,
    // Who gives to whom, in ranks of the two placements.
    pairs: Arc<[(NodeIx, NodeIx)]>,
}

/// Which end of a handoff owns what it moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hand {
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

impl Moves {
    pub(super) fn new(
        change: &Change,
        before: &Side,
        nodes: &[Node],
        older: Option<&View>,
    ) -> Result<Self, ViewError> {
        let after = Side::new(change.after.clone(), nodes, older)?;
        let (old, new) = (&before.built.placement, &after.built.placement);
        let same_space = old.scheme() == new.scheme() && before.hash_tags == after.hash_tags;
        let pairs = match older.and_then(|view| view.pairs(before, &after)) {
            Some(pairs) => Arc::clone(pairs),
            None => moving_pairs(old, new, same_space).into(),
        };
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
            pairs,
        })
    }

    #[inline]
    pub(super) fn route(&self, before: NodeIndex, position_after: Position) -> Route {
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
    pub(super) fn hand(&self, before: NodeIndex, after: NodeIndex) -> Hand {
        let given = self.given[before.get()];
        if given == Hand::Targets && self.returned[after.get()] == Hand::Targets && before != after
        {
            return Hand::Source;
        }
        given
    }

    /// Every key that changes hands needs a handoff from its owner before to its owner after.
    pub(super) fn refuse_uncovered(
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
        let named = |&(source, target): &(NodeIx, NodeIx)| {
            covered(before.index[source.get()], self.after.index[target.get()])
        };
        self.pairs.iter().try_for_each(named)
    }
}

impl View {
    /// What this view has built of a layout.
    fn built(&self, layout: &Layout) -> Option<&Arc<Built>> {
        let after = self.change.as_ref().map(|moves| &moves.after);
        let mut sides = core::iter::once(&self.before).chain(after);
        let built = sides.find(|side| side.built.layout == *layout)?;
        Some(&built.built)
    }

    /// Who gives to whom between these sides, if this view has both.
    fn pairs(&self, before: &Side, after: &Side) -> Option<&Arc<[(NodeIx, NodeIx)]>> {
        let moves = self.change.as_ref()?;
        let same = Arc::ptr_eq(&self.before.built, &before.built)
            && Arc::ptr_eq(&moves.after.built, &after.built);
        same.then_some(&moves.pairs)
    }
}

/// Covers the placements, what of a key is hashed, and who holds what moves.
pub(super) fn fingerprint(before: &Side, change: Option<&Moves>, nodes: &[Node]) -> Fingerprint {
    let mut bytes = Vec::new();
    let mut put = |side: &Side| {
        bytes.extend_from_slice(&side.built.fingerprint.0.to_le_bytes());
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
