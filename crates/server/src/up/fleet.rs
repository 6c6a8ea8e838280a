//! The node servers of one `up`, inside this process or beside it.
//!
//! One task owns the processes: it starts them, starts them again when they die, and ends them.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use clockwise_cluster::Incarnation;
use clockwise_placement::NodeId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use super::data_dir::{DataDir, DataDirError, make_private_folder};
use super::redis_server::{RedisServer, RedisServerError, RedisServers, free_port};
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
    Server(#[from] RedisServerError),
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
    Redis {
        engine: RedisServers,
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
    engine: RedisServers,
    kept: BTreeMap<NodeId, Kept>,
}

struct Kept {
    server: RedisServer,
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
    pub fn of_redis(engine: RedisServers) -> (Self, JoinHandle<()>) {
        let (orders, inbox) = mpsc::channel(ORDERS_MAX);
        let keeper = Keeper {
            engine: engine.clone(),
            kept: BTreeMap::new(),
        };
        (
            Self(Kind::Redis { engine, orders }),
            tokio::spawn(keeper.run(inbox)),
        )
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
            Kind::Redis { orders, .. } => {
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
            Kind::Redis { orders, .. } => {
                order(orders, |done| Order::End {
                    id: id.clone(),
                    deadline,
                    done,
                })
                .await?
            }
        }
    }

    /// Ends servers and takes no more orders; returns what went wrong.
    pub async fn end_all(&self, which: Which, deadline: Instant) -> Vec<FleetError> {
        match &self.0 {
            Kind::Embedded { nodes, .. } => {
                nodes.stop_all();
                Vec::new()
            }
            Kind::Redis { engine, orders } => {
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
                    Some(Order::Run { id, port, done }) => drop(done.send(self.start(id, port).await)),
                    Some(Order::End { id, deadline, done }) => drop(done.send(self.end(&id, deadline).await)),
                    Some(Order::EndAll { which, deadline, done }) => {
                        drop(done.send(self.end_all(which, deadline).await));
                        return;
                    }
                    None => return,
                },
                _ = look.tick() => self.revive().await,
            }
        }
    }

    async fn start(&mut self, id: NodeId, port: Option<u16>) -> Result<Running, FleetError> {
        if let Some(kept) = self.kept.get(&id) {
            return Ok(Running::of(&kept.server, true));
        }
        let engine = self.engine.clone();
        let name = id.clone();
        let server = blocking(move || engine.run(&name, port)).await?;
        let running = Running::of(&server, server.adopted);
        self.kept.insert(id, Kept::new(server));
        Ok(running)
    }

    async fn end(&mut self, id: &NodeId, deadline: Instant) -> Result<bool, FleetError> {
        let Some(kept) = self.kept.remove(id) else {
            return Ok(false);
        };
        let engine = self.engine.clone();
        blocking(move || engine.end(kept.server, deadline)).await?;
        Ok(true)
    }

    async fn end_all(&mut self, which: Which, deadline: Instant) -> Vec<FleetError> {
        let mut ending = Vec::new();
        for (_, kept) in std::mem::take(&mut self.kept) {
            if which == Which::Started && kept.server.adopted {
                continue;
            }
            let engine = self.engine.clone();
            ending.push(spawn_blocking(move || engine.end(kept.server, deadline)));
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
    async fn revive(&mut self) {
        let now = Instant::now();
        for (id, kept) in &mut self.kept {
            if kept.server.lives() {
                continue;
            }
            let Some(retry_at) = kept.retry_at else {
                let ran = now.duration_since(kept.started_at);
                kept.backoff = if ran >= WELL_AFTER {
                    BACKOFF_FIRST
                } else {
                    kept.backoff
                };
                kept.retry_at = Some(now + kept.backoff);
                tracing::warn!(node = %id, ran_s = ran.as_secs(), "server died and will be started again");
                continue;
            };
            if now < retry_at {
                continue;
            }
            let (engine, name, port) = (self.engine.clone(), id.clone(), kept.server.port);
            let backoff = (kept.backoff * 2).min(BACKOFF_MAX);
            match blocking(move || engine.run(&name, Some(port))).await {
                Ok(server) => {
                    *kept = Kept {
                        backoff,
                        ..Kept::new(server)
                    }
                }
                Err(error) => {
                    tracing::error!(node = %id, %error, retry_in_ms = backoff.as_millis(), "server does not start");
                    kept.backoff = backoff;
                    kept.retry_at = Some(Instant::now() + backoff);
                }
            }
        }
    }
}

impl Running {
    fn of(server: &RedisServer, adopted: bool) -> Self {
        Self {
            address: format!("127.0.0.1:{}", server.port),
            adopted,
            past: server.continues.clone().map_or(Past::Unknown, Past::Kept),
        }
    }
}

impl Kept {
    fn new(server: RedisServer) -> Self {
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
