//! Which keys a change moves, and where each key lies.

use std::collections::BTreeMap;

use clockwise_cluster::View;

use crate::client::Client;
use clockwise_client::resp::Value;

/// Where a key goes in the change of a view, as names of nodes; none if it stays.
pub(crate) fn way(view: &View, key: &[u8]) -> Option<(String, String)> {
    let moving = view.moving(view.position(key))?;
    let name = |node| view.node(node).id.to_string();
    Some((name(moving.before), name(moving.after)))
}

/// Every key of a server, sorted.
pub(crate) fn keys_of(client: &mut Client) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut cursor = b"0".to_vec();
    loop {
        let Value::Array(parts) = client.ask(&[b"SCAN", &cursor, b"COUNT", b"1000"]) else {
            panic!("SCAN gives an array")
        };
        let [Value::Bulk(next), Value::Array(listed)] = &parts[..] else {
            panic!("{parts:?}")
        };
        for key in listed {
            let Value::Bulk(key) = key else {
                panic!("{key:?}")
            };
            keys.push(key.to_vec());
        }
        cursor = next.to_vec();
        if cursor == b"0" {
            keys.sort_unstable();
            keys.dedup();
            return keys;
        }
    }
}

/// How keys begin that are sent on trial before a change and go by themselves in ten seconds, if whoever sent
/// them was killed.
const CANARY: &[u8] = b"~cw~canary:";

/// Panics unless every key lies at its owner and nowhere else; says how many there are.
pub(crate) fn check_places(view: &View, nodes: &BTreeMap<String, Vec<Vec<u8>>>) -> usize {
    for (name, keys) in nodes {
        let foreign: Vec<String> = keys
            .iter()
            .filter(|key| view.owner(key).as_str() != name && !key.starts_with(CANARY))
            .map(|key| String::from_utf8_lossy(key).into_owned())
            .collect();
        assert!(
            foreign.is_empty(),
            "{name} has {} keys that it does not own: {:?}…",
            foreign.len(),
            &foreign[..foreign.len().min(5)]
        );
    }
    nodes.values().map(Vec::len).sum()
}
