//! One connection of the client to one node: a socket, and the conversation over it.

use std::io::{self, ErrorKind};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::routing::{Conversation, NoReply, Unmatched};

/// A node whose machine is gone without a word is noticed also while nothing is asked of it.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);
/// Read at once.
const READ_BYTES: usize = 64 << 10;
/// Capacity that an empty buffer keeps.
const KEPT_BYTES: usize = 2 * READ_BYTES;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("{0}")]
    Reply(#[from] NoReply),
    #[error("{0}")]
    Unmatched(#[from] Unmatched),
    #[error("no answer within {0} ms")]
    Late(u64),
    #[error("it does not let us in: {0}")]
    Refused(String),
    #[error("it does not know our user")]
    Denied,
}

#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    /// Callers are known by the numbers of their calls.
    pub(super) said: Conversation<u64>,
    /// What has come and is not taken yet.
    pub(super) input: Vec<u8>,
}

/// Connects. A name may have several addresses; each is tried.
pub(super) async fn open(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // A port of the range that outgoing connections take may be given to this very one.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
    Ok(stream)
}

impl Link {
    pub(super) fn new(stream: TcpStream, said: Conversation<u64>) -> Self {
        Self {
            stream,
            said,
            input: Vec::new(),
        }
    }

    /// Sends what may leave and the socket takes; the task is woken when it takes more.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while !self.said.unsent().is_empty() {
            match self.stream.poll_write_ready(context)? {
                Poll::Pending => return Ok(()),
                Poll::Ready(()) => match self.stream.try_write(self.said.unsent()) {
                    Ok(sent) => self.said.mark_sent(sent),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Reads once: whether anything came. The task is woken when more does.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        loop {
            if self.stream.poll_read_ready(context)?.is_pending() {
                return Ok(false);
            }
            self.input.reserve(READ_BYTES);
            match self.stream.try_read_buf(&mut self.input) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The first `bytes` of what has come are done with.
    pub(super) fn taken(&mut self, bytes: usize) {
        self.input.drain(..bytes);
        if self.input.is_empty() {
            self.input.shrink_to(KEPT_BYTES);
        }
    }
}
