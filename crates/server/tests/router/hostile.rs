//! Clients that mean harm or do not care: bounded, told, and nobody else notices.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use clockwise::router::Limits;
use clockwise_client::resp::{RequestLimits, Value, write_command};

use crate::pool::{Client, Plan, Pool, bulk, ok, patient, start, wait_until};

fn with(limits: Limits) -> Pool {
    start(Plan {
        limits,
        ..Plan::default()
    })
}

#[test]
fn what_is_no_request_gets_an_error_and_the_connection_closes() {
    let pool = start(Plan::default());
    for (bytes, error) in [
        (&b"*2000000000\r\n"[..], "invalid multibulk length"),
        (b"*1\r\n$2000000000\r\n", "too big request"),
        (b"*1\r\n*1\r\n", "expected '$', got '*'"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1\r\n$4\r\nPINGxx", "expected line end"),
        (b"get \"open\r\n", "unbalanced quotes"),
        (b"get \"\\x4\"x\r\n", "unbalanced quotes"),
    ] {
        let mut client = pool.client();
        client.raw(bytes);
        let Value::Error(text) = client.read() else {
            panic!("an error is due for {bytes:?}")
        };
        assert!(text.contains(error), "{text}");
        assert!(client.is_closed(), "{text}");
    }
    let mut client = pool.client();
    client.raw(b"\r\n*0\r\n*-1\r\n   \r\nPING\r\n");
    assert_eq!(client.read(), Value::Simple("PONG".into()));
}

#[test]
fn a_web_page_cannot_speak_through_a_browser() {
    let pool = start(Plan::default());
    let mut honest = pool.client();
    honest.ask("SET victim alive");
    for head in ["POST / HTTP/1.1", "Host: localhost"] {
        let mut browser = pool.client();
        browser.raw(format!("{head}\r\nContent-Length: 12\r\n\r\nDEL victim\r\n").as_bytes());
        assert!(browser.is_closed(), "{head}");
        assert_eq!(honest.ask("GET victim"), bulk("alive"));
    }
}

#[test]
fn an_endless_line_is_cut_off_and_its_sender_still_reads_why() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    client.raw(&vec![b'a'; 300_000]);
    assert_eq!(
        client.read(),
        Value::Error("ERR Protocol error: too big inline request".into())
    );
    assert!(client.is_closed());
}

#[test]
fn a_key_of_64_kib_is_served_and_a_longer_one_refused_without_losing_step() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let longest = "k".repeat(64 << 10);
    assert_eq!(client.call(&["SET", &longest, "v"]), ok());
    assert_eq!(client.call(&["GET", &longest]), bulk("v"));
    let longer = format!("{longest}k");
    for request in [
        &["SET", &longer, "v"][..],
        &["MGET", "a", &longer],
        &["DEL", &longer],
        &["HSET", &longer, "f", "v"],
    ] {
        let Value::Error(text) = client.call(request) else {
            panic!("{} passes", request[0])
        };
        assert_eq!(
            text,
            "ERR clockwise: a key of 65537 bytes is over the limit of 65536"
        );
    }
    assert_eq!(client.call(&["GET", &longest]), bulk("v"));
}

#[test]
fn a_value_over_the_limit_is_refused_and_its_payload_never_read_as_commands() {
    let request = RequestLimits {
        bulk_bytes_max: 1 << 20,
        request_bytes_max: 2 << 20,
        ..RequestLimits::default()
    };
    let pool = with(Limits {
        request,
        ..patient()
    });
    let mut client = pool.client();
    client.call(&["SET", "victim", "alive"]);
    let mut evil = Vec::new();
    while evil.len() < 3 << 20 {
        write_command(&mut evil, &["DEL", "victim"]);
        evil.extend_from_slice(b"DEL victim\r\n");
    }
    let mut batch = Vec::new();
    write_command(&mut batch, &[b"SET", &b"k"[..], &evil]);
    write_command(&mut batch, &["GET", "victim"]);
    client.raw(&batch);
    let Value::Error(text) = client.read() else {
        panic!("over the limit")
    };
    assert!(
        text.starts_with("ERR clockwise: an argument of ")
            && text.ends_with("over the limit of 1048576"),
        "{text}"
    );
    assert_eq!(client.read(), bulk("alive"));
    assert_eq!(client.ask("EXISTS k"), Value::Integer(0));
    // Three values that are each small enough.
    let part = vec![b'x'; 900_000];
    let Value::Error(text) = client.call(&[b"MSET", &b"a"[..], &part, b"b", &part, b"c", &part])
    else {
        panic!("too long")
    };
    assert!(
        text.contains("a request of more than 2097152 bytes"),
        "{text}"
    );
    assert_eq!(client.call(&[b"SET", &b"a"[..], &part]), ok());
}

