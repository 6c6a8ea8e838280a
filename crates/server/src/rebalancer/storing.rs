//! What a conductor commits to the record, and what came of it.

use std::future::ready;
use std::sync::Arc;

use clockwise_client::store::{CommitError, NextError, commit_next};
use clockwise_cluster::handoff::Event;
use clockwise_cluster::{AbortError, Counts, HandoffId, Record, Step, StepError, TooLarge};
use tokio::time::{Duration, sleep};

use super::AbortRefused;
use super::mandate::{Mandate, is_unwritable, wall_clock_ms};
use super::progress::{Counters, read};

/// What the store answered.
pub(super) enum Stored {
    Handoff(usize, Event),
    TurnedBack(Result<(), AbortRefused>),
    Ended,
}

/// What is written down with the flip: how much was moved.
pub(super) fn flip_counts(step: &Step, counters: &Counters) -> Option<Counts> {
    matches!(step, Step::Flip { .. }).then(|| Counts {
        keys_moved: read(&counters.compared),
        bytes: read(&counters.bytes),
        mismatches: read(&counters.mismatches),
    })
}

/// What was seen of a handoff that only its conductor knows, written down with its next step.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) counts: Option<Counts>,
    pub(super) hold_ms_max: u64,
}

/// Commits a step; the event says what came of it.
pub(super) async fn commit(mandate: Arc<Mandate>, id: HandoffId, step: Step, seen: Seen) -> Event {
    let Some(record) = mandate.record() else {
        return Event::Unknown;
    };
    let next = record
        .step(&id, &step, wall_clock_ms())
        .and_then(|next| match seen.counts {
            Some(counts) => next.with_counts(&id, counts),
            None => Ok(next),
        })
        .and_then(|next| next.with_hold(&id, seen.hold_ms_max));
    let next = match next {
        Ok(next) => next,
        Err(error) => {
            // The record is not what the machine thinks: it reads it and goes on from there.
            tracing::warn!(handoff = %id, ?step, %error, "step does not fit the record");
            return Event::Conflict;
        }
    };
    match mandate.commit(record.revision(), next).await {
        Ok(record) => Event::Committed {
            epoch: record.epoch(),
        },
        Err(CommitError::Conflict { .. }) => Event::Conflict,
        Err(CommitError::LeadershipLost { .. } | CommitError::ReadOnly) => Event::Deposed,
        Err(CommitError::TooLarge(TooLarge { bytes, limit })) => Event::TooLarge {
            bytes: bytes as u64,
            limit: limit as u64,
        },
        // The mandate has said why.
        Err(error) if is_unwritable(&error) => Event::NotCommitted,
        Err(error) => {
            tracing::warn!(handoff = %id, ?step, %error, "commit unclear");
            Event::Unknown
        }
    }
}

pub(super) async fn turn_back(mandate: Arc<Mandate>) -> Stored {
    let next = |record: &Record| record.abort(wall_clock_ms()).map_err(AbortRefused::from);
    Stored::TurnedBack(change_record(&mandate, next).await)
}

pub(super) async fn end(mandate: Arc<Mandate>) -> Stored {
    let next = |record: &Record| {
        record
            .end_change(wall_clock_ms())
            .map_err(AbortRefused::from)
    };
    if let Err(error) = change_record(&mandate, next).await {
        tracing::warn!(%error, "change not ended");
        // Looked at anew at once; not in a spin.
        sleep(Duration::from_millis(100)).await;
    }
    Stored::Ended
}

/// Commits the next record; again from the newest one as long as others come first.
async fn change_record(
    mandate: &Mandate,
    next: impl Fn(&Record) -> Result<Record, AbortRefused>,
) -> Result<(), AbortRefused> {
    let next = |record: Arc<Record>| ready(next(&record));
    let committed = commit_next(&*mandate.store, Some(mandate.term), next).await;
    match &committed {
        Ok(_) => mandate.note_commit(None),
        Err(NextError::Commit(error)) => mandate.note_commit(Some(error)),
        Err(_) => {}
    }
    match committed {
        Ok(record) => {
            mandate.learn(Some(record));
            Ok(())
        }
        Err(NextError::Refused(why)) => Err(why),
        Err(NextError::NoPool) => Err(AbortRefused::NoChange),
        Err(NextError::Read(error)) => Err(AbortRefused::Store(error.into())),
        Err(NextError::Commit(error)) => Err(AbortRefused::Store(error)),
        Err(_) => Err(AbortRefused::Contended),
    }
}

impl From<AbortError> for AbortRefused {
    fn from(error: AbortError) -> Self {
        match error {
            AbortError::NoChange => Self::NoChange,
            AbortError::GoingBack { .. } => Self::GoingBack,
            other => Self::Record(other.to_string()),
        }
    }
}

impl From<StepError> for AbortRefused {
    fn from(error: StepError) -> Self {
        Self::Record(error.to_string())
    }
}
