//! One pipelined connection to one node: what was sent, in order, and whose answer comes next.
//!
//! All clients of a worker share it. Answers are matched by order alone, so the slightest doubt
//! about a reply ends the connection: better a request of unknown outcome than somebody else's answer.
//!
//! *Large answers.* One over the limit is read and dropped, and only who asked for it is told. Time is
//! up for a connection when nothing arrives, not for a request whose turn has not come.
//! Only so many requests leave as a [window](super::window) allows; the others wait here.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clockwise_client::credentials::Password;
use clockwise_client::memcached;
use clockwise_client::resp::{Protocol, ReplyError, ReplyScan, ReplyScanner, Value, write_command};
use clockwise_client::routing::{Effect, Millis, NodeSlot};
use clockwise_cluster::Protocol as PoolProtocol;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustix::buffer::spare_capacity;
use socket2::{SockRef, TcpKeepalive};

use super::dispatch::Sending;
use super::gather::PartNumber;
use super::limits::{BUFFER_KEPT_BYTES, Limits, NODE_READ_BYTES, WINDOW_KEPT_MS};
use super::local::ROUTER_FIELD;
use super::memcached::ROUTER_VERSION;
use super::refusal;
use super::reply_queue::Sequence;
use super::send_buffer::SendBuffer;
use super::window::Window;

/// A node whose machine is gone without a word is noticed also while nothing is asked of it.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);

/// Which client's which request: enough to find its place in line, or to see that the client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The client's place in the worker.
    pub(super) client: usize,
    /// The client's number; places are used again, numbers are not.
    pub(super) serial: u32,
    pub(super) sequence: Sequence,
    /// The part of the request, if it is spread over nodes.
    pub(super) part: Option<PartNumber>,
}

impl Origin {
    /// A request of our own: nobody waits for its answer.
    pub(super) const NOBODY: Self = Self {
        client: usize::MAX,
        serial: 0,
        sequence: Sequence(0),
        part: None,
    };
}

/// A request whose answer is awaited.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) origin: Origin,
    pub(super) effect: Effect,
    pub(super) retries: u8,
    /// Replies before the one that is the answer.
    pub(super) preamble: u32,
    sent_at: Millis,
    /// The offset behind its bytes.
    end: u64,
}

/// A request that was on a connection when it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    pub(super) request: InFlight,
    /// Its last byte was handed to the system.
    pub(super) sent: bool,
    /// It was sent under an earlier epoch.
    pub(super) outdated: bool,
}

/// What is at the front of the bytes that have come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Front<'a> {
    /// Nothing whole.
    Nothing,
    /// So many bytes that answer nothing: what the server says of its own accord, or a piece of a reply
    /// over the limit.
    Passed(usize),
    /// A reply.
    Reply(&'a [u8]),
    /// The last bytes, so many, of a reply over the limit, which had so many in all.
    TooLong { rest: usize, whole: u64 },
}

/// Bytes have arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// There may be more, or the end: as many came as there was room for, or the end was announced.
    pub(super) more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    /// The answer to the greeting is awaited.
    LoggingIn,
    Open,
}

/// What a reply is to the requests that wait for one.
#[derive(Debug)]
pub(super) enum Answered {
    /// Not yet the answer to the one at the front.
    InPart,
    /// The answer to this request of so many bytes; in other words, where the node's say too little.
    Whole {
        request: InFlight,
        bytes: usize,
        words: Option<Vec<u8>>,
    },
}

/// A reply that fits no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unmatched {
    #[error("a reply that nothing asked for")]
    Unasked,
    #[error("a reply that does not fit its request")]
    Unfit,
    #[error("it did not begin a transaction when asked to")]
    NoTransaction,
}

/// How a server's answer to an `EXEC` begins that did nothing.
const ABORTED: &[u8] = b"-EXECABORT";

/// How logging in went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Login {
    Done,
    /// The node does not know our user or its password.
    Denied,
    /// It is no server of ours; its words.
    Refused(String),
}

/// Who we are to the node.
#[derive(Clone, Debug)]
pub(super) struct Credential {
    pub(super) user: String,
    pub(super) password: Password,
}

