//! Who belongs to a pool, what an operator wants to change about that, and how it gets there.
//!
//! Everything here is a pure decision: a record comes in and the next one goes out. Time, randomness and
//! addresses are arguments; nothing in this crate opens a socket or a file, and nothing in it waits.
//!
//! A [`Record`] is all that is stored about one pool. An operator stages [`Edit`]s, looks at the [`Plan`],
//! and applies it at the epoch it was made at. If keys have to move, a [`Change`] is in flight from then
//! on: one [`Handoff`] for each node that gives, each taken to its end by [`Record::step`]. Routers act on
//! a [`View`], which says at every moment which node owns a key. The [`handoff`] machine decides when which
//! step is due.
//!
//! ```
//! use std::collections::BTreeMap;
//! use clockwise_cluster::{Apply, Edit, NewNode, NewPool, Nonce, Record, Step, View};
//! let mut count = 0_u8;
//! let nonces = &mut || {
//!     count += 1; // random where it matters
//!     Nonce::new([count; 16])
//! };
//! let a = NewNode::new("a".parse()?, "127.0.0.1:7001".parse()?);
//! let record = Record::create(NewPool::new("main".parse()?, vec![a]), nonces)?;
//!
//! // An operator stages, plans and applies.
//! let record = record.stage(Edit::Add {
//!     id: "b".parse()?,
//!     address: "127.0.0.1:7002".parse()?,
//!     weight: "1".parse()?,
//!     domain: "".parse()?,
//! })?;
//! let plan = record.plan(&BTreeMap::new())?;
//! assert!(plan.moves.share > 0.4 && plan.moves.share < 0.6);
//! let apply = Apply { expected: plan.epoch, id: "join-b".parse()?, now_ms: 0, nonces };
//! let record = record.apply(apply)?;
//!
//! // The rebalancer takes the handoff of node a through its states.
//! let handoff = record.change().unwrap().handoffs[0].id();
//! let generation = record.node(&handoff.source).unwrap().generation.next();
//! let b = clockwise_cluster::Incarnation { run_id: "r1".parse()?, replication_id: "d1".parse()? };
//! let steps = [
//!     Step::Copying,
//!     Step::Verifying,
//!     Step::Handover { generation, nonce: Nonce::new([99; 16]) },
//!     Step::Flip { targets: vec![b] },
//!     Step::Cleaning,
//!     Step::Done,
//! ];
//! let record = steps.iter().try_fold(record, |record, step| record.step(&handoff, step, 1_000))?;
//! let record = record.end_change(2_000)?;
//!
//! // Routers see one view after the other.
//! let view = View::from_record(&record)?;
//! assert_eq!(view.nodes().len(), 2);
//! assert_eq!(view.epoch().get(), 5, "applied, in handover, flipped, ended");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
mod generator;
pub mod handoff;
mod hash_tag;
mod invalid;
mod layout;
mod name;
mod node;
mod plan;
mod record;
mod restore;
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
pub use generator::{Generator, SlotRules};
pub use hash_tag::hash_tag;
pub use invalid::{FOREIGN_WRITERS_MAX, HandoffFault, InvalidRecord, STAGED_MAX};
pub use layout::{
    HashSpec, Layout, LayoutError, SCHEME_V1, SchemeSpec, Seat, SecretKey, SpreadRule,
};
pub use name::{ChangeId, NameError, PoolName};
pub use node::{Incarnation, Node, NodeState, Nonce, NonceError, ServerId, ServerIdError};
pub use plan::{
    Basis, Evenness, Fate, Held, INTERVALS_LISTED_MAX, Missing, Moves, Plan, PlannedDomain,
    PlannedEdit, PlannedFlow, PlannedInterval, PlannedLoss, PlannedNode, PlannedSlots, Remedy,
    Warning,
};
pub use record::{
    FORMAT, Membership, NewNode, NewPool, Options, Protocol, Record, ServiceClass, Throttle,
    Tombstone,
};
pub use restore::RestoreError;
pub use stage::{StageError, Unstage, UnstageError};
pub use step::{Counts, HANDOVER_MS_MAX, Step, StepError};
pub use view::{KeyPosition, Moving, MovingSet, NodeIndex, Route, View, ViewError};
