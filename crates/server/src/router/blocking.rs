//! Commands that wait at a node for something to come: `BLPOP`, `XREAD … BLOCK` and the like.
//!
//! Each goes over a [connection of the client's own](super::own_link), and not for as long as the
//! client is willing to wait: the node is asked to block for a tenth of a second, and asked again
//! until the client's time is over. So a handover need not wait for clients, nor cut them off with
//! an element on its way to them: what a node was asked ends by an answer, and the next time the owner
//! of then is asked. The price is ten requests a second for each client that waits, and that those
//! who wait for the same key are not served in the order they came.
//!
//! `$`, the end of a stream as of now, is looked up once: asked again literally it would skip
//! what came between two times.

use clockwise_client::commands::{Command, TimeoutAt};
use clockwise_client::resp::{Request, Value, write_array, write_bulk, write_command};
use clockwise_client::routing::{Effect, Millis};

use super::client::Pause;
use super::own_link::{Ask, Outcome};
use super::refusal;
use super::serve::Flow;
use super::worker::{Turn, Worker};

/// A blocking command under way.
#[derive(Debug)]
pub(super) struct Errand {
    /// When the client's patience ends; never, if `None`.
    until: Option<Millis>,
    /// The node is asked once, in the client's own words.
    in_own_words: bool,
    /// How long it is asked to block at a time.
    slice_ms_max: u64,
    /// For arguments that are `$`, what they stand for.
    ends: Vec<(usize, Vec<u8>)>,
}

/// Where the options of a reading of streams are.
struct Streams {
    /// Arguments that say how long to block.
    timeouts: Vec<usize>,
    /// The first key; as many identifiers as keys follow.
    keys: usize,
}

impl Streams {
    fn of(request: &Request<'_>) -> Self {
        let is = |at: usize, word: &[u8]| {
            request
                .get(at)
                .is_some_and(|argument| argument.eq_ignore_ascii_case(word))
        };
        // Behind GROUP come two names, which may be any words.
        let options = if is(1, b"GROUP") { 4 } else { 1 };
        let keys = (options..request.count())
            .find(|at| is(*at, b"STREAMS"))
            .map_or(request.count(), |at| at + 1);
        let timeouts = (options..keys).filter(|at| is(*at, b"BLOCK"));
        Self {
            timeouts: timeouts.map(|at| at + 1).collect(),
            keys,
        }
    }
}

/// Whether a reading of streams has the option `BLOCK`.
pub(super) fn blocks(request: &Request<'_>) -> bool {
    !Streams::of(request).timeouts.is_empty()
}

/// For how long a client is willing to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Ms(u64),
    ForEver,
    /// More than any server takes. Versions differ in what they say of it.
    TooLong,
}

impl Patience {
    fn of_ms(ms: u64) -> Self {
        if ms == 0 { Self::ForEver } else { Self::Ms(ms) }
    }
}

