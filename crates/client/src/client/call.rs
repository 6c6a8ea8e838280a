//! One request on its way from its caller to a node and back.
//!
//! Caller and worker share one byte: whether the request may have left, and whether its caller
//! still waits. Both are set by one atomic step each, so that at a deadline the caller knows for
//! certain whether the request can have an effect, and one that nobody waits for is not sent.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use clockwise_cluster::Epoch;
use clockwise_placement::NodeId;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::error::Error;
use crate::routing::Effect;

const SENT: u8 = 1;
const ABANDONED: u8 = 2;

/// How far a request came, as caller and worker both see it.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU8>);

impl Progress {
    /// It may leave from now on; `false` if nobody waits for it any more.
    pub(super) fn send(&self) -> bool {
        self.0.fetch_or(SENT, Ordering::AcqRel) & ABANDONED == 0
    }

    /// It has not left after all.
    pub(super) fn take_back(&self) {
        self.0.fetch_and(!SENT, Ordering::AcqRel);
    }

    /// Nobody waits for it from now on. Whether it may have left.
    pub(super) fn abandon(&self) -> bool {
        self.0.fetch_or(ABANDONED, Ordering::AcqRel) & SENT != 0
    }
}

/// Where the keys stand in a request's frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    One(Range<usize>),
    // Invariant: not empty.
    Many(Box<[Range<usize>]>),
}

impl Keys {
    pub(super) fn of<'a>(&'a self, frame: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let ranges = match self {
            Self::One(range) => std::slice::from_ref(range),
            Self::Many(ranges) => ranges,
        };
        ranges.iter().map(|range| &frame[range.clone()])
    }
}

/// A node's answer, and who gave it by which epoch.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) bytes: Box<[u8]>,
    /// Named for errors only.
    pub(super) from: Option<(NodeId, Epoch)>,
}

/// A request without its bytes.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) keys: Keys,
    pub(super) effect: Effect,
    pub(super) retries: u8,
    pub(super) progress: Progress,
    pub(super) reply: oneshot::Sender<Result<Answer, Error>>,
    /// Its share of the memory that requests may take, until it is answered.
    pub(super) _share: OwnedSemaphorePermit,
}

impl Call {
    pub(super) fn answer(self, outcome: Result<Answer, Error>) {
        // A caller who went away needs no answer.
        let _unheard = self.reply.send(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_who_gives_up_knows_whether_it_left() {
        let progress = Progress::default();
        assert!(!progress.abandon());
        assert!(!progress.send(), "nobody waits for it");

        let progress = Progress::default();
        assert!(progress.send());
        assert!(progress.abandon());

        let progress = Progress::default();
        assert!(progress.send());
        progress.take_back();
        assert!(!progress.abandon());
    }
}
