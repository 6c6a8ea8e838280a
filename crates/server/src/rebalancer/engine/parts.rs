//! The parts of large values that the stream of touched keys does not show: brought over once before the
//! fence, so that little is left, and once more under it, as the last word.

use clockwise_cluster::copier::Lane;

use super::ops::{self, OpError, PartOutcome};
use super::{Done, Engine, Job};
use crate::driver::Key;

/// Parts that are under way at a time; each is read on both sides page by page.
const PARTS_AT_ONCE: u32 = 4;

/// What is being brought over.
#[derive(Debug, Default)]
pub(super) struct Parts {
    waiting: Vec<(Lane, Key)>,
    in_flight: u32,
}

impl Parts {
    pub(super) fn are_still(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0
    }

    pub(super) fn drop_waiting(&mut self) {
        self.waiting.clear();
    }
}

impl Engine {
    /// Brings all of them over. One that is under way is not begun a second time beside itself: whoever
    /// needs the last word waits until all are still.
    pub(super) fn begin_parts(&mut self) {
        if self.parts.are_still() {
            let parts = self.copier.parts();
            self.parts.waiting = parts.map(|(lane, key)| (lane, key.clone())).collect();
            self.parts_more();
        }
    }

    pub(super) fn parts_more(&mut self) {
        while self.parts.in_flight < PARTS_AT_ONCE
            && let Some((lane, key)) = self.parts.waiting.pop()
            && let Some(ends) = self.ends(lane)
        {
            self.parts.in_flight += 1;
            self.trips.push(Box::pin(async move {
                let outcome = ops::copy_part(&ends, &key).await;
                Done::PartCopied(lane, key, outcome)
            }));
        }
    }

    pub(super) async fn part_copied(
        &mut self,
        lane: Lane,
        key: Key,
        outcome: Result<PartOutcome, OpError>,
    ) {
        self.parts.in_flight -= 1;
        let PartOutcome {
            bytes,
            equal,
            refused,
        } = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return self.broke(error).await,
        };
        self.copier.part_landed(lane, &key, bytes);
        if let Some(refused) = refused {
            self.refused(lane, refused);
        } else if !equal && matches!(self.job, Job::LastParts) {
            self.copier.suspect(lane, key);
        }
    }
}
