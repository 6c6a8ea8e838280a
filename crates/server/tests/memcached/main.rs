//! The router in front of real memcached servers: what it promises to clients, by plain sockets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commands;
mod faults;
mod hostile;
mod pool;
mod suite;
mod twin;
