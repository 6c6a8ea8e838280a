//! What may be wrong with etcd while all of it runs.

use std::thread;
use std::time::Duration;

use clockwise_testkit::{Flow, Weather};
use serde_json::Value;

use super::{Healing, Hit};
use crate::matrix::witness::now_ms;
use crate::matrix::world::{Subject, World};

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::matrix) enum StoreFault {
    /// Its answers are late for everybody.
    Late,
    /// Its leader stands still half of the time, as one whose disk is slow does: SIGSTOP and SIGCONT in turn.
    Stutters,
    /// A router hears nothing of it, and when it listens again what it has missed is compacted.
    Compacted,
}

pub(super) const ALL: [StoreFault; 3] = [
    StoreFault::Late,
    StoreFault::Stutters,
    StoreFault::Compacted,
];

const LATE: Duration = Duration::from_millis(100);
const LATE_MS: u64 = 3_000;
/// Less than the election timeout of a second.
const STANDS_STILL: Duration = Duration::from_millis(150);
const STUTTERS: usize = 8;
const DEAF_MS: u64 = 2_500;

impl StoreFault {
    pub(super) const fn name(self) -> &'static str {
        match self {
            StoreFault::Late => "etcd-late",
            StoreFault::Stutters => "etcd-stutters",
            StoreFault::Compacted => "etcd-compacted",
        }
    }

    pub(super) fn strike(self, world: &mut World, hit: Hit) -> Healing {
        match self {
            StoreFault::Late => {
                everybody(world, Weather::late(LATE));
                Healing::after_ms(LATE_MS, |world| everybody(world, Weather::default()))
            }
            StoreFault::Stutters => {
                let leader = Subject::Etcd(world.etcd.leader().unwrap_or(0));
                world.freeze(leader);
                let rest = move |world: &mut World| {
                    for _ in 1..STUTTERS {
                        world.thaw(leader);
                        thread::sleep(STANDS_STILL);
                        world.freeze(leader);
                        thread::sleep(STANDS_STILL);
                    }
                    world.thaw(leader);
                };
                Healing {
                    struck_at_ms: now_ms(),
                    after: STANDS_STILL,
                    heal: Box::new(rest),
                }
            }
            StoreFault::Compacted => {
                let (router, etcd) = (Subject::Router(hit.pick % 2), Subject::Etcd(0));
                let deaf = Weather {
                    to_client: Flow::Stalls,
                    ..Weather::default()
                };
                world.weather(router, etcd, deaf);
                Healing::after_ms(DEAF_MS, move |world| {
                    compact(world);
                    world.weather(router, etcd, Weather::default());
                })
            }
        }
    }
}

fn everybody(world: &World, weather: Weather) {
    for pid in world.everybody() {
        world
            .etcd_proxies
            .iter()
            .for_each(|proxy| proxy.set(pid, weather));
    }
}

/// Away with everything before now.
fn compact(world: &World) {
    let member = &world.etcd.members()[0];
    let answer = member.ctl(&["get", "/clockwise", "-w", "json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
    // A run in which nothing was compacted would say nothing: etcdctl fails on an empty revision.
    let revision = answer["header"]["revision"].to_string();
    member.ctl(&["compaction", &revision]);
}