/// For how long a client is willing to wait, or a server's words of what cannot be.
fn patience(at: TimeoutAt, request: &Request<'_>) -> Result<Patience, &'static str> {
    /// Well above 2^63 milliseconds, which servers count in.
    const SECONDS_MAX: f64 = 9.3e15;
    const NEGATIVE: &str = "ERR timeout is negative";
    let text = |at: usize| {
        request
            .get(at)
            .and_then(|text| std::str::from_utf8(text).ok())
    };
    let seconds = |at: usize| {
        const WRONG: &str = "ERR timeout is not a float or out of range";
        let seconds: f64 = text(at)
            .filter(|text| !text.starts_with(char::is_whitespace))
            .and_then(|text| text.parse().ok())
            .ok_or(WRONG)?;
        if seconds.is_nan() {
            return Err(WRONG);
        }
        if seconds < 0.0 {
            return Err(NEGATIVE);
        }
        if seconds > SECONDS_MAX {
            return Ok(Patience::TooLong);
        }
        Ok(Patience::of_ms((seconds * 1_000.0).ceil() as u64))
    };
    match at {
        TimeoutAt::End => seconds(request.count() - 1),
        TimeoutAt::Start => seconds(1),
        TimeoutAt::Block => {
            const WRONG: &str = "ERR timeout is not an integer or out of range";
            let mut last = 0;
            for at in Streams::of(request).timeouts {
                // Only as servers write it: no plus, no zeros in front.
                last = text(at)
                    .and_then(|text| Some((text, text.parse::<i64>().ok()?)))
                    .filter(|(text, number)| number.to_string() == *text)
                    .ok_or(WRONG)?
                    .1;
                if last < 0 {
                    return Err(NEGATIVE);
                }
            }
            u64::try_from(last)
                .map(Patience::of_ms)
                .map_err(|_| NEGATIVE)
        }
    }
}

/// Whether a node says that nothing came in time.
fn is_null(reply: &[u8]) -> bool {
    matches!(reply, b"*-1\r\n" | b"$-1\r\n" | b"_\r\n")
}

/// Writes the request with a time of its own to block, and with ends of streams filled in.
fn write_slice(
    request: &Request<'_>,
    at: TimeoutAt,
    slice_ms: u64,
    ends: &[(usize, Vec<u8>)],
    out: &mut Vec<u8>,
) {
    let timeouts = match at {
        TimeoutAt::End => vec![request.count() - 1],
        TimeoutAt::Start => vec![1],
        TimeoutAt::Block => Streams::of(request).timeouts,
    };
    let timeout = match at {
        TimeoutAt::Block => slice_ms.to_string(),
        _ => format!("{}.{:03}", slice_ms / 1_000, slice_ms % 1_000),
    };
    write_array(out, request.count());
    for (number, argument) in request.args().enumerate() {
        let end = ends.iter().find(|(at, _)| *at == number);
        if timeouts.contains(&number) {
            write_bulk(out, timeout.as_bytes());
        } else {
            write_bulk(out, end.map_or(argument, |(_, end)| end));
        }
    }
}

/// The identifier of the last entry, from a node's answer to a reading of one backwards.
fn last_entry(reply: &[u8]) -> Option<Vec<u8>> {
    let (value, _) = Value::parse(reply).ok()??;
    match value.as_array()?.first() {
        None => Some(b"0-0".to_vec()),
        Some(entry) => Some(entry.as_array()?.first()?.as_bytes()?.to_vec()),
    }
}

/// What to ask the node for next.
enum Step {
    /// The end of the stream that this argument stands for, whose key is that one.
    End {
        argument: usize,
        key: usize,
    },
    Slice(u64),
    /// The request as it came.
    InOwnWords,
}

impl Errand {
    fn next(&self, at: TimeoutAt, request: &Request<'_>, reads: bool, now: Millis) -> Step {
        if at == TimeoutAt::Block && reads {
            let keys = Streams::of(request).keys;
            let count = (request.count() - keys) / 2;
            let open = (keys + count..request.count()).find(|argument| {
                request.arg(*argument) == b"$" && !self.ends.iter().any(|(at, _)| at == argument)
            });
            if let Some(argument) = open {
                let key = argument - count;
                return Step::End { argument, key };
            }
        }
        if self.in_own_words {
            return Step::InOwnWords;
        }
        let most = self.slice_ms_max.max(1);
        let left = self.until.map_or(most, |until| until.since(now));
        Step::Slice(left.clamp(1, most))
    }

    fn is_over(&self, now: Millis) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl Worker {
    /// Waits at the owner of the keys, for as long as the client wants.
    pub(super) fn block(
        &mut self,
        turn: &Turn,
        place: usize,
        at: TimeoutAt,
        command: &Command,
        request: &Request<'_>,
    ) -> Flow {
        let now = turn.now;
        let patience = match patience(at, request) {
            Ok(patience) => patience,
            Err(text) => {
                self.refuse_now(place, text);
                return Flow::Next;
            }
        };
        let waiting = self
            .clients
            .get(place)
            .map_or(0, |client| client.replies.waiting());
        if waiting > 0 {
            return Flow::Later(Pause::Barrier);
        }
        let slice_ms_max = self.settings.limits.block_ms_max;
        self.begin_errand(turn, place, || Errand {
            until: match patience {
                Patience::Ms(ms) => Some(now.after(ms)),
                Patience::ForEver => None,
                Patience::TooLong => Some(now),
            },
            in_own_words: patience == Patience::TooLong,
            slice_ms_max,
            ends: Vec::new(),
        });
        loop {
            let outcome = match self.own_outcome(place) {
                Some(outcome) => outcome,
                None => match self.ask_next(turn, place, at, command, request) {
                    Ok(outcome) => outcome,
                    Err(text) => Outcome::Failed(text),
                },
            };
            let (answer, failed) = match outcome {
                Outcome::Pending => return Flow::Later(Pause::Own),
                Outcome::Failed(text) => (Vec::new(), Some(text)),
                Outcome::Answered(answer) => (answer, None),
            };
            if failed.is_none() && self.goes_on(turn, place, (at, command), request, &answer) {
                continue;
            }
            let gone = self
                .clients
                .get(place)
                .is_none_or(|client| client.peer_done);
            self.finish_own(turn, place);
            if gone && is_null(&answer) {
                // As with servers: whoever has closed its half waits for nothing any more.
                self.remove(place);
                return Flow::Next;
            }
            match failed {
                Some(text) => self.refuse_now(place, &text),
                None => self.answer(place, |out| out.extend_from_slice(&answer)),
            }
            return Flow::Next;
        }
    }

    /// Whether there is more to ask after this answer.
    fn goes_on(
        &mut self,
        turn: &Turn,
        place: usize,
        (at, command): (TimeoutAt, &Command),
        request: &Request<'_>,
        answer: &[u8],
    ) -> bool {
        let draining = self.draining;
        let Some(client) = self.clients.get(place) else {
            return false;
        };
        let gone = client.peer_done;
        let Some(errand) = client.own.as_mut().and_then(|own| own.errand.as_mut()) else {
            return false;
        };
        let reads = command.effect == Effect::Read;
        if let Step::End { argument, .. } = errand.next(at, request, reads, turn.now) {
            return match last_entry(answer) {
                Some(end) => {
                    errand.ends.push((argument, end));
                    true
                }
                None => false,
            };
        }
        is_null(answer) && !draining && !gone && !errand.is_over(turn.now)
    }

    fn ask_next(
        &mut self,
        turn: &Turn,
        place: usize,
        at: TimeoutAt,
        command: &Command,
        request: &Request<'_>,
    ) -> Result<Outcome, String> {
        let route = self.route_of(turn, command, request)?;
        let own = self.clients.own(place);
        let Some(own) = own else {
            return Ok(Outcome::Pending);
        };
        let node = &turn.view.node(route.node).id;
        if let Some(watched) = own.watched().filter(|watched| watched.id != *node) {
            let (one, other) = (watched.id.as_str(), node.as_str());
            return Err(refusal::watches_elsewhere(one, other, turn.view.epoch()));
        }
        let Some(errand) = own.errand.take() else {
            return Ok(Outcome::Pending);
        };
        let reads = command.effect == Effect::Read;
        let step = errand.next(at, request, reads, turn.now);
        let (slice_ms, effect) = match step {
            Step::End { .. } => (0, Effect::Read),
            Step::Slice(slice_ms) => (slice_ms, command.effect),
            Step::InOwnWords => (0, command.effect),
        };
        let ask = Ask {
            route,
            effect,
            preamble: 0,
            reply_ms_max: self.settings.limits.reply_ms_max.saturating_add(slice_ms),
        };
        let outcome = self.ask_own(turn, place, &ask, |out| match step {
            Step::End { key, .. } => {
                let words = [b"XREVRANGE", request.arg(key), b"+", b"-", b"COUNT", b"1"];
                write_command(out, &words);
            }
            Step::Slice(slice_ms) => write_slice(request, at, slice_ms, &errand.ends, out),
            Step::InOwnWords => out.extend_from_slice(request.frame()),
        });
        let own = self.clients.own(place);
        if let Some(own) = own {
            own.errand = Some(errand);
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use clockwise_client::resp::{RequestLimits, RequestScanner, Scan};

    use super::*;

    /// What a node is asked, step by step, until it is asked to block.
    fn asked(line: &str, at: TimeoutAt, reads: bool, left_ms: Option<u64>) -> Vec<String> {
        let mut frame = Vec::new();
        write_command(&mut frame, &line.split(' ').collect::<Vec<_>>());
        let mut scanner = RequestScanner::default();
        let Ok(Scan::Request { request, .. }) = scanner.scan(&RequestLimits::default(), &frame)
        else {
            panic!("a request")
        };
        let now = Millis(1_000);
        let until = left_ms.map(|ms| now.after(ms));
        let mut errand = Errand {
            until,
            in_own_words: false,
            slice_ms_max: 100,
            ends: Vec::new(),
        };
        let mut steps = Vec::new();
        loop {
            match errand.next(at, &request, reads, now) {
                Step::End { argument, key } => {
                    let key = String::from_utf8_lossy(request.arg(key)).into_owned();
                    steps.push(format!("end of {key}"));
                    errand
                        .ends
                        .push((argument, format!("{}-0", argument).into_bytes()));
                }
                Step::Slice(slice_ms) => {
                    let mut out = Vec::new();
                    write_slice(&request, at, slice_ms, &errand.ends, &mut out);
                    let (value, _) = Value::parse(&out).expect("a request").expect("whole");
                    let words = value.as_array().expect("an array").iter();
                    let words = words.map(|word| word.as_text().unwrap_or_default().to_owned());
                    steps.push(words.collect::<Vec<_>>().join(" "));
                    return steps;
                }
                Step::InOwnWords => unreachable!("not asked for"),
            }
        }
    }

    #[test]
    fn a_node_is_asked_to_block_for_a_tenth_of_a_second_or_what_is_left() {
        for (line, at, left_ms, expected) in [
            ("BLPOP a b 0", TimeoutAt::End, None, "BLPOP a b 0.100"),
            (
                "BLPOP a b 60",
                TimeoutAt::End,
                Some(60_000),
                "BLPOP a b 0.100",
            ),
            ("BLPOP a b 60", TimeoutAt::End, Some(7), "BLPOP a b 0.007"),
            ("BLPOP a b 60", TimeoutAt::End, Some(0), "BLPOP a b 0.001"),
            (
                "BLMPOP 5 1 5 LEFT",
                TimeoutAt::Start,
                None,
                "BLMPOP 0.100 1 5 LEFT",
            ),
            (
                "XREAD COUNT 9 block 9 BLOCK 0 STREAMS BLOCK 0",
                TimeoutAt::Block,
                None,
                "XREAD COUNT 9 block 100 BLOCK 100 STREAMS BLOCK 0",
            ),
            (
                "XREADGROUP GROUP BLOCK BLOCK BLOCK 9 STREAMS a >",
                TimeoutAt::Block,
                Some(9),
                "XREADGROUP GROUP BLOCK BLOCK BLOCK 9 STREAMS a >",
            ),
        ] {
            assert_eq!(asked(line, at, true, left_ms), [expected], "{line}");
        }
    }

    #[test]
    fn the_ends_of_streams_are_looked_up_before_it_blocks() {
        let line = "XREAD BLOCK 0 STREAMS a b c $ 1-1 $";
        let expected = [
            "end of a",
            "end of c",
            "XREAD BLOCK 100 STREAMS a b c 7-0 1-1 9-0",
        ];
        assert_eq!(asked(line, TimeoutAt::Block, true, None), expected);
        // A group has no such thing; its server says so.
        let line = "XREADGROUP GROUP g c BLOCK 0 STREAMS a $";
        let expected = ["XREADGROUP GROUP g c BLOCK 100 STREAMS a $"];
        assert_eq!(asked(line, TimeoutAt::Block, false, None), expected);
        assert_eq!(last_entry(b"*0\r\n"), Some(b"0-0".to_vec()));
        let entry = b"*1\r\n*2\r\n$3\r\n5-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n";
        assert_eq!(last_entry(entry), Some(b"5-1".to_vec()));
        assert_eq!(last_entry(b"-WRONGTYPE no\r\n"), None);
    }
}
