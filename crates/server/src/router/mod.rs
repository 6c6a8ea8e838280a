//! The router: clients of Redis or memcached connect to it as to one server, and it sends each
//! request to the node that owns its key.
//!
//! Several single-threaded workers accept connections on one port and share nothing but the
//! current view. A request is scanned, not parsed into a tree; its bytes go from the client's buffer
//! to the node's, and the reply's bytes back, in the order the client asked. Decisions about
//! generations, holds and retries are made by [`clockwise_client::routing`]; here are the sockets.
//!
//! **Two protocols.** A pool's nodes all speak one, and so do its clients. What differs is where
//! requests end and what is done with each (`serve` and what it calls, or `memcached`), where replies end
//! and whether one fits its request (`node_link`), how one answer is made of several (`gather`), and
//! the words of errors. Connections, order, limits, retries and views are the same for both.
//!
//! **Two versions of RESP.** A command may reply differently in RESP2 and RESP3, and not
//! always in a way that can be translated back (`ZRANGE … WITHSCORES` nests, nulls of two kinds
//! become one). So a worker has a connection to a node for each version that its clients speak,
//! opened when the first of them needs it, and passes replies on as they are. `HELLO` waits until what
//! the client asked before is answered, since its requests then travel on another connection.
//!
//! **Order.** Requests of one client for one key are executed in the order sent, also over a
//! handover. Requests for different keys may overtake each other, as with any sharded server;
//! answers come in order always.
//!
//! ```text
//! client ─ serve ─ local | dispatch ─┬─ node_link ── node
//!            │                       ├─ queue (connecting, next generation, handover)
//!     reply_queue ←── deliver ←──────┴─ gather (keys on several nodes)
//! ```

mod blocking;
mod client;
mod clients;
mod connections;
mod dispatch;
mod gather;
mod limits;
mod listen;
mod local;
mod mailbox;
mod memcached;
mod node_link;
mod nodes;
mod own_link;
mod pressure;
mod refusal;
mod reply_queue;
mod resolver;
mod scan;
mod serve;
mod spread;
mod stats;
mod transaction;
mod watching;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clockwise_client::commands::keep_table;
use clockwise_client::credentials::{Password, PoolKey, client_login};
use clockwise_cluster::{Node, Protocol, View};
use futures_util::FutureExt;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub use limits::{FILES_RESERVED, Limits};
pub use stats::{NodeStats, RouterStats};

use mailbox::{Mailbox, Message};
use worker::{Settings, Shared, Worker};

/// What the router knows and does not show.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// From which the passwords of the nodes' client users follow; without it nodes are expected
    /// to let everybody in.
    pub pool_key: Option<PoolKey>,
    /// What clients must give with `AUTH`.
    pub password: Option<Password>,
}

/// How a router is started.
#[derive(Debug)]
pub struct RouterConfig {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Threads, at least one.
    pub workers: usize,
    /// Bounds of memory and time.
    pub limits: Limits,
    /// Passwords, both ways.
    pub secrets: Secrets,
    /// What it routes by: always the latest view.
    pub view: watch::Receiver<Arc<View>>,
}

/// A running router. Dropped, it stops at once.
#[derive(Debug)]
pub struct RouterHandle {
    addr: SocketAddr,
    pool_key: Option<PoolKey>,
    mailboxes: Vec<Arc<Mailbox>>,
    threads: Vec<JoinHandle<()>>,
    /// Sent by each worker at its end.
    ended: Vec<oneshot::Receiver<()>>,
    /// Cancelled once a worker has ended, or a feeder has panicked.
    part_ended: CancellationToken,
    /// What feeds the workers: views and command tables.
    _feeders: JoinSet<()>,
}

/// Starts routers.
#[derive(Debug)]
pub struct Router;

