//! What a record must satisfy.
//!
//! Checked wherever a record comes into being: read from a store, made new, or derived from another.
//! Whether its layouts can be built into placements is asked where they change and where a view is made.

use alloc::vec::Vec;

use clockwise_placement::{MEMBERS_MAX, NodeId};

use crate::change::{Change, Direction, Handoff, HandoffKind, HandoffState};
use crate::invalid::{FOREIGN_WRITERS_MAX, HandoffFault, InvalidRecord, STAGED_MAX};
use crate::layout::Layout;
use crate::record::{Record, ServiceClass};
use crate::{Node, NodeState, StagedId};

impl Record {
    /// Whether the record is consistent. O(nodes × log nodes), without building a placement.
    pub(crate) fn check(&self) -> Result<(), InvalidRecord> {
        if self.epoch.get() == 0 {
            return Err(InvalidRecord::NoEpoch);
        }
        check_nodes(&self.membership.nodes)?;
        check_generations(self)?;
        if self.class == ServiceClass::Store && self.membership.replicas != 1 {
            return Err(InvalidRecord::ReplicasInStore {
                replicas: self.membership.replicas,
            });
        }
        check_staged(self)?;
        check_foreign_writers(&self.options.foreign_writers)?;
        match &self.change {
            None => check_nodes_at_rest(&self.membership.nodes),
            Some(change) => {
                check_change_nodes(&self.membership.nodes, change)?;
                change
                    .handoffs
                    .iter()
                    .try_for_each(|handoff| check_handoff(handoff, change))?;
                check_handoffs(change)
            }
        }
    }
}

fn check_nodes(nodes: &[Node]) -> Result<(), InvalidRecord> {
    if nodes.is_empty() {
        return Err(InvalidRecord::NoNodes);
    }
    if nodes.len() > MEMBERS_MAX {
        return Err(InvalidRecord::TooManyNodes { nodes: nodes.len() });
    }
    if let Some(pair) = nodes.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(InvalidRecord::DuplicateNode {
            node: pair[0].id.clone(),
        });
    }
    debug_assert!(
        nodes.is_sorted_by(|a, b| a.id < b.id),
        "nodes are sorted when a record is made"
    );
    if let Some(node) = nodes.iter().find(|node| node.weight.hundredths() == 0) {
        return Err(InvalidRecord::ZeroWeight {
            node: node.id.clone(),
        });
    }
    let mut by_address: Vec<&Node> = nodes.iter().collect();
    by_address.sort_by(|a, b| a.address.cmp(&b.address));
    match by_address
        .windows(2)
        .find(|pair| pair[0].address == pair[1].address)
    {
        None => Ok(()),
        Some(pair) => Err(InvalidRecord::SharedAddress {
            address: pair[0].address.clone(),
            node: pair[0].id.clone(),
            other: pair[1].id.clone(),
        }),
    }
}

fn check_generations(record: &Record) -> Result<(), InvalidRecord> {
    let retired = &record.retired;
    if let Some(pair) = retired.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(InvalidRecord::DuplicateTombstone {
            node: pair[0].id.clone(),
        });
    }
    for node in &record.membership.nodes {
        let used = record.highest_retired(&node.id);
        if node.generation <= used {
            return Err(InvalidRecord::GenerationReused {
                node: node.id.clone(),
                generation: node.generation,
                used,
            });
        }
    }
    Ok(())
}

fn check_staged(record: &Record) -> Result<(), InvalidRecord> {
    let staged = &record.staged;
    if staged.len() > STAGED_MAX {
        return Err(InvalidRecord::TooManyStaged {
            staged: staged.len(),
        });
    }
    let mut ids: Vec<StagedId> = staged.iter().map(|staged| staged.id).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(InvalidRecord::DuplicateStaged { id: pair[0] }),
    }
}

fn check_foreign_writers<T: AsRef<str>>(names: &[T]) -> Result<(), InvalidRecord> {
    let is_user =
        |name: &str| (1..=256).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
    if names.len() <= FOREIGN_WRITERS_MAX && names.iter().all(|name| is_user(name.as_ref())) {
        Ok(())
    } else {
        Err(InvalidRecord::ForeignWriters)
    }
}

fn check_nodes_at_rest(nodes: &[Node]) -> Result<(), InvalidRecord> {
    let at_rest = |node: &&Node| !matches!(node.state, NodeState::Active | NodeState::Warming);
    match nodes.iter().find(at_rest) {
        None => Ok(()),
        Some(node) => Err(InvalidRecord::StateWithoutChange {
            node: node.id.clone(),
            state: node.state,
        }),
    }
}

