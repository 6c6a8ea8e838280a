//! One plan is applied once, however often and by whomever it is applied.

use clockwise_client::store::CommitError;
use clockwise_cluster::{Apply, ApplyError};

use crate::load::fill;
use crate::pool::{Pool, applied, nonce};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_applies_of_one_plan_one_takes_place_and_the_other_is_told() {
    let mut pool = Pool::start(&["a", "b", "c"]).await;
    fill(&pool, 8_000).await;
    pool.stage_join("d").await;
    pool.throttle(4_000).await;
    let planned = pool.record().await;
    let commit = || {
        let next = applied(&planned).unwrap();
        pool.store.commit(planned.revision(), next, None)
    };
    let (first, second) = tokio::join!(commit(), commit());
    let refused = match (first, second) {
        (Ok(_), Err(refused)) | (Err(refused), Ok(_)) => refused,
        both => panic!("{both:?}"),
    };
    let CommitError::Conflict { current, .. } = refused else {
        panic!("{refused:?}")
    };
    // Whoever came second plans again, and hears what runs or that its plan is old.
    let running = current.unwrap();
    let again = applied(&running).unwrap_err();
    assert!(
        matches!(again, ApplyError::ChangeInFlight { .. }),
        "{again:?}"
    );
    let old = running.apply(Apply {
        expected: planned.epoch(),
        id: "late".parse().unwrap(),
        now_ms: 1,
        nonces: &mut nonce,
    });
    assert!(
        matches!(
            old,
            Err(ApplyError::EpochMoved { .. } | ApplyError::ChangeInFlight { .. })
        ),
        "{old:?}"
    );
    pool.settle().await;
    assert_eq!(pool.check_places().await, 8_000);
    let record = pool.record().await;
    let name = record.finished().unwrap().id.to_string();
    assert_eq!(name, running.change().unwrap().id.to_string());
    assert!(
        record.staged().is_empty(),
        "nothing is left to be applied again"
    );
}
