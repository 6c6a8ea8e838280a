//! Digests: equal for equal content, different for any difference.

use clockwise::driver::{Digest, Session};
use clockwise_testkit::{RedisOptions as Started, RedisServer};

use crate::setup::{Client, Random, all_keys, key, session, start, start_with};

async fn digest(session: &dyn Session, name: &str) -> Digest {
    session.digests(&[key(name)]).await.unwrap()[0].unwrap()
}

#[track_caller]
fn build(client: &mut Client, lines: &[&str]) {
    client.run("FLUSHALL");
    for line in lines {
        client.run(line);
    }
}

/// Makes the key `k` in two ways, and says whether the digests are equal.
async fn are_equal(
    client: &mut Client,
    session: &dyn Session,
    one: &[&str],
    other: &[&str],
) -> bool {
    build(client, one);
    let first = digest(session, "k").await;
    build(client, other);
    first == digest(session, "k").await
}

#[tokio::test]
async fn equal_content_has_equal_digests_whatever_its_order_encoding_and_history() {
    // Small limits make the server use its large encodings.
    let server = start();
    let session = session(&server).await;
    let mut client = Client::admin(&server);
    for (one, other) in [
        (&["SET k 12345"][..], &["APPEND k 123", "APPEND k 45"][..]),
        (
            &["SET k aaaaaaaaaabbbbbbbbbb"],
            &["SETRANGE k 10 bbbbbbbbbb", "SETRANGE k 0 aaaaaaaaaa"],
        ),
        (&["RPUSH k a b c"], &["LPUSH k c b a"]),
        (
            &["RPUSH k a b c"],
            &["CONFIG SET list-max-listpack-size 1", "RPUSH k a b c"],
        ),
        (&["SADD k a b c"], &["SADD k c d a b", "SREM k d"]),
        (&["SADD k 1 2 3"], &["SADD k 1 2 3 x", "SREM k x"]),
        (
            &["HSET k a 1 b 2"],
            &["HSET k b 2", "HSET k a 0", "HINCRBY k a 1"],
        ),
        (
            &["HSET k a 1 b 2"],
            &["CONFIG SET hash-max-listpack-entries 1", "HSET k a 1 b 2"],
        ),
        (&["ZADD k 1 a 2.5 b"], &["ZADD k 2.5 b 7 a", "ZADD k 1 a"]),
        (
            &["ZADD k 3.14 a inf b 1e300 c"],
            &[
                "CONFIG SET zset-max-listpack-entries 1",
                "ZADD k 3.14 a +inf b 1e300 c",
            ],
        ),
        (
            &["SET k v PXAT 4102444800123"],
            &["SET k v", "PEXPIREAT k 4102444800123"],
        ),
        (
            &["XADD k 1-1 f v", "XADD k 2-1 f v"],
            &[
                "CONFIG SET stream-node-max-entries 1",
                "XADD k 1-1 f v",
                "XADD k 2-1 f v",
            ],
        ),
    ] {
        assert!(
            are_equal(&mut client, session.as_ref(), one, other).await,
            "{one:?} {other:?}"
        );
        for line in [
            "list-max-listpack-size -2",
            "hash-max-listpack-entries 128",
            "zset-max-listpack-entries 128",
            "stream-node-max-entries 100",
        ] {
            client.run(&format!("CONFIG SET {line}"));
        }
    }
}

