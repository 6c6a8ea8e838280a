//! Clients that wait at a node: served when something comes, also over handovers, and nobody else waits.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clockwise::router::Limits;
use clockwise_client::resp::Value;
use clockwise_testkit::{RedisOptions, RedisServer};

use crate::handover::joining;
use crate::pool::{Client, PATIENCE, Plan, Pool, Stop, bulk, ok, patient, start, wait_until};

impl Pool {
    /// Clients of a server that execute this command now, or did so last.
    fn clients_at(&self, server: usize, command: &str) -> usize {
        let list = self.servers[server].cli(&["CLIENT", "LIST"]);
        let last = format!(" cmd={command} ");
        list.lines().filter(|line| line.contains(&last)).count()
    }

    fn wait_for_a_blocked_client(&self, server: usize, command: &str) {
        wait_until("a client waits at the node", || {
            self.clients_at(server, command) > 0
        });
    }
}

/// How often a server was asked to execute a command.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let begin = format!("cmdstat_{command}:calls=");
    let calls = stats.lines().find_map(|line| line.strip_prefix(&begin));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

fn pair(key: &str, element: &str) -> Value {
    Value::Array(vec![bulk(key), bulk(element)])
}

#[test]
fn each_blocking_command_waits_for_what_comes() {
    let pool = start(Plan {
        closed: true,
        ..Plan::default()
    });
    let key = pool.key_on(1, "k");
    let other = pool.key_on(1, "other");
    let mut pusher = pool.client();
    let entry = |id: &str| {
        let fields = Value::Array(vec![bulk("f"), bulk("v")]);
        let entries = Value::Array(vec![Value::Array(vec![bulk(id), fields])]);
        Value::Array(vec![Value::Array(vec![bulk(&key), entries])])
    };
    let scored = Value::Array(vec![bulk(&key), bulk("m"), bulk("1")]);
    let popped = Value::Array(vec![bulk(&key), Value::Array(vec![bulk("e")])]);
    let best = Value::Array(vec![bulk("m"), bulk("1")]);
    let best = Value::Array(vec![bulk(&key), Value::Array(vec![best])]);
    for (line, push, answer) in [
        ("BLPOP K 0", "RPUSH K e", pair(&key, "e")),
        ("BRPOP O K 60", "RPUSH K e", pair(&key, "e")),
        ("BRPOPLPUSH K O 60.5", "RPUSH K e", bulk("e")),
        ("BLMOVE K O LEFT RIGHT 0", "RPUSH K e", bulk("e")),
        ("BLMPOP 0 2 O K LEFT", "RPUSH K e", popped),
        ("BZPOPMIN K 0", "ZADD K 1 m", scored.clone()),
        ("BZPOPMAX K 0", "ZADD K 1 m", scored),
        ("BZMPOP 60 1 K MIN", "ZADD K 1 m", best),
        // Looked up when it begins to wait: it must come first of those that read streams.
        (
            "XREAD COUNT 1 BLOCK 60000 STREAMS O K 0 $",
            "XADD K 6-1 f v",
            entry("6-1"),
        ),
        ("XREAD BLOCK 0 STREAMS K 0", "XADD K 5-1 f v", entry("5-1")),
    ] {
        pusher.call(&["DEL", &key, &other]);
        let words = |line: &str| -> Vec<String> {
            let named = line.split(' ').map(|word| match word {
                "K" => key.clone(),
                "O" => other.clone(),
                word => word.to_owned(),
            });
            named.collect()
        };
        let mut client = pool.client();
        let name = line.split(' ').next().unwrap().to_lowercase();
        let before = calls(&pool.servers[1], &name);
        client.send(&words(line));
        // What is behind it waits for it.
        client.send(&["ECHO", "behind"]);
        wait_until("the node is asked again and again", || {
            calls(&pool.servers[1], &name) > before + 2
        });
        // The connection that all share goes on.
        assert_eq!(pusher.call(&["EXISTS", &key]), Value::Integer(0), "{line}");
        pusher.call(&words(push));
        assert_eq!(client.read(), answer, "{line}");
        assert_eq!(client.read(), bulk("behind"));
    }
    pusher.call(&["DEL", &key]);
    pusher.call(&["XGROUP", "CREATE", &key, "g", "$", "MKSTREAM"]);
    let mut client = pool.client();
    client.send(&[
        "XREADGROUP",
        "GROUP",
        "g",
        "block",
        "BLOCK",
        "0",
        "STREAMS",
        &key,
        ">",
    ]);
    pool.wait_for_a_blocked_client(1, "xreadgroup");
    pusher.call(&["XADD", &key, "7-1", "f", "v"]);
    assert_eq!(client.read(), entry("7-1"));
}

