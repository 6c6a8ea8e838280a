//! `WATCH`: an `EXEC` does nothing when a key was changed, or when nobody can know.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clockwise_client::resp::Value;

use crate::handover::joining;
use crate::pool::{Client, Plan, Stop, bulk, ok, patient, start, wait_until};

fn queued() -> Value {
    Value::Simple("QUEUED".into())
}

#[test]
fn exec_does_nothing_when_a_watched_key_was_changed() {
    for protocol in ["2", "3"] {
        let pool = start(Plan {
            closed: true,
            ..Plan::default()
        });
        let (key, beside) = (pool.key_on(1, "k"), pool.key_on(1, "beside"));
        let (mut client, mut other) = (pool.client(), pool.client());
        client.call(&["HELLO", protocol]);
        let mut attempt = |meddle: bool, own: bool| {
            assert_eq!(client.call(&["SET", &key, "1"]), ok());
            assert_eq!(client.call(&["WATCH", &key, &beside]), ok());
            assert_eq!(client.call(&["GET", &key]), bulk("1"));
            if meddle {
                assert_eq!(other.call(&["SET", &key, "2"]), ok());
            }
            if own {
                assert_eq!(client.call(&["SET", &beside, "x"]), ok());
            }
            assert_eq!(client.ask("MULTI"), ok());
            assert_eq!(client.call(&["APPEND", &key, "0"]), queued());
            let answer = client.ask("EXEC");
            (answer, client.call(&["GET", &key]))
        };
        let done = Value::Array(vec![Value::Integer(2)]);
        assert_eq!(attempt(false, false), (done.clone(), bulk("10")));
        assert_eq!(attempt(true, false), (Value::Null, bulk("2")));
        assert_eq!(attempt(false, true), (Value::Null, bulk("1")));
        // What was watched before is not watched any more.
        assert_eq!(attempt(false, false), (done, bulk("10")));
    }
}

#[test]
fn what_is_watched_is_forgotten_when_the_client_says_so() {
    let pool = start(Plan::default());
    let (key, far) = (pool.key_on(0, "k"), pool.key_on(1, "far"));
    let (mut client, mut other) = (pool.client(), pool.client());
    assert_eq!(client.ask("UNWATCH"), ok());
    for forget in [&["UNWATCH"][..], &["MULTI", "DISCARD"], &["RESET"]] {
        assert_eq!(client.call(&["WATCH", &key]), ok());
        other.call(&["SET", &key, "2"]);
        for line in forget {
            client.ask(line);
        }
        client.ask("MULTI");
        client.call(&["SET", &key, "3"]);
        assert_eq!(client.ask("EXEC"), Value::Array(vec![ok()]), "{forget:?}");
    }
    // Within a transaction it is too late to begin, as with a server.
    client.ask("MULTI");
    assert_eq!(
        client.error("WATCH k"),
        "ERR WATCH inside MULTI is not allowed"
    );
    assert_eq!(client.ask("EXEC"), Value::Array(vec![]));
    // One connection, one node.
    assert_eq!(client.call(&["WATCH", &key]), ok());
    for request in [&["WATCH", far.as_str()][..], &["BLPOP", far.as_str(), "0"]] {
        let Value::Error(text) = client.call(request) else {
            panic!("another node")
        };
        assert!(
            text.starts_with(
                "CROSSSLOT clockwise: keys are watched on node n0 and this is for node n1"
            ),
            "{text}"
        );
    }
    client.ask("MULTI");
    client.call(&["SET", &far, "v"]);
    let text = client.error("EXEC");
    assert!(
        text.starts_with(
            "EXECABORT Transaction discarded because of: CROSSSLOT clockwise: keys are watched"
        ),
        "{text}"
    );
    let Value::Error(text) = client.call(&["WATCH", &key, &far]) else {
        panic!("two nodes")
    };
    assert!(text.starts_with("CROSSSLOT "), "{text}");
    // An empty transaction too, and a spoiled one.
    assert_eq!(client.call(&["WATCH", &key]), ok());
    other.call(&["SET", &key, "2"]);
    client.ask("MULTI");
    assert_eq!(client.ask("EXEC"), Value::Null);
    assert_eq!(client.call(&["WATCH", &key]), ok());
    client.ask("MULTI");
    assert_eq!(client.ask("EXEC"), Value::Array(vec![]));
    assert_eq!(client.call(&["WATCH", &key]), ok());
    client.ask("MULTI");
    client.error("NOSUCH");
    assert!(client.error("EXEC").starts_with("EXECABORT "));
    assert_eq!(client.call(&["GET", &far]), Value::Null);
}

