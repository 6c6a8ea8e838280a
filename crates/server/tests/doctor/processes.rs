//! Configurations, secrets, folders, and a process that runs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clockwise_testkit::{RedisOptions, RedisServer};
use tempfile::TempDir;

use crate::examined::{Examined, Found, NODES_PASSWORD, doctor};
use crate::program::{clockwise, run};

const STORE: &str = "[store]\nkind = \"file\"\ndir = \"data\"\n";

fn node() -> RedisServer {
    RedisServer::start(RedisOptions {
        password: Some(NODES_PASSWORD.to_owned()),
        append_only: true,
        max_memory: Some(64 << 20),
        ..RedisOptions::default()
    })
}

#[test]
fn secrets_that_others_can_read_are_mended_by_what_is_said() {
    let node = node();
    let examined = Examined::over_a_file(&[node.addr()]);
    for name in ["pool.key", "token"] {
        fs::set_permissions(examined.path(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let found = examined.doctor();
    assert_eq!(
        found.names(),
        ["secret-exposed", "secret-exposed"],
        "{found:#?}"
    );
    found.mend("secret-exposed");
    let found = examined.doctor();
    assert_eq!(found.names(), ["secret-exposed"], "{found:#?}");
    found.mend("secret-exposed");
    assert_eq!(examined.doctor().names(), Vec::<&str>::new());
}

#[test]
fn secrets_that_are_missing_or_the_same() {
    let node = node();
    let examined = Examined::over_a_file(&[node.addr()]);
    fs::remove_file(examined.path("pool.key")).unwrap();
    examined.write("token", NODES_PASSWORD, 0o600);
    let found = examined.doctor();
    assert_eq!(
        found.names(),
        ["secret-missing", "secret-reused"],
        "{found:#?}"
    );
    assert!(found.next("secret-reused").contains("/dev/urandom"));
}

#[test]
fn doors_that_are_open_to_the_network() {
    let node = node();
    let examined = Examined::over_a_file(&[node.addr()]);
    examined.configure(STORE, "0.0.0.0:0", "0.0.0.0:17379");
    let found = examined.doctor();
    assert_eq!(
        found.names(),
        ["admin-exposed", "router-open"],
        "{found:#?}"
    );
    assert!(found.next("admin-exposed").contains("127.0.0.1"));
}

#[test]
fn a_process_that_should_answer_and_does_not() {
    let node = node();
    let examined = Examined::over_a_file(&[node.addr()]);
    // Nobody listens there: a port that was free a moment ago.
    let port = RedisServer::start(RedisOptions::default()).port();
    examined.configure(STORE, &format!("127.0.0.1:{port}"), "127.0.0.1:0");
    let found = examined.doctor();
    assert_eq!(found.names(), ["server-away"], "{found:#?}");
}

#[test]
fn a_record_that_is_not_there() {
    let found = Examined::new(STORE).doctor();
    assert_eq!(found.names(), ["record-away"], "{found:#?}");
}

#[test]
fn a_wrong_configuration_and_a_wrong_folder_are_failures() {
    let folder = tempfile::tempdir().unwrap();
    let none = run(&["doctor", "--dir", folder.path().to_str().unwrap()]);
    assert_eq!(none.exit, 1, "{none:?}");
    assert!(none.stderr.contains("no running server found"), "{none:?}");
    let file = folder.path().join("a.toml");
    fs::write(&file, "pool = 3\n").unwrap();
    let wrong = run(&["doctor", "--config", file.to_str().unwrap()]);
    assert_eq!(wrong.exit, 2, "{wrong:?}");
}

/// Waits for something that must come true.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "still waiting: {what}");
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// An `up` and its folder.
struct Up {
    folder: TempDir,
    child: Child,
    admin: String,
}

impl Up {
    fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut child = clockwise()
            .args(["up", "--dir"])
            .arg(folder.path().join("data"))
            .args(free)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut ready).unwrap();
        let admin = ready
            .split(' ')
            .find_map(|word| word.strip_prefix("admin="));
        let up = Self {
            admin: admin.unwrap().to_owned(),
            folder,
            child,
        };
        // Who is registered says by what it routes a moment later.
        let data = up.data().display().to_string();
        wait_until("everybody has a view", || {
            run(&["clients", "--check", "--dir", &data]).exit == 0
        });
        up
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn doctor(&self) -> Found {
        doctor(&["--dir", self.data().to_str().unwrap()])
    }

    fn down(&self) {
        let down = run(&["down", "--dir", self.data().to_str().unwrap()]);
        assert_eq!(down.exit, 0, "{down:?}");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _gone = run(&["down", "--dir", self.data().to_str().unwrap()]);
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_running_pool_of_redis_servers_has_notes_alone_and_edits_are_one() {
    let up = Up::start(&["--engine", "redis", "--nodes", "2"]);
    let limits = ["redis-no-maxmemory"; 2];
    assert_eq!(up.doctor().names(), limits);
    let dir = up.data().display().to_string();
    let words = [
        "node", "set", "node-1", "--weight", "2", "-o", "json", "--dir", &dir,
    ];
    run(&words).json("Staged");
    let found = up.doctor();
    let expected = ["staged-edits", limits[0], limits[1]];
    assert_eq!(
        (found.names(), found.exit),
        (expected.to_vec(), 0),
        "{found:#?}"
    );
    let next = found.next("staged-edits");
    let (plan, unstage) = next.split_once("      or:  ").unwrap();
    assert!(plan.starts_with("clockwise plan --dir "), "{next}");
    crate::examined::paste(unstage);
    assert_eq!(up.doctor().names(), limits);
    // By the address alone, the nodes' settings cannot be seen.
    let found = doctor(&["--admin", &up.admin]);
    assert_eq!(found.names(), ["not-looked-at"; 2], "{found:#?}");
    assert_eq!(found.answer["processes"], 2, "router and rebalancer");
    fs::set_permissions(up.data(), fs::Permissions::from_mode(0o755)).unwrap();
    let found = up.doctor();
    assert!(found.has("folder-open"), "{found:#?}");
    found.mend("folder-open");
    assert!(!up.doctor().has("folder-open"));
    up.down();
    let found = up.doctor();
    assert_eq!(
        found.names(),
        ["server-away", "node-away", "node-away"],
        "{found:#?}"
    );
}

#[test]
fn embedded_nodes_are_a_note() {
    let up = Up::start(&["--engine", "embedded"]);
    let found = up.doctor();
    assert_eq!(
        (found.names(), found.exit),
        (vec!["embedded-nodes"], 0),
        "{found:#?}"
    );
}
