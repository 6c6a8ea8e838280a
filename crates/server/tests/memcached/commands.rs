//! What becomes of each command.

use clockwise_client::memcached::KEY_BYTES_MAX;

use crate::pool::{Plan, start};

#[test]
fn each_command_is_answered_as_by_one_server() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let mut check = |request: &str, expected: &str| {
        assert_eq!(client.ask(request), expected, "{request:?}");
    };
    check("get a\r\n", "END\r\n");
    check("set a 7 0 5\r\nhello\r\n", "STORED\r\n");
    check("get a\r\n", "VALUE a 7 5\r\nhello\r\nEND\r\n");
    check("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    check("replace b 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    check("append a 0 0 1\r\n!\r\n", "STORED\r\n");
    check("prepend a 0 0 1\r\n>\r\n", "STORED\r\n");
    check("gat 100 a\r\n", "VALUE a 7 7\r\n>hello!\r\nEND\r\n");
    check("cas a 0 0 1 1\r\nx\r\n", "EXISTS\r\n");
    check("cas b 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n");
    check("touch a 100\r\n", "TOUCHED\r\n");
    check("touch b 100\r\n", "NOT_FOUND\r\n");
    check("set n 0 0 2\r\n10\r\n", "STORED\r\n");
    check("incr n 5\r\n", "15\r\n");
    check("decr n 9\r\n", "6\r\n");
    check(
        "incr a 1\r\n",
        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
    check("incr b 1\r\n", "NOT_FOUND\r\n");
    check("delete n\r\n", "DELETED\r\n");
    check("delete n\r\n", "NOT_FOUND\r\n");
    check("mg a s v O1\r\n", "VA 7 s7 O1\r\n>hello!\r\n");
    check("mg b v\r\n", "EN\r\n");
    check("ms m 2 O2\r\nhi\r\n", "HD O2\r\n");
    check("me nothing\r\n", "EN\r\n");
    check(
        "ma m\r\n",
        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
    check("md m\r\n", "HD\r\n");
}

#[test]
fn keys_go_to_their_owner_whatever_form_they_come_in() {
    // haproxy/haproxy#870: one key in two forms of one protocol was hashed differently.
    let pool = start(Plan::default());
    let mut client = pool.client();
    for node in 0..3 {
        let key = pool.key_on(node, "foobar");
        let encoded = base64(key.as_bytes());
        assert_eq!(client.ask(format!("ms {encoded} 2 b\r\nhi\r\n")), "HD\r\n");
        assert_eq!(client.ask(format!("mg {key} v\r\n")), "VA 2\r\nhi\r\n");
        let expected = format!("VALUE {key} 0 2\r\nhi\r\nEND\r\n");
        assert_eq!(client.ask(format!("get {key}\r\n")), expected);
        assert_eq!(pool.direct(node).ask(format!("get {key}\r\n")), expected);
    }
    // A key that no line can hold: a line end, a blank, and a byte that is no text.
    let key = base64(b"a\r\n \xff");
    assert_eq!(client.ask(format!("ms {key} 1 b\r\nx\r\n")), "HD\r\n");
    let expected = format!("VA 1 k{key} b\r\nx\r\n");
    assert_eq!(client.ask(format!("mg {key} b v k\r\n")), expected);
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut bits = 0u32;
        for at in 0..3 {
            bits = bits << 8 | u32::from(group.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            match at <= group.len() {
                true => text.push(char::from(ALPHABET[(bits >> (18 - 6 * at) & 63) as usize])),
                false => text.push('='),
            }
        }
    }
    text
}

#[test]
fn items_of_several_nodes_come_in_the_order_of_the_keys() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let keys: Vec<String> = (0..30).map(|number| format!("key{number}")).collect();
    for key in keys.iter().step_by(2) {
        assert_eq!(
            client.ask(format!("set {key} 1 0 3\r\n{:>3}\r\n", &key[3..])),
            "STORED\r\n"
        );
    }
    let owners: std::collections::BTreeSet<_> =
        keys.iter().map(|key| pool.owner(key.as_bytes())).collect();
    assert_eq!(owners.len(), 3);
    let expected: String = keys
        .iter()
        .step_by(2)
        .map(|key| format!("VALUE {key} 1 3\r\n{:>3}\r\n", &key[3..]))
        .collect();
    let list = keys.join(" ");
    assert_eq!(
        client.ask(format!("get {list}\r\n")),
        format!("{expected}END\r\n")
    );
    assert_eq!(
        client.ask(format!("gat 0 {list}\r\n")),
        format!("{expected}END\r\n")
    );
    let twice = client.ask("get key0 key2 key0 nothing key2\r\n");
    assert_eq!(twice.matches("VALUE key0").count(), 2, "{twice}");
    assert_eq!(twice.matches("VALUE").count(), 4, "{twice}");
    assert_eq!(client.ask("get nothing1 nothing2 nothing3\r\n"), "END\r\n");
    let gets = client.ask(format!("gets {list}\r\n"));
    assert_eq!(gets.matches("VALUE").count(), 15, "{gets}");
}

#[test]
fn silence_is_kept_and_a_barrier_comes_behind_everything() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let said = client.all(
        "set a 0 0 1 noreply\r\n1\r\nadd a 0 0 1 noreply\r\n2\r\nincr a 1 noreply\r\n\
         delete nothing noreply\r\ntouch a 0 noreply\r\nincr nothing x noreply\r\n\
         mg nothing v q\r\nms b 1 q\r\nx\r\nmd nothing2 q\r\nmd b q\r\nma a q v\r\nmg a v q\r\n",
    );
    assert_eq!(said, ["NF\r\n", "VA 1\r\n3\r\n"]);
    // Nothing is said to a request that cannot be done either: it would be read as the next one's answer.
    let said = client.all(format!(
        "set {} 0 0 1 noreply\r\nx\r\nget b\r\n",
        "k".repeat(251)
    ));
    assert_eq!(said, ["END\r\n"]);
}

