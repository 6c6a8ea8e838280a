//! Places in a handoff at which a test stops the rebalancer: before it goes on, the test does something.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use clockwise_client::store::Store;
use clockwise_cluster::HandoffState;
use clockwise_placement::NodeId;
use tokio::sync::watch;

use crate::meddling::{Call, Meddler, Verdict};

/// A place in a handoff.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Point {
    /// Looking at the servers.
    Planned,
    /// Some keys copied, some not.
    Copying,
    /// Comparing.
    Verifying,
    /// Requests are held, the old users still there.
    BeforeFence,
    /// The old users are gone, the last keys not copied.
    AfterFence,
    /// The new owner serves, the old copies are there.
    Flipped,
    /// Some old copies removed, some not.
    Cleaning,
}

impl Point {
    pub(crate) const ALL: [Self; 7] = [
        Self::Planned,
        Self::Copying,
        Self::Verifying,
        Self::BeforeFence,
        Self::AfterFence,
        Self::Flipped,
        Self::Cleaning,
    ];

    /// The one of this name, as `Debug` writes it.
    pub(crate) fn named(name: &str) -> Self {
        let found = Self::ALL
            .into_iter()
            .find(|point| format!("{point:?}") == name);
        found.unwrap_or_else(|| panic!("no point is called {name}"))
    }

    /// The state it lies in.
    pub(crate) fn state(self) -> HandoffState {
        match self {
            Self::Planned => HandoffState::Planned,
            Self::Copying => HandoffState::Copying,
            Self::Verifying => HandoffState::Verifying,
            Self::BeforeFence | Self::AfterFence => HandoffState::Handover,
            Self::Flipped => HandoffState::Flipped,
            Self::Cleaning => HandoffState::Cleaning,
        }
    }

    /// How many fitting calls go by before the one that is stopped.
    fn skips(self) -> u32 {
        match self {
            Self::Copying => 2,
            Self::Cleaning => 1,
            _ => 0,
        }
    }

    fn fits(self, call: Call) -> bool {
        match self {
            Self::Planned => call == Call::Inspect,
            Self::Copying => matches!(call, Call::Write { .. }),
            Self::Verifying => matches!(call, Call::Read { .. }),
            Self::BeforeFence | Self::AfterFence => call == Call::Fence,
            Self::Flipped => call == Call::Durable,
            Self::Cleaning => matches!(call, Call::Remove { .. }),
        }
    }
}

/// Stops the first call at its point until it is released.
#[derive(Debug)]
pub(crate) struct StopAt {
    point: Point,
    store: Arc<dyn Store>,
    seen: AtomicU32,
    reached: watch::Sender<bool>,
    released: watch::Sender<bool>,
}

impl StopAt {
    pub(crate) fn new(point: Point, store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            point,
            store,
            seen: AtomicU32::new(0),
            reached: watch::Sender::new(false),
            released: watch::Sender::new(false),
        })
    }

    /// Returns when a call is stopped.
    pub(crate) async fn reached(&self) {
        let mut reached = self.reached.subscribe();
        reached.wait_for(|reached| *reached).await.unwrap();
    }

    pub(crate) fn release(&self) {
        self.released.send_replace(true);
    }

    async fn stop_here(&self, node: &NodeId, call: Call) {
        if !self.point.fits(call) || !self.in_state(node) {
            return;
        }
        if self.seen.fetch_add(1, Ordering::SeqCst) != self.point.skips() {
            return;
        }
        self.reached.send_replace(true);
        let mut released = self.released.subscribe();
        released.wait_for(|released| *released).await.unwrap();
    }

    /// Whether a handoff of this node, or to it where the call is one to targets, is in the point's state.
    fn in_state(&self, node: &NodeId) -> bool {
        let record = self.store.watch().borrow().clone();
        let Some(change) = record.as_ref().and_then(|record| record.change()) else {
            return false;
        };
        change.handoffs.iter().any(|handoff| {
            let at = match self.point {
                Point::Copying | Point::Flipped => handoff.targets.contains(node),
                _ => handoff.source == *node,
            };
            at && handoff.state == self.point.state()
        })
    }
}

#[async_trait]
impl Meddler for StopAt {
    async fn before(&self, node: &NodeId, call: Call) -> Verdict {
        if self.point != Point::AfterFence {
            self.stop_here(node, call).await;
        }
        Verdict::Pass
    }

    async fn after(&self, node: &NodeId, call: Call) {
        if self.point == Point::AfterFence {
            self.stop_here(node, call).await;
        }
    }
}
