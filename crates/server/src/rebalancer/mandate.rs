//! What acting for a pool under one term rests on: the store, the nodes' driver, the term, the clock,
//! the throttle. Shared by everything that one leadership runs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clockwise_client::credentials::PoolKey;
use clockwise_client::store::{CommitError, ReadError, Store};
use clockwise_cluster::copier::{Rate, Throttle};
use clockwise_cluster::handoff::{Entry, Situation};
use clockwise_cluster::{HandoffId, Record, Revision, Term, View};

use crate::driver::{Driver, NodeAddress};

/// The right to act under one term, and the means.
pub(super) struct Mandate {
    pub(super) store: Arc<dyn Store>,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) pool_key: PoolKey,
    pub(super) term: Term,
    throttle: Mutex<Throttle>,
    view: Mutex<Option<Arc<View>>>,
    // News from the store may come later than the answers to our own reads and commits.
    newest: Mutex<Option<Arc<Record>>>,
    // Why the store takes no commits, as long as it takes none.
    unwritable: Mutex<Option<String>>,
    began: Instant,
}

impl Mandate {
    pub(super) fn new(
        store: Arc<dyn Store>,
        driver: Arc<dyn Driver>,
        pool_key: PoolKey,
        term: Term,
    ) -> Self {
        Self {
            store,
            driver,
            pool_key,
            term,
            throttle: Mutex::new(Throttle::new(Rate::default(), 0)),
            view: Mutex::new(None),
            newest: Mutex::new(None),
            unwritable: Mutex::new(None),
            began: Instant::now(),
        }
    }

    /// Milliseconds since the term began: the time that machines and throttle see.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The newest record known here; not proof that it is the newest.
    pub(super) fn record(&self) -> Option<Arc<Record>> {
        let heard = self.store.watch().borrow().clone();
        self.learn(heard)
    }

    /// Takes in a record and returns the newest known since.
    pub(super) fn learn(&self, record: Option<Arc<Record>>) -> Option<Arc<Record>> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let known = newest.as_ref().map(|record| record.revision());
        if let Some(record) = record.filter(|record| Some(record.revision()) > known) {
            *newest = Some(record);
        }
        newest.clone()
    }

    /// Commits under this term, and takes in what that says about the record.
    pub(super) async fn commit(
        &self,
        expected: Revision,
        next: Record,
    ) -> Result<Arc<Record>, CommitError> {
        let committed = self.store.commit(expected, next, Some(self.term)).await;
        self.note_commit(committed.as_ref().err());
        match &committed {
            Ok(record) => self.learn(Some(Arc::clone(record))),
            Err(CommitError::Conflict { current, .. }) => self.learn(current.clone()),
            Err(_) => None,
        };
        committed
    }

    /// Notes whether the store takes commits, and says so when that changes.
    pub(super) fn note_commit(&self, error: Option<&CommitError>) {
        let why = match error {
            Some(error) if is_unwritable(error) => Some(error.to_string()),
            // What became of it says nothing about the next one.
            Some(CommitError::Unknown { .. }) => return,
            _ => None,
        };
        let mut known = self
            .unwritable
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match (&*known, &why) {
            (known, why) if known == why => {}
            (_, Some(why)) => tracing::error!(why, "nothing can be committed; it is tried again"),
            (_, None) => tracing::info!("commits are taken again"),
        }
        *known = why;
    }

    /// Why the store takes no commits, if it takes none.
    pub(super) fn unwritable(&self) -> Option<String> {
        let known = self.unwritable.lock();
        known.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The view of the newest record known here.
    pub(super) fn view(&self) -> Option<Arc<View>> {
        let record = self.record()?;
        let mut cached = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = cached
            .as_ref()
            .filter(|view| view.epoch() == record.epoch())
        {
            return Some(Arc::clone(view));
        }
        match View::from_record(&record) {
            Ok(view) => {
                let view = Arc::new(view);
                *cached = Some(Arc::clone(&view));
                Some(view)
            }
            Err(error) => {
                tracing::error!(epoch = record.epoch().get(), %error, "the record gives no view");
                None
            }
        }
    }

    /// The record and the leadership as of now.
    pub(super) async fn look(&self) -> Result<(Option<Arc<Record>>, bool), ReadError> {
        let record = self.store.read().await?;
        self.learn(record.clone());
        // Asked after the record was read: a term that leads now led when it was read.
        let leads = self.store.leads(self.term).await?;
        Ok((record, leads))
    }

    /// What that says about one handoff.
    pub(super) async fn situation(&self, id: &HandoffId) -> Result<Situation, ReadError> {
        let (record, leads) = self.look().await?;
        let entry = record.and_then(|record| Entry::of(&record, id));
        Ok(Situation { leads, entry })
    }

    pub(super) fn throttle(&self) -> MutexGuard<'_, Throttle> {
        // Nothing panics while it is held; a poisoned throttle still counts right.
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the limits of a record.
    pub(super) fn follow_throttle(&self, record: &Record) {
        let limit = |limit: u64| (limit > 0).then_some(limit);
        let of_record = record.options().throttle;
        let rate = Rate {
            keys_per_second: limit(of_record.keys_per_second),
            bytes_per_second: limit(of_record.bytes_per_second),
        };
        let now_ms = self.now_ms();
        let mut throttle = self.throttle();
        if throttle.rate() != rate {
            throttle.set(rate, now_ms);
        }
    }
}

impl fmt::Debug for Mandate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mandate")
            .field("term", &self.term)
            .finish_non_exhaustive()
    }
}

/// Whether nothing was committed because nothing can be, for whatever record.
pub(super) fn is_unwritable(error: &CommitError) -> bool {
    matches!(
        error,
        CommitError::Unreachable { .. } | CommitError::Refused { .. } | CommitError::Read(_)
    )
}

/// Milliseconds since 1970, for what the record keeps.
pub(super) fn wall_clock_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Where a node of a record is.
pub(super) fn node_address(node: &clockwise_cluster::Node) -> NodeAddress {
    NodeAddress {
        id: node.id.clone(),
        address: node.address.to_string(),
    }
}
