//! The router in front of real servers: what it promises to clients, by plain sockets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blocking;
mod commands;
mod faults;
mod handover;
mod hostile;
mod large;
mod local;
mod pipelines;
mod pool;
mod pressure;
mod strangers;
mod transactions;
mod twin;
mod watching;