/// How a connection begins, and so what is spoken over it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Greeting<'a> {
    /// RESP: with `HELLO`, and as this user where there is one.
    Hello(Option<&'a Credential>),
    /// memcached: with the question for its version.
    Version,
}

impl Greeting<'_> {
    fn write(self, protocol: Protocol, out: &mut Vec<u8>) {
        let version = match protocol {
            Protocol::Resp2 => "2",
            Protocol::Resp3 => "3",
        };
        match self {
            Self::Hello(Some(Credential { user, password })) => {
                write_command(out, &["HELLO", version, "AUTH", user, password.reveal()]);
            }
            Self::Hello(None) => write_command(out, &["HELLO", version]),
            Self::Version => out.extend_from_slice(b"version\r\n"),
        }
    }
}

/// Finds replies in what a node sends.
#[derive(Debug)]
enum Replies {
    Resp(Box<ReplyScanner>),
    Memcached(memcached::ReplyScanner),
}

#[derive(Debug)]
pub(super) struct NodeLink {
    pub(super) slot: NodeSlot,
    pub(super) protocol: Protocol,
    /// Tells it from the next connection in its place.
    pub(super) id: u64,
    stream: TcpStream,
    state: State,
    out: SendBuffer,
    in_flight: VecDeque<InFlight>,
    /// Replies to the request at the front that are not its answer yet, so many have come.
    preamble_seen: u32,
    /// The first error among them.
    preamble_error: Option<Box<[u8]>>,
    /// Requests in flight, from the front, that were sent under an earlier epoch.
    outdated: usize,
    replies: Replies,
    reply_bytes_max: usize,
    window: Window,
    /// When bytes last came, or could not because we do not read.
    heard_at: Millis,
    /// Nothing is read from it now.
    pub(super) choked: bool,
    /// By what number the server knows this connection, if it has told.
    pub(super) server_id: Option<i64>,
    /// The beginning of a reply that is not whole yet.
    input: Vec<u8>,
    writable: bool,
    /// The node sends nothing after what is still to be read.
    pub(super) peer_done: bool,
    /// It is in its worker's list of connections with something to send.
    pub(super) listed: bool,
}

