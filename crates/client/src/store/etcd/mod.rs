//! A record in etcd, written and read by any number of processes on any number of machines.
//!
//! A commit is one transaction that compares the revision of the record's key, and, for a leader,
//! its leadership key; it costs one round trip and one sync of etcd's log. What others commit is
//! heard of by a watch. A watch is never trusted alone: every second the key's revision is read
//! linearizably and compared, every half minute the whole record.
//!
//! While etcd is away the last good record goes on being served, nothing is committed, and
//! [`Store::trouble`] says so. A history that was restored from a copy is recognised by revisions
//! that go back; its record is refused while it is older than the one known here.
//!
//! The client speaks etcd's own protocol over HTTP/2, with the few messages it needs written down
//! in `proto`. It works with etcd 3.4 and later.

mod committing;
mod connection;
mod failure;
mod head;
mod keys;
mod leading;
mod options;
mod pause;
mod proto;
mod registering;
mod survey;
mod watching;

#[cfg(test)]
mod traps;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use clockwise_cluster::{PoolName, Record, Revision, Term};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::published::Published;
use super::registry::{Listing, Registrant, Registration, Registry};
use super::{CommitError, HistoryCopy, LeadError, Leader, Leadership, OpenError, ReadError, Store};
use connection::Connection;
use head::Seen;
use keys::Keys;
use leading::Terms;
pub use options::{EtcdIdentity, EtcdOptions, EtcdTls, EtcdUser};
pub use survey::{EtcdMember, EtcdSurvey, survey_etcd};

/// A [`Store`] in etcd. Its methods must be called from within a tokio runtime with a timer.
///
/// When it is dropped its watch ends, and its leaderships when their leases do;
/// [`close`](EtcdStore::close) gives them up at once.
///
/// ```no_run
/// use clockwise_client::store::{EtcdOptions, EtcdStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = EtcdOptions {
///     endpoints: ["a", "b", "c"].map(|host| format!("http://etcd-{host}:2379")).into(),
///     ..EtcdOptions::default()
/// };
/// let store = EtcdStore::open(&"main".parse()?, options)?;
/// match store.read().await? {
///     Some(record) => println!("epoch {}", record.epoch()),
///     None => println!("the pool was never made"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct EtcdStore {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

struct Shared {
    connection: Connection,
    keys: Keys,
    published: Published,
    /// Never held across an `await`, like the other locks here.
    seen: Mutex<Seen>,
    terms: Mutex<Terms>,
    /// Counted up when the watch must begin anew.
    resync: watch::Sender<u64>,
    /// An epoch was begun by us, so the history may have grown too long.
    prune_due: AtomicBool,
    /// Tells this store from others with the same holder.
    nonce: String,
    /// Tells the calls of this store that want to lead from each other.
    leads_asked: AtomicU64,
    holder: String,
    contact: Option<String>,
    lease_ttl_s: i64,
    registration_ttl_s: i64,
    call_timeout: Duration,
    check_interval: Duration,
    reread_interval: Duration,
}

impl EtcdStore {
    /// Opens the record of a pool, and begins to watch it. Waits for nothing: whether etcd answers
    /// is said by [`Store::read`] and [`Store::trouble`].
    ///
    /// # Errors
    /// If an option cannot be used.
    pub fn open(pool: &PoolName, options: EtcdOptions) -> Result<EtcdStore, OpenError> {
        let shared = Arc::new(Shared::new(pool, options)?);
        let watching = tokio::spawn(Arc::clone(&shared).keep_watching());
        Ok(EtcdStore::start(shared, watching))
    }

    fn start(shared: Arc<Shared>, watching: JoinHandle<()>) -> EtcdStore {
        let looking = tokio::spawn(Arc::clone(&shared).keep_looking());
        EtcdStore {
            shared,
            tasks: vec![watching, looking],
        }
    }

    /// Logs in as this user, and goes on as that one: after its password was changed, for instance.
    ///
    /// # Errors
    /// If etcd does not let it in, or does not answer. Then it stays who it was.
    pub async fn log_in_as(&self, user: EtcdUser) -> Result<(), ReadError> {
        let deadline = self.shared.deadline();
        let entered = self.shared.connection.log_in_as(user, deadline).await;
        entered.map_err(ReadError::from)
    }

    /// Gives up all leaderships, and returns when nothing of the store runs any more.
    ///
    /// # Errors
    /// If etcd does not answer: then the leaderships end with their leases.
    pub async fn close(mut self) -> Result<(), ReadError> {
        let mut outcome = Ok(());
        // A statement of its own, so that the table is not locked while its terms are given up.
        let begun = self.shared.terms().begun();
        for term in begun {
            outcome = outcome.and(self.shared.resign(term).await);
        }
        for task in self.tasks.drain(..) {
            task.abort();
            // Its panic was reported when it happened.
            let _ended = task.await;
        }
        outcome
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.shared.terms().abort();
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("keys", &self.shared.keys)
            .field("seen", &*self.shared.seen())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn new(pool: &PoolName, options: EtcdOptions) -> Result<Shared, OpenError> {
        let connection = Connection::new(&options)?;
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|error| OpenError::Options {
            what: "holder",
            why: format!("the system has no random numbers to tell it from others: {error}"),
        })?;
        Ok(Shared {
            connection,
            keys: Keys::new(&options.prefix, pool),
            published: Published::new(),
            seen: Mutex::default(),
            terms: Mutex::default(),
            resync: watch::Sender::new(0),
            prune_due: AtomicBool::new(false),
            nonce: nonce.iter().map(|byte| format!("{byte:02x}")).collect(),
            leads_asked: AtomicU64::new(0),
            lease_ttl_s: options.lease_ttl_s(),
            registration_ttl_s: options.registration_ttl_s(),
            holder: options.holder,
            contact: options.contact,
            call_timeout: options.call_timeout,
            check_interval: options.check_interval,
            reread_interval: options.reread_interval,
        })
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.call_timeout
    }

    fn set_prune_due(&self) {
        self.prune_due.store(true, Ordering::Relaxed);
    }

    fn take_prune_due(&self) -> bool {
        self.prune_due.swap(false, Ordering::Relaxed)
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn read(&self) -> Result<Option<Arc<Record>>, ReadError> {
        self.shared.read().await
    }

    async fn commit(
        &self,
        expected: Revision,
        next: Record,
        guard: Option<Term>,
    ) -> Result<Arc<Record>, CommitError> {
        self.shared.commit(expected, next, guard).await
    }

    fn watch(&self) -> watch::Receiver<Option<Arc<Record>>> {
        self.shared.published.watch()
    }

    fn trouble(&self) -> watch::Receiver<Option<ReadError>> {
        self.shared.published.trouble()
    }

    async fn lead(&self, name: &str) -> Result<Leadership, LeadError> {
        self.shared.lead(name).await
    }

    async fn leads(&self, term: Term) -> Result<bool, ReadError> {
        self.shared.leads(term).await
    }

    async fn leader(&self, name: &str) -> Result<Option<Leader>, ReadError> {
        self.shared.leader(name).await
    }

    async fn resign(&self, term: Term) -> Result<(), ReadError> {
        self.shared.resign(term).await
    }

    async fn history(&self) -> Result<Vec<HistoryCopy>, ReadError> {
        self.shared.history().await
    }
}

#[async_trait]
impl Registry for EtcdStore {
    fn register(&self, who: Registrant) -> Registration {
        let shared = Arc::clone(&self.shared);
        Registration::start(who, |keeping| shared.keep_registered(keeping))
    }

    async fn registered(&self) -> Result<Listing, ReadError> {
        self.shared.registered().await
    }
}
