//! Many large answers at once: the worker's memory is bounded, and nobody is cut off who reads.

use std::io::{ErrorKind, Read};
use std::thread;

use clockwise::router::Limits;
use clockwise_client::resp::{Value, write_command};

use crate::pool::{Client, Plan, Pool, bulk, ok, patient, start, wait_until};

const LARGE_BYTES: usize = 40 << 20;

impl Client {
    /// Whether the large value comes to its end.
    fn reads_whole(&mut self) -> bool {
        let mut answer = Vec::new();
        let header = format!("${LARGE_BYTES}\r\n").len();
        let whole = (header + LARGE_BYTES + 2) as u64;
        match (&mut self.socket).take(whole).read_to_end(&mut answer) {
            Ok(read) => read as u64 == whole,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                false
            }
        }
    }
}

/// Clients that have asked for a large value of the first node and do not read, so many that nothing more is
/// read from the node.
fn choked(limits: Limits) -> (Pool, Vec<Client>, String) {
    let pool = start(Plan {
        limits: Limits {
            memory_bytes_max: 128 << 20,
            ..limits
        },
        ..Plan::default()
    });
    let large = pool.key_on(0, "large");
    let value = vec![b'v'; LARGE_BYTES];
    let set = pool.client().call(&[b"SET", large.as_bytes(), &value]);
    assert_eq!(set, ok());
    let clients = (0..4).map(|_| {
        let mut client = pool.client();
        client.send(&["GET", &large]);
        client
    });
    let clients = clients.collect();
    wait_until("nothing more is read from the node", || {
        pool.stats().choked == 1
    });
    (pool, clients, large)
}

#[test]
fn large_answers_wait_at_their_node_until_clients_have_read_those_before() {
    let (pool, clients, large) = choked(patient());
    let mut honest = pool.client();
    let (here, elsewhere) = (pool.key_on(0, "here"), pool.key_on(1, "elsewhere"));
    assert_eq!(honest.call(&["SET", &elsewhere, "v"]), ok());
    honest.send(&["APPEND", &here, "v"]);
    thread::scope(|scope| {
        for mut client in clients {
            scope.spawn(move || assert!(client.read() == bulk(vec![b'v'; LARGE_BYTES])));
        }
        assert_eq!(honest.read(), Value::Integer(1));
    });
    assert_eq!((pool.stats().clients_dropped, pool.errors_of(0)), (0, 0));
    wait_until("it is read from again", || pool.stats().choked == 0);
    assert_eq!(
        honest.call(&["STRLEN", &large]),
        Value::Integer(LARGE_BYTES as i64)
    );
}

#[test]
fn those_who_do_not_read_do_not_keep_others_waiting_for_ever() {
    let (pool, mut clients, large) = choked(Limits {
        choke_ms_max: 500,
        ..patient()
    });
    let mut honest = pool.client();
    let length = Value::Integer(LARGE_BYTES as i64);
    assert_eq!(honest.call(&["STRLEN", &large]), length);
    wait_until("who reads nothing is dropped", || {
        pool.stats().clients_dropped > 0
    });
    // What can be kept for them together is kept for the others.
    let served = clients.iter_mut().map(Client::reads_whole);
    assert!(served.filter(|whole| *whole).count() > 0);
}

#[test]
fn behind_large_answers_only_so_many_requests_leave_as_there_is_room_for() {
    let pool = start(Plan {
        limits: Limits {
            node_answers_bytes_max: 1 << 20,
            ..patient()
        },
        ..Plan::default()
    });
    let large = pool.key_on(0, "large");
    let value = "v".repeat(400_000);
    let mut clients: Vec<Client> = (0..20).map(|_| pool.client()).collect();
    assert_eq!(clients[0].call(&["SET", &large, &value]), ok());
    let mut request = Vec::new();
    write_command(&mut request, &["GET", &large]);
    wait_until("it is counted", || pool.stats().requests == 1);
    // Eight before anything is known, then as many as fit.
    for (requests, leave) in [(21, 8), (41, 2)] {
        pool.servers[0].pause();
        clients.iter_mut().for_each(|client| client.raw(&request));
        wait_until("all have asked", || pool.stats().requests == requests);
        assert_eq!(pool.servers[0].unread_bytes(), leave * request.len());
        pool.servers[0].resume();
        for client in &mut clients {
            assert!(client.read() == bulk(&value));
        }
    }
}
