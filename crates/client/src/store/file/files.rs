//! What stands in the directory of a file store, and in which order it is written.
//!
//! ```text
//! record.json           the record; what it says is so
//! history/<epoch>.json  the first record of each of the last 16 epochs
//! term.json             the highest term of leadership ever begun
//! lock                  held by the process that writes
//! clients/              who routes by the record; see `registering`
//! ```
//!
//! A file is replaced by writing a temporary one, syncing it, renaming it over the old one and
//! syncing the directory. So at every moment, power cuts included, the old or the new content is
//! there, and the new one once the last step is done. The record goes first and its history copy
//! after it, so that the history never holds what was not committed. Nobody waits for the copy to
//! be durable: it is synced a moment later, and if a power cut comes before that, the next writer
//! files the record it finds again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clockwise_cluster::{Epoch, RECORD_BYTES_MAX, Record, Term};
use serde_json::{Value, json};

use super::super::{HISTORY_EPOCHS_MAX, HistoryCopy, ReadError};
use super::disk::{Disk, Stamp};

const RECORD: &str = "record.json";
const HISTORY: &str = "history";
const TERM: &str = "term.json";
const COPY_SUFFIX: &str = ".json";
const TEMPORARY_SUFFIX: &str = ".tmp";

const TERM_FORMAT: u64 = 1;
const TERM_BYTES_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct RecordFiles {
    dir: PathBuf,
    disk: Box<dyn Disk>,
}

/// How far a replacement came.
#[derive(Debug)]
pub(super) enum ReplaceError {
    /// The old content is there and stays.
    NotDone(io::Error),
    /// The new content can be seen, but a power cut may bring back the old one.
    Uncertain(io::Error),
}

/// What `term.json` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StoredTerm {
    Last(Term),
    Missing,
    Unreadable(String),
}

impl RecordFiles {
    pub(super) fn new(dir: PathBuf, disk: Box<dyn Disk>) -> RecordFiles {
        RecordFiles { dir, disk }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory ready to be written, and durable what a writer before us left in it.
    pub(super) fn prepare(&self) -> io::Result<()> {
        let history = self.dir.join(HISTORY);
        self.disk.create_dir(&history)?;
        for dir in [&self.dir, &history] {
            for name in self.disk.list(dir)? {
                if name.ends_with(TEMPORARY_SUFFIX) {
                    self.disk.remove(&dir.join(name))?;
                }
            }
            self.disk.sync_dir(dir)?;
        }
        if self.is_new()? {
            // From now on a missing file means that it was lost, not that no term was begun.
            self.store_term(Term::new(0))
                .map_err(ReplaceError::into_inner)?;
        }
        Ok(())
    }

    fn is_new(&self) -> io::Result<bool> {
        let term = self.disk.stamp(&self.dir.join(TERM))?;
        let record = self.disk.stamp(&self.dir.join(RECORD))?;
        Ok(term.is_none() && record.is_none() && self.epochs_kept()?.is_empty())
    }

    pub(super) fn stamp(&self) -> Result<Option<Stamp>, ReadError> {
        self.disk.stamp(&self.dir.join(RECORD)).map_err(unreachable)
    }

    /// The record. `None` only if there never was one.
    pub(super) fn load(&self) -> Result<Option<Record>, ReadError> {
        let path = self.dir.join(RECORD);
        // One byte more than allowed shows that there are too many.
        let bytes = self
            .disk
            .read(&path, RECORD_BYTES_MAX + 1)
            .map_err(unreachable)?;
        let place = path.display().to_string();
        let Some(bytes) = bytes else {
            return if self.epochs_kept().map_err(unreachable)?.is_empty() {
                Ok(None)
            } else {
                let newest_good = self.newest_good_copy();
                Err(ReadError::Gone { place, newest_good })
            };
        };
        Record::decode(&bytes)
            .map(Some)
            .map_err(|error| ReadError::Unreadable {
                place,
                error,
                newest_good: self.newest_good_copy(),
            })
    }

    pub(super) fn gone(&self) -> ReadError {
        ReadError::Gone {
            place: self.dir.join(RECORD).display().to_string(),
            newest_good: self.newest_good_copy(),
        }
    }

    pub(super) fn store(&self, record: &[u8]) -> Result<(), ReplaceError> {
        self.replace(&self.dir, RECORD, record)
    }

    /// Makes durable what an uncertain replacement left.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.disk.sync_dir(&self.dir)
    }

    /// Files a copy of a committed record under its epoch, and lets the oldest go. The copy is not
    /// durable before `sync_copies`.
    pub(super) fn keep_copy(&self, epoch: Epoch, record: &[u8]) -> io::Result<()> {
        let history = self.dir.join(HISTORY);
        let temporary = temporary(&history, &copy_name(epoch));
        self.disk.create(&temporary)?.write(record)?;
        self.disk
            .rename(&temporary, &history.join(copy_name(epoch)))?;
        let kept = self.epochs_kept()?;
        for epoch in &kept[..kept.len().saturating_sub(HISTORY_EPOCHS_MAX)] {
            self.disk.remove(&history.join(copy_name(*epoch)))?;
        }
        Ok(())
    }

