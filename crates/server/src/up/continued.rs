//! What a change in flight takes for granted about nodes that were started again with this process.
//!
//! A target that is another run than at its flip stays closed while its source still has what it gave:
//! nobody knows what the target has. Of a server that this program ended in good order it is known, once the
//! next one has loaded all that was saved: it is the same data. Of nodes in memory it is known too: nothing
//! is left anywhere, so that no copy is older than another, and the change ends as it would have.

use std::sync::Arc;

use clockwise_client::store::Store;
use clockwise_cluster::{Change, HandoffState, Record};
use clockwise_placement::NodeId;

use super::fleet::Past;
use crate::driver::Driver;
use crate::rebalancer::accept;

/// Writes down which nodes are what they were at their flips. Of others, the rebalancer decides.
pub(super) async fn recognise(
    store: &dyn Store,
    driver: &dyn Driver,
    record: Arc<Record>,
    pasts: &[(NodeId, Past)],
) -> Arc<Record> {
    say_what_is_gone(&record, pasts);
    let mut newest = record;
    for (id, past) in pasts {
        let change = newest.change();
        if !change.is_some_and(|change| is_as_at_its_flips(change, id, past)) {
            continue;
        }
        match accept(store, driver, id).await {
            Ok(record) => newest = record,
            Err(error) => {
                tracing::warn!(node = %id, %error, "not known for what it was at its flip; it stays closed")
            }
        }
    }
    newest
}

fn say_what_is_gone(record: &Record, pasts: &[(NodeId, Past)]) {
    if pasts.iter().any(|(_, past)| *past == Past::Gone) {
        tracing::warn!(
            "the data of the embedded nodes is gone: they keep it in memory only, and begin empty"
        );
        if let Some(change) = record.change() {
            tracing::warn!(change = %change.id, "it goes on by itself, with nothing left to move");
        }
    }
}

/// Whether the node has become an owner while its source still has what it gave, and is known to have all
/// that it had then.
fn is_as_at_its_flips(change: &Change, id: &NodeId, past: &Past) -> bool {
    let uncleaned = change.handoffs.iter().filter(|handoff| {
        matches!(
            handoff.state,
            HandoffState::Flipped | HandoffState::Cleaning
        )
    });
    let mut flips = uncleaned
        .flat_map(|handoff| &handoff.flip)
        .filter(|flip| flip.target == *id)
        .peekable();
    flips.peek().is_some()
        && match past {
            Past::Unknown => false,
            Past::Kept(run) => flips.all(|flip| flip.incarnation == *run),
            Past::Gone => true,
        }
}
