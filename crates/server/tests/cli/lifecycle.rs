//! `up` and `down`: starting, ending, being killed, finding again what was left.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{Cluster, data, end_servers, lives, refused_up, servers, wait_until};
use crate::program::{clockwise, run};

const REDIS: [&str; 2] = ["--engine", "redis"];

#[test]
fn a_cluster_serves_redis_clients_and_ends_with_its_servers() {
    let mut cluster = Cluster::start(&REDIS);
    assert_eq!(cluster.epoch, 1);
    let mut client = cluster.client();
    for number in 0..100 {
        let () = redis::cmd("SET")
            .arg(format!("key:{number}"))
            .arg(number)
            .query(&mut client)
            .unwrap();
    }
    for number in 0..100 {
        let value: u32 = redis::cmd("GET")
            .arg(format!("key:{number}"))
            .query(&mut client)
            .unwrap();
        assert_eq!(value, number);
    }
    let left = cluster.servers();
    assert_eq!(left.len(), 3);
    assert!(left.iter().all(|(_, pid)| lives(*pid)));
    let (status, took) = cluster.signal(Signal::TERM);
    assert!(
        status.success() && took < Duration::from_secs(10),
        "{status} after {took:?}"
    );
    assert!(
        left.iter().all(|(_, pid)| !lives(*pid)),
        "a server outlived its end"
    );
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let cluster = Cluster::start(&REDIS);
    let () = redis::cmd("SET")
        .arg("kept")
        .arg("value")
        .query(&mut cluster.client())
        .unwrap();
    let again = Cluster::start_on(cluster.end(), &[]);
    let value: String = redis::cmd("GET")
        .arg("kept")
        .query(&mut again.client())
        .unwrap();
    assert_eq!(value, "value");
}

#[test]
fn servers_outlive_a_killed_up_and_the_next_one_adopts_them() {
    let cluster = Cluster::start(&REDIS);
    let () = redis::cmd("SET")
        .arg("kept")
        .arg("value")
        .query(&mut cluster.client())
        .unwrap();
    let before = cluster.servers();
    let folder = cluster.kill();
    assert!(before.iter().all(|(_, pid)| lives(*pid)), "they live on");
    let again = Cluster::start_on(folder, &[]);
    assert_eq!(again.servers(), before, "the same processes");
    let value: String = redis::cmd("GET")
        .arg("kept")
        .query(&mut again.client())
        .unwrap();
    assert_eq!(value, "value");
}

#[test]
fn a_server_that_dies_is_started_again_with_its_data() {
    let cluster = Cluster::start(&REDIS);
    let mut client = cluster.client();
    let () = redis::cmd("SET")
        .arg("kept")
        .arg("value")
        .query(&mut client)
        .unwrap();
    let owner = cluster.run(&["owner", "kept"]).stdout.trim().to_owned();
    let servers = cluster.servers();
    let (_, pid) = servers.iter().find(|(id, _)| *id == owner).unwrap();
    kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL).unwrap();
    wait_until("it serves again", || {
        let value: redis::RedisResult<String> = redis::cmd("GET").arg("kept").query(&mut client);
        value.is_ok_and(|value| value == "value") && !lives(*pid)
    });
    assert_ne!(cluster.servers(), servers, "another process");
    assert_eq!(cluster.run(&["status", "--check"]).exit, 0);
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let cluster = Cluster::start_unheard(&REDIS);
    let (owner, pid) = cluster.servers().swap_remove(0);
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    wait_until("the node's server is started again", || {
        let servers = cluster.servers();
        !lives(pid) && servers.iter().any(|(id, new)| *id == owner && lives(*new))
    });
    wait_until("all is well", || {
        cluster.run(&["status", "--check"]).exit == 0
    });
    assert_eq!(cluster.run(&["node", "add", "node-4"]).exit, 0);
    let applied = cluster.run(&["apply", "--wait"]);
    assert_eq!(applied.exit, 0, "{applied:?}");
    let mut client = cluster.client();
    for key in 0..30 {
        let () = redis::cmd("SET")
            .arg(key)
            .arg("value")
            .query(&mut client)
            .unwrap();
    }
    assert_eq!(cluster.run(&["status", "--check"]).exit, 0);
}

#[test]
fn down_ends_what_is_left_and_nothing_left_is_success() {
    let cluster = Cluster::start(&REDIS);
    let pids = cluster.servers();
    let folder = cluster.kill();
    let first = end_servers(folder.path());
    assert_eq!(first.exit, 0, "{first:?}");
    assert!(pids.iter().all(|(_, pid)| !lives(*pid)));
    let second = end_servers(folder.path());
    assert_eq!(
        (second.exit, second.stdout.lines().next()),
        (0, Some("nothing was running"))
    );
    assert_eq!(second.stderr, "", "this one is a data folder");
    // What says so may be lost with what it says; its servers' folders are a trace too.
    for name in ["up.json", "lock"] {
        std::fs::remove_file(data(folder.path()).join(name)).unwrap();
    }
    assert_eq!(end_servers(folder.path()).stderr, "");
    assert!(servers(folder.path()).is_empty());
}

