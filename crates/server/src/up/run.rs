//! `up`: nodes, router, rebalancer and admin API in one process, from the first signal handler to the last saved byte.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clockwise_client::credentials::{Password, PoolKey};
use clockwise_client::store::{FileOptions, FileStore, OpenError, Store};
use clockwise_cluster::{Epoch, Protocol, Record};
use serde::Serialize;
use tokio::task::JoinHandle;

use super::data_dir::{
    ADMIN_ADDRESS, ADMIN_TOKEN, DataDir, LISTEN_ADDRESS, LOCK, NODES_PASSWORD, POOL_KEY,
};
use super::error::UpError;
use super::first::{self, First, FirstError, Wish};
use super::fleet::{Fleet, Which};
use super::node_server::{NodeServers, Persist, Program};
use super::settings::{ClientLogin, Engine, Settings, SettingsError};
use super::{continued, process, retire};
use crate::admin::http::AdminListener;
use crate::driver::Driver;
use crate::driver::memcached::MemcachedDriver;
use crate::driver::redis::{Login, Patience, RedisDriver, RedisOptions};
use crate::embedded::{EmbeddedDriver, EmbeddedNodes, EmbeddedOptions};
use crate::router::Limits;
use crate::running::error::{Listens, RunError, check_free};
use crate::running::parts::Part;
use crate::running::{
    AdminRole, Foundation, RebalancerRole, Roles, RouterRole, Running, Signals, terms,
};

/// From the signal to the last server's end; a person is promised ten seconds.
const END_WITHIN: Duration = Duration::from_secs(9);
/// Threads for everything but the router, which has its own.
const THREADS: usize = 2;

/// What a person may say to `up`.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where the admin API listens.
    pub admin: SocketAddr,
    /// Where everything is kept.
    pub dir: PathBuf,
    /// What a new folder's pool is made with.
    pub wish: Wish,
    /// What the nodes are.
    pub engine: Option<Engine>,
    /// What redis-servers keep over a restart.
    pub persist: Option<Persist>,
    /// Threads of the router.
    pub workers: Option<u16>,
    /// What clients must give.
    pub clients: ClientLogin,
}

/// Where a running `up` is found.
#[derive(Clone, Debug, Serialize)]
pub struct Ready {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where the admin API listens.
    pub admin: SocketAddr,
    /// Where everything is kept.
    pub dir: PathBuf,
    /// The epoch it began with.
    #[serde(skip)]
    pub epoch: u64,
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            listen,
            admin,
            dir,
            epoch,
        } = self;
        write!(
            f,
            "ready listen={listen} admin={admin} dir={} epoch={epoch}",
            dir.display()
        )
    }
}

/// Runs until a signal or a call ends it, or until it cannot start.
///
/// `announce` is called once clients can connect; if it fails nobody is left to serve.
///
/// # Errors
/// Why it did not start; what had been started by then was ended. Or which part of it ended by itself, after
/// which the rest was ended in good order.
pub fn run<E: From<UpError>>(
    options: &UpOptions,
    announce: impl FnOnce(&Ready) -> Result<(), E>,
) -> Result<(), E> {
    let system = |what| move |error| UpError::from(RunError::system(what)(error));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(system("a runtime"))?;
    runtime.block_on(async {
        let mut signals = Signals::to_end().map_err(system("signal handlers"))?;
        let ground = Ground::prepare(options).await?;
        let started = tokio::select! {
            started = Cluster::start(options, &ground) => started,
            () = signals.end() => {
                tracing::info!("signal received while starting, ending");
                ground.end(Which::Started, Instant::now() + END_WITHIN).await;
                return Ok(());
            }
        };
        let mut cluster = match started {
            Ok(cluster) => cluster,
            Err(error) => {
                ground
                    .end(Which::Started, Instant::now() + END_WITHIN)
                    .await;
                return Err(error.into());
            }
        };
        let outcome = match announce(&cluster.ready(&ground)) {
            Ok(()) => cluster.serve(&mut signals).await.map_err(E::from),
            unheard => unheard,
        };
        cluster.end(ground).await;
        outcome
    })
}

/// What a cluster stands on: the folder, its lock, its secrets, and the servers.
struct Ground {
    dir: DataDir,
    // Holds the folder's lock, so it outlives everything else.
    store: Arc<FileStore>,
    pool_key: PoolKey,
    client_password: Option<Password>,
    nodes: Nodes,
    fleet: Fleet,
    // The task that owns processes, where there are any.
    keeper: Option<JoinHandle<()>>,
}

/// What it takes to look into nodes.
enum Nodes {
    /// They are here.
    Embedded(EmbeddedNodes),
    /// Their administrator's password.
    Redis(Password),
    /// Whoever reaches them is let in.
    Memcached,
}

