//! What a move carries over: every type, expiry, consumer groups, large values.

use clockwise_client::resp::Value;
use clockwise_placement::NodeId;

use crate::client::{Client, words};
use crate::pool::Pool;

/// Commands that make one value of each kind under a key.
fn kinds(key: &str) -> Vec<(String, Vec<String>)> {
    let lines = [
        ("string", vec!["SET K plain"]),
        ("binary", vec!["SETBIT K 77 1"]),
        ("list", vec!["RPUSH K a b c a"]),
        ("set", vec!["SADD K x y z"]),
        ("intset", vec!["SADD K 1 2 3"]),
        ("hash", vec!["HSET K f1 v1 f2 v2"]),
        ("zset", vec!["ZADD K 1 one 2.5 two -inf low"]),
        (
            "stream",
            vec!["XADD K 1-1 f v", "XADD K 2-1 f w", "XDEL K 1-1"],
        ),
        (
            "group",
            vec![
                "XADD K 1-1 f v",
                "XADD K 2-1 f w",
                "XGROUP CREATE K g 0",
                "XREADGROUP GROUP g c1 COUNT 1 STREAMS K >",
            ],
        ),
        ("hyperloglog", vec!["PFADD K a b c"]),
        ("geo", vec!["GEOADD K 13.361389 38.115556 Palermo"]),
    ];
    let mut all = Vec::new();
    for (kind, commands) in lines {
        for expiry in ["", ":expires"] {
            let name = format!("{kind}{expiry}:{key}");
            let mut made: Vec<String> = commands
                .iter()
                .map(|line| line.replace('K', &name))
                .collect();
            if !expiry.is_empty() {
                made.push(format!("PEXPIREAT {name} 33000000000000"));
            }
            all.push((name, made));
        }
    }
    all
}

/// Commands that show everything about a value of any type.
fn questions(key: &str) -> Vec<String> {
    [
        "TYPE K",
        "PEXPIRETIME K",
        "STRLEN K",
        "GET K",
        "LRANGE K 0 -1",
        "SORT K ALPHA",
        "HGETALL K",
        "ZRANGE K 0 -1 WITHSCORES",
        "XRANGE K - +",
        "XINFO STREAM K FULL",
        "XPENDING K g - + 10",
    ]
    .iter()
    .map(|line| line.replace('K', key))
    .collect()
}

/// What a server says about a key; errors of questions for another type are part of it.
fn portrait(client: &mut Client, key: &str) -> Vec<Value> {
    let ask = |line: &String| words(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    let mut replies = client.pipeline(&questions(key).iter().map(ask).collect::<Vec<_>>());
    replies.iter_mut().for_each(forget_what_is_of_this_server);
    replies
}

/// Times of the last deliveries and internal sizes are not part of a value.
fn forget_what_is_of_this_server(value: &mut Value) {
    if let Value::Array(items) = value {
        let volatile = [
            "radix-tree-keys",
            "radix-tree-nodes",
            "seen-time",
            "active-time",
        ];
        for at in 0..items.len() {
            let named = matches!(&items[at], Value::Bulk(name) if volatile.iter().any(|v| v.as_bytes() == name));
            if named && at + 1 < items.len() {
                items[at + 1] = Value::Null;
            }
        }
        if let [
            Value::Bulk(_),
            Value::Bulk(_),
            Value::Integer(idle),
            Value::Integer(_),
        ] = &mut items[..]
        {
            *idle = 0;
        }
        items.iter_mut().for_each(forget_what_is_of_this_server);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_survives_a_move_with_its_expiry_and_its_consumer_groups() {
    let mut pool = Pool::start(&["a"]).await;
    let mut keys = Vec::new();
    let mut admin = pool.admin("a");
    for number in 0..20 {
        for (key, commands) in kinds(&number.to_string()) {
            commands.iter().for_each(|line| {
                admin.run(line);
            });
            keys.push(key);
        }
    }
    let before: Vec<_> = keys.iter().map(|key| portrait(&mut admin, key)).collect();
    pool.add("b").await;
    pool.apply().await;
    pool.settle().await;
    assert_eq!(pool.check_places().await, keys.len());
    let view = pool.view().await;
    let b: NodeId = "b".parse().unwrap();
    let mut moved = 0;
    for (key, before) in keys.iter().zip(before) {
        let owner = view.owner(key.as_bytes());
        moved += usize::from(*owner == b);
        assert_eq!(
            portrait(&mut pool.admin(owner.as_str()), key),
            before,
            "{key}"
        );
    }
    assert!(moved > 100, "only {moved} of {} keys moved", keys.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hash_of_100_000_fields_moves_without_stalling_its_server() {
    let mut pool = Pool::start(&["a"]).await;
    let mut admin = pool.admin("a");
    let fields: Vec<Vec<Vec<u8>>> = (0..100)
        .map(|chunk| {
            let mut command = words(&[b"HSET", b"big"]);
            for number in 0..1_000 {
                let number = chunk * 1_000 + number;
                command.push(format!("field:{number}").into_bytes());
                command.push(format!("value:{number}").into_bytes());
            }
            command
        })
        .collect();
    admin.pipeline(&fields);
    admin.run("PEXPIREAT big 33000000000000");
    // A node that leaves gives everything away.
    pool.add("b").await;
    pool.remove("a").await;
    admin.run("CONFIG SET slowlog-log-slower-than 20000");
    pool.apply().await;
    pool.settle().await;
    // By the server's own clock: what one command took, however busy the machine is otherwise.
    let Value::Array(slow) = admin.run("SLOWLOG GET 100") else {
        panic!("no slow log")
    };
    let took_us = |entry: &Value| match entry {
        Value::Array(fields) => match fields[2] {
            Value::Integer(us) => us,
            _ => panic!("{entry:?}"),
        },
        _ => panic!("{entry:?}"),
    };
    let worst_us = slow.iter().map(took_us).max().unwrap_or(0);
    let mut b = pool.admin("b");
    assert_eq!(b.run("HLEN big"), Value::Integer(100_000));
    assert_eq!(
        b.run("HGET big field:77777"),
        Value::Bulk(b"value:77777".to_vec())
    );
    assert_eq!(b.run("PEXPIRETIME big"), Value::Integer(33_000_000_000_000));
    assert!(worst_us < 100_000, "a command took {worst_us} us: {slow:?}");
}
