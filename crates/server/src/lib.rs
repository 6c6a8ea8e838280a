//! Router, rebalancer and command line of clockwise as a library; the binary `clockwise` is a thin face over it.

pub mod admin;
pub mod cli;
pub mod comparison;
pub mod doctor;
pub mod driver;
pub mod embedded;
mod random;
pub mod rebalancer;
pub mod router;
pub mod running;
pub mod serve;
pub mod up;
pub mod workload;
