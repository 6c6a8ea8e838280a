//! The few operations on files that the store is made of. Each may be the last one before a crash.
//!
//! What they promise is what ext4, XFS and others promise: a new content is durable after `sync`
//! of the file, a new, renamed or removed name after `sync_dir` of its directory, and until then
//! either may come back after a power cut. A rename replaces a name in one step.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Only the owner reads or writes what is created: a record holds nonces and hash secrets.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// Opens a file for writing, empty.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the content of a file durable that was written before. One that does not exist is no
    /// error.
    fn sync_file(&self, path: &Path) -> io::Result<()>;
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// A file that does not exist is no error.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Durably, and its parents too. A directory that exists is no error.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// At most the first `bytes_max` bytes; `None` if there is no such file.
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>>;
    /// Names in a directory; none if it does not exist.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Differs whenever the file does; `None` if there is no such file.
    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>>;
}

pub(super) trait DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
}

/// Tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) inode: u64,
    pub(super) bytes: u64,
    pub(super) modified_ns: (i64, i64),
    pub(super) changed_ns: (i64, i64),
}

/// The file system of the machine.
#[derive(Debug)]
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE);
        Ok(Box::new(options.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        match none_if_missing(File::open(path))? {
            Some(file) => file.sync_all(),
            None => Ok(()),
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        none_if_missing(fs::remove_file(path)).map(|_removed| ())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.as_os_str().is_empty() || dir.is_dir() {
            return Ok(());
        }
        let parent = dir.parent().unwrap_or(dir);
        self.create_dir(parent)?;
        match DirBuilder::new().mode(DIR_MODE).create(dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => {}
            created => created?,
        }
        let relative_to_here = parent.as_os_str().is_empty();
        self.sync_dir(if relative_to_here {
            Path::new(".")
        } else {
            parent
        })
    }

    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = none_if_missing(File::open(path))? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let Some(entries) = none_if_missing(fs::read_dir(dir))? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in entries {
            // A name that is not text is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let metadata = none_if_missing(fs::metadata(path))?;
        Ok(metadata.map(|metadata| Stamp {
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified_ns: (metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: (metadata.ctime(), metadata.ctime_nsec()),
        }))
    }
}

impl DiskFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

fn none_if_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
