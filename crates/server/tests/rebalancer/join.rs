//! A node joins.

use std::sync::Arc;

use crate::meddled::{Meddling, meddled};
use crate::pool::{Pool, numbered};
use clockwise_client::resp::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_moves_the_keys_that_change_their_owner_and_touches_no_others() {
    let mut pool = Pool::start(&["a", "b", "c"]).await;
    let keys = numbered(20_000);
    let value = |key: &[u8]| [key, b"=value"].concat();
    pool.fill(&keys, value).await;
    pool.add("d").await;
    pool.apply().await;
    let took = pool.settle().await;
    println!("{took:?}");
    assert_eq!(pool.check_places().await, keys.len());
    for (key, found) in keys.iter().zip(pool.values(&keys).await) {
        assert_eq!(
            found,
            Value::Bulk(value(key)),
            "{}",
            String::from_utf8_lossy(key)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_goes_on_however_fast_keys_are_told_to_be_touched() {
    let mut pool = Pool::without_rebalancer(&["a", "b"]).await;
    pool.driver = meddled(Arc::clone(&pool.driver), Meddling::Flooded);
    pool.lead().await;
    let keys = numbered(2_000);
    pool.fill(&keys, <[u8]>::to_vec).await;
    pool.add("c").await;
    pool.apply().await;
    pool.settle().await;
    assert_eq!(pool.check_places().await, keys.len());
}
