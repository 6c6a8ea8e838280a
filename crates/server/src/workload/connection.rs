//! A connection that knows exactly which bytes left and which replies came.

use std::io::{self, ErrorKind};
use std::time::Duration;

use clockwise_client::credentials::Password;
use clockwise_client::resp::{Value, write_command};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

const READ_BYTES: usize = 16 * 1024;

/// Where to connect, and as whom.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) addr: String,
    pub(super) auth: Option<(String, Password)>,
    /// For connecting, and for each answer.
    pub(super) timeout: Duration,
}

/// What ended a connection, or did not let it begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// The system's words.
    #[error("{0}")]
    Io(String),
    /// Nothing came in time.
    #[error("no answer in time")]
    Timeout,
    /// The server closed the connection.
    #[error("closed by the server")]
    Closed,
    /// What came is no reply, or not one to this request.
    #[error("the answer is not one to the request: {0}")]
    Protocol(String),
    /// The server does not let the user in.
    #[error("refused: {0}")]
    Denied(String),
}

impl Broken {
    /// The word under which it is counted.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Broken::Io(_) => "connection",
            Broken::Timeout => "timeout",
            Broken::Closed => "closed",
            Broken::Protocol(_) => "protocol",
            Broken::Denied(_) => "denied",
        }
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Broken::Closed,
            _ => Broken::Io(error.to_string()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    /// Bytes of `out` that left.
    out_sent: usize,
    /// Bytes that left before those in `out`.
    sent_before: u64,
    input: Vec<u8>,
    /// Bytes of `input` that were parsed.
    input_taken: usize,
    timeout: Duration,
}

impl Connection {
    /// Connects and logs in.
    pub(super) async fn open(target: &Target) -> Result<Connection, Broken> {
        let connecting = TcpStream::connect(&target.addr);
        let stream = timeout(target.timeout, connecting)
            .await
            .map_err(|_late| Broken::Timeout)??;
        stream.set_nodelay(true)?;
        let mut connection = Connection {
            stream,
            out: Vec::new(),
            out_sent: 0,
            sent_before: 0,
            input: Vec::new(),
            input_taken: 0,
            timeout: target.timeout,
        };
        if let Some((user, password)) = &target.auth {
            let auth = ["AUTH", user, password.reveal()];
            if let Value::Error(why) = connection.call(&auth).await? {
                return Err(Broken::Denied(why));
            }
        }
        Ok(connection)
    }

    /// Sends one command and waits for its reply.
    pub(super) async fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, Broken> {
        self.queue(|out| write_command(out, args));
        let mut replies = self.replies(1).await?;
        replies.pop().ok_or(Broken::Closed)
    }

    /// Sends what is queued and waits for so many replies.
    pub(super) async fn replies(&mut self, count: usize) -> Result<Vec<Value>, Broken> {
        let limit = self.timeout;
        let exchange = async {
            let mut replies = Vec::with_capacity(count);
            while replies.len() < count {
                self.flush()?;
                match self.next_reply()? {
                    Some(reply) => replies.push(reply),
                    None => {
                        self.ready().await?;
                        self.fill()?;
                    }
                }
            }
            Ok(replies)
        };
        timeout(limit, exchange)
            .await
            .map_err(|_late| Broken::Timeout)?
    }

    /// Appends a request and returns the first and the end of its bytes in the stream.
    pub(super) fn queue(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> (u64, u64) {
        let first = self.queued();
        write(&mut self.out);
        (first, self.queued())
    }

    fn queued(&self) -> u64 {
        self.sent_before + to_u64(self.out.len())
    }

    /// Bytes that left.
    pub(super) fn sent(&self) -> u64 {
        self.sent_before + to_u64(self.out_sent)
    }

    /// Sends as much of what is queued as the system takes now.
    pub(super) fn flush(&mut self) -> Result<(), Broken> {
        while self.out_sent < self.out.len() {
            match self.stream.try_write(&self.out[self.out_sent..]) {
                Ok(count) => self.out_sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.sent_before += to_u64(self.out_sent);
        self.out.clear();
        self.out_sent = 0;
        Ok(())
    }

    /// Takes what has arrived. An end is told only when nothing came before it.
    pub(super) fn fill(&mut self) -> Result<(), Broken> {
        if self.input_taken == self.input.len() {
            self.input.clear();
            self.input_taken = 0;
        }
        let had = self.input.len();
        loop {
            let used = self.input.len();
            self.input.resize(used + READ_BYTES, 0);
            let read = self.stream.try_read(&mut self.input[used..]);
            self.input
                .truncate(used + read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(0) if used > had => return Ok(()),
                Ok(0) => return Err(Broken::Closed),
                Ok(count) if count == READ_BYTES => {}
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next reply that has arrived whole.
    pub(super) fn next_reply(&mut self) -> Result<Option<Value>, Broken> {
        let rest = &self.input[self.input_taken..];
        if rest.is_empty() {
            return Ok(None);
        }
        match Value::parse(rest) {
            Ok(Some((value, bytes))) => {
                self.input_taken += bytes;
                Ok(Some(value))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(Broken::Protocol(error.to_string())),
        }
    }

    /// Waits until bytes have arrived, or can be sent if some are queued.
    pub(super) async fn ready(&self) -> Result<(), Broken> {
        let interest = if self.out.is_empty() {
            Interest::READABLE
        } else {
            Interest::READABLE | Interest::WRITABLE
        };
        self.stream.ready(interest).await?;
        Ok(())
    }
}

fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a length fits into 64 bits")
}
