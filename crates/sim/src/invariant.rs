//! What must hold at every moment, one function each.
//!
//! A *claim* is what one published view says of the key: its node, under one credential, not held. There is a
//! client for every view that was ever published, and each may send at any moment; a claim is *admitted* while
//! its node has the user. So the newest client and the most stale one are there, and all between them.

use crate::real::Real;
use crate::world::{ABSENT, NODES, World};

/// What must never be broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Invariant {
    /// At most one node accepts requests for a key.
    OneNodeServes,
    /// Whoever is let in sees the last acknowledged write, or a node that lets nobody in yet still has it.
    NoWriteLost,
    /// What was deleted stays deleted.
    NoValueResurrected,
    /// The epoch of the stored record never falls, and grows whenever routers have to act otherwise.
    EpochsOnlyGrow,
    /// The rebalancer removes nothing from a node that serves it.
    NothingServedIsRemoved,
    /// A change that is over, whole or undone, leaves a copy with the owner only.
    NoCopyLeftBehind,
    /// Whoever compares both sides finds nothing that the copy has missed.
    NothingDiffers,
    /// Only the leader takes a handoff from one state to the next.
    OnlyTheLeaderCommits,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::OneNodeServes,
        Self::NoWriteLost,
        Self::NoValueResurrected,
        Self::EpochsOnlyGrow,
        Self::NothingServedIsRemoved,
        Self::NoCopyLeftBehind,
        Self::NothingDiffers,
        Self::OnlyTheLeaderCommits,
    ];
}

/// The first invariant that a state breaks, of all or of one.
pub(crate) fn broken(world: &World, real: &Real, only: Option<Invariant>) -> Option<Invariant> {
    let checks = [
        (
            Invariant::EpochsOnlyGrow,
            epochs_only_grow as fn(&World, &Real) -> bool,
        ),
        (Invariant::NothingServedIsRemoved, nothing_served_is_removed),
        (Invariant::OneNodeServes, one_node_serves),
        (Invariant::NoValueResurrected, no_value_resurrected),
        (Invariant::NoWriteLost, no_write_lost),
        (Invariant::NoCopyLeftBehind, no_copy_left_behind),
        (Invariant::NothingDiffers, nothing_differs),
        (Invariant::OnlyTheLeaderCommits, only_the_leader_commits),
    ];
    let looked_at = |invariant| only.is_none_or(|only| only == invariant);
    let mut broken = checks
        .iter()
        .filter(|(invariant, holds)| looked_at(*invariant) && !holds(world, real));
    broken.next().map(|(invariant, _)| *invariant)
}

fn epochs_only_grow(world: &World, _: &Real) -> bool {
    !world.epoch_fell
}

fn nothing_served_is_removed(world: &World, _: &Real) -> bool {
    !world.removed_from_server
}

fn one_node_serves(world: &World, _: &Real) -> bool {
    (0..NODES).filter(|&node| world.serves(node)).count() <= 1
}

fn no_value_resurrected(world: &World, _: &Real) -> bool {
    let resurrected = |node: usize| world.serves(node) && world.nodes[node].value != ABSENT;
    world.expected != ABSENT || !(0..NODES).any(resurrected)
}

fn no_write_lost(world: &World, _: &Real) -> bool {
    let expected = world.expected;
    let lost = |node: usize| world.serves(node) && world.nodes[node].value != expected;
    let kept = world.nodes.iter().any(|node| node.value == expected);
    expected == ABSENT || (kept && !(0..NODES).any(lost))
}

fn no_copy_left_behind(world: &World, real: &Real) -> bool {
    let facts = real.facts(world.record);
    let stray = |node: usize| node != facts.owner && world.nodes[node].value != ABSENT;
    facts.changing || !(0..NODES).any(stray)
}

fn nothing_differs(world: &World, _: &Real) -> bool {
    !world.differed
}

fn only_the_leader_commits(world: &World, _: &Real) -> bool {
    !world.usurped
}
