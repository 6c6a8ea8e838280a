//! A client of a Redis pool: it knows which node owns each key, and goes on knowing while keys move.
//!
//! ```no_run
//! use clockwise_client::Client;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder().folder("./clockwise-data").build().await?;
//! client.set("user:42", "hello").await?;
//! assert_eq!(client.get("user:42").await?.as_deref(), Some(&b"hello"[..]));
//! println!("{} owns it at epoch {}", client.owner("user:42"), client.epoch());
//! # Ok(())
//! # }
//! ```
//!
//! # What happens to a call
//!
//! It is routed by the latest view and goes to the node that owns its key, over the one connection
//! that all callers of a client share; a caller that goes away never shifts another's answer. The
//! first answer of a node opens the connection, so the first call for each node takes two round trips
//! more.
//!
//! While a key is handed over, some milliseconds as a rule, calls for it wait, reads too, and go to
//! the new owner then. A wait lasts a second at most and ends in an error that says so. Calls for
//! other keys are not held.
//!
//! # Deadlines
//!
//! A call has one deadline for all of it: two seconds, or what [`Builder::timeout`] or
//! [`Client::within`] say. At the deadline the caller is told whether the request may have left. One
//! that had not is not sent any more.
//! Waits inside have limits of their own: a second for a connection, and a second for a handover.
//!
//! # Errors
//!
//! | error | when | [`is_retryable`](Error::is_retryable) | [`may_have_happened`](Error::may_have_happened) |
//! |---|---|---|---|
//! | [`NotSent`](Error::NotSent) | the node is down, lets nobody in, or hands the key over | yes | no |
//! | [`Lost`](Error::Lost) | a read whose connection broke, after it was repeated twice or the budget was spent | yes | no |
//! | [`Unknown`](Error::Unknown) | a write whose connection broke after it may have left | no | yes |
//! | [`TimedOut`](Error::TimedOut) | the deadline | unless it is a write that may have left | only then |
//! | [`Overloaded`](Error::Overloaded) | too many bytes of requests wait for answers | yes | no |
//! | [`Refused`](Error::Refused) | the node answered with an error | where its words say so (`LOADING`, `BUSY` …) | unless its words exclude it; of a script no words do |
//! | [`AnswerTooLarge`](Error::AnswerTooLarge), [`Unexpected`](Error::Unexpected) | what was answered cannot be given | no | if it is a write |
//! | [`Discord`](Error::Discord) | the record says two things of one epoch; nothing is sent until a later one | no | no |
//! | [`Apart`](Error::Apart), [`Unavailable`](Error::Unavailable), [`UnknownCommand`](Error::UnknownCommand), [`Arguments`](Error::Arguments), [`TooLarge`](Error::TooLarge) | nothing was sent, and nothing will be | no | no |
//!
//! A write whose outcome is unknown is never repeated by the client, however harmless it looks: a
//! repeated `SET` can bring back what somebody else deleted in between. Reads, and whatever had not
//! left, are repeated twice at most, and by a budget of a tenth of all calls.
//!
//! # While the store is away
//!
//! The last view goes on being used, and [`Client::trouble`] says why it may be old. An old view loses
//! no write: when keys move, their old owner lets nobody of the old epoch in, and calls for it end in
//! [`NotSent`](Error::NotSent) until the record is heard of again.
//!
//! # What it costs
//!
//! One task, one connection to each node that is asked, and at most [`ClientLimits`] of memory. The
//! task and its connections end with the last clone. Cloning costs a counter.

mod access;
mod builder;
mod call;
mod error;
mod link;
mod request;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use clockwise_cluster::{Address, Epoch, View};
use clockwise_placement::NodeId;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

pub use access::Access;
pub use builder::{Builder, ClientLimits};
pub use error::{BuildError, Error};

use crate::commands::CommandTable;
use crate::resp::Value;
use crate::routing::Effect;
use crate::store::ReadError;
use call::{Call, Progress};
use request::{Outbound, Reply};
use worker::Message;

/// What a request counts for against the limit beside its bytes.
const CALL_BYTES: usize = 256;

/// A client of one pool. Clones share everything; see [the module](self).
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    timeout: Duration,
}

