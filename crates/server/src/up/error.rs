//! Why an `up` does not start.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clockwise_client::credentials::CredentialError;
use clockwise_client::store::OpenError;
use clockwise_cluster::ViewError;

use super::data_dir::DataDirError;
use super::down::process;
use super::first::FirstError;
use super::parts::Part;
use super::redis_server::RedisServerError;
use super::settings::SettingsError;

/// Why `up` did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpError {
    /// Another process runs on the folder.
    #[error("{} is in use by {}; end it with: clockwise down --dir {}", dir.display(), process(*pid), dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
        /// The process that holds it.
        pid: Option<u32>,
    },
    /// An address cannot be bound.
    #[error("cannot listen on {address} for {what}: {source}")]
    Listen {
        /// What would listen there.
        what: Listens,
        /// The address.
        address: SocketAddr,
        /// The system's words.
        source: std::io::Error,
    },
    /// The system refuses threads, signals or the like.
    #[error("{what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// The system's words.
        source: std::io::Error,
    },
    /// The record's store.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The folder's settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The data folder.
    #[error(transparent)]
    Folder(#[from] DataDirError),
    /// A key or password.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The servers' binary.
    #[error(transparent)]
    Binary(#[from] RedisServerError),
    /// The first record, or the servers of the kept one.
    #[error(transparent)]
    First(#[from] FirstError),
    /// Scripts were asked for on nodes that have none.
    #[error(
        "embedded nodes run no scripts: leave --scripts out, or use --engine redis and another folder"
    )]
    NoScripts,
    /// Something to be kept was asked of nodes that keep nothing.
    #[error(
        "embedded nodes keep nothing over a restart: leave --persist out, or use --engine redis and another folder"
    )]
    NoPersistence,
    /// Something that only the end of `up` may end has ended before it, by a panic for instance.
    #[error("{part} ended by itself, and all else was ended with it; the log says why")]
    PartEnded {
        /// What ended.
        part: Part,
    },
    /// The record cannot be served.
    #[error("the record makes no view: {0}")]
    View(#[from] ViewError),
}

/// What listens at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listens {
    /// The router.
    Clients,
    /// The admin API.
    Admin,
}

impl fmt::Display for Listens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clients => "clients",
            Self::Admin => "the admin API",
        })
    }
}
