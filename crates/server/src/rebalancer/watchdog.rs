//! Ends a handover that nobody ends: requests wait while it lasts, and its leader may be gone.
//!
//! Every process runs it, leading or not. By its own clock, from when it first saw the handover, it
//! waits longer than any that goes well takes; the commit compares the revision, so that it never undoes
//! a flip.

use std::sync::Arc;
use std::time::Duration;

use clockwise_client::store::{CommitError, Store};
use clockwise_cluster::{Epoch, HANDOVER_MS_MAX, HandoffState, Record};
use tokio::time::{Instant, sleep_until};

/// How long it watches a handover: a little longer than the record demands.
const PATIENCE: Duration = Duration::from_millis(HANDOVER_MS_MAX + 200);

/// Watches for as long as it is polled.
pub(super) async fn run(store: Arc<dyn Store>) {
    let mut records = store.watch();
    // A handover begins an epoch, so that epochs tell one from another.
    let mut seen: Option<(Epoch, Instant)> = None;
    loop {
        let record = records.borrow_and_update().clone();
        let handover = record.filter(|record| held_since_ms(record).is_some());
        seen = match (&handover, seen) {
            (None, _) => None,
            (Some(record), Some((epoch, since))) if record.epoch() == epoch => Some((epoch, since)),
            (Some(record), _) => Some((record.epoch(), Instant::now())),
        };
        tokio::select! {
            changed = records.changed() => if changed.is_err() { return },
            () = until(seen.map(|(_, since)| since + PATIENCE)) => {
                if let Some(record) = handover {
                    roll_back(&*store, &record).await;
                }
                seen = None;
            }
        }
    }
}

fn held_since_ms(record: &Record) -> Option<u64> {
    let mut handoffs = record.change()?.handoffs.iter();
    let held = handoffs.find(|handoff| handoff.state == HandoffState::Handover)?;
    Some(held.entered_at_ms)
}

async fn roll_back(store: &dyn Store, record: &Record) {
    let Some(since_ms) = held_since_ms(record) else {
        return;
    };
    // Its age by our clock is what counts, whatever clock wrote it down.
    let next = match record.roll_back_stale_handover(since_ms + HANDOVER_MS_MAX + 1) {
        Ok(next) => next,
        Err(error) => {
            return tracing::error!(%error, "handover that nobody ends cannot be rolled back");
        }
    };
    match store.commit(record.revision(), next, None).await {
        Ok(record) => tracing::warn!(
            epoch = record.epoch().get(),
            "rolled back a handover that nobody ended"
        ),
        Err(CommitError::Conflict { .. }) => {}
        Err(error) => tracing::warn!(%error, "handover that nobody ends not rolled back"),
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
