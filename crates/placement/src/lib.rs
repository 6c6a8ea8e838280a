//! Which node owns a key, and what changes hands when the set of nodes changes.
//!
//! A key's bytes become a *position* on a circle of 2^64. *Points* cut the circle into *intervals*, each
//! `(after, through]`, and each interval has an ordered list of owners: that list is a [`Placement`], and
//! everything else here makes one, asks one, or compares two. It is arithmetic only: no clock, no
//! randomness, no I/O, the same answer in every process.
//!
//! # In a service
//!
//! ```
#![cfg_attr(doc, doc = include_str!("../examples/service.rs"))]
//! ```
//!
//! # Before a change
//!
//! Any two placements can be compared, also of different kinds: what moves, from whom to whom, and how much
//! of it had to.
//!
//! ```
//! use clockwise_placement::{Member, RingSpec, diff};
//! let member = |id: &str| Member::new(id.parse().unwrap());
//! let ring = RingSpec::new(["cache-a", "cache-b", "cache-c"].map(member)).build()?;
//! let owner = ring.owner(b"user:42");
//!
//! let joined = RingSpec::new(["cache-a", "cache-b", "cache-c", "cache-d"].map(member)).build()?;
//! let movement = diff(&ring, &joined).unwrap().movement();
//! assert!(movement.flows.iter().all(|flow| flow.target.as_str() == "cache-d"));
//! assert_eq!(movement.copies, movement.copies_least);
//! # let _ = owner;
//! # Ok::<(), clockwise_placement::PlacementError>(())
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod algorithm;
mod balance;
mod bounded;
mod buckets;
mod diff;
mod dispersion;
mod domain;
mod draw;
mod ends;
mod error;
mod fingerprint;
mod interval;
mod jump;
mod loss;
mod maglev;
mod measure;
mod modulo;
mod movement;
mod node;
mod placement;
mod position;
mod preference;
mod rendezvous;
mod replicas;
mod ring;
mod sample;
mod scheme;
mod shortfall;
mod slots;
mod sorted;
mod topology;
mod weight;

pub use algorithm::{Algorithm, Edit, EditError, Slots};
pub use balance::{Balance, Load, expected_cv};
pub use bounded::{Chosen, LoadBound, WhenFull};
pub use diff::{Change, Diff, KeySpaceError, diff};
pub use dispersion::{Dispersion, DomainLoad};
pub use domain::{DOMAIN_DEPTH_MAX, Domain, DomainError};
pub use error::PlacementError;
pub use fingerprint::Fingerprint;
pub use interval::Interval;
pub use jump::{Jump, jump_hash};
pub use loss::{Loss, losses_by_keys};
pub use maglev::{MAGLEV_SIZE_MAX, Maglev};
pub use measure::{KeyMeasure, KeyMoves, NodeKeys, Owners, measure_keys, weigh_requests};
pub use modulo::{Modulo, modulo_moved_share};
pub use movement::{Flow, Movement};
pub use node::{Member, NameFault, NodeId, NodeIdError, NodeIx};
pub use placement::{OwnedInterval, Placement, Point};
pub use position::{HexError, Position};
pub use preference::Preference;
pub use rendezvous::Rendezvous;
pub use ring::{MEMBERS_MAX, POINTS_MAX, POINTS_PER_WEIGHT, Ring, RingChange, RingSpec, Spread};
pub use sample::{RingSample, points_for, sample_rings};
pub use scheme::{KeyHash, Recipe, Scheme};
pub use shortfall::Shortfall;
pub use slots::{Hint, SLOTS_DEFAULT, SLOTS_MAX, SlotShare, SlotsPlan, SlotsSpec, Unavoidable};
pub use weight::{Weight, WeightError};
