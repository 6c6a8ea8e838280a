//! What may be wrong with nodes beyond being away.

use std::fs;

use super::{Asked, Healing, Hit};
use crate::matrix::stage::{Stage, Way};
use crate::matrix::witness::now_ms;
use crate::matrix::world::{Subject, World};

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::matrix) enum NodeFault {
    /// The target dies and comes back with nothing.
    Emptied,
    /// Source and another owner change their addresses, and change back.
    Swapped,
    /// The target may take no more memory.
    OutOfMemory,
}

pub(super) const ALL: [NodeFault; 3] = [
    NodeFault::Emptied,
    NodeFault::Swapped,
    NodeFault::OutOfMemory,
];

const AWAY_MS: u64 = 1_000;
const SWAPPED_MS: u64 = 2_000;
const FULL_MS: u64 = 2_000;

impl NodeFault {
    pub(super) const fn name(self) -> &'static str {
        match self {
            NodeFault::Emptied => "target-emptied",
            NodeFault::Swapped => "ports-swapped",
            NodeFault::OutOfMemory => "target-full",
        }
    }

    pub(super) fn does_not_apply(self, stage: Stage) -> Option<&'static str> {
        let owns = stage.state.is_flipped() || stage.way == Way::Back;
        match self {
            NodeFault::Emptied if owns => Some(
                "the emptied node owns keys: a plain server that lost its disk has lost them, whoever moves keys",
            ),
            _ => None,
        }
    }

    pub(super) fn asks_for(self) -> Option<Asked> {
        match self {
            NodeFault::OutOfMemory | NodeFault::Swapped => Some(Asked::ToResume),
            NodeFault::Emptied => None,
        }
    }

    pub(super) fn strike(self, world: &mut World, hit: Hit) -> Healing {
        match self {
            NodeFault::Emptied => {
                let target = Subject::Node(hit.target);
                let struck_at_ms = now_ms();
                world.kill(target);
                empty(world, hit.target);
                Healing {
                    struck_at_ms,
                    ..Healing::after_ms(AWAY_MS, move |world| world.restart(target))
                }
            }
            NodeFault::Swapped => {
                let other = (hit.source + 1) % 3;
                swap(world, [hit.source, other], [other, hit.source]);
                Healing::after_ms(SWAPPED_MS, move |world| {
                    swap(world, [hit.source, other], [hit.source, other]);
                })
            }
            NodeFault::OutOfMemory => {
                let limit = move |world: &World, bytes: &str| {
                    world.nodes[hit.target].cli(&["CONFIG", "SET", "maxmemory", bytes]);
                };
                limit(world, "1");
                Healing::after_ms(FULL_MS, move |world| limit(world, "0"))
            }
        }
    }
}

/// Whoever connects to the address of `from[i]` reaches the server `to[i]`.
fn swap(world: &World, from: [usize; 2], to: [usize; 2]) {
    for (from, to) in from.into_iter().zip(to) {
        world.node_proxies[from].redirect(world.nodes[to].socket_addr());
    }
}

fn empty(world: &World, at: usize) {
    let dir = world.nodes[at].dir();
    for name in ["appendonlydir", "appendonly.aof", "dump.rdb"] {
        let path = dir.join(name);
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        // Which of them there are depends on the version of the server and on what it has written.
        drop(removed);
    }
    assert!(
        !dir.join("appendonlydir").exists() && !dir.join("dump.rdb").exists(),
        "the data of {} is still there",
        dir.display()
    );
}
