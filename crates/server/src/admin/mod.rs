//! The admin API: what a person or a program may look at and change, over HTTP and JSON.

pub mod answer;
pub mod call;
pub mod calls;
pub mod clients;
pub(crate) mod counts;
pub(crate) mod elsewhere;
mod guard;
pub mod http;
mod look;
mod metrics;
mod moves;
pub mod operator;
pub mod refusal;
pub mod service;
pub mod token;

pub(crate) use look::shares as shares_of;

/// The version that every answer names. Within it, fields are only ever added.
pub const API_VERSION: &str = "clockwise/v1";