impl Router {
    /// Binds, starts the workers and returns; clients can connect. Until the first node has
    /// answered, their requests wait for up to a second.
    ///
    /// Must be called within a tokio runtime, which only passes on views and asks nodes for their
    /// commands; requests are served on threads of their own.
    ///
    /// # Errors
    /// The address cannot be bound, or the system gives no thread or file.
    pub fn start(config: RouterConfig) -> io::Result<RouterHandle> {
        let RouterConfig {
            listen,
            workers,
            limits,
            secrets,
            view,
        } = config;
        let workers = workers.max(1);
        let limits = within_files(limits);
        let (addr, listeners) = listen::bind(listen, workers)?;
        let resolver = resolver::Resolver::start()?;
        let settings = Settings {
            limits,
            secrets: secrets.clone(),
        };
        let settings = Arc::new(settings);
        let protocol = view.borrow().protocol();
        let shared = Shared {
            protocol,
            resolver,
            clients: AtomicUsize::new(0),
            own_links: AtomicUsize::new(0),
            workers,
        };
        let shared = Arc::new(shared);
        let secrets_of_nodes = secrets.pool_key.clone();
        let part_ended = CancellationToken::new();
        let (mut mailboxes, mut threads, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        for (number, listener) in listeners.into_iter().enumerate() {
            let poll = mio::Poll::new()?;
            let waker = mio::Waker::new(poll.registry(), Worker::WAKER)?;
            let mailbox = Arc::new(Mailbox::new(waker));
            let view = Arc::clone(&view.borrow());
            let worker = Worker::new(
                number,
                (Arc::clone(&shared), Arc::clone(&settings)),
                Arc::clone(&mailbox),
                poll,
                listener,
                view,
            )?;
            let name = format!("clockwise-route{number}");
            let (thread, at_end) = on_its_thread(name, &part_ended, move || worker.run())?;
            threads.push(thread);
            mailboxes.push(mailbox);
            ended.push(at_end);
        }
        let mut feeders = JoinSet::new();
        let mut feeds = vec![pass_on_views(view.clone(), mailboxes.clone()).boxed()];
        if protocol == Protocol::Redis {
            feeds.push(keep_tables(view, secrets, mailboxes.clone()).boxed());
        }
        for feeder in feeds {
            let end = part_ended.clone().drop_guard();
            feeders.spawn(async move {
                feeder.await;
                // Whom it listened to is gone, and says so.
                end.disarm();
            });
        }
        Ok(RouterHandle {
            addr,
            pool_key: secrets_of_nodes,
            mailboxes,
            threads,
            ended,
            part_ended,
            _feeders: feeders,
        })
    }
}

/// The limits with no more connections than the process may have open files.
fn within_files(mut limits: Limits) -> Limits {
    let possible = listen::clients_possible(limits.clients_max + limits.own_links_max);
    limits.own_links_max = limits.own_links_max.min(possible / 4);
    limits.clients_max = limits.clients_max.min(possible - limits.own_links_max);
    limits
}

/// Starts a thread whose end, by a panic too, is heard from what is received and from the token.
fn on_its_thread(
    name: String,
    part_ended: &CancellationToken,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<(JoinHandle<()>, oneshot::Receiver<()>)> {
    let (end, at_end) = oneshot::channel();
    let part_end = part_ended.clone().drop_guard();
    let thread = thread::Builder::new().name(name).spawn(move || {
        let _ends: (oneshot::Sender<()>, _) = (end, part_end);
        work();
    })?;
    Ok((thread, at_end))
}

/// Hands every command table to all workers.
async fn keep_tables(
    view: watch::Receiver<Arc<View>>,
    secrets: Secrets,
    mailboxes: Vec<Arc<Mailbox>>,
) {
    let login = |node: &Node| {
        let key = secrets.pool_key.as_ref()?;
        Some(client_login(key, node))
    };
    keep_table(view, login, |table| {
        let table = Arc::new(table);
        for mailbox in &mailboxes {
            mailbox.post(Message::Table(Arc::clone(&table)));
        }
    })
    .await;
}

/// Hands every new view to all workers.
async fn pass_on_views(mut view: watch::Receiver<Arc<View>>, mailboxes: Vec<Arc<Mailbox>>) {
    // The workers started with an earlier look at it.
    view.mark_changed();
    while view.changed().await.is_ok() {
        let latest = Arc::clone(&view.borrow_and_update());
        for mailbox in &mailboxes {
            mailbox.post(Message::View(Arc::clone(&latest)));
        }
    }
}

impl RouterHandle {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns once one of its workers has ended, or what feeds them has panicked: until it is told to end,
    /// none of them should.
    pub fn part_ended(&self) -> WaitForCancellationFutureOwned {
        self.part_ended.clone().cancelled_owned()
    }

    /// What it did so far and does now. Costs a short lock of each worker's counters.
    pub fn stats(&self) -> RouterStats {
        let shares = self.mailboxes.iter().map(|mailbox| mailbox.stats());
        shares
            .reduce(|sum, share| sum.merged(&share))
            .unwrap_or_default()
    }

    /// Begins [`RouterStats::hold_ms_max`] anew.
    pub fn reset_hold(&self) {
        self.post_all(|| Message::ResetHold);
    }

    /// Goes on under these limits and with this password of clients. Who is logged in stays so; what is under
    /// way ends under the limits that it began with, and queues of requests that wait keep theirs.
    pub fn change(&self, limits: Limits, password: Option<Password>) {
        let secrets = Secrets {
            pool_key: self.pool_key.clone(),
            password,
        };
        let settings = Arc::new(Settings {
            limits: within_files(limits),
            secrets,
        });
        self.post_all(|| Message::Settings(Arc::clone(&settings)));
    }

    /// Routes no further request, and answers each with this reason; `None` ends that.
    pub fn halt(&self, why: Option<Arc<str>>) {
        self.post_all(|| Message::Halt(why.clone()));
    }

    /// Accepts no more clients, answers what is under way, closes every connection, and ends.
    /// What is not done after `deadline` is cut off.
    pub async fn drain(mut self, deadline: Duration) {
        self.post_all(|| Message::Drain);
        let ended = std::mem::take(&mut self.ended);
        let all = async {
            for worker in ended {
                // An error means that the worker has ended, which is what is waited for.
                worker.await.unwrap_or_default();
            }
        };
        if timeout(deadline, all).await.is_err() {
            tracing::warn!("clients were cut off: they did not finish in time");
        }
    }

    fn post_all(&self, message: impl Fn() -> Message) {
        for mailbox in &self.mailboxes {
            mailbox.post(message());
        }
    }
}

impl Drop for RouterHandle {
    fn drop(&mut self) {
        self.post_all(|| Message::Stop);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a router worker panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_worker_by_a_panic_is_heard() {
        let part_ended = CancellationToken::new();
        let (lives, stays) = std::sync::mpsc::channel::<()>();
        let (healthy, _) = on_its_thread("healthy".to_owned(), &part_ended, move || {
            let _released = stays.recv();
        })
        .unwrap();
        assert!(part_ended.cancelled().now_or_never().is_none());
        let work = || panic!("planted: a worker ends");
        let (panicked, at_end) = on_its_thread("panics".to_owned(), &part_ended, work).unwrap();
        let noticed = timeout(Duration::from_secs(60), part_ended.cancelled()).await;
        noticed.expect("its end is heard");
        assert!(at_end.await.is_err(), "and nobody who drains waits for it");
        assert!(panicked.join().is_err());
        drop(lives);
        healthy.join().unwrap();
    }
}
