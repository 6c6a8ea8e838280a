//! The steps of a handoff, from one record to the next.
//!
//! Every step checks what it needs, builds the next record and checks that. Three of them change what
//! routers act on and so begin an epoch: entering `handover`, leaving it backwards, and the flip. Nothing
//! here touches the revision: a record stays at the one it was planned from until a store commits it.

use alloc::vec::Vec;
use core::fmt;

use clockwise_placement::NodeId;

use crate::change::{
    Change, Direction, FlippedTo, Handoff, HandoffId, HandoffKind, HandoffState, Report,
};
use crate::record::{Protocol, Record};
use crate::{Generation, Incarnation, InvalidRecord, Nonce};

/// How old a handover must be before anybody may roll it back: longer than any that goes well.
pub const HANDOVER_MS_MAX: u64 = 1_000;

/// A step from one recorded state to the next.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    /// To `copying`, from `planned` or back from `verifying`.
    Copying,
    /// To `verifying`.
    Verifying,
    /// To `handover`: the epoch grows, the source's clients get another credential.
    Handover {
        /// The source's new generation: above the record's and above every one found on the server.
        generation: Generation,
        /// What its password is derived with.
        nonce: Nonce,
    },
    /// From `handover` back to `copying`: the epoch grows, the source keeps its new generation.
    Rollback,
    /// To `flipped`: the epoch grows, the targets own. Of a lost source, and where nobody can be fenced, from
    /// `planned`.
    Flip {
        /// Which run of which data each target is, in their order.
        targets: Vec<Incarnation>,
    },
    /// To `cleaning`.
    Cleaning,
    /// To `done`. Of a lost source, from `flipped`: nothing is left to clean.
    Done,
    /// From `purging` to `undone`.
    Undone,
}

impl Step {
    /// The state it leads to.
    #[must_use]
    pub const fn state(&self) -> HandoffState {
        match self {
            Self::Copying | Self::Rollback => HandoffState::Copying,
            Self::Verifying => HandoffState::Verifying,
            Self::Handover { .. } => HandoffState::Handover,
            Self::Flip { .. } => HandoffState::Flipped,
            Self::Cleaning => HandoffState::Cleaning,
            Self::Done => HandoffState::Done,
            Self::Undone => HandoffState::Undone,
        }
    }

    /// Whether routers act on it.
    const fn begins_epoch(&self) -> bool {
        matches!(
            self,
            Self::Handover { .. } | Self::Rollback | Self::Flip { .. }
        )
    }

    /// The same where servers cannot be fenced: nothing is copied, the source is only cleaned.
    const fn follows_unfenced(&self, kind: HandoffKind, state: HandoffState) -> bool {
        let lost = matches!(kind, HandoffKind::Lost);
        match self {
            Self::Flip { .. } => matches!(state, HandoffState::Planned),
            Self::Cleaning => !lost && matches!(state, HandoffState::Flipped),
            Self::Done if lost => matches!(state, HandoffState::Flipped),
            Self::Done => matches!(state, HandoffState::Cleaning),
            _ => false,
        }
    }

    /// Whether a handoff of this kind and state may take it.
    const fn follows(&self, kind: HandoffKind, state: HandoffState) -> bool {
        let lost = matches!(kind, HandoffKind::Lost);
        match self {
            Self::Copying => {
                !lost && matches!(state, HandoffState::Planned | HandoffState::Verifying)
            }
            Self::Verifying => matches!(state, HandoffState::Copying),
            Self::Handover { .. } => matches!(state, HandoffState::Verifying),
            Self::Rollback => matches!(state, HandoffState::Handover),
            Self::Flip { .. } if lost => matches!(state, HandoffState::Planned),
            Self::Flip { .. } => matches!(state, HandoffState::Handover),
            Self::Cleaning => !lost && matches!(state, HandoffState::Flipped),
            Self::Done if lost => matches!(state, HandoffState::Flipped),
            Self::Done => matches!(state, HandoffState::Cleaning),
            Self::Undone => matches!(state, HandoffState::Purging),
        }
    }
}

