//! Real input: every package of Debian's index, its name and its stanza, moved by a join.
//!
//! Each value is the same to the byte afterwards; the keys whose owner the difference of the two rings
//! says changed were written once at their new owner and removed once at their old one, and no other key
//! was touched at all. Servers themselves say what was touched ([`crate::events`]).

use std::collections::BTreeMap;
use std::process::Command;

use clockwise_client::resp::Value;

use crate::client::{Client, words};
use crate::events::{Events, Listening};
use crate::keys::way;
use crate::pool::Pool;

/// Fewer means that this machine's index is not a whole one.
const PACKAGES_MIN: usize = 30_000;

/// Names and stanzas; of several versions of one package the last.
fn packages() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let output = Command::new("apt-cache").arg("dumpavail").output();
    let output = output.expect("apt-cache is missing: this test needs Debian's package index");
    assert!(output.status.success(), "apt-cache dumpavail: {output:?}");
    let text = String::from_utf8(output.stdout).expect("Debian's index is UTF-8");
    let stanzas = text.split("\n\n").filter(|stanza| !stanza.is_empty());
    let named = stanzas.map(|stanza| {
        let mut lines = stanza.lines();
        let name = lines.find_map(|line| line.strip_prefix("Package: "));
        let name = name.unwrap_or_else(|| panic!("a stanza without a name: {stanza:?}"));
        (name.as_bytes().to_vec(), stanza.as_bytes().to_vec())
    });
    let packages: BTreeMap<_, _> = named.collect();
    assert!(
        packages.len() >= PACKAGES_MIN,
        "only {} packages: run apt-get update",
        packages.len()
    );
    packages
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_package_of_debian_survives_a_join_and_only_those_that_must_move_are_touched() {
    let packages = packages();
    let mut pool = Pool::start(&["a", "b", "c"]).await;
    let mut client = Client::connect(pool.router());
    let set = |(name, stanza): (&Vec<u8>, &Vec<u8>)| words(&[b"SET", name, stanza]);
    client.pipeline(&packages.iter().map(set).collect::<Vec<_>>());
    pool.stage_join("d").await;
    let ahead = pool.view_ahead().await;
    let listening: BTreeMap<String, Listening> = pool
        .servers
        .iter()
        .map(|(name, server)| (name.clone(), Listening::start(server.socket_addr())))
        .collect();

    pool.apply().await;
    let took = pool.settle().await;

    let mut expected: BTreeMap<String, Events> = BTreeMap::new();
    let mut moved = 0;
    for name in packages.keys() {
        if let Some((from, to)) = way(&ahead, name) {
            let at = |node, event: &str| ((node, event.to_owned()), name.clone());
            for ((node, event), key) in [at(from, "del"), at(to, "set")] {
                expected.entry(node).or_default().insert((event, key), 1);
            }
            moved += 1;
        }
    }
    println!("{} packages, {moved} moved in {took:?}", packages.len());
    assert!(moved > packages.len() / 8, "a join moves about a quarter");
    for (node, listening) in listening {
        let (heard, expected) = (listening.end(), expected.remove(&node).unwrap_or_default());
        let differ =
            |(event, times): &(&(String, Vec<u8>), &u32)| expected.get(*event) != Some(times);
        let wrong: Vec<_> = heard.iter().filter(differ).take(5).collect();
        assert!(wrong.is_empty(), "{node}: {wrong:?}");
        assert_eq!(heard.len(), expected.len(), "{node}: keys were not touched");
    }
    let get = |name: &Vec<u8>| words(&[b"GET", name]);
    let values = client.pipeline(&packages.keys().map(get).collect::<Vec<_>>());
    for ((name, stanza), value) in packages.iter().zip(values) {
        assert!(
            matches!(&value, Value::Bulk(value) if value == stanza),
            "{}: {value:?}",
            String::from_utf8_lossy(name)
        );
    }
    assert_eq!(pool.check_places().await, packages.len());
    let record = pool.record().await;
    let handoffs = &record.finished().unwrap().handoffs;
    let counted: u64 = handoffs
        .iter()
        .map(|handoff| handoff.report.keys_moved)
        .sum();
    assert_eq!(
        counted,
        u64::try_from(moved).unwrap(),
        "the record's own count"
    );
}
