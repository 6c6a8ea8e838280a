//! SIGKILL, and a start again from what is on disk.

use super::Healing;
use crate::matrix::witness::now_ms;
use crate::matrix::world::{Subject, World};

/// A leader is followed when its lease of two seconds has ended; it comes back after that, all others sooner.
const LEADER_AWAY_MS: u64 = 2_500;
const AWAY_MS: u64 = 1_000;

pub(super) fn strike(world: &mut World, subject: Subject) -> Healing {
    // It ends at once; that it has ended is seen later, when whoever was connected has done something about it.
    let struck_at_ms = now_ms();
    world.kill(subject);
    let away_ms = match subject {
        Subject::Rebalancer(_) => LEADER_AWAY_MS,
        _ => AWAY_MS,
    };
    Healing {
        struck_at_ms,
        ..Healing::after_ms(away_ms, move |world| world.restart(subject))
    }
}