impl Nodes {
    /// What they speak.
    fn protocol(&self) -> Protocol {
        match self {
            Self::Embedded(_) | Self::Redis(_) => Protocol::Redis,
            Self::Memcached => Protocol::Memcached,
        }
    }
}

/// Whoever starts servers of a kind below a folder, once it is known that they can be started.
fn start_fleet(dir: &DataDir, program: Program) -> Result<(Fleet, JoinHandle<()>), UpError> {
    let servers = NodeServers::new(dir.clone(), program);
    servers.check_binary()?;
    Ok(Fleet::of_processes(servers))
}

impl Ground {
    async fn prepare(options: &UpOptions) -> Result<Self, UpError> {
        let dir = DataDir::create(&options.dir)?;
        let store = match FileStore::open(dir.path(), FileOptions::default()) {
            Ok(store) => Arc::new(store),
            Err(OpenError::Locked { dir, pid }) => return Err(UpError::InUse { dir, pid }),
            Err(error) => return Err(error.into()),
        };
        if let Some(holder) = process::holding_removed(&dir.path().join(LOCK)) {
            let (dir, pid) = (dir.path().to_owned(), u32::try_from(holder.pid).ok());
            return Err(UpError::InUse { dir, pid });
        }
        if options.engine.is_none()
            && Settings::kept(&dir)?.is_none()
            && store.read().await.map_err(FirstError::from)?.is_some()
        {
            return Err(SettingsError::Gone.into());
        }
        let settings = Settings::choose(&dir, options.engine, options.persist, &options.clients)?;
        let engine = settings.engine;
        if engine != Engine::Redis && options.wish.scripts {
            return Err(UpError::NoScripts { engine });
        }
        if engine != Engine::Redis && options.persist.is_some() {
            return Err(UpError::NoPersistence { engine });
        }
        if engine != Engine::Memcached && options.wish.flush_all {
            return Err(UpError::NoFlushAll);
        }
        let client_password = match &options.clients {
            ClientLogin::PasswordOf(file) => Some(Password::from_file(file)?),
            ClientLogin::Unsaid | ClientLogin::Nothing => None,
        };
        check_free(Listens::Clients, options.listen)?;
        check_free(Listens::Admin, options.admin)?;
        let pool_key = PoolKey::load_or_create(&dir.path().join(POOL_KEY))?;
        let (nodes, fleet, keeper) = match settings.engine {
            Engine::Embedded => {
                tracing::warn!("embedded nodes keep data in memory only: a restart loses it");
                let nodes = EmbeddedNodes::new(EmbeddedOptions::default());
                let fleet = Fleet::embedded(nodes.clone(), dir.clone());
                (Nodes::Embedded(nodes), fleet, None)
            }
            Engine::Redis => {
                let password = Password::load_or_create(&dir.path().join(NODES_PASSWORD))?;
                let program = Program::Redis {
                    persist: settings.persist,
                    password: password.clone(),
                };
                let (fleet, keeper) = start_fleet(&dir, program)?;
                (Nodes::Redis(password), fleet, Some(keeper))
            }
            Engine::Memcached => {
                let (fleet, keeper) = start_fleet(&dir, Program::Memcached)?;
                (Nodes::Memcached, fleet, Some(keeper))
            }
        };
        settings.keep(&dir)?;
        Ok(Self {
            dir,
            store,
            pool_key,
            client_password,
            nodes,
            fleet,
            keeper,
        })
    }

    /// Speaks to the nodes as the rebalancer does.
    fn driver(&self, record: &Record) -> Arc<dyn Driver> {
        match &self.nodes {
            Nodes::Embedded(nodes) => Arc::new(EmbeddedDriver::new(nodes.clone())),
            Nodes::Memcached => Arc::new(MemcachedDriver),
            Nodes::Redis(password) => Arc::new(RedisDriver::new(RedisOptions {
                // The server's own user is the administrator here.
                administrator: Login {
                    user: "default".to_owned(),
                    password: Some(password.reveal().to_owned()),
                },
                scripts: record.options().scripts,
                patience: Patience::default(),
            })),
        }
    }

    async fn end(self, which: Which, deadline: Instant) {
        for error in self.fleet.end_all(which, deadline).await {
            tracing::error!(%error, "a server does not end");
        }
        drop(self.fleet);
        if let Some(keeper) = self.keeper
            && let Err(error) = keeper.await
        {
            tracing::error!(%error, "the servers' keeper failed");
        }
    }
}

/// Everything that serves.
struct Cluster {
    epoch: Epoch,
    listen: SocketAddr,
    admin: SocketAddr,
    running: Running,
}