impl NodeLink {
    /// Starts to connect.
    pub(super) fn connect(
        address: SocketAddr,
        (slot, protocol, id): (NodeSlot, Protocol, u64),
        greeting: Greeting<'_>,
        limits: &Limits,
        (registry, token): (&Registry, Token),
    ) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let mut out = SendBuffer::default();
        greeting.write(protocol, out.tail());
        let replies = match greeting {
            Greeting::Hello(_) => {
                Replies::Resp(Box::new(ReplyScanner::new(limits.reply_bytes_max)))
            }
            Greeting::Version => {
                Replies::Memcached(memcached::ReplyScanner::new(limits.reply_bytes_max))
            }
        };
        Ok(Self {
            slot,
            protocol,
            id,
            stream,
            state: State::Connecting,
            out,
            in_flight: VecDeque::new(),
            preamble_seen: 0,
            preamble_error: None,
            outdated: 0,
            replies,
            reply_bytes_max: limits.reply_bytes_max,
            window: Window::new(limits.node_answers_bytes_max),
            heard_at: Millis(0),
            choked: false,
            server_id: None,
            input: Vec::new(),
            writable: false,
            peer_done: false,
            listed: false,
        })
    }

    pub(super) fn close(mut self, registry: &Registry) {
        // The socket closes with its value; a registry that has lost it already does not matter.
        if let Err(error) = registry.deregister(&mut self.stream) {
            tracing::debug!(%error, "a node connection was not registered");
        }
    }

    /// Appends a request, written by `write`, to what goes out next.
    pub(super) fn push(
        &mut self,
        sending: &Sending,
        now: Millis,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.in_flight.is_empty() && now.since(self.heard_at) >= WINDOW_KEPT_MS {
            self.window.forget();
        }
        write(self.out.tail());
        self.in_flight.push_back(InFlight {
            origin: sending.origin,
            effect: sending.effect,
            retries: sending.retries,
            preamble: sending.preamble,
            sent_at: now,
            end: self.out.end(),
        });
    }

    pub(super) fn unanswered_bytes(&self) -> usize {
        self.out.unanswered()
    }

    /// Whether it owes an answer.
    pub(super) fn owes(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// How long the answer at the front may take, if it has taken longer: since it was asked for, and
    /// since anything was heard. Nobody is late whom we do not listen to.
    pub(super) fn is_late(&self, limits: &Limits, now: Millis) -> Option<u64> {
        let sent_at = self.in_flight.front()?.sent_at;
        let late = |since: Millis, ms_max: u64| (now.since(since) >= ms_max).then_some(ms_max);
        if self.choked {
            return None;
        }
        late(sent_at.max(self.heard_at), limits.reply_ms_max)
            .or_else(|| late(sent_at, limits.answer_ms_max))
    }

    /// It was choked and is read from again.
    pub(super) fn unchoke(&mut self, now: Millis) {
        (self.choked, self.heard_at) = (false, now);
    }

    /// A later epoch is in force.
    pub(super) fn outdate(&mut self) {
        self.outdated = self.in_flight.len();
    }

    /// The socket can be written to.
    pub(super) fn now_writable(&mut self) -> io::Result<()> {
        self.writable = true;
        if self.state == State::Connecting {
            if let Some(error) = self.stream.take_error()? {
                return Err(error);
            }
            // A writable event may come before the connection is there.
            match self.stream.peer_addr() {
                // A port of the range that outgoing connections take may be given to this very one.
                Ok(peer) if self.stream.local_addr()? == peer => {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(()),
                Err(error) => return Err(error),
            }
            self.stream.set_nodelay(true)?;
            SockRef::from(&self.stream).set_tcp_keepalive(&KEEPALIVE)?;
            self.state = State::LoggingIn;
        }
        self.flush()
    }

    /// Up to which offset bytes may leave.
    fn window_end(&self) -> u64 {
        match self.in_flight.get(self.window.requests() - 1) {
            Some(last) => last.end,
            None => self.out.end(),
        }
    }

    /// Whether there is something that may leave now.
    pub(super) fn has_more_to_send(&self) -> bool {
        self.writable && self.is_open() && !self.out.unsent(self.window_end()).is_empty()
    }

    /// Sends what may leave and the socket takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let to = self.window_end();
        while self.writable && self.state != State::Connecting && !self.out.unsent(to).is_empty() {
            match rustix::io::write(&self.stream, self.out.unsent(to)) {
                Ok(sent) => self.out.mark_sent(sent),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => self.writable = false,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads what has arrived into `scratch`, behind the beginning of an unfinished reply if there
    /// is one. `None` when nothing is there. After the last whole reply has been taken from
    /// `scratch` the rest goes back by [`keep`](Self::keep).
    pub(super) fn receive(
        &mut self,
        scratch: &mut Vec<u8>,
        now: Millis,
    ) -> io::Result<Option<Received>> {
        scratch.clear();
        if !self.input.is_empty() {
            std::mem::swap(scratch, &mut self.input);
            scratch.reserve(NODE_READ_BYTES);
        }
        loop {
            match rustix::io::read(&self.stream, spare_capacity(scratch)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    self.heard_at = now;
                    return Ok(Some(Received {
                        more: self.peer_done || scratch.len() == scratch.capacity(),
                    }));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    self.keep(scratch, 0);
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Keeps the bytes from `from` on: the beginning of a reply.
    pub(super) fn keep(&mut self, scratch: &mut Vec<u8>, from: usize) {
        if from == scratch.len() {
            if self.input.capacity() > BUFFER_KEPT_BYTES {
                self.input = Vec::new();
            }
        } else if from == 0 {
            std::mem::swap(scratch, &mut self.input);
            scratch.clear();
            scratch.reserve(NODE_READ_BYTES);
        } else {
            self.input.extend_from_slice(&scratch[from..]);
        }
    }

    /// What is at the front of `bytes`.
    pub(super) fn front<'a>(&mut self, bytes: &'a [u8]) -> Result<Front<'a>, NoReply> {
        let scanner = match &mut self.replies {
            Replies::Resp(scanner) => scanner,
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

    /// The same as [`answered`](Self::answered) for a reply over the limit, of so many bytes.
    pub(super) fn answered_too_long(&mut self, whole: u64) -> Result<Answered, Unmatched> {
        let mut answered = self.answered(b"")?;
        if let Answered::Whole { request, words, .. } = &mut answered {
            let text = refusal::answer_too_long(request.effect, whole, self.reply_bytes_max);
            *words = Some(refusal::line(self.spoken(), &text));
            let bytes = usize::try_from(whole).unwrap_or(usize::MAX);
            self.window.answered(bytes, 0);
        }
        Ok(answered)
    }

    /// Takes the request that a reply answers, the oldest, and its size. An error if none is awaited,
    /// or it has not left yet.
    pub(super) fn answered(&mut self, reply: &[u8]) -> Result<Answered, Unmatched> {
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
        let memcached = matches!(self.replies, Replies::Memcached(_));
        if memcached && !reply.is_empty() && !memcached::answers(self.frame(0), reply) {
            return Err(Unmatched::Unfit);
        }
        self.window.answered(reply.len(), self.in_flight.len());
        self.in_flight.pop_front();
        let bytes = (request.end - self.out.answered_to()) as usize;
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
            bytes,
            words,
        })
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

    /// Bytes kept of a reply that is not whole yet.
    pub(super) fn input_bytes(&self) -> usize {
        self.input.len()
    }

    /// Whether it is logged in.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// What is spoken over it.
    fn spoken(&self) -> PoolProtocol {
        match self.replies {
            Replies::Resp(_) => PoolProtocol::Redis,
            Replies::Memcached(_) => PoolProtocol::Memcached,
        }
    }

    /// What the answer to the greeting means.
    pub(super) fn log_in(&mut self, reply: &[u8]) -> Login {
        let login = match self.replies {
            Replies::Resp(_) => self.log_in_by_hello(reply),
            Replies::Memcached(_) => by_version(reply),
        };
        if login == Login::Done {
            let greeting_end = self.out.end();
            self.out.mark_answered(greeting_end);
            self.state = State::Open;
        }
        login
    }

    /// What the answer to `HELLO` means. Only a server's facts, with the version asked for, open the
    /// connection; an echo does not.
    fn log_in_by_hello(&mut self, reply: &[u8]) -> Login {
        match Value::parse(reply) {
            Ok(Some((value, _))) if fact(&value, ROUTER_FIELD).is_some() => {
                Login::Refused("it is a router, not a server".to_owned())
            }
            Ok(Some((value, _))) if speaks(&value, self.protocol) => {
                self.server_id = fact(&value, "id").and_then(Value::as_integer);
                Login::Done
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
        }
    }

    /// What was in flight, in order, with whether it was sent and under the present epoch.
    pub(super) fn lost(&self) -> impl Iterator<Item = Lost> + '_ {
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
    pub(super) fn frame(&self, index: usize) -> &[u8] {
        let start = if index == 0 {
            self.out.answered_to()
        } else {
            self.in_flight[index - 1].end
        };
        self.out.between(start, self.in_flight[index].end)
    }
}

/// Why bytes of a node are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoReply {
    #[error("{0}")]
    Resp(#[from] ReplyError),
    #[error("{0}")]
    Memcached(#[from] memcached::ReplyError),
}

/// What the answer to `version` means.
fn by_version(reply: &[u8]) -> Login {
    let text = String::from_utf8_lossy(reply).trim_end().to_owned();
    match text.strip_prefix("VERSION ") {
        Some(version) if version.contains(ROUTER_VERSION) => {
            Login::Refused("it is a router, not a server".to_owned())
        }
        Some(_) => Login::Done,
        None if text.starts_with("CLIENT_ERROR unauthenticated") => Login::Denied,
        None => Login::Refused(text),
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
pub(super) fn fact<'a>(facts: &'a Value, name: &str) -> Option<&'a Value> {
    let mut pairs = facts.pairs().into_iter();
    pairs.find_map(|(key, value)| (key.as_text() == Some(name)).then_some(value))
}
