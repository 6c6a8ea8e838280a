//! A second reader of requests, written to be plain: it has the whole stream, splits lines at their ends and
//! words at blanks, and knows the rules as a table. Both must read every stream alike.

use clockwise_client::memcached::Quiet;
use clockwise_testkit::{Random, for_seeds};

use super::{Event, limits, scan};

/// Reads a stream that ends where a request ends.
fn read(mut input: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(end) = input.iter().position(|byte| *byte == b'\n') {
        let line = String::from_utf8(input[..end].to_vec()).expect("the twin is fed with text");
        let line = line.strip_suffix('\r').unwrap_or(&line).to_owned();
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        input = &input[end + 1..];
        let (event, value) = request(&words);
        let Some(value) = value else {
            events.push(event);
            if matches!(events.last(), Some(Event::Lost(_))) {
                return events;
            }
            continue;
        };
        let (data, rest) = input.split_at(value + 2);
        if let Event::Request { frame, keys, quiet } = event {
            if !data.ends_with(b"\r\n") {
                events.push(Event::Lost("CLIENT_ERROR bad data chunk".to_owned()));
                return events;
            }
            let frame = [&frame[..], data].concat();
            events.push(Event::Request { frame, keys, quiet });
        } else {
            events.push(event);
        }
        input = rest;
    }
    events
}

/// What a line is, and how long the value behind it is.
fn request(words: &[&str]) -> (Event, Option<usize>) {
    let refuse = |line: &str, quiet| Event::Refused {
        line: line.to_owned(),
        quiet,
        instead: None,
    };
    let format = "CLIENT_ERROR bad command line format";
    let silent = |words: &[&str]| match words.last() {
        Some(&"noreply") => Quiet::Everything,
        _ => Quiet::Nothing,
    };
    let ask = |words: &[&str], keys: &[&str], quiet| Event::Request {
        frame: format!("{}\r\n", words.join(" ")).into_bytes(),
        keys: keys.iter().map(|key| key.as_bytes().to_vec()).collect(),
        quiet,
    };
    match words {
        ["get" | "gets", keys @ ..] if !keys.is_empty() => {
            let too_long = keys.iter().any(|key| key.len() > 250);
            match too_long {
                true => (refuse(format, Quiet::Nothing), None),
                false => (ask(words, keys, Quiet::Nothing), None),
            }
        }
        ["set" | "add" | "append", rest @ ..] if rest.len() == 4 || rest.len() == 5 => {
            let Ok(bytes) = rest[3].parse::<u32>() else {
                return (Event::Lost(format.to_owned()), None);
            };
            let (bytes, quiet) = (bytes as usize, silent(words));
            let fits = rest[0].len() <= 250
                && rest[1].parse::<u32>().is_ok()
                && rest[2].parse::<i32>().is_ok();
            if !fits {
                return (refuse(format, quiet), Some(bytes));
            }
            if bytes > limits().value_bytes_max {
                let instead =
                    (words[0] == "set").then(|| format!("delete {}\r\n", rest[0]).into_bytes());
                let event = Event::Refused {
                    line: "SERVER_ERROR object too large for cache".to_owned(),
                    quiet,
                    instead,
                };
                return (event, Some(bytes));
            }
            (ask(&words[..5], &rest[..1], quiet), Some(bytes))
        }
        ["set" | "add" | "append", ..] => (Event::Lost("ERROR".to_owned()), None),
        ["incr", key, delta] | ["incr", key, delta, _] => {
            let quiet = silent(words);
            match (key.len() <= 250, delta.parse::<u64>()) {
                (false, _) => (refuse(format, quiet), None),
                (_, Err(_)) => {
                    let line = "CLIENT_ERROR invalid numeric delta argument";
                    (refuse(line, quiet), None)
                }
                _ => (ask(&words[..3], &words[1..2], quiet), None),
            }
        }
        ["md", key, flags @ ..] if key.len() <= 250 => {
            let silences = flags.iter().filter(|flag| flag.starts_with('q')).count();
            match silences {
                0 => (ask(words, &words[1..2], Quiet::Nothing), None),
                1 => {
                    let kept = words.iter().enumerate();
                    let kept = kept.filter(|(at, word)| *at < 2 || !word.starts_with('q'));
                    let kept: Vec<&str> = kept.map(|(_, word)| *word).collect();
                    (ask(&kept, &words[1..2], Quiet::Done), None)
                }
                _ => (refuse("CLIENT_ERROR duplicate flag", Quiet::Nothing), None),
            }
        }
        ["md", _, ..] => (refuse(format, Quiet::Nothing), None),
        ["mn", ..] => (ask(words, &[], Quiet::Nothing), None),
        _ => (refuse("ERROR", Quiet::Nothing), None),
    }
}

/// A line of the commands that the twin knows, right or slightly wrong, and its value.
fn line(random: &mut Random) -> Vec<u8> {
    let key = match random.below(12) {
        0 => "k".repeat(251),
        1 => "noreply".to_owned(),
        2 => "qq".to_owned(),
        number => format!("key{number}"),
    };
    let blank = if random.chance(15) { "  " } else { " " };
    let number = random.one(&["0", "1", "60", "-1", "x", "99999999999", "007"]);
    let end = if random.chance(20) { "\n" } else { "\r\n" };
    let silence = random.one(&["", "", " noreply", " other"]);
    match random.below(6) {
        0 => format!("get{blank}{key} b{end}").into_bytes(),
        1 => format!("incr {key}{blank}{number}{silence}{end}").into_bytes(),
        2 => {
            let flags = random.one(&["", " q", " q q", " O1", " I T5 qx"]);
            format!("md {key}{flags}{blank}{end}").into_bytes()
        }
        3 => format!("mn{blank}{end}").into_bytes(),
        4 => format!(
            "{}{end}",
            random.one(&["", "nothing", "get", "SET a", "incr a"])
        )
        .into_bytes(),
        _ => {
            let verb = random.one(&["set", "add", "append"]);
            let bytes = *random.one(&[0, 1, 5, 100, 101, 500]);
            let exptime = random.one(&["0", "-1", "9", "soon"]);
            let value = "get x\r\n".repeat(80).into_bytes()[..bytes].to_vec();
            let header = format!("{verb} {key} {number}{blank}{exptime} {bytes}{silence}{end}");
            let after: &[u8] = if random.chance(3) { b"!!" } else { b"\r\n" };
            [header.as_bytes(), &value, after].concat()
        }
    }
}

#[test]
fn the_scanner_reads_every_stream_as_the_plain_reader_does() {
    let repeat = "-p clockwise-client --test memcached plain_reader";
    for_seeds(500, repeat, |random| {
        let lines = 1 + random.below(12);
        let stream: Vec<u8> = (0..lines).flat_map(|_| line(random)).collect();
        assert_eq!(scan(&stream), read(&stream), "{}", stream.escape_ascii());
    });
}
