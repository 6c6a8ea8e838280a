//! The RESP scanners against an independent parser, against themselves under every split of the
//! input, and against bytes nobody meant.

use clockwise_client::resp::{
    Protocol, REPLY_DEPTH_MAX, ReplyError, ReplyScan, ReplyScanner, Request, RequestLimits,
    RequestScanner, Scan, Value, write_command,
};

/// SplitMix64: small, seeded, good enough to wander through inputs.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// Runs `case` with many seeds, or with the one in `CLOCKWISE_SEED`; a failure names its seed.
fn for_seeds(count: u64, case: impl Fn(&mut Random)) {
    let seeds = match std::env::var("CLOCKWISE_SEED") {
        Ok(seed) => vec![seed.parse().expect("CLOCKWISE_SEED is a number")],
        Err(_) => (0..count).collect(),
    };
    for seed in seeds {
        let announce = Announce(seed);
        case(&mut Random(seed));
        std::mem::forget(announce);
    }
}

/// Dropped only while a case panics.
struct Announce(u64);

impl Drop for Announce {
    fn drop(&mut self) {
        eprintln!(
            "failed with seed {0}; repeat with CLOCKWISE_SEED={0}",
            self.0
        );
    }
}

/// What one scan of a stream gave, with everything it borrowed copied.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Request { frame: Vec<u8>, args: Vec<Vec<u8>> },
    Refused(String),
    Broken(String),
}

fn copy(request: &Request<'_>) -> Event {
    Event::Request {
        frame: request.frame().to_vec(),
        args: request.args().map(<[u8]>::to_vec).collect(),
    }
}

/// Feeds `input` in pieces that end at `cuts` and collects what came of it. Also checks that the
/// scanner never asks to keep more than the limits allow.
fn scan_in_pieces(limits: &RequestLimits, input: &[u8], cuts: &[usize]) -> Vec<Event> {
    let mut scanner = RequestScanner::default();
    let (mut events, mut kept) = (Vec::new(), Vec::new());
    let mut from = 0;
    for cut in cuts.iter().copied().chain([input.len()]) {
        kept.extend_from_slice(&input[from..cut]);
        from = cut;
        loop {
            let consumed = match scanner.scan(limits, &kept) {
                Ok(Scan::More) => break,
                Ok(Scan::Skip(consumed)) => consumed,
                Ok(Scan::Request { consumed, request }) => {
                    events.push(copy(&request));
                    consumed
                }
                Ok(Scan::Refused { consumed, refusal }) => {
                    events.push(Event::Refused(refusal.to_string()));
                    consumed
                }
                Err(error) => {
                    events.push(Event::Broken(error.to_string()));
                    return events;
                }
            };
            kept.drain(..consumed);
        }
    }
    events
}

fn small_limits() -> RequestLimits {
    RequestLimits {
        elements_max: 8,
        bulk_bytes_max: 40,
        request_bytes_max: 120,
        inline_bytes_max: 64,
        skip_bytes_max: 1 << 10,
    }
}

/// A request, mostly well formed, sometimes too large, sometimes spoilt.
fn some_request(random: &mut Random, out: &mut Vec<u8>) {
    let args: Vec<Vec<u8>> = (0..1 + random.below(6))
        .map(|_| {
            let bound = if random.below(8) == 0 { 100 } else { 12 };
            let length = random.below(bound);
            random.bytes(length)
        })
        .collect();
    match random.below(10) {
        0 => out.extend_from_slice(b"set \"a\\x20b\" 'c' d\r\n"),
        1 => out.extend_from_slice(b"\r\n"),
        2 => out.extend_from_slice(b"*0\r\n"),
        3 => out.extend_from_slice(b"*-1\r\n"),
        _ => write_command(out, &args),
    }
    if random.below(40) == 0 {
        let at = random.below(out.len());
        out[at] = random.next() as u8;
    }
}

