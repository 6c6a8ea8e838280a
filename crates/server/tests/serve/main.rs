//! `clockwise serve` and `clockwise record`, as the binary runs them, over real etcds and redis-servers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../cli/program.rs"]
mod program;

mod ending;
mod leading;
mod over_a_file;
mod pool;
mod process;
mod record;
mod refused;
mod reload;
mod roles;
mod store_away;
