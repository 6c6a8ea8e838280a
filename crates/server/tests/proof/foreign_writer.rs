//! Somebody else who may write to a node could not be fenced: the change is refused with the name of the
//! user, unless the pool allows just that one.

use clockwise::rebalancer::{Trial, preflight};

use crate::load::fill;
use crate::pool::{Pool, applied, redis_driver};

/// A pool with a writer and a reader of somebody else at node a, and a node that is to join.
async fn pool() -> Pool {
    let mut pool = Pool::start(&["a", "b", "c"]).await;
    fill(&pool, 4_000).await;
    pool.admin("a")
        .run("ACL SETUSER billing on >secret ~* +@all");
    // One who can only read is nobody to be afraid of.
    pool.admin("a")
        .run("ACL SETUSER reporting on >secret ~* +@read");
    pool.stage_join("d").await;
    pool
}

async fn allow_billing(pool: &Pool) {
    pool.change(|record| {
        record
            .with_foreign_writers(vec!["billing".to_owned()])
            .unwrap()
    })
    .await;
}

async fn refusals(pool: &Pool) -> Vec<String> {
    let next = applied(&*pool.record().await).unwrap();
    let refusals = preflight(&*redis_driver(), &next, Trial::Canary)
        .await
        .unwrap();
    refusals.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_refused_with_the_name_of_another_user_who_can_write_unless_he_is_allowed() {
    let pool = pool().await;
    let found = refusals(&pool).await;
    println!("{found:?}");
    assert_eq!(found.len(), 1, "one reason: {found:?}");
    assert!(found[0].contains("billing") && !found[0].contains("reporting"));
    allow_billing(&pool).await;
    assert_eq!(refusals(&pool).await, [""; 0]);
    pool.apply().await;
    pool.settle().await;
    assert_eq!(pool.check_places().await, 4_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_another_user_who_can_write_gives_nothing_away_until_he_is_allowed() {
    let pool = pool().await;
    pool.apply().await;
    let why = pool.stopped().await;
    println!("{why}");
    assert!(
        why.contains("billing") && !why.contains("reporting"),
        "{why}"
    );
    let view = pool.view().await;
    let of_a = |key: &&Vec<u8>| {
        let position = view.position(key);
        view.moving(position)
            .is_some_and(|moving| view.node(moving.before).id.as_str() == "a")
    };
    assert_eq!(
        pool.keys()["d"].iter().filter(of_a).count(),
        0,
        "copies of what a has"
    );
    allow_billing(&pool).await;
    pool.serving().rebalancer.retry().await.unwrap();
    pool.settle().await;
    assert_eq!(pool.check_places().await, 4_000);
}
