//! The rows: what goes wrong, to whom, and for how long. One family a file.

mod freezing;
mod killing;
mod network;
mod nodes;
mod store;

use std::time::Duration;

use super::stage::Stage;
use super::witness::now_ms;
use super::world::{Subject, World};

pub(super) use network::{Harm, Link};
pub(super) use nodes::NodeFault;
pub(super) use store::StoreFault;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    Kill(Victim),
    Freeze(Victim),
    Network(Link, Harm),
    Store(StoreFault),
    Node(NodeFault),
}

/// Who is killed or frozen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Victim {
    /// The rebalancer that leads.
    Leader,
    Router,
    Source,
    Target,
    /// A member of etcd that does not lead.
    EtcdFollower,
    EtcdLeader,
}

/// Where a fault strikes: the nodes of the handoff, and a number that picks among what is alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hit {
    pub(super) source: usize,
    pub(super) target: usize,
    pub(super) pick: usize,
}

/// When a fault struck, and how it ends.
pub(super) struct Healing {
    /// Milliseconds since 1970; by then it had its effect.
    pub(super) struck_at_ms: u64,
    pub(super) after: Duration,
    pub(super) heal: Box<dyn FnOnce(&mut World)>,
}

impl Healing {
    fn after_ms(after_ms: u64, heal: impl FnOnce(&mut World) + 'static) -> Self {
        Self {
            struck_at_ms: now_ms(),
            after: Duration::from_millis(after_ms),
            heal: Box::new(heal),
        }
    }
}

const VICTIMS: [Victim; 6] = [
    Victim::Leader,
    Victim::Router,
    Victim::Source,
    Victim::Target,
    Victim::EtcdFollower,
    Victim::EtcdLeader,
];

impl Victim {
    const fn name(self) -> &'static str {
        match self {
            Victim::Leader => "leader",
            Victim::Router => "router",
            Victim::Source => "source",
            Victim::Target => "target",
            Victim::EtcdFollower => "etcd-follower",
            Victim::EtcdLeader => "etcd-leader",
        }
    }

    /// Who that is now.
    fn find(self, world: &World, hit: Hit) -> Subject {
        let led_by = || world.etcd.leader().unwrap_or(0);
        match self {
            Victim::Leader => world.leader(),
            Victim::Router => Subject::Router(hit.pick % 2),
            Victim::Source => Subject::Node(hit.source),
            Victim::Target => Subject::Node(hit.target),
            Victim::EtcdLeader => Subject::Etcd(led_by()),
            Victim::EtcdFollower => Subject::Etcd((led_by() + 1 + hit.pick % 2) % 3),
        }
    }
}

impl Fault {
    /// Every row of the table, in its order.
    pub(super) fn all() -> Vec<Fault> {
        let mut all: Vec<Fault> = VICTIMS.map(Fault::Kill).into();
        all.extend(VICTIMS.map(Fault::Freeze));
        for link in network::LINKS {
            all.extend(network::HARMS.map(|harm| Fault::Network(link, harm)));
        }
        all.extend(store::ALL.map(Fault::Store));
        all.extend(nodes::ALL.map(Fault::Node));
        all
    }

    /// The word of the command line and of the table.
    pub(super) fn name(self) -> String {
        match self {
            Fault::Kill(victim) => format!("kill-{}", victim.name()),
            Fault::Freeze(victim) => format!("freeze-{}", victim.name()),
            Fault::Network(link, harm) => format!("{}-{}", harm.name(), link.name()),
            Fault::Store(fault) => fault.name().to_owned(),
            Fault::Node(fault) => fault.name().to_owned(),
        }
    }

    /// Why it means nothing in a stage, if so.
    pub(super) fn does_not_apply(self, stage: Stage) -> Option<&'static str> {
        match self {
            Fault::Node(fault) => fault.does_not_apply(stage),
            _ => None,
        }
    }

    /// What it is known to break today, if anything: then it runs only where it is named, and the table says so.
    pub(super) fn known_to_break(self) -> Option<&'static str> {
        match self {
            Fault::Node(NodeFault::Swapped) => Some(
                "acknowledged writes are lost: whoever leads lets clients in at whatever server answers at a node's \
                 address, also at another node's",
            ),
            _ => None,
        }
    }

    /// Which of the handoffs that enter the stage may be hit, if not any.
    pub(super) fn first_only(self) -> bool {
        self == Fault::Node(NodeFault::Emptied)
    }

    /// What a person is asked for after it, if anything; without that a change that stands still is a violation.
    pub(super) fn asks_for(self) -> Option<Asked> {
        match self {
            Fault::Kill(Victim::Source | Victim::Target) => Some(Asked::ToAccept),
            Fault::Node(fault) => fault.asks_for(),
            _ => None,
        }
    }

    /// Lets it happen; returns once it has.
    pub(super) fn strike(self, world: &mut World, hit: Hit) -> Healing {
        match self {
            Fault::Kill(victim) => killing::strike(world, victim.find(world, hit)),
            Fault::Freeze(victim) => freezing::strike(world, victim.find(world, hit)),
            Fault::Network(link, harm) => network::strike(world, link, harm, hit),
            Fault::Store(fault) => fault.strike(world, hit),
            Fault::Node(fault) => fault.strike(world, hit),
        }
    }
}

/// What a person has to do after a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// `node accept`: a node came back as another run after it had become an owner, while what it got is
    /// still where it came from.
    ToAccept,
    /// `resume`, after the cause was mended.
    ToResume,
}
