//! Registrations of the processes of one machine: a file each, locked by its owner.
//!
//! ```text
//! clients/<id>.json    who routes by which epoch; its owner holds its lock
//! ```
//!
//! The system lets go of a lock when its process ends, however it ends, so a file that nobody has
//! locked is nobody's: who lists removes it. A file is locked before it gets its name and is
//! replaced whole, so a reader that finds it unlocked looks whether it is still the one of that name.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::super::ReadError;
use super::super::registry::{ENTRY_BYTES_MAX, Keeping, Listing, REGISTERED_MAX, RETRY_PAUSE};
use super::files::unreachable;

const REGISTRANTS: &str = "clients";
/// How often an owner looks whether its file is still there.
const LOOK_PAUSE: Duration = Duration::from_secs(5);
/// An owner replaces its file a few times a second at most, and a look takes microseconds.
const REPLACED_MAX: usize = 16;

/// An entry's file as its owner has it.
#[derive(Debug)]
struct OwnFile {
    path: PathBuf,
    /// Locked for as long as it is open.
    file: File,
}

/// Keeps an entry registered until its owner ends it.
pub(super) async fn keep_registered(folder: PathBuf, mut keeping: Keeping) {
    let dir: Arc<Path> = folder.join(REGISTRANTS).into();
    let mut own: Option<OwnFile> = None;
    loop {
        let (dir, id, bytes) = (Arc::clone(&dir), keeping.id().to_owned(), keeping.bytes());
        let former = own.take();
        let written = spawn_blocking(move || {
            let written = OwnFile::write(&dir, &id, &bytes);
            // The new one has the name by now, or the old one keeps it.
            match written {
                Ok(new) => (Some(new), Ok(())),
                Err(error) => (former, Err(unreachable(error))),
            }
        });
        let outcome = match written.await {
            Ok((kept, outcome)) => {
                own = kept;
                outcome
            }
            Err(error) => Err(ReadError::Unreachable {
                why: error.to_string(),
            }),
        };
        let pause = if outcome.is_ok() {
            LOOK_PAUSE
        } else {
            RETRY_PAUSE
        };
        keeping.settle(outcome);
        if !until_due(&mut keeping, own.as_ref(), pause).await {
            break;
        }
    }
    if let Some(own) = own
        && let Err(error) = spawn_blocking(move || own.remove()).await
    {
        tracing::debug!(%error, "a registration is left to whoever lists next");
    }
}

/// Returns when the file has to be written: `true`. Or removed: `false`.
async fn until_due(keeping: &mut Keeping, own: Option<&OwnFile>, pause: Duration) -> bool {
    loop {
        tokio::select! {
            more = keeping.changed() => return more,
            () = sleep(pause) => {
                if !own.is_some_and(OwnFile::stands) {
                    return true;
                }
            }
        }
    }
}

impl OwnFile {
    fn write(dir: &Path, id: &str, bytes: &[u8]) -> io::Result<OwnFile> {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => created?,
        }
        let path = dir.join(format!("{id}.json"));
        let temporary = dir.join(format!("{id}.tmp"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        // Nobody else knows the name.
        file.try_lock()?;
        file.write_all(bytes)?;
        fs::rename(&temporary, &path)?;
        Ok(OwnFile { path, file })
    }

    /// Whether the file of that name is still this one.
    fn stands(&self) -> bool {
        let own = self.file.metadata();
        own.is_ok_and(|own| is_at(&self.path, own.dev(), own.ino()))
    }

    fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "a registration was gone before its end");
        }
    }
}

fn is_at(path: &Path, device: u64, inode: u64) -> bool {
    fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (device, inode))
}

/// Everybody whose file is locked. Removes those that are not.
pub(super) fn list(folder: &Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    let entries = match fs::read_dir(folder.join(REGISTRANTS)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(listing),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        if listing.entries.len() >= REGISTERED_MAX {
            listing.left_out += 1;
            continue;
        }
        if let Some(bytes) = read_living(&path)? {
            listing.take(|| path.display().to_string(), &bytes);
        }
    }
    Ok(listing.sorted())
}

/// What an entry's owner wrote; `None` once they are gone.
fn read_living(path: &Path) -> io::Result<Option<Vec<u8>>> {
    for _ in 0..REPLACED_MAX {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                let mut bytes = Vec::new();
                let limit = u64::try_from(ENTRY_BYTES_MAX + 1).unwrap_or(u64::MAX);
                file.take(limit).read_to_end(&mut bytes)?;
                return Ok(Some(bytes));
            }
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => {
                let found = file.metadata()?;
                if is_at(path, found.dev(), found.ino()) {
                    // Another who lists may have been faster, or may not be allowed to.
                    let _removed = fs::remove_file(path);
                    return Ok(None);
                }
            }
        }
    }
    Err(io::Error::other(format!(
        "{} is replaced again and again",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> usize {
        fs::read_dir(dir.join(REGISTRANTS)).unwrap().count()
    }

    #[test]
    fn an_entry_is_read_while_its_owner_holds_it_and_removed_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let entries = dir.path().join(REGISTRANTS);
        let own = OwnFile::write(&entries, "one", b"first").unwrap();
        assert!(own.stands());
        assert_eq!(
            read_living(&own.path).unwrap().as_deref(),
            Some(&b"first"[..])
        );
        let replaced = OwnFile::write(&entries, "one", b"second").unwrap();
        assert!(replaced.stands() && !own.stands());
        drop(own);
        assert_eq!(
            read_living(&replaced.path).unwrap().as_deref(),
            Some(&b"second"[..])
        );
        // As when its process ends.
        drop(replaced);
        assert_eq!(list(dir.path()).unwrap(), Listing::default());
        assert_eq!(names(dir.path()), 0);
    }

    #[test]
    fn an_end_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let own = OwnFile::write(&dir.path().join(REGISTRANTS), "one", b"first").unwrap();
        assert_eq!(names(dir.path()), 1);
        own.remove();
        assert_eq!(names(dir.path()), 0);
    }

    #[test]
    fn a_file_that_somebody_removed_does_not_stand() {
        let dir = tempfile::tempdir().unwrap();
        let own = OwnFile::write(&dir.path().join(REGISTRANTS), "one", b"first").unwrap();
        fs::remove_file(&own.path).unwrap();
        assert!(!own.stands());
        own.remove();
    }

    #[test]
    fn an_entry_that_is_replaced_all_the_time_is_never_missed() {
        let dir = tempfile::tempdir().unwrap();
        let entries = dir.path().join(REGISTRANTS);
        let mut own = OwnFile::write(&entries, "one", b"0").unwrap();
        let path = own.path.clone();
        let reader =
            std::thread::spawn(move || (0..2_000).all(|_| read_living(&path).unwrap().is_some()));
        let mut number = 0;
        while !reader.is_finished() {
            number += 1;
            own = OwnFile::write(&entries, "one", format!("{number}").as_bytes()).unwrap();
        }
        assert!(reader.join().unwrap(), "after {number} replacements");
        drop(own);
    }
}
