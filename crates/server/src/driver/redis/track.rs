//! The stream of dirty keys: broadcast tracking on a connection of its own.
//!
//! `CLIENT TRACKING ON BCAST` makes the server tell the name of every key that is touched, whoever
//! touches it and however, expiry included; a flush comes as a null. What it does not tell: changes
//! of a stream's consumer groups, and the swap of two databases.
//!
//! Nothing reads the socket between calls. What is not taken waits in the server's memory, where
//! [`DirtyStream::backlog_bytes`] sees it, and not unbounded in ours. The connection is never marked
//! `NO-EVICT`: a server short of memory would close everybody else's instead.
//!
//! The barrier is two round trips, one after the other. Invalidations leave the server at the end of
//! its event loop's turn and replies at once, so the first PONG may overtake them; the second PING
//! arrives in a later turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use clockwise_client::resp::{ReplyScanner, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::acl;
use super::frame::{Frame, Pipeline};
use super::greeting;
use super::link::{Link, Patience, Peer, READ_BYTES, REPLY_BYTES_MAX};
use super::server::Server;
use crate::driver::{Dirty, DirtyStream, DriverError, NodeAddress, Tracker};

/// Bytes taken from the socket at once, however many are there.
const UNREAD_BYTES_MAX: usize = 1 << 20;

/// Starts tracking and returns when the server has confirmed it.
pub(super) async fn start(
    node: &NodeAddress,
    server: &Server,
    patience: Patience,
) -> Result<Tracker, DriverError> {
    let (stream, peer, greeting) =
        greeting::connect(&node.id, &node.address, &server.login, patience).await?;
    let mut tracking = Tracking {
        stream,
        peer,
        client_id: greeting.client_id,
        patience: patience.call,
        link: Arc::clone(&server.link),
        input: BytesMut::with_capacity(READ_BYTES),
        scanner: ReplyScanner::new(REPLY_BYTES_MAX),
        arrived: VecDeque::new(),
        lost: false,
    };
    tracking
        .command(
            "CLIENT TRACKING",
            &[b"CLIENT", b"TRACKING", b"ON", b"BCAST"],
        )
        .await?;
    Ok(Box::new(tracking))
}

struct Tracking {
    stream: TcpStream,
    peer: Peer,
    client_id: i64,
    patience: Duration,
    /// For questions about this connection that must not wait behind its own messages.
    link: Arc<Link>,
    input: BytesMut,
    scanner: ReplyScanner,
    arrived: VecDeque<Dirty>,
    /// The connection broke; said once everything that had arrived was taken.
    lost: bool,
}

impl Tracking {
    /// Takes the next whole reply out of the buffer. Pushes go to `arrived`.
    fn take_replies(&mut self) -> Result<Option<Frame>, String> {
        while let Some(reply) = self
            .scanner
            .scan(&self.input)
            .map_err(|error| error.to_string())?
        {
            let frame = Frame::new(reply, self.input.split_to(reply.bytes).freeze());
            if !frame.is_push() {
                return Ok(Some(frame));
            }
            self.arrived.extend(read_push(&frame.value()));
        }
        Ok(None)
    }

    /// Sends a command and waits for its reply; what the server tells meanwhile is kept.
    async fn command(&mut self, name: &'static str, args: &[&[u8]]) -> Result<(), DriverError> {
        let patience = self.patience;
        let answer = match timeout(patience, self.exchange(args)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer to {name} within {patience:?}")),
        };
        let frame = answer.map_err(|why| {
            self.lost = true;
            self.peer.unreachable(why)
        })?;
        match frame.error() {
            None => Ok(()),
            Some(why) => Err(self.peer.refused(name, why)),
        }
    }

    async fn exchange(&mut self, args: &[&[u8]]) -> Result<Frame, String> {
        if self.lost {
            return Err("the stream of dirty keys has ended".to_owned());
        }
        let request = Pipeline::of(args).bytes;
        self.stream
            .write_all(&request)
            .await
            .map_err(|error| error.to_string())?;
        loop {
            if let Some(frame) = self.take_replies()? {
                return Ok(frame);
            }
            self.receive().await?;
        }
    }

    /// Waits for bytes. Dropping the future loses none.
    async fn receive(&mut self) -> Result<(), String> {
        self.input.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) => Err("the server closed the connection".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Takes what bytes are there, up to some.
    fn receive_now(&mut self) -> Result<(), String> {
        let enough = self.input.len() + UNREAD_BYTES_MAX;
        while self.input.len() < enough {
            self.input.reserve(READ_BYTES);
            match self.stream.try_read_buf(&mut self.input) {
                Ok(0) => return Err("the server closed the connection".to_owned()),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn take_unasked(&mut self) -> Result<(), String> {
        match self.take_replies()? {
            None => Ok(()),
            Some(frame) => Err(format!(
                "the server sent {:?}, which nobody asked for",
                frame.value()
            )),
        }
    }

    fn pop(&mut self) -> Option<Dirty> {
        self.arrived
            .pop_front()
            .or_else(|| self.lost.then_some(Dirty::Lost))
    }
}

#[async_trait]
impl DirtyStream for Tracking {
    async fn next(&mut self) -> Dirty {
        loop {
            if let Some(dirty) = self.pop() {
                return dirty;
            }
            if self
                .receive()
                .await
                .and_then(|()| self.take_unasked())
                .is_err()
            {
                self.lost = true;
            }
        }
    }

    fn try_next(&mut self) -> Option<Dirty> {
        if self.arrived.is_empty() && !self.lost {
            let received = self.receive_now();
            // What came before the connection's end is still told.
            self.lost = self.take_unasked().and(received).is_err();
        }
        self.pop()
    }

    async fn barrier(&mut self) -> Result<(), DriverError> {
        self.command("PING", &[b"PING"]).await?;
        self.command("PING", &[b"PING"]).await
    }

    async fn backlog_bytes(&mut self) -> Result<u64, DriverError> {
        let id = self.client_id.to_string();
        let frame = self
            .link
            .ask("CLIENT LIST", &[b"CLIENT", b"LIST", b"ID", id.as_bytes()])
            .await?;
        let value = frame.value();
        let line = String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned();
        let omem = line
            .split(' ')
            .find_map(|field| field.strip_prefix("omem=")?.parse().ok());
        // Without a line the server has dropped this connection.
        omem.ok_or_else(|| {
            self.peer
                .unreachable("the server has closed the stream of dirty keys")
        })
    }
}

/// Reads `invalidate` with keys, or with null for all of them. Keys of ours concern nobody.
fn read_push(push: &Value) -> Option<Dirty> {
    let [name, what] = push.as_array()? else {
        return None;
    };
    if name.as_text() != Some("invalidate") {
        return None;
    }
    let Some(keys) = what.as_array() else {
        return Some(Dirty::Everything);
    };
    let keys = keys
        .iter()
        .filter_map(Value::as_bytes)
        .filter(|key| !acl::is_reserved(key));
    let keys: Vec<_> = keys.map(Bytes::copy_from_slice).collect();
    (!keys.is_empty()).then_some(Dirty::Keys(keys))
}
