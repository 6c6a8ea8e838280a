//! What a call can come to, and what its caller can do about it.

use std::sync::Arc;
use std::time::Duration;

use clockwise_cluster::{Epoch, Protocol, ViewError};
use clockwise_placement::NodeId;

use crate::commands::Reason;
use crate::credentials::CredentialError;
use crate::resp::{is_not_executed, is_passing};
use crate::routing::{Effect, Obstacle};
use crate::store::{OpenError, ReadError};

/// Why a call has no answer.
///
/// Two questions matter to a caller, and each error answers both:
/// [`is_retryable`](Self::is_retryable) and [`may_have_happened`](Self::may_have_happened).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It did not leave this process. Send it again.
    #[error("{} (epoch {epoch}); not executed, send it again", obstacle(*why, node.as_ref()))]
    NotSent {
        /// The node that owns the key.
        node: Option<NodeId>,
        /// The epoch it was routed by.
        epoch: Epoch,
        /// What was in the way.
        why: Obstacle,
    },
    /// It was a read, or had not left yet, and connections broke under it more often than it is
    /// repeated. Send it again.
    #[error("connections to node {node} broke (epoch {epoch}); nothing was changed, send it again")]
    Lost {
        /// The node.
        node: NodeId,
        /// The epoch it was routed by.
        epoch: Epoch,
    },
    /// It was a write, and the connection broke after it may have left. Nobody can tell whether it was
    /// executed: read before you write again.
    #[error(
        "outcome unknown: the connection to node {node} broke after this may have been executed (epoch {epoch}); \
         read before you write again"
    )]
    Unknown {
        /// The node.
        node: NodeId,
        /// The epoch it was routed by.
        epoch: Epoch,
    },
    /// Its time was up.
    #[error("no answer within {after:?} (epoch {epoch}); {}", late(*sent, *effect))]
    TimedOut {
        /// How long it had.
        after: Duration,
        /// The epoch in force by then.
        epoch: Epoch,
        /// Whether it may have left for the node.
        sent: bool,
        /// What it may have done there.
        effect: Effect,
    },
    /// There are as many requests as there may be, and none was answered in time. It did not leave.
    #[error(
        "{bytes} bytes of requests wait for answers, as many as may; not executed, send it again later"
    )]
    Overloaded {
        /// The limit.
        bytes: usize,
    },
    /// The node answered with an error.
    #[error("node {node} answered: {message} (epoch {epoch})")]
    Refused {
        /// The node.
        node: NodeId,
        /// The epoch it was routed by.
        epoch: Epoch,
        /// The node's words.
        message: String,
        /// What the request may do.
        effect: Effect,
        /// Whether it was a script, which can fail with any words after it has written.
        scripted: bool,
    },
    /// The node's answer is over the limit and was dropped. The request was executed.
    #[error(
        "an answer of {bytes} bytes is over the limit of {limit} and was not kept; the request was executed"
    )]
    AnswerTooLarge {
        /// Bytes of the answer.
        bytes: u64,
        /// The limit.
        limit: usize,
        /// What the request may do.
        effect: Effect,
    },
    /// The node's answer is none to this command. The request was executed.
    #[error("what was answered to {command} is not of the form that its answers have")]
    Unexpected {
        /// The command.
        command: String,
        /// What the request may do.
        effect: Effect,
    },
    /// Its keys are on different nodes. Hash tags keep keys together, where the pool has them.
    #[error("keys of one request are on node {one} and on node {other} (epoch {epoch})")]
    Apart {
        /// The node of the first key.
        one: NodeId,
        /// The node of another key.
        other: NodeId,
        /// The epoch they were routed by.
        epoch: Epoch,
    },
    /// A command that cannot go over connections that all callers share, or that has no key.
    #[error("'{command}' is not available here: {}", reason.text())]
    Unavailable {
        /// The command.
        command: String,
        /// Why.
        reason: Reason,
    },
    /// No server of the pool knows the command.
    #[error("unknown command '{command}'")]
    UnknownCommand {
        /// Its name.
        command: String,
    },
    /// The arguments do not have the form that the command needs.
    #[error("wrong arguments for '{command}'")]
    Arguments {
        /// The command.
        command: String,
    },
    /// A key or a request is too large.
    #[error("{what} of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// `a key` or `a request`.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// No node said which commands there are in the time that the call had. It did not leave.
    #[error("no node has answered yet which commands there are; not executed, send it again")]
    NoCommands,
    /// The record has no node that owns anything.
    #[error("the pool has no node (epoch {epoch})")]
    NoNode {
        /// The epoch.
        epoch: Epoch,
    },
    /// The record says two things of one epoch, and nobody can tell which is right. Nothing is sent until a
    /// later epoch settles it.
    #[error("{why}")]
    Discord {
        /// What was found, and what to do.
        why: Arc<str>,
    },
    /// The task behind the client has ended, by a panic. Make another client.
    #[error("the client has ended")]
    Ended {
        /// Whether the request may have left.
        sent: bool,
    },
}

