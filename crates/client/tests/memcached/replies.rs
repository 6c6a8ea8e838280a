//! Where replies end.

use clockwise_client::memcached::{ReplyError, ReplyScan, ReplyScanner};
use clockwise_testkit::for_seeds;

const BYTES_MAX: usize = 200;

/// A reply, whole or passed over with so many bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Reply(Vec<u8>),
    TooLong(u64),
    Broken(ReplyError),
}

fn scan_in_pieces(input: &[u8], cuts: &[usize]) -> Vec<Found> {
    let mut scanner = ReplyScanner::new(BYTES_MAX);
    let (mut found, mut kept) = (Vec::new(), Vec::new());
    let mut from = 0;
    for cut in cuts.iter().copied().chain([input.len()]) {
        kept.extend_from_slice(&input[from..cut]);
        from = cut;
        loop {
            let consumed = match scanner.scan(&kept) {
                Ok(ReplyScan::More) => break,
                Ok(ReplyScan::Skip(bytes)) => bytes,
                Ok(ReplyScan::Reply(reply)) => {
                    found.push(Found::Reply(kept[..reply.bytes].to_vec()));
                    reply.bytes
                }
                Ok(ReplyScan::TooLong { rest, whole }) => {
                    found.push(Found::TooLong(whole));
                    rest.bytes
                }
                Err(error) => {
                    found.push(Found::Broken(error));
                    return found;
                }
            };
            assert!(consumed > 0 && consumed <= kept.len(), "it goes on");
            kept.drain(..consumed);
        }
    }
    found
}

#[test]
fn each_kind_of_reply_ends_where_it_must() {
    let replies: [&[u8]; 16] = [
        b"END\r\n",
        b"STORED\r\n",
        b"VALUE a 0 5\r\nEND\r\n\r\nEND\r\n",
        b"VALUE a 0 0 17\r\n\r\nVALUE b 1 3\r\nx\r\n\r\nEND\r\n",
        b"STAT pid 1\r\nSTAT version 1.6\r\nEND\r\n",
        b"18446744073709551615\r\n",
        b"5 \r\n",
        b"VA 4 t-1 O1\r\n\r\n\r\n\r\n",
        b"HD\r\n",
        b"EN\r\n",
        b"ME a exp=-1 la=0\r\n",
        b"MN\r\n",
        b"ERROR\r\n",
        b"ERROR: shutdown not enabled\r\n",
        b"CLIENT_ERROR bad data chunk\r\n",
        b"VERSION 1.6.18\r\n",
    ];
    let stream = replies.concat();
    let expected: Vec<Found> = replies
        .iter()
        .map(|reply| Found::Reply(reply.to_vec()))
        .collect();
    assert_eq!(scan_in_pieces(&stream, &[]), expected);
    for cut in 0..=stream.len() {
        assert_eq!(scan_in_pieces(&stream, &[cut]), expected, "cut at {cut}");
    }
    let each: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(scan_in_pieces(&stream, &each), expected);
}

#[test]
fn what_is_no_reply_is_an_error() {
    let check = |input: &[u8], error| {
        let found = scan_in_pieces(input, &[]);
        assert_eq!(found, [Found::Broken(error)], "{}", input.escape_ascii());
    };
    check(b"\r\n", ReplyError::Unknown);
    check(b"hello\r\n", ReplyError::Unknown);
    check(b"STORED\n", ReplyError::NoLineEnd);
    check(b"VALUE a 0\r\n", ReplyError::Length);
    check(b"VALUE a 0 x\r\n", ReplyError::Length);
    check(b"VALUE a 0 -1\r\n", ReplyError::Length);
    check(b"VALUE a 0 18446744073709551615\r\n", ReplyError::Length);
    check(b"VALUE a 0 1\r\nab\r\n", ReplyError::NoLineEnd);
    check(b"VALUE a 0 1\r\na\r\nSTORED\r\n", ReplyError::Unknown);
    check(b"STAT a 1\r\nVALUE a 0 1\r\n", ReplyError::Unknown);
    check(b"VA\r\n", ReplyError::Length);
    check(&[b'A'; 9_000], ReplyError::NoLineEnd);
}

#[test]
fn a_reply_over_the_limit_is_passed_over_and_the_next_one_is_found() {
    let value = "x".repeat(150);
    let item = |key: &str| format!("VALUE {key} 0 150\r\n{value}\r\n");
    let long = format!("{}{}END\r\n", item("a"), item("b"));
    let meta = format!("VA 400 O1\r\n{}\r\n", "y".repeat(400));
    let stream = format!("{}END\r\n{long}HD\r\n{meta}EN\r\n", item("a"));
    let expected = [
        Found::Reply(format!("{}END\r\n", item("a")).into_bytes()),
        Found::TooLong(long.len() as u64),
        Found::Reply(b"HD\r\n".to_vec()),
        Found::TooLong(meta.len() as u64),
        Found::Reply(b"EN\r\n".to_vec()),
    ];
    for cut in 0..=stream.len() {
        assert_eq!(
            scan_in_pieces(stream.as_bytes(), &[cut]),
            expected,
            "cut at {cut}"
        );
    }
}

#[test]
fn bytes_nobody_meant_are_read_alike_however_they_are_cut() {
    let repeat = "-p clockwise-client --test memcached replies::bytes_nobody_meant";
    for_seeds(300, repeat, |random| {
        let mut input = Vec::new();
        for _ in 0..random.below(30) {
            let piece = *random.one::<&[u8]>(&[
                &b"VALUE a 0 3\r\nabc\r\n"[..],
                b"END\r\n",
                b"STORED\r\n",
                b"STAT a 1\r\n",
                b"VA 2 t1\r\nab\r\n",
                b"VALUE a 0 300\r\n",
                b"7\r\n",
                b"\r\n",
                b"VALUE ",
                b"HD",
                b"EN\r\n",
            ]);
            input.extend_from_slice(piece);
            if random.chance(5) {
                let count = random.below(20);
                input.extend(random.bytes(count));
            }
        }
        let whole = scan_in_pieces(&input, &[]);
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
