//! Router, rebalancer and command line of clockwise as a library; the binary `clockwise` is a thin face over it.

pub mod admin;
pub mod cli;
pub mod driver;
pub mod embedded;
pub mod rebalancer;
pub mod router;
pub mod up;
pub mod workload;
