//! Leadership: whoever leads is killed, and another goes on.

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
    assert_eq!(second.run(&["status", "--check"]).exit, 0);
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
