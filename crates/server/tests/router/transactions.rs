//! `MULTI` to `EXEC`: whole or not at all, at one owner, over handovers and breaks too.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use clockwise::router::Limits;
use clockwise_client::resp::{RequestLimits, Value, write_command};

use crate::handover::joining;
use crate::pool::{Client, Plan, Pool, Stop, bulk, ok, patient, start, wait_until};

fn queued() -> Value {
    Value::Simple("QUEUED".into())
}

/// Sends a transaction at once and reads all answers.
fn transact(client: &mut Client, commands: &[&[&str]]) -> Vec<Value> {
    let mut batch = Vec::new();
    write_command(&mut batch, &["MULTI"]);
    commands
        .iter()
        .for_each(|command| write_command(&mut batch, command));
    write_command(&mut batch, &["EXEC"]);
    client.raw(&batch);
    (0..commands.len() + 2).map(|_| client.read()).collect()
}

#[test]
fn a_transaction_is_executed_whole_at_the_owner_of_its_keys() {
    let pool = start(Plan {
        closed: true,
        ..Plan::default()
    });
    let mut client = pool.client();
    for node in 0..3 {
        let (list, count) = (pool.key_on(node, "list"), pool.key_on(node, "count"));
        let answers = transact(
            &mut client,
            &[
                &["RPUSH", &list, "a", "b"],
                &["INCR", &count],
                // Within a transaction nothing blocks.
                &["BLPOP", &list, "0"],
                &["DEL", &list, &count],
                &["PING"],
            ],
        );
        let popped = Value::Array(vec![bulk(&list), bulk("a")]);
        let pong = Value::Simple("PONG".into());
        let results = [2, 1].map(Value::Integer).into_iter();
        let results = results.chain([popped, Value::Integer(2), pong]);
        assert_eq!(answers[0], ok());
        assert!(answers[1..6].iter().all(|answer| *answer == queued()));
        assert_eq!(answers[6], Value::Array(results.collect()));
    }
}

#[test]
fn nobody_sees_a_transaction_half_done() {
    let pool = start(Plan {
        workers: 2,
        ..Plan::default()
    });
    let (one, other) = (pool.key_on(0, "one"), pool.key_on(0, "other"));
    let (running, seen) = (AtomicBool::new(true), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _stop = Stop(&running);
        for writer in 0..2 {
            let (one, other, running) = (&one, &other, &running);
            let mut client = pool.client();
            scope.spawn(move || {
                for round in 0.. {
                    if !running.load(Ordering::Relaxed) {
                        return;
                    }
                    let value = format!("{writer}:{round}");
                    let pair: [&[&str]; 2] = [&["SET", one, &value], &["SET", other, &value]];
                    let answers = transact(&mut client, &pair);
                    assert_eq!(answers[3], Value::Array(vec![ok(), ok()]));
                }
            });
        }
        let mut reader = pool.client();
        wait_until("changes are seen", || {
            let Value::Array(values) = reader.call(&["MGET", &one, &other]) else {
                panic!("two values")
            };
            assert_eq!(values[0], values[1]);
            seen.fetch_add(1, Ordering::Relaxed) > 3_000
        });
    });
}

#[test]
fn keys_on_two_nodes_spoil_a_transaction_and_nothing_is_executed() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let (here, there) = (pool.key_on(0, "a"), pool.key_on(1, "b"));
    let answers = transact(&mut client, &[&["SET", &here, "1"], &["SET", &there, "2"]]);
    let Value::Error(text) = &answers[2] else {
        panic!("{:?}", answers[2])
    };
    assert!(
        text.starts_with(&format!(
            "CROSSSLOT clockwise: keys '{here}' on node n0 and '{there}' on node n1 are apart (epoch 1)"
        )),
        "{text}"
    );
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(answers[3], Value::Error(aborted.into()));
    assert_eq!(client.call(&["EXISTS", &here, &there]), Value::Integer(0));
    // What cannot be part of one is said at once, too.
    for (command, reason) in [
        (&["MGET", &here, &there][..], "are apart"),
        (&["DBSIZE"], "a transaction is one node's"),
        (&["SCAN", "0"], "a transaction is one node's"),
        (&["SELECT", "0"], "a transaction is one node's"),
        (&["CLIENT", "ID"], "a transaction is one node's"),
        (&["KEYS", "*"], "use SCAN"),
        (&["EVAL", "return 1", "1", &here], "does not allow scripts"),
    ] {
        let answers = transact(&mut client, &[command, &["SET", &here, "1"]]);
        assert!(
            matches!(&answers[1], Value::Error(text) if text.contains(reason)),
            "{command:?}: {:?}",
            answers[1]
        );
        assert_eq!(answers[2..], [queued(), Value::Error(aborted.into())]);
    }
    assert_eq!(client.call(&["EXISTS", &here]), Value::Integer(0));
}