#[test]
fn whoever_waits_longer_than_it_wants_gets_a_null_in_its_protocol() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    for protocol in ["2", "3"] {
        client.call(&["HELLO", protocol]);
        for line in [
            "BLPOP k 0.25",
            "BZPOPMIN k 0.01",
            "BRPOPLPUSH k k 0.001",
            "BLMOVE k k LEFT LEFT 0.1",
            "BLMPOP 0.15 1 k LEFT",
            "XREAD BLOCK 250 STREAMS k 0",
            "XREAD BLOCK 1 STREAMS k $",
        ] {
            let started = Instant::now();
            assert_eq!(client.ask(line), Value::Null, "{line}");
            let waited = started.elapsed();
            let least = if line.contains("25") { 250 } else { 1 };
            assert!(waited >= Duration::from_millis(least), "{line}: {waited:?}");
            assert!(waited < PATIENCE / 2, "{line}: {waited:?}");
        }
    }
}

#[test]
fn mistakes_are_told_as_a_server_tells_them() {
    let pool = start(Plan::default());
    let server = RedisServer::start(RedisOptions::default());
    let (mut router, mut direct) = (pool.client(), Client::connect(server.socket_addr()));
    for client in [&mut router, &mut direct] {
        client.ask("SET text v");
        client.ask("XADD stream 1-1 f v");
    }
    for line in [
        "BLPOP",
        "BLPOP a",
        "BLPOP a x",
        "BLPOP a -1",
        "BLPOP a nan",
        "BLPOP a -nan",
        "BLPOP a inf",
        "BLPOP a -inf",
        "BLPOP a 1e16",
        "BLPOP a -1e300",
        "BLPOP a 99999999999999999999",
        "BRPOP text 1e300",
        "BLMPOP 1e300 1 a LEFT",
        "BLPOP text 0",
        "BLMOVE a a LEFT NOSUCH 0",
        "BLMPOP x 1 a LEFT",
        "BLMPOP 0 1 a NOSUCH",
        "BZPOPMIN text 0",
        "XREAD BLOCK x STREAMS a 0",
        "XREAD BLOCK -1 STREAMS a 0",
        "XREAD BLOCK +5 STREAMS a 0",
        "XREAD BLOCK 007 STREAMS a 0",
        "XREAD BLOCK -0 STREAMS a 0",
        "XREAD BLOCK 9223372036854775808 STREAMS a 0",
        "XREAD BLOCK 0 STREAMS text $",
        "XREAD BLOCK 0 STREAMS text 0",
        "XREAD BLOCK 0 STREAMS stream x",
        "XREAD BLOCK 0 STREAMS stream 0",
        "XREADGROUP GROUP nosuch c BLOCK 0 STREAMS stream >",
        "PING",
    ] {
        assert_eq!(router.ask(line), direct.ask(line), "{line}");
    }
    let (here, there) = (pool.key_on(0, "a"), pool.key_on(1, "b"));
    let text = router.error(&format!("BLPOP {here} {there} 0"));
    assert!(text.starts_with("CROSSSLOT "), "{text}");
}

#[test]
fn a_client_that_leaves_takes_nothing_with_it() {
    let pool = start(Plan::default());
    let key = pool.key_on(0, "k");
    let mut client = pool.client();
    client.send(&["BLPOP", &key, "0"]);
    pool.wait_for_a_blocked_client(0, "blpop");
    drop(client);
    wait_until("its connection to the node is gone", || {
        pool.clients_at(0, "blpop") == 0
    });
    let mut half = pool.client();
    half.send(&["BLPOP", &key, "0"]);
    pool.wait_for_a_blocked_client(0, "blpop");
    half.finish_sending();
    assert!(half.is_closed());
    let mut pusher = pool.client();
    assert_eq!(pusher.call(&["RPUSH", &key, "e"]), Value::Integer(1));
    assert_eq!(pusher.call(&["LPOP", &key]), bulk("e"));
}

