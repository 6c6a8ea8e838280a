//! Router, rebalancer and admin API over one record: any of them, begun and ended in the right order.

use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use clockwise_client::credentials::{Password, PoolKey};
use clockwise_client::store::{Registry, Store};
use clockwise_client::views::{self, Views};
use clockwise_cluster::Record;
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::doors::wait_for_doors;
use super::error::{Listens, RunError};
use super::own_thread::OwnThread;
use super::parts::{Part, Parts};
use super::registered::Registrations;
use super::trouble;
use crate::admin::calls::calls;
use crate::admin::counts::Counts;
use crate::admin::elsewhere::Elsewhere;
use crate::admin::http::{AdminLimits, AdminListener, AdminServer};
use crate::admin::operator::Operator;
use crate::admin::service::Service;
use crate::admin::token::Token;
use crate::driver::Driver;
use crate::rebalancer::{self, LEADER, RebalancerConfig, RebalancerHandle};
use crate::router::{Limits, Router, RouterConfig, RouterHandle, Secrets};
use crate::up::fleet::Fleet;

/// What requests under way get at the end.
const DRAIN_WITHIN: Duration = Duration::from_secs(3);
/// What moves under way get to hold still.
const MOVES_HOLD_WITHIN: Duration = Duration::from_secs(3);
/// What calls of the admin API get.
const CALLS_END_WITHIN: Duration = Duration::from_secs(1);
/// How often, and how many times, it is asked whether a call still looks at the router.
const UNSHARED_EVERY: Duration = Duration::from_millis(5);
const UNSHARED_LOOKS: u32 = 100;

/// What all roles of a process stand on.
pub(crate) struct Foundation {
    /// Where the record is.
    pub(crate) store: Arc<dyn Store>,
    /// Where those who route by it say so.
    pub(crate) registry: Arc<dyn Registry>,
    /// The record that is begun with.
    pub(crate) record: Arc<Record>,
    /// Speaks to the nodes.
    pub(crate) driver: Arc<dyn Driver>,
}

/// What a process is to do.
#[derive(Default)]
pub(crate) struct Roles {
    pub(crate) router: Option<RouterRole>,
    pub(crate) rebalancer: Option<RebalancerRole>,
    pub(crate) admin: Option<AdminRole>,
}

/// Serving clients.
pub(crate) struct RouterRole {
    pub(crate) listen: SocketAddr,
    /// Threads; as many as there are cores without it.
    pub(crate) workers: Option<u16>,
    pub(crate) limits: Limits,
    /// What clients must give.
    pub(crate) password: Option<Password>,
    /// What passwords of clients at the nodes follow from.
    pub(crate) pool_key: PoolKey,
}

/// Leading the pool, if nobody else does.
pub(crate) struct RebalancerRole {
    /// What passwords of clients at the nodes follow from.
    pub(crate) pool_key: PoolKey,
}

/// Answering operators.
pub(crate) struct AdminRole {
    pub(crate) at: AdminListener,
    pub(crate) token: Token,
    /// The servers of this process, where it has any.
    pub(crate) fleet: Option<Fleet>,
}

/// All that runs.
pub(crate) struct Running {
    pub(crate) router: Option<Arc<RouterHandle>>,
    pub(crate) rebalancer: Option<Arc<RebalancerHandle>>,
    pub(crate) admin: Option<AdminServer>,
    pub(crate) parts: Parts,
    // Where the rebalancer runs, until it is dropped.
    mover: Option<OwnThread>,
    ending: watch::Sender<bool>,
    draining: watch::Sender<bool>,
    notices: watch::Sender<Vec<String>>,
    registrations: Registrations,
    // Made of the record as long as anybody looks; where no role does, this one.
    _views: Views,
    tasks: Vec<AbortHandle>,
}

impl Running {
    /// Begins with what nobody sees, and ends with the admin API, which shows all of it.
    ///
    /// # Errors
    /// An address that is taken, a record that makes no view, or a system that gives no threads. What had been
    /// begun is ended.
    pub(crate) async fn start(foundation: Foundation, roles: Roles) -> Result<Self, RunError> {
        let Foundation {
            store,
            registry,
            record,
            driver,
        } = foundation;
        let (views, viewer) = views::publish(&record, store.as_ref())?;
        let (mut parts, mut tasks) = (Parts::default(), Vec::new());
        tasks.push(parts.watch_task(Part::Views, viewer));
        let teller = tokio::spawn(trouble::tell(store.watch(), store.trouble()));
        tasks.push(teller.abort_handle());
        let mut mover = None;
        let mut rebalancer = None;
        if let Some(role) = roles.rebalancer {
            let config = RebalancerConfig {
                store: Arc::clone(&store),
                driver: Arc::clone(&driver),
                pool_key: role.pool_key,
                name: LEADER.to_owned(),
                registry: Some(Arc::clone(&registry)),
            };
            let (thread, handle) = start_rebalancer(config)?;
            parts.watch(Part::Rebalancer, handle.ended());
            wait_for_doors(&handle).await;
            (mover, rebalancer) = (Some(thread), Some(handle));
        }
        let mut router = None;
        if let Some(role) = roles.router {
            let handle = Arc::new(start_router(role, &views)?);
            parts.watch(Part::Router, handle.part_ended());
            let halting = tokio::spawn(halt(views.clone(), Arc::downgrade(&handle)));
            tasks.push(parts.watch_task(Part::Views, halting));
            router = Some(handle);
        }
        let acts = (router.as_ref(), rebalancer.is_some());
        let registrations = Registrations::begin(&*registry, acts, views.newest.clone());
        let (ending, draining) = (watch::Sender::new(false), watch::Sender::new(false));
        let notices = watch::Sender::new(Vec::new());
        let mut admin = None;
        if let Some(role) = roles.admin {
            let service = Service {
                operator: Operator::new(Arc::clone(&store)),
                registry,
                driver,
                counts: Counts::default(),
                router: router.as_ref().map(Arc::downgrade),
                fleet: role.fleet,
                views: views.newest.clone(),
                discord: views.discord.clone(),
                trouble: store.trouble(),
                rebalancer: rebalancer.clone(),
                elsewhere: Elsewhere::new(store, role.token.clone()),
                ending: ending.clone(),
                draining: draining.subscribe(),
                notices: notices.subscribe(),
                adding: Mutex::default(),
            };
            let server = AdminServer::start(
                role.at,
                role.token,
                calls(Arc::new(service)),
                AdminLimits::default(),
            );
            parts.watch(Part::Admin, server.ended());
            admin = Some(server);
        }
        Ok(Self {
            router,
            rebalancer,
            admin,
            parts,
            mover,
            ending,
            draining,
            notices,
            registrations,
            _views: views,
            tasks,
        })
    }

