//! Applying what is staged: from a record at rest to one with a change in flight, or with all done at once.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use clockwise_placement::{NodeId, Placement};
use serde_json::Map;

use crate::change::{Change, Direction, Handoff, HandoffKind, HandoffState, Report};
use crate::draft::{Draft, StaleEdit};
use crate::flow::moving_pairs;
use crate::form::{RECORD_BYTES_MAX, TooLarge};
use crate::generator::Outlook;
use crate::layout::{Layout, LayoutError};
use crate::record::Record;
use crate::{ChangeId, Edit, Epoch, InvalidRecord, Node, NodeState, Nonce};

/// What a target adds to a record until its handoff is reversed and flipped back: twice a flip with ids as
/// Redis makes them, and its place in the reverse handoff.
const FLIP_BYTES_MAX: usize = 512;

/// What an operator applies, and under which name.
pub struct Apply<'a> {
    /// The epoch that the plan was made at.
    pub expected: Epoch,
    /// What the change is called.
    pub id: ChangeId,
    /// The time, milliseconds since 1970.
    pub now_ms: u64,
    /// Where the nonces of joining nodes come from.
    pub nonces: &'a mut dyn FnMut() -> Nonce,
}

impl Record {
    /// The record after `apply`: everything staged becomes one change.
    ///
    /// Where no key changes its owner the new membership holds at once. Otherwise the change is in flight
    /// afterwards, with one handoff for each node that gives. New addresses hold at once in either case, and
    /// nothing but addresses may be applied while a change runs: an address says where a node's data
    /// already is, and a server may fail over at any time.
    ///
    /// # Errors
    /// A plan of another epoch, a change in flight, nothing staged, edits that do not fit or cannot be built,
    /// a record too large.
    ///
    /// ```
    /// use clockwise_cluster::{Apply, ApplyError, Edit, NewNode, NewPool, Nonce, Record};
    /// let nonces = &mut || Nonce::new([7; 16]);
    /// let a = NewNode::new("a".parse()?, "127.0.0.1:7001".parse()?);
    /// let record = Record::create(NewPool::new("main".parse()?, vec![a]), nonces)?;
    /// let edit = |id: &str, address: &str| Edit::Add {
    ///     id: id.parse().unwrap(),
    ///     address: address.parse().unwrap(),
    ///     weight: "1".parse().unwrap(),
    ///     domain: "".parse().unwrap(),
    /// };
    /// let staged = record.stage(edit("b", "127.0.0.1:7002"))?;
    /// let applied = staged.apply(Apply {
    ///     expected: staged.epoch(), id: "join-b".parse()?, now_ms: 1_000, nonces,
    /// })?;
    /// let change = applied.change().unwrap();
    /// assert_eq!((change.handoffs[0].source.as_str(), change.handoffs[0].targets[0].as_str()), ("a", "b"));
    ///
    /// let twice = applied.apply(Apply {
    ///     expected: staged.epoch(), id: "again".parse()?, now_ms: 2_000, nonces,
    /// });
    /// assert!(matches!(twice, Err(ApplyError::EpochMoved { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn apply(&self, request: Apply<'_>) -> Result<Self, ApplyError> {
        let (draft, _) = self.check_apply(request.expected)?;
        if self.change.is_some() {
            return self.relocated(&draft);
        }
        let before = self.membership.layout();
        let given = gifts(&before, &draft.layout)?;
        let mut next = Self {
            epoch: self.epoch.next(),
            staged: Vec::new(),
            ..self.clone()
        };
        next.membership.nodes = self.nodes_of_both(&draft, request.nonces);
        let change = Change {
            id: request.id,
            base_epoch: self.epoch,
            applied_at_ms: request.now_ms,
            before,
            direction: Direction::Forward,
            handoffs: handoffs(given, &draft, request.now_ms),
            edits: self
                .staged
                .iter()
                .map(|staged| staged.edit.clone())
                .collect(),
            after: draft.layout,
            unknown: Map::new(),
        };
        let next = if change.handoffs.is_empty() {
            next.settled(&change.after)
        } else {
            Self {
                change: Some(change),
                ..next
            }
        };
        next.check()?;
        next.check_room()?;
        Ok(next)
    }

    /// The record with other addresses and nothing else.
    fn relocated(&self, draft: &Draft) -> Result<Self, ApplyError> {
        let mut next = Self {
            epoch: self.epoch.next(),
            staged: Vec::new(),
            ..self.clone()
        };
        for node in &mut next.membership.nodes {
            node.address = draft.addresses[&node.id].clone();
        }
        next.check()?;
        next.encode()?;
        Ok(next)
    }

    /// Whether the record fits into a store, also when every handoff has flipped and is reversed, and when
    /// the next change holds its slot table three times: as it is, before and after.
    pub(crate) fn check_room(&self) -> Result<(), TooLarge> {
        let bytes = self.encode()?.len();
        let handoffs = self.change.iter().flat_map(|change| &change.handoffs);
        let growth: usize = handoffs
            .map(|handoff| handoff.targets.len() * FLIP_BYTES_MAX)
            .sum();
        let (now, then) = match &self.change {
            None => (0, self.membership.generator.bytes()),
            Some(Change { before, after, .. }) => {
                (before.generator.bytes(), after.generator.bytes())
            }
        };
        match bytes + growth + 2 * then.saturating_sub(now) {
            fitting if fitting <= RECORD_BYTES_MAX => Ok(()),
            bytes => Err(TooLarge {
                bytes,
                limit: RECORD_BYTES_MAX,
            }),
        }
    }

    /// What `apply` and `plan` refuse alike, and the draft of what is staged with its slots planned.
    pub(crate) fn check_apply(
        &self,
        expected: Epoch,
    ) -> Result<(Draft, Option<Outlook>), ApplyError> {
        if expected != self.epoch {
            return Err(ApplyError::EpochMoved {
                expected,
                current: self.epoch,
            });
        }
        let relocates = |staged: &crate::Staged| matches!(staged.edit, Edit::SetAddress { .. });
        let only_addresses = !self.staged.is_empty() && self.staged.iter().all(relocates);
        if let Some(change) = self.change.as_ref().filter(|_| !only_addresses) {
            let unfinished = change
                .handoffs
                .iter()
                .filter(|handoff| !handoff.state.is_over());
            return Err(ApplyError::ChangeInFlight {
                id: change.id.clone(),
                unfinished: unfinished.count(),
            });
        }
        if self.staged.is_empty() {
            return Err(ApplyError::NothingStaged);
        }
        let present = Draft::unedited(self);
        let (draft, outlook) = Draft::of(self)?.planned(&present)?;
        match draft == present {
            true => Err(ApplyError::NoEffect),
            false => Ok((draft, outlook)),
        }
    }

    /// Whether what is staged makes a layout, as far as the record alone can say; nothing staged is fine.
    ///
    /// An edit that further edits have to complete, such as the domain of the first of several nodes, is staged
    /// all the same: this says what is still missing. O(points × log points), and a table is planned.
    ///
    /// # Errors
    /// What `apply` would refuse in the edits themselves, whether or not a change runs.
    pub fn check_staged(&self) -> Result<(), ApplyError> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let (draft, _) = Draft::of(self)?.planned(&Draft::unedited(self))?;
        draft.layout.build()?;
        Ok(())
    }

    /// The nodes before and after, those that join under a fresh credential.
    fn nodes_of_both(&self, draft: &Draft, nonces: &mut dyn FnMut() -> Nonce) -> Vec<Node> {
        let address = |id: &NodeId| draft.addresses[id].clone();
        let stays = |node: &Node| {
            let node = Node {
                address: address(&node.id),
                ..node.clone()
            };
            match draft.layout.seat(&node.id) {
                Some(seat) => Node {
                    weight: seat.weight,
                    domain: seat.domain.clone(),
                    ..node
                },
                None if draft.lost.contains_key(&node.id) => Node {
                    state: NodeState::Down,
                    ..node
                },
                None => Node {
                    state: NodeState::Leaving,
                    ..node
                },
            }
        };
        let mut nodes: Vec<Node> = self.membership.nodes.iter().map(stays).collect();
        for seat in &draft.layout.members {
            if self.node(&seat.id).is_none() {
                nodes.push(Node {
                    id: seat.id.clone(),
                    address: address(&seat.id),
                    domain: seat.domain.clone(),
                    weight: seat.weight,
                    state: NodeState::Joining,
                    generation: self.highest_retired(&seat.id).next(),
                    nonce: nonces(),
                    incarnation: None,
                    unknown: Map::new(),
                });
            }
        }
        nodes.sort_by(|a, b| a.id.cmp(&b.id));
        nodes
    }
}

