//! Values travel whole: every type, with and without expiry, bytes of any kind.

use clockwise::driver::{Item, Key, Payload, Read, Session, WriteRefused};
use clockwise_testkit::RedisOptions as Started;

use crate::setup::{Client, Random, all_keys, copy, key, session, start, start_with};

/// Far enough for any test, and not a round number.
const LATER_MS: &str = "4102444800123";

/// One key of each type, and a second with an expiry.
fn fill_with_every_type(client: &mut Client) {
    for name in ["a", "b"] {
        for line in [
            "SET string:NAME value",
            "SET number:NAME 1234567",
            "SETBIT bits:NAME 1000 1",
            "PFADD loglog:NAME a b c d",
            "RPUSH list:NAME one two three one",
            "SADD set:NAME x y z",
            "SADD intset:NAME 1 2 3",
            "HSET hash:NAME f v g w",
            "ZADD zset:NAME 1.5 a -inf b 3.14 c",
            "GEOADD geo:NAME 13.361389 38.115556 Palermo",
            "XADD stream:NAME 1-1 f v",
            "XADD stream:NAME 2-1 f v g w",
            "XGROUP CREATE stream:NAME group 0",
            "XGROUP CREATECONSUMER stream:NAME group idle",
            "XREADGROUP GROUP group worker COUNT 1 STREAMS stream:NAME >",
            "XADD plainstream:NAME 1-1 f v",
        ] {
            client.run(&line.replace("NAME", name));
        }
    }
    for kind in [
        "string", "number", "bits", "loglog", "list", "set", "intset", "hash", "zset", "geo",
        "stream",
    ] {
        client.run(&format!("PEXPIREAT {kind}:b {LATER_MS}"));
    }
}

#[tokio::test]
async fn every_type_arrives_as_it_left_with_its_expiry() {
    let (source, target) = (start(), start());
    fill_with_every_type(&mut Client::admin(&source));
    let (from, to) = (session(&source).await, session(&target).await);
    let keys = all_keys(from.as_ref()).await;
    assert_eq!(keys.len(), 24);
    assert_eq!(copy(from.as_ref(), to.as_ref(), &keys).await, 0);
    assert_eq!(all_keys(to.as_ref()).await, keys);
    let digests = from.digests(&keys).await.unwrap();
    assert_eq!(to.digests(&keys).await.unwrap(), digests);
    assert!(digests.iter().all(Option::is_some));
    let mut client = Client::admin(&target);
    for (name, expiry) in [
        ("string:a", -1),
        ("string:b", 4_102_444_800_123),
        ("stream:b", 4_102_444_800_123),
    ] {
        assert_eq!(
            client.run(&format!("PEXPIRETIME {name}")).as_integer(),
            Some(expiry),
            "{name}"
        );
    }
}

#[tokio::test]
async fn only_streams_are_reported_as_not_fully_tracked() {
    let source = start();
    fill_with_every_type(&mut Client::admin(&source));
    let from = session(&source).await;
    for key in all_keys(from.as_ref()).await {
        let item = item_of(from.as_ref(), &key).await;
        let is_stream = key.starts_with(b"stream:") || key.starts_with(b"plainstream:");
        assert_eq!(item.untracked, is_stream, "{key:?}");
        let is_string = [&b"string:"[..], b"number:", b"bits:", b"loglog:"]
            .iter()
            .any(|name| key.starts_with(name));
        assert_eq!(
            matches!(item.payload, Payload::Text(_)),
            is_string,
            "{key:?}"
        );
    }
}

#[tokio::test]
async fn a_write_replaces_what_is_there_whatever_its_type_and_expiry() {
    let (source, target) = (start(), start());
    fill_with_every_type(&mut Client::admin(&source));
    let mut there = Client::admin(&target);
    let (from, to) = (session(&source).await, session(&target).await);
    let keys = all_keys(from.as_ref()).await;
    for (rank, key) in keys.iter().enumerate() {
        let args: [&[u8]; 3] = if rank % 2 == 0 {
            [b"RPUSH", key, b"old"]
        } else {
            [b"SET", key, b"old"]
        };
        there.ask(&args);
        there.ask(&[b"EXPIRE", key, b"1000"]);
    }
    copy(from.as_ref(), to.as_ref(), &keys).await;
    assert_eq!(
        to.digests(&keys).await.unwrap(),
        from.digests(&keys).await.unwrap()
    );
}

