//! Order, sizes and splits: whatever way the bytes come, each answer belongs to its request.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use clockwise_client::resp::{Value, write_command};

use crate::pool::{Client, Plan, Pool, bulk, ok, start, wait_until};

/// Ends a connection when its reader fails: who sends on it would wait for ever.
struct HangUp(TcpStream);

impl Drop for HangUp {
    fn drop(&mut self) {
        if thread::panicking() {
            // Whatever it says, the test has failed.
            let _ended = self.0.shutdown(Shutdown::Both);
        }
    }
}

/// Sends `batch` while reading `count` answers: neither side waits for the other.
fn exchange(client: &mut Client, batch: &[u8], count: usize) -> Vec<Value> {
    let mut sender = client.socket.try_clone().unwrap();
    thread::scope(|scope| {
        let _hang_up = HangUp(client.socket.try_clone().unwrap());
        scope.spawn(move || sender.write_all(batch).unwrap());
        (0..count).map(|_| client.read()).collect()
    })
}

#[test]
fn ten_thousand_requests_in_one_pipeline_are_answered_in_order() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let mut batch = Vec::new();
    let mut expected = Vec::new();
    for number in 0..10_000 {
        let (key, value) = (format!("key:{}", number % 2_500), format!("value {number}"));
        match number % 5 {
            0 => {
                write_command(&mut batch, &["GET", &format!("none:{number}")]);
                expected.push(Value::Null);
            }
            1 => {
                write_command(&mut batch, &["SET", &key, &value]);
                expected.push(ok());
            }
            2 => {
                write_command(&mut batch, &["ECHO", &value]);
                expected.push(bulk(&value));
            }
            3 => {
                write_command(&mut batch, &["INCR", &format!("text:{number}")]);
                expected.push(Value::Integer(1));
            }
            _ => {
                let before = format!("key:{}", (number - 3) % 2_500);
                write_command(&mut batch, &["MGET", &before, "none", &before]);
                let value = bulk(format!("value {}", number - 3));
                expected.push(Value::Array(vec![value.clone(), Value::Null, value]));
            }
        }
    }
    let answers = exchange(&mut client, &batch, expected.len());
    for (at, (answer, expected)) in answers.iter().zip(&expected).enumerate() {
        assert_eq!(answer, expected, "answer {at}");
    }
}

fn round_trip(client: &mut Client, size: usize) {
    let value: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
    let key = format!("size:{size}");
    assert_eq!(
        client.call(&[b"SET", key.as_bytes(), &value]),
        ok(),
        "{size}"
    );
    assert!(client.call(&["GET", &key]) == bulk(&value), "{size}");
    assert_eq!(client.call(&["DEL", &key]), Value::Integer(1));
}

#[test]
fn values_around_the_sizes_of_buffers_come_back_whole() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let around_powers =
        (0..=21).flat_map(|power| (1usize << power).saturating_sub(3)..=(1 << power) + 3);
    for size in (16_000..16_800)
        .chain(32_640..32_660)
        .chain(65_400..65_560)
        .chain(around_powers)
    {
        round_trip(&mut client, size);
    }
    for size in [10 << 20, (64 << 20) - 1, 64 << 20] {
        round_trip(&mut client, size);
    }
}

