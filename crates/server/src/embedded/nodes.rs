//! The embedded nodes of this process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clockwise_placement::NodeId;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::front;
use super::model::Model;
use super::{Clock, SystemClock};

/// How embedded nodes are run.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// Above so many bytes of keys and values a node takes nothing that needs more.
    pub memory_limit: Option<u64>,
    /// Where expiry takes the time from.
    pub clock: Arc<dyn Clock>,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            memory_limit: None,
            clock: Arc::new(SystemClock),
        }
    }
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A node of this name runs already.
    #[error("node {node} runs already")]
    Running {
        /// Its name.
        node: NodeId,
    },
    /// Nobody can listen at the address.
    #[error("cannot listen at {address}: {why}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The system's answer.
        why: io::Error,
    },
    /// The system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
}

/// Some embedded nodes, by name. Clones speak of the same ones; they end with the last clone.
#[derive(Clone, Debug, Default)]
pub struct EmbeddedNodes {
    options: EmbeddedOptions,
    running: Arc<Mutex<BTreeMap<NodeId, Running>>>,
}

#[derive(Debug)]
struct Running {
    node: Arc<Node>,
    front: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.node.stop();
        self.front.abort();
    }
}

impl EmbeddedNodes {
    /// No node yet.
    #[must_use]
    pub fn new(options: EmbeddedOptions) -> Self {
        Self {
            options,
            running: Arc::default(),
        }
    }

    /// Starts a node without keys that listens at an address (port 0: any), and says where.
    ///
    /// # Errors
    /// When a node of this name runs, or nobody can listen there.
    pub async fn start(&self, id: &NodeId, address: SocketAddr) -> Result<SocketAddr, StartError> {
        if self.get(id).is_some() {
            return Err(StartError::Running { node: id.clone() });
        }
        let why = |why| StartError::Listen { address, why };
        let listener = TcpListener::bind(address).await.map_err(why)?;
        let address = listener.local_addr().map_err(why)?;
        let node = Arc::new(Node::new(&self.options)?);
        // Another start of the same node may have come first while this one waited.
        match self.running().entry(id.clone()) {
            Entry::Occupied(_) => Err(StartError::Running { node: id.clone() }),
            Entry::Vacant(free) => {
                let front = tokio::spawn(front::serve(Arc::clone(&node), listener));
                free.insert(Running { node, front });
                Ok(address)
            }
        }
    }

    /// Ends a node and loses what it holds; says whether it ran.
    pub fn stop(&self, id: &NodeId) -> bool {
        self.running().remove(id).is_some()
    }

    /// Ends all nodes.
    pub fn stop_all(&self) {
        self.running().clear();
    }

    pub(super) fn get(&self, id: &NodeId) -> Option<Arc<Node>> {
        self.running()
            .get(id)
            .map(|running| Arc::clone(&running.node))
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<NodeId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A model that several tasks work with. Whoever holds the lock is alone: a fence that has returned
/// is behind every command that was executed.
#[derive(Debug)]
pub(super) struct Node {
    model: Mutex<Model>,
    clock: Arc<dyn Clock>,
    /// Keys were touched that somebody wants to know of.
    pub(super) touched: Notify,
    /// Counts how often users were removed; its end is the node's.
    users: watch::Sender<u64>,
    stopped: watch::Sender<bool>,
}

impl Node {
    fn new(options: &EmbeddedOptions) -> Result<Self, StartError> {
        let mut run = [0; 20];
        getrandom::fill(&mut run).map_err(StartError::Random)?;
        let run: String = run.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            model: Mutex::new(Model::new(&run, options.memory_limit)),
            clock: Arc::clone(&options.clock),
            touched: Notify::new(),
            users: watch::Sender::new(0),
            stopped: watch::Sender::new(false),
        })
    }

    /// Works with the model at the present time, and wakes who waits for touched keys.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Model, u64) -> R) -> R {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let touches = model.touches();
        let result = work(&mut model, self.clock.now_ms());
        if model.touches() != touches {
            self.touched.notify_waiters();
        }
        result
    }

    /// As [`Node::with`], where users may be removed: their connections look up.
    pub(super) fn with_users<R>(&self, work: impl FnOnce(&mut Model, u64) -> R) -> R {
        let result = self.with(work);
        self.users.send_modify(|count| *count += 1);
        result
    }

    /// Changes whenever users may have been removed.
    pub(super) fn users_changed(&self) -> watch::Receiver<u64> {
        self.users.subscribe()
    }

    fn stop(&self) {
        self.stopped.send_replace(true);
        self.touched.notify_waiters();
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_two_starts_of_a_node_at_once_one_is_refused() {
        let nodes = EmbeddedNodes::default();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        for number in 0..200 {
            let id: NodeId = format!("n{number}").parse().unwrap();
            let start = || {
                let (nodes, id) = (nodes.clone(), id.clone());
                tokio::spawn(async move { nodes.start(&id, any).await })
            };
            let (one, other) = (start(), start());
            let started = [one.await.unwrap(), other.await.unwrap()];
            let ok = started.iter().filter(|start| start.is_ok()).count();
            assert_eq!(ok, 1, "{started:?}");
        }
    }
}