#[tokio::test]
async fn keys_and_values_of_any_bytes_travel() {
    let (source, target) = (start(), start());
    let mut client = Client::admin(&source);
    let mut random = Random::seeded("keys_and_values_of_any_bytes_travel");
    let mut keys = vec![
        key(""),
        key("\r\n"),
        key([0]),
        key([0xff; 64]),
        key("a b\tc"),
        key("*?[x]\\"),
    ];
    keys.push(key(vec![b'k'; 64 << 10]));
    keys.extend((0..300).map(|_| key(random.bytes(40))));
    for key in &keys {
        client.ask(&[b"SET", key, &random.bytes(300)]);
    }
    keys.sort_unstable();
    keys.dedup();
    let (from, to) = (session(&source).await, session(&target).await);
    assert_eq!(all_keys(from.as_ref()).await, keys);
    copy(from.as_ref(), to.as_ref(), &keys).await;
    assert_eq!(
        to.digests(&keys).await.unwrap(),
        from.digests(&keys).await.unwrap()
    );
    let mut there = Client::admin(&target);
    for key in &keys {
        assert_eq!(
            there.ask(&[b"GET", key]),
            client.ask(&[b"GET", key]),
            "{key:?}"
        );
    }
}

#[tokio::test]
async fn values_around_every_limit_of_the_driver_travel() {
    let (source, target) = (start(), start());
    let mut client = Client::admin(&source);
    let head = 16 << 10;
    let text_max = 4 << 20;
    let mut keys = Vec::new();
    for length in [
        0,
        1,
        head - 1,
        head,
        head + 1,
        100_000,
        text_max,
        text_max + 1,
        3 * text_max,
    ] {
        keys.push(key(format!("string of {length}")));
        let value: Vec<u8> = (0..length)
            .map(|at| u8::try_from(at % 251).unwrap())
            .collect();
        client.ask(&[b"SET", keys.last().unwrap(), &value]);
    }
    for elements in [1, 600, 9_999, 10_000, 10_001, 30_000] {
        keys.push(key(format!("hash of {elements}")));
        client.ask(&[
            b"EVAL",
            b"for i = 1, ARGV[1] do redis.call('HSET', KEYS[1], 'field' .. i, 'value' .. i) end",
            b"1",
            keys.last().unwrap(),
            elements.to_string().as_bytes(),
        ]);
    }
    let (from, to) = (session(&source).await, session(&target).await);
    keys.sort_unstable();
    let large = copy(from.as_ref(), to.as_ref(), &keys).await;
    assert_eq!(large, 4, "two strings and two hashes are beyond the limits");
    assert_eq!(
        to.digests(&keys).await.unwrap(),
        from.digests(&keys).await.unwrap()
    );
}

