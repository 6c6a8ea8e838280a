//! Waiting, at a start, until the nodes let clients in.

use std::time::Duration;

use tokio::time::timeout;

use crate::rebalancer::{Door, Progress, RebalancerHandle};

/// How long nodes may take to let clients in before the start goes on without them: a little longer than a
/// connection to one that is not there is tried for.
const OPEN_WITHIN: Duration = Duration::from_secs(4);
/// How long it waits for them without a word.
const SAY_AFTER: Duration = Duration::from_secs(1);

/// Waits until every node lets clients in; after a while the start goes on without those that do not.
pub(super) async fn wait_for_doors(rebalancer: &RebalancerHandle) {
    let mut progress = rebalancer.progress();
    // A node that must stay closed waits for a person, who needs the others and the admin API.
    let settled =
        |progress: &Progress| progress.all_doors_settled() || progress.cannot_lead.is_some();
    let mut patience = [SAY_AFTER, OPEN_WITHIN - SAY_AFTER].into_iter();
    while let Some(within) = patience.next()
        && timeout(within, progress.wait_for(settled)).await.is_err()
    {
        let then = match patience.len() {
            0 => "the start goes on without it; look at: clockwise status",
            _ => "waiting for it",
        };
        for (node, door) in &progress.borrow().doors {
            match door {
                Door::Open { .. } | Door::Closed(_) => {}
                Door::Away { why } => {
                    tracing::warn!(%node, why, "it cannot be reached to let clients in, {then}");
                }
                Door::Unknown => tracing::warn!(%node, "it lets no clients in yet, {then}"),
            }
        }
    }
    let progress = progress.borrow();
    if progress.led_elsewhere {
        return;
    }
    if let Some(why) = &progress.cannot_lead {
        tracing::error!(why, "nobody leads the pool: no node lets clients in");
    }
    for (node, door) in &progress.doors {
        if let Door::Closed(why) = door {
            tracing::warn!(%node, %why, "it lets no clients in; look at: clockwise status");
        }
    }
}
