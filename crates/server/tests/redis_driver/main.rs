//! The Redis driver against real servers.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod setup;

mod bad_servers;
mod copying;
mod digests;
mod durable;
mod expiries;
mod facts;
mod fence;
mod groups;
mod pieces;
mod tracking;
mod users;
