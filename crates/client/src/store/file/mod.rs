//! A record in a directory of one machine, written by one process and read by any number.
//!
//! The writer holds a lock. Its own commits reach its readers at once; what other processes wrote,
//! and what people did to the files, is seen by looking at the file's metadata every 200 ms.
//! A commit costs two syncs, of the file and of the directory.

mod disk;
mod files;
mod lock;
mod poller;
mod registering;

#[cfg(test)]
mod crash;
#[cfg(test)]
mod tests;

use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use clockwise_cluster::{COUNTER_MAX, Epoch, Record, Revision, Term};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::error::last_of_all;
use super::leaders::Leaders;
use super::published::Published;
use super::registry::{Listing, Registrant, Registration, Registry};
use super::transition::check_commit;
use super::{
    CommitError, HISTORY_EPOCHS_MAX, HistoryCopy, LeadError, Leader, Leadership, OpenError,
    ReadError, Store,
};
use disk::{Disk, RealDisk, Stamp};
use files::{RecordFiles, ReplaceError, StoredTerm, unreachable};
use lock::{DirLock, LockPlace, failed};
use poller::Poller;

/// How a [`FileStore`] is opened.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    /// How often the file's metadata is looked at.
    pub poll_interval: Duration,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions {
            poll_interval: Duration::from_millis(200),
        }
    }
}

/// A [`Store`] in a directory. Its methods must be called from within a tokio runtime, whose
/// blocking threads they use.
///
/// ```
/// use clockwise_client::store::{FileOptions, FileStore, Store};
/// use clockwise_cluster::{NewNode, NewPool, Nonce, Record, Revision};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// let store = FileStore::open(dir, FileOptions::default())?;
/// let node = NewNode::new("cache-a".parse()?, "127.0.0.1:6379".parse()?);
/// let record = Record::create(NewPool::new("main".parse()?, vec![node]), &mut || Nonce::new([7; 16]))?;
/// let record = store.commit(Revision::new(0), record, None).await?;
/// assert_eq!(store.read().await?, Some(record));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileStore {
    shared: Arc<Shared>,
    /// Stopped and waited for before the lock is let go.
    _poller: Poller,
    _lock: Option<DirLock>,
}

#[derive(Debug)]
struct Shared {
    files: RecordFiles,
    access: Access,
    /// What was locked; none for readers.
    lock: Option<LockPlace>,
    /// Held through each use of the files, so only ever taken on blocking threads.
    state: Mutex<State>,
    published: Published,
}

const LOCK_GONE: &str = "its lock file was removed or replaced, so that another process may write here; end this \
                         process, and see that only one runs on the directory";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

#[derive(Debug)]
struct State {
    /// The record file as it was when `seen` was read from it.
    stamp: Option<Stamp>,
    /// `None`: not known; read it, whatever its stamp.
    seen: Option<Result<Option<Arc<Record>>, ReadError>>,
    /// A rename was not made durable yet; nothing is served before it is.
    rename_unsynced: bool,
    /// The newest epoch in the history.
    epoch_kept: Option<Epoch>,
    /// Which copy was not written when it was last tried, and why.
    copy_failed: Option<(Epoch, String)>,
    /// Epochs whose copies a power cut could still take away.
    copies_unsynced: Vec<Epoch>,
    leaders: Leaders,
    /// `None`: not read yet.
    term: Option<Term>,
}

impl FileStore {
    /// Opens a directory for reading and writing, and creates it if need be.
    ///
    /// # Errors
    /// If another process has it open for writing, or the system refuses access. That there is no
    /// usable record is no error here: [`Store::read`] says so.
    pub fn open(dir: impl Into<PathBuf>, options: FileOptions) -> Result<FileStore, OpenError> {
        let dir = dir.into();
        RealDisk.create_dir(&dir).map_err(failed(&dir))?;
        let lock = DirLock::take(&dir)?;
        let files = RecordFiles::new(dir, Box::new(RealDisk));
        files.prepare().map_err(failed(files.dir()))?;
        let mut shared = Shared::new(files, Access::Write);
        shared.lock = Some(lock.place());
        Ok(FileStore::start(shared, Some(lock), options))
    }

