//! One client's connection: what it has sent and not been served yet, and its answers in order.

use std::io;
use std::time::Duration;

use clockwise_client::memcached;
use clockwise_client::resp::{Protocol, RequestScanner};
use clockwise_client::routing::Millis;
use clockwise_cluster::Protocol as PoolProtocol;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustix::buffer::spare_capacity;
use socket2::{SockRef, TcpKeepalive};

use super::limits::{
    BUFFER_KEPT_BYTES, CLIENT_READ_BYTES, LINGER_BYTES_MAX, LINGER_MS_MAX, Limits,
};
use super::own_link::OwnLink;
use super::reply_queue::ReplyQueue;
use super::transaction::Transaction;

/// As servers have it: a client whose machine is gone does not keep its place for ever.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(Duration::from_secs(300));

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It must give the password first.
    LoggingIn,
    /// Requests are served.
    Serving,
    /// No further request is read; what is under way is answered, then it closes.
    Leaving,
    /// Everything is answered; what it still sends is dropped until it closes, so that the system
    /// does not throw the last answer away.
    Lingering { until: Millis, dropped: usize },
}

/// Why nothing more of what a client sent is looked at for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Too much of it is unanswered or unread.
    Window,
    /// The next request changes how answers are written; those before it come first.
    Barrier,
    /// No node has said yet which commands there are.
    Table,
    /// The request at the front is under way over the client's own connection.
    Own,
}

/// Finds requests in what a client sends.
#[derive(Debug)]
pub(super) enum Scanner {
    Resp(RequestScanner),
    Memcached(memcached::RequestScanner),
}

impl Default for Scanner {
    fn default() -> Self {
        Self::Resp(RequestScanner::default())
    }
}

impl Scanner {
    /// For clients of a pool that speaks this.
    pub(super) fn of(protocol: PoolProtocol) -> Self {
        match protocol {
            PoolProtocol::Memcached => Self::Memcached(memcached::RequestScanner::default()),
            _ => Self::default(),
        }
    }

