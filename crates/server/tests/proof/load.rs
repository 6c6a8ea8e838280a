//! Keys and load that the proofs share: keys that lie still, and the checked workload over the router.

use std::net::SocketAddr;
use std::time::Duration;

use clockwise::workload::{DirectOptions, DirectWriter, Mix, Report, Workload, WorkloadOptions};
use clockwise_client::credentials::client_login;
use clockwise_cluster::{Record, View};

use crate::client::words;
use crate::keys::way;
use crate::pool::{Pool, wait_until};
use crate::serving::pool_key;

/// The seed of `CLOCKWISE_SEED`, or one of the clock; printed with the way to repeat it.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("CLOCKWISE_SEED").ok();
    let seed = given.map_or_else(
        || {
            let mut bytes = [0; 4];
            getrandom::fill(&mut bytes).unwrap();
            u64::from(u32::from_le_bytes(bytes))
        },
        |seed| seed.parse().unwrap(),
    );
    println!("seed {seed}; again with CLOCKWISE_SEED={seed}");
    seed
}

/// Keys `still:…` of 100 bytes that nobody touches while they move.
pub(crate) async fn fill(pool: &Pool, count: usize) {
    let command = |number: usize| {
        let key = format!("still:{number}");
        words(&[b"SET", key.as_bytes(), format!("{key:0>100}").as_bytes()])
    };
    pool.run_at_owners((0..count).map(command).collect()).await;
}

/// The checked workload with this many requests a second, half of them writes.
pub(crate) async fn work(router: SocketAddr, seed: u64, keys: usize, rate: u64) -> Workload {
    let options = WorkloadOptions {
        addr: router.to_string(),
        connections: 16,
        pipeline: 8,
        keys,
        seed,
        rate: Some(rate),
        ttl_ms: 500..=20_000,
        unknown_rest: Duration::from_millis(1_500),
        ..WorkloadOptions::default()
    };
    Workload::start(options).await.unwrap()
}

/// A client that knows only what is so now: it writes every second moving key of a node straight to that
/// node, with the credential that is right now.
pub(crate) fn write_past_the_router(
    workload: &mut Workload,
    record: &Record,
    source: &str,
    ahead: &View,
) -> DirectWriter {
    let node = record.node(&source.parse().unwrap()).unwrap();
    let options = DirectOptions {
        addr: node.address.to_string(),
        auth: Some(client_login(&pool_key(), node)),
        rate: Some(500),
        pipeline: 4,
        mix: Mix::writes(),
    };
    let chosen = |key: &[u8]| {
        let even = key.last().is_some_and(|last| last.is_multiple_of(2));
        even && way(ahead, key).is_some_and(|(from, _)| from == source)
    };
    let writer = workload.write_directly(options, chosen);
    assert!(
        writer.keys() > 20,
        "{} keys for the direct writer",
        writer.keys()
    );
    writer
}

/// Waits until this many more writes were acknowledged.
pub(crate) async fn more_writes(workload: &Workload, count: u64) {
    let from = workload.mark();
    let written = || workload.mark().since(&from).acknowledged_writes() >= count;
    wait_until("writes are acknowledged", written).await;
}

/// Ends the load, and reads every key once more.
pub(crate) async fn audited(workload: Workload) -> Report {
    let report = workload.stop().await;
    println!("{report}");
    report
}
