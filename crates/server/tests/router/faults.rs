//! Nodes that die, hang or refuse: who asks is told the truth, and no answer is ever somebody else's.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clockwise::router::Limits;
use clockwise_client::credentials::client_login;
use clockwise_client::resp::{Value, write_command};
use clockwise_client::routing::RetryLimits;

use crate::pool::{Client, Plan, Pool, Stop, bulk, let_in, ok, patient, start, wait_until};

fn with(limits: Limits) -> Pool {
    start(Plan {
        limits,
        ..Plan::default()
    })
}

/// Limits with which a node that says nothing is soon given up.
fn hasty() -> Limits {
    Limits {
        reply_ms_max: 300,
        ..patient()
    }
}

/// A pool, a client, and a key of the first node with this value, to which the router is connected.
fn connected(limits: Limits, value: &str) -> (Pool, Client, String) {
    let pool = with(limits);
    let mut client = pool.client();
    let key = pool.key_on(0, "k");
    pool.servers[0].cli(&["SET", &key, value]);
    wait_until("the connection is open", || {
        client.call(&["GET", &key]) == bulk(value)
    });
    (pool, client, key)
}

#[test]
fn a_dead_node_fails_only_its_own_keys_and_comes_back_by_itself() {
    let mut pool = start(Plan::default());
    let mut client = pool.client();
    let keys: Vec<String> = (0..3).map(|node| pool.key_on(node, "k")).collect();
    for key in &keys {
        assert_eq!(client.call(&["SET", key, "v"]), ok());
    }
    pool.servers[1].kill9();
    wait_until("the node is known to be down", || {
        let answer = client.call(&["SET", &keys[1], "w"]);
        let Value::Error(text) = answer else {
            panic!("{answer:?}")
        };
        assert!(
            text.contains("node n1") && text.contains("epoch 1"),
            "{text}"
        );
        text.starts_with("TRYAGAIN clockwise: node n1 is down")
    });
    assert_eq!(client.call(&["GET", &keys[0]]), bulk("v"));
    assert_eq!(client.call(&["GET", &keys[2]]), bulk("v"));
    let Value::Error(text) = client.call(&["MGET", &keys[0], &keys[1]]) else {
        panic!("a part is missing")
    };
    assert!(text.contains("node n1"), "{text}");
    let Value::Error(text) = client.call(&["MSET", &keys[0], "x", &keys[1], "y", &keys[2], "z"])
    else {
        panic!("in part")
    };
    assert!(
        text.starts_with("ERR clockwise: done on 2 of 3 nodes only: TRYAGAIN clockwise: node n1"),
        "{text}"
    );
    assert_eq!(client.call(&["GET", &keys[2]]), bulk("z"));
    wait_until("a request does not wait for a node that is down", || {
        let started = Instant::now();
        let Value::Error(_) = client.call(&["GET", &keys[1]]) else {
            panic!("down")
        };
        started.elapsed() < Duration::from_millis(200)
    });
    pool.servers[1].restart();
    wait_until("the node serves again", || {
        client.call(&["SET", &keys[1], "again"]) == ok()
    });
    assert_eq!(client.call(&["GET", &keys[1]]), bulk("again"));
    wait_until("the failures are counted", || {
        pool.stats().nodes[&"n1".parse().unwrap()].errors > 0
    });
}

#[test]
fn the_words_of_a_node_that_did_not_do_its_part_are_told_with_its_name() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let keys: Vec<String> = (0..3).map(|node| pool.key_on(node, "k")).collect();
    pool.servers[1].cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let Value::Error(text) = client.call(&["MSET", &keys[0], "x", &keys[1], "y", &keys[2], "z"])
    else {
        panic!("in part")
    };
    assert!(
        text.starts_with("ERR clockwise: done on 2 of 3 nodes only: node n1: OOM "),
        "{text}"
    );
    // Where nothing was done, the server's own words come as from one server.
    let Value::Error(text) = client.call(&["SET", &keys[1], "y"]) else {
        panic!("no memory")
    };
    assert!(text.starts_with("OOM "), "{text}");
}

#[test]
fn a_write_without_an_answer_is_reported_as_unknown_and_not_repeated() {
    let (pool, mut client, key) = connected(hasty(), "1");
    pool.servers[0].pause();
    let Value::Error(text) = client.call(&["INCR", &key]) else {
        panic!("no answer can have come")
    };
    assert!(
        text.starts_with("ERR clockwise: outcome unknown: the connection to node n0 broke"),
        "{text}"
    );
    pool.servers[0].resume();
    // It had been received, so it was executed; once.
    wait_until("the node serves again", || {
        client.call(&["GET", &key]) == bulk("2")
    });
}

