//! Users of ours: what client users may do, and that making them starts from nothing.

use clockwise::driver::redis::RESERVED_PREFIX;
use clockwise::driver::{Driver, Generation, Term};
use clockwise_client::resp::Value;

use crate::setup::{Client, Random, driver, key, node, options, session, start};

fn is_refused(reply: &Value) -> bool {
    matches!(reply, Value::Error(why) if why.starts_with("NOPERM"))
}

#[tokio::test]
async fn a_client_user_may_touch_every_key_but_those_with_the_reserved_prefix() {
    let server = start();
    session(&server)
        .await
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    let mut client = Client::login(&server, "cw-g1", "secret");

    // Every way to begin like the prefix and to leave it, at every place, with every byte.
    let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
    for shared in 0..=RESERVED_PREFIX.len() {
        keys.push(RESERVED_PREFIX[..shared].to_vec());
        for byte in 0..=u8::MAX {
            for tail in [&b""[..], b"x", b"~cw~", b"\r\n*"] {
                keys.push([&RESERVED_PREFIX[..shared], &[byte], tail].concat());
            }
        }
    }
    let mut random =
        Random::seeded("a_client_user_may_touch_every_key_but_those_with_the_reserved_prefix");
    for _ in 0..2000 {
        let shared = random.below(RESERVED_PREFIX.len() + 1);
        keys.push([&RESERVED_PREFIX[..shared], &random.bytes(6)].concat());
    }
    for key in &keys {
        let reply = client.ask(&[b"SET", key, b"v"]);
        let expected = key.starts_with(RESERVED_PREFIX);
        assert_eq!(
            is_refused(&reply),
            expected,
            "{:?}: {reply:?}",
            key.escape_ascii().to_string()
        );
    }
}