#[tokio::test]
async fn any_difference_in_content_is_a_different_digest() {
    let server = start();
    let session = session(&server).await;
    let mut client = Client::admin(&server);
    let list = &["RPUSH k a b c"][..];
    let set = &["SADD k a b c"][..];
    let hash = &["HSET k a 1 b 2"][..];
    let sorted = &["ZADD k 1 a 2 b"][..];
    for (one, other) in [
        (&["SET k v"][..], &["SET k w"][..]),
        (&["SET k v"], &["SET k vv"]),
        (&["SET k v"], &["SET k v PXAT 4102444800123"]),
        (
            &["SET k v PXAT 4102444800124"],
            &["SET k v PXAT 4102444800123"],
        ),
        (&["SET k abc"], &["RPUSH k abc"]),
        (list, &["RPUSH k a c b"]),
        (list, &["RPUSH k a b c c"]),
        (list, &["RPUSH k a b"]),
        (list, &["RPUSH k ab c"]),
        (list, set),
        (set, &["SADD k a b d"]),
        (set, &["SADD k a b"]),
        (set, &["SADD k ab c"]),
        (hash, &["HSET k a 2 b 1"]),
        (hash, &["HSET k a 1"]),
        (hash, &["HSET k a 1 b 2 c 3"]),
        (hash, &["HSET k a 1b b 2"]),
        (sorted, &["ZADD k 1 a 2.0000000000000004 b"]),
        (sorted, &["ZADD k 2 a 1 b"]),
        (sorted, &["ZADD k 1 a"]),
        (hash, &["HSET k a 1 b 2", "PEXPIREAT k 4102444800123"]),
    ] {
        assert!(
            !are_equal(&mut client, session.as_ref(), one, other).await,
            "{one:?} {other:?}"
        );
    }
}

/// A stream with everything a stream can have.
const STREAM: &[&str] = &[
    "XADD k 1-1 f v",
    "XADD k 2-1 f v g w",
    "XADD k 3-1 f v",
    "XADD k 4-1 f v",
    "XGROUP CREATE k g 0",
    "XGROUP CREATE k h 2-1 ENTRIESREAD 2",
    "XGROUP CREATECONSUMER k g idle",
    "XCLAIM k g worker 0 1-1 TIME 1700000000000 RETRYCOUNT 1 FORCE JUSTID",
    "XCLAIM k g other 0 2-1 TIME 1700000000000 RETRYCOUNT 2 FORCE JUSTID",
    "XGROUP SETID k g 2-1 ENTRIESREAD 2",
    "XDEL k 3-1",
];

#[tokio::test]
async fn any_difference_in_a_stream_or_its_groups_is_a_different_digest() {
    let server = start();
    let session = session(&server).await;
    let mut client = Client::admin(&server);
    assert!(are_equal(&mut client, session.as_ref(), STREAM, STREAM).await);
    for change in [
        "XADD k 5-1 f v",
        "XDEL k 4-1",
        "XTRIM k MAXLEN 2",
        "XSETID k 9-9",
        "XSETID k 4-1 ENTRIESADDED 9 MAXDELETEDID 3-1",
        "XSETID k 4-1 ENTRIESADDED 4 MAXDELETEDID 4-0",
        "XGROUP CREATE k third 0",
        "XGROUP DESTROY k h",
        "XGROUP SETID k h 1-1 ENTRIESREAD 2",
        "XGROUP SETID k h 2-1 ENTRIESREAD 1",
        "XGROUP SETID k h 2-1",
        "XGROUP CREATECONSUMER k h fresh",
        "XGROUP DELCONSUMER k g idle",
        "XACK k g 1-1",
        "XCLAIM k g other 0 1-1 TIME 1700000000000 RETRYCOUNT 1 JUSTID",
        "XCLAIM k g worker 0 1-1 TIME 1700000000001 RETRYCOUNT 1 JUSTID",
        "XCLAIM k g worker 0 1-1 TIME 1700000000000 RETRYCOUNT 3 JUSTID",
        "XCLAIM k g worker 0 4-1 TIME 1700000000000 RETRYCOUNT 1 FORCE JUSTID",
        "PEXPIREAT k 4102444800123",
    ] {
        let changed: Vec<&str> = STREAM.iter().copied().chain([change]).collect();
        assert!(
            !are_equal(&mut client, session.as_ref(), STREAM, &changed).await,
            "{change}"
        );
    }
    let differently: Vec<&str> = STREAM
        .iter()
        .map(|line| {
            if *line == "XADD k 4-1 f v" {
                "XADD k 4-1 f w"
            } else {
                line
            }
        })
        .collect();
    assert!(!are_equal(&mut client, session.as_ref(), STREAM, &differently).await);
}

#[tokio::test]
async fn when_a_consumer_was_last_seen_does_not_count() {
    let server = start();
    let session = session(&server).await;
    let mut client = Client::admin(&server);
    build(&mut client, STREAM);
    let before = digest(session.as_ref(), "k").await;
    client.run("XREADGROUP GROUP g idle COUNT 1 STREAMS k 9-9");
    assert_eq!(digest(session.as_ref(), "k").await, before);
}