#[test]
fn a_node_that_refuses_to_queue_is_heard_at_exec() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let key = pool.key_on(0, "k");
    pool.servers[0].cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let answers = transact(&mut client, &[&["GET", &key], &["SET", &key, "v"]]);
    let Value::Error(text) = &answers[3] else {
        panic!("no memory")
    };
    assert!(
        text.starts_with("EXECABORT Transaction discarded because of: OOM command not allowed"),
        "{text}"
    );
    pool.servers[0].cli(&["CONFIG", "SET", "maxmemory", "0"]);
    let answers = transact(&mut client, &[&["SET", &key, "v"], &["GET", &key]]);
    assert_eq!(answers[3], Value::Array(vec![ok(), bulk("v")]));
}

#[test]
fn a_node_that_lets_no_transaction_begin_executes_none_in_pieces_unnoticed() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let key = pool.key_on(0, "k");
    assert_eq!(client.call(&["SET", &key, "1"]), ok());
    pool.servers[0].cli(&["ACL", "SETUSER", "default", "-multi"]);
    let answers = transact(&mut client, &[&["INCR", &key], &["INCR", &key]]);
    let Value::Error(text) = &answers[3] else {
        panic!("{:?}", answers[3])
    };
    assert!(text.starts_with("ERR clockwise: outcome unknown"), "{text}");
    pool.servers[0].cli(&["ACL", "SETUSER", "default", "+multi"]);
    wait_until("the node serves again", || {
        matches!(client.call(&["GET", &key]), Value::Bulk(_))
    });
}

#[test]
fn a_transaction_without_an_answer_is_unknown_and_not_repeated() {
    let pool = start(Plan {
        limits: Limits {
            reply_ms_max: 300,
            ..patient()
        },
        ..Plan::default()
    });
    let mut client = pool.client();
    let key = pool.key_on(0, "counter");
    let commands: [&[&str]; 2] = [&["INCR", &key], &["INCR", &key]];
    let both = |from: i64| Value::Array(vec![Value::Integer(from), Value::Integer(from + 1)]);
    assert_eq!(transact(&mut client, &commands)[3], both(1));
    pool.servers[0].pause();
    let answers = transact(&mut client, &commands);
    assert!(
        matches!(&answers[3], Value::Error(text) if text.starts_with("ERR clockwise: outcome unknown")),
        "{:?}",
        answers[3]
    );
    pool.servers[0].resume();
    wait_until("it was executed, once", || {
        client.call(&["GET", &key]) == bulk("4")
    });
    assert_eq!(transact(&mut client, &commands)[3], both(5));
}

#[test]
fn a_transaction_has_bounds_and_ends_with_its_client() {
    let request = RequestLimits {
        bulk_bytes_max: 1 << 20,
        request_bytes_max: 2 << 20,
        ..RequestLimits::default()
    };
    let pool = start(Plan {
        limits: Limits {
            request,
            ..patient()
        },
        ..Plan::default()
    });
    let mut client = pool.client();
    let value = "v".repeat(900_000);
    let key = pool.key_on(0, "k");
    let set: &[&str] = &["SET", &key, &value];
    let answers = transact(&mut client, &[set, set, set, set]);
    assert_eq!(answers[1..3], [queued(), queued()]);
    assert_eq!(
        answers[3],
        Value::Error(
            "ERR clockwise: a transaction of more than 2097152 bytes is over the limit".into()
        )
    );
    assert!(matches!(&answers[5], Value::Error(text) if text.starts_with("EXECABORT ")));
    assert_eq!(client.call(&["EXISTS", &key]), Value::Integer(0));
    client.ask("MULTI");
    client.call(set);
    assert!(
        client
            .error("CLIENT INFO")
            .contains("it concerns the connection")
    );
    drop(client);
    assert_eq!(pool.client().call(&["EXISTS", &key]), Value::Integer(0));
}

#[test]
fn a_transaction_is_held_whole_and_goes_whole_to_the_new_owner() {
    let mut pool = joining(patient());
    let mut client = pool.client();
    // Two keys that move to the same node, and one that stays.
    let (moving, staying) = (pool.moving_key(0, "m"), pool.staying_key(0, "s"));
    assert_eq!(client.call(&["SET", &moving, "1"]), ok());
    // Queued before the handover begins: what counts is where its keys are at EXEC.
    assert_eq!(client.ask("MULTI"), ok());
    assert_eq!(client.call(&["INCR", &moving]), queued());
    pool.begin_handover(0);
    assert_eq!(client.call(&["APPEND", &moving, "0"]), queued());
    client.send(&["EXEC"]);
    let mut other = pool.client();
    assert_eq!(other.call(&["SET", &staying, "v"]), ok());
    wait_until("it is held, as one", || pool.stats().held == 1);
    pool.fence(0);
    pool.copy(0, [&moving]);
    pool.flip(0);
    let both = vec![Value::Integer(2), Value::Integer(2)];
    assert_eq!(client.read(), Value::Array(both));
    assert_eq!(pool.servers[3].cli(&["GET", &moving]), "20");
    // Keys that were together and are not any more.
    assert_eq!(client.ask("MULTI"), ok());
    assert_eq!(client.call(&["INCR", &moving]), queued());
    let Value::Error(text) = client.call(&["APPEND", &staying, "0"]) else {
        panic!("apart")
    };
    assert!(text.starts_with("CROSSSLOT "), "{text}");
    client.ask("DISCARD");
}

