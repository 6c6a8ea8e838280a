//! How a client is made: where its record is, who it is to the nodes, what it may cost.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
#[cfg(feature = "etcd")]
use clockwise_cluster::PoolName;
use clockwise_cluster::{NewPool, Nonce, Protocol, Record, View};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::access::Access;
use super::error::BuildError;
use super::worker::{Setup, Worker};
use super::{Client, Shared};
use crate::credentials::{POOL_KEY_VARIABLE, PoolKey};
use crate::routing::{ConversationLimits, TrafficLimits};
#[cfg(feature = "etcd")]
use crate::store::{EtcdOptions, EtcdStore};
use crate::store::{
    FileOptions, FileStore, Registrant, RegistrantKind, Registration, Registry, Store,
};
use crate::views;

/// Where `clockwise up` keeps the pool key in its folder.
const POOL_KEY_FILE: &str = "pool.key";
/// Between two attempts to read the record.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Calls handed to the worker and not looked at yet. It takes hundreds at a time.
const MESSAGES_MAX: usize = 1_024;

/// Bounds of what one client keeps, and of the time it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Bytes of requests without an answer, all callers together. Further callers wait for room.
    pub requests_bytes_max: usize,
    /// Bytes of one request.
    pub request_bytes_max: usize,
    /// Bytes of one key.
    pub key_bytes_max: usize,
    /// Of each connection.
    pub conversation: ConversationLimits,
    /// Of queues and waits while connections are made and keys are handed over.
    pub traffic: TrafficLimits,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            requests_bytes_max: 64 << 20,
            request_bytes_max: 32 << 20,
            // What the router takes.
            key_bytes_max: 64 << 10,
            conversation: ConversationLimits {
                reply_bytes_max: 64 << 20,
                answers_bytes_max: 16 << 20,
                reply_ms_max: 5_000,
                answer_ms_max: 60_000,
            },
            traffic: TrafficLimits::default(),
        }
    }
}

#[derive(Debug)]
enum Source {
    #[cfg(feature = "etcd")]
    Etcd(PoolName, Box<EtcdOptions>),
    Folder(PathBuf),
    Fixed(Box<NewPool>),
    Store(Arc<dyn Store>, Option<Arc<dyn Registry>>),
}

/// Makes a [`Client`]; see [`Client::builder`].
#[derive(Debug, Default)]
pub struct Builder {
    source: Option<Source>,
    access: Option<Access>,
    name: Option<String>,
    timeout: Option<Duration>,
    build_within: Option<Duration>,
    limits: ClientLimits,
}

/// Where the record comes from, opened.
#[derive(Default)]
struct Opened {
    store: Option<Arc<dyn Store>>,
    registry: Option<Arc<dyn Registry>>,
    /// Where the pool key may be, if nothing was said.
    pool_key: Option<PathBuf>,
    fixed: Option<Record>,
}

impl Builder {
    /// The record is in etcd, under this pool's name. The client follows it, and registers there.
    #[cfg(feature = "etcd")]
    #[must_use]
    pub fn etcd(self, pool: PoolName, options: EtcdOptions) -> Self {
        self.of(Source::Etcd(pool, Box::new(options)))
    }

    /// The record is in the folder of a `clockwise up` on this machine. The client follows it without
    /// ever writing it, takes the pool key from there if nothing else is said, and registers there.
    #[must_use]
    pub fn folder(self, dir: impl AsRef<Path>) -> Self {
        self.of(Source::Folder(dir.as_ref().to_owned()))
    }

    /// The membership is this one and stays so; every process that is given the same places keys alike.
    /// The nodes are ordinary servers, and [`access`](Self::access) says who the client is to them.
    #[must_use]
    pub fn fixed(self, pool: NewPool) -> Self {
        self.of(Source::Fixed(Box::new(pool)))
    }

    /// The record is in a store of the caller's, who may have more than one client of it. With a
    /// registry the client registers there.
    #[must_use]
    pub fn store(self, store: Arc<dyn Store>, registry: Option<Arc<dyn Registry>>) -> Self {
        self.of(Source::Store(store, registry))
    }

    fn of(mut self, source: Source) -> Self {
        self.source = Some(source);
        self
    }

    /// Who the client is to the nodes. Without this: whoever has the pool key, from the environment
    /// variable `CLOCKWISE_POOL_KEY` or the folder's file `pool.key`; and of a fixed membership, nobody.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// What `clockwise clients` shows as this client's place; `HOST:PID` without it.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How long a call may take in all, waits and repetitions included. Two seconds without it.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long [`build`](Self::build) may wait for the record. Ten seconds without it.
    #[must_use]
    pub fn build_within(mut self, within: Duration) -> Self {
        self.build_within = Some(within);
        self
    }

