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
    wait_until("answers are refused", || pool.stats().refused >= 7);
    let answers: Vec<Value> = (0..10).map(|_| client.read()).collect();
    let values = answers.iter().filter(|answer| **answer == bulk(&value));
    assert!((1..=3).contains(&values.count()));
    for (at, answer) in answers.iter().enumerate().skip(3) {
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
