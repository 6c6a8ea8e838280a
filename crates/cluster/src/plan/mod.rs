//! What `apply` would do, before it does it: who gives what to whom, and how the pool stands afterwards.
//!
//! A plan is computed from the record, what is staged, and what the nodes hold if somebody counted. It
//! compares placements interval by interval, which is exact. Where the change gives every key another
//! position no interval can be compared; what moves is then decided per key, and the plan says how its
//! shares were come by. It never decides: `apply` computes everything again and checks the epoch.

mod compare;
mod flows;
mod text;
mod warning;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use clockwise_placement::{Domain, NodeId, Placement, Position, Weight, modulo_moved_share};
use serde::Serialize;

use crate::apply::{Apply, ApplyError};
use crate::draft::Draft;
use crate::layout::Layout;
use crate::record::Record;
use crate::{ChangeId, Edit, Epoch, Generator, Nonce, PoolName, StagedId, as_text};
pub use warning::{Remedy, Warning};

/// How many intervals a plan lists; the others are counted. A person reads none of them, a program may ask
/// the two placements for all.
pub const INTERVALS_LISTED_MAX: usize = 4_096;

/// What a node was found to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Its keys.
    pub keys: u64,
    /// The bytes they take.
    pub bytes: u64,
}

/// What `apply` would do to a pool.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// The pool.
    pub pool: PoolName,
    /// The epoch it was made at, which `apply` must find.
    pub epoch: Epoch,
    /// What is staged, in order.
    pub edits: Vec<PlannedEdit>,
    /// Whether no key moves, so that all of it holds at once.
    pub at_once: bool,
    /// The generator afterwards.
    #[serde(serialize_with = "as_text::serialize")]
    pub generator: Generator,
    /// How many nodes hold a key afterwards.
    pub replicas: u8,
    /// The nodes of both sides, sorted by id.
    pub nodes: Vec<PlannedNode>,
    /// What moves.
    pub moves: Moves,
    /// How evenly the first owners share the circle before.
    pub balance_before: Evenness,
    /// How evenly they share it afterwards.
    pub balance_after: Evenness,
    /// How evenly copies lie before, where a key has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies_before: Option<Evenness>,
    /// How evenly copies lie afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies_after: Option<Evenness>,
    /// What the slots could be at best, where a table was planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<PlannedSlots>,
    /// What the failure domains take, outermost level first.
    pub domains: Vec<PlannedDomain>,
    /// What the loss of each node would mean afterwards.
    pub losses: Vec<PlannedLoss>,
    /// Replicas and domains that are missing before.
    pub shortfall_before: Missing,
    /// Replicas and domains that are missing afterwards.
    pub shortfall_after: Missing,
    /// How long the copying takes at the throttle, in milliseconds; none without a throttle or counts, or where
    /// nothing is copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
    /// What a person should know before applying.
    pub warnings: Vec<Warning>,
    /// Why `apply` would refuse, in its words.
    #[serde(serialize_with = "as_text::list::serialize")]
    pub refusals: Vec<ApplyError>,
}

/// A staged edit as the plan applies it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct PlannedEdit {
    /// Its number.
    pub id: StagedId,
    /// What it asks for.
    pub edit: Edit,
    /// The same for a person.
    pub text: String,
}

/// What becomes of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Fate {
    /// It comes in.
    Joins,
    /// It was there and is there afterwards.
    Stays,
    /// It hands over and goes.
    Leaves,
    /// It goes without handing over.
    Lost,
}

/// A node before and afterwards.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct PlannedNode {
    /// Which.
    #[serde(serialize_with = "as_text::serialize")]
    pub id: NodeId,
    /// What becomes of it.
    pub fate: Fate,
    /// Its weight, afterwards if it is there then.
    #[serde(serialize_with = "as_text::serialize")]
    pub weight: Weight,
    /// Its place, afterwards if it is there then.
    #[serde(serialize_with = "as_text::serialize")]
    pub domain: Domain,
    /// The part of the keys it owns before.
    pub share_before: f64,
    /// The part of the keys it owns afterwards.
    pub share_after: f64,
    /// The copies it holds before over what its weight asks for; 1 is even.
    pub over_mean_before: f64,
    /// The copies it holds afterwards over what its weight asks for.
    pub over_mean_after: f64,
    /// The part of all copies it holds before.
    pub copies_before: f64,
    /// The part of all copies it holds afterwards.
    pub copies_after: f64,
    /// The keys it holds now, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
}

