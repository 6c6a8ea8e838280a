//! What etcd does that a watch alone would not survive, on the real server.

use std::sync::Arc;
use std::time::Duration;

use clockwise_cluster::{Record, Revision};
use clockwise_testkit::{EtcdCluster, EtcdOptions as ServerOptions, EtcdServer};
use tokio::time::timeout;

use super::super::suite::{at_epoch, new_pool, numbers};
use super::super::{LeadError, ReadError, Store};
use super::proto::{EventType, WatchCreateRequest};
use super::watching::End;
use super::{EtcdOptions, EtcdStore, Shared};

/// For what should take a look or two.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than any of these tests.
const NEVER: Duration = Duration::from_secs(3_600);

fn options(server: &EtcdServer) -> EtcdOptions {
    EtcdOptions {
        endpoints: vec![server.endpoint()],
        check_interval: Duration::from_millis(50),
        ..EtcdOptions::default()
    }
}

fn shared(options: EtcdOptions) -> Arc<Shared> {
    Arc::new(Shared::new(&"main".parse().unwrap(), options).unwrap())
}

fn open(server: &EtcdServer) -> EtcdStore {
    EtcdStore::open(&"main".parse().unwrap(), options(server)).unwrap()
}

async fn commit(store: &dyn Store, epoch: u64) -> Arc<Record> {
    let current = store.read().await.unwrap();
    let (expected, next) = match &current {
        Some(current) => (current.revision(), at_epoch(current, epoch)),
        None => (Revision::new(0), at_epoch(&new_pool("main"), epoch)),
    };
    store.commit(expected, next, None).await.unwrap()
}

async fn wait_for_trouble(store: &EtcdStore) -> ReadError {
    let mut trouble = store.trouble();
    let seen = timeout(PATIENCE, trouble.wait_for(Option::is_some)).await;
    seen.expect("reported").unwrap().clone().unwrap()
}

async fn wait_for_epoch(store: &EtcdStore, epoch: u64) -> Arc<Record> {
    let mut watch = store.watch();
    let seen = watch.wait_for(|record| {
        record
            .as_ref()
            .is_some_and(|record| record.epoch().get() == epoch)
    });
    let seen = timeout(PATIENCE, seen).await.expect("seen").unwrap();
    seen.clone().unwrap()
}

