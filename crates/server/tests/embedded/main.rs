//! The embedded node: answers as a redis-server does, stands what clients do to it, and is moved.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod differential;
mod form;
mod front;
mod moving;
mod node;
mod over;
#[path = "../proof/serving.rs"]
mod serving;
