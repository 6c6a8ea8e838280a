//! Keys of every type, commands that change them, and what they hold as one readable value.

use std::net::SocketAddr;

use clockwise_client::resp::Value;

use crate::client::{Client, Command};

/// Types, each with the way it is looked at.
pub(crate) const KINDS: [&str; 7] = ["string", "list", "set", "hash", "zset", "stream", "group"];

/// Milliseconds from 1970 to some day that is not near.
const FAR_MS: u64 = 4_000_000_000_000;

/// The keys of one kind: of every two one expires, long after the test.
pub(crate) fn names(each: usize) -> impl Iterator<Item = (&'static str, String)> + Clone {
    KINDS
        .into_iter()
        .flat_map(move |kind| (0..each).map(move |number| (kind, format!("{kind}:{number}"))))
}

/// Commands that make a key.
pub(crate) fn making(kind: &str, key: &str, number: usize) -> Vec<Command> {
    let mut commands: Vec<Command> = (0..20).map(|at| changing(kind, key, at)).collect();
    if kind == "group" {
        commands.insert(0, line(&format!("XGROUP CREATE {key} workers 0 MKSTREAM")));
        commands.push(line(&format!("XGROUP CREATE {key} idle $")));
        commands.push(line(&format!("XGROUP CREATECONSUMER {key} idle bob")));
    }
    if number.is_multiple_of(2) {
        commands.push(line(&format!("PEXPIREAT {key} {}", FAR_MS + number as u64)));
    }
    commands
}

/// A command that changes a key of this kind; `at` grows.
pub(crate) fn changing(kind: &str, key: &str, at: usize) -> Command {
    let word = at % 7;
    line(&match kind {
        "string" => format!("APPEND {key} word-{at}\u{e9}\u{0}-"),
        "list" if word == 3 => format!("LPOP {key}"),
        "list" => format!("RPUSH {key} {at} element-{at}"),
        "set" if word == 3 => format!("SREM {key} {}", at / 2),
        "set" => format!("SADD {key} {at} member-{at}"),
        "hash" if word == 3 => format!("HDEL {key} field-{}", at / 2),
        "hash" => format!("HSET {key} field-{at} value-{at}"),
        "zset" => format!("ZINCRBY {key} {at}.25 member-{}", at % 13),
        "group" if word == 3 || word == 4 => {
            format!("XREADGROUP GROUP workers alice COUNT 2 STREAMS {key} >")
        }
        "group" if word == 5 => format!("XACK {key} workers {}-0", 1 + at / 2),
        "stream" if word == 5 => format!("XDEL {key} {}-0", 1 + at / 2),
        _ => format!("XADD {key} {}-0 n {at}", at + 1),
    })
}

fn line(words: &str) -> Command {
    words
        .split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// What a key holds, order left out where the type has none.
///
/// `Times::Left` leaves out when somebody was served: two servers asked one after the other differ in that.
pub(crate) fn held(client: &mut Client, kind: &str, key: &str, times: Times) -> Vec<String> {
    let questions: &[&str] = match kind {
        "string" => &["GET KEY"],
        "list" => &["LRANGE KEY 0 -1"],
        "set" => &["SMEMBERS KEY"],
        "hash" => &["HGETALL KEY"],
        "zset" => &["ZRANGE KEY 0 -1 WITHSCORES"],
        _ => &["XRANGE KEY - +", "XINFO STREAM KEY FULL COUNT 0"],
    };
    let common = ["TYPE KEY", "PEXPIRETIME KEY"];
    let mut held = Vec::new();
    for question in common.iter().chain(questions) {
        let mut words = line(question);
        words[if question.starts_with("XINFO") { 2 } else { 1 }] = key.as_bytes().to_vec();
        let reply = client.pipeline(&[words]).remove(0);
        let parts = parts(reply, question, times);
        held.extend(parts.iter().map(|part| format!("{question}: {part:?}")));
    }
    held
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    Kept,
    Left,
}

fn parts(reply: Value, question: &str, times: Times) -> Vec<Value> {
    let Value::Array(mut parts) = reply else {
        return vec![reply];
    };
    match question.split(' ').next() {
        Some("SMEMBERS") => parts.sort_by_key(|part| format!("{part:?}")),
        Some("HGETALL") => {
            let mut pairs: Vec<Value> = parts
                .chunks(2)
                .map(|pair| Value::Array(pair.to_vec()))
                .collect();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            return pairs;
        }
        Some("XINFO") => return vec![without_bookkeeping(Value::Array(parts), times)],
        _ => {}
    }
    parts
}

/// What a stream is, without how the server stores it.
fn without_bookkeeping(value: Value, times: Times) -> Value {
    let Value::Array(parts) = value else {
        return value;
    };
    let named = |part: &Value, names: &[&str]| matches!(part, Value::Bulk(name) if names.iter().any(|given| name == given.as_bytes()));
    let mut kept = Vec::new();
    let mut parts = parts.into_iter();
    while let Some(part) = parts.next() {
        let time = named(&part, &["seen-time", "active-time"]);
        if named(&part, &["radix-tree-keys", "radix-tree-nodes"]) || (time && times == Times::Left)
        {
            parts.next();
            continue;
        }
        let pending = named(&part, &["pel", "pending"]);
        kept.push(without_bookkeeping(part, times));
        if pending && let Some(entries) = parts.next() {
            kept.push(deliveries(entries, times));
        }
    }
    Value::Array(kept)
}

/// Entries that were delivered and not acknowledged; the last but one part of each is when.
fn deliveries(entries: Value, times: Times) -> Value {
    let Value::Array(entries) = entries else {
        return entries;
    };
    let entry = |entry: Value| match entry {
        Value::Array(mut parts) if times == Times::Left && parts.len() >= 3 => {
            let when = parts.len() - 2;
            parts.remove(when);
            Value::Array(parts)
        }
        other => other,
    };
    Value::Array(entries.into_iter().map(entry).collect())
}

/// A client that sends each command to two servers and compares what they say to it.
pub(crate) struct Twins {
    pub(crate) pool: Client,
    pub(crate) twin: Client,
}

impl Twins {
    pub(crate) fn connect(pool: SocketAddr, twin: SocketAddr) -> Self {
        Self {
            pool: Client::connect(pool),
            twin: Client::connect(twin),
        }
    }

    pub(crate) fn run(&mut self, commands: &[Command]) {
        let (pool, twin) = (self.pool.pipeline(commands), self.twin.pipeline(commands));
        for ((command, pool), twin) in commands.iter().zip(pool).zip(twin) {
            let words = || String::from_utf8_lossy(&command.join(&b' ')).into_owned();
            assert_eq!(pool, twin, "{}", words());
        }
    }
}
