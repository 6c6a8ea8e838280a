//! Walks over a node's keys that remove some of them: strays before a copy, leftovers after it.

use std::sync::Arc;

use clockwise_cluster::copier::Lane;
use clockwise_cluster::handoff::Server;
use clockwise_cluster::{HandoffId, View};
use clockwise_placement::NodeId;

use super::super::mandate::Mandate;
use super::super::station::Link;
use super::SCAN_COUNT;
use super::ops::{At, OpError};
use crate::driver::Key;

/// Steps of a listing in one slice: the identity of the targets is looked at between slices.
const STEPS_PER_SLICE: u32 = 16;
/// The pause between two steps, so that clients of the node go first.
const STEP_PAUSE: std::time::Duration = std::time::Duration::from_micros(500);

/// Removes every key of a handoff's moving set from one target; says how many there were.
pub(super) async fn sweep(
    link: Link,
    lane: Lane,
    view: Arc<View>,
    handoff: HandoffId,
    target: NodeId,
) -> Result<u64, OpError> {
    let at = Server::Target(lane);
    let (keys, _) = link.session.size().await.at(at)?;
    let stray = move |key: &Key| {
        let moving = view.moving_set(&handoff);
        let to = moving.and_then(|moving| moving.target(view.position(key)));
        to.is_some_and(|to| view.node(to).id == target)
    };
    // Other sources may be copying large values to the same target.
    link.session.purge_staging(&stray).await.at(at)?;
    let mut removed = 0;
    if keys == 0 {
        return Ok(removed);
    }
    let mut cursor = 0;
    loop {
        let (next, listed) = link.session.scan(cursor, SCAN_COUNT).await.at(at)?;
        let strays: Vec<Key> = listed.into_iter().filter(&stray).collect();
        if !strays.is_empty() {
            removed += link.session.remove(&strays).await.at(at)?;
        }
        cursor = next;
        if cursor == 0 {
            return Ok(removed);
        }
    }
}

/// What a slice of cleaning did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub(super) removed: u64,
    /// Where the next one starts; none after the last.
    pub(super) next: Option<u64>,
}

/// Removes from a node, from `cursor` on, some of what it does not own in the current epoch.
pub(super) async fn clean(
    mandate: Arc<Mandate>,
    link: Link,
    at: Server,
    node: NodeId,
    mut cursor: u64,
) -> Result<Slice, OpError> {
    let mut removed = 0;
    for _ in 0..STEPS_PER_SLICE {
        let (next, listed) = link.session.scan(cursor, SCAN_COUNT).await.at(at)?;
        // Read again for every step: what counts is who owns now.
        let Some(view) = mandate.view() else { break };
        let foreign = |key: &Key| view.node(view.route(view.position(key)).node).id != node;
        let foreign: Vec<Key> = listed.into_iter().filter(foreign).collect();
        if !foreign.is_empty() {
            throttled(&mandate, foreign.len() as u64).await;
            removed += link.session.remove(&foreign).await.at(at)?;
        }
        cursor = next;
        if cursor == 0 {
            if at != Server::Source {
                link.session.purge_staging(&|_| true).await.at(at)?;
            }
            return Ok(Slice {
                removed,
                next: None,
            });
        }
        tokio::time::sleep(STEP_PAUSE).await;
    }
    Ok(Slice {
        removed,
        next: Some(cursor),
    })
}

/// Removing counts like copying, in keys.
async fn throttled(mandate: &Mandate, keys: u64) {
    loop {
        let now_ms = mandate.now_ms();
        let wait_ms = {
            let mut throttle = mandate.throttle();
            if throttle.keys_allowed(now_ms) > 0 {
                throttle.spend(keys, 0);
                return;
            }
            throttle.ready_at(now_ms).saturating_sub(now_ms).max(1)
        };
        tokio::time::sleep(std::time::Duration::from_millis(wait_ms.min(100))).await;
    }
}
