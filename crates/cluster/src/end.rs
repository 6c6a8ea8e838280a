//! How a change ends: whole, undone after an abort, or turned round half-way.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use clockwise_placement::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::change::{Change, Direction, Handoff, HandoffKind, HandoffState, Report};
use crate::layout::Layout;
use crate::record::{Protocol, Record, Tombstone};
use crate::step::StepError;
use crate::{ChangeId, Epoch, InvalidRecord, NodeState};

/// What is kept of the last change: what it moved, and how it ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finished {
    /// The name it was applied under.
    pub id: ChangeId,
    /// The epoch it was planned at.
    pub base_epoch: Epoch,
    /// When it was applied, milliseconds since 1970.
    pub applied_at_ms: u64,
    /// When it ended.
    pub ended_at_ms: u64,
    /// `forward` if it took place, `back` if it was undone.
    pub direction: Direction,
    /// Its handoffs with their reports.
    pub handoffs: Vec<Handoff>,
}

impl Record {
    /// The record after the change in flight: at its other side, or back where it began if it was aborted.
    ///
    /// Nodes that joined are active; nodes that left are gone, and their tombstones keep their generations.
    ///
    /// # Errors
    /// No change in flight, or a handoff that is not over.
    pub fn end_change(&self, now_ms: u64) -> Result<Self, StepError> {
        let change = self.change.as_ref().ok_or(StepError::NoChange)?;
        if let Some(handoff) = change
            .handoffs
            .iter()
            .find(|handoff| !is_settled(change, handoff))
        {
            return Err(StepError::NotOver {
                id: handoff.id(),
                state: handoff.state,
            });
        }
        let layout = match change.direction {
            Direction::Forward => &change.after,
            Direction::Back => &change.before,
        };
        // Which run a target was matters no longer than its source has the keys.
        let reported = |handoff: &Handoff| Handoff {
            flip: Vec::new(),
            ..handoff.clone()
        };
        let finished = Finished {
            id: change.id.clone(),
            base_epoch: change.base_epoch,
            applied_at_ms: change.applied_at_ms,
            ended_at_ms: now_ms,
            direction: change.direction,
            handoffs: change.handoffs.iter().map(reported).collect(),
        };
        let next = Self {
            epoch: self.epoch.next(),
            finished: Some(finished),
            ..self.clone()
        };
        let next = next.settled(layout);
        next.check()?;
        Ok(next)
    }

    /// The record with the change in flight aborted: what has flipped goes back by reverse handoffs, the
    /// rest stops and loses its copies.
    ///
    /// # Errors
    /// No change in flight, one that goes back already, a lost node whose part has flipped, or servers that
    /// cannot be fenced: what its old owner still has of a key may be older than what others were told since.
    ///
    /// ```
    /// use clockwise_cluster::{Apply, Direction, Edit, NewNode, NewPool, Nonce, Record};
    /// let nonces = &mut || Nonce::new([7; 16]);
    /// let node = |id: &str, port| NewNode::new(id.parse().unwrap(), format!("127.0.0.1:{port}").parse().unwrap());
    /// let pool = NewPool::new("main".parse()?, vec![node("a", 7001), node("b", 7002)]);
    /// let before = Record::create(pool, nonces)?.stage(Edit::Remove { id: "b".parse()? })?;
    /// let apply = Apply { expected: before.epoch(), id: "drain-b".parse()?, now_ms: 0, nonces };
    /// let aborted = before.apply(apply)?.abort(1_000)?;
    /// assert_eq!(aborted.change().unwrap().direction, Direction::Back);
    /// // Nothing was copied yet, so nothing is left to do.
    /// let ended = aborted.end_change(1_001)?;
    /// assert_eq!(ended.membership().layout(), before.membership().layout());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort(&self, now_ms: u64) -> Result<Self, AbortError> {
        let change = self.change.as_ref().ok_or(AbortError::NoChange)?;
        if change.direction == Direction::Back {
            return Err(AbortError::GoingBack {
                id: change.id.clone(),
            });
        }
        if !self.protocol.can_fence() {
            return Err(AbortError::Unfenced {
                protocol: self.protocol,
            });
        }
        let gone =
            |handoff: &&Handoff| handoff.kind == HandoffKind::Lost && handoff.state.is_flipped();
        if let Some(handoff) = change.handoffs.iter().find(gone) {
            return Err(AbortError::NodeLost {
                node: handoff.source.clone(),
            });
        }
        let mut handoffs: Vec<Handoff> = change
            .handoffs
            .iter()
            .map(|handoff| handoff.stopped(now_ms))
            .collect();
        handoffs.extend(reverse_handoffs(change, now_ms));
        let before = &change.before;
        let mut next = Self {
            epoch: self.epoch.next(),
            ..self.clone()
        };
        for node in &mut next.membership.nodes {
            match before.seat(&node.id) {
                None => node.state = NodeState::Leaving,
                Some(seat) => {
                    node.state = NodeState::Active;
                    node.weight = seat.weight;
                    node.domain = seat.domain.clone();
                }
            }
        }
        next.change = Some(Change {
            direction: Direction::Back,
            handoffs,
            ..change.clone()
        });
        next.check()?;
        Ok(next)
    }

    /// The record at rest in a layout: its members active, all other nodes gone.
    pub(crate) fn settled(mut self, layout: &Layout) -> Self {
        let membership = &mut self.membership;
        membership.scheme = layout.scheme.clone();
        membership.generator = layout.generator.clone();
        membership.replicas = layout.replicas;
        membership.spread = layout.spread;
        let (mut stay, go): (Vec<_>, Vec<_>) = core::mem::take(&mut membership.nodes)
            .into_iter()
            .partition(|node| layout.has(&node.id));
        for node in &mut stay {
            let seat = layout.seat(&node.id).expect("partitioned by it");
            node.state = NodeState::Active;
            node.weight = seat.weight;
            node.domain = seat.domain.clone();
        }
        membership.nodes = stay;
        for node in go {
            self.retired.retain(|tombstone| tombstone.id != node.id);
            self.retired.push(Tombstone {
                id: node.id,
                generation: node.generation,
                unknown: Map::new(),
            });
        }
        self.change = None;
        self.normalised()
    }
}