#[test]
fn a_read_without_an_answer_is_asked_again() {
    let (pool, mut client, key) = connected(hasty(), "v");
    pool.servers[0].pause();
    client.send(&["GET", &key]);
    wait_until("the first connection is given up", || pool.is_cut_off(0));
    pool.servers[0].resume();
    assert_eq!(client.read(), bulk("v"));
}

#[test]
fn no_more_is_asked_again_than_the_budget_allows() {
    let mut limits = hasty();
    limits.traffic.retries = RetryLimits {
        burst: 1,
        percent: 50,
    };
    let (pool, mut client, key) = connected(limits, "v");
    // Two at once are more than one.
    pool.servers[0].pause();
    let mut batch = Vec::new();
    (0..2).for_each(|_| write_command(&mut batch, &["GET", &key]));
    client.raw(&batch);
    for _ in 0..2 {
        let Value::Error(text) = client.read() else {
            panic!("no answer can have come")
        };
        assert!(
            text.starts_with("TRYAGAIN clockwise: the connection to node n0 broke"),
            "{text}"
        );
    }
    pool.servers[0].resume();
    wait_until("the node serves again", || {
        client.call(&["GET", &key]) == bulk("v")
    });
    // One alone is not.
    pool.servers[0].pause();
    client.send(&["GET", &key]);
    wait_until("the first connection is given up", || pool.is_cut_off(0));
    pool.servers[0].resume();
    assert_eq!(client.read(), bulk("v"));
}

