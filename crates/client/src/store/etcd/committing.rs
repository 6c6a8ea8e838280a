//! A commit: one transaction that compares the record's key, and for a leader its own key too.
//!
//! The comparison makes it safe to repeat the transaction when its answer was lost: it takes
//! effect once at most, and the second answer shows whether the first did.

use std::sync::Arc;

use bytes::Bytes;
use clockwise_cluster::{Record, Revision, Term};
use tokio::time::Instant;

use super::super::CommitError;
use super::super::transition::{check_commit, opens_epoch};
use super::Shared;
use super::failure::Failure;
use super::head::Head;
use super::keys::StoredTerm;
use super::leading::Guard;
use super::proto::{Compare, KeyValue, PutRequest, RangeRequest, RequestOp, TxnRequest};

/// etcd takes requests of up to 1.5 MiB by default. A record that would not fit in twice gets its
/// copy a moment later.
const WITH_COPY_BYTES_MAX: usize = 1 << 20;
/// Somebody who rewrites the key without a new record costs one more turn.
const TURNS_MAX: usize = 3;

/// What is to be written, and what must not have changed meanwhile.
struct Commit {
    expected: Revision,
    current: Option<Head>,
    next: Arc<Record>,
    bytes: Bytes,
    guard: Option<(Term, Guard)>,
}

/// How one transaction ended.
enum Turn {
    Committed {
        revision: i64,
        mod_revision: i64,
    },
    /// The key was written again, with the record that was there before.
    Rewritten(Head),
}

impl Shared {
    pub(super) async fn commit(
        &self,
        expected: Revision,
        next: Record,
        guard: Option<Term>,
    ) -> Result<Arc<Record>, CommitError> {
        let guard = match guard {
            None => None,
            Some(term) => {
                let guard = self
                    .guard(term)
                    .ok_or(CommitError::LeadershipLost { term })?;
                Some((term, guard))
            }
        };
        let deadline = self.deadline();
        let current = self.planned_from(expected, &next, deadline).await?;
        let next = next.at_revision(expected.next());
        let mut commit = Commit {
            expected,
            current,
            bytes: next.encode()?.into(),
            next: Arc::new(next),
            guard,
        };
        if commit.current.is_none() {
            self.make_term_key(deadline).await?;
        }
        for _ in 0..TURNS_MAX {
            match self.try_once(&commit, deadline).await? {
                Turn::Committed {
                    revision,
                    mod_revision,
                } => {
                    self.publish(&commit, revision, mod_revision).await;
                    return Ok(commit.next);
                }
                Turn::Rewritten(head) => commit.current = Some(head),
            }
        }
        let why = "the record's key is written again and again without a new record".to_owned();
        Err(CommitError::Unreachable { why })
    }

    /// The stored record, if `next` may follow it. A read is spared if the one known here is the
    /// one planned from: if it is not the newest, the transaction will say so.
    async fn planned_from(
        &self,
        expected: Revision,
        next: &Record,
        deadline: Instant,
    ) -> Result<Option<Head>, CommitError> {
        let known = self.seen().head.clone();
        if let Some(head) = known
            && check_commit(Some(&head.record), expected, next).is_ok()
        {
            return Ok(Some(head));
        }
        let read = match self.read_at(deadline).await {
            Ok(reading) => reading.record?,
            // Nothing was sent that could have an effect.
            Err(failure) => return Err(CommitError::Read(failure.into())),
        };
        check_commit(read.as_ref(), expected, next)?;
        let head = self.seen().head.clone();
        match (read, head) {
            (None, _) => Ok(None),
            (Some(read), Some(head)) if head.record.revision() == read.revision() => Ok(Some(head)),
            // Others commit at this very moment.
            (Some(read), _) => Err(CommitError::Conflict {
                expected,
                current: self.published.record().or(Some(read)),
            }),
        }
    }

    async fn try_once(&self, commit: &Commit, deadline: Instant) -> Result<Turn, CommitError> {
        let txn = self.commit_txn(commit);
        let answer = self.connection.txn(txn, deadline).await?;
        let revision = answer.message.revision();
        if answer.message.succeeded {
            return Ok(Turn::Committed {
                revision,
                mod_revision: revision,
            });
        }
        let mut found = answer.message.found();
        let stored = found.next().flatten();
        let leader = found.next().flatten();
        if answer.repeated
            && let Some(turn) = first_attempt(commit, stored.as_ref(), revision)?
        {
            return Ok(turn);
        }
        if let Some((term, guard)) = &commit.guard
            && leader.is_none_or(|leader| leader.value != guard.value)
        {
            self.lose_term(*term);
            return Err(CommitError::LeadershipLost { term: *term });
        }
        self.refused(commit, stored, revision, deadline).await
    }