/// How the shares of what moves were come by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Basis {
    /// Every interval was compared.
    Exact,
    /// So many made-up keys were placed by both schemes.
    Sampled {
        /// How many.
        keys: u32,
    },
    /// Only keys with a hash tag can move, and nobody knows how many have one: this is if all have.
    AtMost,
}

/// What moves.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Moves {
    /// How the shares were come by.
    pub basis: Basis,
    /// The part of the keys that change their first owner.
    pub share: f64,
    /// Copies that some node gains, as a part of all keys.
    pub copies: f64,
    /// The fewest copies that could move: Σ max(0, afterwards − before) over the nodes.
    pub copies_least: f64,
    /// Copies moved between two nodes that the change is not about; none where it is about all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies_needless: Option<f64>,
    /// The part of the keys that `hash % N` would have moved.
    pub modulo: f64,
    /// Keys that move, by what the nodes hold now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// Bytes that move, by what the nodes hold now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What each source gives to each target, sorted.
    pub flows: Vec<PlannedFlow>,
    /// How many intervals change their first owner; none where the change is decided per key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals_count: Option<u64>,
    /// The first of them, clockwise.
    pub intervals: Vec<PlannedInterval>,
}

/// What one node gives to another.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct PlannedFlow {
    /// Who gives.
    #[serde(serialize_with = "as_text::serialize")]
    pub source: NodeId,
    /// Who takes.
    #[serde(serialize_with = "as_text::serialize")]
    pub target: NodeId,
    /// The part of all keys.
    pub share: f64,
    /// Keys, by what the source holds now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// Bytes, by what the source holds now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// An interval `(after, through]` that changes its first owner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct PlannedInterval {
    /// The position before its first.
    #[serde(serialize_with = "as_text::serialize")]
    pub after: Position,
    /// Its last position.
    #[serde(serialize_with = "as_text::serialize")]
    pub through: Position,
    /// Who owns it now.
    #[serde(serialize_with = "as_text::serialize")]
    pub source: NodeId,
    /// Who owns it afterwards.
    #[serde(serialize_with = "as_text::serialize")]
    pub target: NodeId,
}

/// How evenly something lies on the nodes, each beside what its weight asks for.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Evenness {
    /// The most loaded node over its fair part.
    pub max_over_mean: f64,
    /// The least loaded node over its fair part.
    pub min_over_mean: f64,
    /// The standard deviation over the fair parts.
    pub cv: f64,
    /// What chance gives to a ring of so many points; none for slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cv_expected: Option<f64>,
}

/// What planned slots could be at best.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct PlannedSlots {
    /// How many there are.
    pub slots: u32,
    /// The copies of the most loaded node over its fair part, in the best balance that weights and failure
    /// domains allow. The slots of `balance_after` are within one of it, unless an overload is allowed or
    /// copies are left to move.
    pub optimum_over_mean: f64,
    /// The part of all copies that still has to move after this change, where it goes in steps.
    pub copies_left: f64,
}

/// A failure domain before and afterwards.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct PlannedDomain {
    /// Its path.
    pub path: String,
    /// Its nodes afterwards.
    pub nodes: u64,
    /// The part of all copies it holds before.
    pub share_before: f64,
    /// The part of all copies it holds afterwards.
    pub share_after: f64,
}

/// What the loss of a node would mean to the others.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct PlannedLoss {
    /// The node.
    #[serde(serialize_with = "as_text::serialize")]
    pub node: NodeId,
    /// How many others share its part.
    pub heirs: u64,
    /// The most loaded of those left.
    #[serde(
        serialize_with = "as_text::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub worst: Option<NodeId>,
    /// The load of that one over its fair part while all nodes were there.
    pub worst_over_mean: f64,
}

/// Replicas and domains that there are not enough nodes for. All zero when nothing is missing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Missing {
    /// Replicas that there are no nodes for.
    pub nodes: u8,
    /// For each level of the domains, outermost first: replicas that share a domain with another.
    pub domains: Vec<u8>,
}