/// Whether nothing more happens to a handoff in the way that its change is going.
fn is_settled(change: &Change, handoff: &Handoff) -> bool {
    let gone_back = change.direction == Direction::Back && !handoff.is_reverse();
    handoff.state.is_over() || (gone_back && handoff.state.is_flipped())
}

impl Handoff {
    /// This handoff when its change is aborted.
    fn stopped(&self, now_ms: u64) -> Self {
        let state = match self.state {
            // Nothing was copied yet.
            HandoffState::Planned => HandoffState::Undone,
            // Cleaning stops: the source gets back what it would still have removed.
            HandoffState::Flipped | HandoffState::Cleaning => HandoffState::Flipped,
            HandoffState::Done => HandoffState::Done,
            _ => HandoffState::Purging,
        };
        Self {
            state,
            entered_at_ms: now_ms,
            ..self.clone()
        }
    }
}

/// One for each node that became an owner, back to those it got keys from.
fn reverse_handoffs(change: &Change, now_ms: u64) -> Vec<Handoff> {
    let mut back: BTreeMap<&NodeId, Vec<NodeId>> = BTreeMap::new();
    for handoff in change
        .handoffs
        .iter()
        .filter(|handoff| handoff.state.is_flipped())
    {
        for target in &handoff.targets {
            back.entry(target).or_default().push(handoff.source.clone());
        }
    }
    let reverse = |(source, targets): (&NodeId, Vec<NodeId>)| Handoff {
        source: source.clone(),
        targets,
        kind: HandoffKind::Reverse,
        state: HandoffState::Planned,
        entered_at_ms: now_ms,
        flip: Vec::new(),
        report: Report::default(),
        unknown: Map::new(),
    };
    back.into_iter().map(reverse).collect()
}

/// Why a change was not aborted.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AbortError {
    /// No change is in flight.
    NoChange,
    /// It was aborted before and is on its way back.
    GoingBack {
        /// Which.
        id: ChangeId,
    },
    /// The part of a lost node has new owners: there is nobody to give it back to.
    NodeLost {
        /// The node.
        node: NodeId,
    },
    /// Keys change their owners at once in such a pool, and what an old owner still has is out of date.
    Unfenced {
        /// What its nodes speak.
        protocol: Protocol,
    },
    /// The result would contradict itself.
    Invalid(InvalidRecord),
}

impl From<InvalidRecord> for AbortError {
    fn from(error: InvalidRecord) -> Self {
        Self::Invalid(error)
    }
}

impl fmt::Display for AbortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoChange => f.write_str("no change is in flight"),
            Self::GoingBack { id } => write!(f, "change {id} is on its way back already"),
            Self::NodeLost { node } => {
                write!(
                    f,
                    "the part of lost node {node} has new owners, there is no way back"
                )
            }
            Self::Unfenced { protocol } => write!(
                f,
                "keys of a pool of {protocol} change their owners at once: let the change end, then stage the opposite"
            ),
            Self::Invalid(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for AbortError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Invalid(error) => Some(error),
            _ => None,
        }
    }
}