    fn commit_txn(&self, commit: &Commit) -> TxnRequest {
        let key = self.keys.record();
        let mut compare = vec![match &commit.current {
            Some(head) => Compare::mod_revision(key.clone(), head.mod_revision),
            None => Compare::absent(key.clone()),
        }];
        let mut failure = vec![RequestOp::from(RangeRequest::one(key.clone()))];
        if let Some((_, guard)) = &commit.guard {
            compare.push(guard.compare());
            failure.push(RequestOp::from(RangeRequest::one(guard.key.clone())));
        }
        let mut success = vec![RequestOp::from(put(key, &commit.bytes))];
        if commit.opens_epoch() && commit.copy_fits() {
            let copy = self.keys.copy(commit.next.epoch());
            success.push(RequestOp::from(put(copy, &commit.bytes)));
        }
        TxnRequest {
            compare,
            success,
            failure,
        }
    }

    /// The record's key is not as it was planned from.
    async fn refused(
        &self,
        commit: &Commit,
        stored: Option<KeyValue>,
        revision: i64,
        deadline: Instant,
    ) -> Result<Turn, CommitError> {
        let Some(stored) = stored else {
            // It is gone: the read says what is left of it.
            let read = self.read_at(deadline).await?;
            let current = read.record?;
            let expected = commit.expected;
            return Err(CommitError::Conflict { expected, current });
        };
        let read = self.decode(&stored).await.map(Some);
        let current = self.settle(revision, read)?;
        match (&current, &commit.current) {
            (Some(now), Some(before)) if **now == *before.record => Ok(Turn::Rewritten(Head {
                mod_revision: stored.mod_revision,
                record: Arc::clone(now),
            })),
            _ => Err(CommitError::Conflict {
                expected: commit.expected,
                current,
            }),
        }
    }

    async fn publish(&self, commit: &Commit, revision: i64, mod_revision: i64) {
        let head = Head {
            mod_revision,
            record: Arc::clone(&commit.next),
        };
        let _published = self.settle(revision, Ok(Some(head)));
        if !commit.opens_epoch() {
            return;
        }
        if !commit.copy_fits()
            && let Err(failure) = self.file_copy(commit).await
        {
            let epoch = commit.next.epoch();
            tracing::warn!(%epoch, why = failure.why, "the history copy was not written");
        }
        self.set_prune_due();
    }

    async fn file_copy(&self, commit: &Commit) -> Result<(), Failure> {
        let copy = self.keys.copy(commit.next.epoch());
        let txn = TxnRequest {
            success: vec![RequestOp::from(put(copy, &commit.bytes))],
            ..TxnRequest::default()
        };
        self.connection.txn(txn, self.deadline()).await?;
        Ok(())
    }

    /// From now on a missing key means that it was lost, not that no term was begun.
    async fn make_term_key(&self, deadline: Instant) -> Result<(), Failure> {
        let key = self.keys.term();
        let txn = TxnRequest {
            compare: vec![Compare::absent(key.clone())],
            success: vec![RequestOp::from(put(key, &StoredTerm::encode(Term::new(0))))],
            ..TxnRequest::default()
        };
        self.connection.txn(txn, deadline).await?;
        Ok(())
    }
}

impl Commit {
    fn opens_epoch(&self) -> bool {
        opens_epoch(self.current.as_ref().map(|head| &head.record), &self.next)
    }

    fn copy_fits(&self) -> bool {
        2 * self.bytes.len() <= WITH_COPY_BYTES_MAX
    }
}

/// Whether the attempt whose answer was lost did it. `None`: it did not, and never will.
fn first_attempt(
    commit: &Commit,
    stored: Option<&KeyValue>,
    revision: i64,
) -> Result<Option<Turn>, CommitError> {
    let Some(stored) = stored else {
        return Ok(None);
    };
    if stored.value == commit.bytes {
        return Ok(Some(Turn::Committed {
            revision,
            mod_revision: stored.mod_revision,
        }));
    }
    let own = commit.next.revision();
    match Record::decode(&stored.value) {
        Ok(record) if record.revision() > own => Err(CommitError::Unknown {
            why: format!(
                "its answer was lost, and revision {} is stored by now, so {own} was committed \
                 by this process or another; read the record to know",
                record.revision()
            ),
        }),
        _ => Ok(None),
    }
}

fn put(key: Bytes, value: &Bytes) -> PutRequest {
    PutRequest {
        key,
        value: value.clone(),
        lease: 0,
    }
}
