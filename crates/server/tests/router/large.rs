//! Large values and answers: bounded, refused with words, and never at the cost of the connection.

use clockwise::router::Limits;
use clockwise_client::resp::{Value, write_command};

use crate::pool::{Client, Plan, bulk, ok, patient, start, wait_until};

#[test]
fn the_first_value_of_the_largest_size_is_taken() {
    // As the first request it waits for the connection to its node; headers come on top of its 64 MiB.
    let pool = start(Plan::default());
    let mut client = pool.client();
    let value = vec![b'v'; 64 << 20];
    assert_eq!(client.call(&[b"SET", &b"large"[..], &value]), ok());
    assert_eq!(client.ask("STRLEN large"), Value::Integer(64 << 20));
}

#[test]
fn large_answers_to_a_client_that_does_not_read_become_errors_and_it_stays() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let value = vec![b'v'; 60 << 20];
    assert_eq!(client.call(&[b"SET", &b"large"[..], &value]), ok());
    // Another connection: it has not been seen to ask for much.
    let mut client = pool.client();
    let mut batch = Vec::new();
    (0..9).for_each(|_| write_command(&mut batch, &["GET", "large"]));
    write_command(&mut batch, &["GETDEL", "large"]);
    client.raw(&batch);
    // The second one comes while less than the limit is unread, all others when more is.
    wait_until("all have been answered", || pool.stats().refused == 8);
    let answers: Vec<Value> = (0..10).map(|_| client.read()).collect();
    assert!(answers[..2].iter().all(|answer| *answer == bulk(&value)));
    for (at, answer) in answers.iter().enumerate().skip(2) {
        let Value::Error(text) = answer else {
            panic!("answer {at} was kept");
        };
        let (word, done) = if at == 9 {
            ("ERR", "the request was executed")
        } else {
            ("TRYAGAIN", "read and send it again")
        };
        assert!(
            text.starts_with(&format!("{word} clockwise: an answer of 629145"))
                && text
                    .contains("bytes of answers before it are unread, over the limit of 67108864")
                && text.contains(done),
            "{text}"
        );
    }
    assert_eq!(client.ask("PING"), Value::Simple("PONG".into()));
    assert_eq!(client.call(&[b"SET", &b"large"[..], &value]), ok());
    assert!(client.ask("GET large") == bulk(&value));
}

/// A client that asks for a value of `node` together with one of a node that does not answer.
fn half_answered(addr: std::net::SocketAddr, large: &str, silent: &str) -> Client {
    let mut client = Client::connect(addr);
    client.send(&["MGET", large, silent]);
    client
}

#[test]
fn values_that_wait_for_others_of_the_same_request_count_as_kept() {
    let pool = start(Plan {
        limits: Limits {
            memory_bytes_max: 64 << 20,
            ..patient()
        },
        ..Plan::default()
    });
    let (large, silent) = (pool.key_on(0, "large"), pool.key_on(1, "silent"));
    let mut honest = pool.client();
    assert_eq!(honest.call(&["SET", &large, &"v".repeat(8 << 20)]), ok());
    assert_eq!(honest.call(&["SET", &silent, "v"]), ok());
    pool.servers[1].pause();
    let clients: Vec<Client> = (0..20)
        .map(|_| half_answered(pool.addr(), &large, &silent))
        .collect();
    wait_until("those beyond the memory of the worker are dropped", || {
        pool.stats().clients_dropped >= 12
    });
    assert_eq!(honest.call(&["EXISTS", &large]), Value::Integer(1));
    pool.servers[1].resume();
    drop(clients);
    assert_eq!(honest.call(&["GET", &silent]), bulk("v"));
}

#[test]
fn an_answer_over_the_limit_is_told_to_who_asked_and_nobody_else_notices() {
    let pool = start(Plan {
        limits: Limits {
            reply_bytes_max: 1 << 20,
            ..patient()
        },
        ..Plan::default()
    });
    let keys = pool.keys_on(0, "k", 10);
    let (count, elsewhere) = (pool.key_on(0, "count"), pool.key_on(1, "e"));
    let (mut asker, mut other) = (pool.client(), pool.client());
    for key in keys.iter().chain([&elsewhere]) {
        assert_eq!(asker.call(&["SET", key, &"v".repeat(200_000)]), ok());
    }
    let names = keys.iter().map(String::as_str);
    let mget: Vec<&str> = ["MGET"].into_iter().chain(names.clone()).collect();
    let split = [&mget[..], &[&elsewhere]].concat();
    let gets = names.map(|key| vec!["GET", key]);
    let reads: Vec<Vec<&str>> = [vec!["MULTI"]]
        .into_iter()
        .chain(gets.clone())
        .chain([vec!["EXEC"]])
        .collect();
    let writes: Vec<Vec<&str>> = [vec!["MULTI"], vec!["INCR", &count]]
        .into_iter()
        .chain(gets)
        .chain([vec!["EXEC"]])
        .collect();
    let watched = [&[vec!["WATCH", &keys[0]]], &writes[..]].concat();
    let (unchanged, executed) = ("nothing was changed", "the request was executed");
    for protocol in ["2", "3"] {
        asker.call(&["HELLO", protocol]);
        other.call(&["HELLO", protocol]);
        let before = other.call(&["INCRBY", &count, "1"]).as_integer().unwrap();
        for (requests, done) in [
            (&[mget.clone()][..], unchanged),
            (&[split.clone()][..], unchanged),
            (reads.as_slice(), unchanged),
            (writes.as_slice(), executed),
            (watched.as_slice(), executed),
        ] {
            // Both are on their way before the node answers either.
            pool.servers[0].pause();
            let mut batch = Vec::new();
            requests
                .iter()
                .for_each(|request| write_command(&mut batch, request));
            asker.raw(&batch);
            other.send(&["INCRBY", &count, "1"]);
            pool.servers[0].resume();
            let answers = requests.iter().map(|_| asker.read());
            let Some(Value::Error(text)) = answers.last() else {
                panic!("larger than it may be")
            };
            assert!(
                text.starts_with("ERR clockwise: an answer of 20")
                    && text.contains("is over the limit of 1048576 and was not kept")
                    && text.contains(done),
                "{text}"
            );
            assert!(matches!(other.read(), Value::Integer(_)));
        }
        // Five by the other client, and two by the transactions.
        let after = other.call(&["INCRBY", &count, "1"]);
        assert_eq!(after, Value::Integer(before + 5 + 2 + 1));
    }
    assert_eq!(pool.errors_of(0), 0);
    assert!(asker.call(&["GET", &keys[0]]) == bulk("v".repeat(200_000)));
}

#[test]
fn an_answer_put_together_is_no_larger_than_a_nodes_may_be() {
    let pool = start(Plan {
        limits: Limits {
            reply_bytes_max: 1 << 20,
            ..patient()
        },
        ..Plan::default()
    });
    let mut client = pool.client();
    let keys = [
        pool.key_on(0, "a"),
        pool.key_on(1, "b"),
        pool.key_on(2, "c"),
    ];
    for key in &keys {
        assert_eq!(client.call(&["SET", key, &"v".repeat(400_000)]), ok());
    }
    let Value::Error(text) = client.call(&["MGET", &keys[0], &keys[1], &keys[2]]) else {
        panic!("larger than it may be")
    };
    assert!(
        text.starts_with("ERR clockwise: an answer of 12")
            && text.ends_with("is over the limit of 1048576; ask for fewer keys at a time"),
        "{text}"
    );
    let Value::Array(values) = client.call(&["MGET", &keys[0], &keys[2]]) else {
        panic!("small enough")
    };
    assert_eq!(values.len(), 2);
}
