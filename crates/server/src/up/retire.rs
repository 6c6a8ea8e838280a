//! Ends the servers of nodes that left the pool, or were taken back before they joined.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use clockwise_client::store::Store;
use clockwise_cluster::{Edit, Record};
use clockwise_placement::NodeId;
use tokio::task::JoinHandle;

use super::data_dir::DataDir;
use super::fleet::Fleet;

const END_WITHIN: Duration = Duration::from_secs(10);

/// Follows the record until its store is gone.
///
/// Only what the record once named is ended: a server that was just started for a node about to be staged
/// is not named yet.
pub(super) fn follow(store: &dyn Store, dir: DataDir, fleet: Fleet) -> JoinHandle<()> {
    let mut records = store.watch();
    tokio::spawn(async move {
        let mut named = BTreeSet::new();
        loop {
            let record = records.borrow_and_update().clone();
            if let Some(record) = record {
                let wanted = wanted(&record);
                for id in named.difference(&wanted) {
                    end(id, &record, &dir, &fleet).await;
                }
                named = wanted;
            }
            if records.changed().await.is_err() {
                return;
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

async fn end(id: &NodeId, record: &Record, dir: &DataDir, fleet: &Fleet) {
    let deadline = Instant::now() + END_WITHIN;
    match fleet.end(id, deadline).await {
        Ok(false) => return,
        Ok(true) => tracing::info!(node = %id, "it left the pool, its server has ended"),
        Err(error) => {
            return tracing::error!(node = %id, %error, "it left the pool, but its server does not end");
        }
    }
    if let Err(error) = dir.retire_node(id, record.revision().get()) {
        tracing::error!(node = %id, %error, "its folder stays where it is");
    }
}