#[test]
fn requests_do_not_depend_on_how_the_stream_was_cut() {
    for_seeds(300, |random| {
        let mut input = Vec::new();
        for _ in 0..1 + random.below(6) {
            some_request(random, &mut input);
        }
        let limits = small_limits();
        let whole = scan_in_pieces(&limits, &input, &[]);
        for cut in 0..input.len() {
            assert_eq!(
                scan_in_pieces(&limits, &input, &[cut]),
                whole,
                "cut at {cut} of {input:?}"
            );
        }
        let every: Vec<usize> = (0..input.len()).collect();
        assert_eq!(
            scan_in_pieces(&limits, &input, &every),
            whole,
            "byte by byte: {input:?}"
        );
    });
}

#[test]
fn an_independent_parser_reads_the_same_requests() {
    for_seeds(2_000, |random| {
        let mut input = Vec::new();
        some_request(random, &mut input);
        for event in scan_in_pieces(&RequestLimits::default(), &input, &[]) {
            let Event::Request { frame, args } = event else {
                continue;
            };
            let redis::Value::Array(theirs) =
                redis::parse_redis_value(&frame).expect("a canonical frame")
            else {
                panic!("not an array: {frame:?}");
            };
            let theirs: Vec<Vec<u8>> = theirs
                .into_iter()
                .map(|value| match value {
                    redis::Value::BulkString(bytes) => bytes,
                    other => panic!("not a string: {other:?}"),
                })
                .collect();
            assert_eq!(args, theirs);
        }
    });
}

#[test]
fn a_refused_payload_is_never_read_as_commands() {
    let limits = small_limits();
    let evil = b"*1\r\n$8\r\nFLUSHALL\r\n".repeat(4);
    let mut input = Vec::new();
    write_command(&mut input, &[b"SET", &b"k"[..], &evil]);
    write_command(&mut input, &["GET", "k"]);
    let events = scan_in_pieces(&limits, &input, &[]);
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(
        events[0],
        Event::Refused("an argument of 72 bytes is over the limit of 40".into())
    );
    assert!(matches!(&events[1], Event::Request { args, .. } if args[0] == b"GET"));

    let mut input = Vec::new();
    write_command(
        &mut input,
        &[
            vec![b'a'; 40],
            vec![b'b'; 40],
            vec![b'c'; 40],
            b"*1\r\n".to_vec(),
        ],
    );
    write_command(&mut input, &[b"PING"]);
    let events = scan_in_pieces(&limits, &input, &[]);
    assert_eq!(
        events[0],
        Event::Refused("a request of more than 120 bytes is over the limit".into())
    );
    assert!(matches!(&events[1], Event::Request { args, .. } if args[0] == b"PING"));
}

