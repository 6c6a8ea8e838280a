//! Nodes that die, hang or lie: who asks is told the truth, and no answer is ever somebody else's.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clockwise::router::Limits;

use crate::pool::{Client, Plan, patient, start, wait_until};

/// Limits with which a node that says nothing is soon given up.
fn hasty() -> Limits {
    let mut limits = Limits {
        reply_ms_max: 300,
        ..patient()
    };
    limits.traffic.connect_ms_max = 300;
    limits.traffic.wait.wait_ms_max = 300;
    limits
}

#[test]
fn a_dead_node_fails_only_its_own_keys_and_comes_back_by_itself() {
    let mut pool = start(Plan {
        flush_all: true,
        ..Plan::default()
    });
    let mut client = pool.client();
    let keys: Vec<String> = (0..3).map(|node| pool.key_on(node, "k")).collect();
    for key in &keys {
        assert_eq!(
            client.ask(format!("set {key} 0 0 1\r\nv\r\n")),
            "STORED\r\n"
        );
    }
    pool.servers[1].kill9();
    wait_until("the node is known to be down", || {
        let answer = client.ask(format!("set {} 0 0 1\r\nw\r\n", keys[1]));
        assert!(answer.starts_with("SERVER_ERROR "), "{answer}");
        assert!(
            answer.contains("node n1") && answer.contains("epoch 2"),
            "{answer}"
        );
        answer.starts_with("SERVER_ERROR TRYAGAIN clockwise: node n1 is down")
    });
    for key in [&keys[0], &keys[2]] {
        let answer = client.ask(format!("get {key}\r\n"));
        assert_eq!(answer, format!("VALUE {key} 0 1\r\nv\r\nEND\r\n"));
    }
    // Half an answer would look like misses.
    let part = client.ask(format!("get {}\r\n", keys.join(" ")));
    assert!(
        part.starts_with("SERVER_ERROR TRYAGAIN clockwise: node n1"),
        "{part}"
    );
    let flushed = client.ask("flush_all\r\n");
    let expected = "SERVER_ERROR clockwise: done on 2 of 3 nodes only: TRYAGAIN clockwise: node n1";
    assert!(flushed.starts_with(expected), "{flushed}");
    assert!(
        client.ask("version\r\n").contains(" clockwise "),
        "another node says it"
    );
    // A client that reads no answers must not find one.
    let silent = client.all(format!("set {} 0 0 1 noreply\r\nx\r\n", keys[1]));
    assert_eq!(silent, Vec::<String>::new());
    pool.servers[1].restart();
    wait_until("it is back, empty", || {
        client.ask(format!("get {}\r\n", keys[1])) == "END\r\n"
    });
}

#[test]
fn while_the_record_says_two_things_of_one_epoch_nothing_is_routed() {
    let mut limits = patient();
    limits.memcached.value_bytes_max = 8;
    let pool = start(Plan {
        flush_all: true,
        limits,
        ..Plan::default()
    });
    let mut client = pool.client();
    assert_eq!(client.ask("set k 0 0 1\r\nv\r\n"), "STORED\r\n");
    pool.halt(Some("two placements under epoch 2"));
    let refusal = "SERVER_ERROR clockwise: two placements under epoch 2\r\n";
    wait_until("nothing is routed", || client.ask("get k\r\n") == refusal);
    for request in [
        "set k 0 0 1\r\nw\r\n",
        "get k other\r\n",
        "mg k v\r\n",
        "delete k\r\n",
        "flush_all\r\n",
        "stats\r\n",
    ] {
        assert_eq!(client.ask(request), refusal, "{request:?}");
    }
    let silent = client.all("set k 0 0 1 noreply\r\nx\r\n");
    assert_eq!(silent, Vec::<String>::new());
    assert_eq!(client.ask("mn\r\n"), "MN\r\n");
    // Its value is too large: it would take the key's old one with it.
    let refused = client.ask("set k 0 0 9\r\ntoo large\r\n");
    assert_eq!(refused, "SERVER_ERROR object too large for cache\r\n");
    pool.halt(None);
    let kept = "VALUE k 0 1\r\nv\r\nEND\r\n";
    wait_until("it goes on, and nothing was done", || {
        client.ask("get k\r\n") == kept
    });
}