/// For each node that gives, the nodes it gives to.
fn gifts(before: &Layout, after: &Layout) -> Result<BTreeMap<NodeId, Vec<NodeId>>, LayoutError> {
    let same_space = before.scheme == after.scheme;
    let (before, after): (Placement, Placement) = (before.build()?, after.build()?);
    let mut gifts: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for (source, target) in moving_pairs(&before, &after, same_space) {
        let targets = gifts.entry(before.node(source).id.clone()).or_default();
        targets.push(after.node(target).id.clone());
    }
    Ok(gifts)
}

fn handoffs(gifts: BTreeMap<NodeId, Vec<NodeId>>, draft: &Draft, now_ms: u64) -> Vec<Handoff> {
    let handoff = |(source, mut targets): (NodeId, Vec<NodeId>)| {
        targets.sort();
        let lost = draft.lost.get(&source);
        Handoff {
            kind: lost.map_or(HandoffKind::Forward, |_| HandoffKind::Lost),
            report: Report {
                keys_lost: lost.copied().unwrap_or(0),
                ..Report::default()
            },
            source,
            targets,
            state: HandoffState::Planned,
            entered_at_ms: now_ms,
            flip: Vec::new(),
            unknown: Map::new(),
        }
    };
    gifts.into_iter().map(handoff).collect()
}