#[test]
fn what_servers_read_ambiguously_is_a_protocol_error() {
    for (input, expected) in [
        (
            &b"*2000000000\r\n"[..],
            "Protocol error: invalid multibulk length",
        ),
        (b"*1048577\r\n", "Protocol error: invalid multibulk length"),
        (
            b"*+1\r\n$4\r\nPING\r\n",
            "Protocol error: invalid multibulk length",
        ),
        (
            b"*01\r\n$4\r\nPING\r\n",
            "Protocol error: invalid multibulk length",
        ),
        (
            b"*1\n$4\r\nPING\r\n",
            "Protocol error: invalid multibulk length",
        ),
        (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        (
            b"*1\r\n$04\r\nPING\r\n",
            "Protocol error: invalid bulk length",
        ),
        (
            b"*1\r\n$99999999999\r\n",
            "Protocol error: invalid bulk length",
        ),
        (
            b"*1\r\n$4\r\nPINGPING\r\n",
            "Protocol error: expected line end after a string of the declared length",
        ),
        (
            b"*1\r\n$4\r\nPING\n\n",
            "Protocol error: expected line end after a string of the declared length",
        ),
        (b"*2\r\n*1\r\n", "Protocol error: expected '$', got '*'"),
        (b"*1\r\n:5\r\n", "Protocol error: expected '$', got ':'"),
        (b"*1\r\n$2147483648\r\n", "Protocol error: too big request"),
        (
            b"set \"k\r\n",
            "Protocol error: unbalanced quotes in request",
        ),
    ] {
        let events = scan_in_pieces(&RequestLimits::default(), input, &[]);
        assert_eq!(
            events,
            [Event::Broken(expected.into())],
            "{:?}",
            String::from_utf8_lossy(input)
        );
    }
    let long_line = vec![b'a'; 64 << 10];
    let events = scan_in_pieces(
        &RequestLimits::default(),
        &[&long_line[..], b"\n"].concat(),
        &[],
    );
    assert_eq!(
        events,
        [Event::Broken(
            "Protocol error: too big inline request".into()
        )]
    );
}

#[test]
fn random_bytes_neither_panic_nor_stick() {
    const STARTS: &[&[u8]] = &[
        b"*", b"$", b"*3\r\n$", b"%2\r\n", b"|1\r\n", b">2\r\n", b"_\r\n", b"\"", b"$5\r\n",
        b"=4\r\n",
    ];
    for_seeds(20_000, |random| {
        let mut input = STARTS[random.below(STARTS.len())].to_vec();
        for _ in 0..random.below(40) {
            match random.below(4) {
                0 => input.extend_from_slice(STARTS[random.below(STARTS.len())]),
                1 => input.push(random.next() as u8),
                2 => input.extend_from_slice(b"\r\n"),
                _ => input.push(b"0123456789-"[random.below(11)]),
            }
        }
        scan_in_pieces(&small_limits(), &input, &[]);
        let reply = ReplyScanner::new(1 << 20).scan(&input);
        let value = Value::parse(&input);
        if let Ok(Some(reply)) = reply {
            assert!(reply.bytes <= input.len());
            let theirs = redis::parse_redis_value(&input[..reply.bytes - 1]);
            assert!(
                theirs.is_err(),
                "an independent parser ends earlier: {input:?}"
            );
            if let Ok(Some((_, bytes))) = value {
                assert_eq!(bytes, reply.bytes);
            }
        }
    });
}

/// Writes a random reply of the given protocol and gives what it means.
fn some_reply(random: &mut Random, protocol: Protocol, depth: usize, out: &mut Vec<u8>) -> Value {
    let resp3 = protocol == Protocol::Resp3;
    if resp3 && random.below(12) == 0 {
        out.extend_from_slice(b"|1\r\n+ttl\r\n:3\r\n");
    }
    let leaf = depth >= 5;
    match random.below(match (leaf, resp3) {
        (true, false) => 5,
        (true, true) => 9,
        (false, false) => 11,
        (false, true) => 13,
    }) {
        0 => line(out, "+PONG", Value::Simple("PONG".into())),
        1 => line(out, "-ERR no", Value::Error("ERR no".into())),
        2 => {
            let number = random.next() as i64;
            line(out, &format!(":{number}"), Value::Integer(number))
        }
        3 => {
            let length = random.below(40);
            let bytes = random.bytes(length);
            clockwise_client::resp::write_bulk(out, &bytes);
            Value::Bulk(bytes)
        }
        4 => line(
            out,
            if random.below(2) == 0 { "$-1" } else { "*-1" },
            Value::Null,
        ),
        5 if resp3 => line(out, "_", Value::Null),
        6 if resp3 => line(out, ",1.5", Value::Number("1.5".into())),
        7 if resp3 => line(out, "#t", Value::Integer(1)),
        8 if resp3 => line(out, "=8\r\ntxt:text", Value::Bulk(b"text".to_vec())),
        kind => some_aggregate(random, protocol, kind, depth, out),
    }
}

fn some_aggregate(
    random: &mut Random,
    protocol: Protocol,
    kind: usize,
    depth: usize,
    out: &mut Vec<u8>,
) -> Value {
    let count = random.below(5);
    if kind >= 11 {
        clockwise_client::resp::write_map(out, protocol, count);
        let mut pair = || {
            let key = some_reply(random, protocol, depth + 1, out);
            (key, some_reply(random, protocol, depth + 1, out))
        };
        return Value::Map((0..count).map(|_| pair()).collect());
    }
    let set = protocol == Protocol::Resp3 && kind == 10;
    out.extend_from_slice(format!("{}{count}\r\n", if set { '~' } else { '*' }).as_bytes());
    Value::Array(
        (0..count)
            .map(|_| some_reply(random, protocol, depth + 1, out))
            .collect(),
    )
}

fn line(out: &mut Vec<u8>, text: &str, value: Value) -> Value {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
    value
}

#[test]
fn replies_end_where_they_end_under_every_cut() {
    for_seeds(1_500, |random| {
        let protocol = if random.below(2) == 0 {
            Protocol::Resp2
        } else {
            Protocol::Resp3
        };
        let mut frame = Vec::new();
        let value = some_reply(random, protocol, 0, &mut frame);
        let mut scanner = ReplyScanner::new(1 << 20);
        for cut in 0..frame.len() {
            assert_eq!(
                scanner.scan(&frame[..cut]),
                Ok(None),
                "byte by byte, {cut} of {frame:?}"
            );
            let mut fresh = ReplyScanner::new(1 << 20);
            assert_eq!(
                fresh.scan(&frame[..cut]),
                Ok(None),
                "cut at {cut} of {frame:?}"
            );
            let behind = [&frame[..], b"+NEXT\r\n"].concat();
            let reply = fresh.scan(&behind).expect("well formed").expect("whole");
            assert_eq!(reply.bytes, frame.len());
        }
        let reply = scanner.scan(&frame).expect("well formed").expect("whole");
        assert_eq!(reply.bytes, frame.len());
        assert_eq!(Value::parse(&frame), Ok(Some((value, frame.len()))));
        assert!(
            redis::parse_redis_value(&frame).is_ok(),
            "an independent parser refuses {frame:?}"
        );
    });
}

/// Whether a reply was over the limit, and how long it was.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Kept(usize),
    Passed(u64),
}

