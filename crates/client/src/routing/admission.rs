//! The words in which [`Traffic`](super::Traffic) and its owner speak: where to, what to do, why not.

use clockwise_cluster::{Address, Epoch, Generation, Nonce};
use clockwise_placement::NodeId;

use super::budget::RetryLimits;
use super::health::BackoffLimits;
use super::queue::{QueueLimits, Waiting};
use crate::resp::Protocol;

/// A node of the current view, as far as connections are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its identity.
    pub id: NodeId,
    /// Where its server listens.
    pub address: Address,
    /// The client user it lets in.
    pub generation: Generation,
    /// What that user's password is made of.
    pub nonce: Nonce,
}

/// A node's place in a worker, the same as long as the node stays or has requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSlot(pub usize);

/// Bounds of what one worker keeps. Each queue has its own share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficLimits {
    /// Of the queue of held requests.
    pub hold: QueueLimits,
    /// Of the queue of one connection that is not open yet.
    pub wait: QueueLimits,
    /// How long an attempt to connect may take.
    pub connect_ms_max: u64,
    /// How long after the node refused our user the next attempt is made.
    pub denied_retry_ms: u64,
    /// How long a failing node is left alone.
    pub backoff: BackoffLimits,
    /// How many requests are sent again when their connection breaks.
    pub retries: RetryLimits,
}

impl Default for TrafficLimits {
    fn default() -> Self {
        Self {
            // A handover's budget is 400 ms; a second covers one that is rolled back.
            hold: QueueLimits {
                requests_max: 65_536,
                bytes_max: 64 << 20,
                wait_ms_max: 1_000,
            },
            wait: QueueLimits {
                requests_max: 65_536,
                bytes_max: 64 << 20,
                wait_ms_max: 1_000,
            },
            connect_ms_max: 1_000,
            denied_retry_ms: 20,
            backoff: BackoffLimits {
                ms_min: 50,
                ms_max: 2_000,
            },
            retries: RetryLimits {
                // What some ten clients may have on one connection.
                burst: 10_000,
                percent: 10,
            },
        }
    }
}

/// Where a request may go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Over the open connection, at once. It counts as in flight until [`Traffic::answered`](super::Traffic::answered).
    Send(NodeSlot),
    /// Not yet: give it to [`Traffic::wait`](super::Traffic::wait).
    Wait(NodeSlot),
    /// Nowhere: the node is down.
    Refuse(NodeSlot),
}

/// What the caller has to do with its sockets, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Connect and log in as the slot's [`target`](super::Traffic::target) says, then report
    /// [`Traffic::connected`](super::Traffic::connected) or [`Traffic::connect_failed`](super::Traffic::connect_failed).
    Connect(NodeSlot, Protocol),
    /// Close this connection or attempt; nothing is in flight on it. Report nothing.
    Close(NodeSlot, Protocol),
}

/// Why an attempt to connect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFailure {
    /// Nobody answered, or not as a server of ours.
    Unreachable,
    /// The server does not know our user: it was restarted, or the record has moved on.
    Denied,
}

/// What a request was waiting for when its time was up, or why it could not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The node failed repeatedly and is left alone for now.
    Down,
    /// The connection to the node was not made in time.
    Connecting,
    /// The node does not let the current generation in.
    Denied,
    /// Requests of the generation before were still in flight.
    Draining,
    /// The key is being handed over.
    Handover,
    /// The queue it should wait in is full.
    QueueFull,
}

/// A request that is not going to be sent.
pub type Refused<R> = (Waiting<R>, Option<NodeSlot>, Obstacle);

/// An epoch below the current one was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("epoch {offered} was offered after epoch {current}")]
pub struct StaleEpoch {
    /// What was offered.
    pub offered: Epoch,
    /// What stays in force.
    pub current: Epoch,
}