impl Record {
    /// The record after a step of one handoff, taken by whoever leads. O(nodes × log nodes).
    ///
    /// The [crate's example](crate) takes a handoff through all of them.
    ///
    /// # Errors
    /// What stands in the way; the record as it is stays valid.
    pub fn step(&self, id: &HandoffId, step: &Step, now_ms: u64) -> Result<Self, StepError> {
        let change = self.change.as_ref().ok_or(StepError::NoChange)?;
        let at = change
            .position(id)
            .ok_or_else(|| StepError::NoHandoff { id: id.clone() })?;
        check_step(self.protocol, change, &change.handoffs[at], step)?;
        let mut next = self.clone();
        if let Step::Handover { generation, nonce } = step {
            next = next.with_generation(&id.source, *generation, *nonce)?;
        }
        if step.begins_epoch() {
            next.epoch = next.epoch.next();
        }
        let handoffs = &mut next.change.as_mut().expect("found above").handoffs;
        handoffs[at] = handoffs[at].after(step, now_ms)?;
        next.check()?;
        Ok(next)
    }

    /// The record with a handover rolled back that is older than a second, whoever asks: the leader may
    /// have died, and requests wait.
    ///
    /// # Errors
    /// No handover, or one that is younger by the caller's clock.
    pub fn roll_back_stale_handover(&self, now_ms: u64) -> Result<Self, StepError> {
        let change = self.change.as_ref().ok_or(StepError::NoChange)?;
        let fenced = |handoff: &&Handoff| handoff.state == HandoffState::Handover;
        let handoff = change
            .handoffs
            .iter()
            .find(fenced)
            .ok_or(StepError::NoHandover)?;
        let age_ms = now_ms.saturating_sub(handoff.entered_at_ms);
        if age_ms <= HANDOVER_MS_MAX {
            return Err(StepError::TooYoung { age_ms });
        }
        self.step(&handoff.id(), &Step::Rollback, now_ms)
    }

    /// The record with what a handoff has moved so far. Routers see no difference.
    ///
    /// # Errors
    /// No such handoff in flight.
    pub fn with_counts(&self, id: &HandoffId, counts: Counts) -> Result<Self, StepError> {
        let mut next = self.clone();
        let report = next.report_mut(id)?;
        report.keys_moved = counts.keys_moved;
        report.bytes = counts.bytes;
        report.mismatches = counts.mismatches;
        Ok(next)
    }

    /// The record in which a handoff's longest hold is at least this. The record's own times end when a flip
    /// is sent to the store, and clients wait until it is answered: only whoever sent it has seen that.
    ///
    /// # Errors
    /// No such handoff in flight.
    pub fn with_hold(&self, id: &HandoffId, hold_ms: u64) -> Result<Self, StepError> {
        let mut next = self.clone();
        let report = next.report_mut(id)?;
        report.hold_ms_max = report.hold_ms_max.max(hold_ms);
        Ok(next)
    }

    fn report_mut(&mut self, id: &HandoffId) -> Result<&mut Report, StepError> {
        let change = self.change.as_mut().ok_or(StepError::NoChange)?;
        let at = change
            .position(id)
            .ok_or_else(|| StepError::NoHandoff { id: id.clone() })?;
        Ok(&mut change.handoffs[at].report)
    }

    /// The record in which a node's clients use another credential. The caller begins the epoch.
    fn with_generation(
        mut self,
        id: &NodeId,
        generation: Generation,
        nonce: Nonce,
    ) -> Result<Self, StepError> {
        let node = self.membership.nodes.iter_mut().find(|node| node.id == *id);
        let node = node.expect("a handoff's source is a node of the record");
        if generation <= node.generation {
            return Err(StepError::GenerationReused {
                current: node.generation,
                given: generation,
            });
        }
        if nonce == node.nonce {
            return Err(StepError::NonceReused);
        }
        node.generation = generation;
        node.nonce = nonce;
        Ok(self)
    }