    /// Bounds of memory and time.
    #[must_use]
    pub fn limits(mut self, limits: ClientLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Reads the record, and starts the task that works for the client and all its clones. Connects to
    /// no node yet: the first call for each does.
    ///
    /// Must be called within a tokio runtime with a timer, which the client stays with.
    ///
    /// # Errors
    /// When there is no record in time, or none that this client can use.
    pub async fn build(self) -> Result<Client, BuildError> {
        let within = self.build_within.unwrap_or(Duration::from_secs(10));
        let opened = self.source.ok_or(BuildError::NoSource)?.open()?;
        let access = match self.access {
            Some(access) => access,
            None => opened.access()?,
        };
        let record = match (&opened.fixed, &opened.store) {
            (Some(fixed), _) => Arc::new(fixed.clone()),
            (None, Some(store)) => first_record(&**store, within).await?,
            (None, None) => return Err(BuildError::NoSource),
        };
        if record.protocol() != Protocol::Redis {
            let found = record.protocol();
            return Err(BuildError::Protocol { found });
        }
        let (views, discord, follower) = match &opened.store {
            Some(store) => {
                let (views, task) = views::publish(&record, &**store)?;
                (views.newest, views.discord, Some(task.abort_handle()))
            }
            None => {
                let (sender, views) = watch::channel(Arc::new(View::from_record(&record)?));
                // It never changes; the receivers keep what there is.
                drop(sender);
                (views, watch::Sender::new(None).subscribe(), None)
            }
        };
        let registration = opened
            .registry
            .map(|registry| register(&*registry, self.name));
        let timeout = self.timeout.unwrap_or(Duration::from_secs(2));
        Ok(start(Parts {
            store: opened.store,
            access,
            views,
            discord,
            follower,
            registration,
            timeout,
            limits: self.limits,
        }))
    }
}

fn register(registry: &dyn Registry, name: Option<String>) -> Registration {
    let here = Registrant::here(RegistrantKind::Client);
    registry.register(match name {
        Some(place) => Registrant { place, ..here },
        None => here,
    })
}

struct Parts {
    store: Option<Arc<dyn Store>>,
    access: Access,
    views: watch::Receiver<Arc<View>>,
    discord: watch::Receiver<Option<Arc<str>>>,
    follower: Option<AbortHandle>,
    registration: Option<Registration>,
    timeout: Duration,
    limits: ClientLimits,
}

fn start(parts: Parts) -> Client {
    let limits = parts.limits;
    let (sender, messages) = mpsc::channel(MESSAGES_MAX);
    let current = Arc::new(ArcSwap::new(Arc::clone(&parts.views.borrow())));
    let (told, table) = watch::channel(None);
    let trouble = parts.store.as_ref().map(|store| store.trouble());
    let worker = Worker::new(Setup {
        messages,
        sender: sender.downgrade(),
        views: parts.views,
        current: Arc::clone(&current),
        access: parts.access,
        traffic: limits.traffic,
        conversation: limits.conversation,
        store: parts.store,
        registration: parts.registration,
        table: told,
    });
    let follower = parts.follower;
    let task = tokio::spawn(async move {
        worker.run().await;
        if let Some(follower) = follower {
            follower.abort();
        }
    });
    // A semaphore counts to less than that.
    let share = limits.requests_bytes_max.min(u32::MAX as usize);
    Client {
        shared: Arc::new(Shared {
            messages: sender,
            current,
            table,
            trouble,
            discord: parts.discord,
            room: Arc::new(Semaphore::new(share)),
            limits: ClientLimits {
                requests_bytes_max: share,
                ..limits
            },
            task,
        }),
        timeout: parts.timeout,
    }
}

impl Source {
    fn open(self) -> Result<Opened, BuildError> {
        Ok(match self {
            #[cfg(feature = "etcd")]
            Self::Etcd(pool, options) => {
                let store = Arc::new(EtcdStore::open(&pool, *options)?);
                Opened {
                    registry: Some(Arc::clone(&store) as _),
                    store: Some(store),
                    ..Opened::default()
                }
            }
            Self::Folder(dir) => {
                let store = FileStore::open_read_only(&dir, FileOptions::default());
                let store = Arc::new(store);
                Opened {
                    registry: Some(Arc::clone(&store) as _),
                    store: Some(store),
                    pool_key: Some(dir.join(POOL_KEY_FILE)),
                    fixed: None,
                }
            }
            Self::Fixed(pool) => {
                let record = Record::create(*pool, &mut || Nonce::new([0; 16]));
                let record = record.map_err(|error| BuildError::Membership {
                    why: error.to_string(),
                })?;
                Opened {
                    fixed: Some(record),
                    ..Opened::default()
                }
            }
            Self::Store(store, registry) => Opened {
                store: Some(store),
                registry,
                ..Opened::default()
            },
        })
    }
}

impl Opened {
    fn access(&self) -> Result<Access, BuildError> {
        if self.fixed.is_some() {
            return Ok(Access::Nobody);
        }
        let key = match &self.pool_key {
            Some(path) if std::env::var_os(POOL_KEY_VARIABLE).is_none() => {
                PoolKey::from_file(path)?
            }
            _ => PoolKey::from_env(POOL_KEY_VARIABLE)?,
        };
        Ok(Access::PoolKey(key))
    }
}

/// The record, once the store gives one. A store that answers without one is believed at once.
async fn first_record(store: &dyn Store, within: Duration) -> Result<Arc<Record>, BuildError> {
    let deadline = Instant::now() + within;
    loop {
        let error = match timeout_at(deadline, store.read()).await {
            Ok(Ok(Some(record))) => return Ok(record),
            Ok(Ok(None)) => return Err(BuildError::NoPool),
            Ok(Err(error)) => error,
            Err(_) => return Err(BuildError::Silent { within }),
        };
        if timeout_at(deadline, sleep(RETRY_PAUSE)).await.is_err() {
            let error = Box::new(error);
            return Err(BuildError::Unread { within, error });
        }
    }
}