struct Shared {
    messages: mpsc::Sender<Message>,
    /// The view that calls are routed by.
    current: Arc<ArcSwap<View>>,
    table: watch::Receiver<Option<Arc<CommandTable>>>,
    /// The store's; none of a fixed membership.
    trouble: Option<watch::Receiver<Option<ReadError>>>,
    /// Why nobody may route by the record now, if nobody may.
    discord: watch::Receiver<Option<Arc<str>>>,
    /// Bytes that requests may still take.
    room: Arc<Semaphore>,
    limits: ClientLimits,
    /// Ends when `messages` is dropped.
    task: JoinHandle<()>,
}

/// Where a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRoute {
    /// The node that owns it.
    pub node: NodeId,
    /// Where the node's server listens.
    pub address: Address,
    /// The epoch in which that is so.
    pub epoch: Epoch,
    /// Whether it is about to change hands, so that calls for it wait.
    pub held: bool,
}

impl Client {
    /// Says where the pool's record is and how the client should be.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The same client with another deadline for its calls. Shares everything else.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            timeout,
        }
    }

    /// The value of a key; `None` if it has none.
    ///
    /// # Errors
    /// See the table of [the module](self), as for every call.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let outbound = Outbound::typed(Effect::Read, "GET", key.as_ref(), &[]);
        self.ask(outbound).await?.bytes()
    }

    /// Sets a key to a value without an expiry.
    ///
    /// # Errors
    /// As for every call.
    pub async fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let outbound = Outbound::typed(Effect::Write, "SET", key.as_ref(), &[value.as_ref()]);
        self.ask(outbound).await?.done()
    }

    /// Sets a key to a value that expires; `ttl` counts in whole milliseconds, at least one.
    ///
    /// # Errors
    /// As for every call.
    pub async fn set_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<(), Error> {
        let ttl = request::milliseconds(ttl);
        let rest = [value.as_ref(), b"PX", ttl.as_bytes()];
        let outbound = Outbound::typed(Effect::Write, "SET", key.as_ref(), &rest);
        self.ask(outbound).await?.done()
    }

    /// Sets a key only if it has no value; whether it did.
    ///
    /// # Errors
    /// As for every call.
    pub async fn add(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        let rest = [value.as_ref(), b"NX"];
        let outbound = Outbound::typed(Effect::Write, "SET", key.as_ref(), &rest);
        self.ask(outbound).await?.was_done()
    }

    /// Deletes a key; whether there was one.
    ///
    /// # Errors
    /// As for every call.
    #[doc(alias = "del")]
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let outbound = Outbound::typed(Effect::Write, "DEL", key.as_ref(), &[]);
        Ok(self.ask(outbound).await?.integer()? > 0)
    }

    /// Whether a key exists.
    ///
    /// # Errors
    /// As for every call.
    pub async fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let outbound = Outbound::typed(Effect::Read, "EXISTS", key.as_ref(), &[]);
        Ok(self.ask(outbound).await?.integer()? > 0)
    }

    /// Adds to the number that a key holds, zero if it has none, and gives the sum.
    ///
    /// # Errors
    /// As for every call.
    pub async fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, Error> {
        let by = by.to_string();
        let outbound = Outbound::typed(Effect::Write, "INCRBY", key.as_ref(), &[by.as_bytes()]);
        self.ask(outbound).await?.integer()
    }

    /// Lets a key expire; whether there is one. `ttl` counts in whole milliseconds, at least one.
    ///
    /// # Errors
    /// As for every call.
    pub async fn expire(&self, key: impl AsRef<[u8]>, ttl: Duration) -> Result<bool, Error> {
        let ttl = request::milliseconds(ttl);
        let rest = [ttl.as_bytes()];
        let outbound = Outbound::typed(Effect::Write, "PEXPIRE", key.as_ref(), &rest);
        Ok(self.ask(outbound).await?.integer()? > 0)
    }

    /// Any command whose keys are all on one node: a name and its arguments, as on a server's command
    /// line. Where the keys stand, and whether it may change something, is as the servers themselves
    /// say; the first such call waits until one of them has.
    ///
    /// Commands that would block or change the connection that all callers share, and those that
    /// concern more than their keys, are [`Unavailable`](Error::Unavailable), with the reason.
    ///
    /// # Errors
    /// As for every call; an error of the node is [`Refused`](Error::Refused).
    pub async fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Value, Error> {
        let deadline = Instant::now() + self.timeout;
        let table = self.table(deadline).await?;
        let scripts = self.shared.current.load().scripts();
        let outbound = Outbound::of_command(&table, scripts, args)?;
        Ok(self.ask_by(outbound, deadline).await?.value)
    }

    /// Where a key is now.
    #[must_use]
    pub fn route(&self, key: impl AsRef<[u8]>) -> KeyRoute {
        let view = self.shared.current.load();
        let route = view.route(view.position(key.as_ref()));
        let node = view.node(route.node);
        KeyRoute {
            node: node.id.clone(),
            address: node.address.clone(),
            epoch: view.epoch(),
            held: route.hold,
        }
    }

    /// The node that owns a key now. One hash and one search; two searches while a change runs.
    #[must_use]
    pub fn owner(&self, key: impl AsRef<[u8]>) -> NodeId {
        self.shared.current.load().owner(key.as_ref()).clone()
    }

    /// The epoch that calls are routed by. Never goes back.
    #[doc(alias = "ring_version")]
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.shared.current.load().epoch()
    }

    /// The view that calls are routed by.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        self.shared.current.load_full()
    }

    /// Why the view may not be the newest, or `None` if all is well.
    #[must_use]
    pub fn trouble(&self) -> Option<ReadError> {
        let trouble = self.shared.trouble.as_ref()?;
        trouble.borrow().clone()
    }

    /// Ends the client, and returns once its connections are closed and its registration is gone. Other
    /// clones keep it alive: then this one is just dropped.
    pub async fn close(self) {
        if let Ok(shared) = Arc::try_unwrap(self.shared) {
            drop(shared.messages);
            // Its panic was reported when it happened.
            let _ended = shared.task.await;
        }
    }

    async fn table(&self, deadline: Instant) -> Result<Arc<CommandTable>, Error> {
        let mut table = self.shared.table.clone();
        if let Some(table) = &*table.borrow() {
            return Ok(Arc::clone(table));
        }
        let asking = async {
            let asked = self.shared.messages.send(Message::WantTable).await;
            asked.map_err(|_| Error::Ended { sent: false })?;
            let told = table.wait_for(Option::is_some).await;
            let told = told.map_err(|_| Error::Ended { sent: false })?;
            told.clone().ok_or(Error::NoCommands)
        };
        match timeout_at(deadline, asking).await {
            Ok(table) => table,
            Err(_) => Err(Error::NoCommands),
        }
    }

    async fn ask(&self, outbound: Outbound) -> Result<Reply, Error> {
        self.ask_by(outbound, Instant::now() + self.timeout).await
    }

    async fn ask_by(&self, outbound: Outbound, deadline: Instant) -> Result<Reply, Error> {
        if let Some(why) = &*self.shared.discord.borrow() {
            let why = Arc::clone(why);
            return Err(Error::Discord { why });
        }
        outbound.check(&self.shared.limits)?;
        let (command, effect, scripted) = (outbound.command, outbound.effect, outbound.scripted);
        let bytes = outbound.frame.len() + CALL_BYTES;
        let room = Arc::clone(&self.shared.room);
        let most = self.shared.limits.requests_bytes_max;
        // One request may always go, however large.
        let share = u32::try_from(bytes.min(most)).unwrap_or(u32::MAX);
        let share = match timeout_at(deadline, room.acquire_many_owned(share)).await {
            Ok(Ok(share)) => share,
            Ok(Err(_closed)) => return Err(Error::Ended { sent: false }),
            Err(_) => return Err(Error::Overloaded { bytes: most }),
        };
        let progress = Progress::default();
        let (reply, answer) = oneshot::channel();
        let call = Call {
            keys: outbound.keys,
            effect,
            retries: 0,
            progress: progress.clone(),
            reply,
            _share: share,
        };
        // A caller that goes away says so here, whichever way it goes.
        let waiting = Waiting(progress);
        let asking = async {
            let message = Message::Call(call, outbound.frame);
            let sent = self.shared.messages.send(message).await;
            sent.map_err(|_| Error::Ended { sent: false })?;
            match answer.await {
                Ok(outcome) => outcome,
                Err(_) => Err(Error::Ended {
                    sent: waiting.0.abandon(),
                }),
            }
        };
        let answer = match timeout_at(deadline, asking).await {
            Ok(outcome) => outcome?,
            Err(_) => {
                return Err(Error::TimedOut {
                    after: self.timeout,
                    epoch: self.epoch(),
                    sent: waiting.0.abandon(),
                    effect,
                });
            }
        };
        Reply::read(answer, command, effect, scripted)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("view", &*self.shared.current.load())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Somebody waits for a call, until this is dropped.
struct Waiting(Progress);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
