//! What is said over one connection to a node, without the connection: which bytes leave, whose
//! answer comes next, and what became of each request when it ends.
//!
//! All callers of a worker share it. Answers are matched by order alone, so the slightest doubt
//! about a reply ends the connection: better a request of unknown outcome than somebody else's
//! answer. Who asked is a small value of the owner's, so that a caller who went away changes
//! nothing: the answer still has its place in line.
//!
//! *Large answers.* One over the limit is read and dropped, and only who asked for it is told. Time is
//! up for a connection when nothing arrives, not for a request whose turn has not come.
//! Only so many requests leave as a window of the slow start kind allows; the others wait here.

use std::collections::VecDeque;

use super::send_buffer::SendBuffer;
use super::window::Window;
use super::{Effect, Millis};
use crate::credentials::Password;
use crate::resp::{Protocol, ReplyError, ReplyScan, ReplyScanner, Value, write_command};

/// The field by which a clockwise router gives itself away in its reply to `HELLO`.
pub const ROUTER_FIELD: &str = "clockwise_version";

/// How long a connection without requests keeps what it has learned of their number.
const WINDOW_KEPT_MS: u64 = 1_000;

/// Bounds of one conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversationLimits {
    /// Bytes of one reply.
    pub reply_bytes_max: usize,
    /// Bytes of answers that are likely to be on their way before further requests wait for these.
    pub answers_bytes_max: usize,
    /// How long a node may be silent while it owes an answer.
    pub reply_ms_max: u64,
    /// How long a request may be without an answer in all, also while those before it arrive.
    pub answer_ms_max: u64,
}

/// Who we are to a node.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The user of the node's generation.
    pub user: String,
    /// Its password.
    pub password: Password,
}

/// A request as it is handed over.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<O> {
    /// Whose it is.
    pub origin: O,
    /// What it may do.
    pub effect: Effect,
    /// How often it was sent before.
    pub retries: u8,
    /// Replies before the one that is the answer: those to `MULTI` and what is queued.
    pub preamble: u32,
}

/// A request whose answer is awaited.
#[derive(Clone, Copy, Debug)]
pub struct InFlight<O> {
    /// Whose it is.
    pub origin: O,
    /// What it may do.
    pub effect: Effect,
    /// How often it was sent before.
    pub retries: u8,
    /// Replies before the one that is the answer.
    pub preamble: u32,
    sent_at: Millis,
    /// The offset behind its bytes.
    end: u64,
}

/// A request that was on a connection when it ended.
#[derive(Clone, Copy, Debug)]
pub struct Lost<O> {
    /// The request.
    pub request: InFlight<O>,
    /// Its last byte was handed to the system.
    pub sent: bool,
    /// It was sent under an earlier epoch.
    pub outdated: bool,
}

/// What is at the front of the bytes that have come.
#[derive(Clone, Copy, Debug)]
pub enum Front<'a> {
    /// Nothing whole.
    Nothing,
    /// So many bytes that answer nothing: what the server says of its own accord, or a piece of a reply
    /// over the limit.
    Passed(usize),
    /// A reply.
    Reply(&'a [u8]),
    /// The last bytes, so many, of a reply over the limit, which had so many in all.
    TooLong {
        /// Bytes at the front.
        rest: usize,
        /// Bytes in all.
        whole: u64,
    },
}

/// What a reply is to the requests that wait for one.
#[derive(Debug)]
pub enum Answered<O> {
    /// Not yet the answer to the one at the front.
    InPart,
    /// The answer to this request of so many bytes; in other words, where the node's say too little.
    Whole {
        /// The request.
        request: InFlight<O>,
        /// Bytes it had.
        bytes: usize,
        /// What to answer instead of the node's words.
        words: Option<Vec<u8>>,
    },
}

/// A reply that fits no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unmatched {
    /// Nothing is awaited, or what is has not left yet.
    #[error("a reply that nothing asked for")]
    Unasked,
    /// A node that executes what it should have queued.
    #[error("it did not begin a transaction when asked to")]
    NoTransaction,
}

/// How logging in went.
#[derive(Debug, PartialEq, Eq)]
pub enum Login {
    /// The conversation is open.
    Done,
    /// The node does not know our user or its password.
    Denied,
    /// It is no server of ours; its words.
    Refused(String),
}

/// How a server's answer to an `EXEC` begins that did nothing.
const ABORTED: &[u8] = b"-EXECABORT";

/// See the module. `O` says whose a request is.
#[derive(Debug)]
pub struct Conversation<O> {
    protocol: Protocol,
    /// The answer to `HELLO` has come.
    open: bool,
    out: SendBuffer,
    in_flight: VecDeque<InFlight<O>>,
    /// Replies to the request at the front that are not its answer yet, so many have come.
    preamble_seen: u32,
    /// The first error among them.
    preamble_error: Option<Box<[u8]>>,
    /// Requests in flight, from the front, that were sent under an earlier epoch.
    outdated: usize,
    scanner: ReplyScanner,
    window: Window,
    /// When bytes last came, or could not because nobody reads.
    heard_at: Millis,
}

