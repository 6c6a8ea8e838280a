//! Router and rebalancer over one store and one driver in this process, as `up` has them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clockwise::driver::Driver;
use clockwise::rebalancer::{self, Progress, RebalancerConfig, RebalancerHandle};
use clockwise::router::{Limits, Router, RouterConfig, RouterHandle, Secrets};
use clockwise_client::credentials::PoolKey;
use clockwise_client::store::Store;
use clockwise_cluster::{Record, View};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Longer than any of this takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

pub(crate) fn pool_key() -> PoolKey {
    PoolKey::from([7; 32])
}

/// What serves and moves.
pub(crate) struct Serving {
    pub(crate) router: RouterHandle,
    pub(crate) rebalancer: RebalancerHandle,
    // Ends with everything else.
    _views: JoinSet<()>,
}

impl Serving {
    /// Returns when every node lets clients in.
    pub(crate) async fn start(
        store: Arc<dyn Store>,
        driver: Arc<dyn Driver>,
        listen: SocketAddr,
    ) -> Self {
        let record = store.read().await.unwrap().unwrap();
        let (views, task) = publish(&record, &*store);
        let rebalancer = rebalancer::start(RebalancerConfig {
            store,
            driver,
            pool_key: pool_key(),
            name: "rebalancer".to_owned(),
            registry: None,
        });
        let mut progress = rebalancer.progress();
        let opened = timeout(PATIENCE, progress.wait_for(Progress::all_doors_open)).await;
        assert!(
            matches!(opened, Ok(Ok(_))),
            "not every node lets clients in"
        );
        let router = Router::start(RouterConfig {
            listen,
            workers: 2,
            limits: Limits::default(),
            secrets: Secrets {
                pool_key: Some(pool_key()),
                password: None,
            },
            view: views,
        });
        Self {
            router: router.unwrap(),
            rebalancer,
            _views: task,
        }
    }

    pub(crate) async fn end(self) {
        self.router.drain(DRAIN_WITHIN).await;
        self.rebalancer.shutdown().await;
    }
}

fn publish(record: &Record, store: &dyn Store) -> (watch::Receiver<Arc<View>>, JoinSet<()>) {
    let (sender, views) = watch::channel(Arc::new(View::from_record(record).unwrap()));
    let mut records = store.watch();
    let mut task = JoinSet::new();
    task.spawn(async move {
        loop {
            let record = records.borrow_and_update().clone();
            if let Some(record) = record.filter(|record| record.epoch() > sender.borrow().epoch()) {
                let view = sender.borrow().renewed(&record).unwrap();
                sender.send_replace(Arc::new(view));
            }
            if records.changed().await.is_err() {
                return;
            }
        }
    });
    (views, task)
}