fn check_change_nodes(nodes: &[Node], change: &Change) -> Result<(), InvalidRecord> {
    for layout in [&change.before, &change.after] {
        let members = &layout.members;
        if let Some(pair) = members.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(InvalidRecord::DuplicateMember {
                node: pair[0].id.clone(),
            });
        }
        let known = |id: &NodeId| nodes.binary_search_by(|node| node.id.cmp(id)).is_ok();
        if let Some(seat) = members.iter().find(|seat| !known(&seat.id)) {
            return Err(InvalidRecord::UnknownMember {
                node: seat.id.clone(),
            });
        }
    }
    for node in nodes {
        let (before, after) = (change.before.has(&node.id), change.after.has(&node.id));
        if !before && !after {
            return Err(InvalidRecord::UnplacedNode {
                node: node.id.clone(),
            });
        }
        let fits = match (change.direction, before, after) {
            (Direction::Forward, false, _) => {
                matches!(node.state, NodeState::Joining | NodeState::Warming)
            }
            (Direction::Forward, _, false) => {
                matches!(node.state, NodeState::Leaving | NodeState::Down)
            }
            (Direction::Back, false, _) => node.state == NodeState::Leaving,
            _ => node.state == NodeState::Active,
        };
        if !fits {
            return Err(InvalidRecord::StateWithoutChange {
                node: node.id.clone(),
                state: node.state,
            });
        }
    }
    Ok(())
}

fn check_handoff(handoff: &Handoff, change: &Change) -> Result<(), InvalidRecord> {
    let fault = |fault| {
        Err(InvalidRecord::Handoff {
            source: handoff.source.clone(),
            fault,
        })
    };
    if handoff.targets.is_empty() {
        return fault(HandoffFault::NoTargets);
    }
    let repeated = handoff
        .targets
        .windows(2)
        .find(|pair| pair[0] == pair[1])
        .map(|pair| &pair[0]);
    let itself = handoff
        .targets
        .iter()
        .find(|target| **target == handoff.source);
    if let Some(target) = repeated.or(itself) {
        return fault(HandoffFault::Target {
            target: target.clone(),
        });
    }
    let (from, to): (&Layout, &Layout) = match handoff.kind {
        HandoffKind::Forward | HandoffKind::Lost => (&change.before, &change.after),
        HandoffKind::Reverse => (&change.after, &change.before),
    };
    let stranger = handoff.targets.iter().find(|target| !to.has(target));
    let stranger = if from.has(&handoff.source) {
        stranger
    } else {
        Some(&handoff.source)
    };
    if let Some(node) = stranger {
        return fault(HandoffFault::NotInLayout { node: node.clone() });
    }
    if !may_be(handoff.kind, change.direction, handoff.state) {
        return fault(HandoffFault::Direction);
    }
    let named = handoff.flip.iter().map(|flip| &flip.target);
    let fits = match handoff.state.is_flipped() {
        true => named.eq(&handoff.targets),
        false => handoff.flip.is_empty(),
    };
    if fits {
        Ok(())
    } else {
        fault(HandoffFault::Flip)
    }
}

/// Whether a handoff of this kind can be in this state while its change goes this way.
const fn may_be(kind: HandoffKind, direction: Direction, state: HandoffState) -> bool {
    use HandoffState::{Done, Flipped, Planned, Purging, Undone};
    match (kind, direction) {
        (HandoffKind::Forward, Direction::Forward) | (HandoffKind::Reverse, Direction::Back) => {
            !matches!(state, Purging | Undone)
        }
        // An abort stops what has not flipped and freezes what has.
        (HandoffKind::Forward, Direction::Back) => {
            matches!(state, Purging | Undone | Flipped | Done)
        }
        (HandoffKind::Reverse, Direction::Forward) => false,
        (HandoffKind::Lost, Direction::Forward) => matches!(state, Planned | Flipped | Done),
        (HandoffKind::Lost, Direction::Back) => matches!(state, Undone),
    }
}

fn check_handoffs(change: &Change) -> Result<(), InvalidRecord> {
    let handoffs = &change.handoffs;
    let duplicate = handoffs
        .windows(2)
        .find(|pair| pair[0].order() == pair[1].order());
    if let Some(pair) = duplicate {
        let source = pair[0].source.clone();
        return Err(InvalidRecord::Handoff {
            source,
            fault: HandoffFault::Duplicate,
        });
    }
    let mut fenced = handoffs
        .iter()
        .filter(|handoff| handoff.state == HandoffState::Handover);
    if let (Some(one), Some(other)) = (fenced.next(), fenced.next()) {
        return Err(InvalidRecord::TwoHandovers {
            source: one.source.clone(),
            other: other.source.clone(),
        });
    }
    if change.direction == Direction::Forward {
        return Ok(());
    }
    let flipped =
        |handoff: &&Handoff| handoff.kind == HandoffKind::Forward && handoff.state.is_flipped();
    for handoff in handoffs.iter().filter(flipped) {
        let brings_back = |target: &NodeId| {
            let reverse = change.reverse(target);
            reverse.is_some_and(|reverse| reverse.targets.binary_search(&handoff.source).is_ok())
        };
        if let Some(target) = handoff.targets.iter().find(|target| !brings_back(target)) {
            let fault = HandoffFault::NoReverse {
                target: target.clone(),
            };
            return Err(InvalidRecord::Handoff {
                source: handoff.source.clone(),
                fault,
            });
        }
    }
    Ok(())
}