    fn in_request(&self) -> bool {
        match self {
            Self::Resp(scanner) => scanner.in_request(),
            Self::Memcached(scanner) => scanner.in_request(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) serial: u32,
    stream: TcpStream,
    pub(super) phase: Phase,
    pub(super) protocol: Protocol,
    pub(super) name: Box<[u8]>,
    pub(super) scanner: Scanner,
    /// Bytes not served yet: the beginning of a request, or whole ones while it pauses.
    pub(super) input: Vec<u8>,
    pub(super) replies: ReplyQueue,
    pub(super) pause: Option<Pause>,
    /// Its own connection to a node.
    pub(super) own: Option<Box<OwnLink>>,
    /// The transaction it is in.
    pub(super) transaction: Option<Box<Transaction>>,
    /// Until when commands are refused as parts of a refused transaction.
    pub(super) refused_multi: Option<Millis>,
    /// Bytes of its requests that nodes have not answered.
    pub(super) in_flight_bytes: usize,
    /// Bytes kept for it when its worker last counted.
    pub(super) counted_bytes: usize,
    /// Those of them that it could read.
    pub(super) counted_unread: usize,
    /// The socket may have more to read.
    pub(super) readable: bool,
    /// The other side sends nothing after what is still to be read.
    pub(super) peer_done: bool,
    /// All of that has been read.
    pub(super) at_end: bool,
    writable: bool,
    /// It is in its worker's list of clients with something to write.
    pub(super) listed: bool,
    /// It is in its worker's list of clients to look at again.
    pub(super) queued: bool,
    pub(super) connected_at: Millis,
    pub(super) active_at: Millis,
    /// Since when the request at the front of the input is not whole.
    pub(super) incomplete_since: Option<Millis>,
    /// Since when it has not taken a byte of what there is for it.
    pub(super) unread_since: Option<Millis>,
}

impl Client {
    pub(super) fn new(
        mut stream: TcpStream,
        serial: u32,
        scanner: Scanner,
        login: bool,
        now: Millis,
        (registry, token): (&Registry, Token),
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self {
            serial,
            stream,
            phase: if login {
                Phase::LoggingIn
            } else {
                Phase::Serving
            },
            protocol: Protocol::Resp2,
            name: Box::default(),
            scanner,
            input: Vec::new(),
            replies: ReplyQueue::new(),
            pause: None,
            own: None,
            transaction: None,
            refused_multi: None,
            in_flight_bytes: 0,
            counted_bytes: 0,
            counted_unread: 0,
            readable: true,
            peer_done: false,
            at_end: false,
            writable: true,
            listed: false,
            queued: false,
            connected_at: now,
            active_at: now,
            incomplete_since: None,
            unread_since: None,
        })
    }

    pub(super) fn close(mut self, registry: &Registry) {
        // The socket closes with its value; a registry that has lost it already does not matter.
        if let Err(error) = registry.deregister(&mut self.stream) {
            tracing::debug!(%error, "a client was not registered");
        }
        if let Some(link) = self.own.take().and_then(|own| own.into_link()) {
            link.close(registry);
        }
    }

    pub(super) fn addr(&self) -> String {
        self.stream
            .peer_addr()
            .map_or_else(|_| "?".to_owned(), |addr| addr.to_string())
    }

    pub(super) fn local_port(&self) -> u16 {
        self.stream.local_addr().map_or(0, |addr| addr.port())
    }

    /// As `CLIENT INFO` shows a connection.
    pub(super) fn line(&self, id: i64, now: Millis) -> String {
        format!(
            "id={id} addr={} laddr={} name={} age={} idle={} flags={} db=0 multi={} resp={} user=default\n",
            self.addr(),
            self.stream
                .local_addr()
                .map_or_else(|_| "?".to_owned(), |addr| addr.to_string()),
            String::from_utf8_lossy(&self.name),
            now.since(self.connected_at) / 1_000,
            now.since(self.active_at) / 1_000,
            if self.transaction.is_some() { "x" } else { "N" },
            self.transaction
                .as_ref()
                .map_or(-1, |transaction| i64::from(transaction.commands())),
            if self.protocol == Protocol::Resp3 {
                3
            } else {
                2
            },
        )
    }

    /// Whether the next request may be looked at.
    pub(super) fn may_go_on(&self, limits: &Limits) -> bool {
        let kept = self.replies.kept_bytes();
        let room = limits.output_bytes_soft.saturating_sub(kept);
        let window = self.replies.window(room).min(limits.in_flight_max);
        matches!(self.phase, Phase::LoggingIn | Phase::Serving)
            && kept < limits.output_bytes_soft
            && self.replies.waiting() < window
            && self.in_flight_bytes < limits.in_flight_bytes_max
    }

    /// Whether a client that paused has room again for more than a request or two.
    pub(super) fn has_room(&self, limits: &Limits) -> bool {
        let room = limits
            .output_bytes_soft
            .saturating_sub(self.replies.kept_bytes());
        let window = self.replies.window(room).min(limits.in_flight_max);
        self.replies.waiting() <= window / 2 && self.may_go_on(limits)
    }

    /// Reads what has arrived, into `scratch` or behind the input that is there. Gives the number of
    /// bytes; zero when nothing is there now.
    pub(super) fn read(&mut self, scratch: &mut Vec<u8>) -> io::Result<usize> {
        let buffer = if self.input.is_empty() {
            scratch.clear();
            scratch
        } else {
            let more = self
                .input
                .len()
                .clamp(CLIENT_READ_BYTES, 16 * CLIENT_READ_BYTES);
            self.input.reserve(more);
            &mut self.input
        };
        let before = buffer.len();
        loop {
            match rustix::io::read(&self.stream, spare_capacity(buffer)) {
                Ok(0) => {
                    (self.readable, self.at_end) = (false, true);
                    return Ok(0);
                }
                Ok(read) => {
                    // A short read has emptied the socket; what comes later makes a new event,
                    // except the end, which may have been announced together with these bytes.
                    self.readable = self.peer_done || buffer.len() == buffer.capacity();
                    debug_assert_eq!(buffer.len(), before + read);
                    return Ok(read);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    self.readable = false;
                    return Ok(0);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Drops the input that has been served.
    pub(super) fn consume(&mut self, bytes: usize) {
        if bytes == self.input.len() {
            self.input.clear();
            self.input.shrink_to(BUFFER_KEPT_BYTES);
        } else {
            self.input.drain(..bytes);
        }
    }

    pub(super) fn now_writable(&mut self) {
        self.writable = true;
    }

    /// Writes what the socket takes.
    pub(super) fn flush(&mut self, now: Millis) -> io::Result<()> {
        while self.writable && !self.replies.unwritten().is_empty() {
            match rustix::io::write(&self.stream, self.replies.unwritten()) {
                Ok(written) => {
                    self.replies.mark_written(written);
                    self.unread_since = None;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => self.writable = false,
                Err(error) => return Err(error.into()),
            }
        }
        if self.replies.unwritten().is_empty() {
            self.replies.shrink_outsized();
        } else {
            self.unread_since.get_or_insert(now);
        }
        Ok(())
    }

    /// Whether everything it is owed has been written.
    pub(super) fn is_settled(&self) -> bool {
        self.replies.waiting() == 0 && self.replies.unwritten().is_empty()
    }

    /// Ends our half of the connection; what the client still sends is dropped for a while.
    pub(super) fn linger(&mut self, now: Millis) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)?;
        self.phase = Phase::Lingering {
            until: now.after(LINGER_MS_MAX),
            dropped: 0,
        };
        self.input = Vec::new();
        Ok(())
    }

    /// Reads and drops what a client that is being let go still sends. Says whether to go on.
    pub(super) fn drop_input(&mut self, scratch: &mut Vec<u8>, now: Millis) -> bool {
        let Phase::Lingering { until, mut dropped } = self.phase else {
            return true;
        };
        while now < until && dropped < LINGER_BYTES_MAX {
            match self.read(scratch) {
                Ok(0) => {
                    self.phase = Phase::Lingering { until, dropped };
                    return !self.at_end;
                }
                Ok(read) => dropped += read,
                Err(_) => return false,
            }
        }
        false
    }

    /// After serving: is the request at the front still the same incomplete one?
    pub(super) fn note_progress(&mut self, served: bool, now: Millis) {
        if self.pause.is_some() || self.input.is_empty() && !self.scanner.in_request() {
            self.incomplete_since = None;
        } else if served || self.incomplete_since.is_none() {
            self.incomplete_since = Some(now);
        }
    }

    /// Whether it takes longer than it may, and with what.
    pub(super) fn overdue(&self, limits: &Limits, now: Millis) -> Option<&'static str> {
        let late = |since: Option<Millis>, ms_max: u64| {
            since.is_some_and(|since| now.since(since) >= ms_max)
        };
        if matches!(self.phase, Phase::Lingering { .. }) {
            return None;
        }
        if late(self.incomplete_since, limits.request_ms_max) {
            Some("the request was not complete in time")
        } else if late(self.unread_since, limits.unread_ms_max) {
            Some("answers were not read in time")
        } else if self.phase == Phase::LoggingIn
            && late(Some(self.connected_at), limits.login_ms_max)
        {
            Some("the password was not given in time")
        } else if limits.idle_ms_max > 0
            && self.is_settled()
            && self.pause != Some(Pause::Own)
            && late(Some(self.active_at), limits.idle_ms_max)
        {
            Some("the connection was idle for too long")
        } else {
            None
        }
    }

    /// Whether nobody waits any longer for the other side to close.
    pub(super) fn has_lingered(&self, now: Millis) -> bool {
        matches!(self.phase, Phase::Lingering { until, .. } if until <= now)
    }

    /// Gives memory back that an idle client does not need.
    pub(super) fn shrink(&mut self) {
        self.replies.shrink(0);
        if self.input.is_empty() {
            self.input = Vec::new();
        }
    }
}