#[test]
fn flush_all_goes_to_all_nodes_where_the_pool_allows_it() {
    let refused = start(Plan::default());
    let mut client = refused.client();
    assert_eq!(
        client.ask("flush_all\r\n"),
        "CLIENT_ERROR flush_all not allowed\r\n"
    );
    assert_eq!(client.all("flush_all noreply\r\n"), Vec::<String>::new());

    let pool = start(Plan {
        flush_all: true,
        ..Plan::default()
    });
    let mut client = pool.client();
    let fill = |client: &mut crate::pool::Client| {
        for node in 0..3 {
            let key = pool.key_on(node, "k");
            assert_eq!(
                client.ask(format!("set {key} 0 0 1\r\nx\r\n")),
                "STORED\r\n"
            );
        }
    };
    let list: Vec<String> = (0..3).map(|node| pool.key_on(node, "k")).collect();
    let list = list.join(" ");
    for flush in ["flush_all\r\n", "flush_all 0\r\n"] {
        fill(&mut client);
        assert_eq!(client.ask(flush), "OK\r\n");
        assert_eq!(client.ask(format!("get {list}\r\n")), "END\r\n");
    }
    fill(&mut client);
    assert_eq!(client.all("flush_all noreply\r\n"), Vec::<String>::new());
    assert_eq!(client.ask(format!("get {list}\r\n")), "END\r\n");
    assert_eq!(
        client.ask("flush_all soon\r\n"),
        "CLIENT_ERROR invalid exptime argument\r\n"
    );
}

#[test]
fn what_is_not_about_keys_is_about_the_pool() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let version = client.ask("version\r\n");
    let own = pool.direct(0).ask("version\r\n");
    assert_eq!(
        version,
        format!(
            "{} clockwise {}\r\n",
            own.trim_end(),
            env!("CARGO_PKG_VERSION")
        )
    );
    for node in 0..3 {
        let key = pool.key_on(node, "k");
        client.ask(format!("set {key} 0 0 1\r\nx\r\n"));
    }
    let statistics = client.ask("stats\r\n");
    for line in [
        "clockwise_nodes 3",
        "clockwise_epoch 2",
        "curr_items 3",
        "cmd_set 3",
    ] {
        assert!(
            statistics.contains(&format!("STAT {line}\r\n")),
            "{line}: {statistics}"
        );
    }
    assert!(!statistics.contains("STAT pid"), "{statistics}");
    const ONE: &str = "CLIENT_ERROR it administers one server; connect to the node\r\n";
    for of_one in [
        "stats slabs",
        "stats reset",
        "lru_crawler metadump all",
        "cache_memlimit 1",
        "watch",
        "shutdown",
    ] {
        assert_eq!(client.ask(format!("{of_one}\r\n")), ONE, "{of_one}");
    }
    assert_eq!(client.ask("verbosity 1\r\n"), "OK\r\n");
    assert_eq!(client.all("verbosity 1 noreply\r\n"), Vec::<String>::new());
    assert_eq!(
        client.ask("verbosity x\r\n"),
        "CLIENT_ERROR bad command line format\r\n"
    );
    assert_eq!(client.ask("hello\r\n"), "ERROR\r\n");
    assert_eq!(client.ask("mn\r\n"), "MN\r\n");
    client.send("get a\r\nquit\r\nget b\r\n");
    assert_eq!(client.read(), "END\r\n");
    assert!(client.is_closed(), "nothing behind quit is answered");
}

