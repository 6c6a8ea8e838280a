//! Changes as an operator drives them: refused, interrupted, killed half-way, taken back.

use std::process::Stdio;
use std::time::Duration;

use redis::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cluster::{Cluster, wait_until};
use crate::program::clockwise;

const KEYS: u32 = 3_000;
/// Slow enough that a change is seen under way, whatever else the machine does.
pub(crate) const SLOW: [&str; 3] = ["throttle", "--keys", "100"];
pub(crate) const FAST: [&str; 3] = ["throttle", "--keys", "0"];

pub(crate) fn loaded(persist: &str) -> Cluster {
    loaded_with(&["--engine", "redis", "--persist", persist])
}

pub(crate) fn loaded_with(args: &[&str]) -> Cluster {
    let cluster = Cluster::start(args);
    let mut pipeline = redis::pipe();
    for number in 0..KEYS {
        pipeline
            .cmd("SET")
            .arg(format!("key:{number}"))
            .arg(number)
            .ignore();
    }
    let () = pipeline.query(&mut cluster.client()).unwrap();
    cluster
}

pub(crate) fn all_keys_answer(client: &mut Connection) {
    let mut pipeline = redis::pipe();
    for number in 0..KEYS {
        pipeline.cmd("GET").arg(format!("key:{number}"));
    }
    let values: Vec<u32> = pipeline.query(client).unwrap();
    assert!(values.into_iter().eq(0..KEYS));
}

/// A change that has begun to copy and will not end by itself for a while.
fn with_a_slow_join(cluster: &Cluster) {
    for verb in [&SLOW[..], &["node", "add", "node-4"], &["apply"]] {
        let run = cluster.run(verb);
        assert_eq!(run.exit, 0, "{verb:?}: {run:?}");
    }
    wait_until("keys are copied", || {
        let moves = moves(cluster);
        moves["moves"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["keys_moved"].as_u64() > Some(0))
    });
}

pub(crate) fn moves(cluster: &Cluster) -> Value {
    cluster.run(&["moves", "-o", "json"]).json("Moves")
}

