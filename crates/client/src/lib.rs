//! What applications and the clockwise router share: the pool's record and its credentials, the
//! routing core that decides without sockets, and the protocols of the nodes.

pub mod credentials;
pub mod memcached;
pub mod resp;
pub mod routing;
pub mod store;
