//! `clockwise doctor`, as the binary runs it, over real servers that are set up badly on purpose.
//!
//! Each fault is planted, found by its name, and, where a command mends it, mended by that command as it is
//! printed; then it is gone.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../cli/program.rs"]
mod program;

mod etcd;
mod examined;
mod memcached;
mod processes;
mod redis;
