//! What a process that serves is made of, whoever starts it: router, rebalancer and admin API over one record,
//! the views between them, and the order in which they begin and end.

mod doors;
pub mod error;
pub(crate) mod log;
mod own_thread;
pub mod parts;
mod registered;
mod roles;
mod signals;
pub(crate) mod terms;
mod trouble;

pub(crate) use roles::{AdminRole, Foundation, RebalancerRole, Roles, RouterRole, Running};
pub(crate) use signals::{Signal, Signals};
