//! The parts of a process that nothing but its own end may end.
//!
//! One that is gone without having been told so, by a panic for instance, leaves a process that looks alive and
//! does not do its work: a router that is deaf to some of its clients, a pool that nobody leads. Whoever started
//! the process starts it again, if only it ends.

use std::fmt;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::{AbortHandle, JoinHandle};

/// A part of a process that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A worker of the router, or what brings it views and commands.
    Router,
    /// What leads the pool and moves keys.
    Rebalancer,
    /// The admin API.
    Admin,
    /// What makes views of the record.
    Views,
    /// What ends the servers of nodes that left.
    Retirer,
    /// What owns the nodes' servers.
    Keeper,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Router => "the router",
            Self::Rebalancer => "the rebalancer",
            Self::Admin => "the admin API",
            Self::Views => "the task that makes views of the record",
            Self::Retirer => "the task that ends the servers of nodes that left",
            Self::Keeper => "the task that owns the nodes' servers",
        })
    }
}

/// Waits for the end of each part.
#[derive(Default)]
pub(crate) struct Parts(FuturesUnordered<BoxFuture<'static, Part>>);

impl Parts {
    /// Waits for the end of this one too; `ended` returns once it has come.
    pub(crate) fn watch(&mut self, part: Part, ended: impl Future<Output = ()> + Send + 'static) {
        self.0.push(Box::pin(async move {
            ended.await;
            part
        }));
    }

    /// The same for a part that is one task; the handle ends it.
    pub(crate) fn watch_task(&mut self, part: Part, task: JoinHandle<()>) -> AbortHandle {
        let handle = task.abort_handle();
        self.watch(part, async move {
            // Whether it returned or panicked, which the panic itself has said.
            let _either = task.await;
        });
        handle
    }

    /// The first part that ends; never returns while all of them live.
    pub(crate) async fn first_to_end(&mut self) -> Part {
        match self.0.next().await {
            Some(part) => part,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::timeout;

    use super::*;

    const NOTICED_WITHIN: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_task_that_panics_is_a_part_that_ended() {
        let mut parts = Parts::default();
        assert!(parts.first_to_end().now_or_never().is_none());
        parts.watch(Part::Router, pending());
        parts.watch_task(Part::Retirer, tokio::spawn(pending()));
        parts.watch_task(
            Part::Views,
            tokio::spawn(async { panic!("planted: a part of it ends") }),
        );
        let first = timeout(NOTICED_WITHIN, parts.first_to_end()).await;
        assert_eq!(first, Ok(Part::Views));
        assert!(parts.first_to_end().now_or_never().is_none());
    }
}
