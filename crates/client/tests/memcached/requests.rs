//! What each request is read as.

use clockwise_client::memcached::Quiet;
use clockwise_testkit::for_seeds;

use super::{Event, scan, scan_in_pieces};

#[track_caller]
fn check(input: &[u8], frame: &[u8], keys: &[&[u8]], quiet: Quiet) {
    let expected = Event::Request {
        frame: frame.to_vec(),
        keys: keys.iter().map(|key| key.to_vec()).collect(),
        quiet,
    };
    assert_eq!(scan(input), [expected], "{}", input.escape_ascii());
}

#[test]
fn a_tidy_request_goes_on_as_it_came() {
    let requests: [(&[u8], &[&[u8]]); 16] = [
        (b"get a\r\n", &[b"a"]),
        (b"gets a b a\r\n", &[b"a", b"b", b"a"]),
        (b"gat 60 a b\r\n", &[b"a", b"b"]),
        (b"gats -1 a\r\n", &[b"a"]),
        (b"set a 0 0 2\r\nhi\r\n", &[b"a"]),
        (b"append a 4294967295 -5 0\r\n\r\n", &[b"a"]),
        (b"cas a 1 2 3 18446744073709551615\r\nget\r\n", &[b"a"]),
        (b"incr noreply 1\r\n", &[b"noreply"]),
        (b"touch a 2147483647\r\n", &[b"a"]),
        (b"delete noreply\r\n", &[b"noreply"]),
        (b"flush_all 10\r\n", &[]),
        (b"mg a v t c O1 k\r\n", &[b"a"]),
        (b"mg Zm9v b v\r\n", &[b"foo"]),
        (b"ms Zm9v 2 T0 b\r\nhi\r\n", &[b"foo"]),
        (b"me Zm9v v b\r\n", &[b"Zm9v"]),
        (b"mn\r\n", &[]),
    ];
    for (input, keys) in requests {
        check(input, input, keys, Quiet::Nothing);
    }
}

#[test]
fn blanks_and_what_no_server_is_to_see_are_taken_out() {
    check(
        b"  get   a  b \n",
        b"get a b\r\n",
        &[b"a", b"b"],
        Quiet::Nothing,
    );
    let all = Quiet::Everything;
    check(
        b"set a 0 0 2 noreply\r\nhi\r\n",
        b"set a 0 0 2\r\nhi\r\n",
        &[b"a"],
        all,
    );
    check(
        b"cas a 0 0 2 7 noreply\r\nhi\r\n",
        b"cas a 0 0 2 7\r\nhi\r\n",
        &[b"a"],
        all,
    );
    check(b"incr a 5 noreply\n", b"incr a 5\r\n", &[b"a"], all);
    check(b"delete a 0 noreply\r\n", b"delete a\r\n", &[b"a"], all);
    check(b"delete a 0\r\n", b"delete a\r\n", &[b"a"], Quiet::Nothing);
    check(b"flush_all noreply\r\n", b"flush_all\r\n", &[], all);
    check(b"flush_all 3 noreply\r\n", b"flush_all 3\r\n", &[], all);
    // What stands in the place of noreply and is something else, servers do not mind.
    check(
        b"set a 0 0 2 x\r\nhi\r\n",
        b"set a 0 0 2\r\nhi\r\n",
        &[b"a"],
        Quiet::Nothing,
    );
    check(b"mg a q v\r\n", b"mg a v\r\n", &[b"a"], Quiet::Miss);
    check(
        b"ms a 2 q\r\nhi\r\n",
        b"ms a 2\r\nhi\r\n",
        &[b"a"],
        Quiet::Done,
    );
    check(b"md a qx\r\n", b"md a\r\n", &[b"a"], Quiet::Done);
    check(b"ma a v q\r\n", b"ma a v\r\n", &[b"a"], Quiet::Counted);
}

#[track_caller]
fn check_refused(input: &[u8], line: &str, quiet: Quiet) {
    let mut events = scan(&[input, b"mn\r\n"].concat());
    let after = events.pop();
    let mn = Event::Request {
        frame: b"mn\r\n".to_vec(),
        keys: Vec::new(),
        quiet: Quiet::Nothing,
    };
    assert_eq!(
        after,
        Some(mn),
        "{}: the next request is understood",
        input.escape_ascii()
    );
    let expected = Event::Refused {
        line: line.to_owned(),
        quiet,
        instead: None,
    };
    assert_eq!(events, [expected], "{}", input.escape_ascii());
}

