//! Reading the record and its history, and deciding which of two answers is the newer one.
//!
//! Answers overtake each other: a read may come back after a later commit is known. etcd numbers
//! every answer with its own revision, so an answer older than the newest one seen when it was
//! *asked* for is either a stale read (versions before 3.4.42 give them after a pause) or comes
//! from a history that was restored from a copy. It is asked for again, and believed in the end.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clockwise_cluster::Record;
use tokio::time::{Instant, sleep};

use super::super::published::Published;
use super::super::{HISTORY_EPOCHS_MAX, HistoryCopy, ReadError};
use super::Shared;
use super::failure::Failure;
use super::keys::place;
use super::pause::jittered;
use super::proto::{DeleteRangeRequest, KeyValue, RangeRequest, RangeResponse, SortOrder};

/// How often an answer that is older than it may be is asked for again: of three members, two
/// may have been away.
const OLD_ANSWERS_MAX: usize = 3;
const OLD_ANSWER_PAUSE: Duration = Duration::from_millis(100);

/// A record and the compare token of the key it was read from.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) mod_revision: i64,
    pub(super) record: Arc<Record>,
}

/// What was seen of etcd so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The highest revision of any answer. Falls only when a restored history was recognised.
    pub(super) revision: i64,
    /// The record as published. `None`: not known, or not usable.
    pub(super) head: Option<Head>,
}

/// A linearizable read of the record, and the revision of etcd it was made at.
pub(super) struct Reading {
    pub(super) revision: i64,
    pub(super) record: Result<Option<Arc<Record>>, ReadError>,
}