/// etcd's revision, as its own tool says it.
fn revision_now(server: &EtcdServer) -> i64 {
    let status = server.ctl(&["endpoint", "status", "--write-out=json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status[0]["Status"]["header"]["revision"].as_i64().unwrap()
}

/// etcd-io/etcd#19179: the delete at the revision up to which is compacted is never told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_lost_at_the_compaction_revision_is_found_by_a_look() {
    let server = EtcdServer::start(ServerOptions::default());
    let shared = shared(options(&server));
    let made = commit(&open(&server), 1).await;
    assert_eq!(shared.read().await, Ok(Some(Arc::clone(&made))));
    server.ctl(&["del", "/clockwise/main/record"]);
    let deleted = revision_now(&server);
    server.ctl(&["compact", "--physical", &deleted.to_string()]);

    // This etcd has the fault: the first event is the put that comes after the delete.
    let create = WatchCreateRequest {
        key: shared.keys.record(),
        start_revision: deleted,
        fragment: true,
    };
    let mut stream = shared
        .connection
        .watch(create, shared.deadline())
        .await
        .unwrap();
    server.ctl(&["put", "/clockwise/main/record", "no record"]);
    let first = loop {
        let answer = stream.message().await.unwrap().unwrap();
        if let Some(event) = answer.events.into_iter().next() {
            break event;
        }
    };
    assert_eq!(first.kind, i32::from(EventType::Put));
    server.ctl(&["del", "/clockwise/main/record"]);
    let deleted = revision_now(&server);
    server.ctl(&["compact", &deleted.to_string()]);

    // A store whose watch begins there is saved by its looks, and goes on serving what it knows.
    let watched = Arc::clone(&shared);
    let watching = tokio::spawn(async move {
        watched.watch_from(deleted).await;
    });
    let store = EtcdStore::start(shared, watching);
    let gone = ReadError::Gone {
        place: "etcd key /clockwise/main/record".to_owned(),
        newest_good: Some("etcd key /clockwise/main/history/00000000000000000001".to_owned()),
    };
    assert_eq!(wait_for_trouble(&store).await, gone);
    assert_eq!(*store.watch().borrow(), Some(made));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_compacted_revisions_ends_and_the_next_one_goes_on() {
    let server = EtcdServer::start(ServerOptions::default());
    let writer = open(&server);
    commit(&writer, 1).await;
    let old = revision_now(&server);
    commit(&writer, 2).await;
    commit(&writer, 3).await;
    server.ctl(&["compact", &revision_now(&server).to_string()]);

    // Without looks, so that only the watch can tell.
    let shared = shared(EtcdOptions {
        check_interval: NEVER,
        ..options(&server)
    });
    let end = timeout(PATIENCE, shared.watch_from(old))
        .await
        .expect("ends");
    let End::Cancelled { compacted, why } = end else {
        panic!("{end:?}");
    };
    assert!(compacted, "{why}");
    let watching = tokio::spawn(Arc::clone(&shared).keep_watching());
    let store = EtcdStore::start(shared, watching);
    wait_for_epoch(&store, 3).await;
    commit(&writer, 4).await;
    wait_for_epoch(&store, 4).await;
}

/// smallnest/rpcx#420 and moves of operators: a copy put back makes revisions go back, and a watch
/// that waits for the old ones hears nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_restored_from_a_copy_is_recognised_and_never_followed_back() {
    let mut server = EtcdServer::start(ServerOptions::default());
    let store = open(&server);
    let reader = open(&server);
    commit(&store, 1).await;
    let first = store.lead("rebalancer").await.unwrap();
    store.resign(first.term()).await.unwrap();
    for epoch in 2..=3 {
        commit(&store, epoch).await;
    }
    let copy = server.snapshot();
    let second = store.lead("rebalancer").await.unwrap();
    store.resign(second.term()).await.unwrap();
    for epoch in 4..=9 {
        commit(&store, epoch).await;
    }
    let known = wait_for_epoch(&reader, 9).await;
    let start = revision_now(&server) + 1;
    server.restore(&copy);

    let end = timeout(PATIENCE, reader.shared.watch_from(start)).await;
    assert_eq!(end, Ok(End::WentBack));
    let mut trouble = reader.trouble();
    let went_back = trouble.wait_for(|trouble| matches!(trouble, Some(ReadError::WentBack { .. })));
    timeout(PATIENCE, went_back)
        .await
        .expect("reported")
        .unwrap();
    assert_eq!(*reader.watch().borrow(), Some(Arc::clone(&known)));
    let ReadError::WentBack {
        epoch_found, epoch, ..
    } = reader.read().await.unwrap_err()
    else {
        panic!("followed back");
    };
    assert_eq!((epoch_found.get(), epoch.get()), (3, 9));
    // The second term was begun here and is unknown to etcd now.
    let again = store.lead("rebalancer").await;
    let Err(LeadError::TermUnknown { why, .. }) = again else {
        panic!("{again:?}");
    };
    assert!(why.contains("term 2 was begun"), "{why}");

    // Another process goes on from the copy; its records are followed once they are ahead again.
    let other = open(&server);
    let mut current = other.read().await.unwrap().unwrap();
    assert_eq!(numbers(&current), (3, 3));
    for epoch in 10..=17 {
        current = commit(&other, epoch).await;
    }
    assert!(current.revision() > known.revision());
    assert_eq!(wait_for_epoch(&reader, 17).await, current);
    let mut trouble = reader.trouble();
    let well = timeout(PATIENCE, trouble.wait_for(Option::is_none)).await;
    well.expect("all is well again").unwrap();
}

/// A member without a leader keeps its watches open and says nothing, unless it was asked for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_when_its_member_is_cut_off_from_the_others() {
    let mut cluster = EtcdCluster::start::<3>(&ServerOptions::default());
    let leader = cluster.wait_for_leader();
    let follower = (leader + 1) % 3;
    let shared = shared(options(&cluster.members()[follower]));
    let watched = Arc::clone(&shared);
    let watching = tokio::spawn(async move { watched.watch_from(1).await });
    let store = EtcdStore::open(
        &"main".parse().unwrap(),
        options(&cluster.members()[follower]),
    );
    commit(&store.unwrap(), 1).await;
    let mut watch = shared.published.watch();
    let told = timeout(PATIENCE, watch.wait_for(Option::is_some)).await;
    told.expect("the watch runs").unwrap();

    cluster.member(leader).kill9();
    cluster.member((leader + 2) % 3).kill9();
    let end = timeout(PATIENCE, watching).await.expect("ends").unwrap();
    let End::Broken(why) = end else {
        panic!("{end:?}");
    };
    assert!(why.contains("no leader"), "{why}");
}

/// etcd-io/etcd#17529 and envoyproxy/envoy#45212: events that come faster than they are read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_ends_at_the_last_of_many_quick_commits_without_looking() {
    let server = EtcdServer::start(ServerOptions::default());
    let reader = EtcdStore::open(
        &"main".parse().unwrap(),
        EtcdOptions {
            check_interval: NEVER,
            ..options(&server)
        },
    )
    .unwrap();
    let writer = open(&server);
    let mut current = commit(&writer, 1).await;
    for epoch in 2..=300 {
        let next = at_epoch(&current, epoch);
        current = writer.commit(current.revision(), next, None).await.unwrap();
    }
    assert_eq!(wait_for_epoch(&reader, 300).await, current);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_answer_is_neither_followed_nor_reported() {
    let server = EtcdServer::start(ServerOptions::default());
    let store = open(&server);
    commit(&store, 1).await;
    let late = store.shared.seen().head.clone();
    let at = store.shared.seen().revision;
    let newest = commit(&store, 2).await;
    let settled = store.shared.settle(at, Ok(late));
    assert_eq!(settled, Ok(Some(Arc::clone(&newest))));
    assert_eq!(*store.trouble().borrow(), None);
    assert_eq!(*store.watch().borrow(), Some(newest));
}
