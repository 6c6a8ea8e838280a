//! Why an `up` does not start.

use std::path::PathBuf;

use clockwise_client::credentials::CredentialError;
use clockwise_client::store::OpenError;

use super::data_dir::DataDirError;
use super::down::process;
use super::first::FirstError;
use super::node_server::NodeServerError;
use super::settings::{Engine, SettingsError};
use crate::running::error::RunError;

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
    /// What serves did not start, or ended by itself.
    #[error(transparent)]
    Run(#[from] RunError),
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
    Binary(#[from] NodeServerError),
    /// The first record, or the servers of the kept one.
    #[error(transparent)]
    First(#[from] FirstError),
    /// Scripts were asked for on nodes that have none.
    #[error(
        "nodes of engine {engine} run no scripts: leave --scripts out, or use --engine redis and another folder"
    )]
    NoScripts {
        /// What the nodes are.
        engine: Engine,
    },
    /// Something to be kept was asked of nodes that keep nothing.
    #[error(
        "nodes of engine {engine} keep nothing over a restart: leave --persist out, or use --engine redis and another folder"
    )]
    NoPersistence {
        /// What the nodes are.
        engine: Engine,
    },
    /// `flush_all` was asked for where no client knows it.
    #[error(
        "flush_all is a command of memcached: leave --flush-all out, or use --engine memcached and another folder"
    )]
    NoFlushAll,
}
