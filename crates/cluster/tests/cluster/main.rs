//! What this crate promises, through its public face: records, edits, plans, steps and views.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod change;
mod edits;
mod plan;
mod pool;
mod record;
mod scripts;
mod slots;
mod view;
mod walks;