impl<O: Copy> Conversation<O> {
    /// Begins with `HELLO`.
    pub fn new(
        protocol: Protocol,
        credential: Option<&Credential>,
        limits: ConversationLimits,
    ) -> Self {
        let mut out = SendBuffer::default();
        let version = match protocol {
            Protocol::Resp2 => "2",
            Protocol::Resp3 => "3",
        };
        match credential {
            Some(Credential { user, password }) => {
                let hello = ["HELLO", version, "AUTH", user, password.reveal()];
                write_command(out.tail(), &hello);
            }
            None => write_command(out.tail(), &["HELLO", version]),
        }
        Self {
            protocol,
            open: false,
            out,
            in_flight: VecDeque::new(),
            preamble_seen: 0,
            preamble_error: None,
            outdated: 0,
            scanner: ReplyScanner::new(limits.reply_bytes_max),
            window: Window::new(limits.answers_bytes_max),
            heard_at: Millis(0),
        }
    }

    /// Appends a request, written by `write`, to what goes out next.
    #[inline]
    pub fn push(&mut self, request: Outgoing<O>, now: Millis, write: impl FnOnce(&mut Vec<u8>)) {
        if self.in_flight.is_empty() && now.since(self.heard_at) >= WINDOW_KEPT_MS {
            self.window.forget();
        }
        write(self.out.tail());
        self.in_flight.push_back(InFlight {
            origin: request.origin,
            effect: request.effect,
            retries: request.retries,
            preamble: request.preamble,
            sent_at: now,
            end: self.out.end(),
        });
    }

    /// Bytes that nobody has answered, sent or not.
    pub fn unanswered_bytes(&self) -> usize {
        self.out.unanswered()
    }

