//! Looks at every server before a handoff begins; [`check`] judges what was seen.

use std::collections::BTreeMap;

use clockwise_cluster::handoff::Entry;
use clockwise_cluster::handoff::preflight::{Facts, Refusal, Seen, TargetFacts, Unseen, check};
use clockwise_cluster::{HandoffId, NodeState, Record, View, ViewError};
use clockwise_placement::NodeId;
use futures_util::future::join_all;

use super::engine::Handoff;
use super::mandate::{node_address, wall_clock_ms};
use super::translate;
use crate::driver::{Driver, DriverError};

/// Keys that are placed to estimate which part of a source goes to a target.
const SAMPLE_KEYS: u32 = 10_000;

/// Whether the servers are only looked at, or something is tried out at them as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trial {
    /// Nothing is written anywhere.
    None,
    /// A value of a source is restored at its targets under a reserved name and removed again.
    Canary,
}

/// Every reason not to begin the change in flight of a record, which need not be committed yet.
///
/// # Errors
/// A record that gives no view.
pub async fn preflight(
    driver: &dyn Driver,
    record: &Record,
    trial: Trial,
) -> Result<Vec<Refusal>, ViewError> {
    let Some(change) = record.change() else {
        return Ok(Vec::new());
    };
    let view = View::from_record(record)?;
    let ids: Vec<HandoffId> = change.handoffs.iter().map(|handoff| handoff.id()).collect();
    let all = join_all(ids.iter().map(|id| facts(driver, record, &view, id, trial))).await;
    let mut all: Vec<Facts> = all.into_iter().flatten().collect();
    share_targets(&mut all);
    let mut refusals: Vec<Refusal> = Vec::new();
    for refusal in all.iter().flat_map(check) {
        if !refusals.contains(&refusal) {
            refusals.push(refusal);
        }
    }
    Ok(refusals)
}

/// A target has to take in what all sources give it.
fn share_targets(all: &mut [Facts]) {
    let mut expected: BTreeMap<NodeId, u64> = BTreeMap::new();
    for target in all.iter().flat_map(|facts| &facts.targets) {
        *expected.entry(target.seen.node.clone()).or_default() += target.bytes_expected;
    }
    for target in all.iter_mut().flat_map(|facts| &mut facts.targets) {
        target.bytes_expected = expected[&target.seen.node];
    }
}

/// What the servers of one handoff look like now; nothing of it was seen if its change is gone.
pub(super) async fn look(handoff: &Handoff) -> Option<Facts> {
    let record = handoff.mandate.record()?;
    facts(
        &*handoff.mandate.driver,
        &record,
        &handoff.view,
        &handoff.id,
        Trial::Canary,
    )
    .await
}

async fn facts(
    driver: &dyn Driver,
    record: &Record,
    view: &View,
    id: &HandoffId,
    trial: Trial,
) -> Option<Facts> {
    let entry = Entry::of(record, id)?;
    let handoff = record.change()?.handoff(id)?;
    let clock_ms = wall_clock_ms();
    let (source, targets) = futures_util::join!(
        see(driver, record, &id.source, clock_ms),
        join_all(
            handoff
                .targets
                .iter()
                .map(|target| see(driver, record, target, clock_ms))
        )
    );
    let shares = shares(view, id);
    let used = source
        .facts
        .as_ref()
        .map_or(0, |facts| facts.memory_used_bytes);
    let mut of_targets = Vec::new();
    for seen in targets {
        let canary = match (trial, &source.facts, &seen.facts) {
            (Trial::Canary, Ok(_), Ok(_)) => canary(driver, record, &id.source, &seen.node).await,
            _ => Ok(()),
        };
        let share = shares.get(&seen.node).copied().unwrap_or(0);
        let bytes_expected = used / u64::from(SAMPLE_KEYS) * u64::from(share);
        let leaving = record
            .node(&seen.node)
            .is_none_or(|node| node.state == NodeState::Leaving);
        of_targets.push(TargetFacts {
            leaving: leaving && !id.reverse,
            bytes_expected,
            canary,
            seen,
        });
    }
    Some(Facts {
        source,
        source_lost: entry.source_lost,
        source_expected: entry.source_expected,
        targets: of_targets,
        foreign_writers_allowed: record.options().foreign_writers.clone(),
        clock_ms,
    })
}

async fn see(driver: &dyn Driver, record: &Record, id: &NodeId, clock_ms: u64) -> Seen {
    let Some(node) = record.node(id) else {
        return Seen {
            node: id.clone(),
            facts: Err(Unseen::Unreachable("it has no address".to_owned())),
        };
    };
    let before_ms = wall_clock_ms();
    let inspected = driver.inspect(&node_address(node)).await;
    let after_ms = wall_clock_ms();
    let facts = inspected
        .map_err(translate::unseen)
        .and_then(translate::facts)
        .map(|mut facts| {
            // Whatever lies between the question and its answer is no skew.
            let ahead_ms = facts.clock_ms.saturating_sub(after_ms);
            let behind_ms = before_ms.saturating_sub(facts.clock_ms);
            facts.clock_ms = (clock_ms + ahead_ms).saturating_sub(behind_ms);
            facts
        });
    Seen {
        node: id.clone(),
        facts,
    }
}

/// Why the target does not take what the source serialises. A server that went away in between is not a
/// reason of this kind: it is met again at the next step.
async fn canary(
    driver: &dyn Driver,
    record: &Record,
    source: &NodeId,
    target: &NodeId,
) -> Result<(), String> {
    let (Some(source), Some(target)) = (record.node(source), record.node(target)) else {
        return Ok(());
    };
    match driver
        .canary(&node_address(source), &node_address(target))
        .await
    {
        Ok(()) | Err(DriverError::Unreachable { .. } | DriverError::Busy { .. }) => Ok(()),
        Err(DriverError::Refused { why, .. }) => Err(why),
        Err(other) => Err(other.to_string()),
    }
}

/// Of so many keys that the source has before, how many go to each target.
fn shares(view: &View, id: &HandoffId) -> BTreeMap<NodeId, u32> {
    let mut shares: BTreeMap<NodeId, u32> = BTreeMap::new();
    let Some(moving) = view.moving_set(id) else {
        return shares;
    };
    let (mut of_source, mut number) = (0, 0_u64);
    // A source that owns nothing would be sampled for ever.
    while of_source < SAMPLE_KEYS && number < u64::from(SAMPLE_KEYS) * 64 {
        let position = view.position(&number.to_le_bytes());
        number += 1;
        if view.node(view.route(position).node).id != id.source {
            continue;
        }
        of_source += 1;
        if let Some(target) = moving.target(position) {
            *shares.entry(view.node(target).id.clone()).or_default() += 1;
        }
    }
    shares
}
