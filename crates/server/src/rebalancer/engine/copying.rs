//! Listing a source, copying what moves, and the rounds over what was touched meanwhile.

use clockwise_cluster::copier::{Batch, CopyStop, Found, Lane, Next, Rate, Throttle};
use clockwise_cluster::handoff::{Event, RoundReport, Server};
use tokio::time::{Duration, Instant};

use super::super::progress::{add, set};
use super::super::translate;
use super::ops::{self, At, BatchOutcome, BigOutcome, Check, OpError};
use super::remembered::{SMALL_BYTES_MAX, Size};
use super::{Done, Engine, Job, SCAN_COUNT};
use crate::driver::{Key, WriteRefused};

/// What copying one untracked value costs beside its bytes, as measured on loopback with small streams.
const UNTRACKED_KEY_US: u64 = 150;
/// Bytes of untracked values that are copied per microsecond.
const UNTRACKED_BYTES_PER_US: u64 = 50;
/// The same of the untracked parts of large values: they go in small pages, some round trips each.
const PART_US: u64 = 1_500;
const PART_BYTES_PER_US: u64 = 15;

/// The one listing of the source.
#[derive(Debug, Default)]
pub(super) struct Listing {
    under_way: bool,
    finished: bool,
    scanning: bool,
    cursor: u64,
}

/// The round that is under way.
#[derive(Debug)]
pub(super) struct Rounds {
    began: Instant,
    copied_before: u64,
}

impl Default for Rounds {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            copied_before: 0,
        }
    }
}

impl Engine {
    pub(super) fn begin_listing(&mut self) {
        self.listing = Listing {
            under_way: true,
            ..Listing::default()
        };
        self.job = Job::Listing;
    }

    /// Starts every round trip that may start now.
    pub(super) fn pump(&mut self) {
        if self.failed {
            return;
        }
        self.list_more();
        self.compare_more();
        self.parts_more();
        while self.copies_in_flight < self.pace.window() && !self.backlogged {
            let now_ms = self.handoff.mandate.now_ms();
            let next = if self.holds_requests() {
                self.copier
                    .next(&mut Throttle::new(Rate::default(), now_ms), now_ms)
            } else {
                self.copier
                    .next(&mut self.handoff.mandate.throttle(), now_ms)
            };
            match next {
                Next::Batch(batch) => self.send_batch(batch),
                Next::Big(lane, key) => self.send_big(lane, key),
                Next::At(ready_ms) => {
                    // The limits may be changed while it waits.
                    let wait_ms = ready_ms.saturating_sub(now_ms).clamp(1, 100);
                    self.wake_at = Some(Instant::now() + Duration::from_millis(wait_ms));
                    break;
                }
                Next::Nothing => break,
            }
        }
        if let Some(stop) = self.copier.stop().cloned() {
            self.stop(stop);
        }
    }

    /// While clients wait for the last copies the throttle waits too: what it is to spare them is less.
    fn holds_requests(&self) -> bool {
        matches!(self.job, Job::LastCopies)
    }

    fn stop(&mut self, stop: CopyStop) {
        self.fail(Event::CopyStopped(stop));
    }

    fn list_more(&mut self) {
        let listing = &mut self.listing;
        let waits = listing.under_way && !listing.finished && !listing.scanning;
        if !waits || !self.copier.wants_listing() || self.backlogged {
            return;
        }
        let Some(link) = self.source.clone() else {
            return;
        };
        listing.scanning = true;
        let cursor = listing.cursor;
        self.trips.push(Box::pin(async move {
            Done::Listed(
                link.session
                    .scan(cursor, SCAN_COUNT)
                    .await
                    .at(Server::Source),
            )
        }));
    }

    pub(super) async fn listed(&mut self, listed: Result<(u64, Vec<Key>), OpError>) {
        let (cursor, keys) = match listed {
            Ok(listed) => listed,
            Err(error) => return self.broke(error).await,
        };
        self.listing.scanning = false;
        self.listing.cursor = cursor;
        self.listing.finished = cursor == 0;
        let lane_of = self.handoff.lane_of(&self.lanes);
        for key in keys {
            if let Some(lane) = lane_of(&key) {
                // A key of its own, not a slice of a reply that would be kept for it.
                self.copier.listed(lane, Key::copy_from_slice(&key));
            }
        }
        set(&self.handoff.counters.listed, self.copier.counts().listed);
    }

    fn send_batch(&mut self, batch: Batch<Key>) {
        let Some(ends) = self.ends(batch.lane) else {
            return;
        };
        self.copies_in_flight += 1;
        let (keys, check) = (batch.keys.clone(), self.check);
        self.trips.push(Box::pin(async move {
            Done::Copied(batch, ops::copy(ends, keys, check).await)
        }));
    }

    fn send_big(&mut self, lane: Lane, key: Key) {
        let Some(ends) = self.ends(lane) else { return };
        self.copies_in_flight += 1;
        let throttled = (!self.holds_requests()).then(|| self.handoff.mandate.clone());
        let check = self.check;
        self.trips.push(Box::pin(async move {
            Done::BigCopied(
                lane,
                key.clone(),
                ops::copy_big(throttled, ends, key, check).await,
            )
        }));
    }

