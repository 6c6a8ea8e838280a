//! Changes over an end of `up` and of servers: what is known to be the same data goes on by itself, what is
//! not waits for a person, and what is gone is said to be gone.

use std::collections::BTreeSet;

use redis::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::changes::{FAST, SLOW, all_keys_answer, loaded, loaded_with, moves, nodes};
use crate::cluster::{Cluster, data, wait_until};

/// Keys a second, so that a flip comes soon and nothing is over before it is seen.
const STEADY: &str = "600";

fn states(moves: &Value) -> BTreeSet<&str> {
    let moves = moves["moves"].as_array().unwrap();
    moves
        .iter()
        .map(|one| one["state"].as_str().unwrap())
        .collect()
}

/// Lets a node join until some source is in a state; the rest takes longer than any test.
fn join_until(cluster: &Cluster, keys_per_second: &str, state: &str) {
    for verb in [
        &["throttle", "--keys", keys_per_second][..],
        &["node", "add", "node-4"],
        &["apply"],
    ] {
        assert_eq!(cluster.run(verb).exit, 0, "{verb:?}");
    }
    wait_until(state, || states(&moves(cluster)).contains(state));
    assert_eq!(cluster.run(&SLOW).exit, 0);
}

/// Nothing ended before it could be looked at.
fn is_in_flight(folder: &TempDir, state: &str) {
    let record = std::fs::read_to_string(data(folder.path()).join("record.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let handoffs = record["change"]["handoffs"].as_array().unwrap();
    assert!(
        handoffs.iter().any(|handoff| handoff["state"] == state),
        "{record:#}"
    );
}

fn ends(cluster: &Cluster, outcome: &str) {
    assert_eq!(cluster.run(&FAST).exit, 0);
    let followed = cluster
        .run(&["moves", "--watch", "-o", "json"])
        .json("Moves");
    assert_eq!(followed["outcome"], json!(outcome), "{followed:#}");
    wait_until("all is well", || {
        cluster.run(&["status", "--check"]).exit == 0
    });
}

fn takes_writes(client: &mut Connection) {
    for number in 0..200 {
        let () = redis::cmd("SET")
            .arg(format!("after:{number}"))
            .arg(number)
            .query(client)
            .unwrap();
    }
}

/// What a person is told about a target that nobody vouches for, and what it takes to decide.
fn is_closed_until_accepted(cluster: &Cluster) {
    let next = cluster.suggested("node accept", "node-4");
    wait_until("the node is found closed", || {
        let status = cluster.run(&["status"]);
        status.stdout.contains("node node-4 lets no clients in") && status.stdout.contains(&next)
    });
    assert_eq!(cluster.run(&["status", "--check"]).exit, 4);
    wait_until("cleaning has stopped", || {
        moves(cluster)["outcome"] == json!("stopped")
    });
    let looked = cluster.run(&["moves"]);
    assert!(looked.stdout.contains(&next), "{looked:?}");
    assert!(looked.stdout.contains(" stopped: "), "{looked:?}");
    let watched = cluster.run(&["moves", "--watch"]);
    assert_eq!(watched.exit, 4, "{watched:?}");
    assert!(watched.stderr.contains(&next), "{watched:?}");
    assert!(watched.stderr.contains("cannot go on"), "{watched:?}");
    assert!(
        !watched.stdout.contains(" stopped: "),
        "said once: {watched:?}"
    );

    let asked = cluster.run(&["node", "accept", "node-4"]);
    assert_eq!(asked.exit, 7, "{asked:?}");
    assert!(
        asked.stderr.contains("--confirm node-4") && asked.stderr.contains("keys now"),
        "{asked:?}"
    );
    for (wrong, words) in [("node-1", "nothing to accept"), ("node-9", "no node")] {
        let refused = cluster.run(&["node", "accept", wrong, "--confirm", wrong]);
        assert_eq!(refused.exit, 1, "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
    let mistyped = cluster.run(&["node", "accept", "node-4", "--confirm", "node-1"]);
    assert_eq!(mistyped.exit, 7, "{mistyped:?}");
    let closed = cluster.run(&["status", "-o", "json"]).json("Status");
    assert_eq!(
        closed["next"],
        json!("clockwise node accept node-4"),
        "nothing was done yet"
    );

    let accepted = cluster.run(&["node", "accept", "node-4", "--confirm", "node-4"]);
    assert_eq!(accepted.exit, 0, "{accepted:?}");
    assert!(
        !accepted.stdout.contains("node accept"),
        "it has been decided: {accepted:?}"
    );
}

#[test]
fn a_change_goes_on_by_itself_after_an_orderly_end_while_a_source_is_cleaned() {
    let cluster = loaded("aof");
    join_until(&cluster, STEADY, "cleaning");
    let folder = cluster.end();
    is_in_flight(&folder, "cleaning");
    let again = Cluster::start_on(folder, &[]);
    ends(&again, "done");
    assert_eq!(nodes(&again).len(), 4);
    all_keys_answer(&mut again.client());
}

#[test]
fn a_target_that_saved_nothing_is_not_taken_for_what_it_was() {
    let cluster = loaded("none");
    join_until(&cluster, STEADY, "cleaning");
    let folder = cluster.end();
    is_in_flight(&folder, "cleaning");
    let again = Cluster::start_on(folder, &[]);
    is_closed_until_accepted(&again);
    ends(&again, "done");
    takes_writes(&mut again.client());
}

/// Kills the server of the node that joins, while a source is cleaned.
fn with_a_killed_target() -> Cluster {
    let cluster = loaded("aof");
    // Who a target is, is looked at each time some thousand keys of a source have been.
    let mut more = redis::pipe();
    for number in 0..30_000 {
        more.cmd("SET")
            .arg(format!("more:{number}"))
            .arg(1)
            .ignore();
    }
    let () = more.query(&mut cluster.client()).unwrap();
    join_until(&cluster, "6000", "cleaning");
    let servers = cluster.servers();
    let (_, pid) = servers.iter().find(|(id, _)| id == "node-4").unwrap();
    kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL).unwrap();
    assert_eq!(cluster.run(&["throttle", "--keys", "1000"]).exit, 0);
    cluster
}

#[test]
fn a_target_whose_server_was_killed_waits_for_a_person_and_then_goes_on() {
    let cluster = with_a_killed_target();
    is_closed_until_accepted(&cluster);
    ends(&cluster, "done");
    // It had saved what was moved before anything was removed from where that came from.
    all_keys_answer(&mut cluster.client());
}

#[test]
fn a_target_whose_server_was_killed_gives_back_what_it_has_once_it_is_accepted() {
    let cluster = with_a_killed_target();
    wait_until("the node is found closed", || {
        let next = cluster.suggested("node accept", "node-4");
        cluster.run(&["status"]).stdout.contains(&next)
    });
    assert_eq!(cluster.run(&["abort"]).exit, 0);
    is_closed_until_accepted(&cluster);
    ends(&cluster, "undone");
    assert_eq!(nodes(&cluster).len(), 3);
    all_keys_answer(&mut cluster.client());
}

/// Kills `up` with its embedded nodes in the middle of a change, and starts it again.
fn embedded_killed_at(state: &str, abort: bool) -> Cluster {
    let cluster = loaded_with(&[]);
    join_until(&cluster, STEADY, state);
    if abort {
        assert_eq!(cluster.run(&["abort"]).exit, 0);
    }
    let folder = cluster.kill();
    let record = std::fs::read_to_string(data(folder.path()).join("record.json")).unwrap();
    assert!(record.contains("\"handoffs\""), "a change is in flight");
    let again = Cluster::start_on(folder, &[]);
    let talk = again.talk();
    assert!(
        talk.contains("the data of the embedded nodes is gone"),
        "{talk}"
    );
    again
}

#[test]
fn embedded_nodes_killed_while_they_copy_end_the_change_by_themselves() {
    let cluster = embedded_killed_at("copying", false);
    ends(&cluster, "done");
    assert_eq!(nodes(&cluster).len(), 4);
    takes_writes(&mut cluster.client());
}

#[test]
fn embedded_nodes_killed_while_they_are_cleaned_end_the_change_by_themselves() {
    let cluster = embedded_killed_at("cleaning", false);
    ends(&cluster, "done");
    assert_eq!(nodes(&cluster).len(), 4);
    takes_writes(&mut cluster.client());
}

#[test]
fn embedded_nodes_killed_on_the_way_back_end_it_undone() {
    let cluster = embedded_killed_at("cleaning", true);
    ends(&cluster, "undone");
    assert_eq!(nodes(&cluster).len(), 3);
    takes_writes(&mut cluster.client());
}
