//! What stands under the keys: large records, foreign ones, none any more, and a history that ends.

use std::sync::Arc;

use clockwise_client::store::{
    CommitError, EtcdOptions, HISTORY_EPOCHS_MAX, LeadError, ReadError, Store,
};
use clockwise_cluster::{DecodeError, RECORD_BYTES_MAX, Record, Revision};
use clockwise_testkit::{EtcdOptions as ServerOptions, EtcdServer};
use serde_json::json;
use tokio::time::timeout;

use super::{
    PATIENCE, at_epoch, commit_epoch, make, new_pool, open, open_with, options, wait_for_epoch,
    wait_for_trouble, with,
};

const RECORD: &str = "/clockwise/main/record";

/// A record of about the most bytes that one may have.
fn large(record: &Record) -> Record {
    let padding = RECORD_BYTES_MAX - record.encode().unwrap().len() - 64;
    with(record, "padding", json!("x".repeat(padding)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_records_are_kept_watched_and_remembered() {
    let server = EtcdServer::start(ServerOptions::default());
    let store = open(vec![server.endpoint()]);
    let reader = open(vec![server.endpoint()]);
    let made = make(&store).await;
    let mut current = store
        .commit(made.revision(), large(&at_epoch(&made, 2)), None)
        .await
        .unwrap();
    assert!(current.encode().unwrap().len() > RECORD_BYTES_MAX - 100);
    for epoch in 3..=8 {
        current = commit_epoch(&store, &current, epoch).await;
    }
    assert_eq!(wait_for_epoch(&reader, 8).await, current);
    let late = open(vec![server.endpoint()]);
    assert_eq!(late.read().await.unwrap().as_ref(), Some(&current));
    let history = late.history().await.unwrap();
    let epochs: Vec<u64> = history.iter().map(|copy| copy.epoch.get()).collect();
    assert_eq!(epochs, (1..=8).collect::<Vec<_>>());
    assert!(history.iter().all(|copy| copy.record.is_ok()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_smaller_limit_refuses_and_the_error_names_the_flag() {
    let server = EtcdServer::start(ServerOptions {
        args: vec!["--max-request-bytes=65536".to_owned()],
        ..ServerOptions::default()
    });
    let store = open(vec![server.endpoint()]);
    let made = make(&store).await;
    let refused = store.commit(made.revision(), large(&made), None).await;
    let Err(CommitError::Refused { why }) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("--max-request-bytes"), "{why}");
    assert_eq!(store.read().await.unwrap(), Some(made));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_copies_are_removed_from_etcd_too() {
    let server = EtcdServer::start(ServerOptions::default());
    let store = open(vec![server.endpoint()]);
    let mut current = make(&store).await;
    for epoch in 2..=40 {
        current = commit_epoch(&store, &current, epoch).await;
    }
    let count = || {
        let history = ["get", "/clockwise/main/history/", "--prefix", "--keys-only"];
        let keys = server.ctl(&history);
        keys.lines().filter(|line| !line.is_empty()).count()
    };
    let pruned = timeout(PATIENCE, async {
        while count() > HISTORY_EPOCHS_MAX {
            tokio::task::yield_now().await;
        }
    });
    pruned.await.expect("pruned");
    let epochs = store.history().await.unwrap();
    assert_eq!(epochs.first().unwrap().epoch.get(), 25);
    assert_eq!(epochs.len(), HISTORY_EPOCHS_MAX);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_record_is_refused_and_the_last_good_one_served() {
    let server = EtcdServer::start(ServerOptions::default());
    let store = open(vec![server.endpoint()]);
    let made = make(&store).await;
    let current = commit_epoch(&store, &made, 2).await;
    for foreign in ["", "[]", "{\"format\":1}", "{\"format\":99}", "not json"] {
        server.ctl(&["put", RECORD, foreign]);
        wait_for_trouble(&store, |trouble| {
            matches!(trouble, Some(ReadError::Unreadable { .. }))
        })
        .await;
        let ReadError::Unreadable {
            place, newest_good, ..
        } = store.read().await.unwrap_err()
        else {
            panic!("{foreign:?} was read");
        };
        assert_eq!(place, format!("etcd key {RECORD}"));
        let copy = "etcd key /clockwise/main/history/00000000000000000002";
        assert_eq!(newest_good.as_deref(), Some(copy));
        assert_eq!(*store.watch().borrow(), Some(Arc::clone(&current)));
        let refused = store
            .commit(current.revision(), at_epoch(&current, 3), None)
            .await;
        assert!(
            matches!(
                refused,
                Err(CommitError::Read(ReadError::Unreadable { .. }))
            ),
            "{refused:?}"
        );
        let good = String::from_utf8(current.encode().unwrap()).unwrap();
        server.ctl(&["put", RECORD, &good]);
        wait_for_trouble(&store, Option::is_none).await;
    }
    // The key was written again and again, and the record is still the one planned from.
    commit_epoch(&store, &current, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_was_changed_by_hand_is_refused() {
    let server = EtcdServer::start(ServerOptions::default());
    let store = open(vec![server.endpoint()]);
    let made = make(&store).await;
    let edited = String::from_utf8(with(&made, "note", json!("by hand")).encode().unwrap());
    server.ctl(&["put", RECORD, &edited.unwrap()]);
    let revision = made.revision();
    let error = ReadError::EditedInPlace { revision };
    wait_for_trouble(&store, |trouble| trouble.as_ref() == Some(&error)).await;
    let refused = store.commit(revision, at_epoch(&made, 2), None).await;
    assert_eq!(refused, Err(CommitError::Read(error)));
    assert_eq!(*store.watch().borrow(), Some(made));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_gone_is_not_made_anew_and_a_term_that_is_gone_not_begun_again() {
    let server = EtcdServer::start(ServerOptions::default());
    let store = open(vec![server.endpoint()]);
    let made = make(&store).await;
    let leadership = store.lead("rebalancer").await.unwrap();
    store.resign(leadership.term()).await.unwrap();
    server.ctl(&["del", RECORD]);
    wait_for_trouble(&store, |trouble| {
        matches!(trouble, Some(ReadError::Gone { .. }))
    })
    .await;
    assert_eq!(*store.watch().borrow(), Some(Arc::clone(&made)));
    // Nor by a process that never saw it: the history shows that there was one.
    let newcomer = open(vec![server.endpoint()]);
    for store in [&store, &newcomer] {
        let refused = store.commit(Revision::new(0), new_pool(), None).await;
        assert!(
            matches!(refused, Err(CommitError::Read(ReadError::Gone { .. }))),
            "{refused:?}"
        );
    }
    server.ctl(&["del", "/clockwise/main/term"]);
    let refused = newcomer.lead("rebalancer").await;
    let Err(LeadError::TermUnknown { place, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(place, "etcd key /clockwise/main/term");
    let last = "{\"format\":1,\"term\":9007199254740991}";
    server.ctl(&["put", "/clockwise/main/term", last]);
    let refused = newcomer.lead("rebalancer").await;
    assert!(
        matches!(&refused, Err(LeadError::TermUnknown { why, .. }) if why.contains("no other can come")),
        "{refused:?}"
    );
    server.ctl(&["put", "/clockwise/main/term", "{\"format\":1,\"term\":41}"]);
    assert_eq!(newcomer.lead("rebalancer").await.unwrap().term().get(), 42);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_and_prefixes_stand_side_by_side() {
    let server = EtcdServer::start(ServerOptions::default());
    let one = open(vec![server.endpoint()]);
    let made = make(&one).await;
    let other = open_with(EtcdOptions {
        prefix: "/clockwise/main".to_owned(),
        ..options(vec![server.endpoint()])
    });
    assert_eq!(other.read().await, Ok(None));
    assert!(other.history().await.unwrap().is_empty());
    let term = one.lead("rebalancer").await.unwrap().term();
    assert_eq!(other.lead("rebalancer").await.unwrap().term(), term);
    server.ctl(&["put", RECORD, ""]);
    let empty = one.read().await.unwrap_err();
    let ReadError::Unreadable { error, .. } = empty else {
        panic!("{empty}");
    };
    assert_eq!(error, DecodeError::Empty);
    assert_eq!(*one.watch().borrow(), Some(made));
}