#[test]
fn a_half_sent_request_is_given_up_in_time() {
    let pool = with(Limits {
        request_ms_max: 300,
        ..patient()
    });
    for half in [
        &b"*2\r\n$3\r\nGET\r\n$3\r\na"[..],
        b"GET a",
        b"*",
        // Too large even to be waited for: it is passed over as it comes.
        b"*1\r\n$100000000\r\nsome of it",
    ] {
        let mut client = pool.client();
        client.raw(half);
        let Value::Error(text) = client.read() else {
            panic!("an error is due")
        };
        assert_eq!(text, "ERR clockwise: the request was not complete in time");
        assert!(client.is_closed());
    }
    let mut idle = pool.client();
    assert_eq!(idle.ask("PING"), Value::Simple("PONG".into()));
    wait_until("they are counted", || pool.stats().clients_dropped >= 4);
}

#[test]
fn idle_clients_and_slow_logins_end_where_that_is_asked_for() {
    let pool = with(Limits {
        idle_ms_max: 300,
        ..patient()
    });
    let mut client = pool.client();
    wait_until("it is served", || {
        client = pool.client();
        client.ask("PING") == Value::Simple("PONG".into())
    });
    assert!(matches!(client.read(), Value::Error(text) if text.contains("idle for too long")));
    assert!(client.is_closed());
    let limits = Limits {
        login_ms_max: 300,
        ..patient()
    };
    let pool = start(Plan {
        limits,
        password: Some("secret"),
        ..Plan::default()
    });
    let mut client = pool.client();
    assert!(matches!(client.read(), Value::Error(text) if text.contains("password was not given")));
    assert!(client.is_closed());
}

#[test]
fn one_client_too_many_is_told_so_and_the_others_stay() {
    let pool = with(Limits {
        clients_max: 3,
        ..patient()
    });
    let mut clients: Vec<Client> = (0..3).map(|_| pool.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("PING"), Value::Simple("PONG".into()));
    }
    let mut fourth = pool.client();
    assert_eq!(
        fourth.read(),
        Value::Error("ERR max number of clients reached".into())
    );
    assert!(fourth.is_closed());
    assert_eq!(clients[0].ask("PING"), Value::Simple("PONG".into()));
    clients.pop();
    wait_until("there is room again", || {
        let mut client = pool.client();
        client.raw(b"PING\r\n");
        client.read() == Value::Simple("PONG".into())
    });
    wait_until("it is counted", || pool.stats().clients_refused >= 1);
}