    pub(super) async fn copied(
        &mut self,
        mut batch: Batch<Key>,
        outcome: Result<BatchOutcome, OpError>,
    ) {
        self.copies_in_flight -= 1;
        let BatchOutcome {
            found,
            refused,
            different,
        } = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return self.broke(error).await,
        };
        let lane = batch.lane;
        for (key, found) in batch.keys.iter().zip(&found) {
            match found {
                Found::Value { bytes, untracked } => {
                    let small = *bytes <= SMALL_BYTES_MAX && !untracked;
                    let size = if small { Size::Small } else { Size::Unknown };
                    self.remembered.note(lane, key, size);
                }
                Found::Gone | Found::Big => {}
            }
        }
        self.copier
            .read(&mut batch, &found, &mut self.handoff.mandate.throttle());
        self.copier.landed(batch);
        if let Some(refused) = refused {
            return self.refused(lane, refused);
        }
        for key in different {
            self.copier.suspect(lane, key);
        }
        self.count();
    }

    pub(super) async fn big_copied(
        &mut self,
        lane: Lane,
        key: Key,
        outcome: Result<BigOutcome, OpError>,
    ) {
        self.copies_in_flight -= 1;
        let BigOutcome {
            bytes,
            part,
            refused,
            different,
        } = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return self.broke(error).await,
        };
        self.copier.big_landed(bytes, part);
        self.remembered.note(lane, &key, Size::Unknown);
        if let Some(refused) = refused {
            return self.refused(lane, refused);
        }
        if different {
            self.copier.suspect(lane, key);
        }
        self.count();
    }

    pub(super) fn refused(&mut self, target: Lane, refused: WriteRefused) {
        self.fail(Event::WriteRefused {
            target,
            why: translate::write_refusal(refused),
        });
    }

    fn count(&self) {
        let (counts, counters) = (self.copier.counts(), &self.handoff.counters);
        set(&counters.copied, counts.copied);
        set(&counters.bytes, counts.bytes);
        set(&counters.mismatches, counts.mismatches);
        set(&counters.dirty, self.copier.dirty() as u64);
    }

    pub(super) fn begin_round_after(&mut self, after_ms: u64) {
        let at = Instant::now() + Duration::from_millis(after_ms);
        self.job = Job::RoundAt(at);
        self.wake_at = Some(at);
    }

    fn begin_round(&mut self) {
        self.copier.begin_round();
        self.rounds = Rounds {
            began: Instant::now(),
            copied_before: self.moved(),
        };
        self.job = Job::Round;
        self.pump();
    }

    fn moved(&self) -> u64 {
        let counts = self.copier.counts();
        counts.copied + counts.removed
    }

    /// The last copies under the fence, each compared as soon as it has landed.
    pub(super) fn begin_last_copies(&mut self) {
        // Those under way are waited for; the others come again, now for the last time.
        self.parts.drop_waiting();
        self.copier.begin_round();
        self.copier.add_untracked_to_round();
        self.check = Check::AtOnce;
        self.rounds = Rounds {
            began: Instant::now(),
            copied_before: self.moved(),
        };
        self.job = Job::LastCopies;
    }

    /// Answers the command that is held, if what it waits for is there.
    pub(super) fn finish_job(&mut self) {
        if self.failed {
            return;
        }
        match self.job {
            Job::RoundAt(at) if Instant::now() >= at => {
                self.begin_round();
                self.finish_job();
            }
            Job::RoundAt(at) => {
                self.wake_at = Some(self.wake_at.map_or(at, |wake_at| wake_at.min(at)));
            }
            Job::Listing if self.listing.finished && self.copier.is_landed() => {
                self.answer(Event::Listed)
            }
            Job::Round if self.copier.is_landed() => {
                let report = self.report();
                self.answer(Event::Round(report));
            }
            Job::LastCopies if self.copier.is_landed() && self.parts.are_still() => {
                self.job = Job::LastParts;
                self.begin_parts();
                self.finish_job();
            }
            Job::LastParts if self.parts.are_still() => {
                let keys = self.moved() - self.rounds.copied_before;
                self.answer(Event::LastCopied { keys });
            }
            _ => {}
        }
    }

    fn report(&self) -> RoundReport {
        let untracked = self.copier.untracked();
        let untracked_us = untracked.keys * UNTRACKED_KEY_US
            + untracked.bytes / UNTRACKED_BYTES_PER_US
            + untracked.parts * PART_US
            + untracked.part_bytes / PART_BYTES_PER_US;
        let took = self.rounds.began.elapsed().as_millis();
        RoundReport {
            copied: self.moved() - self.rounds.copied_before,
            dirty: self.copier.dirty() as u64,
            took_ms: u64::try_from(took).unwrap_or(u64::MAX),
            untracked_ms: untracked_us / 1_000,
        }
    }

    pub(super) fn count_removed(&self, removed: u64) {
        add(&self.handoff.counters.removed, removed);
    }
}
