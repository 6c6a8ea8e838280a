//! The table of `docs/limits.md` says what the code says.

use clockwise::driver::redis::RESERVED_PREFIX;
use clockwise::router::Limits;
use clockwise_client::memcached::KEY_BYTES_MAX;
use clockwise_client::store::{HISTORY_EPOCHS_MAX, REGISTERED_MAX};
use clockwise_cluster::handoff::preflight::CLOCK_SKEW_MS_MAX;
use clockwise_cluster::handoff::{HANDOVER_BUDGET_MS, OLD_CONNECTIONS_MS_MAX};
use clockwise_cluster::{
    COUNTER_MAX, FOREIGN_WRITERS_MAX, INTERVALS_LISTED_MAX, RECORD_BYTES_MAX, STAGED_MAX,
};
use clockwise_placement::{DOMAIN_DEPTH_MAX, MEMBERS_MAX, POINTS_MAX, SLOTS_DEFAULT, SLOTS_MAX};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
const BEGIN: &str = "<!-- What follows is written by a test, crates/server/tests/limits.rs. -->\n";
const END: &str = "<!-- So far. -->";

/// A number with commas.
fn count(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().ok().expect("it is no larger").to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).expect("digits"))
        .collect();
    groups.join(",")
}

/// Bytes in the largest unit that they are whole in.
fn bytes(number: impl TryInto<u64>) -> String {
    let number = number.try_into().ok().expect("it is no larger");
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(size, _)| number % size == 0) {
        Some((size, unit)) => format!("{} {unit}", number / size),
        None => format!("{number} bytes"),
    }
}

fn rows() -> Vec<(&'static str, String, &'static str)> {
    let router = Limits::default();
    let refused = "refused when it is staged or planned";
    vec![
        ("nodes of a pool", count(MEMBERS_MAX), refused),
        (
            "points of a ring, all nodes together",
            count(POINTS_MAX),
            refused,
        ),
        (
            "slots",
            format!(
                "{}, without saying {}",
                count(SLOTS_MAX),
                count(SLOTS_DEFAULT)
            ),
            refused,
        ),
        (
            "levels of a failure domain",
            count(DOMAIN_DEPTH_MAX),
            refused,
        ),
        (
            "the record, as it is stored",
            bytes(RECORD_BYTES_MAX),
            refused,
        ),
        ("edits staged at a time", count(STAGED_MAX), "refused"),
        (
            "users allowed by `--allow-writer`",
            count(FOREIGN_WRITERS_MAX),
            "refused",
        ),
        (
            "intervals that a plan lists",
            count(INTERVALS_LISTED_MAX),
            "the rest is counted",
        ),
        (
            "epochs kept in history",
            count(HISTORY_EPOCHS_MAX),
            "older ones go",
        ),
        (
            "registered processes that are listed",
            count(REGISTERED_MAX),
            "the rest is counted",
        ),
        (
            "epoch, revision, term, generation",
            count(COUNTER_MAX),
            "refused",
        ),
        (
            "clocks of nodes apart, in a change",
            format!("{CLOCK_SKEW_MS_MAX} ms"),
            "the change is refused",
        ),
        (
            "a handover, from its commit to its flip",
            format!("{HANDOVER_BUDGET_MS} ms"),
            "rolled back, tried again",
        ),
        (
            "of it, for clients to finish on the old connections",
            format!("{OLD_CONNECTIONS_MS_MAX} ms"),
            "fenced all the same: writes on their way there are of unknown outcome",
        ),
        (
            "a request held for a handover",
            format!("{} ms", count(router.traffic.hold.wait_ms_max)),
            "`TRYAGAIN`",
        ),
        (
            "keys that begin with",
            format!("`{}`", String::from_utf8_lossy(RESERVED_PREFIX)),
            "reserved in pools of Redis; clients may not touch them",
        ),
        (
            "clients of one router (`clients_max`)",
            count(router.clients_max),
            "an error, and the connection closes",
        ),
        (
            "a key (`key_bytes_max`)",
            bytes(router.key_bytes_max),
            "an error, and the connection stays",
        ),
        (
            "one argument, so one value (`value_bytes_max`)",
            bytes(router.request.bulk_bytes_max),
            "an error, and the connection stays",
        ),
        (
            "one request (`request_bytes_max`)",
            bytes(router.request.request_bytes_max),
            "an error, and the connection stays",
        ),
        (
            "arguments of one request",
            count(router.request.elements_max),
            "an error, and the connection closes",
        ),
        (
            "requests of one client on their way (`in_flight_max`, `in_flight_bytes_max`)",
            format!(
                "{}, or {}",
                count(router.in_flight_max),
                bytes(router.in_flight_bytes_max)
            ),
            "the rest waits in its socket",
        ),
        (
            "one answer",
            bytes(router.reply_bytes_max),
            "an error in its place",
        ),
        (
            "a key of memcached, as it stands in the line",
            bytes(KEY_BYTES_MAX),
            "an error, and the connection stays",
        ),
        (
            "keys of one `get` of memcached",
            count(router.memcached.keys_max),
            "an error, and the connection stays",
        ),
        (
            "a value of memcached",
            bytes(router.memcached.value_bytes_max),
            "an error, and the connection stays; a node's own limit, 1 MiB by default, comes first",
        ),
    ]
}

/// With `CLOCKWISE_GOLDEN` set it is written, otherwise compared.
#[test]
fn the_page_has_the_limits_of_the_code() {
    let mut shown = String::from("| what | limit | what happens beyond |\n|---|---|---|\n");
    for (what, limit, beyond) in rows() {
        shown.push_str(&format!("| {what} | {limit} | {beyond} |\n"));
    }
    let page = std::fs::read_to_string(PAGE).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the table begins");
    let (written, after) = rest.split_once(END).expect("the table ends");
    if std::env::var_os("CLOCKWISE_GOLDEN").is_some() {
        std::fs::write(PAGE, [before, BEGIN, &shown, END, after].concat()).expect("it is ours");
    } else {
        assert_eq!(
            written, shown,
            "the page is out of date: see the head of this test"
        );
    }
}