/// Reads replies from pieces as they arrive, and keeps of them what the scanner wants kept. Gives the
/// most bytes that were ever kept, too.
fn read_in_pieces(random: &mut Random, limit: usize, mut bytes: &[u8]) -> (Vec<Ended>, usize) {
    let mut scanner = ReplyScanner::new(limit);
    let (mut kept, mut kept_max, mut ended) = (Vec::new(), 0, Vec::new());
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(1 + random.below(bytes.len().min(9)));
        kept.extend_from_slice(piece);
        bytes = rest;
        loop {
            let gone = match scanner.scan_or_skip(&kept).expect("well formed") {
                ReplyScan::More => break,
                ReplyScan::Skip(bytes) => bytes,
                ReplyScan::Reply(reply) => {
                    ended.push(Ended::Kept(reply.bytes));
                    reply.bytes
                }
                ReplyScan::TooLong { rest, whole } => {
                    ended.push(Ended::Passed(whole));
                    rest.bytes
                }
            };
            assert!(gone > 0, "no progress");
            kept.drain(..gone);
        }
        kept_max = kept_max.max(kept.len());
    }
    assert!(kept.is_empty(), "something is left");
    (ended, kept_max)
}

#[test]
fn a_reply_over_the_limit_passes_by_and_the_next_one_is_found() {
    for_seeds(3_000, |random| {
        let mut frame = Vec::new();
        some_reply(random, Protocol::Resp3, 0, &mut frame);
        let limit = 8 + random.below(frame.len());
        let all = [b"+BEFORE\r\n", &frame[..], b"+NEXT\r\n"].concat();
        let (ended, kept) = read_in_pieces(random, limit.max(9), &all);
        let middle = if frame.len() > limit.max(9) {
            Ended::Passed(frame.len() as u64)
        } else {
            Ended::Kept(frame.len())
        };
        assert_eq!(ended, [Ended::Kept(9), middle, Ended::Kept(7)], "{frame:?}");
        // A line is kept whole, and a piece has up to nine bytes.
        assert!(kept <= limit + 9 + 32, "{kept} bytes kept of {limit}");
    });
}

