//! SIGSTOP and SIGCONT: everything open stays open, and nobody answers.
//!
//! A frozen leader wakes when another has led for a while: that is the row of two rebalancers.

use super::Healing;
use crate::matrix::world::{Subject, World};

/// Longer than the lease of two seconds, so that another leads when it wakes.
const LEADER_FROZEN_MS: u64 = 3_500;
/// Longer than etcd's election.
const ETCD_FROZEN_MS: u64 = 2_500;
/// Longer than a router waits for an answer.
const FROZEN_MS: u64 = 1_500;

pub(super) fn strike(world: &mut World, subject: Subject) -> Healing {
    world.freeze(subject);
    let frozen_ms = match subject {
        Subject::Rebalancer(_) => LEADER_FROZEN_MS,
        Subject::Etcd(_) => ETCD_FROZEN_MS,
        _ => FROZEN_MS,
    };
    Healing::after_ms(frozen_ms, move |world| world.thaw(subject))
}
