//! What stays behind at a node that leaves.

use clockwise_client::resp::Value;

use crate::pool::{Pool, numbered};

fn client_users(pool: &Pool, name: &str) -> Vec<String> {
    let Value::Array(users) = pool.admin(name).ask(&[b"ACL", b"USERS"]) else {
        panic!("no list of users")
    };
    let text = |user| match user {
        Value::Bulk(name) => String::from_utf8_lossy(&name).into_owned(),
        other => panic!("{other:?}"),
    };
    let users = users.into_iter().map(text);
    users.filter(|user| user.starts_with("cw-g")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_left_lets_no_client_in_any_more() {
    let mut pool = Pool::start(&["a", "b"]).await;
    let keys = numbered(1_000);
    pool.fill(&keys, |key| key.to_vec()).await;
    assert!(!client_users(&pool, "b").is_empty());
    pool.remove("b").await;
    pool.apply().await;
    pool.settle().await;
    pool.wait("b's station has ended", |progress| {
        !progress.doors.iter().any(|(id, _)| id.as_str() == "b")
    })
    .await;
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(20));
    while !client_users(&pool, "b").is_empty() {
        looks.tick().await;
    }
    assert!(!client_users(&pool, "a").is_empty());
    assert_eq!(pool.check_places().await, keys.len());
}
