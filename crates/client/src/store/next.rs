//! Changing the record as it is now: planned again from a newer one as long as other commits come first.

use std::future::Future;
use std::sync::Arc;

use clockwise_cluster::{Record, Term};

use super::{CommitError, ReadError, Store};

/// Commits of one change that may meet another's. Two operators at once are rare, and a rebalancer commits a
/// few times a second at most.
pub const COMMITS_MAX: u32 = 16;

/// Why the record was not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NextError<E> {
    /// The pool was never made.
    #[error("the store holds no pool")]
    NoPool,
    /// The record as it is now does not allow it.
    #[error(transparent)]
    Refused(E),
    /// The record cannot be read.
    #[error(transparent)]
    Read(ReadError),
    /// The record could not be changed.
    #[error(transparent)]
    Commit(CommitError),
    /// Others kept changing the record.
    #[error("other commits came first {COMMITS_MAX} times in a row")]
    Contended,
}

/// Commits what `next` makes of the newest record; with `guard`, only while that term leads.
///
/// If another commit comes first, `next` is asked again with the record of that one, 16 times at most.
///
/// # Errors
/// What `next` says, or why nothing was committed. After [`CommitError::Unknown`] it may have been.
pub async fn commit_next<E, F>(
    store: &dyn Store,
    guard: Option<Term>,
    mut next: impl FnMut(Arc<Record>) -> F,
) -> Result<Arc<Record>, NextError<E>>
where
    F: Future<Output = Result<Record, E>>,
{
    let mut newest = store.read().await.map_err(NextError::Read)?;
    for _ in 0..COMMITS_MAX {
        let record = newest.ok_or(NextError::NoPool)?;
        let revision = record.revision();
        let changed = next(record).await.map_err(NextError::Refused)?;
        match store.commit(revision, changed, guard).await {
            Err(CommitError::Conflict { current, .. }) => newest = current,
            committed => return committed.map_err(NextError::Commit),
        }
    }
    Err(NextError::Contended)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use clockwise_cluster::{NewNode, NewPool, Nonce, Revision, Throttle};

    use super::super::MemoryStore;
    use super::*;

    async fn pool() -> MemoryStore {
        let store = MemoryStore::new();
        let node = NewNode::new("a".parse().unwrap(), "127.0.0.1:1".parse().unwrap());
        let pool = NewPool::new("main".parse().unwrap(), vec![node]);
        let record = Record::create(pool, &mut || Nonce::new([1; 16])).unwrap();
        store.commit(Revision::new(0), record, None).await.unwrap();
        store
    }

    fn throttled(record: &Record, keys_per_second: u64) -> Record {
        record.with_throttle(Throttle {
            keys_per_second,
            bytes_per_second: 0,
        })
    }

    #[tokio::test]
    async fn a_change_that_was_overtaken_is_planned_again_from_the_newer_record() {
        let store = pool().await;
        let mut asked = 0;
        let committed = commit_next::<(), _>(&store, None, |record| {
            asked += 1;
            let (store, first) = (&store, asked == 1);
            async move {
                if first {
                    let other = record.with_scripts(true);
                    store.commit(record.revision(), other, None).await.unwrap();
                }
                Ok(throttled(&record, 7))
            }
        })
        .await
        .unwrap();
        assert_eq!(asked, 2);
        assert!(
            committed.options().scripts && committed.options().throttle.keys_per_second == 7,
            "neither commit is lost"
        );
    }

    #[tokio::test]
    async fn one_that_is_overtaken_for_ever_gives_up_and_says_so() {
        let store = pool().await;
        let mut asked = 0;
        let outcome = commit_next::<(), _>(&store, None, |record| {
            asked += 1;
            let store = &store;
            async move {
                let other = throttled(&record, record.revision().get());
                store.commit(record.revision(), other, None).await.unwrap();
                Ok(throttled(&record, 7))
            }
        })
        .await;
        assert_eq!((outcome, asked), (Err(NextError::Contended), COMMITS_MAX));
    }

    #[tokio::test]
    async fn without_a_pool_there_is_nothing_to_change() {
        let nothing = MemoryStore::new();
        let as_it_is = |record: Arc<Record>| ready(Ok((*record).clone()));
        let outcome = commit_next::<(), _>(&nothing, None, as_it_is).await;
        assert_eq!(outcome, Err(NextError::NoPool));
    }
}
