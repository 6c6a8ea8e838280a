//! One connection to one server: pipelined, in order, never mended.
//!
//! A connection of our own rather than a client library, for three reasons. A library that retries or
//! reconnects by itself breaks the rule that every broken connection starts the handoff's step again.
//! Replies are taken as slices of the read buffer, which makes copying bound by the servers and not
//! by us. And what is in flight is bounded here, for both directions.
//!
//! A task owns the socket. It writes requests in the order in which they were made, reads at the
//! same time (a pipeline larger than the sockets' buffers would otherwise stall both sides), and
//! hands each request its replies. When anything goes wrong the connection ends and stays ended.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use clockwise_client::resp::{ReplyScanner, code_word};
use clockwise_placement::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::frame::{Frame, Pipeline};
use super::greeting::{Greeting, connect};
use crate::driver::DriverError;

/// The longest single reply taken. What we ask for is kept far below; a broadcast of invalidated
/// keys can be long.
pub(super) const REPLY_BYTES_MAX: usize = 1 << 30;
/// Requests waiting for the task that owns the socket. Callers beyond wait.
const REQUESTS_MAX: usize = 16;
/// Bytes not yet taken by the socket above which no further request is accepted.
const UNSENT_BYTES_MAX: usize = 4 << 20;
/// Free room kept in the read buffer.
pub(super) const READ_BYTES: usize = 64 << 10;

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Until a connection is made and logged in.
    pub connect: Duration,
    /// Until all replies of one pipeline are there.
    pub call: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        // A call waits for a server that forks or rewrites its log, not for one that is gone.
        Self {
            connect: Duration::from_secs(2),
            call: Duration::from_secs(5),
        }
    }
}

/// A user and its password. The password is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Name of the user; the server's own is `default`.
    pub user: String,
    /// Its password; `None` where the server asks for none.
    pub password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Whom a connection speaks to, for errors.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) node: NodeId,
    pub(super) address: String,
    pub(super) user: String,
}

impl Peer {
    pub(super) fn unreachable(&self, why: impl fmt::Display) -> DriverError {
        DriverError::Unreachable {
            node: self.node.clone(),
            address: self.address.clone(),
            why: why.to_string(),
        }
    }

    pub(super) fn wrong_server(&self, why: impl fmt::Display) -> DriverError {
        DriverError::WrongServer {
            node: self.node.clone(),
            address: self.address.clone(),
            why: why.to_string(),
        }
    }

    pub(super) fn refused(&self, command: &'static str, why: impl fmt::Display) -> DriverError {
        DriverError::Refused {
            node: self.node.clone(),
            command,
            why: why.to_string(),
        }
    }

    pub(super) fn denied(&self, why: &str) -> DriverError {
        DriverError::Denied {
            node: self.node.clone(),
            user: self.user.clone(),
            why: why.to_string(),
        }
    }

    /// What an error reply means for the caller.
    pub(super) fn answered(&self, command: &'static str, why: &str) -> DriverError {
        match code_word(why) {
            "BUSY" => DriverError::Busy {
                node: self.node.clone(),
            },
            "NOPERM" | "NOAUTH" | "WRONGPASS" => self.denied(why),
            "LOADING" | "MASTERDOWN" => self.unreachable(why),
            _ => self.refused(command, why),
        }
    }
}

struct Request {
    bytes: Bytes,
    replies: usize,
    answer: oneshot::Sender<Vec<Frame>>,
}

/// What not every server of the versions that we take can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    /// `WAITAOF`.
    pub(super) waits_for_log: bool,
    /// Fields of hashes may have expiries of their own.
    pub(super) field_expiry: bool,
}

