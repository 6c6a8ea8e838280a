//! How a store hears of what others commit: a watch, and a look at the record's revision every
//! second, because a watch alone proves nothing.
//!
//! etcd 3.4.23 loses a delete if a watch begins at the revision up to which the history is
//! compacted; a watch that waits for more than a restored history has hears nothing; and a
//! cancelled one keeps its stream open and silent. So a watch always begins right after a read of
//! the whole record, and begins anew when the looks find what it should have told.

use std::sync::Arc;

use tokio::time::{Instant, sleep};
use tonic::Streaming;

use super::Shared;
use super::failure::Failure;
use super::pause::jittered;
use super::proto::{EventType, RangeRequest, WatchCreateRequest, WatchResponse, revision};

/// Between the end of a watch and the next, so that one that ends at once does not load etcd.
const REWATCH_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Why a watch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The stream broke, or the member lost its leader.
    Broken(String),
    /// etcd ended it; what it asked for may be compacted.
    Cancelled { compacted: bool, why: String },
    /// etcd has not come as far as the watch should begin: its history was restored.
    WentBack,
    /// A look found what the watch should have told.
    Missed,
}

impl Shared {
    /// Reads and watches for ever.
    pub(super) async fn keep_watching(self: Arc<Self>) {
        loop {
            let began = self.read_at(self.deadline()).await;
            match began {
                Ok(reading) => {
                    let end = self.watch_from(reading.revision + 1).await;
                    tracing::debug!(?end, "the watch on the record begins anew");
                }
                Err(failure) => {
                    let _trouble = self.published.settle(Err(failure.into()));
                }
            }
            sleep(jittered(REWATCH_PAUSE)).await;
        }
    }

    /// Publishes what is committed at `start` or later, until that ends.
    pub(super) async fn watch_from(&self, start: i64) -> End {
        let mut missed = self.resync.subscribe();
        let create = WatchCreateRequest {
            key: self.keys.record(),
            start_revision: start,
            fragment: true,
        };
        let mut stream = match self.connection.watch(create, self.deadline()).await {
            Ok(stream) => stream,
            Err(Failure { why, .. }) => return End::Broken(why),
        };
        loop {
            tokio::select! {
                end = self.next_events(&mut stream, start) => if let Err(end) = end {
                    return end;
                },
                _ = missed.changed() => return End::Missed,
            }
        }
    }

    async fn next_events(
        &self,
        stream: &mut Streaming<WatchResponse>,
        start: i64,
    ) -> Result<(), End> {
        let answer = match stream.message().await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(self.broken("the stream ended".to_owned())),
            Err(status) => return Err(self.broken(status.message().to_owned())),
        };
        if answer.canceled {
            return Err(End::Cancelled {
                compacted: answer.compact_revision > 0,
                why: answer.cancel_reason,
            });
        }
        if answer.created && revision(answer.header.as_ref()) + 1 < start {
            return Err(End::WentBack);
        }
        for event in answer.events {
            let Some(kv) = event.kv else { continue };
            if event.kind == i32::from(EventType::Put) {
                let read = self.decode(&kv).await.map(Some);
                let _published = self.settle(kv.mod_revision, read);
            } else {
                // Only a read says that it is still so.
                let _published = self.read().await;
            }
        }
        Ok(())
    }

    fn broken(&self, why: String) -> End {
        self.connection.turn();
        End::Broken(why)
    }

    /// Looks again and again whether the record is the one known here.
    pub(super) async fn keep_looking(self: Arc<Self>) {
        let mut reread_at = Instant::now() + jittered(self.reread_interval);
        loop {
            sleep(jittered(self.check_interval)).await;
            let reread = Instant::now() >= reread_at;
            if reread {
                reread_at = Instant::now() + jittered(self.reread_interval);
            }
            self.look(reread).await;
            if self.take_prune_due()
                && let Err(error) = self.prune().await
            {
                tracing::debug!(why = error.why, "the history was not pruned");
                self.set_prune_due();
            }
        }
    }

    async fn look(&self, reread: bool) {
        let suspicious = reread || self.published.trouble().borrow().is_some();
        match self.is_current().await {
            Ok(true) if !suspicious => return,
            Ok(_) => {}
            Err(failure) => {
                let _trouble = self.published.settle(Err(failure.into()));
                return;
            }
        }
        let known = self.published.record();
        let _published = self.read().await;
        let newest = self.published.record();
        if newest.map(|record| record.revision()) != known.map(|record| record.revision()) {
            self.resync.send_modify(|count| *count += 1);
        }
    }

    /// Whether etcd's record has the compare token known here. Costs etcd a read of a key and
    /// nobody the record's bytes.
    async fn is_current(&self) -> Result<bool, Failure> {
        let request = RangeRequest {
            keys_only: true,
            ..RangeRequest::one(self.keys.record())
        };
        let answer = self.newest(request, self.deadline()).await?;
        let found = answer.kvs.first().map(|found| found.mod_revision);
        let known = self.seen().head.as_ref().map(|head| head.mod_revision);
        Ok(found == known)
    }
}
