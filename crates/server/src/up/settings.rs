//! What `up` was first started with on a folder: a later start goes on with the same.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::data_dir::{DataDir, DataDirError};
use super::node_server::Persist;

const FILE: &str = "up.json";

/// What the nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Nodes inside this process: for trying things out, strings only, data in memory only.
    Embedded,
    /// A redis-server for each node.
    Redis,
    /// A memcached for each node: a cache, data in memory only.
    Memcached,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Embedded => "embedded",
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        })
    }
}

/// What a folder's nodes are and what they keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// What the nodes are.
    pub engine: Engine,
    /// What redis-servers keep.
    pub persist: Persist,
    /// Whether clients had to give a password at the last start. The password itself is not kept.
    #[serde(default)]
    pub password: bool,
}

/// What clients have to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientLogin {
    /// Nothing, unless it was a password at the last start on the folder: then it must be said what.
    Unsaid,
    /// Nothing.
    Nothing,
    /// The password that is in this file.
    PasswordOf(PathBuf),
}

/// Why a folder's settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Other nodes were asked for than the folder has.
    #[error(
        "this folder has nodes of engine {kept}, not {asked}: leave --engine out, or use another folder"
    )]
    OtherEngine {
        /// What the folder has.
        kept: Engine,
        /// What was asked for.
        asked: Engine,
    },
    /// The folder's servers would start without the file that has their keys.
    #[error(
        "this folder's servers keep their keys in append-only files, and would start empty without them: leave --persist out, or use another folder"
    )]
    WouldStartEmpty,
    /// Clients had a password, and it is not said whether they still have one.
    #[error(
        "clients of this folder's pool give a password: name its file with --password-file FILE, or let everybody in with --no-password"
    )]
    PasswordUnsaid,
    /// A folder that has been used does not say what its nodes are.
    #[error(
        "{FILE} is gone from a folder that has a record: say what its nodes are, with --engine redis, --engine memcached or --engine embedded, and name the file of the clients' password, if they had one, with --password-file"
    )]
    Gone,
    /// The file is damaged.
    #[error(
        "{} is not readable: {why}; remove it and start with the engine that the folder was begun with, by --engine redis, --engine memcached or --engine embedded",
        path.display()
    )]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Something about the data folder.
    #[error(transparent)]
    Folder(#[from] DataDirError),
}

impl Settings {
    /// What the folder has, or else what is asked for.
    ///
    /// # Errors
    /// When another engine is asked for than the folder has, or no persistence where it has some, or clients had a password and nobody says whether
    /// they are to have one.
    pub fn choose(
        dir: &DataDir,
        engine: Option<Engine>,
        persist: Option<Persist>,
        clients: &ClientLogin,
    ) -> Result<Self, SettingsError> {
        let kept = Self::kept(dir)?;
        if let (Some(Self { engine: kept, .. }), Some(asked)) = (kept, engine)
            && kept != asked
        {
            return Err(SettingsError::OtherEngine { kept, asked });
        }
        if kept.is_some_and(|kept| kept.engine == Engine::Redis && kept.persist == Persist::Aof)
            && persist == Some(Persist::None)
        {
            return Err(SettingsError::WouldStartEmpty);
        }
        let engine = engine
            .or(kept.map(|kept| kept.engine))
            .unwrap_or(Engine::Embedded);
        let persist = persist
            .or(kept.map(|kept| kept.persist))
            .unwrap_or(Persist::Aof);
        let password = match clients {
            ClientLogin::Unsaid if kept.is_some_and(|kept| kept.password) => {
                return Err(SettingsError::PasswordUnsaid);
            }
            ClientLogin::Unsaid | ClientLogin::Nothing => false,
            ClientLogin::PasswordOf(_) => true,
        };
        Ok(Self {
            engine,
            persist,
            password,
        })
    }

    /// Keeps them for the next start on the folder.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&self, dir: &DataDir) -> Result<(), SettingsError> {
        let unwritten = |error: serde_json::Error| SettingsError::Unreadable {
            path: dir.path().join(FILE),
            why: error.to_string(),
        };
        Ok(dir.write(FILE, &serde_json::to_string(self).map_err(unwritten)?)?)
    }

    /// What the folder has; none before the first `up`.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn kept(dir: &DataDir) -> Result<Option<Self>, SettingsError> {
        let Some(text) = dir.read(FILE)? else {
            return Ok(None);
        };
        let parsed = serde_json::from_str(&text);
        parsed.map(Some).map_err(|error| SettingsError::Unreadable {
            path: dir.path().join(FILE),
            why: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_engine() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = DataDir::create(scratch.path()).unwrap();
        assert_eq!(Settings::kept(&dir).unwrap(), None);
        let choose =
            |engine, persist| Settings::choose(&dir, engine, persist, &ClientLogin::Unsaid);
        let first = choose(Some(Engine::Redis), None).unwrap();
        assert_eq!(
            first,
            Settings {
                engine: Engine::Redis,
                persist: Persist::Aof,
                password: false,
            }
        );
        first.keep(&dir).unwrap();
        assert_eq!(choose(None, None).unwrap(), first);
        let other = choose(Some(Engine::Embedded), None);
        assert!(
            matches!(other, Err(SettingsError::OtherEngine { .. })),
            "{other:?}"
        );
    }

    #[test]
    fn servers_that_have_append_only_files_are_not_started_without_them() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = DataDir::create(scratch.path()).unwrap();
        let choose =
            |persist| Settings::choose(&dir, Some(Engine::Redis), persist, &ClientLogin::Unsaid);
        let none = choose(Some(Persist::None)).unwrap();
        none.keep(&dir).unwrap();
        assert_eq!(choose(None).unwrap(), none);
        let files = choose(Some(Persist::Aof)).unwrap();
        files.keep(&dir).unwrap();
        assert_eq!(choose(None).unwrap(), files);
        let refused = choose(Some(Persist::None));
        assert!(
            matches!(refused, Err(SettingsError::WouldStartEmpty)),
            "{refused:?}"
        );
    }

    #[test]
    fn a_pool_with_a_password_is_not_opened_by_saying_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = DataDir::create(scratch.path()).unwrap();
        let start = |clients: &ClientLogin| {
            let chosen = Settings::choose(&dir, None, None, clients)?;
            chosen.keep(&dir)?;
            Ok::<bool, SettingsError>(chosen.password)
        };
        let with = ClientLogin::PasswordOf(PathBuf::from("file"));
        assert!(!start(&ClientLogin::Unsaid).unwrap(), "a new folder");
        assert!(start(&with).unwrap());
        let told = start(&ClientLogin::Unsaid).unwrap_err().to_string();
        for way in ["--password-file", "--no-password"] {
            assert!(told.contains(way), "{told}");
        }
        assert!(start(&with).unwrap());
        assert!(!start(&ClientLogin::Nothing).unwrap());
        assert!(!start(&ClientLogin::Unsaid).unwrap(), "as it was left");
        // As versions before this one wrote it.
        let old = "{\"engine\":\"redis\",\"persist\":\"aof\"}";
        dir.write(FILE, old).unwrap();
        assert!(!start(&ClientLogin::Unsaid).unwrap());
    }
}