#[test]
fn down_ends_a_running_up() {
    let mut cluster = Cluster::start(&REDIS);
    let pids = cluster.servers();
    let down = cluster.run(&["down", "-o", "json"]);
    assert_eq!(down.json("Down")["up"], cluster.pid());
    assert!(
        cluster.signal(Signal::TERM).0.success(),
        "it had ended by itself"
    );
    assert!(pids.iter().all(|(_, pid)| !lives(*pid)));
}

#[test]
fn down_of_a_folder_that_never_was_is_success() {
    let folder = tempfile::tempdir().unwrap();
    let told = |folder: &Path| {
        let down = end_servers(folder);
        assert_eq!(down.exit, 0, "{down:?}");
        assert!(
            down.stderr.contains("is no data folder of clockwise"),
            "{down:?}"
        );
        assert!(!down.stdout.contains("clockwise up"), "{down:?}");
    };
    told(&folder.path().join("never"));
    assert!(!folder.path().join("never").exists(), "and it makes none");
    let strangers = data(folder.path());
    std::fs::create_dir(&strangers).unwrap();
    std::fs::write(strangers.join("notes"), "of somebody else").unwrap();
    told(folder.path());
    let files = std::fs::read_dir(strangers).unwrap();
    assert_eq!(files.count(), 1, "and it leaves what is there as it is");
}

#[test]
fn a_second_up_is_refused_with_the_holder() {
    let cluster = Cluster::start(&REDIS);
    let second = refused_up(cluster.dir().parent().unwrap(), &[]);
    assert_eq!((second.exit, second.stdout.as_str()), (1, ""));
    assert!(
        second.stderr.contains(&cluster.pid().to_string()),
        "{second:?}"
    );
}

#[test]
fn a_missing_redis_server_names_its_package() {
    let folder = tempfile::tempdir().unwrap();
    let output = clockwise()
        .args(["up", "--engine", "redis", "--dir"])
        .arg(data(folder.path()))
        .env("CLOCKWISE_REDIS_SERVER", "/nowhere/redis-server")
        .output()
        .unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("package redis-server"), "{words}");
}

#[test]
fn a_port_in_use_is_named_and_no_server_stays() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = data(folder.path());
    let up = run(&[
        "up",
        "--engine",
        "redis",
        "--admin",
        "127.0.0.1:0",
        "--listen",
        &address,
        "--dir",
        dir.to_str().unwrap(),
    ]);
    assert_eq!((up.exit, up.stdout.as_str()), (1, ""));
    assert!(up.stderr.contains(&address), "{up:?}");
    assert!(servers(folder.path()).iter().all(|(_, pid)| !lives(*pid)));
}

/// A service file says the same at each start, also after a node has joined.
#[test]
fn a_folder_keeps_its_number_of_nodes_and_says_so() {
    let folder = Cluster::start(&["--nodes", "2"]).end();
    let cluster = Cluster::start_on(folder, &["--nodes", "3"]);
    let talk = cluster.talk();
    for words in ["has 2 nodes, not 3", "clockwise node add"] {
        assert!(talk.contains(words), "{words}: {talk}");
    }
    let status = cluster.run(&["status", "-o", "json"]).json("Status");
    assert_eq!(status["nodes"].as_array().map(Vec::len), Some(2));
    let cluster = Cluster::start_on(cluster.end(), &["--nodes", "2"]);
    let talk = cluster.talk();
    let times = talk.matches("has 2 nodes").count();
    assert_eq!(times, 1, "only of another number: {talk}");
}

#[test]
fn a_folder_keeps_its_engine() {
    let cluster = Cluster::start(&REDIS);
    let folder = cluster.end();
    let up = refused_up(folder.path(), &["--engine", "embedded"]);
    assert_eq!(up.exit, 1, "{up:?}");
    assert!(up.stderr.contains("engine redis"), "{up:?}");
}

#[test]
fn without_an_engine_nothing_needs_to_be_installed() {
    let mut cluster = Cluster::start_without_servers();
    let mut client = cluster.client();
    let () = redis::cmd("SET")
        .arg("counter")
        .arg(41)
        .query(&mut client)
        .unwrap();
    let value: u32 = redis::cmd("INCR")
        .arg("counter")
        .query(&mut client)
        .unwrap();
    assert_eq!(value, 42);
    for number in 0..500 {
        let () = redis::cmd("SET")
            .arg(format!("key:{number}"))
            .arg(number)
            .query(&mut client)
            .unwrap();
    }
    assert_eq!(cluster.run(&["node", "add", "node-4"]).exit, 0);
    let joined = cluster.run(&["apply", "--wait"]);
    assert_eq!(joined.exit, 0, "{joined:?}");
    for number in 0..500 {
        let value: u32 = redis::cmd("GET")
            .arg(format!("key:{number}"))
            .query(&mut client)
            .unwrap();
        assert_eq!(value, number);
    }
    assert_eq!(cluster.run(&["status", "--check"]).exit, 0);
    let (status, took) = cluster.signal(Signal::INT);
    assert!(
        status.success() && took < Duration::from_secs(10),
        "{status} after {took:?}"
    );
}

/// README's first command names no binary: cargo takes the only one that is some package's default.
#[test]
fn cargo_run_from_the_root_is_clockwise() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["metadata", "--no-deps", "--offline", "--locked"])
        .args(["--format-version", "1"])
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let defaults: Vec<_> = packages
        .filter_map(|package| package["default_run"].as_str())
        .collect();
    assert_eq!(defaults, ["clockwise"]);
}
