//! Ends the servers of nodes that left the pool, or were taken back before they joined.

use std::collections::BTreeSet;
use std::time::Duration;

use clockwise_client::store::Store;
use clockwise_cluster::{Edit, Record};
use clockwise_placement::NodeId;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::fleet::{Fleet, FleetError};

const END_WITHIN: Duration = Duration::from_secs(10);
/// The pause before another try to end a server that did not.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Follows the record until its store is gone.
///
/// Only what the record once named is ended: a server that was just started for a node about to be staged
/// is not named yet.
pub(super) fn follow(store: &dyn Store, fleet: Fleet) -> JoinHandle<()> {
    let mut records = store.watch();
    tokio::spawn(async move {
        let mut named = BTreeSet::new();
        // Servers that are to end, those that did not when they were told to included.
        let mut leaving = BTreeSet::new();
        loop {
            let record = records.borrow_and_update().clone();
            if let Some(record) = record {
                let wanted = wanted(&record);
                leaving.extend(named.difference(&wanted).cloned());
                leaving.retain(|id| !wanted.contains(id));
                named = wanted;
                for id in std::mem::take(&mut leaving) {
                    if !ended(&id, &record, &fleet).await {
                        leaving.insert(id);
                    }
                }
            }
            tokio::select! {
                changed = records.changed() => if changed.is_err() { return },
                () = sleep(AGAIN_AFTER), if !leaving.is_empty() => {}
            }
        }
    })
}

fn wanted(record: &Record) -> BTreeSet<NodeId> {
    let joining = record
        .staged()
        .iter()
        .filter_map(|staged| match &staged.edit {
            Edit::Add { id, .. } => Some(id),
            Edit::Replace { by, .. } => Some(by),
            _ => None,
        });
    record
        .membership()
        .nodes
        .iter()
        .map(|node| &node.id)
        .chain(joining)
        .cloned()
        .collect()
}

/// Whether nothing of it is left to end.
async fn ended(id: &NodeId, record: &Record, fleet: &Fleet) -> bool {
    match fleet.retire(id, record.revision(), END_WITHIN).await {
        Ok(true) => tracing::info!(node = %id, "it left the pool, its server has ended"),
        Ok(false) => {}
        Err(FleetError::Folder(error)) => {
            tracing::error!(node = %id, %error, "it left the pool and its server has ended, but its folder stays where it is");
        }
        Err(error) => {
            tracing::error!(node = %id, %error, again_in_s = AGAIN_AFTER.as_secs(), "it left the pool, but its server does not end");
            return false;
        }
    }
    true
}
