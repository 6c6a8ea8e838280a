//! What applications and the clockwise router share, and what applications add: [`Client`].
//!
//! | module | what it is |
//! |---|---|
//! | [`client`] | a client of a Redis pool: start here |
//! | [`store`] | where a pool's record is kept, and who routes by it |
//! | [`credentials`] | the pool key and the passwords that follow from it |
//! | [`routing`] | the core that decides, without sockets, what goes where and what became of it |
//! | [`commands`] | which commands there are, and where their keys stand |
//! | [`resp`], [`memcached`] | the protocols of the nodes, as functions over bytes |
//! | [`views`] | a view of each epoch of a record |

pub mod client;
pub mod commands;
pub mod credentials;
pub mod memcached;
pub mod resp;
pub mod routing;
pub mod store;
pub mod views;

pub use client::{Access, BuildError, Builder, Client, ClientLimits, Error, KeyRoute};
