//! Why a handoff stops, and why a handover is rolled back, as a person reads it.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use clockwise_placement::NodeId;

use super::message::Server;
use super::preflight::Refusal;
use crate::Incarnation;
use crate::copier::{CopyStop, Lane};

/// Why a handoff does not go on until a person has done something.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StopReason {
    /// Another leads: everything of this leadership ends. Nothing is wrong.
    Deposed,
    /// The preflight found reasons not to begin.
    Refused(Vec<Refusal>),
    /// The source came back empty.
    SourceEmptied {
        /// Keys it had before.
        keys_before: u64,
    },
    /// A server is not a primary any more.
    NotPrimary(Server),
    /// A target restarted or its data was replaced after it became the owner, while its source still
    /// has the old copies: nothing is cleaned.
    TargetChanged {
        /// Which target.
        target: Lane,
        /// Who became the owner.
        expected: Incarnation,
        /// Who answers now.
        found: Incarnation,
    },
    /// A target lets nobody in, because it is another run than when it became an owner in an earlier handoff
    /// of this change: nothing more is handed over to it.
    TargetClosed {
        /// Which target.
        target: Lane,
        /// Who gave it what it became the owner of.
        source: NodeId,
        /// Who became the owner.
        expected: Incarnation,
        /// Who answers now.
        found: Incarnation,
    },
    /// The copy cannot go on.
    Copy(CopyStop),
    /// A target does not take a value.
    Write {
        /// Which target.
        target: Lane,
        /// Why.
        why: WriteRefusal,
    },
    /// Keys are written faster than rounds copy them.
    DirtOutgrowsCopying {
        /// Keys dirty after the last round.
        dirty: u64,
        /// Keys copied per second in the last round.
        copied_per_second: u64,
    },
    /// Both sides keep differing.
    TooManyMismatches {
        /// Keys that differed.
        mismatches: u64,
        /// Keys compared.
        compared: u64,
    },
    /// What must be copied under the fence would hold requests too long.
    UntrackedTooSlow {
        /// How long it is expected to take.
        expected_ms: u64,
    },
    /// Handover after handover was rolled back.
    HandoverFails {
        /// How many.
        attempts: u32,
        /// Why the last one was.
        last: Rollback,
    },
    /// Commit after commit met another.
    StoreContended,
    /// The record does not fit into the store any more.
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

/// Why a handover was rolled back.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Rollback {
    /// It was found in the record by a leader that did not begin it.
    Resumed,
    /// The fence may not stand.
    Fence(FenceFailure),
    /// The budget was used up.
    OverBudget,
    /// A server could not be reached or answered with an error.
    Broken,
    /// The last keys differed.
    LastKeysDiffered {
        /// How many.
        different: u64,
    },
    /// A server became another one.
    IdentityChanged,
    /// Somebody else rolled it back.
    BySomebodyElse,
    /// The copy could not go on.
    Copy,
    /// The operator aborted.
    Aborted,
}

/// Why a fence may not stand.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FenceFailure {
    /// A long script blocks the source.
    Busy,
    /// The source refused, in its words.
    Refused(String),
}

/// Why a target does not take a value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WriteRefusal {
    /// It has no memory left.
    OutOfMemory,
    /// It cannot read the payload.
    BadPayload(String),
    /// Anything else, in its words.
    Other(String),
}

