//! The stations of all nodes that the record names, begun and ended as it changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use clockwise_cluster::Record;
use clockwise_placement::NodeId;
use tokio::task::JoinSet;

use super::mandate::Mandate;
use super::station::{Door, Station, StationError, StationHandle};

/// The stations of one term. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Stations {
    mandate: Arc<Mandate>,
    // Under a lock since handoffs look stations up while the record changes; held for a look-up only.
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    handles: BTreeMap<NodeId, (String, StationHandle)>,
    tasks: JoinSet<()>,
}

impl Stations {
    pub(super) fn new(mandate: Arc<Mandate>) -> Self {
        Self {
            mandate,
            inner: Mutex::default(),
        }
    }

    /// One station for each node of the record; another one where the address is another, or where the
    /// last one ended by a panic.
    pub(super) fn follow(&self, record: &Record) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { handles, tasks } = &mut *inner;
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "the task of a node ended, it is begun again");
            }
        }
        handles.retain(|id, (address, handle)| {
            let node = record.node(id);
            !handle.has_ended() && node.is_some_and(|node| node.address.to_string() == *address)
        });
        for node in &record.membership().nodes {
            handles.entry(node.id.clone()).or_insert_with(|| {
                let (station, handle) = Station::new(Arc::clone(&self.mandate), node.id.clone());
                tasks.spawn(station.run());
                (node.address.to_string(), handle)
            });
        }
    }

    pub(super) fn get(&self, id: &NodeId) -> Result<StationHandle, StationError> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner
            .handles
            .get(id)
            .map(|(_, handle)| handle.clone())
            .ok_or(StationError::Gone)
    }

    /// Whom each node lets in.
    pub(super) fn doors(&self) -> Vec<(NodeId, Door)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner
            .handles
            .iter()
            .map(|(id, (_, handle))| (id.clone(), handle.door()))
            .collect()
    }
}
