//! What a pool looks like once the staged edits are applied, one edit after the other.

use alloc::collections::{BTreeMap, BTreeSet};
use core::fmt;

use clockwise_placement::{MEMBERS_MAX, NodeId, PlacementError};

use crate::change::Direction;
use crate::generator::Outlook;
use crate::layout::{Layout, LayoutError, Seat};
use crate::record::Record;
use crate::{Address, Edit, Generator, StagedId};

/// A pool as it will be. Edits make the next one; none is changed in place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Draft {
    /// Who will own what.
    pub(crate) layout: Layout,
    /// Where every node is, those included that leave.
    pub(crate) addresses: BTreeMap<NodeId, Address>,
    /// Nodes that leave without handing over, with the keys they had when last counted.
    pub(crate) lost: BTreeMap<NodeId, u64>,
    /// Nodes that are in the pool and will not be.
    pub(crate) leaving: BTreeSet<NodeId>,
}

impl Draft {
    /// The pool without any edits: as it is, or as the change in flight will leave it.
    pub(crate) fn unedited(record: &Record) -> Self {
        let layout = match record.change() {
            None => record.membership().layout(),
            Some(change) => match change.direction {
                Direction::Forward => change.after.clone(),
                Direction::Back => change.before.clone(),
            },
        };
        let nodes = || record.membership().nodes.iter();
        let leaving = nodes()
            .filter(|node| !layout.has(&node.id))
            .map(|node| node.id.clone());
        Self {
            leaving: leaving.collect(),
            addresses: nodes()
                .map(|node| (node.id.clone(), node.address.clone()))
                .collect(),
            lost: BTreeMap::new(),
            layout,
        }
    }

    /// The pool with all that is staged.
    pub(crate) fn of(record: &Record) -> Result<Self, StaleEdit> {
        let mut draft = Self::unedited(record);
        for staged in record.staged() {
            let stale = |error| StaleEdit {
                id: staged.id,
                error,
            };
            draft = draft.edited(&staged.edit).map_err(stale)?;
        }
        Ok(draft)
    }

    /// The pool with its slot table planned from the owners in `present`, where it has one to plan, and what
    /// the planning has shown.
    pub(crate) fn planned(self, present: &Self) -> Result<(Self, Option<Outlook>), LayoutError> {
        let (layout, outlook) = self.layout.planned(Some(&present.layout))?;
        Ok((Self { layout, ..self }, outlook))
    }

    /// The pool with one more edit.
    pub(crate) fn edited(&self, edit: &Edit) -> Result<Self, EditError> {
        let next = match edit {
            Edit::Add {
                id,
                address,
                weight,
                domain,
            } => {
                let seat = Seat::new(id.clone(), *weight, domain.clone());
                self.with_seat(seat, address)?
            }
            Edit::Remove { id } => self.without(id)?,
            Edit::RemoveLost { id, keys_counted } => {
                let mut next = self.without(id)?;
                next.lost.insert(id.clone(), keys_counted.unwrap_or(0));
                next
            }
            Edit::SetWeight { id, weight } => self.with_seat_of(id, |seat| Seat {
                weight: *weight,
                ..seat
            })?,
            Edit::SetDomain { id, domain } => self.with_seat_of(id, |seat| Seat {
                domain: domain.clone(),
                ..seat
            })?,
            // Also of a node that leaves: it may fail over while it still has keys to give.
            Edit::SetAddress { id, .. } if !self.addresses.contains_key(id) => {
                return Err(EditError::UnknownNode { node: id.clone() });
            }
            Edit::SetAddress { id, address } => self.with_address(id, address)?,
            Edit::Replace { id, by, address } => self.replaced(id, by, address)?,
            Edit::SetScheme { scheme } => self.with_layout(Layout {
                scheme: scheme.clone(),
                ..self.layout.clone()
            }),
            Edit::SetGenerator { generator } => self.with_layout(Layout {
                generator: generator.clone(),
                ..self.layout.clone()
            }),
            Edit::SetSpread { spread } => self.with_layout(Layout {
                spread: *spread,
                ..self.layout.clone()
            }),
            Edit::SetReplicas { replicas } => self.with_layout(Layout {
                replicas: *replicas,
                ..self.layout.clone()
            }),
        };
        if next == *self {
            Err(EditError::NoEffect)
        } else {
            Ok(next)
        }
    }

    fn with_layout(&self, layout: Layout) -> Self {
        Self {
            layout,
            ..self.clone()
        }
    }

    /// The seat of a node that is in the pool and stays.
    fn require(&self, id: &NodeId) -> Result<usize, EditError> {
        let at = self.layout.members.binary_search_by(|seat| seat.id.cmp(id));
        at.map_err(|_| match self.leaving.contains(id) {
            true => EditError::Leaving { node: id.clone() },
            false => EditError::UnknownNode { node: id.clone() },
        })
    }

