//! The embedded node's side towards clients: RESP over TCP.
//!
//! One task a connection. Requests that have arrived are executed together, under one hold of the
//! node's lock, and their replies leave in one write. A client that does not read is not read from.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use clockwise_client::resp::{RequestLimits, RequestScanner, Scan, write_error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::model::ConnectionId;
use super::nodes::Node;

/// Connections at a time.
const CONNECTIONS_MAX: usize = 10_000;
/// Free room kept in a read buffer.
const READ_BYTES: usize = 16 << 10;
/// Replies are sent once there are so many bytes of them.
const REPLY_BYTES: usize = 256 << 10;
/// How often keys whose time is over are cleared up.
const CLEAR_UP: Duration = Duration::from_millis(100);
/// After a connection could not be accepted, for want of file descriptors for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections and clears up, for as long as the task runs.
pub(super) async fn serve(node: Arc<Node>, listener: TcpListener) {
    let mut clients = JoinSet::new();
    let mut clear_up = interval(CLEAR_UP);
    clear_up.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) if clients.len() < CONNECTIONS_MAX => {
                    let id = node.with(|model, _| model.connect(&address.to_string()));
                    let client = Client { node: Arc::clone(&node), id };
                    clients.spawn(client.serve(stream));
                }
                Ok((stream, _)) => refuse(&stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = clear_up.tick() => while node.with(|model, now_ms| model.expire_due(now_ms)) {},
            Some(_) = clients.join_next() => {}
        }
    }
}

fn refuse(stream: &TcpStream) {
    // A new connection has room for a line; if not, the client learns from the end alone.
    let _sent = stream.try_write(b"-ERR max number of clients reached\r\n");
}

/// A client's connection, which the node forgets with it.
struct Client {
    node: Arc<Node>,
    id: ConnectionId,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.node.with(|model, _| model.disconnect(self.id));
    }
}

/// How a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// There may be more requests in the buffer.
    Again,
    /// More bytes are needed.
    Read,
    /// It is over.
    End,
}

impl Client {
    async fn serve(self, mut stream: TcpStream) {
        let mut users_changed = self.node.users_changed();
        // Whatever breaks the connection, the client sees it end; there is nobody else to tell.
        let _broken = self.exchange(&mut stream, &mut users_changed).await;
    }

    async fn exchange(
        &self,
        stream: &mut TcpStream,
        users: &mut watch::Receiver<u64>,
    ) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut scanner = RequestScanner::default();
        let mut input = BytesMut::with_capacity(READ_BYTES);
        let mut out = Vec::new();
        loop {
            let next = self.execute(&mut scanner, &mut input, &mut out);
            stream.write_all(&out).await?;
            out.clear();
            out.shrink_to(REPLY_BYTES);
            match next {
                Next::Again => continue,
                Next::Read => {}
                Next::End => return Ok(()),
            }
            input.reserve(READ_BYTES);
            tokio::select! {
                read = stream.read_buf(&mut input) => if read? == 0 {
                    return Ok(());
                },
                _ = users.changed() => {}
            }
        }
    }

    /// Executes requests that have arrived.
    fn execute(
        &self,
        scanner: &mut RequestScanner,
        input: &mut BytesMut,
        out: &mut Vec<u8>,
    ) -> Next {
        self.node.with(|model, now_ms| {
            while out.len() < REPLY_BYTES {
                if !model.is_connected(self.id) {
                    return Next::End;
                }
                let everyday = RequestLimits::default();
                let limits = if model.is_admitted(self.id) {
                    &everyday
                } else {
                    &RequestLimits::UNAUTHENTICATED
                };
                let consumed = match scanner.scan(limits, input) {
                    Ok(Scan::More) => return Next::Read,
                    Ok(Scan::Skip(bytes)) => bytes,
                    Ok(Scan::Request { consumed, request }) => {
                        let args: Vec<&[u8]> = request.args().collect();
                        if !model.execute(self.id, &args, now_ms, out) {
                            return Next::End;
                        }
                        consumed
                    }
                    Ok(Scan::Refused { consumed, refusal }) => {
                        write_error(out, &format!("ERR {refusal}"));
                        consumed
                    }
                    Err(error) => {
                        write_error(out, &format!("ERR {error}"));
                        return Next::End;
                    }
                };
                input.advance(consumed);
            }
            Next::Again
        })
    }
}