#[test]
fn so_many_may_wait_and_no_more() {
    let pool = start(Plan {
        limits: Limits {
            own_links_max: 3,
            ..patient()
        },
        ..Plan::default()
    });
    let key = pool.key_on(0, "k");
    let mut waiting: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = pool.client();
            client.send(&["BLPOP", &key, "0"]);
            client
        })
        .collect();
    wait_until("all three wait", || pool.clients_at(0, "blpop") == 3);
    let mut fourth = pool.client();
    let text = fourth.error(&format!("BLPOP {key} 0"));
    assert!(
        text.starts_with("TRYAGAIN clockwise: 3 clients watch keys or block"),
        "{text}"
    );
    assert_eq!(
        fourth.call(&["RPUSH", &key, "a", "b", "c"]),
        Value::Integer(3)
    );
    let popped: BTreeSet<String> = waiting
        .iter_mut()
        .map(|client| format!("{:?}", client.read()))
        .collect();
    assert_eq!(popped.len(), 3);
    // They keep their connections for a moment only.
    wait_until("there is room again", || {
        fourth.call(&["BLPOP", &key, "0.001"]) == Value::Null
    });
}

#[test]
fn a_node_that_breaks_is_told_and_a_write_that_may_have_left_is_unknown() {
    let mut pool = start(Plan::default());
    let key = pool.key_on(0, "k");
    let (mut pops, mut reads) = (pool.client(), pool.client());
    pops.send(&["BLPOP", &key, "0"]);
    pool.wait_for_a_blocked_client(0, "blpop");
    reads.send(&["XREAD", "BLOCK", "0", "STREAMS", &key, "0"]);
    pool.wait_for_a_blocked_client(0, "xread");
    pool.servers[0].kill9();
    let Value::Error(text) = pops.read() else {
        panic!("the node is gone")
    };
    assert!(
        text.starts_with("ERR clockwise: outcome unknown: the connection to node n0 broke")
            || text.starts_with("TRYAGAIN clockwise: "),
        "{text}"
    );
    let Value::Error(text) = reads.read() else {
        panic!("the node is gone")
    };
    assert!(text.starts_with("TRYAGAIN clockwise: "), "{text}");
    wait_until("refused at once", || {
        let Value::Error(text) = pops.call(&["BLPOP", &key, "0"]) else {
            panic!("the node is gone")
        };
        text.starts_with("TRYAGAIN clockwise: node n0")
    });
    pool.servers[0].restart();
    let mut pusher = pool.client();
    wait_until("the node serves again", || {
        matches!(pusher.call(&["RPUSH", &key, "e"]), Value::Integer(_))
    });
    wait_until("also those who wait", || {
        pops.call(&["BLPOP", &key, "0"]) == pair(&key, "e")
    });
}

#[test]
fn draining_ends_what_waits() {
    let mut pool = start(Plan::default());
    let key = pool.key_on(0, "k");
    let mut client = pool.client();
    client.send(&["BLPOP", &key, "0"]);
    pool.wait_for_a_blocked_client(0, "blpop");
    pool.drain(PATIENCE);
    assert_eq!(client.read(), Value::Null);
    assert!(client.is_closed());
}

#[test]
fn a_client_that_waits_is_served_by_the_new_owner_after_a_handover() {
    let mut pool = joining(patient());
    let (moving, staying) = (pool.moving_key(0, "m"), pool.staying_key(0, "s"));
    let (mut goes, mut stays) = (pool.client(), pool.client());
    goes.send(&["BLPOP", &moving, "0"]);
    stays.send(&["BLPOP", &staying, "0"]);
    wait_until("both wait", || pool.clients_at(0, "blpop") == 2);
    pool.begin_handover(0);
    // Succeeds only when no connection of the generation before is left: a fraction of a second.
    let started = Instant::now();
    pool.fence(0);
    assert!(started.elapsed() < PATIENCE / 4, "{:?}", started.elapsed());
    wait_until("who waits for a key that stays, waits on", || {
        pool.clients_at(0, "blpop") == 1
    });
    pool.flip(0);
    pool.wait_for_a_blocked_client(3, "blpop");
    let mut pusher = pool.client();
    pusher.call(&["RPUSH", &moving, "e"]);
    pusher.call(&["RPUSH", &staying, "f"]);
    assert_eq!(goes.read(), pair(&moving, "e"));
    assert_eq!(stays.read(), pair(&staying, "f"));
}