impl Shared {
    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        // Both fields are assigned together, at the end of `settle`.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn read(&self) -> Result<Option<Arc<Record>>, ReadError> {
        let deadline = self.deadline();
        match self.read_at(deadline).await {
            Ok(reading) => reading.record,
            Err(failure) => self.published.settle(Err(failure.into())),
        }
    }

    /// Fails only if etcd does not answer. What is read is published.
    pub(super) async fn read_at(&self, deadline: Instant) -> Result<Reading, Failure> {
        let request = RangeRequest::one(self.keys.record());
        let answer = self.newest(request, deadline).await?;
        let revision = answer.revision();
        let read = match answer.kvs.into_iter().next() {
            Some(found) => self.decode(&found).await.map(Some),
            None => self.missing(deadline).await?,
        };
        let record = self.settle(revision, read);
        Ok(Reading { revision, record })
    }

    /// Asks until the answer is not older than what was known when it was asked for.
    pub(super) async fn newest(
        &self,
        request: RangeRequest,
        deadline: Instant,
    ) -> Result<RangeResponse, Failure> {
        for _ in 0..OLD_ANSWERS_MAX {
            let known = self.seen().revision;
            let answer = self.connection.range(request.clone(), deadline).await?;
            if answer.revision() >= known {
                return Ok(answer);
            }
            self.connection.turn();
            sleep(jittered(OLD_ANSWER_PAUSE)).await;
        }
        let known = self.seen().revision;
        let answer = self.connection.range(request, deadline).await?;
        if answer.revision() < known {
            self.history_went_back(known, answer.revision());
        }
        Ok(answer)
    }

    /// etcd was restored from a copy: revisions are counted from there again, and watches that
    /// wait for the old ones would hear nothing until they are reached.
    fn history_went_back(&self, known: i64, found: i64) {
        tracing::warn!(
            known,
            found,
            "etcd's revision went back: it was restored from a copy"
        );
        let mut seen = self.seen();
        seen.revision = found;
        seen.head = None;
        drop(seen);
        self.resync.send_modify(|count| *count += 1);
    }

    /// Publishes what etcd answered at `revision`, unless something newer is known by now.
    pub(super) fn settle(
        &self,
        revision: i64,
        read: Result<Option<Head>, ReadError>,
    ) -> Result<Option<Arc<Record>>, ReadError> {
        let mut seen = self.seen();
        if revision < seen.revision
            && let Some(known) = overtaken(&self.published, &read)
        {
            return Ok(Some(known));
        }
        let mod_revision = match &read {
            Ok(Some(head)) => Some(head.mod_revision),
            _ => None,
        };
        let settled = self
            .published
            .settle(read.map(|head| head.map(|head| head.record)));
        seen.revision = seen.revision.max(revision);
        seen.head = match (&settled, mod_revision) {
            (Ok(Some(record)), Some(mod_revision)) => Some(Head {
                mod_revision,
                record: Arc::clone(record),
            }),
            _ => None,
        };
        settled
    }

    pub(super) async fn decode(&self, found: &KeyValue) -> Result<Head, ReadError> {
        match Record::decode(&found.value) {
            Ok(record) => Ok(Head {
                mod_revision: found.mod_revision,
                record: Arc::new(record),
            }),
            Err(error) => Err(ReadError::Unreadable {
                place: place(&found.key),
                error,
                newest_good: self.newest_good_copy().await,
            }),
        }
    }

    /// What it means that there is no record: nothing yet, or that it is gone.
    async fn missing(&self, deadline: Instant) -> Result<Result<Option<Head>, ReadError>, Failure> {
        if self.published.record().is_none() && self.copies(deadline).await?.is_empty() {
            return Ok(Ok(None));
        }
        Ok(Err(ReadError::Gone {
            place: place(&self.keys.record()),
            newest_good: self.newest_good_copy().await,
        }))
    }

    /// The keys of the copies, newest first.
    pub(super) async fn copies(&self, deadline: Instant) -> Result<Vec<Bytes>, Failure> {
        let request = RangeRequest {
            sort_order: SortOrder::Descending.into(),
            limit: i64::try_from(HISTORY_EPOCHS_MAX).expect("16"),
            keys_only: true,
            ..RangeRequest::under(self.keys.history())
        };
        let answer = self.connection.range(request, deadline).await?;
        Ok(answer.kvs.into_iter().map(|found| found.key).collect())
    }

    /// Copy by copy: 16 records of 1 MiB are more than an answer may hold.
    pub(super) async fn history(&self) -> Result<Vec<HistoryCopy>, ReadError> {
        let mut history = Vec::new();
        for key in self.copies(self.deadline()).await? {
            let Some(epoch) = self.keys.epoch_of(&key) else {
                continue;
            };
            // Gone if it was pruned meanwhile.
            if let Some(found) = self.copy(key).await? {
                let record = Record::decode(&found.value).map(Arc::new);
                history.push(HistoryCopy { epoch, record });
            }
        }
        history.reverse();
        Ok(history)
    }

    async fn copy(&self, key: Bytes) -> Result<Option<KeyValue>, Failure> {
        let request = RangeRequest::one(key);
        let answer = self.connection.range(request, self.deadline()).await?;
        Ok(answer.kvs.into_iter().next())
    }

    /// A hint for people: whatever goes wrong in looking for it means that there is none.
    async fn newest_good_copy(&self) -> Option<String> {
        for key in self.copies(self.deadline()).await.ok()? {
            let found = self.copy(key).await.ok()??;
            if Record::decode(&found.value).is_ok() {
                return Some(place(&found.key));
            }
        }
        None
    }

    /// Removes the copies of older epochs than the history keeps.
    pub(super) async fn prune(&self) -> Result<(), Failure> {
        let copies = self.copies(self.deadline()).await?;
        let Some(oldest) = copies.get(HISTORY_EPOCHS_MAX - 1) else {
            return Ok(());
        };
        let request = DeleteRangeRequest {
            key: self.keys.history(),
            range_end: oldest.clone(),
        };
        self.connection.delete(request, self.deadline()).await
    }
}

/// The known record, if what was read is not newer than it.
fn overtaken(published: &Published, read: &Result<Option<Head>, ReadError>) -> Option<Arc<Record>> {
    let known = published.record()?;
    match read {
        Ok(Some(head)) if head.record.revision() > known.revision() => None,
        _ => Some(known),
    }
}
