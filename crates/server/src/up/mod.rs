//! One process that is a whole small cluster.

pub mod data_dir;
pub mod fleet;
pub mod process;
pub mod redis_server;
