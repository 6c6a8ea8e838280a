//! Opening the store that a configuration, or a word on the command line, names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clockwise_client::credentials::{CredentialError, Password};
use clockwise_client::store::{FileOptions, FileStore, OpenError, ReadError, Registry, Store};
use clockwise_cluster::PoolName;

use super::config::{EtcdConfig, StoreConfig};

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(not(feature = "etcd"))]
#[path = "stores/no_etcd.rs"]
mod etcd;
#[cfg(feature = "etcd")]
mod pem;

/// Why a store is not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store itself says no.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A certificate, key or password.
    #[error("{field}: {error}")]
    Secret {
        /// The field that names it.
        field: &'static str,
        /// Why it is not to be had.
        error: CredentialError,
    },
    /// This program does not speak to etcd.
    #[error(
        "this clockwise was built without etcd; build it with the feature `etcd`, which is on unless it was \
         switched off, or keep the record in a file"
    )]
    NoEtcd,
}

/// What whoever opens a store is going to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Look.
    Read,
    /// Change the record.
    Write,
}

/// Who opens a store.
#[derive(Clone, Debug)]
pub struct Holder {
    /// What others are told when they want to lead.
    pub name: String,
    /// Where its admin API is, for them.
    pub contact: Option<String>,
}

/// A store, and what only its kind can.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Where those who route by its record say so.
    pub registry: Arc<dyn Registry>,
    etcd: Option<etcd::Handle>,
    file: Option<Arc<FileStore>>,
}

impl Opened {
    /// Logs in to etcd as this user, and stays who it was if that fails.
    ///
    /// # Errors
    /// If etcd does not let it in, or does not answer.
    pub async fn log_in_as(&self, name: &str, password: Password) -> Result<(), ReadError> {
        match &self.etcd {
            Some(handle) => handle.log_in_as(name, password).await,
            None => Ok(()),
        }
    }

    /// The store in a file, where it is one.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<FileStore>> {
        self.file.as_ref()
    }
}

/// Opens a store. Waits for nothing: whether it answers is said by its first read.
///
/// # Errors
/// When it cannot be: files that are missing, an option that is wrong, a folder that another process writes.
pub fn open(
    config: &StoreConfig,
    pool: &PoolName,
    password: Option<&Password>,
    holder: Holder,
    access: Access,
) -> Result<Opened, StoreError> {
    match config {
        StoreConfig::File { dir } => {
            let store = Arc::new(match access {
                Access::Write => FileStore::open(dir, FileOptions::default())?,
                Access::Read => FileStore::open_read_only(dir, FileOptions::default()),
            });
            Ok(Opened {
                store: Arc::clone(&store) as Arc<dyn Store>,
                registry: Arc::clone(&store) as Arc<dyn Registry>,
                etcd: None,
                file: Some(store),
            })
        }
        StoreConfig::Etcd(config) => {
            let handle = etcd::open(config, pool, password, holder)?;
            Ok(Opened {
                store: handle.store(),
                registry: handle.registry(),
                etcd: Some(handle),
                file: None,
            })
        }
    }
}

/// How an etcd is reached that a configuration names.
///
/// # Errors
/// A certificate or key that is not to be had.
#[cfg(feature = "etcd")]
pub(crate) fn etcd_options(
    config: &EtcdConfig,
    password: Option<&Password>,
) -> Result<clockwise_client::store::EtcdOptions, StoreError> {
    etcd::options(config, password)
}

/// Looks at the files and options of a store, and opens nothing.
///
/// # Errors
/// What opening it would say.
pub fn check(config: &StoreConfig, password: Option<&Password>) -> Result<(), StoreError> {
    match config {
        StoreConfig::File { .. } => Ok(()),
        StoreConfig::Etcd(config) => etcd::check(config, password),
    }
}

/// `etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`, or `file:FOLDER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl(pub StoreConfig);

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(folder) = text.strip_prefix("file:") {
            let folder = folder.strip_prefix("//").unwrap_or(folder);
            if folder.is_empty() {
                return Err("which folder? write file:FOLDER".to_owned());
            }
            let dir = PathBuf::from(folder);
            return Ok(Self(StoreConfig::File { dir }));
        }
        let Some(rest) = text.strip_prefix("etcd://") else {
            let words = "write etcd://HOST:PORT[,HOST:PORT…][/PREFIX], or file:FOLDER; an etcd with TLS or \
                         passwords is named by a configuration: --config FILE";
            return Err(words.to_owned());
        };
        let (hosts, prefix) = match rest.split_once('/') {
            Some((hosts, prefix)) if !prefix.is_empty() => (hosts, format!("/{prefix}")),
            Some((hosts, _)) => (hosts, "/clockwise".to_owned()),
            None => (rest, "/clockwise".to_owned()),
        };
        if hosts.contains('@') {
            // Not repeated: what stands before it may be a password.
            return Err(
                "no user or password stands in it; name a configuration: --config FILE".to_owned(),
            );
        }
        let endpoints = hosts.split(',').map(|host| format!("http://{host}"));
        Ok(Self(StoreConfig::Etcd(EtcdConfig {
            endpoints: endpoints.collect(),
            prefix,
            user: None,
            ca_file: None,
            identity: None,
            lease: Duration::from_secs(5),
        })))
    }
}

impl fmt::Display for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { dir } => write!(f, "file:{}", dir.display()),
            Self::Etcd(config) => {
                let hosts: Vec<&str> = config
                    .endpoints
                    .iter()
                    .map(|endpoint| {
                        endpoint
                            .split_once("://")
                            .map_or(&**endpoint, |(_, host)| host)
                    })
                    .collect();
                write!(f, "etcd://{}{}", hosts.join(","), config.prefix)
            }
        }
    }
}

/// Whether a folder that is only read is there, so that a wrong name is not an empty store.
#[must_use]
pub fn is_there(dir: &Path) -> bool {
    dir.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_a_word() {
        for (text, shown) in [
            ("etcd://a:2379", "etcd://a:2379/clockwise"),
            ("etcd://a:2379,b:2380/", "etcd://a:2379,b:2380/clockwise"),
            ("etcd://a:2379/pools/x", "etcd://a:2379/pools/x"),
            ("file:./data", "file:./data"),
            ("file:///var/data", "file:/var/data"),
        ] {
            let url: StoreUrl = text.parse().unwrap();
            assert_eq!(url.0.to_string(), shown, "{text}");
        }
        for wrong in ["", "data", "http://a:1", "file:", "etcd://u:secret@a:1"] {
            let why = wrong.parse::<StoreUrl>().unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