/// Runs a test of this binary alone in a process of its own, so that its memory can be measured.
fn alone(name: &str, test: impl FnOnce()) {
    const VARIABLE: &str = "CLOCKWISE_TEST_ALONE";
    if std::env::var_os(VARIABLE).is_some() {
        return test();
    }
    let own = std::env::current_exe().unwrap();
    let status = Command::new(own)
        .args(["--exact", name, "--nocapture"])
        .env(VARIABLE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{name} failed in a process of its own");
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

/// How often the router's worker has gone to sleep. For a process with one router of one worker.
fn sleeps_of_the_worker() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let read = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread may end while we look.
        std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default()
    };
    let status = tasks
        .map(read)
        .find(|status| status.starts_with("Name:\tclockwise-route"));
    let status = status.unwrap();
    let count = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn a_router_that_nobody_uses_sleeps() {
    alone("hostile::a_router_that_nobody_uses_sleeps", || {
        let pool = start(Plan::default());
        let work = || {
            for number in 0..20 {
                assert_eq!(pool.client().ask(&format!("SET key {number}")), ok());
            }
            wait_until("it is in the rate", || pool.stats().requests_per_second > 0);
        };
        work();
        wait_until("the rate falls", || pool.stats().requests_per_second == 0);
        // Looks are 5 ms apart at least: what happens once a second would be seen.
        let (mut last, mut same) = (0, 0);
        wait_until("the worker sleeps on", || {
            let now = sleeps_of_the_worker();
            same = if now == last { same + 1 } else { 0 };
            last = now;
            same == 250
        });
        work();
    });
}

/// Sends as much as the router takes, and returns when it takes no more.
fn flood(client: &mut TcpStream, batch: &[u8]) -> usize {
    client
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut sent = 0;
    while sent < batch.len() {
        match client.write(&batch[sent..]) {
            Ok(written) => sent += written,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                break;
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) =>
            {
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    sent
}

/// A client that does no harm waits for nobody else. A busy machine may delay it, but not always.
fn serves_at_once(honest: &mut Client) {
    wait_until("an honest client is served at once", || {
        let started = Instant::now();
        assert_eq!(honest.ask("EXISTS value"), Value::Integer(1));
        started.elapsed() < Duration::from_millis(500)
    });
}

#[test]
fn a_client_that_never_reads_costs_little_and_is_dropped() {
    alone(
        "hostile::a_client_that_never_reads_costs_little_and_is_dropped",
        || {
            let pool = with(Limits {
                unread_ms_max: 2_000,
                ..patient()
            });
            let mut honest = pool.client();
            honest.call(&["SET", "value", &"v".repeat(100_000)]);
            honest.call(&["GET", "value"]);
            let before = resident_bytes();
            let mut batch = Vec::new();
            (0..20_000).for_each(|_| write_command(&mut batch, &["GET", "value"]));
            let mut greedy = pool.client().socket;
            flood(&mut greedy, &batch);
            let grown = resident_bytes().saturating_sub(before);
            assert!(grown <= 16 << 20, "{} KiB more", grown >> 10);
            serves_at_once(&mut honest);
            wait_until("the client is dropped", || {
                pool.stats().clients_dropped == 1
            });
            let mut rest = vec![0; 1 << 20];
            while greedy.read(&mut rest).is_ok_and(|read| read > 0) {}
            wait_until("it is gone", || pool.stats().clients == 1);
        },
    );
}

#[test]
fn a_client_that_reads_late_gets_everything() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let value = "v".repeat(50_000);
    client.call(&["SET", "value", &value]);
    let mut batch = Vec::new();
    (0..2_000).for_each(|_| write_command(&mut batch, &["GET", "value"]));
    let mut sender = client.socket.try_clone().unwrap();
    flood(&mut sender, &batch);
    for _ in 0..2_000 {
        assert!(client.read() == bulk(&value));
    }
}

#[test]
fn all_clients_together_cannot_take_more_memory_than_a_worker_has() {
    let pool = with(Limits {
        memory_bytes_max: 64 << 20,
        ..patient()
    });
    let mut honest = pool.client();
    honest.ask("SET a 1");
    // Twenty requests of which eight megabytes each arrive, and never the rest.
    let mut part = b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$60000000\r\n".to_vec();
    part.resize(8 << 20, b'x');
    let greedy: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut client = pool.client().socket;
            // Dropped half-way, it sees its connection end.
            let _sent = client.write_all(&part);
            client
        })
        .collect();
    wait_until("some are dropped", || pool.stats().clients_dropped >= 10);
    assert_eq!(honest.ask("GET a"), bulk("1"));
    drop(greedy);
}

#[test]
fn half_sent_requests_of_a_thousand_clients_cost_little() {
    alone(
        "hostile::half_sent_requests_of_a_thousand_clients_cost_little",
        || {
            let pool = start(Plan::default());
            let mut honest = pool.client();
            honest.ask("SET value 1");
            let before = resident_bytes();
            let clients: Vec<Client> = (0..1_000)
                .map(|_| {
                    let mut client = pool.client();
                    client.raw(b"*1000000\r\n$3\r\nSET\r\n$60000000\r\nabc");
                    client
                })
                .collect();
            serves_at_once(&mut honest);
            let grown = resident_bytes().saturating_sub(before);
            assert!(
                grown < 64 << 20,
                "{} KiB more for {} clients",
                grown >> 10,
                clients.len()
            );
        },
    );
}

#[test]
fn garbage_of_any_kind_disturbs_nobody() {
    let pool = start(Plan::default());
    let mut honest = pool.client();
    let mut state = 7u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    const WORDS: &[&[u8]] = &[
        b"*",
        b"$",
        b"\r\n",
        b"*3\r\n",
        b"$3\r\nSET\r\n",
        b"$1\r\na\r\n",
        b"-1",
        b"999999",
        b"\0",
        b"\"",
        b"GET a\r\n",
        b"%2\r\n",
    ];
    for round in 0..300 {
        let mut garbage = Vec::new();
        for _ in 0..next() % 30 {
            garbage.extend_from_slice(WORDS[next() % WORDS.len()]);
        }
        let mut client = pool.client();
        client.raw(&garbage);
        let value = format!("v{round}");
        assert_eq!(honest.call(&["SET", "mine", &value]), ok());
        assert_eq!(honest.ask("GET mine"), bulk(&value));
    }
}