impl StopReason {
    /// The same for a person, who knows the servers of the handoff by their nodes.
    #[must_use]
    pub const fn named<'a>(&'a self, source: &'a NodeId, targets: &'a [NodeId]) -> Named<'a> {
        Named {
            reason: self,
            source,
            targets,
        }
    }

    /// The run of a target without which the handoff does not go on, unless somebody accepts another.
    #[must_use]
    pub const fn missing_run(&self) -> Option<&Incarnation> {
        match self {
            Self::TargetChanged { expected, .. } | Self::TargetClosed { expected, .. } => {
                Some(expected)
            }
            _ => None,
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, name: &dyn Fn(Server) -> String) -> fmt::Result {
        let target = |lane: &Lane| name(Server::Target(*lane));
        match self {
            Self::Deposed => f.write_str("another leads"),
            Self::Refused(refusals) => list(refusals, f),
            Self::SourceEmptied { keys_before } => write!(
                f,
                "{} came back empty, it had {keys_before} keys; bring its data back, or abort",
                name(Server::Source)
            ),
            Self::NotPrimary(server) => write!(f, "{} is a replica now", name(*server)),
            Self::TargetChanged {
                target: lane,
                expected,
                found,
            } => write!(
                f,
                "{} was run {} when it became the owner and is run {} now; {} keeps its copies and the target \
                 stays closed, and the move neither goes on nor back, until somebody accepts it as it is",
                target(lane),
                expected.run_id,
                found.run_id,
                name(Server::Source),
            ),
            Self::TargetClosed {
                target: lane,
                source,
                expected,
                found,
            } => write!(
                f,
                "{} was run {} when it became the owner of what {source} gave and is run {} now; it stays \
                 closed, and nothing more is handed over to it, until somebody accepts it as it is",
                target(lane),
                expected.run_id,
                found.run_id,
            ),
            Self::Copy(stop) => write!(f, "{stop}"),
            Self::Write { target: lane, why } => {
                write!(f, "{} takes no more: {why}", target(lane))
            }
            Self::DirtOutgrowsCopying {
                dirty,
                copied_per_second,
            } => write!(
                f,
                "keys that move are written faster than {copied_per_second} a second can be copied, {dirty} \
                 wait; raise the throttle or move at a quieter time"
            ),
            Self::TooManyMismatches {
                mismatches,
                compared,
            } => {
                write!(
                    f,
                    "{mismatches} of {compared} keys differ between source and targets"
                )
            }
            Self::UntrackedTooSlow { expected_ms } => {
                write!(
                    f,
                    "copying the streams again while requests wait would take {expected_ms} ms"
                )
            }
            Self::HandoverFails { attempts, last } => {
                write!(
                    f,
                    "{attempts} handovers failed, the last one because {last}"
                )
            }
            Self::StoreContended => f.write_str("somebody else keeps changing the record"),
            Self::TooLarge { bytes, limit } => {
                write!(
                    f,
                    "the record would have {bytes} bytes, at most {limit} fit"
                )
            }
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &|server| match server {
            Server::Source => "the source".to_string(),
            Server::Target(_) => server.to_string(),
        })
    }
}

/// A reason that names the nodes of its handoff.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    reason: &'a StopReason,
    source: &'a NodeId,
    targets: &'a [NodeId],
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason
            .write(f, &|server| server.node(self.source, self.targets))
    }
}

impl fmt::Display for Rollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resumed => f.write_str("its leader was gone"),
            Self::Fence(FenceFailure::Busy) => f.write_str("a long script blocked the source"),
            Self::Fence(FenceFailure::Refused(why)) => {
                write!(f, "the source refused the fence: {why}")
            }
            Self::OverBudget => f.write_str("it took too long"),
            Self::Broken => f.write_str("a connection broke"),
            Self::LastKeysDiffered { different } => {
                write!(f, "{different} of the last keys differed")
            }
            Self::IdentityChanged => f.write_str("a server restarted or its data was replaced"),
            Self::BySomebodyElse => f.write_str("somebody else rolled it back"),
            Self::Copy => f.write_str("the copy could not go on"),
            Self::Aborted => f.write_str("it was aborted"),
        }
    }
}

impl fmt::Display for WriteRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("it is out of memory"),
            Self::BadPayload(why) => write!(f, "it cannot read a value: {why}"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for CopyStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DirtOutgrowsCopying { waiting } => write!(
                f,
                "keys that move are written faster than they can be copied, {waiting} wait; raise the throttle \
                 or move at a quieter time"
            ),
            Self::BigKeyUnsteady { key, passes } => write!(
                f,
                "the large value {} was written during each of {passes} passes over it",
                Printable(key)
            ),
            Self::TooManyUntracked { keys } => {
                write!(
                    f,
                    "{keys} streams would have to be copied while requests wait"
                )
            }
            Self::PartTooLarge { key, bytes } => write!(
                f,
                "the consumer groups of the large stream {} take {bytes} bytes, more than can be copied while \
                 requests wait; acknowledge what is pending or move at a quieter time",
                Printable(key)
            ),
        }
    }
}

fn list(refusals: &[Refusal], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, refusal) in refusals.iter().enumerate() {
        f.write_str(if at == 0 { "" } else { "; " })?;
        write!(f, "{refusal}")?;
    }
    Ok(())
}

/// A key for people: printable ASCII as it is, everything else escaped.
struct Printable<'a>(&'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| {
            byte.escape_ascii()
                .try_for_each(|c| write!(f, "{}", char::from(c)))
        })
    }
}
