//! The program as a person runs it, killed again and again in the middle of a join: each time it is started
//! again it finds its servers and goes on, until the join is done; nothing acknowledged is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use clockwise_cluster::{HandoffState, View};
use tokio::time::{Instant, sleep};

use crate::client::{Client, words};
use crate::keys::{check_places, keys_of};
use crate::load::{audited, more_writes, seed, work};
use crate::pool::{ANY_PORT, wait_until};
use crate::product::{Down, Product};

/// When it is killed: at any moment at first, another for each seed, then further on.
const KILLS: [Moment; 3] = [Moment::Any, Moment::Flipped, Moment::Cleaning];
const STILL: usize = 12_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    Any,
    /// A node owns what it was given, others still copy.
    Flipped,
    /// Old copies are being removed.
    Cleaning,
}

impl Moment {
    async fn wait(self, up: &Product, seed: u64) {
        let reached = |state: HandoffState| match self {
            Self::Any => true,
            Self::Flipped => state.is_flipped(),
            Self::Cleaning => state == HandoffState::Cleaning,
        };
        if self == Self::Any {
            sleep(Duration::from_millis(200 + seed % 600)).await;
        }
        let so = || states(up).into_iter().any(reached);
        wait_until("the moment to be killed comes", so).await;
    }
}

fn states(up: &Product) -> Vec<HandoffState> {
    let record = up.record();
    let change = record.change().into_iter();
    change
        .flat_map(|change| change.handoffs.iter().map(|handoff| handoff.state))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn up_that_is_killed_again_and_again_during_a_join_ends_it_and_loses_nothing() {
    let seed = seed();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let _down = Down(&dir);
    let mut up = Product::up(&dir, ANY_PORT);
    let router = up.router;
    let mut client = Client::connect(router);
    let set = |number: usize| {
        let key = format!("still:{number}");
        words(&[b"SET", key.as_bytes(), format!("{key:0>100}").as_bytes()])
    };
    client.pipeline(&(0..STILL).map(set).collect::<Vec<_>>());
    let workload = work(router, seed, 2_000, 2_000).await;
    up.run(&["throttle", "--keys", "1500"]);
    up.run(&["node", "add", "node-4"]);
    up.run(&["apply"]);
    for moment in KILLS {
        moment.wait(&up, seed).await;
        up.kill();
        println!("killed at {:?}", states(&up));
        up = Product::up(&dir, router);
        more_writes(&workload, 200).await;
    }
    let began = Instant::now();
    wait_until("the join ends", || up.record().change().is_none()).await;
    println!("ended {:?} after the last start", began.elapsed());
    more_writes(&workload, 500).await;
    let report = audited(workload).await;
    assert!(report.is_clean(), "{:?}", report.faults);

    let record = up.record();
    assert_eq!(record.membership().nodes.len(), 4, "the node has joined");
    let view = View::from_record(&record).unwrap();
    let held = record.membership().nodes.iter().map(|node| {
        let address = node.address.as_str().parse().unwrap();
        let mut admin = Client::login(address, "default", &up.password());
        (node.id.to_string(), keys_of(&mut admin))
    });
    let held: BTreeMap<_, _> = held.collect();
    assert!(check_places(&view, &held) >= STILL);
}