    fn with_seat(&self, seat: Seat, address: &Address) -> Result<Self, EditError> {
        let node = seat.id.clone();
        if self.leaving.contains(&node) {
            return Err(EditError::Leaving { node });
        }
        if seat.weight.hundredths() == 0 {
            return Err(EditError::ZeroWeight { node });
        }
        let members = &self.layout.members;
        if members.len() >= MEMBERS_MAX {
            return Err(EditError::TooManyNodes);
        }
        let Err(at) = members.binary_search_by(|other| other.id.cmp(&node)) else {
            return Err(EditError::NodeExists { node });
        };
        let mut next = self.with_address(&node, address)?;
        next.layout.members.insert(at, seat);
        Ok(next)
    }

    fn without(&self, id: &NodeId) -> Result<Self, EditError> {
        let at = self.require(id)?;
        if self.layout.members.len() == 1 {
            return Err(EditError::LastNode { node: id.clone() });
        }
        let mut next = self.clone();
        next.layout.members.remove(at);
        next.leaving.insert(id.clone());
        Ok(next)
    }

    fn with_seat_of(
        &self,
        id: &NodeId,
        edit: impl FnOnce(Seat) -> Seat,
    ) -> Result<Self, EditError> {
        let at = self.require(id)?;
        let seat = edit(self.layout.members[at].clone());
        if seat.weight.hundredths() == 0 {
            return Err(EditError::ZeroWeight { node: id.clone() });
        }
        let mut next = self.clone();
        next.layout.members[at] = seat;
        Ok(next)
    }

    fn with_address(&self, id: &NodeId, address: &Address) -> Result<Self, EditError> {
        let taken = self
            .addresses
            .iter()
            .find(|(other, taken)| *other != id && *taken == address);
        if let Some((node, _)) = taken {
            return Err(EditError::AddressTaken {
                address: address.clone(),
                node: node.clone(),
            });
        }
        let mut next = self.clone();
        next.addresses.insert(id.clone(), address.clone());
        Ok(next)
    }

    fn replaced(&self, id: &NodeId, by: &NodeId, address: &Address) -> Result<Self, EditError> {
        let old = self.layout.members[self.require(id)?].clone();
        let mut next = self
            .with_seat(
                Seat {
                    id: by.clone(),
                    ..old
                },
                address,
            )?
            .without(id)?;
        if let Generator::Slots { owners, .. } = &mut next.layout.generator {
            // A table gives the newcomer exactly what the old node had.
            owners
                .iter_mut()
                .filter(|owner| *owner == id)
                .for_each(|owner| *owner = by.clone());
        }
        Ok(next)
    }

    /// Whether the layout can be built, except for what further edits may mend.
    pub(crate) fn check_buildable(&self) -> Result<(), EditError> {
        match self.layout.build() {
            Ok(_)
            | Err(
                LayoutError::SlotsOfStranger { .. }
                | LayoutError::Placement(
                    PlacementError::UnevenDomains { .. }
                    | PlacementError::TooFewNodes { .. }
                    | PlacementError::TooFewDomains { .. }
                    | PlacementError::TableShape { .. },
                ),
            ) => Ok(()),
            Err(error) => Err(EditError::Layout(error)),
        }
    }
}

/// Why an edit is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EditError {
    /// No node of this id.
    UnknownNode {
        /// The id.
        node: NodeId,
    },
    /// The id is taken.
    NodeExists {
        /// The id.
        node: NodeId,
    },
    /// The node leaves already, by a staged edit or with the change in flight.
    Leaving {
        /// The node.
        node: NodeId,
    },
    /// Two nodes at one address would take each other's keys for their own.
    AddressTaken {
        /// The address.
        address: Address,
        /// Who has it.
        node: NodeId,
    },
    /// A weight of 0: remove the node instead.
    ZeroWeight {
        /// The node.
        node: NodeId,
    },
    /// The only node cannot be removed.
    LastNode {
        /// The node.
        node: NodeId,
    },
    /// More nodes than a placement holds.
    TooManyNodes,
    /// It is so already.
    NoEffect,
    /// The layout it leads to cannot be built.
    Layout(LayoutError),
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownNode { node } => write!(f, "no node {node} in this pool"),
            Self::NodeExists { node } => write!(f, "node {node} is in this pool already"),
            Self::Leaving { node } => {
                write!(f, "node {node} is leaving: apply or finish that first")
            }
            Self::AddressTaken { address, node } => {
                write!(f, "address {address} belongs to node {node}")
            }
            Self::ZeroWeight { node } => write!(f, "weight 0 for node {node}: remove it instead"),
            Self::LastNode { node } => write!(f, "node {node} is the only one"),
            Self::TooManyNodes => {
                write!(f, "the pool has {MEMBERS_MAX} nodes, no more are allowed")
            }
            Self::NoEffect => f.write_str("it is so already"),
            Self::Layout(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for EditError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Layout(error) => Some(error),
            _ => None,
        }
    }
}

/// A staged edit that no longer fits the pool: take it back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaleEdit {
    /// The edit.
    pub id: StagedId,
    /// Why it does not fit.
    pub error: EditError,
}

impl fmt::Display for StaleEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "staged edit {}: {}", self.id, self.error)
    }
}

impl core::error::Error for StaleEdit {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}
