//! One process writes a directory. The system lets go of the lock when that process ends, however
//! it ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use super::super::OpenError;

const LOCK: &str = "lock";
/// Digits of a pid and a line end.
const PID_BYTES_MAX: u64 = 16;

/// Held as long as it lives.
#[derive(Debug)]
pub(super) struct DirLock {
    _file: File,
    place: LockPlace,
}

/// Which file was locked. Somebody may remove it; the next process then locks another one, and two
/// would write.
#[derive(Debug, Clone)]
pub(super) struct LockPlace {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl LockPlace {
    /// Whether the locked file is still the one that others would lock.
    pub(super) fn stands(&self) -> bool {
        fs::metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode))
    }
}

impl DirLock {
    /// Takes the lock, or says who has it.
    pub(super) fn take(dir: &Path) -> Result<DirLock, OpenError> {
        let path = dir.join(LOCK);
        let mut options = OpenOptions::new();
        // Not truncated: the holder's pid stands in it.
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let mut file = options.open(&path).map_err(failed(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked {
                    dir: dir.to_owned(),
                    pid: holder(&mut file),
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(&path)(error)),
        }
        file.set_len(0).map_err(failed(&path))?;
        writeln!(file, "{}", process::id()).map_err(failed(&path))?;
        let locked = file.metadata().map_err(failed(&path))?;
        let place = LockPlace {
            path,
            device: locked.dev(),
            inode: locked.ino(),
        };
        Ok(DirLock { _file: file, place })
    }

    pub(super) fn place(&self) -> LockPlace {
        self.place.clone()
    }
}

/// `None` in the moment between locking and writing.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(PID_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

pub(super) fn failed(path: &Path) -> impl Fn(std::io::Error) -> OpenError {
    let path = PathBuf::from(path);
    move |error| OpenError::Io {
        path: path.clone(),
        why: error.to_string(),
    }
}
