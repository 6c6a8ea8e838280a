//! Why a `serve` does not serve.

use std::path::PathBuf;

use clockwise_client::store::ReadError;
use clockwise_cluster::PoolName;

use super::fault::Faults;
use super::secrets::SecretError;
use super::stores::StoreError;
use crate::running::error::RunError;

/// Why `serve` did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] Faults),
    /// Secrets that it names.
    #[error("{}", all(.file, .errors))]
    Secrets {
        /// The configuration.
        file: PathBuf,
        /// What is not to be had.
        errors: Vec<SecretError>,
    },
    /// The store is not opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The record cannot be read, and waiting does not help.
    #[error("{store}: {error}")]
    Read {
        /// The store.
        store: String,
        /// Why.
        error: Box<ReadError>,
    },
    /// There is no record.
    #[error("{store} holds no pool {pool}")]
    NoPool {
        /// The store.
        store: String,
        /// The pool.
        pool: PoolName,
        /// The configuration.
        file: PathBuf,
    },
    /// The record is of another pool.
    #[error("{store} holds pool {found}, not {pool}")]
    OtherPool {
        /// The store.
        store: String,
        /// The pool asked for.
        pool: PoolName,
        /// The one that is there.
        found: PoolName,
    },
    /// What serves did not start, or ended by itself.
    #[error(transparent)]
    Run(#[from] RunError),
}

fn all(file: &std::path::Path, errors: &[SecretError]) -> String {
    let lines: Vec<String> = errors
        .iter()
        .map(|error| format!("{}: {error}", file.display()))
        .collect();
    lines.join("\n")
}
