//! The network between two, by the proxies; everybody else's is well.
//!
//! A router without etcd has a view that is frozen: that is the row of frozen views.

use std::time::Duration;

use clockwise_testkit::{Flow, Way, Weather};

use super::{Healing, Hit};
use crate::matrix::world::{Subject, World};

/// Longer than a lease.
const STORE_AWAY_MS: u64 = 3_000;
const NODE_AWAY_MS: u64 = 1_500;
/// Half of a round trip; more than the budget of a handover together.
const DELAY: Duration = Duration::from_millis(150);
/// Within this time everything that is open has been asked something.
const CUT_MS: u64 = 500;

/// Between whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::matrix) enum Link {
    LeaderSource,
    LeaderTarget,
    LeaderEtcd,
    RouterSource,
    RouterTarget,
    RouterEtcd,
}

pub(super) const LINKS: [Link; 6] = [
    Link::LeaderSource,
    Link::LeaderTarget,
    Link::LeaderEtcd,
    Link::RouterSource,
    Link::RouterTarget,
    Link::RouterEtcd,
];

/// What is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::matrix) enum Harm {
    /// Nothing passes.
    Partition,
    /// Requests pass, answers do not.
    OneWay,
    /// All is late.
    Delay,
    /// Each connection ends in the middle of a request.
    CutRequest,
    /// Each connection ends in the middle of an answer: the request was executed.
    CutAnswer,
}

pub(super) const HARMS: [Harm; 5] = [
    Harm::Partition,
    Harm::OneWay,
    Harm::Delay,
    Harm::CutRequest,
    Harm::CutAnswer,
];

impl Link {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Link::LeaderSource => "leader-source",
            Link::LeaderTarget => "leader-target",
            Link::LeaderEtcd => "leader-etcd",
            Link::RouterSource => "router-source",
            Link::RouterTarget => "router-target",
            Link::RouterEtcd => "router-etcd",
        }
    }

    fn ends(self, world: &World, hit: Hit) -> (Subject, Subject) {
        let router = Subject::Router(hit.pick % 2);
        let (source, target) = (Subject::Node(hit.source), Subject::Node(hit.target));
        match self {
            Link::LeaderSource => (world.leader(), source),
            Link::LeaderTarget => (world.leader(), target),
            Link::LeaderEtcd => (world.leader(), Subject::Etcd(0)),
            Link::RouterSource => (router, source),
            Link::RouterTarget => (router, target),
            Link::RouterEtcd => (router, Subject::Etcd(0)),
        }
    }
}

impl Harm {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Harm::Partition => "partition",
            Harm::OneWay => "one-way",
            Harm::Delay => "delay",
            Harm::CutRequest => "cut-request",
            Harm::CutAnswer => "cut-answer",
        }
    }
}

pub(super) fn strike(world: &World, link: Link, harm: Harm, hit: Hit) -> Healing {
    let (from, to) = link.ends(world, hit);
    let weather = match harm {
        Harm::Partition => Weather::PARTITION,
        Harm::OneWay => Weather {
            to_client: Flow::Stalls,
            ..Weather::default()
        },
        Harm::Delay => Weather::late(DELAY),
        Harm::CutRequest => return cut(world, from, to, Way::ToServer),
        Harm::CutAnswer => return cut(world, from, to, Way::ToClient),
    };
    world.weather(from, to, weather);
    let away_ms = match to {
        Subject::Node(_) => NODE_AWAY_MS,
        _ => STORE_AWAY_MS,
    };
    Healing::after_ms(away_ms, move |world| world.usual_weather(from, to))
}

/// What was cut is not mended; who was cut off connects again.
fn cut(world: &World, from: Subject, to: Subject, way: Way) -> Healing {
    let pid = world.pid(from);
    match to {
        Subject::Node(at) => {
            world.node_proxies[at].cut(pid, way);
        }
        _ => {
            for proxy in &world.etcd_proxies {
                proxy.cut(pid, way);
            }
        }
    }
    Healing::after_ms(CUT_MS, |_| {})
}
