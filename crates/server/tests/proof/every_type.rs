//! Every type of Redis survives a move, with and without expiry, while it is written to; compared with a
//! twin on a server of its own that was told the same.

use std::collections::BTreeMap;
use std::time::Duration;

use clockwise_testkit::{RedisOptions, RedisServer};
use tokio::time::sleep;

use crate::keys::way;
use crate::pool::Pool;
use crate::values::{KINDS, Times, Twins, changing, held, making, names};

const EACH: usize = 30;
/// Between two commands: so many that keys change under the copy, and so few that it keeps up.
const PAUSE: Duration = Duration::from_millis(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_survives_a_move_while_it_is_written_to() {
    let mut pool = Pool::start(&["a", "b", "c"]).await;
    let twin = RedisServer::start(RedisOptions::default());
    let mut twins = Twins::connect(pool.router(), twin.socket_addr());
    for (number, (kind, key)) in names(EACH).enumerate() {
        twins.run(&making(kind, &key, number));
    }
    pool.stage_join("d").await;
    pool.throttle(60).await;
    let ahead = pool.view_ahead().await;
    let mut moved: BTreeMap<&str, usize> = BTreeMap::new();
    for (kind, key) in names(EACH) {
        *moved.entry(kind).or_default() += usize::from(way(&ahead, key.as_bytes()).is_some());
    }
    println!("{moved:?} of {EACH} each move");
    assert!(
        KINDS.iter().all(|kind| moved[kind] >= 2),
        "each kind is moved: {moved:?}"
    );

    pool.apply().await;
    let mut at = 20;
    let mut all = names(EACH).cycle();
    let mut during = 0;
    while pool.record().await.change().is_some() {
        let (kind, key) = all.next().unwrap();
        twins.run(&[changing(kind, &key, at)]);
        during += usize::from(way(&ahead, key.as_bytes()).is_some());
        at += 1;
        sleep(PAUSE).await;
    }
    println!(
        "{} commands during the move, {during} to moving keys",
        at - 20
    );
    assert!(during > 100, "too few commands for moving keys: {during}");

    for (kind, key) in names(EACH) {
        let pool = held(&mut twins.pool, kind, &key, Times::Left);
        assert_eq!(
            pool,
            held(&mut twins.twin, kind, &key, Times::Left),
            "{key}"
        );
        assert!(
            pool[0].contains(if kind == "group" { "stream" } else { kind }),
            "{pool:?}"
        );
    }
    assert_eq!(pool.check_places().await, EACH * KINDS.len());
}

/// What only the server that was asked can know: when which consumer was served last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_is_the_same_to_the_millisecond_after_a_move() {
    let mut pool = Pool::start(&["a", "b", "c"]).await;
    let mut client = crate::client::Client::connect(pool.router());
    for (number, (kind, key)) in names(EACH).enumerate() {
        client.pipeline(&making(kind, &key, number));
    }
    let look = |client: &mut crate::client::Client| -> Vec<Vec<String>> {
        names(EACH)
            .map(|(kind, key)| held(client, kind, &key, Times::Kept))
            .collect()
    };
    let before = look(&mut client);
    pool.stage_join("d").await;
    pool.stage_leave("a").await;
    pool.apply().await;
    pool.settle().await;
    assert_eq!(look(&mut client), before);
    assert_eq!(pool.check_places().await, EACH * KINDS.len());
}
