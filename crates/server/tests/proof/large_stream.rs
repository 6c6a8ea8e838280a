//! Consumer groups are in no stream of dirty keys. What clients do to those of a large stream until the
//! very fence arrives with it, although its entries are not copied again.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use clockwise_client::resp::Value;
use clockwise_placement::NodeId;

use crate::client::{Client, Command, words};
use crate::meddling::{Call, Meddler, Verdict};
use crate::pool::{ADMIN, Pool};

const ENTRIES: usize = 40_000;
const KEY: &str = "large";

/// Changes groups at the last moment at which a client can: just before the fence.
#[derive(Debug, Default)]
struct AtTheFence {
    source: OnceLock<SocketAddr>,
    left: OnceLock<Vec<Value>>,
}

#[async_trait]
impl Meddler for AtTheFence {
    async fn before(&self, _node: &NodeId, call: Call) -> Verdict {
        if call == Call::Fence && self.left.get().is_none() {
            let source = *self.source.get().unwrap();
            let mut client = Client::login(source, "default", ADMIN);
            CHANGES.iter().for_each(|line| {
                client.run(line);
            });
            self.left.set(portrait(&mut client)).unwrap();
        }
        Verdict::Pass
    }
}

const CHANGES: &[&str] = &[
    "XGROUP CREATE large new 0",
    "XREADGROUP GROUP new worker COUNT 700 STREAMS large >",
    "XACK large kept 11-1 12-1 13-1",
    "XCLAIM large kept other 0 20-1 RETRYCOUNT 7",
    "XREADGROUP GROUP kept third COUNT 10 STREAMS large >",
    "XGROUP DELCONSUMER large kept idle",
    "XGROUP DESTROY large unwanted",
    "XGROUP SETID large set 100-1",
    "XSETID large 99999999-0",
];

/// Some twenty megabytes, groups with deliveries, also of entries that are gone.
fn fill(client: &mut Client) {
    let value = "x".repeat(500);
    let add = |number: usize| {
        let id = format!("{number}-1");
        words(&[
            b"XADD",
            KEY.as_bytes(),
            id.as_bytes(),
            b"f",
            value.as_bytes(),
        ])
    };
    let commands: Vec<Command> = (1..=ENTRIES).map(add).collect();
    client.pipeline(&commands);
    for line in [
        "XGROUP CREATE large kept 0",
        "XGROUP CREATE large unwanted 0",
        "XGROUP CREATE large set 0",
        "XGROUP CREATECONSUMER large kept idle",
        "XREADGROUP GROUP kept worker COUNT 1200 STREAMS large >",
        "XREADGROUP GROUP unwanted worker COUNT 5 STREAMS large >",
        "XDEL large 15-1",
        "XTRIM large MINID 9-1",
    ] {
        client.run(line);
    }
}

/// All of a stream but its entries, which are counted.
fn portrait(client: &mut Client) -> Vec<Value> {
    let questions = [
        "XLEN large",
        "XINFO STREAM large FULL COUNT 20",
        "XINFO GROUPS large",
        "XINFO CONSUMERS large kept",
        "XINFO CONSUMERS large new",
        "XPENDING large kept - + 10000",
        "XPENDING large new - + 10000",
    ];
    let ask = |line: &&str| {
        let mut reply = client.run(line);
        forget_times_of_reading(&mut reply);
        reply
    };
    questions.iter().map(ask).collect()
}

/// When a consumer was last seen, and how long ago a delivery was made at the moment of asking.
fn forget_times_of_reading(value: &mut Value) {
    let Value::Array(items) = value else { return };
    for at in 1..items.len() {
        let volatile = [
            "idle",
            "seen-time",
            "inactive",
            "radix-tree-keys",
            "radix-tree-nodes",
        ];
        let is_volatile = items[at - 1]
            .as_text()
            .is_some_and(|name| volatile.contains(&name));
        if is_volatile {
            items[at] = Value::Null;
        }
    }
    if let [
        Value::Bulk(_),
        Value::Bulk(_),
        idle @ Value::Integer(_),
        Value::Integer(_),
    ] = &mut items[..]
    {
        // In the long form of a stream it is the time itself, and stays.
        if idle.as_integer() < Some(1_000_000_000_000) {
            *idle = Value::Null;
        }
    }
    items.iter_mut().for_each(forget_times_of_reading);
}

/// A pool whose one node leaves for another.
async fn about_to_move(meddler: Arc<AtTheFence>) -> Pool {
    let mut pool = Pool::start_meddled(&["a"], Arc::clone(&meddler) as Arc<dyn Meddler>).await;
    meddler.source.set(pool.servers["a"].socket_addr()).unwrap();
    pool.stage_join("b").await;
    pool.stage_leave("a").await;
    fill(&mut pool.admin("a"));
    pool
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_to_the_groups_of_a_large_stream_until_the_fence_is_not_lost() {
    let meddler = Arc::new(AtTheFence::default());
    let pool = about_to_move(Arc::clone(&meddler)).await;
    pool.apply().await;
    let took = pool.settle().await;
    println!("moved in {took:?}");
    let left = meddler.left.get().unwrap();
    for (left, arrived) in left.iter().zip(portrait(&mut pool.admin("b"))) {
        assert_eq!(arrived, *left);
    }
    let record = pool.record().await;
    let report = &record.finished().unwrap().handoffs[0].report;
    println!("held for {} ms", report.hold_ms_max);
    assert_eq!(report.mismatches, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_stream_with_more_pending_than_fits_under_the_fence_stops_the_change_with_its_name()
{
    let pool = about_to_move(Arc::default()).await;
    let mut client = pool.admin("a");
    client.run("XREADGROUP GROUP kept worker COUNT 35000 STREAMS large >");
    pool.apply().await;
    let why = pool.stopped().await;
    assert!(
        why.contains("consumer groups of the large stream large"),
        "{why}"
    );
}