    /// Returns once a call of the admin API has asked for the end.
    pub(crate) fn told_to_end(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ending = self.ending.subscribe();
        async move {
            // An error means that everybody who could ask is gone, which this is not.
            if ending.wait_for(|ending| *ending).await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Where clients connect, if they do.
    pub(crate) fn listen(&self) -> Option<SocketAddr> {
        self.router.as_ref().map(|router| router.addr())
    }

    /// What is wrong with this process, in words, for whoever asks how the pool is.
    pub(crate) fn notice(&self, words: Vec<String>) {
        self.notices.send_replace(words);
    }

    /// Adds what else must not end by itself.
    pub(crate) fn watch_task(&mut self, part: Part, task: tokio::task::JoinHandle<()>) {
        let handle = self.parts.watch_task(part, task);
        self.tasks.push(handle);
    }

    /// Clients first, then moves: nothing is taken away from under what still uses it. The admin API answers
    /// while clients go, and says that it is not ready.
    pub(crate) async fn end(self) {
        self.draining.send_replace(true);
        // From here on they are meant to end.
        drop(self.parts);
        if let Some(router) = self.router {
            match unshared(router).await {
                Some(router) => router.drain(DRAIN_WITHIN).await,
                None => tracing::warn!("clients are cut off: somebody still looks at the router"),
            }
        }
        let admin = async {
            if let Some(admin) = self.admin {
                admin.stop(CALLS_END_WITHIN).await;
            }
        };
        tokio::join!(admin, self.registrations.end());
        if let Some(rebalancer) = &self.rebalancer {
            // A call that was begun may hold it still.
            let shutdown = timeout(MOVES_HOLD_WITHIN, rebalancer.shutdown()).await;
            if shutdown.is_err() {
                tracing::warn!(
                    "moves did not hold still in time; whoever leads next goes on from the record"
                );
            }
        }
        drop(self.mover);
        for task in self.tasks {
            task.abort();
        }
    }

    #[cfg(test)]
    pub(crate) fn abort_task(&self, at: usize) {
        self.tasks[at].abort();
    }

    #[cfg(test)]
    pub(crate) fn end_mover(&mut self) {
        self.mover = None;
    }
}

/// What nobody else looks at any more; a call that asks for numbers has it for a moment.
async fn unshared<T>(mut shared: Arc<T>) -> Option<T> {
    for _ in 0..UNSHARED_LOOKS {
        match Arc::try_unwrap(shared) {
            Ok(unshared) => return Some(unshared),
            Err(still) => shared = still,
        }
        sleep(UNSHARED_EVERY).await;
    }
    None
}

fn start_rebalancer(
    config: RebalancerConfig,
) -> Result<(OwnThread, Arc<RebalancerHandle>), RunError> {
    let thread =
        OwnThread::start("rebalancer").map_err(RunError::system("a thread for the rebalancer"))?;
    let handle = {
        let _there = thread.enter();
        Arc::new(rebalancer::start(config))
    };
    Ok((thread, handle))
}

fn start_router(role: RouterRole, views: &Views) -> Result<RouterHandle, RunError> {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    Router::start(RouterConfig {
        listen: role.listen,
        workers: role.workers.map_or_else(cores, usize::from),
        limits: role.limits,
        secrets: Secrets {
            pool_key: Some(role.pool_key),
            password: role.password,
        },
        view: views.newest.clone(),
    })
    .map_err(|source| RunError::Listen {
        what: Listens::Clients,
        address: role.listen,
        source,
    })
}

/// Has the router refuse requests while the record says two things of one epoch.
async fn halt(mut views: Views, router: Weak<RouterHandle>) {
    loop {
        let why = views.discord.borrow_and_update().clone();
        match router.upgrade() {
            Some(router) => router.halt(why),
            None => return std::future::pending().await,
        }
        if views.discord.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}
