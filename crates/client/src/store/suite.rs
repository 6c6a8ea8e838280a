//! What every store does, whatever it keeps the record in. Each fact is checked on each store.

use std::sync::Arc;

use clockwise_cluster::{NewNode, NewPool, Nonce, RECORD_BYTES_MAX, Record, Revision, Term};
use serde_json::{Value, json};

use super::{CommitError, FileOptions, FileStore, HISTORY_EPOCHS_MAX, MemoryStore, Store};

/// A pool of one node, as never committed.
pub(super) fn new_pool(name: &str) -> Record {
    let node = NewNode::new("a".parse().unwrap(), "127.0.0.1:6379".parse().unwrap());
    let pool = NewPool::new(name.parse().unwrap(), vec![node]);
    Record::create(pool, &mut || Nonce::new([7; 16])).unwrap()
}

/// The record with one field of its stored form set.
pub(super) fn with(record: &Record, field: &str, value: Value) -> Record {
    let mut stored: Value = serde_json::from_slice(&record.encode().unwrap()).unwrap();
    stored[field] = value;
    serde_json::from_value(stored).unwrap()
}

pub(super) fn at_epoch(record: &Record, epoch: u64) -> Record {
    with(record, "epoch", json!(epoch))
}

/// The numbers by which the tests tell records apart.
pub(super) fn numbers(record: &Record) -> (u64, u64) {
    (record.revision().get(), record.epoch().get())
}

async fn make(store: &dyn Store) -> Arc<Record> {
    store
        .commit(Revision::new(0), new_pool("main"), None)
        .await
        .unwrap()
}

async fn commit_epoch(store: &dyn Store, from: &Record, epoch: u64) -> Arc<Record> {
    store
        .commit(from.revision(), at_epoch(from, epoch), None)
        .await
        .unwrap()
}

async fn an_empty_store_has_no_record(store: Arc<dyn Store>) {
    assert_eq!(store.read().await.unwrap(), None);
    assert_eq!(*store.watch().borrow(), None);
    assert_eq!(*store.trouble().borrow(), None);
    assert!(store.history().await.unwrap().is_empty());
}

async fn what_was_committed_is_read_back(store: Arc<dyn Store>) {
    let made = make(&*store).await;
    assert_eq!(numbers(&made), (1, 1));
    assert_eq!(store.read().await.unwrap(), Some(Arc::clone(&made)));
    let next = commit_epoch(&*store, &made, 2).await;
    assert_eq!(numbers(&next), (2, 2));
    let same_epoch = commit_epoch(&*store, &next, 2).await;
    assert_eq!(numbers(&same_epoch), (3, 2));
    assert_eq!(store.read().await.unwrap(), Some(same_epoch));
}

async fn a_plan_from_an_older_revision_changes_nothing(store: Arc<dyn Store>) {
    let made = make(&*store).await;
    let current = commit_epoch(&*store, &made, 2).await;
    for expected in [0, 1, 3] {
        let expected = Revision::new(expected);
        let refused = store.commit(expected, at_epoch(&current, 9), None).await;
        let conflict = CommitError::Conflict {
            expected,
            current: Some(Arc::clone(&current)),
        };
        assert_eq!(refused, Err(conflict));
    }
    assert_eq!(store.read().await.unwrap(), Some(current));
}

async fn a_pool_that_was_never_made_cannot_be_changed(store: Arc<dyn Store>) {
    let expected = Revision::new(4);
    let refused = store.commit(expected, new_pool("main"), None).await;
    let current = None;
    assert_eq!(refused, Err(CommitError::Conflict { expected, current }));
    assert_eq!(store.read().await.unwrap(), None);
}

async fn of_many_committers_at_one_revision_exactly_one_wins(store: Arc<dyn Store>) {
    let mut current = make(&*store).await;
    for round in 0..20 {
        let commits: Vec<_> = (0..8)
            .map(|committer| {
                let store = Arc::clone(&store);
                let next = with(&current, "written_by", json!([round, committer]));
                let expected = current.revision();
                tokio::spawn(async move { store.commit(expected, next, None).await })
            })
            .collect();
        let mut results = Vec::new();
        for commit in commits {
            results.push(commit.await.unwrap());
        }
        let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        let [Ok(winner)] = &won[..] else {
            panic!("{} committers won in round {round}", won.len());
        };
        for error in lost {
            let conflict = CommitError::Conflict {
                expected: current.revision(),
                current: Some(Arc::clone(winner)),
            };
            assert_eq!(error, Err(conflict));
        }
        current = Arc::clone(winner);
        assert_eq!(store.read().await.unwrap().as_ref(), Some(&current));
    }
}

async fn what_no_store_may_keep_is_refused(store: Arc<dyn Store>) {
    let made = make(&*store).await;
    let current = commit_epoch(&*store, &made, 5).await;
    let refusal = |next| store.commit(current.revision(), next, None);
    assert_eq!(
        refusal(at_epoch(&current, 4)).await,
        Err(CommitError::EpochWentBack {
            next: made.epoch().next().next().next(),
            current: current.epoch(),
        })
    );
    assert_eq!(
        refusal(with(&current, "pool", json!("other"))).await,
        Err(CommitError::OtherPool {
            next: "other".parse().unwrap(),
            current: "main".parse().unwrap(),
        })
    );
    let padding = "x".repeat(RECORD_BYTES_MAX);
    let error = refusal(with(&current, "padding", json!(padding)))
        .await
        .unwrap_err();
    let CommitError::TooLarge(error) = error else {
        panic!("{error}");
    };
    assert!(error.bytes > RECORD_BYTES_MAX && error.limit == RECORD_BYTES_MAX);
    assert_eq!(store.read().await.unwrap(), Some(current));
}

