//! Moving everything that one node gives away in a change, without losing a write.
//!
//! A *handoff* is one source with all its targets. Its source is the only writer until it is fenced:
//! there are no double writes, and writers that know nothing of the ring are caught too. What is here
//! decides; it opens no connection, reads no clock, and is therefore tested in every order of events.
//!
//! - [`Machine`] takes one handoff from its recorded state to `done`: [`Event`]s and time in,
//!   [`Command`]s out.
//! - [`Conductor`] gives the handoffs of one change their turns, turns it back, ends it.
//! - [`admission`] says which clients a node lets in.
//! - [`preflight`] says why a handoff is not begun.

mod admission;
mod conductor;
mod machine;
mod message;
pub mod preflight;
mod reason;

pub use admission::{Admission, Closed, admission};
pub use conductor::{COPIES_AT_ONCE, Conductor, Order};
pub use machine::{HANDOVER_BUDGET_MS, Machine, OLD_CONNECTIONS_MS_MAX};
pub use message::{
    Command, Entry, Event, Identities, Identity, Party, RoundReport, Server, Situation, Trusted,
    Turn,
};
pub use reason::{FenceFailure, Named, Rollback, StopReason, WriteRefusal};
