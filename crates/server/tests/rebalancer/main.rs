//! The rebalancer against real servers: what a move carries over, how it goes on after a crash, how it
//! is taken back.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod abort;
mod client;
mod crash;
mod every_type;
mod fence;
mod join;
mod leaving;
mod meddled;
mod news;
mod pool;
mod restarts;
mod slots;
mod throttle;
