//! The binary as a person or a script meets it: its words, its JSON, its exit codes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod bad_input;
mod changes;
mod clients;
mod cluster;
mod continued;
mod damage;
mod library;
mod lifecycle;
mod lost;
mod measure;
mod memcached;
mod mistakes;
mod options;
mod program;
mod sim;
mod verbs;