#[test]
fn a_pipeline_may_be_cut_anywhere() {
    let pool = start(Plan::default());
    let mut batch = Vec::new();
    let keys = [
        pool.key_on(0, "a"),
        pool.key_on(1, "b"),
        pool.key_on(2, "c"),
    ];
    write_command(
        &mut batch,
        &["MSET", &keys[0], "one", &keys[1], "two", &keys[2], "three"],
    );
    batch.extend_from_slice(b"set \"inline key\" 'its value'\r\n");
    write_command(
        &mut batch,
        &["MGET", &keys[2], &keys[1], &keys[0], "inline key"],
    );
    write_command(&mut batch, &["GET", &keys[1]]);
    let three = ["three", "two", "one", "its value"].map(bulk).to_vec();
    let expected = [ok(), ok(), Value::Array(three), bulk("two")];
    for cut in 0..batch.len() {
        let mut client = pool.client();
        client.raw(&batch[..cut]);
        // The first part is with the router before the second is sent: it has answered another client.
        pool.client().ask("PING");
        client.raw(&batch[cut..]);
        let answers: Vec<Value> = expected.iter().map(|_| client.read()).collect();
        assert_eq!(answers, expected, "cut at {cut}");
    }
    let mut client = pool.client();
    for byte in &batch {
        client.raw(&[*byte]);
    }
    assert_eq!(
        expected.iter().map(|_| client.read()).collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn large_and_small_values_in_one_pipeline_keep_their_places() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let large: Vec<String> = (0..8)
        .map(|number| format!("{number}").repeat(700_000))
        .collect();
    for (number, value) in large.iter().enumerate() {
        assert_eq!(
            client.call(&["SET", &format!("large:{number}"), value]),
            ok()
        );
        assert_eq!(
            client.call(&["SET", &format!("small:{number}"), &number.to_string()]),
            ok()
        );
    }
    let mut batch = Vec::new();
    for round in 0..10 {
        for number in 0..8 {
            write_command(
                &mut batch,
                &["GET", &format!("small:{}", (number + round) % 8)],
            );
            write_command(&mut batch, &["GET", &format!("large:{number}")]);
        }
    }
    let answers = exchange(&mut client, &batch, 160);
    for (at, pair) in answers.chunks(2).enumerate() {
        let (round, number) = (at / 8, at % 8);
        assert_eq!(pair[0], bulk(((number + round) % 8).to_string()));
        assert!(
            pair[1] == bulk(&large[number]),
            "large value {number} in round {round}"
        );
    }
}

/// One client's tagged writes and reads; the tag tells whose an answer is.
fn tagged_client(pool: &Pool, tag: usize, rounds: usize, depth: usize) {
    let mut client = pool.client();
    for round in 0..rounds {
        let mut batch = Vec::new();
        for number in 0..depth {
            let (key, value) = (format!("{tag}:{number}"), format!("{tag} {round} {number}"));
            write_command(&mut batch, &["SET", &key, &value]);
            write_command(&mut batch, &["GET", &key]);
        }
        client.raw(&batch);
        for number in 0..depth {
            assert_eq!(client.read(), ok());
            assert_eq!(client.read(), bulk(format!("{tag} {round} {number}")));
        }
    }
}

#[test]
fn many_clients_on_several_workers_get_their_own_answers() {
    let pool = start(Plan {
        workers: 2,
        ..Plan::default()
    });
    thread::scope(|scope| {
        for tag in 0..40 {
            let pool = &pool;
            scope.spawn(move || match tag % 4 {
                0 => tagged_client(pool, tag, 300, 1),
                1 => tagged_client(pool, tag, 60, 10),
                2 => tagged_client(pool, tag, 10, 100),
                _ => tagged_client(pool, tag, 2, 900),
            });
        }
    });
    wait_until("all are counted", || pool.stats().requests > 40_000);
}

#[test]
fn a_client_that_sends_and_closes_its_half_gets_all_answers() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    client.raw(b"SET a 1\r\nGET a\r\nMGET a b c d e f\r\nPING\r\n");
    client.finish_sending();
    let mut answers = Vec::new();
    client.socket.read_to_end(&mut answers).unwrap();
    let answers = String::from_utf8(answers).unwrap();
    assert_eq!(
        answers,
        "+OK\r\n$1\r\n1\r\n*6\r\n$1\r\n1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n+PONG\r\n"
    );
}

#[test]
fn draining_answers_what_is_under_way_and_ends() {
    let mut pool = start(Plan::default());
    let mut idle = pool.client();
    assert_eq!(idle.ask("PING"), Value::Simple("PONG".into()));
    let addr = pool.addr();
    pool.drain(std::time::Duration::from_secs(5));
    assert!(idle.is_closed());
    assert!(std::net::TcpStream::connect(addr).is_err());
}