#[test]
fn a_request_that_servers_refuse_is_refused_in_their_words_and_the_next_is_understood() {
    const FORMAT: &str = "CLIENT_ERROR bad command line format";
    let say = |input: &[u8], line| check_refused(input, line, Quiet::Nothing);
    for unknown in [
        &b"\r\n"[..],
        b"GET a\r\n",
        b"get\r\n",
        b"gat 1\r\n",
        b"incr a\r\n",
        b"touch a\r\n",
    ] {
        say(unknown, "ERROR");
    }
    let long = [b'k'; 251];
    say(&[b"get ", &long[..], b"\r\n"].concat(), FORMAT);
    say(&[b"mg ", &long[..], b" v\r\n"].concat(), FORMAT);
    say(b"get a\tb\r\n", FORMAT);
    say(b"get a\0b\r\n", FORMAT);
    say(b"get a\rb\r\n", FORMAT);
    say(b"get \x7f\r\n", FORMAT);
    say(b"gat soon a\r\n", "CLIENT_ERROR invalid exptime argument");
    say(
        b"incr a -1\r\n",
        "CLIENT_ERROR invalid numeric delta argument",
    );
    say(
        b"delete a 1\r\n",
        "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
    );
    say(b"mg Zm9 b\r\n", "CLIENT_ERROR error decoding key");
    say(b"me Zm9 b\r\n", FORMAT);
    say(b"mg a q q\r\n", "CLIENT_ERROR duplicate flag");
    let flags = "v ".repeat(30);
    say(
        format!("mg a {flags}\r\n").as_bytes(),
        "CLIENT_ERROR options flags are too long",
    );
    say(
        b"slabs reassign 1 2\r\n",
        "CLIENT_ERROR it administers one server; connect to the node",
    );
    let keys = "k ".repeat(41);
    say(
        format!("get {keys}\r\n").as_bytes(),
        "CLIENT_ERROR more than 40 keys in one request",
    );
    // A number is missing, and `noreply` in its place silences the answer: a server would not answer.
    check_refused(
        b"incr a noreply\r\n",
        "CLIENT_ERROR invalid numeric delta argument",
        Quiet::Everything,
    );
    check_refused(
        b"touch a x noreply\r\n",
        "CLIENT_ERROR invalid exptime argument",
        Quiet::Everything,
    );
}

#[test]
fn the_value_behind_a_refused_header_is_never_read_as_commands() {
    // Without a router in front, servers do read it so.
    const FORMAT: &str = "CLIENT_ERROR bad command line format";
    let long = "k".repeat(251);
    for header in [
        format!("set {long} 0 0 11"),
        "set a x 0 11".to_owned(),
        "set a -1 0 11".to_owned(),
        "set a 0 2147483648 11".to_owned(),
        "cas a 0 0 11 -1".to_owned(),
        format!("ms {long} 11"),
    ] {
        check_refused(
            format!("{header}\r\nflush_all\r\n\r\n").as_bytes(),
            FORMAT,
            Quiet::Nothing,
        );
    }
    let many = "v ".repeat(30);
    let refused = format!("ms a 11 {many}\r\nflush_all\r\n\r\n");
    check_refused(
        refused.as_bytes(),
        "CLIENT_ERROR options flags are too long",
        Quiet::Nothing,
    );
    let undecodable = b"ms Zm9 11 b\r\nflush_all\r\n\r\n";
    check_refused(
        undecodable,
        "CLIENT_ERROR error decoding key",
        Quiet::Nothing,
    );
}