#[test]
fn keys_that_part_between_multi_and_exec_abort_it_whole() {
    let mut pool = joining(patient());
    let (moving, staying) = (pool.moving_key(0, "m"), pool.staying_key(0, "s"));
    let mut queued_before = pool.client();
    let mut held = pool.client();
    for client in [&mut queued_before, &mut held] {
        client.ask("MULTI");
        assert_eq!(client.call(&["SET", &moving, "v"]), queued());
        assert_eq!(client.call(&["SET", &staying, "v"]), queued());
    }
    pool.begin_handover(0);
    held.send(&["EXEC"]);
    wait_until("it is held", || pool.stats().held == 1);
    pool.fence(0);
    pool.flip(0);
    queued_before.send(&["EXEC"]);
    for client in [&mut queued_before, &mut held] {
        let Value::Error(text) = client.read() else {
            panic!("they are apart now")
        };
        assert!(
            text.starts_with(
                "EXECABORT Transaction discarded because of: CROSSSLOT clockwise: keys"
            ),
            "{text}"
        );
        assert_eq!(
            client.call(&["EXISTS", &moving, &staying]),
            Value::Integer(0)
        );
    }
}

/// Counts a key up by transactions until told to stop; gives what was acknowledged, and refusals.
fn count_up(client: &mut Client, keys: &[String], running: &AtomicBool) -> (Vec<i64>, Vec<Value>) {
    let mut counts = vec![0; keys.len()];
    let mut refused = Vec::new();
    while running.load(Ordering::Relaxed) {
        for (key, count) in keys.iter().zip(&mut counts) {
            let answers = transact(client, &[&["INCR", key], &["INCR", key]]);
            match &answers[3] {
                Value::Array(results) => {
                    let expected = [*count + 1, *count + 2].map(Value::Integer);
                    assert_eq!(**results, expected, "{key}: lost, repeated or interleaved");
                    *count += 2;
                }
                other => refused.push(other.clone()),
            }
        }
    }
    (counts, refused)
}

#[test]
fn transactions_lose_nothing_while_their_keys_are_handed_over() {
    let mut pool = joining(patient());
    let keys = |writer: usize| -> Vec<String> {
        (0..40)
            .map(|number| format!("w{writer}:{number}"))
            .collect()
    };
    let all: Vec<String> = (0..3).flat_map(keys).collect();
    let running = AtomicBool::new(true);
    let addr = pool.addr();
    let results: Vec<(Vec<i64>, Vec<Value>)> = thread::scope(|scope| {
        let running = &running;
        let _stop = Stop(running);
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                scope.spawn(move || {
                    let _stop = Stop(running);
                    count_up(&mut Client::connect(addr), &keys(writer), running)
                })
            })
            .collect();
        let work = |pool: &Pool| pool.stats().requests / 2_000;
        pool.hand_over_all(running, work, |pool, source| pool.copy(source, &all));
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    let mut moved = 0;
    for (writer, (counts, refused)) in results.into_iter().enumerate() {
        assert_eq!(refused, []);
        for (key, count) in keys(writer).iter().zip(counts) {
            let owner = pool.owner(key);
            assert_eq!(pool.servers[owner].cli(&["GET", key]), count.to_string());
            moved += usize::from(owner == 3);
        }
    }
    assert!(moved > 10, "{moved} of 120 keys moved");
}

#[test]
fn what_waits_goes_whole_to_its_owner_under_limits_that_became_lower() {
    let mut pool = joining(patient());
    let keys = ["alone", "whole"].map(|form| pool.moving_key(0, form));
    let staying = pool.staying_key(0, "s");
    let value = "v".repeat(64 << 10);
    pool.begin_handover(0);
    let (mut alone, mut whole) = (pool.client(), pool.client());
    alone.send(&["SET", &keys[0], &value]);
    assert_eq!(whole.ask("MULTI"), ok());
    assert_eq!(whole.call(&["SET", &keys[1], &value]), queued());
    whole.send(&["EXEC"]);
    wait_until("both are held", || pool.stats().held == 2);
    let mut lower = patient();
    lower.request.bulk_bytes_max = 1 << 10;
    pool.router().change(lower, None);
    let mut other = pool.client();
    wait_until("the lower limit counts", || {
        matches!(other.call(&["SET", &staying, &value]), Value::Error(_))
    });
    pool.fence(0);
    pool.flip(0);
    assert_eq!(alone.read(), ok());
    assert_eq!(whole.read(), Value::Array(vec![ok()]));
    for key in &keys {
        assert_eq!(pool.servers[3].cli(&["STRLEN", key]), "65536", "{key}");
    }
}
