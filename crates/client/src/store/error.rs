//! What can go wrong with a record store, one enum per operation. The variant says what to do.

use std::path::PathBuf;
use std::sync::Arc;

use clockwise_cluster::{DecodeError, Epoch, PoolName, Record, Revision, Term, TooLarge};

/// Why the record cannot be read. Whoever has one in memory keeps it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The store does not answer, or the system refuses access. Try again later.
    #[error("the record store cannot be reached: {why}")]
    Unreachable {
        /// The system's words.
        why: String,
    },
    /// The store answers and refuses. It will until somebody changes something there.
    #[error("the record store refuses to be read: {why}")]
    Refused {
        /// The store's words, and what to do.
        why: String,
    },
    /// Something is stored, and it is no record. A person must put a good one in its place.
    #[error("{place} holds no usable record: {error}{}", hint(newest_good.as_deref(), place))]
    Unreadable {
        /// The file or key.
        place: String,
        /// What is wrong with it.
        error: DecodeError,
        /// The newest good copy in the history.
        newest_good: Option<String>,
    },
    /// There was a record and it is gone.
    #[error("{place} is gone{}", hint(newest_good.as_deref(), place))]
    Gone {
        /// The file or key.
        place: String,
        /// The newest good copy in the history.
        newest_good: Option<String>,
    },
    /// What is stored is older than what was seen before: somebody restored a copy.
    #[error(
        "the stored record went back to epoch {epoch_found}, revision {revision_found}; \
         epoch {epoch}, revision {revision} was seen"
    )]
    WentBack {
        /// The epoch found.
        epoch_found: Epoch,
        /// The revision found.
        revision_found: Revision,
        /// The epoch in memory.
        epoch: Epoch,
        /// The revision in memory.
        revision: Revision,
    },
    /// The stored record was changed without a new revision: somebody edited it in place.
    #[error("the stored record was changed, but its revision is still {revision}")]
    EditedInPlace {
        /// The revision of both.
        revision: Revision,
    },
}

/// What to do about a record that is no good.
fn hint(newest_good: Option<&str>, place: &str) -> String {
    match newest_good {
        Some(copy) => format!(
            "; the newest good copy is {copy}: end whoever runs on the folder, put it back with `cp {copy} \
             {place}`, and start again"
        ),
        None => format!("; the history has no good copy: put one from a backup at {place}"),
    }
}

/// Why a commit did not happen, or may not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Another commit came first. Plan again from this record.
    #[error("the record is at {} now, not at revision {expected}", at(current.as_deref()))]
    Conflict {
        /// The revision the commit was planned from.
        expected: Revision,
        /// What is stored; `None` if the pool does not exist.
        current: Option<Arc<Record>>,
    },
    /// The term does not lead. Stop acting for it.
    #[error("term {term} does not lead")]
    LeadershipLost {
        /// The term that guarded the commit.
        term: Term,
    },
    /// The next record has a lower epoch than the stored one.
    #[error("epoch {next} would go back behind epoch {current}")]
    EpochWentBack {
        /// The epoch of the record to be committed.
        next: Epoch,
        /// The epoch of the stored record.
        current: Epoch,
    },
    /// The next record belongs to another pool.
    #[error("the record of pool {next} cannot replace that of pool {current}")]
    OtherPool {
        /// The pool of the record to be committed.
        next: PoolName,
        /// The pool of the stored record.
        current: PoolName,
    },
    /// The next record does not fit into the store.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// This store was opened for reading.
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// The stored record cannot be read, so nothing was compared or written.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Nothing was committed. Try again later.
    #[error("the record store cannot be written: {why}")]
    Unreachable {
        /// The system's words.
        why: String,
    },
    /// The store answers and refuses. Nothing was committed, and nothing will be until somebody
    /// changes something there.
    #[error("the record store refuses to be written: {why}")]
    Refused {
        /// The store's words, and what to do.
        why: String,
    },
    /// It may have been committed. Read the record to know.
    #[error("the result of the commit is unknown: {why}")]
    Unknown {
        /// The system's words.
        why: String,
    },
}

fn at(current: Option<&Record>) -> String {
    match current {
        Some(record) => format!("revision {}, epoch {}", record.revision(), record.epoch()),
        None => "nothing".to_owned(),
    }
}

/// Why a term was not begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeadError {
    /// Somebody else leads. Try again when their lease has ended.
    #[error("{name} is led by {holder}")]
    Held {
        /// The name asked for.
        name: String,
        /// Who leads, as far as the store knows.
        holder: String,
    },
    /// This store was opened for reading.
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// The last term is not known, and one that was used before must not come again.
    #[error(
        "{place} does not hold the last term ({why}); write {{\"format\":1,\"term\":N}} there, \
         with N at least as high as any user cw-tN on the nodes"
    )]
    TermUnknown {
        /// The file or key.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// The store answers and refuses. It will until somebody changes something there.
    #[error("the record store refuses to be written: {why}")]
    Refused {
        /// The store's words, and what to do.
        why: String,
    },
    /// No term was begun. Try again later.
    #[error("the record store cannot be written: {why}")]
    Unreachable {
        /// The system's words.
        why: String,
    },
}

/// Why a term does not serve as the last one: what would be begun after it could not be stored.
pub(super) fn last_of_all(term: Term) -> String {
    format!("it says {term}, after which no other can come")
}

/// Why a store was not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process writes this directory.
    #[error("{} is in use by {}", dir.display(), process(*pid))]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The process that holds it, if it has said so.
        pid: Option<u32>,
    },
    /// An option cannot be used.
    #[error("{what}: {why}")]
    Options {
        /// The option.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The system refuses access.
    #[error("{}: {why}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
}

fn process(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}
