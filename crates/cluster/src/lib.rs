//! Who belongs to a pool, what an operator wants to change about that, and how it gets there.
//!
//! Everything here is a pure decision: a record comes in and the next one goes out. Time, randomness and
//! addresses are arguments; nothing in this crate opens a socket or a file, and nothing in it waits.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod address;
mod as_text;
mod change;
pub mod copier;
mod counter;
mod edit;
mod form;
mod invalid;
mod layout;
mod name;
mod node;
mod record;

pub use address::{Address, AddressError};
pub use change::{Change, Direction, FlippedTo, Handoff, HandoffKind, HandoffState, Report};
pub use counter::{COUNTER_MAX, Epoch, Generation, Revision};
pub use edit::{Edit, Staged, StagedId};
pub use form::{DecodeError, RECORD_BYTES_MAX, TooLarge};
pub use invalid::{FOREIGN_WRITERS_MAX, HandoffFault, InvalidRecord, STAGED_MAX};
pub use layout::{
    Generator, HashSpec, Layout, LayoutError, SCHEME_V1, SchemeSpec, Seat, SecretKey, SpreadRule,
};
pub use name::{ChangeId, NameError, PoolName};
pub use node::{Incarnation, Node, NodeState, Nonce, NonceError, ServerId, ServerIdError};
pub use record::{
    FORMAT, Membership, NewNode, NewPool, Options, Protocol, Record, ServiceClass, Throttle,
    Tombstone,
};