    /// Opens a directory for reading, while another process may write it.
    #[must_use]
    pub fn open_read_only(dir: impl Into<PathBuf>, options: FileOptions) -> FileStore {
        let files = RecordFiles::new(dir.into(), Box::new(RealDisk));
        FileStore::start(Shared::new(files, Access::Read), None, options)
    }

    /// The last term of leadership.
    ///
    /// # Errors
    /// [`LeadError::TermUnknown`] when it was lost, so that nobody can lead, or the file cannot be read.
    pub async fn last_term(&self) -> Result<Term, LeadError> {
        let asked = self.blocking(|shared| shared.last_term(&shared.state()));
        asked.await.map_err(|why| LeadError::Unreachable { why })?
    }

    /// Goes on above this term, the highest that any node of the pool knows, where the last one was lost or is
    /// lower. One that is higher stays as it is.
    ///
    /// Where it was lost only whoever has asked every node may say so: a term that was used before must not
    /// come again.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn restore_term(&self, last: Term) -> Result<(), LeadError> {
        let restored = self.blocking(move |shared| shared.restore_term(last));
        restored
            .await
            .map_err(|why| LeadError::Unreachable { why })?
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.shared.files.dir()
    }

    fn start(shared: Shared, lock: Option<DirLock>, options: FileOptions) -> FileStore {
        let shared = Arc::new(shared);
        shared.look();
        let polled = Arc::clone(&shared);
        FileStore {
            shared,
            _poller: Poller::start(options.poll_interval, move || polled.look()),
            _lock: lock,
        }
    }

    /// Runs `work` where it may block. Errors only when the runtime shuts down.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> T + Send + 'static,
    ) -> Result<T, String> {
        let shared = Arc::clone(&self.shared);
        let done = spawn_blocking(move || work(&shared)).await;
        done.map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Store for FileStore {
    async fn read(&self) -> Result<Option<Arc<Record>>, ReadError> {
        let read = self
            .blocking(|shared| shared.refresh(&mut shared.state()))
            .await;
        read.map_err(|why| ReadError::Unreachable { why })?
    }

    async fn commit(
        &self,
        expected: Revision,
        next: Record,
        guard: Option<Term>,
    ) -> Result<Arc<Record>, CommitError> {
        let commit = move |shared: &Shared| shared.commit(expected, next, guard);
        let committed = self.blocking(commit).await;
        committed.map_err(|why| CommitError::Unknown { why })?
    }

    fn watch(&self) -> watch::Receiver<Option<Arc<Record>>> {
        self.shared.published.watch()
    }

    fn trouble(&self) -> watch::Receiver<Option<ReadError>> {
        self.shared.published.trouble()
    }

    async fn lead(&self, name: &str) -> Result<Leadership, LeadError> {
        let name = name.to_owned();
        let led = self.blocking(move |shared| shared.lead(&name)).await;
        led.map_err(|why| LeadError::Unreachable { why })?
    }

    async fn leads(&self, term: Term) -> Result<bool, ReadError> {
        let asked = self
            .blocking(move |shared| shared.lock_stands() && shared.state().leaders.leads(term))
            .await;
        asked.map_err(|why| ReadError::Unreachable { why })
    }

    async fn leader(&self, name: &str) -> Result<Option<Leader>, ReadError> {
        let name = name.to_owned();
        let asked = self
            .blocking(move |shared| {
                let led = shared.lock_stands().then(|| shared.state());
                led.and_then(|state| state.leaders.leader(&name))
            })
            .await;
        asked.map_err(|why| ReadError::Unreachable { why })
    }

    async fn resign(&self, term: Term) -> Result<(), ReadError> {
        let resigned = self
            .blocking(move |shared| shared.state().leaders.resign(term))
            .await;
        resigned.map_err(|why| ReadError::Unreachable { why })
    }

    async fn history(&self) -> Result<Vec<HistoryCopy>, ReadError> {
        let history = self.blocking(|shared| {
            let _state = shared.state();
            shared.files.history()
        });
        history
            .await
            .map_err(|why| ReadError::Unreachable { why })?
    }
}

#[async_trait]
impl Registry for FileStore {
    fn register(&self, who: Registrant) -> Registration {
        let folder = self.dir().to_owned();
        Registration::start(who, |keeping| registering::keep_registered(folder, keeping))
    }

    async fn registered(&self) -> Result<Listing, ReadError> {
        let listed = self.blocking(|shared| registering::list(shared.files.dir()));
        let listed = listed.await.map_err(|why| ReadError::Unreachable { why })?;
        listed.map_err(unreachable)
    }
}

impl Shared {
    fn new(files: RecordFiles, access: Access) -> Shared {
        Shared {
            files,
            access,
            lock: None,
            state: Mutex::new(State {
                stamp: None,
                seen: None,
                rename_unsynced: false,
                epoch_kept: None,
                copy_failed: None,
                copies_unsynced: Vec::new(),
                leaders: Leaders::default(),
                term: None,
            }),
            published: Published::new(),
        }
    }

    /// Whether nobody else can have locked the directory meanwhile.
    fn lock_stands(&self) -> bool {
        self.lock.as_ref().is_none_or(LockPlace::stands)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in between leaves at worst a stamp that makes the next look read again.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what the file holds; what is wrong with it is published too. Then makes the
    /// history durable, without keeping commits waiting.
    fn look(&self) {
        let copies = {
            let mut state = self.state();
            let _published = self.refresh(&mut state);
            mem::take(&mut state.copies_unsynced)
        };
        if copies.is_empty() {
            return;
        }
        if let Err(error) = self.files.sync_copies(&copies) {
            tracing::warn!(%error, "the history copies were not synced");
            // Those that came meanwhile are newer.
            self.state().copies_unsynced.splice(0..0, copies);
        }
    }

    /// The record as the file has it now. Reads it only if it changed.
    fn refresh(&self, state: &mut State) -> Result<Option<Arc<Record>>, ReadError> {
        let read = self.read(state);
        let settled = self.published.settle(read);
        // Whether the system lets us read can change without the file.
        let lasts = !matches!(settled, Err(ReadError::Unreachable { .. }));
        state.seen = lasts.then(|| settled.clone());
        if let (Ok(Some(record)), Access::Write) = (&settled, self.access) {
            self.keep_copy(state, record);
        }
        settled
    }

    fn read(&self, state: &mut State) -> Result<Option<Arc<Record>>, ReadError> {
        if state.rename_unsynced {
            self.files.sync().map_err(unreachable)?;
            state.rename_unsynced = false;
        }
        // Taken before the content: if the file changes in between, the next look reads again.
        let stamp = self.files.stamp()?;
        if stamp == state.stamp
            && let Some(seen) = &state.seen
        {
            return seen.clone();
        }
        state.stamp = stamp;
        match self.files.load()? {
            Some(record) => Ok(Some(Arc::new(record))),
            None if self.published.record().is_some() => Err(self.files.gone()),
            None => Ok(None),
        }
    }

    fn commit(
        &self,
        expected: Revision,
        next: Record,
        guard: Option<Term>,
    ) -> Result<Arc<Record>, CommitError> {
        if self.access == Access::Read {
            return Err(CommitError::ReadOnly);
        }
        if !self.lock_stands() {
            return Err(CommitError::Unreachable {
                why: LOCK_GONE.to_owned(),
            });
        }
        let mut state = self.state();
        let current = self.refresh(&mut state)?;
        if let Some(term) = guard
            && !state.leaders.leads(term)
        {
            return Err(CommitError::LeadershipLost { term });
        }
        check_commit(current.as_ref(), expected, &next)?;
        let next = next.at_revision(expected.next());
        let bytes = next.encode()?;
        state.seen = None;
        self.files.store(&bytes).map_err(|error| match error {
            ReplaceError::NotDone(error) => CommitError::Unreachable {
                why: error.to_string(),
            },
            ReplaceError::Uncertain(error) => {
                state.rename_unsynced = true;
                CommitError::Unknown {
                    why: error.to_string(),
                }
            }
        })?;
        let next = Arc::new(next);
        // Readers first: requests may be held until they hear of it.
        let settled = self.published.settle(Ok(Some(Arc::clone(&next))));
        // It is committed, also if the file cannot be looked at any more: then it is read again.
        if let Ok(stamp) = self.files.stamp() {
            state.stamp = stamp;
            state.seen = Some(settled);
        }
        self.keep_copy(&mut state, &next);
        Ok(next)
    }

    /// Files the record if it is the first of its epoch. It is committed whether or not that works;
    /// the next look tries again.
    fn keep_copy(&self, state: &mut State, record: &Record) {
        let epoch = record.epoch();
        if state.epoch_kept == Some(epoch) {
            return;
        }
        match self.keep_copy_once(epoch, record) {
            Ok(()) => {
                state.epoch_kept = Some(epoch);
                state.copies_unsynced.push(epoch);
                // Older ones have left the history.
                let surplus = state
                    .copies_unsynced
                    .len()
                    .saturating_sub(HISTORY_EPOCHS_MAX);
                state.copies_unsynced.drain(..surplus);
            }
            Err(error) => {
                // It is tried at every look; once said is enough.
                let failed = Some((epoch, error.to_string()));
                if state.copy_failed != failed {
                    tracing::warn!(%epoch, %error, "the history copy was not written");
                    state.copy_failed = failed;
                }
            }
        }
    }

    fn keep_copy_once(&self, epoch: Epoch, record: &Record) -> io::Result<()> {
        if self.files.has_copy(epoch)? {
            return Ok(());
        }
        let bytes = record.encode().map_err(io::Error::other)?;
        self.files.keep_copy(epoch, &bytes)
    }

    fn lead(&self, name: &str) -> Result<Leadership, LeadError> {
        if self.access == Access::Read {
            return Err(LeadError::ReadOnly);
        }
        if !self.lock_stands() {
            return Err(LeadError::Unreachable {
                why: LOCK_GONE.to_owned(),
            });
        }
        let mut state = self.state();
        let term = self.last_term(&state)?.next();
        // Even if it is not known whether it was stored, this term is not begun again.
        state.term = Some(term);
        self.files
            .store_term(term)
            .map_err(|error| LeadError::Unreachable {
                why: error.into_inner().to_string(),
            })?;
        Ok(state.leaders.begin(name, term))
    }

    fn restore_term(&self, last: Term) -> Result<(), LeadError> {
        if self.access == Access::Read {
            return Err(LeadError::ReadOnly);
        }
        let mut state = self.state();
        match self.last_term(&state) {
            Ok(known) if known >= last => return Ok(()),
            Ok(_) | Err(LeadError::TermUnknown { .. }) => {}
            Err(error) => return Err(error),
        }
        self.files
            .store_term(last)
            .map_err(|error| LeadError::Unreachable {
                why: error.into_inner().to_string(),
            })?;
        state.term = Some(last);
        Ok(())
    }

    /// The last term, as long as another can come after it.
    fn last_term(&self, state: &State) -> Result<Term, LeadError> {
        let stored = match state.term {
            Some(term) => StoredTerm::Last(term),
            None => self
                .files
                .load_term()
                .map_err(|error| LeadError::Unreachable {
                    why: error.to_string(),
                })?,
        };
        let why = match stored {
            StoredTerm::Last(term) if term.get() < COUNTER_MAX => return Ok(term),
            StoredTerm::Last(term) => last_of_all(term),
            StoredTerm::Missing => "it is gone".to_owned(),
            StoredTerm::Unreadable(why) => why,
        };
        let place = self.files.term_place();
        Err(LeadError::TermUnknown { place, why })
    }
}