#[test]
fn connections_that_break_while_idle_or_between_reads_are_not_noticed() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let key = pool.key_on(0, "k");
    assert_eq!(client.call(&["SET", &key, "v"]), ok());
    let (running, reads) = (AtomicBool::new(true), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = Stop(&running);
            let mut kills = 0;
            wait_until("enough is read between breaks", || {
                pool.servers[0].cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                kills += 1;
                kills >= 30 && reads.load(Ordering::Relaxed) > 1_000
            });
        });
        while running.load(Ordering::Relaxed) {
            let mut batch = Vec::new();
            (0..50).for_each(|_| write_command(&mut batch, &["GET", &key]));
            client.raw(&batch);
            for _ in 0..50 {
                // Killed in each of its attempts, a read may be refused; it is never answered wrongly.
                match client.read() {
                    Value::Error(text) => assert!(text.starts_with("TRYAGAIN "), "{text}"),
                    value => {
                        assert_eq!(value, bulk("v"));
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    });
    pool.servers[0].cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    wait_until("the router has seen it", || pool.is_cut_off(0));
    assert_eq!(client.call(&["SET", &key, "w"]), ok());
}

/// Writes and reads values that name their client; any other client's is a failure.
fn tagged(pool: &Pool, tag: usize, running: &AtomicBool, counts: &[AtomicUsize; 2]) {
    let mut client = pool.client();
    let mut round = 0u64;
    while running.load(Ordering::Relaxed) {
        round += 1;
        let mut batch = Vec::new();
        for number in 0..10 {
            let key = format!("{tag}:{number}");
            write_command(
                &mut batch,
                &["SET", &key, &format!("{tag}/{number}/{round}")],
            );
            write_command(&mut batch, &["GET", &key]);
            write_command(&mut batch, &["ECHO", &format!("{tag}-{number}-{round}")]);
        }
        client.raw(&batch);
        for number in 0..10 {
            check_tagged(&mut client, tag, number, round, counts);
        }
    }
}

fn check_tagged(
    client: &mut Client,
    tag: usize,
    number: usize,
    round: u64,
    counts: &[AtomicUsize; 2],
) {
    let told = |text: &str| {
        text.starts_with("TRYAGAIN clockwise:")
            || text.starts_with("ERR clockwise: outcome unknown")
    };
    let [answered, refused] = counts;
    match client.read() {
        Value::Simple(text) => assert_eq!(text, "OK"),
        Value::Error(text) => assert!(told(&text), "{text}"),
        other => panic!("SET was answered with {other:?}"),
    }
    match client.read() {
        Value::Bulk(value) => {
            let value = String::from_utf8(value).unwrap();
            assert!(
                value.starts_with(&format!("{tag}/{number}/")),
                "{value} is not of client {tag}, key {number}"
            );
            answered.fetch_add(1, Ordering::Relaxed);
        }
        // Not yet written, since the first write was refused.
        Value::Null => {}
        Value::Error(text) => {
            assert!(told(&text), "{text}");
            refused.fetch_add(1, Ordering::Relaxed);
        }
        other => panic!("GET was answered with {other:?}"),
    }
    assert_eq!(client.read(), bulk(format!("{tag}-{number}-{round}")));
}

#[test]
fn answers_never_shift_while_nodes_hang_and_connections_break() {
    let mut pool = with(Limits {
        reply_ms_max: 250,
        ..Limits::default()
    });
    let running = AtomicBool::new(true);
    let counts = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let mut servers = std::mem::take(&mut pool.servers);
    thread::scope(|scope| {
        let _stop = Stop(&running);
        for tag in 0..10 {
            let (pool, running, counts) = (&pool, &running, &counts);
            scope.spawn(move || {
                let _stop = Stop(running);
                tagged(pool, tag, running, counts);
            });
        }
        let reached = |count: usize| {
            wait_until("more is answered", || {
                counts[0].load(Ordering::Relaxed) >= count || !running.load(Ordering::Relaxed)
            })
        };
        for round in 0..8 {
            let before = counts[0].load(Ordering::Relaxed);
            match round % 4 {
                0 => {
                    servers[0].pause();
                    reached(before + 200);
                    wait_until("some are refused", || counts[1].load(Ordering::Relaxed) > 0);
                    servers[0].resume();
                }
                1 => {
                    servers[1].cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                }
                2 => {
                    servers[2].cli(&["CLIENT", "PAUSE", "300", "ALL"]);
                }
                _ => {
                    servers[1].kill9();
                    servers[1].restart();
                }
            }
            reached(before + 1_000);
        }
        running.store(false, Ordering::Relaxed);
    });
    let [answered, refused] = counts.map(AtomicUsize::into_inner);
    assert!(
        answered > 8_000 && refused > 0,
        "{answered} answered, {refused} refused"
    );
}

/// A pool of closed nodes, and a client whose key is on the first of them.
fn closed(limits: Limits) -> (Pool, Client, String) {
    let pool = start(Plan {
        limits,
        closed: true,
        ..Plan::default()
    });
    let mut client = pool.client();
    let key = pool.key_on(0, "k");
    wait_until("the node serves", || {
        client.call(&["SET", &key, "v"]) == ok()
    });
    (pool, client, key)
}

#[test]
fn a_node_that_does_not_know_our_user_yet_is_waited_for() {
    let (pool, mut client, key) = closed(patient());
    let node = &pool.record.membership().nodes[0];
    let (user, _) = client_login(&pool.key, node);
    pool.servers[0].cli(&["ACL", "DELUSER", &user]);
    client.send(&["GET", &key]);
    // Nothing else is told before the user is made again.
    wait_until("the router has lost its connection", || pool.is_cut_off(0));
    let_in(&pool.servers[0], &pool.key, node);
    assert_eq!(client.read(), bulk("v"));
}

#[test]
fn a_node_that_never_lets_us_in_is_waited_for_no_longer_than_a_second() {
    let (pool, mut client, key) = closed(Limits::default());
    let (user, _) = client_login(&pool.key, &pool.record.membership().nodes[0]);
    pool.servers[0].cli(&["ACL", "DELUSER", &user]);
    wait_until("requests end in time, and say why", || {
        let started = Instant::now();
        let Value::Error(text) = client.call(&["GET", &key]) else {
            panic!("nobody is let in")
        };
        text.contains("node n0 does not let this epoch's clients in")
            && started.elapsed() < Duration::from_secs(3)
    });
}

#[test]
fn requests_before_any_node_answers_wait_a_second_and_are_told() {
    let mut pool = start(Plan {
        nodes: 1,
        ..Plan::default()
    });
    pool.servers[0].kill9();
    // A router that starts while no node is there.
    let mut pool = pool.restarted(Limits::default());
    let mut client = pool.client();
    assert_eq!(client.ask("PING"), Value::Simple("PONG".into()));
    let text = client.error("GET a");
    assert!(
        text.starts_with("TRYAGAIN clockwise: no node has answered yet"),
        "{text}"
    );
    pool.servers[0].restart();
    wait_until("the node serves", || client.ask("SET a 1") == ok());
}
