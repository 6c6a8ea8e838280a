//! memcached's clients have a test of servers, `memccapable`. All that it checks of the text protocol must
//! hold through the router.

use std::process::Command;

use crate::pool::{Plan, start};

#[test]
fn memccapable_passes_through_the_router() {
    let pool = start(Plan {
        flush_all: true,
        ..Plan::default()
    });
    let port = pool.addr().port().to_string();
    let run = Command::new("memccapable")
        .args(["-h", "127.0.0.1", "-p", &port, "-a"])
        .output()
        .expect("memccapable is in Debian's package libmemcached-tools");
    let text = String::from_utf8_lossy(&run.stdout);
    let passed = text.lines().filter(|line| line.ends_with("[pass]")).count();
    let failed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("[FAIL]"))
        .collect();
    assert!(
        failed.is_empty() && passed >= 27,
        "{passed} passed, {failed:?}\n{text}"
    );
}
