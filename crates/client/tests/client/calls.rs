//! What calls give, and what is not done.

use std::collections::BTreeSet;
use std::time::Duration;

use clockwise_client::commands::Reason;
use clockwise_client::credentials::Password;
use clockwise_client::resp::Value;
use clockwise_client::store::{RegistrantKind, Registry, RoutesBy};
use clockwise_client::{Access, BuildError, Client, Error};
use clockwise_cluster::{NewNode, NewPool};
use clockwise_testkit::{RedisOptions, RedisServer};

use crate::pool::{Pool, wait_until};

#[tokio::test]
async fn typed_calls_do_what_their_commands_do() {
    let pool = Pool::start(&["a", "b"]).await;
    let client = pool.client().await;
    assert_eq!(client.get("k").await, Ok(None));
    assert_eq!(client.set("k", "v").await, Ok(()));
    assert_eq!(client.get("k").await, Ok(Some(b"v".to_vec())));
    assert_eq!(client.add("k", "other").await, Ok(false));
    assert_eq!(client.add("new", b"\x00\r\n\xff").await, Ok(true));
    assert_eq!(client.get("new").await, Ok(Some(b"\x00\r\n\xff".to_vec())));
    assert_eq!(client.exists("k").await, Ok(true));
    assert_eq!(client.increment("count", 5).await, Ok(5));
    assert_eq!(client.increment("count", -7).await, Ok(-2));
    let hour = Duration::from_secs(3_600);
    assert_eq!(client.set_for("short", "v", hour).await, Ok(()));
    let left = client.command(&["PTTL", "short"]).await.unwrap();
    assert!((3_500_000..=3_600_000).contains(&left.as_integer().unwrap()));
    assert_eq!(client.expire("k", hour).await, Ok(true));
    assert_eq!(client.expire("nothing", hour).await, Ok(false));
    assert_eq!(client.delete("k").await, Ok(true));
    assert_eq!(client.delete("k").await, Ok(false));
    assert_eq!(client.exists("k").await, Ok(false));
    assert_eq!(client.set("", "empty").await, Ok(()));
    assert_eq!(client.get("").await, Ok(Some(b"empty".to_vec())));

    let refused = client.increment("new", 1).await.unwrap_err();
    let Error::Refused { node, message, .. } = &refused else {
        panic!("{refused}");
    };
    assert_eq!(*node, client.owner("new"));
    assert!(
        message.starts_with("ERR value is not an integer"),
        "{message}"
    );
}

#[tokio::test]
async fn keys_lie_where_the_client_says() {
    let pool = Pool::start(&["a", "b", "c"]).await;
    let client = pool.client().await;
    for number in 0..300 {
        let key = format!("key:{number}");
        client.set(&key, number.to_string()).await.unwrap();
    }
    let mut owners = BTreeSet::new();
    for number in 0..300 {
        let key = format!("key:{number}");
        let route = client.route(&key);
        let server = &pool.servers[route.node.as_str()];
        assert_eq!(server.cli(&["GET", &key]), number.to_string());
        assert_eq!(
            (route.address.as_str(), route.held),
            (&*server.addr(), false)
        );
        owners.insert(route.node);
    }
    assert_eq!(owners.len(), 3);
    assert_eq!(client.epoch(), pool.record().await.epoch());
    assert_eq!(client.trouble(), None);
}

#[tokio::test]
async fn any_command_whose_keys_are_on_one_node_is_done_and_others_say_why_not() {
    let pool = Pool::start(&["a", "b"]).await;
    let client = pool.client().await;
    let [one, two] = <[_; 2]>::try_from(Pool::keys_of(&client, "a", 2)).unwrap();
    let other = Pool::keys_of(&client, "b", 1).remove(0);
    let ask = async |line: &str| {
        let args: Vec<_> = line.split(' ').collect();
        client.command(&args).await
    };
    assert_eq!(
        ask(&format!("mset {one} 1 {two} 2")).await,
        Ok(Value::Simple("OK".into()))
    );
    let both = Value::Array(vec![Value::Bulk(b"1".to_vec()), Value::Bulk(b"2".to_vec())]);
    assert_eq!(ask(&format!("MGET {one} {two}")).await, Ok(both));
    assert_eq!(ask("HSET hash f v").await, Ok(Value::Integer(1)));
    let added = ask("XADD stream * f v").await.unwrap();
    assert!(matches!(added, Value::Bulk(_)), "{added:?}");
    let read = ask("XREAD COUNT 1 STREAMS stream 0").await.unwrap();
    assert!(matches!(read, Value::Map(_)), "{read:?}");

    let apart = ask(&format!("MGET {one} {other}")).await.unwrap_err();
    assert!(
        matches!(&apart, Error::Apart { one, other, .. }
        if one.as_str() == "a" && other.as_str() == "b"),
        "{apart}"
    );
    for (line, reason) in [
        ("BLPOP k 0", Reason::Blocking),
        ("XREAD BLOCK 0 STREAMS stream 0", Reason::Blocking),
        ("SUBSCRIBE k", Reason::PubSub),
        ("MULTI", Reason::SharedConnection),
        ("EVAL return 1 k", Reason::Scripts),
        ("FLUSHALL", Reason::Flush),
        ("DBSIZE", Reason::Keyless),
        ("CONFIG SET x y", Reason::Admin),
    ] {
        match ask(line).await {
            Err(Error::Unavailable { reason: found, .. }) => assert_eq!(found, reason, "{line}"),
            other => panic!("{line}: {other:?}"),
        }
    }
    assert!(matches!(
        ask("NONSENSE k").await,
        Err(Error::UnknownCommand { .. })
    ));
    assert!(matches!(ask("GET").await, Err(Error::Arguments { .. })));
    assert!(matches!(
        ask("SINTERCARD 9 k").await,
        Err(Error::Arguments { .. })
    ));
}

