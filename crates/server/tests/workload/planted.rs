//! Faults planted in a server, and what the workload makes of them.

use std::time::Duration;

use clockwise::workload::{FaultKind, Pacing, Report, Workload, WorkloadOptions};

use crate::fake::{FakeServer, Plant};
use crate::{options, wait_for_writes, wait_until};

/// Runs until the fault happened often enough and was seen on enough keys.
async fn run(plant: Plant, keys_min: usize) -> Report {
    let server = FakeServer::start(plant).await;
    let workload = Workload::start(options(server.addr.clone())).await.unwrap();
    server.arm();
    let enough = || server.planted() >= 20 && workload.faults_so_far() >= keys_min;
    wait_until("the fault", enough).await;
    wait_for_writes(&workload, 1_000).await;
    server.disarm();
    let report = workload.stop().await;
    println!("{plant:?}: {} times\n{report}", server.planted());
    report
}

/// The fault is found under one of these names and under no other.
async fn check(plant: Plant, names: &[FaultKind]) {
    let report = run(plant, 5).await;
    let found: Vec<FaultKind> = FaultKind::ALL
        .into_iter()
        .filter(|kind| report.faults.of(*kind) > 0)
        .collect();
    assert!(
        found.contains(&names[0]),
        "{plant:?} was not found as {}: {found:?}",
        names[0]
    );
    assert!(
        found.iter().all(|kind| names.contains(kind)),
        "{plant:?} was found as {found:?}"
    );
    assert!(!report.is_clean());
    let described = report.described.iter().any(|fault| fault.kind == names[0]);
    assert!(described, "a fault is described");
}

/// What happens is no fault of the data.
async fn check_clean(plant: Plant) -> Report {
    let report = run(plant, 0).await;
    assert!(report.is_clean(), "{plant:?}");
    assert_eq!(report.keys_audited, report.keys);
    report
}

macro_rules! planted {
    ($($name:ident: $plant:expr => $($kind:ident)+;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                check($plant, &[$(FaultKind::$kind),+]).await;
            }
        )*
    };
}

planted! {
    a_lost_set_is_found: Plant::LoseSet => Lost Stale;
    a_lost_delete_is_found: Plant::LoseDelete => Resurrected;
    a_deleted_value_that_comes_back_is_found: Plant::Resurrect => Resurrected;
    a_stale_read_is_found: Plant::ServeStale => Stale Resurrected;
    an_expiry_moved_by_less_than_a_tenth_of_a_second_is_found:
        Plant::ShiftExpiry(90) => WrongTtl;
    an_expiry_moved_to_earlier_is_found: Plant::ShiftExpiry(-90) => WrongTtl Lost Stale;
    a_value_that_outlives_its_expiry_is_found: Plant::OutliveExpiry => WrongTtl;
    a_forgotten_expiry_is_found: Plant::ForgetExpiry => WrongTtl;
    a_lost_change_of_expiry_is_found: Plant::LoseExpire => WrongTtl Lost Stale;
    a_value_that_goes_early_is_found: Plant::ExpireEarly => Lost Stale;
    exchanged_replies_are_found: Plant::SwapReplies => Corrupt Stale Duplicated;
    values_exchanged_within_a_reply_are_found: Plant::SwapInMultiGet => Corrupt Stale Duplicated;
    a_damaged_value_is_found: Plant::DamageValue => Corrupt;
    an_increment_executed_twice_is_found: Plant::IncrementTwice => Duplicated;
    a_lost_increment_is_found: Plant::LoseIncrement => Lost Stale;
    a_refused_write_that_was_executed_is_found: Plant::RefuseExecuted => Phantom;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_writes_are_no_faults() {
    let report = check_clean(Plant::Refuse).await;
    assert!(report.refused_writes >= 20);
    assert_eq!(report.retryable_errors(), report.refused_writes);
    assert_eq!(report.other_errors(), 0);
    assert_eq!(report.unknown_writes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_connection_broke_may_be_there() {
    let report = check_clean(Plant::CloseExecuted).await;
    assert!(report.unknown_writes >= 20);
    assert!(report.connects >= 20 && report.errors["closed"].count >= 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_connection_broke_may_not_be_there() {
    let report = check_clean(Plant::CloseUnexecuted).await;
    assert!(report.unknown_writes >= 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_knows_only_times_to_live_is_checked_too() {
    let server = FakeServer::start(Plant::OldServer).await;
    let workload = Workload::start(options(server.addr.clone())).await.unwrap();
    wait_for_writes(&workload, 3_000).await;
    let report = workload.stop().await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.errors.len(), 0, "{report}");
}

/// At 1,000 requests a second, 400 are due in a stall of 400 ms: sent when it is over, they still
/// count from when they were due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_shows_in_every_request_that_was_due_in_it() {
    let server = FakeServer::start(Plant::Stall(400)).await;
    let workload = Workload::start(WorkloadOptions {
        rate: Some(1_000),
        pipeline: 1,
        ..options(server.addr.clone())
    });
    let workload = workload.await.unwrap();
    wait_for_writes(&workload, 200).await;
    let before = workload.mark();
    server.arm();
    wait_until("the stall", || server.planted() > 0).await;
    wait_for_writes(&workload, 500).await;
    let requests = {
        let span_end = workload.mark();
        let span = span_end.since(&before);
        span.acknowledged_writes() + span.reads()
    };
    let report = workload.stop().await;
    println!("{report}");
    assert!(report.is_clean());
    assert_eq!(report.pacing, Pacing::Open { rate: 1_000 });
    assert!(requests > 800, "what was due was made up for: {requests}");
    // Some 2,000 requests in all; one in five was due in the stall and one in ten in its first half.
    let all = report.read_latency.count + report.write_latency.count;
    assert!(all < 3_000, "{all}");
    assert!(
        report.read_latency.p99_us > 250_000,
        "{:?}",
        report.read_latency
    );
    assert!(
        report.read_latency.p90_us > 20_000,
        "{:?}",
        report.read_latency
    );
    assert!(
        report.read_latency.p50_us < 100_000,
        "{:?}",
        report.read_latency
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_that_cannot_be_are_refused_with_their_figures() {
    let cases = [
        (
            WorkloadOptions {
                keys: 127,
                ..options(String::new())
            },
            "at least 128 are needed",
        ),
        (
            WorkloadOptions {
                value_bytes: 47,
                ..options(String::new())
            },
            "at least 48",
        ),
        (
            WorkloadOptions {
                connections: 0,
                ..options(String::new())
            },
            "connections must not be 0",
        ),
        (
            WorkloadOptions {
                rate: Some(0),
                ..options(String::new())
            },
            "the rate must not be 0",
        ),
        (
            WorkloadOptions {
                ttl_ms: RANGE_EMPTY,
                ..options(String::new())
            },
            "range of lives is empty",
        ),
    ];
    for (options, expected) in cases {
        let error = Workload::start(options).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let closed = Workload::start(options("127.0.0.1:1".to_owned()))
        .await
        .unwrap_err();
    assert!(closed.to_string().starts_with("127.0.0.1:1: "), "{closed}");
}

const RANGE_EMPTY: std::ops::RangeInclusive<u64> = std::ops::RangeInclusive::new(2, 1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_workload_lets_its_connections_go() {
    let server = FakeServer::start(Plant::Nothing).await;
    let workload = Workload::start(options(server.addr.clone())).await.unwrap();
    wait_for_writes(&workload, 100).await;
    assert!(server.connections() > 0);
    drop(workload);
    let gone = async {
        while server.connections() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone)
        .await
        .expect("the server still has connections of a workload that is gone");
}
