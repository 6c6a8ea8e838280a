//! Leadership: whoever leads is killed, and another goes on.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::pool::{ALL, Pool, all_there, fill, node};
use crate::process::{Serve, wait_until, wait_within};

const KEYS: u32 = 3_000;
/// From the death of a leader to the next one's progress.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(10);

#[test]
fn a_running_move_goes_on_under_another_leader_after_kill_9() {
    let pool = Pool::over_etcd(2);
    let mut first = pool.serve("a", ALL);
    wait_until("the first leads", || {
        first.status()["leader"]["here"] == true
    });
    let second = pool.serve("b", ALL);
    fill(&mut second.client(), KEYS);
    let third = node();
    for verb in [
        &["throttle", "--keys", "100"][..],
        &["node", "add", "node-3", "--addr", &third.addr()],
        &["apply"],
    ] {
        let done = second.run(verb);
        assert_eq!(done.exit, 0, "{verb:?}: {done:?}");
    }
    let moved = |serve: &Serve| {
        let moves = serve.run(&["moves", "-o", "json"]).json("Moves");
        moves["keys_moved"].as_u64().unwrap()
    };
    wait_until("keys are copied", || moved(&first) > 0);
    let killed_at = Instant::now();
    first.end(Signal::KILL);
    let counts = |serve: &Serve| {
        let (_, page) = serve.get("/metrics");
        let leads = page.lines().any(|line| line == "clockwise_leads 1");
        let copied = page.lines().any(|line| {
            let count = line.strip_prefix("clockwise_move_keys_copied");
            count.is_some_and(|line| !line.ends_with(" 0"))
        });
        leads && copied
    };
    wait_within(TAKEN_OVER_WITHIN, "another makes progress", || {
        counts(&second)
    });
    println!(
        "progress under the next leader after {:?}",
        killed_at.elapsed()
    );
    let done = second.run(&["throttle", "--keys", "0"]);
    assert_eq!(done.exit, 0, "{done:?}");
    let followed = second.run(&["moves", "--watch", "-o", "json"]);
    assert_eq!(followed.exit, 0, "{followed:?}");
    all_there(&mut second.client(), KEYS);
    wait_until("the pool is well", || {
        second.run(&["status", "--check"]).exit == 0
    });
    // Whoever was killed comes back and follows.
    let again = pool.serve("a", ALL);
    all_there(&mut again.client(), KEYS);
    assert_eq!(again.status()["leader"]["here"], false);
}

#[test]
fn a_leader_that_ends_in_good_order_is_followed_at_once() {
    let pool = Pool::over_etcd(1);
    let mut first = pool.serve("a", ALL);
    wait_until("the first leads", || {
        first.status()["leader"]["here"] == true
    });
    let second = pool.serve("b", ALL);
    assert!(first.end(Signal::TERM).success());
    let ended_at = Instant::now();
    wait_until("the second leads", || {
        second.status()["leader"]["here"] == true
    });
    // Not by its lease running out, which lasts two seconds.
    assert!(
        ended_at.elapsed() < Duration::from_secs(2),
        "{:?}",
        ended_at.elapsed()
    );
}

#[test]
fn the_token_goes_to_nobody_who_does_not_say_that_it_leads() {
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = stranger.local_addr().unwrap();
    let heard = Arc::new(Mutex::new(String::new()));
    let hears = Arc::clone(&heard);
    thread::spawn(move || {
        for mut stream in stranger.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while lines.read_line(&mut head).is_ok_and(|bytes| bytes > 2) {}
            hears.lock().unwrap().push_str(&head);
            // It may have gone by now.
            let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
        }
    });
    let pool = Pool::over_etcd(1);
    let config = pool.config("a", ALL, "");
    let text = std::fs::read_to_string(&config).unwrap();
    let token = "token_file = \"token\"\n";
    let elsewhere = format!("{token}advertise = \"{address}\"\n");
    std::fs::write(&config, text.replace(token, &elsewhere)).unwrap();
    let first = Serve::start(&config);
    wait_until("the first leads", || {
        first.status()["leader"]["here"] == true
    });
    let second = pool.serve("b", ALL);
    let refused = second.run(&["abort"]);
    assert_eq!(refused.exit, 4, "{refused:?}");
    assert!(refused.stderr.contains("nothing was begun"), "{refused:?}");
    let heard = heard.lock().unwrap().to_lowercase();
    assert!(heard.contains("get /v1/progress"), "{heard}");
    assert!(
        !heard.contains("authorization") && !heard.contains("post"),
        "{heard}"
    );
}