#[tokio::test]
async fn a_fixed_membership_needs_no_store() {
    let password = Password::generate().unwrap();
    let options = || RedisOptions {
        password: Some(password.reveal().to_owned()),
        ..RedisOptions::default()
    };
    let servers = [RedisServer::start(options()), RedisServer::start(options())];
    let nodes = ["a", "b"].iter().zip(&servers);
    let nodes = nodes
        .map(|(name, server)| NewNode::new(name.parse().unwrap(), server.addr().parse().unwrap()));
    let membership = || NewPool::new("main".parse().unwrap(), nodes.clone().collect());
    let client = Client::builder()
        .fixed(membership())
        .access(Access::User {
            name: "default".to_owned(),
            password: password.clone(),
        })
        .build()
        .await
        .unwrap();
    for number in 0..50 {
        let key = format!("key:{number}");
        client.set(&key, &key).await.unwrap();
        let server = &servers[usize::from(client.owner(&key).as_str() == "b")];
        assert_eq!(server.cli(&["GET", &key]), key);
    }
    // Whoever has the same membership places keys alike.
    let stranger = Client::builder().fixed(membership()).build().await.unwrap();
    assert_eq!(stranger.view().fingerprint(), client.view().fingerprint());
    let refused = stranger.get("key:1").await.unwrap_err();
    assert!(!refused.may_have_happened(), "{refused}");
}

#[tokio::test]
async fn what_makes_no_client_says_why() {
    let nothing = Client::builder().build().await.unwrap_err();
    assert!(matches!(nothing, BuildError::NoSource), "{nothing}");
    let empty = std::sync::Arc::new(clockwise_client::store::MemoryStore::new());
    let no_pool = Client::builder()
        .store(empty, None)
        .access(Access::Nobody)
        .build()
        .await
        .unwrap_err();
    assert!(matches!(no_pool, BuildError::NoPool), "{no_pool}");
    let folder = tempfile::tempdir().unwrap();
    let no_key = Client::builder()
        .folder(folder.path())
        .build()
        .await
        .unwrap_err();
    assert!(no_key.to_string().contains("pool.key"), "{no_key}");
}

#[tokio::test]
async fn it_registers_and_its_end_ends_everything() {
    let pool = Pool::start(&["a"]).await;
    let client = pool.builder().name("shop-7").build().await.unwrap();
    client.set("k", "v").await.unwrap();
    let listed = async || pool.store.registered().await.unwrap().entries;
    let by = RoutesBy::from(&*client.view());
    wait_until("it is listed with its view", async || {
        let entries = listed().await;
        entries.iter().any(|entry| {
            entry.place == "shop-7"
                && entry.kind == RegistrantKind::Client
                && entry.routes_by == Some(by)
        })
    })
    .await;
    let connections = || {
        let list = pool.servers["a"].cli(&["CLIENT", "LIST"]);
        list.lines()
            .filter(|line| line.contains("user=cw-g"))
            .count()
    };
    assert_eq!(connections(), 1);
    let clone = client.clone();
    drop(client);
    assert_eq!(clone.get("k").await, Ok(Some(b"v".to_vec())));
    drop(clone);
    wait_until("its connections are closed", async || connections() == 0).await;
    wait_until("it is not listed", async || listed().await.is_empty()).await;

    let client = pool.client().await;
    client.get("k").await.unwrap();
    client.close().await;
    assert!(listed().await.is_empty());
    wait_until("its connections are closed", async || connections() == 0).await;
}

/// What a script answers says nothing of what it has done before.
#[tokio::test]
async fn a_script_that_fails_may_have_written() {
    let pool = Pool::start(&["a"]).await;
    pool.commit(pool.record().await.with_scripts(true)).await;
    let client = pool.client().await;
    client.command(&["RPUSH", "list", "1"]).await.unwrap();
    let plain = client.command(&["INCR", "list"]).await.unwrap_err();
    assert!(!plain.may_have_happened(), "{plain}");

    let script = "redis.call('SET', KEYS[1], 'written') return redis.call('INCR', KEYS[2])";
    let failed = client.command(&["EVAL", script, "2", "k", "list"]).await;
    let failed = failed.unwrap_err();
    assert!(failed.to_string().contains("WRONGTYPE"), "{failed}");
    assert_eq!(client.get("k").await, Ok(Some(b"written".to_vec())));
    assert!(failed.may_have_happened(), "{failed}");

    let script = "redis.call('INCR', KEYS[1]) return redis.error_reply('BUSY as if')";
    let failed = client
        .command(&["EVAL", script, "1", "count"])
        .await
        .unwrap_err();
    assert!(
        !failed.is_retryable() && failed.may_have_happened(),
        "{failed}"
    );
    assert_eq!(client.get("count").await, Ok(Some(b"1".to_vec())));
}