/// Why nothing was applied.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ApplyError {
    /// The plan was made at another epoch: plan again.
    EpochMoved {
        /// The epoch of the plan.
        expected: Epoch,
        /// The epoch of the record.
        current: Epoch,
    },
    /// Another change runs: wait for it, or abort it.
    ChangeInFlight {
        /// Which.
        id: ChangeId,
        /// How many of its handoffs are not over.
        unfinished: usize,
    },
    /// Nothing is staged.
    NothingStaged,
    /// What is staged cancels out.
    NoEffect,
    /// A staged edit does not fit the pool any more: take it back.
    Stale(StaleEdit),
    /// The layout it leads to cannot be built: stage what mends it.
    Layout(LayoutError),
    /// With both sides of the change the record would not fit into a store.
    TooLarge(TooLarge),
    /// The result would contradict itself.
    Invalid(InvalidRecord),
}

impl From<StaleEdit> for ApplyError {
    fn from(error: StaleEdit) -> Self {
        Self::Stale(error)
    }
}

impl From<LayoutError> for ApplyError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl From<TooLarge> for ApplyError {
    fn from(error: TooLarge) -> Self {
        Self::TooLarge(error)
    }
}

impl From<InvalidRecord> for ApplyError {
    fn from(error: InvalidRecord) -> Self {
        Self::Invalid(error)
    }
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EpochMoved { expected, current } => {
                write!(
                    f,
                    "the plan was made at epoch {expected}, the pool is at {current}: plan again"
                )
            }
            Self::ChangeInFlight { id, unfinished } => {
                write!(
                    f,
                    "change {id} is in flight, {unfinished} of its handoffs are not over"
                )
            }
            Self::NothingStaged => f.write_str("nothing is staged"),
            Self::NoEffect => f.write_str("what is staged changes nothing"),
            Self::Stale(error) => error.fmt(f),
            Self::Layout(error) => error.fmt(f),
            Self::TooLarge(error) => error.fmt(f),
            Self::Invalid(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ApplyError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Stale(error) => Some(error),
            Self::Layout(error) => Some(error),
            Self::TooLarge(error) => Some(error),
            Self::Invalid(error) => Some(error),
            _ => None,
        }
    }
}