    pub(super) fn sync_copies(&self, epochs: &[Epoch]) -> io::Result<()> {
        let history = self.dir.join(HISTORY);
        for epoch in epochs {
            self.disk.sync_file(&history.join(copy_name(*epoch)))?;
        }
        self.disk.sync_dir(&history)
    }

    /// Whether there is a copy that can be read.
    pub(super) fn has_copy(&self, epoch: Epoch) -> io::Result<bool> {
        Ok(self.copy(epoch)?.is_some_and(|copy| copy.record.is_ok()))
    }

    pub(super) fn history(&self) -> Result<Vec<HistoryCopy>, ReadError> {
        let epochs = self.epochs_kept().map_err(unreachable)?;
        let newest = &epochs[epochs.len().saturating_sub(HISTORY_EPOCHS_MAX)..];
        let copies = newest
            .iter()
            .filter_map(|epoch| self.copy(*epoch).transpose());
        copies.collect::<io::Result<_>>().map_err(unreachable)
    }

    /// `None` if it was let go meanwhile.
    fn copy(&self, epoch: Epoch) -> io::Result<Option<HistoryCopy>> {
        let path = self.dir.join(HISTORY).join(copy_name(epoch));
        let bytes = self.disk.read(&path, RECORD_BYTES_MAX + 1)?;
        Ok(bytes.map(|bytes| HistoryCopy {
            epoch,
            record: Record::decode(&bytes).map(Arc::new),
        }))
    }

    /// A hint for people: whatever goes wrong in looking for it means that there is none.
    fn newest_good_copy(&self) -> Option<String> {
        let history = self.history().ok()?;
        let newest = history.iter().rev().find(|copy| copy.record.is_ok())?;
        let path = self.dir.join(HISTORY).join(copy_name(newest.epoch));
        Some(path.display().to_string())
    }

    /// Sorted.
    fn epochs_kept(&self) -> io::Result<Vec<Epoch>> {
        let names = self.disk.list(&self.dir.join(HISTORY))?;
        let mut epochs: Vec<Epoch> = names
            .iter()
            .filter_map(|name| name.strip_suffix(COPY_SUFFIX)?.parse().ok())
            .collect();
        epochs.sort_unstable();
        Ok(epochs)
    }

    pub(super) fn load_term(&self) -> io::Result<StoredTerm> {
        let Some(bytes) = self.disk.read(&self.dir.join(TERM), TERM_BYTES_MAX)? else {
            return Ok(StoredTerm::Missing);
        };
        Ok(match decode_term(&bytes) {
            Ok(term) => StoredTerm::Last(term),
            Err(why) => StoredTerm::Unreadable(why),
        })
    }

    pub(super) fn store_term(&self, term: Term) -> Result<(), ReplaceError> {
        let text = json!({ "format": TERM_FORMAT, "term": term }).to_string();
        self.replace(&self.dir, TERM, text.as_bytes())
    }

    pub(super) fn term_place(&self) -> String {
        self.dir.join(TERM).display().to_string()
    }

    fn replace(&self, dir: &Path, name: &str, bytes: &[u8]) -> Result<(), ReplaceError> {
        let temporary = temporary(dir, name);
        let write = || -> io::Result<()> {
            let mut file = self.disk.create(&temporary)?;
            file.write(bytes)?;
            file.sync()?;
            self.disk.rename(&temporary, &dir.join(name))
        };
        let named = |error| about(&dir.join(name), error);
        write().map_err(|error| ReplaceError::NotDone(named(error)))?;
        let synced = self.disk.sync_dir(dir);
        synced.map_err(|error| ReplaceError::Uncertain(named(error)))
    }
}

impl ReplaceError {
    pub(super) fn into_inner(self) -> io::Error {
        match self {
            ReplaceError::NotDone(error) | ReplaceError::Uncertain(error) => error,
        }
    }
}

/// The same error with the file that it is about.
fn about(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn temporary(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}{TEMPORARY_SUFFIX}"))
}

/// With leading zeros, so that a listing is in order.
fn copy_name(epoch: Epoch) -> String {
    format!("{epoch:016}{COPY_SUFFIX}")
}

fn decode_term(bytes: &[u8]) -> Result<Term, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match value.get("format").and_then(Value::as_u64) {
        Some(TERM_FORMAT) => {}
        Some(format) => return Err(format!("format {format}, this version knows {TERM_FORMAT}")),
        None => return Err("no format number".to_owned()),
    }
    let term = value.get("term").cloned().ok_or("no term")?;
    serde_json::from_value(term).map_err(|error| error.to_string())
}

pub(super) fn unreachable(error: io::Error) -> ReadError {
    ReadError::Unreachable {
        why: error.to_string(),
    }
}