/// A logged-in connection. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Link {
    peer: Peer,
    greeting: Greeting,
    abilities: Abilities,
    // Whether the keys looked at last were all strings.
    texts: AtomicBool,
    // Whether the server had keys with an expiry when it was last asked.
    expiries: AtomicBool,
    call_patience: Duration,
    requests: mpsc::Sender<Request>,
    /// Why the connection ended, once it has.
    ended: Arc<OnceLock<String>>,
    task: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    /// Connects and logs in.
    pub(super) async fn open(
        node: &NodeId,
        address: &str,
        login: &Login,
        patience: Patience,
    ) -> Result<Self, DriverError> {
        let (stream, peer, greeting) = connect(node, address, login, patience).await?;
        let (requests, received) = mpsc::channel(REQUESTS_MAX);
        let ended = Arc::new(OnceLock::new());
        let task = tokio::spawn(serve(stream, received, Arc::clone(&ended)));
        Ok(Self {
            peer,
            greeting,
            abilities: Abilities::default(),
            texts: AtomicBool::new(false),
            expiries: AtomicBool::new(false),
            call_patience: patience.call,
            requests,
            ended,
            task,
        })
    }

    /// Notes what the server can do.
    pub(super) fn with_abilities(mut self, abilities: Abilities) -> Self {
        self.abilities = abilities;
        self
    }

    pub(super) fn abilities(&self) -> Abilities {
        self.abilities
    }

    /// Whether the next keys are expected to be strings: only a guess, of which nothing but speed depends.
    pub(super) fn expects_texts(&self) -> bool {
        self.texts.load(Ordering::Relaxed)
    }

    pub(super) fn expect_texts(&self, texts: bool) {
        self.texts.store(texts, Ordering::Relaxed);
    }

    /// Whether keys are expected to have expiries: again only a guess.
    pub(super) fn expects_expiries(&self) -> bool {
        self.expiries.load(Ordering::Relaxed)
    }

    pub(super) fn expect_expiries(&self, expiries: bool) {
        self.expiries.store(expiries, Ordering::Relaxed);
    }

    /// How long one call is waited for.
    pub(super) fn patience(&self) -> Duration {
        self.call_patience
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Sends a pipeline and waits for all its replies, which may be errors. `command` names it in
    /// errors of ours.
    pub(super) async fn call(
        &self,
        command: &'static str,
        pipeline: Pipeline,
    ) -> Result<Vec<Frame>, DriverError> {
        self.call_within(command, pipeline, self.call_patience)
            .await
    }

    /// As [`Link::call`], for commands that the server answers late on purpose.
    pub(super) async fn call_within(
        &self,
        command: &'static str,
        pipeline: Pipeline,
        patience: Duration,
    ) -> Result<Vec<Frame>, DriverError> {
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        let request = Request {
            bytes: pipeline.bytes.into(),
            replies: pipeline.commands,
            answer,
        };
        let exchange = async {
            self.requests
                .send(request)
                .await
                .map_err(|_| self.end_of_link())?;
            answered.await.map_err(|_| self.end_of_link())
        };
        match timeout(patience, exchange).await {
            Ok(frames) => frames,
            Err(_) => {
                let why = format!("no answer to {command} within {patience:?}");
                let _first_reason_stays = self.ended.set(why.clone());
                self.task.abort();
                Err(self.peer.unreachable(why))
            }
        }
    }

    /// One command; an error reply is an error.
    pub(super) async fn ask(
        &self,
        command: &'static str,
        args: &[&[u8]],
    ) -> Result<Frame, DriverError> {
        let frames = self.call(command, Pipeline::of(args)).await?;
        let frame = frames
            .into_iter()
            .next()
            .ok_or_else(|| self.peer.refused(command, "no reply"))?;
        self.check(command, frame)
    }

    /// Passes a reply on unless it is an error.
    pub(super) fn check(&self, command: &'static str, frame: Frame) -> Result<Frame, DriverError> {
        match frame.error() {
            None => Ok(frame),
            Some(why) => Err(self.peer.answered(command, &why)),
        }
    }

    /// A reply of a form that this command never has.
    pub(super) fn odd(&self, command: &'static str, frame: &Frame) -> DriverError {
        self.peer.refused(
            command,
            format_args!("unexpected reply {:?}", frame.value()),
        )
    }

    fn end_of_link(&self) -> DriverError {
        self.peer.unreachable(
            self.ended
                .get()
                .map_or("the connection has ended", String::as_str),
        )
    }
}

/// Replies that one request still waits for.
struct Waiting {
    missing: usize,
    frames: Vec<Frame>,
    answer: oneshot::Sender<Vec<Frame>>,
}

/// Owns the socket until it breaks or nobody can send any more.
async fn serve(
    mut stream: TcpStream,
    mut requests: mpsc::Receiver<Request>,
    ended: Arc<OnceLock<String>>,
) {
    let mut waiting = VecDeque::new();
    if let Err(why) = exchange(&mut stream, &mut requests, &mut waiting).await {
        // Set before the waiting calls are dropped: they then ask for the reason.
        let _first_reason_stays = ended.set(why);
    }
}

async fn exchange(
    stream: &mut TcpStream,
    requests: &mut mpsc::Receiver<Request>,
    waiting: &mut VecDeque<Waiting>,
) -> Result<(), String> {
    let (mut from_server, mut to_server) = stream.split();
    let mut unsent: VecDeque<Bytes> = VecDeque::new();
    let mut unsent_bytes = 0;
    let mut input = BytesMut::with_capacity(READ_BYTES);
    let mut scanner = ReplyScanner::new(REPLY_BYTES_MAX);
    let mut nothing = Bytes::new();
    loop {
        input.reserve(READ_BYTES);
        tokio::select! {
            request = requests.recv(), if unsent_bytes < UNSENT_BYTES_MAX => {
                let Some(request) = request else { return Ok(()) };
                unsent_bytes += request.bytes.len();
                unsent.push_back(request.bytes);
                let frames = Vec::with_capacity(request.replies);
                waiting.push_back(Waiting { missing: request.replies, frames, answer: request.answer });
            }
            sent = to_server.write_buf(unsent.front_mut().unwrap_or(&mut nothing)), if unsent_bytes > 0 => {
                unsent_bytes -= sent.map_err(|error| error.to_string())?;
                if unsent.front().is_some_and(|bytes| !bytes.has_remaining()) {
                    unsent.pop_front();
                }
            }
            read = from_server.read_buf(&mut input) => {
                if read.map_err(|error| error.to_string())? == 0 {
                    return Err("the server closed the connection".to_owned());
                }
                hand_out(&mut scanner, &mut input, waiting)?;
            }
        }
    }
}

/// Gives every whole reply in `input` to the request that it answers.
fn hand_out(
    scanner: &mut ReplyScanner,
    input: &mut BytesMut,
    waiting: &mut VecDeque<Waiting>,
) -> Result<(), String> {
    while let Some(reply) = scanner.scan(input).map_err(|error| error.to_string())? {
        let frame = Frame::new(reply, input.split_to(reply.bytes).freeze());
        if frame.is_push() {
            continue;
        }
        let Some(first) = waiting.front_mut() else {
            return Err("the server sent a reply that nobody asked for".to_owned());
        };
        first.frames.push(frame);
        first.missing -= 1;
        if first.missing == 0
            && let Some(done) = waiting.pop_front()
        {
            // Whoever gave up waiting needs no answer.
            let _nobody_waits = done.answer.send(done.frames);
        }
    }
    Ok(())
}
