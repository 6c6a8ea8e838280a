//! The life of a `serve`: from its configuration to its last answered request.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clockwise_client::store::ReadError;
use clockwise_cluster::{Protocol, Record};
use serde::Serialize;
use tokio::time::sleep;

use super::config::{Config, RoleSet};
use super::error::ServeError;
use super::notify::Notify;
use super::reload::{Live, SetLevel};
use super::secrets::Secrets;
use super::stores::{self, Access, Holder, Opened};
use crate::admin::http::AdminListener;
use crate::admin::token::Token;
use crate::driver::Driver;
use crate::driver::memcached::MemcachedDriver;
use crate::driver::redis::{Login, Patience, RedisDriver, RedisOptions};
use crate::running::error::{Listens, RunError, check_free};
use crate::running::{
    AdminRole, Foundation, RebalancerRole, Roles, RouterRole, Running, Signal, Signals, terms,
};

/// Threads for everything but the router and the rebalancer, which have their own.
const THREADS: usize = 2;
/// What a question to another process gets at the end.
const QUESTIONS_END_WITHIN: Duration = Duration::from_millis(500);
/// Between two looks for a store that does not answer.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// What the service manager is asked for while the store is waited for: some more looks.
const MORE_TIME: Duration = Duration::from_secs(30);

/// Where a running `serve` is found.
#[derive(Clone, Debug, Serialize)]
pub struct Ready {
    /// Where clients connect, if they do.
    pub listen: Option<SocketAddr>,
    /// Where the admin API listens, if there is one.
    pub admin: Option<SocketAddr>,
    /// Which pool.
    pub pool: String,
    /// What it does.
    pub roles: String,
    /// The epoch it began with.
    #[serde(skip)]
    pub epoch: u64,
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            listen,
            admin,
            pool,
            roles,
            epoch,
        } = self;
        f.write_str("ready")?;
        if let Some(listen) = listen {
            write!(f, " listen={listen}")?;
        }
        if let Some(admin) = admin {
            write!(f, " admin={admin}")?;
        }
        write!(f, " pool={pool} roles={roles} epoch={epoch}")
    }
}

/// Looks at a configuration and at all files that it names, and starts nothing.
///
/// # Errors
/// What `serve` would say before it speaks to anybody.
pub fn check(config: &Config) -> Result<(), ServeError> {
    let secrets = secrets(config)?;
    Ok(stores::check(&config.store, secrets.etcd.as_ref())?)
}

/// Runs until a signal or a call ends it, or until it cannot start.
///
/// `announce` is called once the process serves; if it fails nobody is left to serve.
///
/// # Errors
/// Why it did not start, or which part of it ended by itself.
pub fn run<E: From<ServeError>>(
    config: Config,
    set_level: SetLevel<'_>,
    announce: impl FnOnce(&Ready) -> Result<(), E>,
) -> Result<(), E> {
    let system = |what| move |error| ServeError::from(RunError::system(what)(error));
    let secrets = secrets(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(system("a runtime"))?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::to_end_or_reload().map_err(system("signal handlers"))?;
        let notify = Notify::from_environment();
        let started = tokio::select! {
            started = Served::start(config, secrets, &notify) => started?,
            () = signals.end() => {
                tracing::info!("signal received while starting, ending");
                notify.stopping();
                return Ok(());
            }
        };
        let Served { ready, mut live } = started;
        let outcome = match announce(&ready) {
            Ok(()) => {
                notify.ready(&ready.to_string());
                serve(&mut live, &mut signals, set_level, &notify)
                    .await
                    .map_err(E::from)
            }
            unheard => unheard,
        };
        notify.stopping();
        live.running.end().await;
        outcome
    });
    // A question to another process's admin API may still wait for its answer, which nobody reads.
    runtime.shutdown_timeout(QUESTIONS_END_WITHIN);
    outcome
}

fn secrets(config: &Config) -> Result<Secrets, ServeError> {
    Secrets::read(config).map_err(|errors| ServeError::Secrets {
        file: config.file.clone(),
        errors,
    })
}

/// Returns when all of it is to end, or with the part that has ended by itself.
async fn serve(
    live: &mut Live,
    signals: &mut Signals,
    set_level: SetLevel<'_>,
    notify: &Notify,
) -> Result<(), ServeError> {
    let told = live.running.told_to_end();
    tokio::pin!(told);
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::End => {
                    tracing::info!("signal received, ending");
                    return Ok(());
                }
                Signal::Reload => {
                    notify.reloading();
                    let words = live.reload(set_level).await;
                    notify.ready(&words);
                }
            },
            () = &mut told => {
                tracing::info!("told to end");
                return Ok(());
            }
            part = live.running.parts.first_to_end() => {
                tracing::error!(%part, "a part of this process ended by itself; all of it ends");
                return Err(RunError::PartEnded { part }.into());
            }
        }
    }
}

struct Served {
    ready: Ready,
    live: Live,
}