    /// The record in which a target that came back as another run after it had flipped is taken as it is,
    /// because an operator said so: the handoffs that flipped to it go on with what it has now.
    ///
    /// # Errors
    /// Nothing in flight has flipped to this node.
    pub fn accept_target(
        &self,
        target: &NodeId,
        incarnation: &Incarnation,
    ) -> Result<Self, StepError> {
        let mut next = self.clone();
        let change = next.change.as_mut().ok_or(StepError::NoChange)?;
        let flips = change
            .handoffs
            .iter_mut()
            .flat_map(|handoff| &mut handoff.flip);
        let mut accepted = false;
        for flip in flips.filter(|flip| flip.target == *target) {
            flip.incarnation = incarnation.clone();
            accepted = true;
        }
        match accepted {
            true => Ok(next),
            false => Err(StepError::NeverFlipped {
                target: target.clone(),
            }),
        }
    }

    /// The record in which a node is recognised as this run of this data. Routers see no difference.
    ///
    /// # Errors
    /// An unknown node.
    pub fn recognise(&self, id: &NodeId, incarnation: Incarnation) -> Result<Self, StepError> {
        let mut next = self.clone();
        let node = next.membership.nodes.iter_mut().find(|node| node.id == *id);
        let node = node.ok_or_else(|| StepError::UnknownNode { node: id.clone() })?;
        node.incarnation = Some(incarnation);
        Ok(next)
    }
}

/// What a handoff has moved so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Keys that change their owner.
    pub keys_moved: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Keys whose digests differed, each copied again.
    pub mismatches: u64,
}

impl Handoff {
    /// This handoff after a step that it may take.
    fn after(&self, step: &Step, now_ms: u64) -> Result<Self, StepError> {
        let mut next = Self {
            state: step.state(),
            entered_at_ms: now_ms,
            ..self.clone()
        };
        let in_state_ms = now_ms.saturating_sub(self.entered_at_ms);
        if self.state == HandoffState::Handover {
            next.report.hold_ms_max = next.report.hold_ms_max.max(in_state_ms);
        }
        if self.state != HandoffState::Planned {
            next.report.duration_ms = next.report.duration_ms.saturating_add(in_state_ms);
        }
        if let Step::Flip { targets } = step {
            if targets.len() != self.targets.len() {
                return Err(StepError::FlipTargets {
                    given: targets.len(),
                    targets: self.targets.len(),
                });
            }
            let flipped = |(target, incarnation): (&NodeId, &Incarnation)| FlippedTo {
                target: target.clone(),
                incarnation: incarnation.clone(),
            };
            next.flip = self.targets.iter().zip(targets).map(flipped).collect();
        }
        Ok(next)
    }
}

fn check_step(
    protocol: Protocol,
    change: &Change,
    handoff: &Handoff,
    step: &Step,
) -> Result<(), StepError> {
    let follows = match protocol.can_fence() {
        true => step.follows(handoff.kind, handoff.state),
        false => step.follows_unfenced(handoff.kind, handoff.state),
    };
    if !follows {
        return Err(StepError::OutOfOrder {
            from: handoff.state,
            to: step.state(),
        });
    }
    let frozen = change.direction == Direction::Back && !handoff.is_reverse();
    if frozen && *step != Step::Undone {
        return Err(StepError::Aborted);
    }
    match step {
        Step::Handover { .. } => {
            let fenced = |other: &&Handoff| other.state == HandoffState::Handover;
            match change.handoffs.iter().find(fenced) {
                None => Ok(()),
                Some(other) => Err(StepError::AnotherHandover {
                    source: other.source.clone(),
                }),
            }
        }
        Step::Cleaning => {
            // What the source gets from another it does not own yet, so cleaning would take it away.
            let gives_here = |other: &&Handoff| {
                other.is_reverse() == handoff.is_reverse()
                    && !other.state.is_flipped()
                    && other.targets.binary_search(&handoff.source).is_ok()
            };
            match change.handoffs.iter().find(gives_here) {
                None => Ok(()),
                Some(other) => Err(StepError::StillTarget {
                    of: other.source.clone(),
                }),
            }
        }
        Step::Undone => {
            // A target of a copy may yet get back keys that it does not own before that flips.
            let returning = |other: &&Handoff| other.is_reverse() && !other.state.is_flipped();
            match change.handoffs.iter().find(returning) {
                None => Ok(()),
                Some(other) => Err(StepError::StillReturning {
                    from: other.source.clone(),
                }),
            }
        }
        _ => Ok(()),
    }
}