impl Record {
    /// What `apply` would do with what is staged.
    ///
    /// `held` is what the nodes hold, of those that were counted. O(points × log points + nodes²), and twice
    /// the time that [`SlotsSpec::plan`](clockwise_placement::SlotsSpec::plan) takes where slots are planned.
    ///
    /// # Errors
    /// Nothing is staged, or it leads to no layout that could be shown. What `apply` refuses although it can
    /// be shown stands in [`Plan::refusals`].
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use clockwise_cluster::{Edit, NewNode, NewPool, Nonce, Record};
    /// let node = |id: &str, port| NewNode::new(id.parse().unwrap(), format!("127.0.0.1:{port}").parse().unwrap());
    /// let pool = NewPool::new("main".parse()?, vec![node("a", 7001), node("b", 7002)]);
    /// let record = Record::create(pool, &mut || Nonce::new([7; 16]))?;
    /// let staged = record.stage(Edit::SetWeight { id: "a".parse()?, weight: "3".parse()? })?;
    /// let plan = staged.plan(&BTreeMap::new())?;
    /// assert_eq!(plan.moves.flows[0].target.as_str(), "a");
    /// assert!(plan.moves.copies == plan.moves.copies_least, "no more than has to");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan(&self, held: &BTreeMap<NodeId, Held>) -> Result<Plan, ApplyError> {
        let present = Draft::unedited(self);
        let (draft, outlook) = match self.check_apply(self.epoch) {
            Ok(planned) => planned,
            Err(ApplyError::ChangeInFlight { .. }) => Draft::of(self)?.planned(&present)?,
            Err(error) => return Err(error),
        };
        let before = present.layout;
        let sides = Sides {
            before: before.build()?,
            after: draft.layout.build()?,
            layout_before: &before,
            layout_after: &draft.layout,
        };
        let moves = flows::moves(&sides, held);
        let mut plan = Plan {
            pool: self.pool.clone(),
            epoch: self.epoch,
            edits: self.planned_edits(),
            at_once: moves.flows.is_empty(),
            generator: draft.layout.generator.clone(),
            replicas: draft.layout.replicas,
            nodes: compare::nodes(&sides, &draft, held),
            balance_before: compare::evenness(&sides.before, &before),
            balance_after: compare::evenness(&sides.after, &draft.layout),
            copies_before: compare::evenness_of_copies(&sides.before),
            copies_after: compare::evenness_of_copies(&sides.after),
            slots: compare::slots(&draft.layout, outlook.as_ref()),
            domains: compare::domains(&sides),
            losses: compare::losses(&sides.after),
            shortfall_before: compare::missing(&sides.before),
            shortfall_after: compare::missing(&sides.after),
            eta_ms: self.eta_ms(&moves),
            warnings: Vec::new(),
            refusals: self.dry_run().err().into_iter().collect(),
            moves,
        };
        let edits = self.staged.iter().map(|staged| &staged.edit);
        plan.warnings = warning::warnings(&plan, edits, outlook.as_ref());
        if !self.protocol.can_fence() {
            warning::about_misses(&mut plan);
        }
        Ok(plan)
    }

    fn planned_edits(&self) -> Vec<PlannedEdit> {
        let planned = |staged: &crate::Staged| PlannedEdit {
            id: staged.id,
            edit: staged.edit.clone(),
            text: alloc::format!("{}", staged.edit),
        };
        self.staged.iter().map(planned).collect()
    }

    /// `apply` with a name as long as names can be, so that its size is the largest it can have.
    fn dry_run(&self) -> Result<Self, ApplyError> {
        let longest = [b'-'; 64];
        let name = core::str::from_utf8(&longest).expect("hyphens are text");
        let id: ChangeId = name.parse().expect("64 hyphens are a name");
        self.apply(Apply {
            expected: self.epoch,
            id,
            now_ms: crate::COUNTER_MAX,
            nonces: &mut || Nonce::new([0; 16]),
        })
    }

    fn eta_ms(&self, moves: &Moves) -> Option<u64> {
        if !self.protocol.can_fence() {
            return None;
        }
        let throttle = self.options.throttle;
        let at = |amount: Option<u64>, rate: u64| {
            let ms = u128::from(amount?) * 1_000;
            ms.checked_div(u128::from(rate))
                .map(|ms| u64::try_from(ms).unwrap_or(u64::MAX))
        };
        let by_keys = at(moves.keys, throttle.keys_per_second);
        by_keys.max(at(moves.bytes, throttle.bytes_per_second))
    }
}

/// The two sides of a plan.
struct Sides<'a> {
    before: Placement,
    after: Placement,
    layout_before: &'a Layout,
    layout_after: &'a Layout,
}

impl Sides<'_> {
    fn modulo(&self) -> f64 {
        modulo_moved_share(self.before.nodes().len(), self.after.nodes().len())
    }
}

/// Positions as a part of the circle.
fn share_of(positions: u128) -> f64 {
    const CIRCLE: f64 = 18_446_744_073_709_551_616.0;
    positions as f64 / CIRCLE
}
