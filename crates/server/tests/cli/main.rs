//! The binary as a person or a script meets it: its words, its JSON, its exit codes.

mod measure;
mod program;