#[tokio::test]
async fn a_client_user_may_work_with_data_and_not_with_the_server() {
    let server = start();
    session(&server)
        .await
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    let mut client = Client::login(&server, "cw-g1", "secret");
    for line in [
        "SET k v",
        "INCR n",
        "RPUSH l a b",
        "SORT l ALPHA STORE m",
        "SORT_RO l ALPHA BY nothing",
        "HSET h f v",
        "ZADD z 1 a",
        "XADD x * f v",
        "SCAN 0",
        "DBSIZE",
        "COMMAND COUNT",
        "CLIENT ID",
        "SUBSCRIBE c",
        "UNSUBSCRIBE c",
        "PUBLISH c m",
        "MULTI",
        "DISCARD",
        "DUMP k",
        "PING",
    ] {
        let reply = client.ask(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    }
    for line in [
        "FLUSHALL",
        "FLUSHDB",
        "SELECT 1",
        "MOVE k 1",
        "SWAPDB 0 1",
        "KEYS *",
        "CONFIG GET *",
        "ACL LIST",
        "ACL SETUSER cw-g1 +@all",
        "CLIENT KILL TYPE normal",
        "CLIENT LIST",
        "REPLICAOF NO ONE",
        "SHUTDOWN NOSAVE",
        "RESTORE k 0 x",
        "EVAL return 0",
        "FUNCTION FLUSH",
        "FUNCTION DELETE x",
        "SCRIPT FLUSH",
    ] {
        let reply = client.ask(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        assert!(is_refused(&reply), "{line}: {reply:?}");
    }
}

#[tokio::test]
async fn scripts_are_for_pools_that_allow_them_and_see_no_reserved_key() {
    let server = start();
    let scripts =
        clockwise::driver::redis::RedisDriver::new(clockwise::driver::redis::RedisOptions {
            scripts: true,
            ..options()
        });
    let session = scripts.session(&node(&server), Term(1)).await.unwrap();
    session
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    let mut client = Client::login(&server, "cw-g1", "secret");
    let set = b"return redis.call('SET', KEYS[1], 'v')";
    assert_eq!(
        client.ask(&[b"EVAL", set, b"1", b"k"]),
        Value::Simple("OK".to_owned())
    );
    let undeclared = b"return redis.call('SET', '~cw~k', 'v')";
    assert!(matches!(
        client.ask(&[b"EVAL", undeclared, b"0"]),
        Value::Error(_)
    ));
    for line in ["FUNCTION FLUSH", "FUNCTION DELETE x", "FUNCTION RESTORE x"] {
        let reply = client.ask(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        assert!(is_refused(&reply), "{line}: {reply:?}");
    }
}

#[tokio::test]
async fn a_user_is_made_from_nothing_even_where_one_of_its_name_exists() {
    let server = start();
    let mut admin = Client::admin(&server);
    admin.run("ACL SETUSER cw-g1 on >planted ~* &* +@all");
    session(&server)
        .await
        .make_client_user(Generation(1), "secret")
        .await
        .unwrap();
    let reply = Client::connect(&server).ask(&[b"AUTH", b"cw-g1", b"planted"]);
    assert!(
        matches!(&reply, Value::Error(why) if why.starts_with("WRONGPASS")),
        "{reply:?}"
    );
    let mut client = Client::login(&server, "cw-g1", "secret");
    assert!(is_refused(&client.ask(&[b"FLUSHALL"])));
    assert!(is_refused(&client.ask(&[b"SET", b"~cw~x", b"v"])));
}

#[tokio::test]
async fn generations_are_listed_kept_and_removed_by_number() {
    let server = start();
    let mut admin = Client::admin(&server);
    admin.run("ACL SETUSER cw-g07 on >x ~* +@all");
    admin.run("ACL SETUSER app on >x ~* +get");
    let session = session(&server).await;
    for generation in [3, 9, 10, 200] {
        session
            .make_client_user(Generation(generation), "secret")
            .await
            .unwrap();
    }
    assert_eq!(
        session.client_users().await.unwrap(),
        [3, 9, 10, 200].map(Generation)
    );
    session
        .keep_client_users(&[Generation(9), Generation(200), Generation(5)])
        .await
        .unwrap();
    assert_eq!(
        session.client_users().await.unwrap(),
        [9, 200].map(Generation)
    );
    session.keep_client_users(&[]).await.unwrap();
    assert_eq!(session.client_users().await.unwrap(), []);
    // What is not ours by name is left alone.
    let users = admin.run("ACL USERS");
    let users: Vec<_> = users
        .as_array()
        .unwrap()
        .iter()
        .map(|user| user.as_text().unwrap())
        .collect();
    assert_eq!(users, ["app", "cw-g07", "cw-t1", "default"]);
}

#[tokio::test]
async fn a_higher_term_ends_the_sessions_of_lower_ones_and_not_the_other_way_round() {
    let server = start();
    let driver = driver();
    let old = driver.session(&node(&server), Term(4)).await.unwrap();
    let new = driver.session(&node(&server), Term(5)).await.unwrap();
    assert!(old.size().await.is_err());
    assert!(old.make_client_user(Generation(1), "secret").await.is_err());
    new.size().await.unwrap();
    // Terms are told apart by number, not as text.
    let newest = driver.session(&node(&server), Term(10)).await.unwrap();
    assert!(new.size().await.is_err());
    let late = driver.session(&node(&server), Term(9)).await.unwrap();
    newest.size().await.unwrap();
    late.size().await.unwrap();
}

#[tokio::test]
async fn a_second_session_of_one_term_ends_the_first_and_what_it_had_on_its_way() {
    let server = start();
    let driver = driver();
    let first = driver.session(&node(&server), Term(1)).await.unwrap();
    let mut tracker = first.track().await.unwrap();
    let second = driver.session(&node(&server), Term(1)).await.unwrap();
    assert!(first.remove(&[key("k")]).await.is_err());
    assert_eq!(tracker.next().await, clockwise::driver::Dirty::Lost);
    second.size().await.unwrap();
}