#[test]
fn a_string_that_passes_by_must_end_where_it_says() {
    let mut scanner = ReplyScanner::new(4);
    assert_eq!(
        scanner.scan_or_skip(b"$9\r\n123456"),
        Ok(ReplyScan::Skip(10))
    );
    assert_eq!(scanner.scan_or_skip(b"789\r"), Ok(ReplyScan::Skip(3)));
    assert_eq!(scanner.scan_or_skip(b"\r"), Ok(ReplyScan::More));
    assert_eq!(scanner.scan_or_skip(b"\rx"), Err(ReplyError::NoLineEnd));
}

#[test]
fn pushes_and_errors_are_told_apart_behind_attributes() {
    let cases: [(&[u8], u8, bool, bool); 5] = [
        (
            b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n",
            b'>',
            true,
            false,
        ),
        (b"|1\r\n+a\r\n+b\r\n>1\r\n+c\r\n", b'>', true, false),
        (b"-ERR no\r\n", b'-', false, true),
        (b"!6\r\nERR no\r\n", b'!', false, true),
        (b"|1\r\n+a\r\n*1\r\n-ERR\r\n$1\r\nx\r\n", b'$', false, false),
    ];
    for (input, kind, push, error) in cases {
        let reply = ReplyScanner::new(1 << 20)
            .scan(input)
            .expect("well formed")
            .expect("whole");
        assert_eq!(
            (reply.kind, reply.bytes, reply.is_push(), reply.is_error()),
            (kind, input.len(), push, error)
        );
    }
}

#[test]
fn a_reply_that_is_no_plain_frame_is_an_error() {
    let deep = b"*1\r\n".repeat(REPLY_DEPTH_MAX + 1);
    let long_line = [b"+".to_vec(), vec![b'a'; 70_000]].concat();
    let cases: [(&[u8], ReplyError); 12] = [
        (b"OK\r\n", ReplyError::UnknownType { got: b'O' }),
        (b"\r\n", ReplyError::UnknownType { got: b'\r' }),
        (b"$?\r\n", ReplyError::Length),
        (b"*-2\r\n", ReplyError::Length),
        (b"%-1\r\n", ReplyError::Length),
        (b"$01\r\nx\r\n", ReplyError::Length),
        (b"$1\r\nxx\r\n", ReplyError::NoLineEnd),
        (b"+OK\rX\r\n", ReplyError::NoLineEnd),
        (b"$9999999999\r\n", ReplyError::TooLong { limit: 1 << 20 }),
        (
            b"*2\r\n$3\r\nabc\r\nxyz",
            ReplyError::UnknownType { got: b'x' },
        ),
        (&deep, ReplyError::TooDeep),
        (&long_line, ReplyError::NoLineEnd),
    ];
    for (input, error) in cases {
        assert_eq!(
            ReplyScanner::new(1 << 20).scan(input),
            Err(error),
            "{:?}",
            String::from_utf8_lossy(input)
        );
    }
}

#[test]
fn a_deep_or_huge_reply_costs_no_more_than_its_bytes() {
    let mut scanner = ReplyScanner::new(usize::MAX);
    assert_eq!(scanner.scan(b"*2000000000\r\n"), Ok(None));
    assert_eq!(Value::parse(b"*2000000000\r\n*2000000000\r\n"), Ok(None));
    // A long chain of attributes must not deepen the stack.
    let chain = [b"|0\r\n".repeat(1_000_000), b"+OK\r\n".to_vec()].concat();
    assert_eq!(
        Value::parse(&chain),
        Ok(Some((Value::Simple("OK".into()), chain.len())))
    );
}