impl Served {
    async fn start(config: Config, secrets: Secrets, notify: &Notify) -> Result<Self, ServeError> {
        let RoleSet {
            router,
            rebalancer,
            admin,
        } = config.roles;
        if router {
            check_free(Listens::Clients, config.router.listen)?;
        }
        // Bound before the store is opened: whoever leads says there where it can be asked.
        let at = match admin {
            true => Some(bind_admin(&config).await?),
            false => None,
        };
        let opened = open(&config, &secrets, at.as_ref())?;
        let record = first_record(&config, &opened, notify).await?;
        let driver = driver(&config, &secrets, &record);
        let of_pool: Arc<dyn Driver> = match record.protocol() {
            Protocol::Memcached => Arc::new(MemcachedDriver),
            _ => Arc::new(driver.clone()),
        };
        if let Some(file) = opened.file().filter(|_| rebalancer) {
            terms::restore(file, &*of_pool, &record).await;
        }
        let token = secrets.token.clone().map(Token::from);
        let pool_key = || secrets.pool_key.clone();
        let roles = Roles {
            router: pool_key().filter(|_| router).map(|pool_key| RouterRole {
                listen: config.router.listen,
                workers: config.router.workers,
                limits: config.router.limits.clone(),
                password: secrets.clients.clone(),
                pool_key,
            }),
            rebalancer: pool_key()
                .filter(|_| rebalancer)
                .map(|pool_key| RebalancerRole { pool_key }),
            admin: at.zip(token.clone()).map(|(at, token)| AdminRole {
                at,
                token,
                fleet: None,
            }),
        };
        let foundation = Foundation {
            store: Arc::clone(&opened.store),
            registry: Arc::clone(&opened.registry),
            record: Arc::clone(&record),
            driver: of_pool,
        };
        let running = Running::start(foundation, roles).await?;
        let ready = Ready {
            listen: running.listen(),
            admin: running.admin.as_ref().map(|admin| admin.address()),
            pool: config.pool.to_string(),
            roles: config.roles.to_string(),
            epoch: record.epoch().get(),
        };
        let live = Live {
            config,
            secrets,
            driver,
            opened,
            token,
            running,
        };
        Ok(Self { ready, live })
    }
}

async fn bind_admin(config: &Config) -> Result<AdminListener, RunError> {
    let address = config.admin.listen;
    let bound = AdminListener::bind(address).await;
    let at = bound.map_err(|source| RunError::Listen {
        what: Listens::Admin,
        address,
        source,
    })?;
    Ok(match &config.admin.advertise {
        Some(name) => at.known_as(name.clone()),
        None => at,
    })
}

fn open(
    config: &Config,
    secrets: &Secrets,
    admin: Option<&AdminListener>,
) -> Result<Opened, ServeError> {
    let address = admin.map(AdminListener::address);
    // An address that means every one of this machine's is none for others.
    let own = address.filter(|address| !address.ip().is_unspecified());
    let contact = config.admin.advertise.clone().filter(|_| admin.is_some());
    let holder = Holder {
        name: config.name.clone(),
        contact: contact.or(own.map(|address| address.to_string())),
    };
    let access = match config.roles.rebalancer || config.roles.admin {
        true => Access::Write,
        false => Access::Read,
    };
    let password = secrets.etcd.as_ref();
    Ok(stores::open(
        &config.store,
        &config.pool,
        password,
        holder,
        access,
    )?)
}

/// The record to begin with. A store that does not answer is waited for: it may be started after us.
async fn first_record(
    config: &Config,
    opened: &Opened,
    notify: &Notify,
) -> Result<Arc<Record>, ServeError> {
    let store = config.store.to_string();
    let mut waits = false;
    loop {
        match opened.store.read().await {
            Ok(Some(record)) if *record.pool() != config.pool => {
                return Err(ServeError::OtherPool {
                    store,
                    pool: config.pool.clone(),
                    found: record.pool().clone(),
                });
            }
            Ok(Some(record)) => return Ok(record),
            Ok(None) => {
                return Err(ServeError::NoPool {
                    store,
                    pool: config.pool.clone(),
                    file: config.file.clone(),
                });
            }
            Err(ReadError::Unreachable { why }) => {
                if !waits {
                    tracing::warn!(
                        store,
                        why,
                        "the record's store does not answer; waiting for it"
                    );
                }
                waits = true;
                notify.waiting("waiting for the record's store", MORE_TIME);
                sleep(READ_AGAIN_AFTER).await;
            }
            Err(error) => {
                let error = Box::new(error);
                return Err(ServeError::Read { store, error });
            }
        }
    }
}

/// Speaks to the nodes as their administrator; where no role needs that, it is never asked to.
fn driver(config: &Config, secrets: &Secrets, record: &Record) -> RedisDriver {
    RedisDriver::new(RedisOptions {
        administrator: administrator(config, secrets),
        scripts: record.options().scripts,
        patience: Patience::default(),
    })
}

/// Who makes the users of terms, on every node.
pub(super) fn administrator(config: &Config, secrets: &Secrets) -> Login {
    Login {
        user: config.nodes.admin_user.clone(),
        password: secrets
            .nodes
            .as_ref()
            .map(|password| password.reveal().to_owned()),
    }
}