/// Why a step is not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StepError {
    /// No change is in flight.
    NoChange,
    /// The change in flight has no such handoff.
    NoHandoff {
        /// Which.
        id: HandoffId,
    },
    /// The state does not follow the one that is recorded.
    OutOfOrder {
        /// The recorded state.
        from: HandoffState,
        /// The state asked for.
        to: HandoffState,
    },
    /// The change was aborted: this handoff goes no further.
    Aborted,
    /// Only one source is fenced at a time.
    AnotherHandover {
        /// The source that is.
        source: NodeId,
    },
    /// Another handoff still brings keys to this source: cleaning it waits.
    StillTarget {
        /// The other one's source.
        of: NodeId,
    },
    /// Keys that had moved are still on their way back: purging waits.
    StillReturning {
        /// From where.
        from: NodeId,
    },
    /// Nothing is in handover.
    NoHandover,
    /// The handover is not old enough for anybody but its leader to roll it back.
    TooYoung {
        /// Its age by the caller's clock.
        age_ms: u64,
    },
    /// A generation must be above every one that was used.
    GenerationReused {
        /// The node's generation.
        current: Generation,
        /// The one asked for.
        given: Generation,
    },
    /// A nonce is new for every generation.
    NonceReused,
    /// A flip names the run of every target.
    FlipTargets {
        /// How many runs were given.
        given: usize,
        /// How many targets there are.
        targets: usize,
    },
    /// No node of this id.
    UnknownNode {
        /// The id.
        node: NodeId,
    },
    /// Nothing in flight has flipped to this node.
    NeverFlipped {
        /// The node.
        target: NodeId,
    },
    /// Not every handoff is over yet.
    NotOver {
        /// One that is not.
        id: HandoffId,
        /// How far it has got.
        state: HandoffState,
    },
    /// The result would contradict itself.
    Invalid(InvalidRecord),
}

impl From<InvalidRecord> for StepError {
    fn from(error: InvalidRecord) -> Self {
        Self::Invalid(error)
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoChange => f.write_str("no change is in flight"),
            Self::NoHandoff { id } => write!(f, "the change in flight has no handoff {id}"),
            Self::OutOfOrder { from, to } => write!(f, "{to} does not follow {from}"),
            Self::Aborted => f.write_str("the change was aborted, this handoff goes no further"),
            Self::AnotherHandover { source } => write!(f, "node {source} is in handover"),
            Self::StillTarget { of } => write!(f, "node {of} still gives keys to this source"),
            Self::StillReturning { from } => {
                write!(f, "keys are still on their way back from node {from}")
            }
            Self::NoHandover => f.write_str("nothing is in handover"),
            Self::TooYoung { age_ms } => write!(
                f,
                "the handover is {age_ms} ms old, only its leader rolls it back before {HANDOVER_MS_MAX} ms"
            ),
            Self::GenerationReused { current, given } => {
                write!(
                    f,
                    "generation {given} is not above {current}, which is in use"
                )
            }
            Self::NonceReused => f.write_str("the nonce was used before"),
            Self::FlipTargets { given, targets } => {
                write!(
                    f,
                    "the runs of {given} targets were given, there are {targets}"
                )
            }
            Self::UnknownNode { node } => write!(f, "no node {node} in this pool"),
            Self::NeverFlipped { target } => {
                write!(f, "nothing in flight has flipped to node {target}")
            }
            Self::NotOver { id, state } => write!(f, "the handoff {id} is {state}"),
            Self::Invalid(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for StepError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Invalid(error) => Some(error),
            _ => None,
        }
    }
}