#[test]
fn a_handover_does_not_wait_for_those_who_wait() {
    // Left to themselves, they would be asked of their patience long after this test.
    let mut pool = joining(Limits {
        block_ms_max: 10 * PATIENCE.as_secs() * 1_000,
        ..patient()
    });
    let (moving, staying) = (pool.moving_key(0, "m"), pool.staying_key(0, "s"));
    let wait_for = |key: &str, protocol: &str| {
        let mut client = pool.client();
        client.call(&["HELLO", protocol]);
        client.send(&["BLPOP", key, "0"]);
        client
    };
    let clients = (0..40).map(|number| {
        let key = if number % 2 == 0 { &moving } else { &staying };
        let protocol = if number % 4 < 2 { "2" } else { "3" };
        (key.clone(), wait_for(key, protocol))
    });
    let mut clients: Vec<(String, Client)> = clients.collect();
    wait_until("all wait", || pool.clients_at(0, "blpop") == 40);
    pool.begin_handover(0);
    pool.fence(0);
    pool.flip(0);
    wait_until("all wait again", || {
        pool.clients_at(0, "blpop") == 20 && pool.clients_at(3, "blpop") == 20
    });
    let mut pusher = pool.client();
    for (key, _) in &clients {
        pusher.call(&["RPUSH", key, "e"]);
    }
    for (key, client) in &mut clients {
        assert_eq!(client.read(), pair(key, "e"));
    }
}

#[test]
fn elements_are_popped_exactly_once_while_their_lists_are_handed_over() {
    let mut pool = joining(patient());
    let lists: Vec<String> = (0..24).map(|number| format!("list:{number}")).collect();
    let (running, pushed) = (AtomicBool::new(true), AtomicUsize::new(0));
    let pushing = AtomicBool::new(true);
    let addr = pool.addr();
    let popped: Vec<BTreeSet<usize>> = thread::scope(|scope| {
        let (running, pushed, lists, pushing) = (&running, &pushed, &lists, &pushing);
        let _stop = Stop(running);
        let poppers: Vec<_> = lists
            .iter()
            .map(|list| {
                scope.spawn(move || {
                    let _stop = Stop(running);
                    let mut client = Client::connect(addr);
                    let mut popped = BTreeSet::new();
                    loop {
                        let last = !pushing.load(Ordering::Relaxed);
                        match client.call(&["BLPOP", list, "0.3"]) {
                            Value::Null if last => return popped,
                            Value::Null => {}
                            Value::Array(pair) => {
                                let element: usize = pair[1].as_text().unwrap().parse().unwrap();
                                assert!(popped.insert(element), "{element} came twice");
                            }
                            other => panic!("{list}: {other:?}"),
                        }
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            let _stops = (Stop(running), Stop(pushing));
            let mut client = Client::connect(addr);
            while running.load(Ordering::Relaxed) {
                let element = pushed.load(Ordering::Relaxed);
                let list = &lists[element % lists.len()];
                let answer = client.call(&["RPUSH", list, &element.to_string()]);
                assert!(matches!(answer, Value::Integer(_)), "{answer:?}");
                pushed.fetch_add(1, Ordering::Relaxed);
            }
        });
        let work = |_: &Pool| pushed.load(Ordering::Relaxed) as u64 / 500;
        pool.hand_over_all(running, work, |pool, source| pool.copy_whole(source, lists));
        poppers
            .into_iter()
            .map(|popper| popper.join().unwrap())
            .collect()
    });
    let all: BTreeSet<usize> = popped.iter().flatten().copied().collect();
    let count: usize = popped.iter().map(BTreeSet::len).sum();
    assert_eq!(count, all.len(), "an element came to two clients");
    assert_eq!(
        all,
        (0..pushed.load(Ordering::Relaxed)).collect(),
        "elements are lost"
    );
    assert_eq!(ok(), pool.client().call(&["SET", "still", "there"]));
}
