//! The entries of this process beside the record: what its router routes by, and that it may move keys.

use std::sync::{Arc, Weak};
use std::time::Duration;

use clockwise_client::store::{Registrant, RegistrantKind, Registration, Registry, RoutesBy};
use clockwise_cluster::{Epoch, View};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::router::RouterHandle;

/// How often the router is asked whether all its workers have a view.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// A folder's files are removed in no time, a store that is away forgets them by itself.
const END_WITHIN: Duration = Duration::from_secs(1);

/// The entries, until they are ended or dropped.
pub(super) struct Registrations {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Registrations {
    /// Registers what this process has of router and rebalancer.
    pub(super) fn begin(
        registry: &dyn Registry,
        (router, rebalances): (Option<&Arc<RouterHandle>>, bool),
        views: watch::Receiver<Arc<View>>,
    ) -> Self {
        let here = Registrant::here(RegistrantKind::Rebalancer);
        let routing = router.map(|router| {
            let who = Registrant {
                kind: RegistrantKind::Router,
                place: format!("{} of {}", router.addr(), here.place),
                ..here.clone()
            };
            (registry.register(who), Arc::downgrade(router))
        });
        let moving = rebalances.then(|| registry.register(here));
        let (end, ending) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = follow(routing.as_ref(), moving.as_ref(), views) => {}
                _told_or_dropped = ending => {}
            }
            for entry in [routing.map(|(entry, _)| entry), moving]
                .into_iter()
                .flatten()
            {
                entry.end().await;
            }
        });
        Self { end, task }
    }

    /// Removes the entries.
    pub(super) async fn end(self) {
        drop(self.end);
        if timeout(END_WITHIN, self.task).await.is_err() {
            tracing::debug!("registrations are left to run out");
        }
    }
}

/// Shows each view, the router's once all its workers have it.
async fn follow(
    routing: Option<&(Registration, Weak<RouterHandle>)>,
    moving: Option<&Registration>,
    mut views: watch::Receiver<Arc<View>>,
) {
    loop {
        let by = RoutesBy::from(&**views.borrow_and_update());
        if let Some(moving) = moving {
            moving.show(by);
        }
        if let Some((routing, router)) = routing {
            if !reached(router, by.epoch).await {
                return;
            }
            routing.show(by);
        }
        if views.changed().await.is_err() {
            return;
        }
    }
}

/// `false` once the router is gone.
async fn reached(router: &Weak<RouterHandle>, epoch: Epoch) -> bool {
    loop {
        match router.upgrade() {
            None => return false,
            Some(router) if router.stats().epoch >= Some(epoch) => return true,
            Some(_) => {}
        }
        sleep(LOOK_PAUSE).await;
    }
}
