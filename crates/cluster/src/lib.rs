//! Who belongs to a pool, what an operator wants to change about that, and how it gets there.
//!
//! Everything here is a pure decision: a record comes in and the next one goes out. Time, randomness and
//! addresses are arguments; nothing in this crate opens a socket or a file, and nothing in it waits.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod address;
mod apply;
mod as_text;
mod change;
mod check;
pub mod copier;
mod counter;
mod draft;
mod edit;
mod end;
mod flow;
mod form;
pub mod handoff;
mod hash_tag;
mod invalid;
mod layout;
mod name;
mod node;
mod plan;
mod record;
mod settings;
mod stage;
mod step;
mod view;

pub use address::{Address, AddressError};
pub use apply::{Apply, ApplyError};
pub use change::{
    Change, Direction, FlippedTo, Handoff, HandoffId, HandoffKind, HandoffState, Report,
};
pub use counter::{COUNTER_MAX, Epoch, Generation, Revision, Term};
pub use draft::{EditError, StaleEdit};
pub use edit::{Edit, Staged, StagedId};
pub use end::{AbortError, Finished};
pub use form::{DecodeError, RECORD_BYTES_MAX, TooLarge};
pub use hash_tag::hash_tag;
pub use invalid::{FOREIGN_WRITERS_MAX, HandoffFault, InvalidRecord, STAGED_MAX};
pub use layout::{
    Generator, HashSpec, Layout, LayoutError, SCHEME_V1, SchemeSpec, Seat, SecretKey, SpreadRule,
};
pub use name::{ChangeId, NameError, PoolName};
pub use node::{Incarnation, Node, NodeState, Nonce, NonceError, ServerId, ServerIdError};
pub use plan::{
    Basis, Evenness, Fate, Held, INTERVALS_LISTED_MAX, Missing, Moves, Plan, PlannedDomain,
    PlannedEdit, PlannedFlow, PlannedInterval, PlannedLoss, PlannedNode, Warning,
};
pub use record::{
    FORMAT, Membership, NewNode, NewPool, Options, Protocol, Record, ServiceClass, Throttle,
    Tombstone,
};
pub use stage::{StageError, Unstage, UnstageError};
pub use step::{Counts, HANDOVER_MS_MAX, Step, StepError};
pub use view::{KeyPosition, Moving, MovingSet, NodeIndex, Route, View, ViewError};