#[test]
fn a_node_that_says_nothing_is_given_up_and_nobody_waits_for_ever() {
    let pool = start(Plan {
        limits: hasty(),
        ..Plan::default()
    });
    let mut client = pool.client();
    let key = pool.key_on(0, "k");
    wait_until("the connection is open", || {
        client.ask(format!("set {key} 0 0 1\r\nv\r\n")) == "STORED\r\n"
    });
    pool.servers[0].pause();
    let answer = client.ask(format!("incr {key} 1\r\n"));
    assert!(
        answer.starts_with("SERVER_ERROR clockwise: outcome unknown"),
        "{answer}"
    );
    let answer = client.ask(format!("incr {key} 1\r\n"));
    assert!(
        answer.starts_with("SERVER_ERROR TRYAGAIN clockwise: node n0 "),
        "{answer}"
    );
    let mut silent = pool.client();
    assert_eq!(
        silent.all(format!("set {key} 0 0 1 noreply\r\nw\r\n")),
        Vec::<String>::new()
    );
    pool.servers[0].resume();
    wait_until("it is asked again", || {
        client.ask(format!("touch {key} 0\r\n")) == "TOUCHED\r\n"
    });
}

// twitter/twemproxy#404: after a timeout clients saw parts of others' replies.
#[test]
fn no_client_sees_anothers_value_while_nodes_come_and_go() {
    let pool = start(Plan {
        limits: hasty(),
        workers: 2,
        ..Plan::default()
    });
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..6)
            .map(|number| {
                scope.spawn({
                    let (pool, ends) = (&pool, &ends);
                    move || tagged(&mut pool.client(), number, ends)
                })
            })
            .collect();
        for round in 0..6 {
            let server = &pool.servers[round % 3];
            let errors = pool
                .stats()
                .nodes
                .values()
                .map(|node| node.errors)
                .sum::<u64>();
            server.pause();
            wait_until("requests were given up", || {
                pool.stats()
                    .nodes
                    .values()
                    .map(|node| node.errors)
                    .sum::<u64>()
                    > errors
            });
            server.resume();
        }
        ends.store(true, Ordering::Relaxed);
        let read: u32 = clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum();
        assert!(read > 100, "only {read} values were read");
    });
}

/// Asks for values that say whose they are, in pipelines, until told to end. Gives how many were read.
fn tagged(client: &mut Client, number: usize, ends: &AtomicBool) -> u32 {
    let mut read = 0;
    while !ends.load(Ordering::Relaxed) {
        let mut requests = String::new();
        for at in 0..20 {
            let key = format!("c{number}-{at}");
            requests.push_str(&format!(
                "set {key} 0 0 {}\r\n{key}\r\nmg {key} v k O{at}\r\nget {key}\r\n",
                key.len()
            ));
        }
        client.send(&requests);
        for at in 0..20 {
            let key = format!("c{number}-{at}");
            let (set, meta, get) = (client.read(), client.read(), client.read());
            let error = |reply: &str| reply.starts_with("SERVER_ERROR ");
            assert!(set == "STORED\r\n" || error(&set), "{set}");
            let value = format!("VA {} k{key} O{at}\r\n{key}\r\n", key.len());
            assert!(
                meta == value
                    || meta == format!("EN k{key} O{at}\r\n")
                    || meta == "EN\r\n"
                    || error(&meta),
                "{meta}"
            );
            let value = format!("VALUE {key} 0 {}\r\n{key}\r\nEND\r\n", key.len());
            assert!(get == value || get == "END\r\n" || error(&get), "{get}");
            read += u32::from(get == value);
        }
    }
    read
}

/// A node that answers its version, and each later line with the next of these.
fn liar(answers: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // It ends with the process: nobody waits for it.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let answers = ["VERSION 1.6.18\r\n"]
                .into_iter()
                .chain(answers.iter().copied());
            for (line, answer) in lines.zip(answers) {
                if line.is_err() || stream.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    address
}

#[test]
fn an_answer_that_fits_no_request_ends_the_connection_and_reaches_nobody() {
    let lies: [&'static [&'static str]; 5] = [
        &["VALUE other 0 1\r\nx\r\nEND\r\n"],
        &["STORED\r\n"],
        &["END\r\nVALUE k 0 1\r\nx\r\nEND\r\n"],
        &["VALUE k 0 1\r\nxy\r\nEND\r\n"],
        &["nonsense\r\n"],
    ];
    for answers in lies {
        let pool = start(Plan {
            nodes: 0,
            strangers: vec![liar(answers)],
            ..Plan::default()
        });
        let mut client = pool.client();
        let mut said = client.ask("get k\r\n");
        if said == "END\r\n" {
            // The first answer was right, and one too many followed it.
            said = client.ask("get k\r\n");
        }
        assert!(
            said.starts_with("SERVER_ERROR ") || said == "END\r\n",
            "{answers:?}: {said}"
        );
    }
}

#[test]
fn a_router_is_no_node() {
    let behind = start(Plan::default());
    let pool = start(Plan {
        nodes: 0,
        strangers: vec![behind.addr().to_string()],
        ..Plan::default()
    });
    let answer = pool.client().ask("get k\r\n");
    assert!(
        answer.starts_with("SERVER_ERROR TRYAGAIN clockwise: node a0 is down"),
        "{answer}"
    );
}
