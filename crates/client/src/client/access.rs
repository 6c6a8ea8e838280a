//! Who the client is to the nodes.

use clockwise_cluster::Node;

use crate::credentials::{Password, PoolKey, client_login, client_password, client_user};
use crate::routing::{Credential, Target};

/// Who the client is to the nodes of its pool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Access {
    /// The user of each node's present generation, whose password follows from the pool key: what
    /// every pool whose keys may move needs.
    PoolKey(PoolKey),
    /// One user of all nodes, for nodes of a fixed membership.
    User {
        /// Its name; `default` for a server with a password and nothing else.
        name: String,
        /// Its password.
        password: Password,
    },
    /// Nobody: the nodes let everybody in.
    Nobody,
}

impl Access {
    pub(super) fn credential(&self, target: &Target) -> Option<Credential> {
        match self {
            Self::PoolKey(key) => Some(Credential {
                user: client_user(target.generation),
                password: client_password(key, &target.id, &target.nonce),
            }),
            Self::User { name, password } => Some(Credential {
                user: name.clone(),
                password: password.clone(),
            }),
            Self::Nobody => None,
        }
    }

    pub(super) fn login(&self, node: &Node) -> Option<(String, Password)> {
        match self {
            Self::PoolKey(key) => Some(client_login(key, node)),
            Self::User { name, password } => Some((name.clone(), password.clone())),
            Self::Nobody => None,
        }
    }
}
