//! Why a process does not serve, or not any more.

use std::fmt;
use std::net::{SocketAddr, TcpListener};

use clockwise_cluster::ViewError;

use super::parts::Part;

/// Why what a process is made of did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
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
    /// The record cannot be served.
    #[error("the record makes no view: {0}")]
    View(#[from] ViewError),
    /// Something that only the end of the process may end has ended before it, by a panic for instance.
    #[error("{part} ended by itself, and all else was ended with it; the log says why")]
    PartEnded {
        /// What ended.
        part: Part,
    },
}

impl RunError {
    /// The system's refusal of `what`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System { what, source }
    }
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

/// Asked before anything is begun. A router's workers share their port with whoever else is ready to share it,
/// the router of another process for one, and would not be refused.
pub(crate) fn check_free(what: Listens, address: SocketAddr) -> Result<(), RunError> {
    let bound = TcpListener::bind(address);
    bound.map(drop).map_err(|source| RunError::Listen {
        what,
        address,
        source,
    })
}
