//! The node servers of one `up`, inside this process or beside it.
//!
//! One task owns the processes: it starts them, starts them again when they die, and ends them.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use clockwise_cluster::{Incarnation, Revision};
use clockwise_placement::NodeId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use super::data_dir::{DataDir, DataDirError, make_private_folder};
use super::node_server::{NodeServer, NodeServerError, NodeServers};
use super::port::free_port;
use crate::embedded::{EmbeddedNodes, StartError};

/// How often the servers are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A server that dies at once is not started again in a tight loop.
const BACKOFF_FIRST: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// A server that ran this long was well: the next death starts the backoff anew.
const WELL_AFTER: Duration = Duration::from_secs(30);
/// Orders come from the start and from single operators.
const ORDERS_MAX: usize = 16;

/// Why a server could not be started or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The server itself.
    #[error(transparent)]
    Server(#[from] NodeServerError),
    /// A node inside this process.
    #[error(transparent)]
    Embedded(#[from] StartError),
    /// No port is free.
    #[error("no free port on 127.0.0.1: {0}")]
    NoPort(io::Error),
    /// Something about the data folder.
    #[error(transparent)]
    Folder(#[from] DataDirError),
    /// The fleet is ending and takes no more orders.
    #[error("the servers are being ended")]
    Ending,
}

/// The servers of one folder. Clones speak of the same ones.
#[derive(Clone, Debug)]
pub struct Fleet(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Nodes inside this process.
    Embedded { nodes: EmbeddedNodes, dir: DataDir },
    /// Processes, owned by a task that takes orders.
    Processes {
        engine: NodeServers,
        orders: mpsc::Sender<Order>,
    },
}

#[derive(Debug)]
enum Order {
    Run {
        id: NodeId,
        port: Option<u16>,
        done: oneshot::Sender<Result<Running, FleetError>>,
    },
    End {
        id: NodeId,
        deadline: Instant,
        done: oneshot::Sender<Result<bool, FleetError>>,
    },
    EndAll {
        which: Which,
        deadline: Instant,
        done: oneshot::Sender<Vec<FleetError>>,
    },
}

/// Which servers to end at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All: the cluster ends.
    All,
    /// Those that were not there before: the start failed, and what was found is left as it was.
    Started,
}

/// A server that was started or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Where it listens, as the record has it.
    pub address: String,
    /// Whether it was left running by an earlier process.
    pub adopted: bool,
    /// What became of what the node had before.
    pub past: Past,
}

/// What became of what a node had before its server was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Past {
    /// Nobody knows, or there was nothing.
    Unknown,
    /// It is all there: this run ended in good order, and the server has loaded what it saved.
    Kept(Incarnation),
    /// It is gone, and so is what all nodes had: they keep it in memory.
    Gone,
}

struct Keeper {
    engine: NodeServers,
    kept: BTreeMap<NodeId, Kept>,
    // Servers on their way, which may take long to load their data. Nobody waits for another's.
    starting: JoinSet<Started>,
    // Who waits for them. Empty where one that died is started again.
    waiting: BTreeMap<NodeId, Vec<oneshot::Sender<Result<Running, FleetError>>>>,
}

/// What became of a start.
struct Started {
    id: NodeId,
    server: Result<NodeServer, NodeServerError>,
}

struct Kept {
    server: NodeServer,
    started_at: Instant,
    backoff: Duration,
    retry_at: Option<Instant>,
}

impl Fleet {
    /// Nodes inside this process. Their folders hold nothing, but say that they were started here.
    #[must_use]
    pub fn embedded(nodes: EmbeddedNodes, dir: DataDir) -> Self {
        Self(Kind::Embedded { nodes, dir })
    }

    /// Processes; the task that owns them ends when every [`Fleet`] is dropped or after `end_all`.
    #[must_use]
    pub fn of_processes(engine: NodeServers) -> (Self, JoinHandle<()>) {
        let (orders, inbox) = mpsc::channel(ORDERS_MAX);
        let keeper = Keeper {
            engine: engine.clone(),
            kept: BTreeMap::new(),
            starting: JoinSet::new(),
            waiting: BTreeMap::new(),
        };
        (
            Self(Kind::Processes { engine, orders }),
            tokio::spawn(keeper.run(inbox)),
        )
    }

