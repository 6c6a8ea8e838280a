//! An exhaustive model of the handoff: the real decisions, in every order of everything else. [`seeds`] is the
//! other half: whole clusters in virtual time, with what the model leaves out.
//!
//! What decides is not modelled: [`Record`](clockwise_cluster::Record), [`View`](clockwise_cluster::View), the
//! handoff machine under its [`Conductor`](clockwise_cluster::handoff::Conductor), the
//! [`Copier`](clockwise_cluster::copier::Copier) and [`admission`](clockwise_cluster::handoff::admission) are
//! the code that ships. The world around them is small: a store that compares and commits, two servers with
//! users and one key, a stream of touched keys that may lag and break, up to three processes of the
//! rebalancer of which each earlier one may be dead, deposed or slow, and a client with every view that was
//! ever published. Each effect is a step of its own, so a process may die or lose its leadership between any
//! two of them, and whoever leads next goes on from the record alone.
//!
//! [`search`] looks at every state that can be reached within some [`Bounds`]; in each of them every
//! [`Invariant`] has to hold. A [`Bug`] breaks one rule of the world or of the driver: then an invariant must
//! fail, or the model would prove nothing.
//!
//! What it leaves out: further keys and nodes, large values and values of which the stream shows only a part,
//! copies that run while connections leave, replies lost by clients, clocks. A process enters a node again
//! only when its handoff begins again.
//!
//! ```
//! use clockwise_sim::{Bounds, Handover, search};
//! let found = search(&mut Handover::new(Bounds::QUIET, None), 100_000);
//! assert!(found.complete && found.violation.is_none());
//! ```

mod books;
mod bounds;
mod bug;
mod handover;
mod intern;
mod invariant;
mod real;
mod search;
pub mod seeds;
mod stage;
mod task;
mod work;
mod world;

pub use bounds::{Bounds, SCENARIOS, Scenario};
pub use bug::{Bug, PLANTED, Planted};
pub use handover::{Action, Handover, Kind, MILESTONES};
pub use invariant::Invariant;
pub use search::{Found, Model, search};
pub use world::World;
