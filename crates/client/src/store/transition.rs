//! Which record may follow which. The same for every store, and pure.

use std::sync::Arc;

use clockwise_cluster::{Record, Revision};

use super::{CommitError, ReadError};

/// Whether `next`, planned from revision `expected`, may replace `current`.
pub(super) fn check_commit(
    current: Option<&Arc<Record>>,
    expected: Revision,
    next: &Record,
) -> Result<(), CommitError> {
    let stored = current.map_or(Revision::new(0), |record| record.revision());
    if stored != expected {
        return Err(CommitError::Conflict {
            expected,
            current: current.cloned(),
        });
    }
    let Some(current) = current else {
        return Ok(());
    };
    if next.pool() != current.pool() {
        return Err(CommitError::OtherPool {
            next: next.pool().clone(),
            current: current.pool().clone(),
        });
    }
    if next.epoch() < current.epoch() {
        return Err(CommitError::EpochWentBack {
            next: next.epoch(),
            current: current.epoch(),
        });
    }
    Ok(())
}

/// Whether a reader that knows `known` may adopt `found`, which it has read.
pub(super) fn check_adopt(known: Option<&Record>, found: &Record) -> Result<(), ReadError> {
    let Some(known) = known else {
        return Ok(());
    };
    if found.epoch() < known.epoch() || found.revision() < known.revision() {
        return Err(ReadError::WentBack {
            epoch_found: found.epoch(),
            revision_found: found.revision(),
            epoch: known.epoch(),
            revision: known.revision(),
        });
    }
    if found.revision() == known.revision() && found != known {
        return Err(ReadError::EditedInPlace {
            revision: known.revision(),
        });
    }
    Ok(())
}

/// Whether `next` is the first of its epoch, which the history keeps.
pub(super) fn opens_epoch(current: Option<&Arc<Record>>, next: &Record) -> bool {
    current.is_none_or(|current| next.epoch() > current.epoch())
}