#[tokio::test]
async fn a_read_of_many_large_values_answers_for_the_first_and_keeps_the_order() {
    let source = start();
    let mut client = Client::admin(&source);
    let keys: Vec<_> = (0..20).map(|rank| key(format!("key{rank:02}"))).collect();
    for key in &keys {
        client.ask(&[b"SET", key, &vec![b'v'; 1 << 20]]);
    }
    let from = session(&source).await;
    let read = from.read(&keys).await.unwrap();
    assert!((1..keys.len()).contains(&read.len()), "{}", read.len());
    assert!(
        read.iter()
            .all(|read| matches!(read, Read::Item(item) if item.payload.len() == 1 << 20))
    );
    assert!(from.read(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_gone_or_has_expired_is_read_as_gone_and_written_as_nothing() {
    let (source, target) = (start(), start());
    let mut client = Client::admin(&source);
    client.run("SET short v PX 1");
    while client.run("EXISTS short").as_integer() == Some(1) {}
    client.run("SET kept v");
    let (from, to) = (session(&source).await, session(&target).await);
    let keys = [key("short"), key("never"), key("kept")];
    let read = from.read(&keys).await.unwrap();
    assert!(
        matches!(read.as_slice(), [Read::Gone, Read::Gone, Read::Item(_)]),
        "{read:?}"
    );
    assert_eq!(from.exists(&keys).await.unwrap(), [false, false, true]);
    assert_eq!(from.digests(&keys).await.unwrap()[..2], [None, None]);

    client.run("RPUSH list a b");
    let dump = item_of(from.as_ref(), &key("list")).await;
    let text = Item {
        payload: Payload::Text(key("v")),
        expires_at_ms: Some(1000),
        untracked: false,
    };
    let dump = Item {
        expires_at_ms: Some(1000),
        ..dump
    };
    let mut there = Client::admin(&target);
    there.run("SET text old");
    there.run("SET list old");
    let written = to
        .write(vec![(key("text"), text), (key("list"), dump)])
        .await
        .unwrap();
    assert_eq!(written, [Ok(()), Ok(())]);
    assert_eq!(
        to.exists(&[key("text"), key("list")]).await.unwrap(),
        [false, false]
    );
}

#[tokio::test]
async fn removing_says_how_many_there_were() {
    let source = start();
    let mut client = Client::admin(&source);
    let keys: Vec<_> = (0..1300).map(|rank| key(format!("key{rank}"))).collect();
    for key in &keys[..1200] {
        client.ask(&[b"SET", key, b"v"]);
    }
    let from = session(&source).await;
    assert_eq!(from.size().await.unwrap().0, 1200);
    assert_eq!(from.remove(&keys).await.unwrap(), 1200);
    assert_eq!(from.remove(&keys).await.unwrap(), 0);
    assert_eq!(from.remove(&[]).await.unwrap(), 0);
    let (left, memory) = from.size().await.unwrap();
    assert_eq!(left, 0);
    assert!(memory > 100_000);
}

#[tokio::test]
async fn a_full_target_says_so_for_each_key_and_takes_again_what_it_has_room_for() {
    let source = start();
    let target = start_with(Started {
        max_memory: Some(6 << 20),
        ..Started::default()
    });
    let mut client = Client::admin(&source);
    let keys: Vec<_> = (0..8).map(|rank| key(format!("key{rank}"))).collect();
    for key in &keys {
        client.ask(&[b"SET", key, &vec![b'v'; 1 << 20]]);
    }
    client.run("RPUSH list a b c");
    let (from, to) = (session(&source).await, session(&target).await);
    let mut written = Vec::new();
    for key in &keys {
        let item = item_of(from.as_ref(), key).await;
        written.extend(to.write(vec![(key.clone(), item)]).await.unwrap());
    }
    assert_eq!(written.first(), Some(&Ok(())));
    assert_eq!(written.last(), Some(&Err(WriteRefused::OutOfMemory)));
    assert_eq!(
        to.remove(&keys).await.unwrap(),
        written.iter().filter(|written| written.is_ok()).count() as u64
    );

    let mut there = Client::admin(&target);
    let items = vec![
        (key("list"), item_of(from.as_ref(), &key("list")).await),
        (
            key("text"),
            Item {
                payload: Payload::Text(key("v")),
                expires_at_ms: None,
                untracked: false,
            },
        ),
    ];
    there.run("CONFIG SET maxmemory 1");
    assert_eq!(
        to.write(items.clone()).await.unwrap(),
        vec![Err(WriteRefused::OutOfMemory); 2]
    );
    there.run("CONFIG SET maxmemory 0");
    assert_eq!(to.write(items).await.unwrap(), [Ok(()), Ok(())]);
}

#[tokio::test]
async fn a_damaged_dump_is_refused_and_the_rest_of_the_batch_is_written() {
    let (source, target) = (start(), start());
    Client::admin(&source).run("RPUSH list a b c");
    let (from, to) = (session(&source).await, session(&target).await);
    let list = item_of(from.as_ref(), &key("list")).await;
    let Payload::Dump(dump) = &list.payload else {
        panic!("a list is dumped")
    };
    let mut damaged = dump.to_vec();
    damaged[3] ^= 1;
    let damaged = Item {
        payload: Payload::Dump(damaged.into()),
        ..list.clone()
    };
    let written = to
        .write(vec![(key("x"), damaged), (key("list"), list)])
        .await
        .unwrap();
    assert!(
        matches!(
            written.as_slice(),
            [Err(WriteRefused::BadPayload(_)), Ok(())]
        ),
        "{written:?}"
    );
}

async fn item_of(session: &dyn Session, key: &Key) -> Item {
    match session
        .read(std::slice::from_ref(key))
        .await
        .unwrap()
        .remove(0)
    {
        Read::Item(item) => item,
        other => panic!("{key:?}: {other:?}"),
    }
}

/// What is cheap for strings gives what the careful way gives, also where there are others among them.
#[tokio::test]
async fn keys_of_every_type_are_read_right_by_a_session_that_has_seen_only_strings() {
    let server = start();
    let mut client = Client::admin(&server);
    let mut keys = Vec::new();
    for number in 0..300 {
        let name = format!("text:{number}");
        client.run(&format!("SET {name} {number}"));
        if number % 3 == 0 {
            client.run(&format!("PEXPIREAT {name} 4102444800{number:03}"));
        }
        keys.push(key(&name));
    }
    client.ask(&[b"SET", b"empty", b""]);
    let long = vec![b'x'; 100_000];
    client.ask(&[b"SET", b"long", &long]);
    client.run("HSET hash f v");
    client.run("XADD stream 1-1 f v");
    client.run("PEXPIREAT hash 4102444800123");
    let others = ["empty", "long", "hash", "none", "stream"].map(key);
    let careful = session(&server).await.read(&others).await.unwrap();
    let session = session(&server).await;
    let texts = session.read(&keys).await.unwrap();
    assert_eq!(session.read(&others).await.unwrap(), careful);
    assert_eq!(session.read_small(&others).await.unwrap(), careful);
    let mixed = [&keys[..200], &others, &keys[200..]].concat();
    let expected = [&texts[..200], &careful, &texts[200..]].concat();
    assert_eq!(session.read(&mixed).await.unwrap(), expected);
    assert_eq!(session.read_small(&mixed).await.unwrap(), expected);
    assert_eq!(session.read_small(&[]).await.unwrap(), []);
    // Written together or one by one, each is what it was.
    let target = start();
    let to = crate::setup::session(&target).await;
    let count = copy(session.as_ref(), to.as_ref(), &mixed).await;
    assert_eq!(count, 0, "none is large");
    assert_eq!(
        to.digests(&mixed).await.unwrap(),
        session.digests(&mixed).await.unwrap()
    );
}