    /// Returns once the task that owns the processes has ended; never where there is none.
    pub(super) fn keeper_ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let orders = match &self.0 {
            Kind::Embedded { .. } => None,
            Kind::Processes { orders, .. } => Some(orders.clone()),
        };
        async move {
            match orders {
                Some(orders) => orders.closed().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Runs a node's server: adopts the one left running or starts a new one, on this port if one is given.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn run(&self, id: &NodeId, port: Option<u16>) -> Result<Running, FleetError> {
        match &self.0 {
            Kind::Embedded { nodes, dir } => {
                make_private_folder(&dir.node(id)?)?;
                let port = port
                    .map_or_else(free_port, Ok)
                    .map_err(FleetError::NoPort)?;
                let address = nodes
                    .start(id, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
                    .await?;
                Ok(Running {
                    address: address.to_string(),
                    adopted: false,
                    past: Past::Gone,
                })
            }
            Kind::Processes { orders, .. } => {
                order(orders, |done| Order::Run {
                    id: id.clone(),
                    port,
                    done,
                })
                .await?
            }
        }
    }

    /// Ends a node's server; its data is saved as far as it persists any. Says whether there was one.
    ///
    /// # Errors
    /// When the system does not let us.
    pub async fn end(&self, id: &NodeId, deadline: Instant) -> Result<bool, FleetError> {
        match &self.0 {
            Kind::Embedded { nodes, .. } => Ok(nodes.stop(id)),
            Kind::Processes { orders, .. } => {
                order(orders, |done| Order::End {
                    id: id.clone(),
                    deadline,
                    done,
                })
                .await?
            }
        }
    }

    /// Ends a node's server and puts its folder out of the way, under the revision that does not name the node.
    /// Says whether there was a server.
    ///
    /// # Errors
    /// When the system does not let us: it can be asked for again.
    pub async fn retire(
        &self,
        id: &NodeId,
        revision: Revision,
        within: Duration,
    ) -> Result<bool, FleetError> {
        let ended = self.end(id, Instant::now() + within).await?;
        if ended {
            let dir = match &self.0 {
                Kind::Embedded { dir, .. } => dir,
                Kind::Processes { engine, .. } => engine.dir(),
            };
            dir.retire_node(id, revision.get())?;
        }
        Ok(ended)
    }

    /// Ends servers and takes no more orders; returns what went wrong.
    pub async fn end_all(&self, which: Which, deadline: Instant) -> Vec<FleetError> {
        match &self.0 {
            Kind::Embedded { nodes, .. } => {
                nodes.stop_all();
                Vec::new()
            }
            Kind::Processes { engine, orders } => {
                // The order waits behind a start that may wait for long.
                engine.begin_end();
                let ended = order(orders, |done| Order::EndAll {
                    which,
                    deadline,
                    done,
                })
                .await;
                ended.unwrap_or_else(|error| vec![error])
            }
        }
    }
}

async fn order<T>(
    orders: &mpsc::Sender<Order>,
    order: impl FnOnce(oneshot::Sender<T>) -> Order,
) -> Result<T, FleetError> {
    let (done, answer) = oneshot::channel();
    orders
        .send(order(done))
        .await
        .map_err(|_| FleetError::Ending)?;
    answer.await.map_err(|_| FleetError::Ending)
}

impl Keeper {
    async fn run(mut self, mut inbox: mpsc::Receiver<Order>) {
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                order = inbox.recv() => match order {
                    // Whoever asked may have gone; the order is carried out all the same.
                    Some(Order::Run { id, port, done }) => self.start(id, port, done),
                    Some(Order::End { id, deadline, done }) => drop(done.send(self.end(&id, deadline).await)),
                    Some(Order::EndAll { which, deadline, done }) => {
                        drop(done.send(self.end_all(which, deadline).await));
                        return;
                    }
                    None => return,
                },
                Some(started) = self.starting.join_next() => self.started(started),
                _ = look.tick() => self.revive(),
            }
        }
    }

