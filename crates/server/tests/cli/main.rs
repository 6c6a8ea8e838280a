//! The binary as a person or a script meets it: its words, its JSON, its exit codes.

mod admin;
mod changes;
mod cluster;
mod lifecycle;
mod measure;
mod program;
mod verbs;