pub(crate) fn nodes(cluster: &Cluster) -> Vec<String> {
    let status = cluster.run(&["status", "-o", "json"]).json("Status");
    let nodes = status["nodes"].as_array().unwrap();
    nodes
        .iter()
        .map(|node| node["id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_change_goes_on_by_itself_after_a_kill() {
    let cluster = loaded("aof");
    with_a_slow_join(&cluster);
    let folder = cluster.kill();
    let again = Cluster::start_on(folder, &[]);
    assert_eq!(again.run(&FAST).exit, 0);
    let followed = again.run(&["moves", "--watch", "-o", "json"]).json("Moves");
    assert_eq!(followed["outcome"], json!("done"));
    assert_eq!(nodes(&again), ["node-1", "node-2", "node-3", "node-4"]);
    all_keys_answer(&mut again.client());
}

#[test]
fn a_record_that_cannot_be_written_is_named_and_the_change_goes_on_once_it_can() {
    let cluster = loaded("none");
    with_a_slow_join(&cluster);
    // What no privilege writes to.
    let in_the_way = cluster.dir().join("record.json.tmp");
    wait_until("the way is barred", || {
        std::fs::create_dir(&in_the_way).is_ok()
    });
    assert_eq!(cluster.run(&FAST).exit, 6, "an operator is told too");
    wait_until("it is told", || {
        let moves = moves(&cluster);
        assert_eq!(moves["outcome"], json!("running"), "{moves:#}");
        moves.to_string().contains("record.json: ")
    });
    let status = cluster.run(&["status", "--check"]);
    assert_eq!(status.exit, 4, "{status:?}");
    for words in ["record.json: ", "os error", "goes on by itself"] {
        assert!(status.stdout.contains(words), "{words}: {status:?}");
    }
    std::fs::remove_dir(in_the_way).unwrap();
    assert_eq!(cluster.run(&FAST).exit, 0);
    let followed = cluster
        .run(&["moves", "--watch", "-o", "json"])
        .json("Moves");
    assert_eq!(followed["outcome"], json!("done"), "{followed:#}");
    assert_eq!(cluster.run(&["status", "--check"]).exit, 0);
    all_keys_answer(&mut cluster.client());
}

#[test]
fn moves_say_how_much_there_is_and_how_long_it_takes() {
    let cluster = loaded("none");
    with_a_slow_join(&cluster);
    wait_until("there is a rate", || {
        let moves = moves(&cluster);
        let expected = moves["keys_expected"].as_u64().unwrap_or_default();
        let percent = moves["percent"].as_f64().unwrap_or(-1.0);
        assert!(percent < 100.0, "{moves:#}");
        // A quarter of the keys moves, more or less.
        (KEYS / 8..KEYS / 2).contains(&u32::try_from(expected).unwrap())
            && percent > 0.0
            && moves["eta_seconds"].as_u64() > Some(0)
    });
    let text = cluster.run(&["moves"]).stdout;
    for words in [" % of about ", " keys/s, ", " s to go"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(cluster.run(&FAST).exit, 0);
    let ended = cluster
        .run(&["moves", "--watch", "-o", "json"])
        .json("Moves");
    assert_eq!(
        (&ended["percent"], &ended["eta_seconds"]),
        (&json!(100.0), &Value::Null)
    );
    assert_eq!(ended["keys_moved"], ended["keys_expected"]);
}

#[test]
fn a_second_apply_is_refused_with_what_runs() {
    let cluster = loaded("none");
    with_a_slow_join(&cluster);
    assert_eq!(
        cluster
            .run(&["node", "set", "node-1", "--weight", "2"])
            .exit,
        0,
        "staging goes on"
    );
    let plan = cluster.run(&["plan"]);
    assert!(
        plan.stdout.contains("\nrefused: ") && !plan.stdout.contains("clockwise apply"),
        "what is refused is not to be applied: {plan:?}"
    );
    let second = cluster.run(&["apply"]);
    assert_eq!(second.exit, 5, "{second:?}");
    assert!(second.stderr.contains("change-2"), "{second:?}");
}

#[test]
fn an_aborted_change_leaves_everything_where_it_was() {
    let cluster = loaded("none");
    with_a_slow_join(&cluster);
    assert_eq!(cluster.run(&FAST).exit, 0);
    let aborted = cluster.run(&["abort", "--wait", "-o", "json"]);
    // Whether it was still under way is a matter of milliseconds; either way nothing is lost.
    if aborted.exit == 0 {
        let dropped = "staged no more: add node-4 at ";
        assert!(aborted.stderr.contains(dropped), "{aborted:?}");
        assert_eq!(aborted.json("Moves")["outcome"], json!("undone"));
        assert_eq!(nodes(&cluster), ["node-1", "node-2", "node-3"]);
        wait_until("its server ends", || cluster.servers().len() == 3);
        let status = cluster.run(&["status", "-o", "json"]).json("Status");
        let keys = status["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["keys"].as_u64().unwrap());
        assert_eq!(keys.sum::<u64>(), u64::from(KEYS), "no copy is left behind");
    }
    all_keys_answer(&mut cluster.client());
}

#[test]
fn an_interrupted_wait_leaves_the_work_to_the_server() {
    let cluster = loaded("none");
    assert_eq!(cluster.run(&SLOW).exit, 0);
    assert_eq!(cluster.run(&["node", "add", "node-4"]).exit, 0);
    let child = clockwise()
        .args(["apply", "--wait", "--dir"])
        .arg(cluster.dir())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it runs", || moves(&cluster)["outcome"] == json!("running"));
    // It listens for the signal before it looks for the first time.
    wait_until("it waits", || {
        let fields = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = fields
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap()
            .trim();
        u64::from_str_radix(caught, 16).unwrap() & (1 << (Signal::INT.as_raw() - 1)) != 0
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{words}");
    assert!(
        words.contains("goes on in the server")
            && words.contains(&cluster.suggested("moves", "--watch")),
        "{words}"
    );
    assert_eq!(cluster.run(&FAST).exit, 0);
    let followed = cluster
        .run(&["moves", "--watch", "-o", "json"])
        .json("Moves");
    assert_eq!(followed["outcome"], json!("done"));
    all_keys_answer(&mut cluster.client());
}

#[test]
fn another_user_who_can_write_is_refused_by_name_unless_allowed() {
    let cluster = loaded("none");
    let status = cluster.run(&["status", "-o", "json"]).json("Status");
    let address = status["nodes"][0]["address"].as_str().unwrap().to_owned();
    let password = std::fs::read_to_string(cluster.dir().join("nodes.password")).unwrap();
    let client = redis::Client::open(format!("redis://:{}@{address}/", password.trim())).unwrap();
    let mut node = client
        .get_connection_with_timeout(Duration::from_secs(5))
        .unwrap();
    let rights = ["SETUSER", "intruder", "on", ">guess", "~*", "+set"];
    let () = redis::cmd("ACL").arg(&rights).query(&mut node).unwrap();

    assert_eq!(cluster.run(&["node", "add", "node-4"]).exit, 0);
    let refused = cluster.run(&["apply", "--wait"]);
    assert_eq!(refused.exit, 7, "{refused:?}");
    assert!(refused.stderr.contains("intruder"), "{refused:?}");
    assert_eq!(
        moves(&cluster)["outcome"],
        json!("none"),
        "nothing was begun"
    );
    let allowed = cluster.run(&["apply", "--wait", "--allow-writer", "intruder"]);
    assert_eq!(allowed.exit, 0, "{allowed:?}");
    all_keys_answer(&mut cluster.client());
}

#[test]
fn a_checked_workload_finds_nothing_wrong_while_a_node_joins() {
    let cluster = loaded("none");
    let load = clockwise()
        .args([
            "bench",
            "--seconds",
            "6",
            "--connections",
            "10",
            "--keys",
            "2000",
            "-o",
            "json",
            "--dir",
        ])
        .arg(cluster.dir())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it writes", || {
        let nodes = cluster.run(&["status", "-o", "json"]).json("Status")["nodes"].clone();
        nodes
            .as_array()
            .unwrap()
            .iter()
            .any(|node| node["requests_per_second"].as_u64() > Some(0))
    });
    assert_eq!(cluster.run(&["node", "add", "node-4"]).exit, 0);
    assert_eq!(cluster.run(&["apply", "--wait"]).exit, 0);
    let output = load.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["kind"], json!("Bench"));
    for fault in ["lost", "stale", "resurrected", "wrong_ttl"] {
        assert_eq!(report["faults"][fault], json!(0), "{report:#}");
    }
    assert!(
        report["acknowledged_writes"].as_u64() > Some(1_000),
        "{report:#}"
    );
}
