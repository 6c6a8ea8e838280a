//! The one or two layouts of a view, built, and the rule that says which of them holds for a key.

use alloc::boxed::Box;
use alloc::vec::Vec;

use clockwise_placement::{Fingerprint, NodeId, Placement, Position, Scheme};

use super::{NodeIndex, Route, ViewError, index_in};
use crate::Node;
use crate::change::{Change, HandoffState};
use crate::hash_tag::hash_tag;
use crate::layout::Layout;

/// One layout, built.
pub(super) struct Side {
    pub(super) placement: Placement,
    pub(super) hash_tags: bool,
    // For each rank in the placement the rank in the view.
    pub(super) index: Box<[NodeIndex]>,
}

impl Side {
    pub(super) fn build(layout: &Layout, nodes: &[Node]) -> Result<Self, ViewError> {
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
    pub(super) fn position(&self, key: &[u8]) -> Position {
        self.placement
            .position(if self.hash_tags { hash_tag(key) } else { key })
    }

    #[inline]
    pub(super) fn owner_at(&self, position: Position) -> NodeIndex {
        self.index[self.placement.owner_at(position).get()]
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
    pub(super) fn build(change: &Change, before: &Side, nodes: &[Node]) -> Result<Self, ViewError> {
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

/// Covers the placements, what of a key is hashed, and who holds what moves.
pub(super) fn fingerprint(before: &Side, change: Option<&Moves>, nodes: &[Node]) -> Fingerprint {
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