/// Random collections, changed at random; a copy rebuilt in another order must agree at each step,
/// and the one before must not.
#[tokio::test]
async fn random_values_and_their_copies_agree_and_neighbours_do_not() {
    let encodings = [
        "hash-max-listpack-entries 4",
        "zset-max-listpack-entries 4",
        "set-max-intset-entries 4",
        "list-max-listpack-size 2",
    ];
    let other_encodings = Started {
        config: encodings.map(str::to_owned).into(),
        ..Started::default()
    };
    let (one, other) = (start(), start_with(other_encodings));
    let (first, second) = (session(&one).await, session(&other).await);
    let (mut here, mut there) = (Client::admin(&one), Client::admin(&other));
    let mut random = Random::seeded("random_values_and_their_copies_agree_and_neighbours_do_not");
    for kind in ["SADD", "HSET", "ZADD", "RPUSH"] {
        let name = kind.as_bytes();
        let mut seen = Vec::new();
        let mut elements: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for _ in 0..40 {
            let element = random.bytes(12);
            if elements.iter().all(|(present, _)| *present != element) {
                elements.push((element, random.below(1000).to_string().into_bytes()));
            }
            let order: Vec<_> = if kind == "RPUSH" {
                elements.clone()
            } else {
                elements.iter().rev().cloned().collect()
            };
            for (client, elements) in [(&mut here, &elements), (&mut there, &order)] {
                client.ask(&[b"DEL", name]);
                for (element, value) in elements {
                    let args: Vec<&[u8]> = match kind {
                        "HSET" => vec![b"HSET", name, element, value],
                        "ZADD" => vec![b"ZADD", name, value, element],
                        _ => vec![name, name, element],
                    };
                    client.ask(&args);
                }
            }
            let digest = digest(first.as_ref(), kind).await;
            assert_eq!(
                second.digests(&[key(kind)]).await.unwrap(),
                [Some(digest)],
                "{kind} {elements:?}"
            );
            if !seen.contains(&digest) {
                seen.push(digest);
            }
        }
        assert_eq!(seen.len(), elements.len(), "{kind}: each element counts");
    }
}

/// Large values are read in pieces; the answer is that of the same value read at once.
#[tokio::test]
async fn values_read_in_pieces_have_the_digest_of_their_restored_copies() {
    let server = start();
    let session = session(&server).await;
    let mut client = Client::admin(&server);
    fill_with_large_values(&server);
    let keys = all_keys(session.as_ref()).await;
    let digests = session.digests(&keys).await.unwrap();
    for (key, digest) in keys.iter().zip(&digests) {
        let copy = crate::setup::key([b"copy of ", key.as_ref()].concat());
        client.ask(&[b"COPY", key, &copy]);
        assert_eq!(
            session.digests(&[copy]).await.unwrap(),
            [*digest],
            "{key:?}"
        );
    }
    // A change of one element of many is seen.
    for (name, change) in [
        ("hash", "HSET hash field77777 x"),
        ("set", "SREM set member77777"),
        ("zset", "ZINCRBY zset 1 member77777"),
        ("list", "LSET list 77777 x"),
        ("text", "SETRANGE text 5000000 y"),
    ] {
        let before = digest(session.as_ref(), name).await;
        client.run(change);
        assert_ne!(digest(session.as_ref(), name).await, before, "{name}");
    }
}

/// One value of each type, with 100,000 elements or some megabytes.
pub(crate) fn fill_with_large_values(server: &RedisServer) {
    let mut client = Client::admin(server);
    let fill = |client: &mut Client, line: &str| {
        let script = format!("for i = 1, 100000 do redis.call({line}) end");
        client.ask(&[b"EVAL", script.as_bytes(), b"0"]);
    };
    fill(&mut client, "'HSET', 'hash', 'field' .. i, 'value' .. i");
    fill(&mut client, "'SADD', 'set', 'member' .. i");
    fill(&mut client, "'ZADD', 'zset', i / 7, 'member' .. i");
    fill(&mut client, "'RPUSH', 'list', 'item' .. i");
    fill(&mut client, "'APPEND', 'text', string.rep('x', 50) .. i");
}