#[test]
fn where_nobody_knows_how_long_a_value_is_the_connection_ends() {
    let check = |input: &[u8], line: &str| {
        let expected = [Event::Lost(line.to_owned())];
        assert_eq!(scan(input), expected, "{}", input.escape_ascii());
    };
    const FORMAT: &str = "CLIENT_ERROR bad command line format";
    for input in [
        "set a 0 0 -1",
        "set a 0 0 +1",
        "set a 0 0 2147483646",
        "ms a x",
        "ms a",
        "set a\t 0 0 2",
    ] {
        check(format!("{input}\r\nget a\r\n").as_bytes(), FORMAT);
    }
    check(b"set a 0 0\r\nget a\r\n", "ERROR");
    check(b"set a 0 0 2 x y\r\nget a\r\n", "ERROR");
    check(
        b"set a 0 0 2\r\nhi!\r\nget a\r\n",
        "CLIENT_ERROR bad data chunk",
    );
    check(
        b"set a 0 0 2\r\nhi\n\nget a\r\n",
        "CLIENT_ERROR bad data chunk",
    );
    check(
        b"set a 0 0 1001\r\n",
        "SERVER_ERROR object too large for cache",
    );
    check(
        b"\x80\x01\0\0",
        "CLIENT_ERROR the binary protocol is not spoken here",
    );
    check(
        b"POST / HTTP/1.1\r\nset a 0 0 2\r\n",
        "CLIENT_ERROR this is no web server",
    );
    check(&[b'x'; 2_049], "CLIENT_ERROR line too long");
    check(
        &[b"get ", &[b'x'; 4_000][..]].concat(),
        "CLIENT_ERROR line too long",
    );
}

#[test]
fn a_value_too_large_to_be_stored_still_takes_the_place_of_the_one_before() {
    let value = "x".repeat(101);
    let check = |header: &str, instead: Option<&[u8]>, quiet| {
        let events = scan(format!("{header}\r\n{value}\r\n").as_bytes());
        let expected = Event::Refused {
            line: "SERVER_ERROR object too large for cache".to_owned(),
            quiet,
            instead: instead.map(<[u8]>::to_vec),
        };
        assert_eq!(events, [expected], "{header}");
    };
    check("set a 0 0 101", Some(b"delete a\r\n"), Quiet::Nothing);
    check(
        "set a 0 0 101 noreply",
        Some(b"delete a\r\n"),
        Quiet::Everything,
    );
    check("add a 0 0 101", None, Quiet::Nothing);
    check("ms a 101 T5", Some(b"md a\r\n"), Quiet::Nothing);
    check("ms Zm9v 101 b", Some(b"md Zm9v b\r\n"), Quiet::Nothing);
}

#[test]
fn a_stream_is_read_alike_however_it_is_cut() {
    let stream = [
        &b"get a b\r\nset  a 0 0 5 noreply\r\nhello\r\nmg Zm9v b q\r\n"[..],
        b"set a x 0 5\r\nhello\r\nincr a 1\r\n\r\nset b 0 0 101\r\n",
        &[b'y'; 101],
        b"\r\nms c 3 T9 q\r\nabc\r\nmn\r\nset a 0 0 2\r\nhello\r\n",
    ]
    .concat();
    let whole = scan(&stream);
    assert_eq!(whole.len(), 10, "{whole:?}");
    for cut in 0..=stream.len() {
        assert_eq!(scan_in_pieces(&stream, &[cut]), whole, "cut at {cut}");
    }
    let each: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(scan_in_pieces(&stream, &each), whole);
}

#[test]
fn bytes_nobody_meant_are_read_alike_however_they_are_cut() {
    let repeat = "-p clockwise-client --test memcached bytes_nobody_meant";
    for_seeds(300, repeat, |random| {
        let mut input = Vec::new();
        for _ in 0..random.below(30) {
            let word = *random.one::<&[u8]>(&[
                &b"get"[..],
                b"set",
                b"ms",
                b"mg",
                b"gat",
                b"delete",
                b" ",
                b" ",
                b"  ",
                b"\r\n",
                b"\r\n",
                b"\n",
                b"a",
                b"noreply",
                b"0",
                b"5",
                b"101",
                b"-1",
                b"q",
                b"b",
                b"Zm9v",
                b"\0",
                b"\x80",
            ]);
            input.extend_from_slice(word);
            if random.chance(10) {
                let count = random.below(20);
                input.extend(random.bytes(count));
            }
        }
        let whole = scan(&input);
        let mut cuts: Vec<usize> = (0..4).map(|_| random.below(input.len() + 1)).collect();
        cuts.sort_unstable();
        assert_eq!(
            scan_in_pieces(&input, &cuts),
            whole,
            "{} at {cuts:?}",
            input.escape_ascii()
        );
    });
}