async fn watchers_only_see_newer_records(store: Arc<dyn Store>) {
    let mut watcher = store.watch();
    let watching = tokio::spawn(async move {
        let mut seen = Vec::new();
        loop {
            watcher.changed().await.unwrap();
            let record = watcher.borrow_and_update().clone().expect("never wiped");
            seen.push(numbers(&record));
            if record.epoch().get() == 30 {
                return seen;
            }
        }
    });
    let mut current = make(&*store).await;
    for epoch in 2..=30 {
        current = commit_epoch(&*store, &current, epoch).await;
        assert_eq!(store.watch().borrow().as_ref(), Some(&current));
    }
    let seen = watching.await.unwrap();
    assert!(
        seen.is_sorted() && seen.last() == Some(&(30, 30)),
        "{seen:?}"
    );
}

async fn only_the_term_that_leads_may_commit(store: Arc<dyn Store>) {
    let made = make(&*store).await;
    let mut first = store.lead("rebalancer").await.unwrap();
    assert!(store.leads(first.term()).await.unwrap() && !first.is_lost());
    let guarded = |from: &Record, term| {
        let next = at_epoch(from, from.epoch().get() + 1);
        store.commit(from.revision(), next, Some(term))
    };
    let current = guarded(&made, first.term()).await.unwrap();

    let second = store.lead("rebalancer").await.unwrap();
    assert!(second.term() > first.term());
    first.lost().await;
    assert!(first.is_lost() && !second.is_lost());
    assert!(!store.leads(first.term()).await.unwrap());
    let term = first.term();
    assert_eq!(
        guarded(&current, term).await,
        Err(CommitError::LeadershipLost { term })
    );
    let current = guarded(&current, second.term()).await.unwrap();

    store.resign(first.term()).await.unwrap();
    assert!(store.leads(second.term()).await.unwrap());
    store.resign(second.term()).await.unwrap();
    assert!(second.is_lost());
    let term = second.term();
    assert_eq!(
        guarded(&current, term).await,
        Err(CommitError::LeadershipLost { term })
    );
    let never = Term::new(1_000);
    assert!(!store.leads(never).await.unwrap());
    assert_eq!(numbers(&store.read().await.unwrap().unwrap()), (3, 3));
}

async fn terms_of_different_names_stand_side_by_side(store: Arc<dyn Store>) {
    let one = store.lead("rebalancer").await.unwrap();
    let other = store.lead("prober").await.unwrap();
    assert!(other.term() > one.term());
    assert!(store.leads(one.term()).await.unwrap() && store.leads(other.term()).await.unwrap());
    let again = store.lead("rebalancer").await.unwrap();
    assert!(again.term() > other.term());
    assert!(one.is_lost() && !other.is_lost());
}

async fn terms_are_begun_once_also_by_many_at_a_time(store: Arc<dyn Store>) {
    let leads: Vec<_> = (0..20)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.lead("rebalancer").await.unwrap() })
        })
        .collect();
    let mut leaderships = Vec::new();
    for lead in leads {
        leaderships.push(lead.await.unwrap());
    }
    leaderships.sort_by_key(super::Leadership::term);
    assert!(
        leaderships
            .windows(2)
            .all(|pair| pair[0].term() < pair[1].term())
    );
    let (last, former) = leaderships.split_last().unwrap();
    assert!(!last.is_lost() && former.iter().all(super::Leadership::is_lost));
}

async fn the_history_keeps_the_first_record_of_each_of_the_last_epochs(store: Arc<dyn Store>) {
    let mut current = make(&*store).await;
    let mut firsts = vec![Arc::clone(&current)];
    for epoch in 2..=20 {
        current = commit_epoch(&*store, &current, epoch).await;
        firsts.push(Arc::clone(&current));
        current = commit_epoch(&*store, &current, epoch).await;
    }
    let history = store.history().await.unwrap();
    let kept: Vec<_> = history
        .into_iter()
        .map(|copy| copy.record.unwrap())
        .collect();
    assert_eq!(kept, firsts[firsts.len() - HISTORY_EPOCHS_MAX..]);
}

macro_rules! each_store {
    ($($fact:ident)*) => {
        mod memory {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    super::$fact(Arc::new(MemoryStore::new())).await;
                }
            )*
        }

        mod file {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    let dir = tempfile::tempdir().unwrap();
                    let store = FileStore::open(dir.path(), FileOptions::default()).unwrap();
                    super::$fact(Arc::new(store)).await;
                }
            )*
        }

        #[cfg(feature = "etcd")]
        mod etcd {
            use clockwise_testkit::{EtcdOptions as ServerOptions, EtcdServer};

            use super::super::{EtcdOptions, EtcdStore};
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    let server = EtcdServer::start(ServerOptions::default());
                    let options = EtcdOptions {
                        endpoints: vec![server.endpoint()],
                        ..EtcdOptions::default()
                    };
                    let store = EtcdStore::open(&"main".parse().unwrap(), options).unwrap();
                    super::$fact(Arc::new(store)).await;
                }
            )*
        }
    };
}

each_store! {
    an_empty_store_has_no_record
    what_was_committed_is_read_back
    a_plan_from_an_older_revision_changes_nothing
    a_pool_that_was_never_made_cannot_be_changed
    of_many_committers_at_one_revision_exactly_one_wins
    what_no_store_may_keep_is_refused
    watchers_only_see_newer_records
    only_the_term_that_leads_may_commit
    terms_of_different_names_stand_side_by_side
    terms_are_begun_once_also_by_many_at_a_time
    the_history_keeps_the_first_record_of_each_of_the_last_epochs
}
