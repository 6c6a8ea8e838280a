//! The admin API: what a person or a program may look at and change, over HTTP and JSON.

mod guard;
pub mod http;
pub mod refusal;

/// The version that every answer names. Within it, fields are only ever added.
pub const API_VERSION: &str = "clockwise/v1";