impl Error {
    /// Whether the same call may succeed when it is made again, and does no harm then. What may have
    /// happened is never retryable: a write that is repeated can bring back what somebody else has
    /// deleted meanwhile.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NotSent { .. }
            | Self::Lost { .. }
            | Self::Overloaded { .. }
            | Self::NoCommands => true,
            Self::TimedOut { sent, effect, .. } => !sent || *effect == Effect::Read,
            Self::Refused { message, .. } => is_passing(message) && !self.may_have_happened(),
            _ => false,
        }
    }

    /// Whether the request may have changed something. `false` is certain.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Unknown { .. } => true,
            Self::TimedOut { sent, effect, .. } => *sent && *effect == Effect::Write,
            Self::Ended { sent } => *sent,
            Self::Refused {
                message,
                effect,
                scripted,
                ..
            } => *effect == Effect::Write && (*scripted || !is_not_executed(message)),
            Self::AnswerTooLarge { effect, .. } | Self::Unexpected { effect, .. } => {
                *effect == Effect::Write
            }
            _ => false,
        }
    }

    /// The node it concerns, where it is one.
    #[must_use]
    pub fn node(&self) -> Option<&NodeId> {
        match self {
            Self::NotSent { node, .. } => node.as_ref(),
            Self::Lost { node, .. } | Self::Unknown { node, .. } | Self::Refused { node, .. } => {
                Some(node)
            }
            _ => None,
        }
    }

    /// The epoch that the request was routed by, where it was.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::NotSent { epoch, .. }
            | Self::Lost { epoch, .. }
            | Self::Unknown { epoch, .. }
            | Self::TimedOut { epoch, .. }
            | Self::Refused { epoch, .. }
            | Self::Apart { epoch, .. }
            | Self::NoNode { epoch } => Some(*epoch),
            _ => None,
        }
    }
}

fn obstacle(why: Obstacle, node: Option<&NodeId>) -> String {
    let node = node.map_or("?", NodeId::as_str);
    match why {
        Obstacle::Down => format!("node {node} is down"),
        Obstacle::Connecting => format!("node {node} did not take a connection in time"),
        Obstacle::Denied => format!("node {node} does not let this epoch's clients in"),
        Obstacle::Draining => format!("node {node} did not finish earlier requests in time"),
        Obstacle::Handover => format!("node {node} is handing the key over and takes too long"),
        Obstacle::QueueFull => format!("too many requests are waiting for node {node}"),
    }
}

fn late(sent: bool, effect: Effect) -> &'static str {
    match (sent, effect) {
        (false, _) => "not executed, send it again",
        (true, Effect::Read) => "nothing was changed, send it again",
        (true, Effect::Write) => "it may have been executed, read before you write again",
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Nothing says where the pool's record is: call `etcd`, `folder`, `fixed` or `store`.
    #[error("nothing says where the pool's record is: call `etcd`, `folder`, `fixed` or `store`")]
    NoSource,
    /// The store's options cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The pool key cannot be read.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The record could not be read in time. The store's own words.
    #[error("no record within {within:?}: {error}")]
    Unread {
        /// How long it was tried.
        within: Duration,
        /// What the store said last.
        error: Box<ReadError>,
    },
    /// The store did not answer in time.
    #[error("the record store does not answer within {within:?}")]
    Silent {
        /// How long it was waited for.
        within: Duration,
    },
    /// The store answers, and the pool was never made.
    #[error("the store holds no pool; make one first, with `clockwise up` for instance")]
    NoPool,
    /// The pool's nodes speak something else.
    #[error("the pool's nodes speak {found}, this client speaks redis")]
    Protocol {
        /// What they speak.
        found: Protocol,
    },
    /// The fixed membership makes no pool.
    #[error("the membership makes no pool: {why}")]
    Membership {
        /// Why not.
        why: String,
    },
    /// The record makes no view.
    #[error("the record makes no view: {0}")]
    View(#[from] ViewError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: &str, effect: Effect) -> Error {
        Error::Refused {
            node: NodeId::new("a").unwrap(),
            epoch: Epoch::FIRST,
            message: message.to_owned(),
            effect,
            scripted: false,
        }
    }

    fn failed(message: &str, effect: Effect) -> Error {
        Error::Refused {
            node: NodeId::new("a").unwrap(),
            epoch: Epoch::FIRST,
            message: message.to_owned(),
            effect,
            scripted: true,
        }
    }

    fn late(sent: bool, effect: Effect) -> Error {
        Error::TimedOut {
            after: Duration::from_secs(1),
            epoch: Epoch::FIRST,
            sent,
            effect,
        }
    }

    #[test]
    fn each_error_says_whether_to_retry_and_whether_it_may_have_happened() {
        use Effect::{Read, Write};
        let node = || NodeId::new("a").unwrap();
        let epoch = Epoch::FIRST;
        for (error, retryable, happened) in [
            (
                Error::NotSent {
                    node: None,
                    epoch,
                    why: Obstacle::Handover,
                },
                true,
                false,
            ),
            (
                Error::Lost {
                    node: node(),
                    epoch,
                },
                true,
                false,
            ),
            (
                Error::Unknown {
                    node: node(),
                    epoch,
                },
                false,
                true,
            ),
            (late(false, Write), true, false),
            (late(true, Read), true, false),
            (late(true, Write), false, true),
            (Error::Overloaded { bytes: 1 }, true, false),
            (refused("WRONGTYPE no", Write), false, false),
            (refused("LOADING soon", Write), true, false),
            (refused("ERR no integer", Write), false, true),
            (refused("ERR no integer", Read), false, false),
            // A script may have written before it said so.
            (failed("WRONGTYPE no", Write), false, true),
            (failed("BUSY soon", Write), false, true),
            (failed("BUSY soon", Read), true, false),
            (Error::Ended { sent: true }, false, true),
            (Error::NoCommands, true, false),
        ] {
            assert_eq!(
                (error.is_retryable(), error.may_have_happened()),
                (retryable, happened),
                "{error}"
            );
            assert!(!(error.is_retryable() && error.may_have_happened()));
        }
    }
}
