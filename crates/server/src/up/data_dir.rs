//! The folder of one `up`, which only its owner may read.
//!
//! Everything that `up` keeps lies below it: the record, keys and passwords, and one folder per node
//! that it started itself. The record's store holds the lock that says which process has the folder.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clockwise_placement::NodeId;

/// Held by the process that runs on the folder; made by the record's store.
pub const LOCK: &str = "lock";
/// Where the command line finds the admin API of the process that holds the folder.
pub const ADMIN_ADDRESS: &str = "admin.addr";
/// Where the router is that clients connect to.
pub const LISTEN_ADDRESS: &str = "listen.addr";
/// The token that calls which change something must show.
pub const ADMIN_TOKEN: &str = "admin.token";
/// The key from which the passwords of clients at the nodes derive.
pub const POOL_KEY: &str = "pool.key";
/// The administrator's password of every node that `up` started.
pub const NODES_PASSWORD: &str = "nodes.password";
const NODES: &str = "nodes";

/// Why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// The system refused something about a file.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Something is there, and it is no folder.
    #[error("{} is not a folder", path.display())]
    NoFolder {
        /// What is there.
        path: PathBuf,
    },
    /// A node's name cannot be a folder's.
    #[error("a node started here cannot be called {id}: the name must not begin with a dot")]
    NodeName {
        /// The name.
        id: NodeId,
    },
}

/// A data folder that exists; nobody may hold it.
#[derive(Clone, Debug)]
pub struct DataDir {
    path: PathBuf,
}

impl DataDir {
    /// The folder at `path`, made for its owner alone if it is missing.
    ///
    /// # Errors
    /// When the folder cannot be made or found.
    pub fn create(path: &Path) -> Result<Self, DataDirError> {
        if !path.exists() {
            make_private_folder(path)?;
        }
        let dir = Self::open(path)?;
        let found = fs::metadata(dir.path()).map_err(|source| file_error(path, source))?;
        let mode = found.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            // What others may do in a folder that somebody else made is not ours to change.
            tracing::warn!(
                dir = %dir.path().display(),
                mode = format!("{mode:o}"),
                "others may look into the folder; what is secret in it is readable by its owner only, close it with: chmod 700"
            );
        }
        Ok(dir)
    }

    /// The folder at `path`, which must exist.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        let path = path
            .canonicalize()
            .map_err(|source| file_error(path, source))?;
        if !path.is_dir() {
            return Err(DataDirError::NoFolder { path });
        }
        Ok(Self { path })
    }

    /// The folder's absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text of a file in the folder, without surrounding white space; `None` if it is missing.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn read(&self, name: &str) -> Result<Option<String>, DataDirError> {
        let path = self.path.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(file_error(&path, source)),
        }
    }

    /// Writes a file that only the owner may read; a reader sees the old text or the new one.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write(&self, name: &str, text: &str) -> Result<(), DataDirError> {
        write_private(&self.path.join(name), text)
    }

    /// Removes a file; a missing one is fine.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn remove(&self, name: &str) -> Result<(), DataDirError> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(&path, error)),
            _ => Ok(()),
        }
    }

    /// The folder of a node that was or will be started here.
    ///
    /// # Errors
    /// [`DataDirError::NodeName`] when the name cannot be a folder's.
    pub fn node(&self, id: &NodeId) -> Result<PathBuf, DataDirError> {
        if id.as_str().starts_with('.') {
            return Err(DataDirError::NodeName { id: id.clone() });
        }
        Ok(self.path.join(NODES).join(id.as_str()))
    }

    /// The nodes that have a folder here, in order of their names.
    ///
    /// # Errors
    /// When the system refuses to list them.
    pub fn nodes(&self) -> Result<Vec<NodeId>, DataDirError> {
        let path = self.path.join(NODES);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(file_error(&path, source)),
        };
        let mut ids = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| file_error(&path, source))?;
            let name = entry.file_name();
            let id = name
                .to_str()
                .filter(|name| !name.starts_with('.'))
                .and_then(|n| n.parse().ok());
            ids.extend(id);
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Puts a removed node's folder out of the way, under the revision that no longer names the node.
    /// Nothing is deleted: what a server kept stays readable.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn retire_node(&self, id: &NodeId, revision: u64) -> Result<(), DataDirError> {
        let from = self.node(id)?;
        let retired = self.path.join(NODES).join(".removed");
        make_private_folder(&retired)?;
        let to = retired.join(format!("{id}-{revision}"));
        match fs::rename(&from, &to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(&from, error)),
            _ => Ok(()),
        }
    }
}

/// Makes a folder for its owner alone; an existing one is fine.
///
/// # Errors
/// When the system refuses.
pub fn make_private_folder(path: &Path) -> Result<(), DataDirError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| file_error(path, source))
}

/// Writes a file that only its owner may read, whole or not at all.
///
/// # Errors
/// When the system refuses.
pub fn write_private(path: &Path, text: &str) -> Result<(), DataDirError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&draft, path)
    })();
    written.map_err(|source| file_error(path, source))
}

fn file_error(path: &Path, source: io::Error) -> DataDirError {
    DataDirError::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_belongs_to_the_owner_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = DataDir::create(&scratch.path().join("data")).unwrap();
        dir.write(ADMIN_ADDRESS, "127.0.0.1:1").unwrap();
        assert_eq!(
            dir.read(ADMIN_ADDRESS).unwrap().as_deref(),
            Some("127.0.0.1:1")
        );
        for (path, mode) in [
            (dir.path().to_owned(), 0o700),
            (dir.path().join(ADMIN_ADDRESS), 0o600),
        ] {
            assert_eq!(
                fs::metadata(path).unwrap().permissions().mode() & 0o777,
                mode
            );
        }
        dir.remove(ADMIN_ADDRESS).unwrap();
        assert_eq!(dir.read(ADMIN_ADDRESS).unwrap(), None);
    }

    #[test]
    fn a_node_cannot_leave_the_folder_by_its_name() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = DataDir::create(scratch.path()).unwrap();
        for name in ["..", ".", ".removed"] {
            let id: NodeId = name.parse().unwrap();
            assert!(
                matches!(dir.node(&id), Err(DataDirError::NodeName { .. })),
                "{name}"
            );
        }
    }

    #[test]
    fn a_removed_node_leaves_its_folder_out_of_the_way() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = DataDir::create(scratch.path()).unwrap();
        let id: NodeId = "node-1".parse().unwrap();
        make_private_folder(&dir.node(&id).unwrap()).unwrap();
        assert_eq!(dir.nodes().unwrap(), std::slice::from_ref(&id));
        dir.retire_node(&id, 7).unwrap();
        assert_eq!(dir.nodes().unwrap(), []);
        assert!(dir.path().join("nodes/.removed/node-1-7").is_dir());
    }
}