#[test]
fn keys_and_values_up_to_the_limits_pass_and_others_are_refused() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let key = "k".repeat(KEY_BYTES_MAX);
    assert_eq!(
        client.ask(format!("set {key} 0 0 1\r\nx\r\n")),
        "STORED\r\n"
    );
    assert!(
        client
            .ask(format!("get {key} a\r\n"))
            .starts_with("VALUE k")
    );
    assert_eq!(
        client.ask(format!("get {key}k\r\n")),
        "CLIENT_ERROR bad command line format\r\n"
    );
    // Around the sizes of buffers (twitter/twemproxy#19).
    for bytes in (16_000..16_800)
        .step_by(7)
        .chain((32_640..32_660).step_by(3))
        .chain([65_535, 65_536, 65_537])
    {
        let value = "v".repeat(bytes);
        assert_eq!(
            client.ask(format!("set v 0 0 {bytes}\r\n{value}\r\n")),
            "STORED\r\n"
        );
        let got = client.ask("get v\r\n");
        assert!(
            got == format!("VALUE v 0 {bytes}\r\n{value}\r\nEND\r\n"),
            "{bytes} bytes"
        );
    }
    // Over the server's limit, and so the old value is gone as well.
    let bytes = 2 << 20;
    let value = "v".repeat(bytes);
    let refused = client.ask(format!("set v 0 0 {bytes}\r\n{value}\r\n"));
    assert_eq!(refused, "SERVER_ERROR object too large for cache\r\n");
    assert_eq!(client.ask("get v\r\n"), "END\r\n");
}

#[test]
fn a_value_over_the_routers_own_limit_is_passed_over_and_takes_the_old_one_with_it() {
    let mut plan = Plan::default();
    plan.limits.memcached.value_bytes_max = 100;
    let pool = start(plan);
    let mut client = pool.client();
    for (set, get) in [("set v 0 0", "get v\r\n"), ("ms dg==", "mg v v\r\n")] {
        assert_eq!(client.ask("set v 0 0 3\r\nold\r\n"), "STORED\r\n");
        let flag = if set.starts_with("ms") { " b" } else { "" };
        let value = "flush_all\r\n".repeat(10);
        let refused = client.ask(format!("{set} 110{flag}\r\n{value}\r\n"));
        assert_eq!(refused, "SERVER_ERROR object too large for cache\r\n");
        let gone = client.ask(get);
        assert!(gone == "END\r\n" || gone == "EN\r\n", "{gone}");
    }
}

#[test]
fn a_client_gives_the_password_as_the_value_of_a_set() {
    let pool = start(Plan {
        password: Some("secret"),
        ..Plan::default()
    });
    let mut client = pool.client();
    assert_eq!(client.ask("get a\r\n"), "CLIENT_ERROR unauthenticated\r\n");
    assert_eq!(
        client.ask("set x 0 0 9\r\nany wrong\r\n"),
        "CLIENT_ERROR authentication failure\r\n"
    );
    assert_eq!(
        client.ask("set x 0 0 3\r\nany\r\n"),
        "CLIENT_ERROR bad authentication token format\r\n"
    );
    assert_eq!(client.ask("set x 0 0 10\r\nany secret\r\n"), "STORED\r\n");
    assert_eq!(client.ask("get x\r\n"), "END\r\n", "it was no item");
}