#[test]
fn a_watch_that_a_broken_connection_or_a_handover_ended_counts_as_changed() {
    let mut pool = joining(patient());
    let key = pool.moving_key(0, "m");
    let mut client = pool.client();
    assert_eq!(client.call(&["WATCH", &key]), ok());
    client.ask("MULTI");
    assert_eq!(client.call(&["SET", &key, "v"]), queued());
    pool.servers[0].cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert_eq!(client.ask("EXEC"), Value::Null);
    // Nothing is watched any more.
    client.ask("MULTI");
    assert_eq!(client.call(&["SET", &key, "v"]), queued());
    assert_eq!(client.ask("EXEC"), Value::Array(vec![ok()]));
    assert_eq!(client.call(&["WATCH", &key]), ok());
    pool.begin_handover(0);
    // A key more, at a node to be: what was lost stays lost.
    assert_eq!(client.ask("MULTI"), ok());
    assert_eq!(client.call(&["SET", &key, "w"]), queued());
    assert_eq!(client.ask("EXEC"), Value::Null);
    client.send(&["WATCH", &key]);
    pool.fence(0);
    pool.copy(0, [&key]);
    pool.flip(0);
    assert_eq!(client.read(), ok());
    client.ask("MULTI");
    assert_eq!(client.call(&["APPEND", &key, "w"]), queued());
    assert_eq!(client.ask("EXEC"), Value::Array(vec![Value::Integer(2)]));
    assert_eq!(pool.servers[3].cli(&["GET", &key]), "vw");
}

/// Counts a key up as people do who have no INCR; gives how often that was acknowledged.
fn count_up(client: &mut Client, keys: &[String], running: &AtomicBool) -> Vec<u64> {
    let mut counts = vec![0; keys.len()];
    while running.load(Ordering::Relaxed) {
        for (key, count) in keys.iter().zip(&mut counts) {
            assert_eq!(client.call(&["WATCH", key]), ok());
            let value = match client.call(&["GET", key]) {
                Value::Null => 0,
                Value::Bulk(text) => String::from_utf8(text).unwrap().parse::<u64>().unwrap(),
                other => panic!("{other:?}"),
            };
            assert_eq!(client.ask("MULTI"), ok());
            let next = (value + 1).to_string();
            assert_eq!(client.call(&["SET", key, &next]), queued());
            match client.ask("EXEC") {
                Value::Null => {}
                Value::Array(results) => {
                    assert_eq!(results, [ok()]);
                    *count += 1;
                }
                other => panic!("{key}: {other:?}"),
            }
        }
    }
    counts
}

#[test]
fn optimistic_counters_lose_nothing_while_their_keys_are_handed_over() {
    let mut pool = joining(patient());
    // All writers share them: they get in each other's way.
    let keys: Vec<String> = (0..12).map(|number| format!("count:{number}")).collect();
    let running = AtomicBool::new(true);
    let addr = pool.addr();
    let counts: Vec<Vec<u64>> = thread::scope(|scope| {
        let (running, keys) = (&running, &keys);
        let _stop = Stop(running);
        let writers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(move || {
                    let _stop = Stop(running);
                    count_up(&mut Client::connect(addr), keys, running)
                })
            })
            .collect();
        for source in 0..3 {
            pool.begin_handover(source);
            pool.fence(source);
            pool.copy(source, keys);
            pool.flip(source);
            let before = pool.stats().requests;
            wait_until("work goes on", || {
                pool.stats().requests > before + 1_000 || !running.load(Ordering::Relaxed)
            });
        }
        running.store(false, Ordering::Relaxed);
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    for (at, key) in keys.iter().enumerate() {
        let acknowledged: u64 = counts.iter().map(|counts| counts[at]).sum();
        let owner = pool.owner(key);
        let stored = pool.servers[owner].cli(&["GET", key]);
        assert_eq!(stored, acknowledged.to_string(), "{key} on n{owner}");
    }
}
