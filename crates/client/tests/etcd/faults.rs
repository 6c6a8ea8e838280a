//! Members that are killed, paused and cut off, and answers that are lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clockwise_client::store::{CommitError, EtcdOptions, ReadError, Store};
use clockwise_testkit::{EtcdCluster, EtcdOptions as ServerOptions, EtcdServer};
use tokio::time::timeout;

use super::{
    PATIENCE, at_epoch, commit_epoch, make, open, open_with, options, wait_for_epoch,
    wait_for_trouble,
};

/// What a view is to take when etcd's leader is killed.
const CHANGEOVER_MAX: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_and_watches_survive_the_death_of_the_leader() {
    let mut cluster = EtcdCluster::start::<3>(&ServerOptions::default());
    let leader = cluster.wait_for_leader();
    // Both speak to the leader first.
    let mut endpoints = cluster.endpoints();
    endpoints.rotate_left(leader);
    let writer = open(endpoints.clone());
    let reader = open(endpoints);
    let mut current = make(&writer).await;
    for epoch in 2..=10 {
        current = commit_epoch(&writer, &current, epoch).await;
    }
    wait_for_epoch(&reader, 10).await;

    cluster.member(leader).kill9();
    let killed = Instant::now();
    let mut epoch = 11;
    while epoch < 30 {
        let next = at_epoch(&current, epoch);
        match writer.commit(current.revision(), next, None).await {
            Ok(committed) => {
                current = committed;
                epoch += 1;
            }
            // The election outlasted the call; what became of it is in the record.
            Err(CommitError::Unknown { .. } | CommitError::Unreachable { .. }) => {
                let read = timeout(PATIENCE, async {
                    loop {
                        if let Ok(Some(read)) = writer.read().await {
                            return read;
                        }
                    }
                });
                current = read.await.expect("the others have a leader");
                epoch = current.epoch().get() + 1;
            }
            Err(error) => panic!("{error}"),
        }
        if epoch == 12 {
            wait_for_epoch(&reader, 11).await;
            let took = killed.elapsed();
            println!("a new epoch was seen {took:?} after the leader was killed");
            assert!(took < CHANGEOVER_MAX, "{took:?}");
        }
    }
    assert_eq!(wait_for_epoch(&reader, 29).await, current);
    let history = writer.history().await.unwrap();
    assert_eq!(history.last().unwrap().epoch, current.epoch());
}

/// etcd-io/etcd#20418: a member that was paused answers from the past.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_leader_is_passed_over_and_later_never_takes_a_reader_back() {
    let cluster = EtcdCluster::start::<3>(&ServerOptions::default());
    let leader = cluster.wait_for_leader();
    let mut endpoints = cluster.endpoints();
    endpoints.rotate_left(leader);
    let writer = open_with(EtcdOptions {
        attempt_timeout: Duration::from_millis(300),
        call_timeout: PATIENCE,
        ..options(endpoints.clone())
    });
    let reader = open_with(EtcdOptions {
        attempt_timeout: Duration::from_millis(300),
        ..options(endpoints.clone())
    });
    let made = make(&writer).await;
    wait_for_epoch(&reader, 1).await;
    cluster.members()[leader].pause();
    let current = commit_epoch(&writer, &made, 2).await;
    assert_eq!(wait_for_epoch(&reader, 2).await, current);
    cluster.members()[leader].resume();
    // Asks the one that was away first.
    for _ in 0..50 {
        let late = open(vec![endpoints[0].clone()]);
        let read = timeout(PATIENCE, async {
            loop {
                if let Ok(Some(read)) = late.read().await {
                    return read;
                }
            }
        });
        assert_eq!(read.await.expect("it is back"), current);
        assert_eq!(reader.read().await.unwrap().as_ref(), Some(&current));
    }
}

/// phpredis/phpredis#2351: everything down, then up. sensu/sensu-go#3101: what happened between
/// two watches is never seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_etcd_is_away_the_last_record_is_served_and_afterwards_the_newest() {
    let mut server = EtcdServer::start(ServerOptions::default());
    let store = open_with(EtcdOptions {
        call_timeout: Duration::from_secs(2),
        ..options(vec![server.endpoint()])
    });
    let made = make(&store).await;
    server.kill9();
    wait_for_trouble(&store, |trouble| {
        matches!(trouble, Some(ReadError::Unreachable { .. }))
    })
    .await;
    assert_eq!(*store.watch().borrow(), Some(Arc::clone(&made)));
    let refused = store
        .commit(made.revision(), at_epoch(&made, 2), None)
        .await;
    let Err(CommitError::Unreachable { why }) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        why.contains(&server.endpoint()) && why.contains("refused") && why.contains("etcdctl"),
        "{why}"
    );
    let ReadError::Unreachable { why } = store.read().await.unwrap_err() else {
        panic!("read from a dead server");
    };
    assert!(why.contains(&server.endpoint()), "{why}");

    server.restart();
    let other = open(vec![server.endpoint()]);
    let read = other.read().await.unwrap().unwrap();
    commit_epoch(&other, &read, 3).await;
    wait_for_epoch(&store, 3).await;
    wait_for_trouble(&store, Option::is_none).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_unknown_or_is_found_to_have_happened() {
    let server = EtcdServer::start(ServerOptions::default());
    let hasty = open_with(EtcdOptions {
        attempt_timeout: Duration::from_millis(100),
        call_timeout: Duration::from_millis(300),
        ..options(vec![server.endpoint()])
    });
    let patient = open_with(EtcdOptions {
        attempt_timeout: Duration::from_millis(100),
        call_timeout: PATIENCE,
        ..options(vec![server.endpoint()])
    });
    let mut current = make(&patient).await;
    wait_for_epoch(&hasty, 1).await;
    server.pause();
    let unknown = hasty
        .commit(current.revision(), at_epoch(&current, 2), None)
        .await;
    let Err(CommitError::Unknown { why }) = unknown else {
        panic!("{unknown:?}");
    };
    assert!(why.contains("no answer within 100 ms"), "{why}");
    server.resume();
    let settled = timeout(PATIENCE, async {
        loop {
            if let Ok(Some(read)) = patient.read().await {
                return read;
            }
        }
    });
    current = settled.await.expect("it answers again");

    for epoch in 10..20 {
        server.pause();
        let next = at_epoch(&current, epoch);
        let commit = patient.commit(current.revision(), next, None);
        tokio::pin!(commit);
        // Long enough for several attempts, each of which etcd carries out once it goes on.
        let early = timeout(Duration::from_millis(500), &mut commit).await;
        assert!(early.is_err(), "{early:?}");
        server.resume();
        current = commit.await.unwrap();
        assert_eq!(current.epoch().get(), epoch);
        assert_eq!(patient.read().await.unwrap().as_ref(), Some(&current));
    }
}
