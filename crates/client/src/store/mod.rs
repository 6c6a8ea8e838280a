//! Where the record of a pool is kept, who may change it, and how everybody else hears of it.
//!
//! A [`Store`] holds one record. Whoever changes it names the revision that the change was planned
//! from; if another commit came first, nothing is written and the caller plans again. The
//! rebalancer names its term of leadership too, so that one that was deposed cannot write.
//!
//! What a store serves to readers only moves forward. A record that is empty, torn, foreign, gone
//! or older than the one in memory is refused and reported through [`Store::trouble`]; the last
//! good one goes on being served, because a fleet with a slightly old view works and a fleet with
//! none does not.
//!
//! [`FileStore`] keeps the record on one machine, [`MemoryStore`] in one process, and `EtcdStore`,
//! behind the feature `etcd`, in a cluster of its own for any number of machines.

mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod leaders;
mod memory;
mod next;
mod published;
mod registry;
mod transition;

#[cfg(test)]
mod suite;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use clockwise_cluster::{DecodeError, Epoch, Record, Revision, Term};
use tokio::sync::watch;

pub use error::{CommitError, LeadError, OpenError, ReadError};
#[cfg(feature = "etcd")]
pub use etcd::{
    EtcdIdentity, EtcdMember, EtcdOptions, EtcdStore, EtcdSurvey, EtcdTls, EtcdUser, survey_etcd,
};
pub use file::{FileOptions, FileStore};
pub use memory::{Fault, MemoryStore};
pub use next::{COMMITS_MAX, NextError, commit_next};
pub use registry::{
    Listing, REGISTERED_MAX, Registered, Registrant, RegistrantKind, Registration, Registry,
    RoutesBy,
};

/// How many epochs a store keeps beside the record itself.
pub const HISTORY_EPOCHS_MAX: usize = 16;

/// Keeps the record of one pool.
///
/// Calls may come from many tasks at once. A future that is dropped may still have its effect; the
/// result of a commit that was not awaited is unknown, as [`CommitError::Unknown`] is.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// The record as of now: every commit that returned before this call is seen. `None` if the
    /// pool was never made.
    async fn read(&self) -> Result<Option<Arc<Record>>, ReadError>;

    /// Replaces the record of revision `expected` by `next` and returns `next` with its new
    /// revision. `Revision::new(0)` makes the pool. With `guard`, only while that term leads.
    ///
    /// A first record of a new epoch is kept in the history as well.
    async fn commit(
        &self,
        expected: Revision,
        next: Record,
        guard: Option<Term>,
    ) -> Result<Arc<Record>, CommitError>;

    /// The newest good record known here, and every later one. Epoch and revision never go back
    /// and a record is never replaced by `None`; intermediate ones may be skipped.
    fn watch(&self) -> watch::Receiver<Option<Arc<Record>>>;

    /// Why the newest good record may not be the newest, or `None` if all is well.
    fn trouble(&self) -> watch::Receiver<Option<ReadError>>;

    /// Becomes the leader called `name` under a term higher than any before, restarts included.
    ///
    /// Where leaders outlive their process (etcd's leases), another one may hold the name:
    /// [`LeadError::Held`]. A store that only one process can write hands the name over at once;
    /// the former term is then lost.
    async fn lead(&self, name: &str) -> Result<Leadership, LeadError>;

    /// Whether this term leads now.
    async fn leads(&self, term: Term) -> Result<bool, ReadError>;

    /// Who leads under this name now, as far as the store knows; `None` if nobody does.
    async fn leader(&self, name: &str) -> Result<Option<Leader>, ReadError>;

    /// Gives a term up. One that does not lead any more is no error.
    async fn resign(&self, term: Term) -> Result<(), ReadError>;

    /// The first record of each of the last 16 epochs, oldest first.
    async fn history(&self) -> Result<Vec<HistoryCopy>, ReadError>;
}

/// The right to act for a pool under one term.
#[derive(Debug, Clone)]
pub struct Leadership {
    term: Term,
    lost: watch::Receiver<bool>,
}

impl Leadership {
    /// The term, as commits and node users name it.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// Whether it is known here that the term ended. `false` proves nothing: only a commit with
    /// the term as its guard does.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        // A store that is gone cannot say that the term goes on.
        *self.lost.borrow() || self.lost.has_changed().is_err()
    }

    /// Returns once it is known here that the term ended.
    pub async fn lost(&mut self) {
        // An error means that the store is gone, and the term with it.
        let _gone = self.lost.wait_for(|lost| *lost).await;
    }
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Under which term.
    pub term: Term,
    /// Who it is, for people.
    pub holder: String,
    /// Where it can be asked what it does, as it says itself: `HOST:PORT` of an admin API.
    pub contact: Option<String>,
}

/// One epoch of a store's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryCopy {
    /// The epoch it was filed under.
    pub epoch: Epoch,
    /// The record, or why the copy cannot be read.
    pub record: Result<Arc<Record>, DecodeError>,
}
