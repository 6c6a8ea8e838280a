//! Moves data between nodes when the record says so: leads, runs the handoffs of the change in flight,
//! and decides whom each node lets in.
//!
//! The decisions are those of [`clockwise_cluster::handoff`]; here they meet servers, a store and a clock.
//! One process at a time leads. Under its term there is one task for each node (`station`), one for
//! each handoff (`engine`), and one that conducts them (`conduct`). Whoever leads next goes on from the
//! record alone.

mod accept;
mod cache;
mod conduct;
mod engine;
mod estimate;
mod lead;
mod mandate;
mod preflight;
mod progress;
mod station;
mod stations;
mod storing;
mod translate;
mod watchdog;

use std::fmt;
use std::sync::Arc;

use clockwise_client::credentials::PoolKey;
use clockwise_client::store::{CommitError, LeadError, NextError, Registry, Store};
use clockwise_placement::NodeId;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::driver::Driver;
pub use accept::{AcceptError, accept};
pub use cache::preflight_of_cache;
pub use preflight::{Trial, preflight};
pub use progress::{ChangeProgress, HandoffProgress, Progress};
pub use station::Door;

/// Under which name of the store rebalancers lead.
pub const LEADER: &str = "rebalancer";

/// Requests that may wait while a record is being read.
const REQUESTS_MAX: usize = 16;

/// What a rebalancer needs.
#[derive(Clone)]
pub struct RebalancerConfig {
    /// Where the pool's record is.
    pub store: Arc<dyn Store>,
    /// Speaks to its nodes.
    pub driver: Arc<dyn Driver>,
    /// What client passwords follow from.
    pub pool_key: PoolKey,
    /// Under which name it leads.
    pub name: String,
    /// Who routes by the record, where that is known. Where servers cannot be fenced these are waited for.
    pub registry: Option<Arc<dyn Registry>>,
}

/// A rebalancer that runs. Dropping it ends its tasks where they are, as a crash would.
#[derive(Debug)]
pub struct RebalancerHandle {
    store: Arc<dyn Store>,
    driver: Arc<dyn Driver>,
    requests: mpsc::Sender<Request>,
    progress: watch::Receiver<Progress>,
    stop: CancellationToken,
    // Cancelled when the task has ended, however it did.
    ended: CancellationToken,
    task: JoinHandle<()>,
}

/// Starts a rebalancer: it leads as soon as it can, and does what the record asks for.
#[must_use]
pub fn start(config: RebalancerConfig) -> RebalancerHandle {
    let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
    let (reporter, progress) = Reporter::new();
    let stop = CancellationToken::new();
    let (store, driver) = (Arc::clone(&config.store), Arc::clone(&config.driver));
    let ended = CancellationToken::new();
    let (stopped, end) = (stop.clone(), ended.clone().drop_guard());
    let task = tokio::spawn(async move {
        let _end = end;
        lead::run(config, reporter, receiver, stopped).await;
    });
    RebalancerHandle {
        store,
        driver,
        requests,
        progress,
        stop,
        ended,
        task,
    }
}

impl RebalancerHandle {
    /// What it is doing.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Returns once the change in flight, if there is one, goes back.
    ///
    /// # Errors
    /// Nothing to take back, something that cannot be, or a process that does not lead.
    pub async fn abort(&self) -> Result<(), AbortRefused> {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(Request::Abort(reply)).await.is_err() {
            return Err(AbortRefused::NotLeading);
        }
        answer.await.unwrap_or(Err(AbortRefused::NotLeading))
    }

    /// Begins handoffs again that stopped, after whatever stopped them was mended. Returns when they have begun.
    ///
    /// # Errors
    /// When this process does not lead: nobody here can begin anything.
    pub async fn retry(&self) -> Result<(), NotLeading> {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(Request::Retry(reply)).await.is_err() {
            return Err(NotLeading);
        }
        answer.await.map_err(|_| NotLeading)
    }

    /// Takes a target that came back as another run after it had become an owner as it is: it lets its
    /// clients in again, and its source is cleaned.
    ///
    /// # Errors
    /// A node that cannot be looked at, or none that anything in flight has flipped to.
    pub async fn accept(&self, target: &NodeId) -> Result<(), NextError<AcceptError>> {
        accept(&*self.store, &*self.driver, target).await?;
        // Whoever leads next finds it in the record.
        let _nobody_leads = self.retry().await;
        Ok(())
    }

    /// Returns once it has ended, however that was: until [`shutdown`](Self::shutdown) is called it should not.
    pub fn ended(&self) -> WaitForCancellationFutureOwned {
        self.ended.clone().cancelled_owned()
    }

    /// Holds every handoff still with no request left waiting, gives the leadership up, and returns when
    /// all tasks have ended.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.ended.cancelled().await;
    }
}

impl Drop for RebalancerHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What may be asked of the leader.
pub(crate) enum Request {
    Abort(oneshot::Sender<Result<(), AbortRefused>>),
    // Dropped by whoever does not lead.
    Retry(oneshot::Sender<()>),
}

/// Why nothing was aborted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AbortRefused {
    /// No change is in flight.
    #[error("no change is in flight")]
    NoChange,
    /// It is on its way back already.
    #[error("the change is on its way back already")]
    GoingBack,
    /// This process does not lead.
    #[error("this process does not lead the pool")]
    NotLeading,
    /// The record does not allow it.
    #[error("{0}")]
    Record(String),
    /// Others kept changing the record.
    #[error("somebody else keeps changing the record")]
    Contended,
    /// The record could not be changed.
    #[error(transparent)]
    Store(CommitError),
}

/// Nobody in this process can act for the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this process does not lead the pool")]
pub struct NotLeading;

/// Where progress is made public.
pub(crate) struct Reporter(watch::Sender<Progress>);

impl Reporter {
    fn new() -> (Self, watch::Receiver<Progress>) {
        let (sender, receiver) = watch::channel(Progress::default());
        (Self(sender), receiver)
    }

    fn term(&self, term: Option<clockwise_cluster::Term>) {
        self.update(|progress| {
            progress.term = term;
            progress.cannot_lead = None;
            progress.led_elsewhere = false;
        });
    }

    fn cannot_lead(&self, why: &LeadError) {
        self.update(|progress| {
            progress.cannot_lead = Some(why.to_string());
            progress.led_elsewhere = matches!(why, LeadError::Held { .. });
        });
    }

    fn doors(&self, doors: Vec<(NodeId, Door)>) {
        self.update(|progress| progress.doors = doors);
    }

    fn change(&self, change: Option<ChangeProgress>) {
        self.update(|progress| progress.change = change);
    }

    fn update(&self, change: impl FnOnce(&mut Progress)) {
        self.0.send_if_modified(|progress| {
            let before = progress.clone();
            change(progress);
            before != *progress
        });
    }
}

impl fmt::Debug for RebalancerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RebalancerConfig")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