    fn start(
        &mut self,
        id: NodeId,
        port: Option<u16>,
        done: oneshot::Sender<Result<Running, FleetError>>,
    ) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.push(done);
        } else if let Some(kept) = self.kept.get(&id) {
            drop(done.send(Ok(Running::of(&kept.server, true))));
        } else {
            self.begin(id, port, vec![done]);
        }
    }

    fn begin(
        &mut self,
        id: NodeId,
        port: Option<u16>,
        waiting: Vec<oneshot::Sender<Result<Running, FleetError>>>,
    ) {
        self.waiting.insert(id.clone(), waiting);
        let engine = self.engine.clone();
        self.starting.spawn_blocking(move || {
            let server = engine.run(&id, port);
            Started { id, server }
        });
    }

    /// A server runs or does not start: whoever waits for it gets to know.
    fn started(&mut self, started: Result<Started, JoinError>) {
        let Started { id, server } = match started {
            Ok(started) => started,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let mut waiting = self.waiting.remove(&id).unwrap_or_default().into_iter();
        match server {
            Ok(server) => {
                let running = Running::of(&server, server.adopted);
                let backoff = self.kept.get(&id).map(|kept| kept.backoff);
                let mut kept = Kept::new(server);
                kept.backoff = backoff.unwrap_or(kept.backoff);
                self.kept.insert(id, kept);
                waiting.for_each(|done| drop(done.send(Ok(running.clone()))));
            }
            Err(error) => {
                if let Some(kept) = self.kept.get_mut(&id) {
                    tracing::error!(node = %id, %error, retry_in_ms = kept.backoff.as_millis(), "server does not start");
                    kept.retry_at = Some(Instant::now() + kept.backoff);
                }
                // The others find nothing and try again.
                if let Some(first) = waiting.next() {
                    drop(first.send(Err(error.into())));
                }
            }
        }
    }

    /// Waits for starts under way, of one node or of all.
    async fn settle(&mut self, id: Option<&NodeId>) {
        while id.is_none_or(|id| self.waiting.contains_key(id))
            && let Some(started) = self.starting.join_next().await
        {
            self.started(started);
        }
    }

    async fn end(&mut self, id: &NodeId, deadline: Instant) -> Result<bool, FleetError> {
        self.settle(Some(id)).await;
        let Some(kept) = self.kept.remove(id) else {
            return Ok(false);
        };
        let (engine, mut server) = (self.engine.clone(), kept.server);
        let (server, ended) = blocking(move || {
            let ended = engine.end(&mut server, deadline);
            (server, ended)
        })
        .await;
        match ended {
            Ok(()) => Ok(true),
            Err(error) => {
                // It is still there: whoever asks again ends it.
                self.kept.insert(id.clone(), Kept { server, ..kept });
                Err(error.into())
            }
        }
    }

    async fn end_all(&mut self, which: Which, deadline: Instant) -> Vec<FleetError> {
        self.settle(None).await;
        let mut ending = Vec::new();
        for (_, mut kept) in std::mem::take(&mut self.kept) {
            if which == Which::Started && kept.server.adopted {
                continue;
            }
            let engine = self.engine.clone();
            ending.push(spawn_blocking(move || {
                engine.end(&mut kept.server, deadline)
            }));
        }
        let mut errors = Vec::new();
        for one in ending {
            match one.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => errors.push(error.into()),
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            }
        }
        errors
    }

    /// Starts what died again, on the port it had: the record names that address.
    fn revive(&mut self) {
        let now = Instant::now();
        let mut due = Vec::new();
        for (id, kept) in &mut self.kept {
            if self.waiting.contains_key(id) || kept.server.lives() {
                continue;
            }
            let Some(retry_at) = kept.retry_at else {
                let ran = now.duration_since(kept.started_at);
                if ran >= WELL_AFTER {
                    kept.backoff = BACKOFF_FIRST;
                }
                kept.retry_at = Some(now + kept.backoff);
                tracing::warn!(node = %id, ran_s = ran.as_secs(), "server died and will be started again");
                continue;
            };
            if now >= retry_at {
                kept.backoff = (kept.backoff * 2).min(BACKOFF_MAX);
                due.push((id.clone(), kept.server.port));
            }
        }
        for (id, port) in due {
            self.begin(id, Some(port), Vec::new());
        }
    }
}

impl Running {
    fn of(server: &NodeServer, adopted: bool) -> Self {
        Self {
            address: format!("127.0.0.1:{}", server.port),
            adopted,
            past: server.continues.clone().map_or(Past::Unknown, Past::Kept),
        }
    }
}

impl Kept {
    fn new(server: NodeServer) -> Self {
        Self {
            server,
            started_at: Instant::now(),
            backoff: BACKOFF_FIRST,
            retry_at: None,
        }
    }
}

/// Waits for file and process work off the runtime's threads; a panic there is one here.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
