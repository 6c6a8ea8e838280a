//! One process of a pool that may have several, on as many machines: the roles that its configuration names,
//! over a record that all of them share.
//!
//! In reading order: `config` is what a person wrote and `fault` what is wrong with it, `secrets` come from files
//! and the environment, `stores` opens the record, `run` is the life of the process, `reload` what SIGHUP
//! changes of it, `notify` what the service manager is told.

pub mod config;
pub mod error;
pub mod fault;
mod limits;
mod notify;
pub mod reload;
pub mod run;
pub mod secrets;
pub mod stores;
