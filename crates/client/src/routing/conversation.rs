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

use super::greeting::{Greeting, Login, by_hello, by_version};
use super::send_buffer::SendBuffer;
use super::window::Window;
use super::{Effect, Millis};
use crate::memcached;
use crate::resp::{Protocol, ReplyError, ReplyScan, ReplyScanner};

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
    /// Of memcached: it names another key, another opaque word, or is of another kind.
    #[error("a reply that does not fit its request")]
    Unfit,
    /// A node that executes what it should have queued.
    #[error("it did not begin a transaction when asked to")]
    NoTransaction,
}

/// How a server's answer to an `EXEC` begins that did nothing.
const ABORTED: &[u8] = b"-EXECABORT";

/// Why bytes of a node are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoReply {
    /// In RESP.
    #[error("{0}")]
    Resp(#[from] ReplyError),
    /// In memcached's protocols.
    #[error("{0}")]
    Memcached(#[from] memcached::ReplyError),
}

/// Finds replies in what a node sends.
#[derive(Debug)]
enum Replies {
    Resp(Protocol, Box<ReplyScanner>),
    Memcached(memcached::ReplyScanner),
}

impl Replies {
    fn to(greeting: Greeting<'_>, bytes_max: usize) -> Self {
        match greeting {
            Greeting::Hello(protocol, _) => {
                Self::Resp(protocol, Box::new(ReplyScanner::new(bytes_max)))
            }
            Greeting::Version => Self::Memcached(memcached::ReplyScanner::new(bytes_max)),
        }
    }
}

/// See the module. `O` says whose a request is.
#[derive(Debug)]
pub struct Conversation<O> {
    /// The answer to the greeting has come.
    open: bool,
    out: SendBuffer,
    in_flight: VecDeque<InFlight<O>>,
    /// Replies to the request at the front that are not its answer yet, so many have come.
    preamble_seen: u32,
    /// The first error among them.
    preamble_error: Option<Box<[u8]>>,
    /// Requests in flight, from the front, that were sent under an earlier epoch.
    outdated: usize,
    replies: Replies,
    window: Window,
    /// When bytes last came, or could not because nobody reads.
    heard_at: Millis,
}

impl<O: Copy> Conversation<O> {
    /// Begins with a greeting, which says what is spoken.
    pub fn new(greeting: Greeting<'_>, limits: ConversationLimits) -> Self {
        let mut out = SendBuffer::default();
        greeting.write(out.tail());
        Self {
            open: false,
            out,
            in_flight: VecDeque::new(),
            preamble_seen: 0,
            preamble_error: None,
            outdated: 0,
            replies: Replies::to(greeting, limits.reply_bytes_max),
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
    pub fn front<'a>(&mut self, bytes: &'a [u8]) -> Result<Front<'a>, NoReply> {
        let scanner = match &mut self.replies {
            Replies::Resp(_, scanner) => scanner,
            Replies::Memcached(scanner) => {
                return Ok(match scanner.scan(bytes)? {
                    memcached::ReplyScan::More => Front::Nothing,
                    memcached::ReplyScan::Skip(bytes) => Front::Passed(bytes),
                    memcached::ReplyScan::Reply(reply) => Front::Reply(&bytes[..reply.bytes]),
                    memcached::ReplyScan::TooLong { rest, whole } => Front::TooLong {
                        rest: rest.bytes,
                        whole,
                    },
                });
            }
        };
        Ok(match scanner.scan_or_skip(bytes)? {
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
    /// None is awaited, it has not left yet, or the reply cannot be its answer.
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
        if self.is_unfit(reply) {
            return Err(Unmatched::Unfit);
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

    /// Whether a reply cannot be the answer to the request at the front. RESP does not tell, and of one
    /// over the limit, which is handed over without its bytes, nothing is known.
    fn is_unfit(&self, reply: &[u8]) -> bool {
        match self.replies {
            Replies::Resp(..) => false,
            Replies::Memcached(_) => !reply.is_empty() && !memcached::answers(self.frame(0), reply),
        }
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

    /// What the answer to the greeting means, and by what number the server knows the connection, if it
    /// has told.
    pub fn log_in(&mut self, reply: &[u8]) -> (Login, Option<i64>) {
        let greeting_end = self.out.end();
        let (login, id) = match &self.replies {
            Replies::Resp(protocol, _) => by_hello(*protocol, reply),
            Replies::Memcached(_) => (by_version(reply), None),
        };
        if login == Login::Done {
            if self.out.sent_to() < greeting_end {
                return (
                    Login::Refused("it spoke before it was asked".to_owned()),
                    None,
                );
            }
            self.out.mark_answered(greeting_end);
            self.open = true;
        }
        (login, id)
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
