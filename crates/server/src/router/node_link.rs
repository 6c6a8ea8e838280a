//! One pipelined connection to one node: its socket, and what is read from it.
//!
//! All clients of a worker share it. What is said over it, whose answer comes next and what became of
//! each request is the [`Conversation`]'s, which the client library has too.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clockwise_client::resp::Protocol;
use clockwise_client::routing::{
    self, Conversation, Front, Greeting, Login, Millis, NoReply, NodeSlot, Outgoing, Unmatched,
};
use clockwise_cluster::Protocol as PoolProtocol;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustix::buffer::spare_capacity;
use socket2::{SockRef, TcpKeepalive};

use super::dispatch::Sending;
use super::gather::PartNumber;
use super::limits::{BUFFER_KEPT_BYTES, Limits, NODE_READ_BYTES};
use super::refusal;
use super::reply_queue::Sequence;

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
pub(super) type InFlight = routing::InFlight<Origin>;
/// A request that was on a connection when it ended.
pub(super) type Lost = routing::Lost<Origin>;
/// What a reply is to the requests that wait for one.
pub(super) type Answered = routing::Answered<Origin>;

/// Bytes have arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// There may be more, or the end: as many came as there was room for, or the end was announced.
    pub(super) more: bool,
}

#[derive(Debug)]
pub(super) struct NodeLink {
    pub(super) slot: NodeSlot,
    pub(super) protocol: Protocol,
    /// Tells it from the next connection in its place.
    pub(super) id: u64,
    stream: TcpStream,
    /// The socket is not there yet.
    connecting: bool,
    said: Conversation<Origin>,
    /// What is spoken over it.
    spoken: PoolProtocol,
    reply_bytes_max: usize,
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
        let spoken = match greeting {
            Greeting::Hello(..) => PoolProtocol::Redis,
            Greeting::Version => PoolProtocol::Memcached,
        };
        Ok(Self {
            slot,
            protocol,
            id,
            stream,
            connecting: true,
            said: Conversation::new(greeting, limits.conversation()),
            spoken,
            reply_bytes_max: limits.reply_bytes_max,
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
        let request = Outgoing {
            origin: sending.origin,
            effect: sending.effect,
            retries: sending.retries,
            preamble: sending.preamble,
        };
        self.said.push(request, now, write);
    }

    pub(super) fn unanswered_bytes(&self) -> usize {
        self.said.unanswered_bytes()
    }

    /// Whether it owes an answer.
    pub(super) fn owes(&self) -> bool {
        self.said.owes()
    }

    /// How long the answer at the front may take, if it has taken longer. Nobody is late whom we do not
    /// listen to.
    pub(super) fn is_late(&self, limits: &Limits, now: Millis) -> Option<u64> {
        let late = self.said.is_late(&limits.conversation(), now);
        late.filter(|_| !self.choked)
    }

    /// It was choked and is read from again.
    pub(super) fn unchoke(&mut self, now: Millis) {
        self.choked = false;
        self.said.heard(now);
    }

    /// A later epoch is in force.
    pub(super) fn outdate(&mut self) {
        self.said.outdate();
    }

    /// The socket can be written to.
    pub(super) fn now_writable(&mut self) -> io::Result<()> {
        self.writable = true;
        if self.connecting {
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
            self.connecting = false;
        }
        self.flush()
    }

    /// Whether there is something that may leave now.
    pub(super) fn has_more_to_send(&self) -> bool {
        self.writable && self.is_open() && !self.said.unsent().is_empty()
    }

    /// Sends what may leave and the socket takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.writable && !self.connecting && !self.said.unsent().is_empty() {
            match rustix::io::write(&self.stream, self.said.unsent()) {
                Ok(sent) => self.said.mark_sent(sent),
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
                    self.said.heard(now);
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
        self.said.front(bytes)
    }

    /// The same as [`answered`](Self::answered) for a reply over the limit, of so many bytes.
    pub(super) fn answered_too_long(&mut self, whole: u64) -> Result<Answered, Unmatched> {
        let mut answered = self.said.answered_too_long(whole)?;
        if let Answered::Whole { request, words, .. } = &mut answered {
            let text = refusal::answer_too_long(request.effect, whole, self.reply_bytes_max);
            *words = Some(refusal::line(self.spoken, &text));
        }
        Ok(answered)
    }

    /// Takes the request that a reply answers, the oldest, and its size. An error if none is awaited,
    /// or it has not left yet.
    pub(super) fn answered(&mut self, reply: &[u8]) -> Result<Answered, Unmatched> {
        self.said.answered(reply)
    }

    /// Bytes kept of a reply that is not whole yet.
    pub(super) fn input_bytes(&self) -> usize {
        self.input.len()
    }

    /// Whether it is logged in.
    pub(super) fn is_open(&self) -> bool {
        self.said.is_open()
    }

    /// What the answer to the greeting means.
    pub(super) fn log_in(&mut self, reply: &[u8]) -> Login {
        let (login, server_id) = self.said.log_in(reply);
        self.server_id = server_id;
        login
    }

    /// What was in flight, in order, with whether it was sent and under the present epoch.
    pub(super) fn lost(&self) -> impl Iterator<Item = Lost> + '_ {
        self.said.lost()
    }

    /// The bytes of the request at `index` of [`lost`](Self::lost).
    pub(super) fn frame(&self, index: usize) -> &[u8] {
        self.said.frame(index)
    }
}
