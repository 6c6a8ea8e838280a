//! Clients that send what they should not, or do not read.

use clockwise_testkit::for_seeds;

use crate::pool::{Plan, patient, start, wait_until};

// A server without a router in front reads the value behind a header that it refuses as commands.
#[test]
fn a_value_behind_a_refused_header_is_not_executed() {
    let pool = start(Plan {
        flush_all: true,
        ..Plan::default()
    });
    let mut client = pool.client();
    let payload = "set evil 0 0 1\r\nx";
    let long = "k".repeat(251);
    let direct = pool
        .direct(0)
        .all(format!("set {long} 0 0 {}\r\n{payload}\r\n", payload.len()));
    assert!(direct.contains(&"STORED\r\n".to_owned()), "{direct:?}");
    for header in [
        format!("set {long} 0 0"),
        "set a x 0".to_owned(),
        format!("ms {long}"),
    ] {
        let refused = client.ask(format!("{header} {}\r\n{payload}\r\n", payload.len()));
        assert_eq!(
            refused, "CLIENT_ERROR bad command line format\r\n",
            "{header}"
        );
        assert_eq!(client.ask("get evil2 a\r\n"), "END\r\n");
    }
    let owner = pool.owner(b"evil");
    if owner != 0 {
        assert_eq!(client.ask("get evil\r\n"), "END\r\n");
    }
    // Where the length itself is in doubt the connection ends.
    for header in [
        "set a 0 0 -1",
        "set a 0 0 99999999999",
        "ms a x",
        "set a 0 0",
    ] {
        let mut client = pool.client();
        client.send(format!("{header}\r\n{payload}\r\n"));
        let refused = client.read();
        assert!(
            refused.starts_with("CLIENT_ERROR") || refused == "ERROR\r\n",
            "{header}: {refused}"
        );
        assert!(client.is_closed(), "{header}");
    }
}

#[test]
fn the_binary_protocol_and_browsers_are_sent_away() {
    let pool = start(Plan::default());
    for hello in [
        &b"\x80\x00\x00\x00"[..],
        b"POST /x HTTP/1.1\r\nset a 0 0 1\r\nx\r\n",
    ] {
        let mut client = pool.client();
        client.send(hello);
        assert!(client.read().starts_with("CLIENT_ERROR "));
        assert!(client.is_closed());
    }
    assert_eq!(pool.client().ask("get a\r\n"), "END\r\n");
}

// pinterest/pymemcache#99: a line end in a key was a way to send commands.
#[test]
fn what_cannot_be_in_a_key_is_refused_before_any_byte_is_sent() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    for byte in (1..=0x1fu8).chain([0x7f]).filter(|byte| *byte != b'\n') {
        let line = [b"get a", &[byte][..], b"b\r\n"].concat();
        assert_eq!(
            client.ask(line),
            "CLIENT_ERROR bad command line format\r\n",
            "{byte:#x}"
        );
    }
    assert_eq!(
        client.ask(b"get a\0b\r\n"),
        "CLIENT_ERROR bad command line format\r\n"
    );
    assert!(pool.stats().nodes.values().all(|node| node.requests == 0));
}

#[test]
fn bytes_nobody_meant_harm_nobody() {
    let pool = start(Plan::default());
    let repeat = "-p clockwise --test memcached bytes_nobody_meant";
    for_seeds(60, repeat, |random| {
        let mut client = pool.client();
        let mut input = Vec::new();
        for _ in 0..40 {
            let word = *random.one::<&[u8]>(&[
                &b"get"[..],
                b"set",
                b"ms",
                b"mg",
                b"gat",
                b" ",
                b" ",
                b"\r\n",
                b"\n",
                b"a",
                b"noreply",
                b"0",
                b"9",
                b"q",
                b"b",
                b"Zm9v",
                b"\0",
                b"999999999",
            ]);
            input.extend_from_slice(word);
            if random.chance(10) {
                let count = random.below(20);
                input.extend(random.bytes(count));
            }
        }
        client.send(&input);
        let mut other = pool.client();
        assert_eq!(other.ask("set k 0 0 1\r\nx\r\n"), "STORED\r\n");
        assert_eq!(other.ask("get k\r\n"), "VALUE k 0 1\r\nx\r\nEND\r\n");
    });
}

#[test]
fn a_request_that_does_not_end_is_dropped_in_time() {
    let mut limits = patient();
    limits.request_ms_max = 300;
    let pool = start(Plan {
        limits,
        ..Plan::default()
    });
    for half in ["get ", "set a 0 0 10\r\nhalf", "mg a"] {
        let mut client = pool.client();
        client.send(half);
        let refused = client.read();
        let expected = "SERVER_ERROR clockwise: the request was not complete in time\r\n";
        assert_eq!(refused, expected, "{half}");
        assert!(client.is_closed(), "{half}");
    }
}

// twitter/twemproxy#296: a client that pipelines and does not read made the memory explode.
#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let value = "v".repeat(100_000);
    assert_eq!(
        client.ask(format!("set v 0 0 100000\r\n{value}\r\n")),
        "STORED\r\n"
    );
    let mut greedy = pool.client();
    const REQUESTS: usize = 3_000;
    greedy.send("get v\r\n".repeat(REQUESTS));
    let before = pool.stats().requests;
    wait_until("its requests are read only so far", || {
        let now = pool.stats();
        now.requests > before && now.requests_per_second == 0
    });
    let read = pool.stats().requests;
    assert!(
        read < 1_000,
        "{read} requests were read of one who reads nothing"
    );
    assert!(
        client.ask("get v\r\n").starts_with("VALUE v 0 100000"),
        "others go on"
    );
    for _ in 0..REQUESTS {
        assert!(greedy.read().starts_with("VALUE v 0 100000"));
    }
}