    /// Whether the node owes an answer.
    pub fn owes(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether the node has let us in.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// How long the answer at the front may take, if it has taken longer: since it was asked for, and
    /// since anything was heard. The limits are those of now, which may not be those it began with.
    pub fn is_late(&self, limits: &ConversationLimits, now: Millis) -> Option<u64> {
        let sent_at = self.in_flight.front()?.sent_at;
        let late = |since: Millis, ms_max: u64| (now.since(since) >= ms_max).then_some(ms_max);
        late(sent_at.max(self.heard_at), limits.reply_ms_max)
            .or_else(|| late(sent_at, limits.answer_ms_max))
    }

    /// Bytes have come, or nobody listened until now.
    pub fn heard(&mut self, now: Millis) {
        self.heard_at = now;
    }

    /// A later epoch is in force.
    pub fn outdate(&mut self) {
        self.outdated = self.in_flight.len();
    }

    /// Up to which offset bytes may leave.
    fn window_end(&self) -> u64 {
        match self.in_flight.get(self.window.requests() - 1) {
            Some(last) => last.end,
            None => self.out.end(),
        }
    }

    /// What may leave now and has not.
    #[inline]
    pub fn unsent(&self) -> &[u8] {
        self.out.unsent(self.window_end())
    }

    /// So many bytes were handed to the system.
    pub fn mark_sent(&mut self, bytes: usize) {
        self.out.mark_sent(bytes);
    }

    /// What is at the front of `bytes`.
    ///
    /// # Errors
    /// It is no reply, and nothing behind it can be trusted.
    #[inline]
    pub fn front<'a>(&mut self, bytes: &'a [u8]) -> Result<Front<'a>, ReplyError> {
        Ok(match self.scanner.scan_or_skip(bytes)? {
            ReplyScan::More => Front::Nothing,
            ReplyScan::Skip(bytes) => Front::Passed(bytes),
            // Nobody subscribes or tracks over these connections; a server may still tell us something.
            ReplyScan::Reply(reply) if reply.is_push() => Front::Passed(reply.bytes),
            ReplyScan::TooLong { rest, .. } if rest.is_push() => Front::Passed(rest.bytes),
            ReplyScan::Reply(reply) => Front::Reply(&bytes[..reply.bytes]),
            ReplyScan::TooLong { rest, whole } => Front::TooLong {
                rest: rest.bytes,
                whole,
            },
        })
    }

    /// Takes the request that a reply answers, the oldest, and its size.
    ///
    /// # Errors
    /// None is awaited, or it has not left yet.
    #[inline]
    pub fn answered(&mut self, reply: &[u8]) -> Result<Answered<O>, Unmatched> {
        let Some(request) = self.in_flight.front().copied() else {
            return Err(Unmatched::Unasked);
        };
        if self.preamble_seen < request.preamble {
            self.preamble(reply)?;
            return Ok(Answered::InPart);
        }
        if request.end > self.out.sent_to() {
            return Err(Unmatched::Unasked);
        }
        self.window.answered(reply.len(), self.in_flight.len());
        self.in_flight.pop_front();
        let bytes = usize::try_from(request.end - self.out.answered_to());
        self.out.mark_answered(request.end);
        self.outdated = self.outdated.saturating_sub(1);
        self.preamble_seen = 0;
        let why = self.preamble_error.take();
        let words = why.filter(|_| reply.starts_with(ABORTED)).map(|why| {
            let why = why.strip_prefix(b"-").unwrap_or(&why);
            [ABORTED, b" Transaction discarded because of: ", why].concat()
        });
        Ok(Answered::Whole {
            request,
            bytes: bytes.expect("a request fits in memory"),
            words,
        })
    }

    /// The same as [`answered`](Self::answered) for a reply over the limit, of so many bytes; what to
    /// say instead is left to the caller.
    ///
    /// # Errors
    /// The same.
    pub fn answered_too_long(&mut self, whole: u64) -> Result<Answered<O>, Unmatched> {
        let answered = self.answered(b"")?;
        if matches!(answered, Answered::Whole { .. }) {
            let bytes = usize::try_from(whole).unwrap_or(usize::MAX);
            self.window.answered(bytes, 0);
        }
        Ok(answered)
    }

    /// A reply to `MULTI`, or to what was queued behind it. A node that does not take them for a
    /// transaction executes them one by one: the connection must go.
    fn preamble(&mut self, reply: &[u8]) -> Result<(), Unmatched> {
        if self.out.sent_to() == self.out.answered_to() {
            return Err(Unmatched::Unasked);
        }
        let expected: &[u8] = if self.preamble_seen == 0 {
            b"+OK\r\n"
        } else {
            b"+QUEUED\r\n"
        };
        let refused = self.preamble_seen > 0 && reply.starts_with(b"-");
        if reply != expected && !refused {
            return Err(Unmatched::NoTransaction);
        }
        self.preamble_seen += 1;
        if refused {
            self.preamble_error.get_or_insert_with(|| reply.into());
        }
        Ok(())
    }

    /// What the answer to `HELLO` means. Only a server's facts, with the version asked for, open the
    /// conversation; an echo does not. With them comes the number by which the server knows the
    /// connection, if it has told.
    pub fn log_in(&mut self, reply: &[u8]) -> (Login, Option<i64>) {
        let hello_end = self.out.end();
        if self.out.sent_to() < hello_end {
            let early = "it spoke before it was asked".to_owned();
            return (Login::Refused(early), None);
        }
        let login = match Value::parse(reply) {
            Ok(Some((value, _))) if fact(&value, ROUTER_FIELD).is_some() => {
                Login::Refused("it is a router, not a server".to_owned())
            }
            Ok(Some((value, _))) if speaks(&value, self.protocol) => {
                self.out.mark_answered(hello_end);
                self.open = true;
                let id = fact(&value, "id").and_then(Value::as_integer);
                return (Login::Done, id);
            }
            Ok(Some((Value::Error(text), _)))
                if text.starts_with("WRONGPASS") || text.starts_with("NOAUTH") =>
            {
                Login::Denied
            }
            other => Login::Refused(match other {
                Ok(Some((Value::Error(text), _))) => text,
                _ => "not a reply to HELLO".to_owned(),
            }),
        };
        (login, None)
    }

    /// What was in flight, in order, with whether it was sent and under the present epoch.
    pub fn lost(&self) -> impl Iterator<Item = Lost<O>> + '_ {
        let (sent_to, outdated) = (self.out.sent_to(), self.outdated);
        self.in_flight
            .iter()
            .enumerate()
            .map(move |(index, request)| Lost {
                request: *request,
                sent: request.end <= sent_to,
                outdated: index < outdated,
            })
    }

    /// The bytes of the request at `index` of [`lost`](Self::lost).
    ///
    /// # Panics
    /// When there is none.
    pub fn frame(&self, index: usize) -> &[u8] {
        let start = match index.checked_sub(1) {
            None => self.out.answered_to(),
            Some(before) => self.in_flight[before].end,
        };
        self.out.between(start, self.in_flight[index].end)
    }
}

/// Whether these are a server's facts about itself, in this version of the protocol.
fn speaks(facts: &Value, protocol: Protocol) -> bool {
    let expected = match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    fact(facts, "proto").and_then(Value::as_integer) == Some(expected)
}

/// One of the facts in a reply to `HELLO`.
pub fn fact<'a>(facts: &'a Value, name: &str) -> Option<&'a Value> {
    let mut pairs = facts.pairs().into_iter();
    pairs.find_map(|(key, value)| (key.as_text() == Some(name)).then_some(value))
}
