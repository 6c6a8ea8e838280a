//! A target without memory: the change does not begin, or stops and says so; nothing is lost, and it goes
//! on once there is room.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use clockwise_placement::NodeId;
use clockwise_testkit::RedisServer;

use crate::client::Client;
use crate::load::{audited, fill, more_writes, seed, work};
use crate::meddling::{Call, Meddler, Verdict};
use crate::pool::{ADMIN, Pool, server_options};

/// Leaves a server no room at the first write to it.
#[derive(Debug, Default)]
struct Fills(OnceLock<SocketAddr>);

#[async_trait]
impl Meddler for Fills {
    async fn before(&self, node: &NodeId, call: Call) -> Verdict {
        if let (Some(server), Call::Write { .. }, "d") = (self.0.get(), call, node.as_str()) {
            Client::login(*server, "default", ADMIN).run("CONFIG SET maxmemory 1mb");
        }
        Verdict::Pass
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_runs_out_of_memory_stops_the_change_and_loses_nothing() {
    let fills = Arc::new(Fills::default());
    let mut pool = Pool::start_meddled(&["a", "b", "c"], Arc::clone(&fills) as _).await;
    fill(&pool, 8_000).await;
    let workload = work(pool.router(), seed(), 2_000, 2_000).await;
    pool.stage_join("d").await;
    let target = pool.servers["d"].socket_addr();
    fills.0.set(target).unwrap();
    pool.apply().await;
    let why = pool.stopped().await;
    println!("{why}");
    assert!(why.contains("memory"), "{why}");
    more_writes(&workload, 500).await;
    Client::login(target, "default", ADMIN).run("CONFIG SET maxmemory 0");
    pool.serving().rebalancer.abort().await.unwrap();
    pool.settle().await;
    let report = audited(workload).await;
    assert!(report.is_clean(), "{:?}", report.faults);
    assert_eq!(report.other_errors(), 0, "{:?}", report.errors);
    assert!(pool.check_places().await >= 8_000);
    assert_eq!(pool.keys()["d"].len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_too_small_from_the_start_is_refused_by_name_and_accepted_when_it_has_grown() {
    let mut pool = Pool::start(&["a", "b", "c"]).await;
    fill(&pool, 8_000).await;
    let mut options = server_options();
    options.max_memory = Some(1 << 20);
    pool.stage_join_of("d", RedisServer::start(options)).await;
    pool.apply().await;
    let why = pool.stopped().await;
    println!("{why}");
    assert!(why.contains("memory") && why.contains('d'), "{why}");
    assert_eq!(pool.keys()["d"].len(), 0, "nothing was copied");
    pool.admin("d").run("CONFIG SET maxmemory 0");
    pool.serving().rebalancer.retry().await.unwrap();
    pool.settle().await;
    assert_eq!(pool.check_places().await, 8_000);
}