impl Cluster {
    async fn start(options: &UpOptions, ground: &Ground) -> Result<Self, UpError> {
        let store: Arc<dyn Store> = Arc::clone(&ground.store) as Arc<dyn Store>;
        let protocol = ground.nodes.protocol();
        let First { record, pasts } = first::settle(
            store.as_ref(),
            &ground.dir,
            &ground.fleet,
            options.wish,
            protocol,
        )
        .await?;
        let driver = ground.driver(&record);
        terms::restore(&ground.store, &*driver, &record).await;
        let record = continued::recognise(store.as_ref(), &*driver, record, &pasts).await;
        let epoch = record.epoch();
        let retirer = retire::follow(store.as_ref(), ground.fleet.clone());
        let token = Password::load_or_create(&ground.dir.path().join(ADMIN_TOKEN))?;
        let at = AdminListener::bind(options.admin).await;
        let at = at.map_err(|source| RunError::Listen {
            what: Listens::Admin,
            address: options.admin,
            source,
        })?;
        let admin = at.address();
        let roles = Roles {
            router: Some(RouterRole {
                listen: options.listen,
                workers: options.workers,
                limits: Limits::default(),
                password: ground.client_password.clone(),
                pool_key: ground.pool_key.clone(),
            }),
            rebalancer: Some(RebalancerRole {
                pool_key: ground.pool_key.clone(),
            }),
            admin: Some(AdminRole {
                at,
                token: token.into(),
                fleet: Some(ground.fleet.clone()),
            }),
        };
        let foundation = Foundation {
            store,
            registry: Arc::clone(&ground.store) as _,
            record,
            driver,
        };
        let mut running = Running::start(foundation, roles).await?;
        running.watch_task(Part::Retirer, retirer);
        let keeper = ground.fleet.keeper_ended();
        running.parts.watch(Part::Keeper, keeper);
        let listen = running.listen().unwrap_or(options.listen);
        ground.dir.write(LISTEN_ADDRESS, &listen.to_string())?;
        ground.dir.write(ADMIN_ADDRESS, &admin.to_string())?;
        Ok(Self {
            epoch,
            listen,
            admin,
            running,
        })
    }

    /// Returns when all of it is to end, or with the part that has ended by itself.
    async fn serve(&mut self, signals: &mut Signals) -> Result<(), UpError> {
        let told = self.running.told_to_end();
        tokio::select! {
            () = signals.end() => tracing::info!("signal received, ending"),
            () = told => tracing::info!("told to end"),
            part = self.running.parts.first_to_end() => {
                tracing::error!(%part, "a part of this process ended by itself; all of it ends");
                return Err(RunError::PartEnded { part }.into());
            }
        }
        Ok(())
    }

    fn ready(&self, ground: &Ground) -> Ready {
        Ready {
            listen: self.listen,
            admin: self.admin,
            dir: ground.dir.path().to_owned(),
            epoch: self.epoch.get(),
        }
    }

    /// What serves first, then the servers: nothing is taken away from under what still uses it.
    async fn end(self, ground: Ground) {
        let deadline = Instant::now() + END_WITHIN;
        self.running.end().await;
        for name in [LISTEN_ADDRESS, ADMIN_ADDRESS] {
            if let Err(error) = ground.dir.remove(name) {
                tracing::warn!(%error, "an address stays in its file");
            }
        }
        ground.end(Which::All, deadline).await;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::time::timeout;

    use super::*;
    use crate::cli::exit::{Exit, Failure};

    const NOTICED_WITHIN: Duration = Duration::from_secs(60);

    fn options(dir: &Path) -> UpOptions {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        UpOptions {
            listen: any,
            admin: any,
            dir: dir.to_owned(),
            wish: Wish {
                nodes: Some(1),
                ..Wish::default()
            },
            engine: Some(Engine::Embedded),
            persist: None,
            workers: Some(1),
            clients: ClientLogin::Unsaid,
        }
    }

    /// Ends a part as a panic would, and expects the rest to end with it and to say which part it was.
    async fn check(part: Part, end: fn(&mut Cluster)) {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let ground = Ground::prepare(&options).await.unwrap();
        let mut signals = Signals::to_end().unwrap();
        let mut cluster = Cluster::start(&options, &ground).await.unwrap();
        end(&mut cluster);
        let served = timeout(NOTICED_WITHIN, cluster.serve(&mut signals)).await;
        let error = served.expect("it is noticed").unwrap_err();
        assert!(
            matches!(error, UpError::Run(RunError::PartEnded { part: ended }) if ended == part),
            "{part}: {error}"
        );
        cluster.end(ground).await;
        assert!(!folder.path().join(LISTEN_ADDRESS).exists(), "{part}");
        let told = Failure::from(error);
        assert_eq!(told.exit, Exit::Failed);
        assert!(told.message.contains(&part.to_string()), "{told}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_end_of_one_part_is_the_end_of_all() {
        check(Part::Views, |cluster| cluster.running.abort_task(0)).await;
        check(Part::Retirer, |cluster| cluster.running.abort_task(3)).await;
        check(Part::Rebalancer, |cluster| cluster.running.end_mover()).await;
    }
}
