//! Why a server could not be started, recognised or ended.

use std::io;
use std::path::PathBuf;

use clockwise_placement::NodeId;

use crate::up::data_dir::DataDirError;

/// Why a server could not be started, recognised or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeServerError {
    /// There is no binary.
    #[error(
        "{} cannot be started: {source}; install Debian's package {package}, or name the binary in {variable}",
        binary.display()
    )]
    NoBinary {
        /// What was tried.
        binary: PathBuf,
        /// Debian's package that has it.
        package: &'static str,
        /// The variable of the environment that may name another.
        variable: &'static str,
        /// The system's words.
        source: io::Error,
    },
    /// Somebody else listens on the node's port.
    #[error("node {id} cannot start: port {port} of 127.0.0.1 is in use by another program")]
    PortInUse {
        /// Which node.
        id: NodeId,
        /// Its port.
        port: u16,
    },
    /// The server ended at once.
    #[error("node {id} ended while starting; its log says: {log}")]
    Ended {
        /// Which node.
        id: NodeId,
        /// The last lines of its log.
        log: String,
    },
    /// The server does not become ready.
    #[error("node {id} on port {port} was not ready in time: {why}")]
    NotReady {
        /// Which node.
        id: NodeId,
        /// Its port.
        port: u16,
        /// What it answered last.
        why: String,
    },
    /// A process is there, and it is not the server that was left.
    #[error("process {pid} was left as node {id}, but does not answer as that server: {why}")]
    NotRecognised {
        /// Which node.
        id: NodeId,
        /// The process.
        pid: i32,
        /// What differs.
        why: String,
    },
    /// The system refused.
    #[error("node {id}: {source}")]
    System {
        /// Which node.
        id: NodeId,
        /// The system's words.
        source: io::Error,
    },
    /// Something about the data folder.
    #[error(transparent)]
    Folder(#[from] DataDirError),
}
