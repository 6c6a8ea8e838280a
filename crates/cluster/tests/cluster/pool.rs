//! Small pools for tests: nodes named in a line, nonces that count.

use clockwise_cluster::{
    Apply, ApplyError, Edit, Generator, HandoffId, Incarnation, NewNode, NewPool, Nonce, Record,
    Step,
};
use clockwise_placement::NodeId;

/// Nonces 1, 2, 3 and so on: no two are alike.
pub(crate) fn nonces() -> impl FnMut() -> Nonce {
    let mut count: u128 = 0;
    move || {
        count += 1;
        Nonce::new(count.to_be_bytes())
    }
}

pub(crate) fn id(name: &str) -> NodeId {
    name.parse().unwrap()
}

/// The address of a node: a port of its own by the first letter of its name.
pub(crate) fn address(name: &str) -> clockwise_cluster::Address {
    let port = 7000 + u16::from(name.as_bytes()[0]);
    format!("127.0.0.1:{port}").parse().unwrap()
}

/// A pool of these nodes, each `name` or `name=weight`, on a ring of so many points a weight.
pub(crate) fn pool(nodes: &str, points_per_weight: u32) -> NewPool {
    let node = |text: &str| {
        let (name, weight) = text.split_once('=').unwrap_or((text, "1"));
        let node = NewNode::new(id(name), address(name));
        NewNode {
            weight: weight.parse().unwrap(),
            ..node
        }
    };
    NewPool {
        generator: Generator::Ring { points_per_weight },
        ..NewPool::new(
            "main".parse().unwrap(),
            nodes.split_whitespace().map(node).collect(),
        )
    }
}

pub(crate) fn record(nodes: &str, points_per_weight: u32) -> Record {
    Record::create(pool(nodes, points_per_weight), &mut nonces()).unwrap()
}

pub(crate) fn add(name: &str) -> Edit {
    Edit::Add {
        id: id(name),
        address: address(name),
        weight: "1".parse().unwrap(),
        domain: "".parse().unwrap(),
    }
}

pub(crate) fn remove(name: &str) -> Edit {
    Edit::Remove { id: id(name) }
}

/// The record with these edits staged.
pub(crate) fn staged(record: &Record, edits: &[Edit]) -> Record {
    edits.iter().fold(record.clone(), |record, edit| {
        record.stage(edit.clone()).unwrap()
    })
}

pub(crate) fn try_apply(record: &Record) -> Result<Record, ApplyError> {
    let mut nonces = nonces();
    let mut later =
        || Nonce::new((0xff << 120 | u128::from_be_bytes(*nonces().as_bytes())).to_be_bytes());
    record.apply(Apply {
        expected: record.epoch(),
        id: "change".parse().unwrap(),
        now_ms: 1_000,
        nonces: &mut later,
    })
}

/// The record with these edits applied at once.
pub(crate) fn applied(record: &Record, edits: &[Edit]) -> Record {
    try_apply(&staged(record, edits)).unwrap()
}

/// The run that a node is taken to be.
pub(crate) fn run_of(name: &NodeId) -> Incarnation {
    Incarnation {
        run_id: format!("run-of-{name}").parse().unwrap(),
        replication_id: format!("data-of-{name}").parse().unwrap(),
    }
}

/// The next step to a state, with what it needs.
pub(crate) fn step_to(record: &Record, handoff: &HandoffId, state: &str) -> Step {
    let entry = record.change().unwrap().handoff(handoff).unwrap();
    let node = record.node(&handoff.source).unwrap();
    match state {
        "copying" if entry.state.name() == "handover" => Step::Rollback,
        "copying" => Step::Copying,
        "verifying" => Step::Verifying,
        "handover" => Step::Handover {
            generation: node.generation.next(),
            nonce: Nonce::new(
                (u128::from_be_bytes(*node.nonce.as_bytes()) + (1 << 64)).to_be_bytes(),
            ),
        },
        "flipped" => Step::Flip {
            targets: entry.targets.iter().map(run_of).collect(),
        },
        "cleaning" => Step::Cleaning,
        "done" => Step::Done,
        "undone" => Step::Undone,
        other => panic!("no step leads to {other}"),
    }
}

pub(crate) const TO_FLIP: [&str; 4] = ["copying", "verifying", "handover", "flipped"];

pub(crate) const TO_DONE: [&str; 6] = [
    "copying",
    "verifying",
    "handover",
    "flipped",
    "cleaning",
    "done",
];

pub(crate) fn set_weight(name: &str, weight: &str) -> Edit {
    Edit::SetWeight {
        id: id(name),
        weight: weight.parse().unwrap(),
    }
}

pub(crate) fn set_domain(name: &str, domain: &str) -> Edit {
    Edit::SetDomain {
        id: id(name),
        domain: domain.parse().unwrap(),
    }
}

/// The record after one handoff has gone through these states, a second each.
pub(crate) fn through(record: &Record, handoff: &HandoffId, states: &[&str]) -> Record {
    states.iter().fold(record.clone(), |record, state| {
        let step = step_to(&record, handoff, state);
        let entered = record
            .change()
            .unwrap()
            .handoff(handoff)
            .unwrap()
            .entered_at_ms;
        record.step(handoff, &step, entered + 1_000).unwrap()
    })
}

pub(crate) fn from(name: &str) -> HandoffId {
    HandoffId::forward(id(name))
}
