//! What applications and the clockwise router share: the pool's record and its credentials, the
//! routing core that decides without sockets, and the protocol of the nodes.

pub mod credentials;
pub mod resp;
pub mod routing;
pub mod store;
