//! The command of the fault matrix: what it refuses, and that nothing of a run outlives its runner. What it does
//! with the product is a step of the gate of its own.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real processes are waited for"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn matrix(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clockwise-sim"));
    command.arg("matrix").args(args);
    command
}

fn run(args: &[&str]) -> Output {
    matrix(args).output().expect("it runs")
}

#[test]
fn every_cell_has_a_name_of_its_own_and_each_is_refused_or_known() {
    let listed = run(&["--list"]);
    assert!(listed.status.success());
    let text = String::from_utf8(listed.stdout).expect("text");
    let mut names: Vec<&str> = text.lines().collect();
    assert!(names.len() > 500, "{}", names.len());
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), text.lines().count());
}

#[test]
fn what_cannot_be_run_is_refused_with_what_to_do() {
    for (args, words) in [
        (&["--cell", "no/such"][..], "matrix --list names all"),
        (
            &["--cell", "target-emptied/flipped"],
            "the emptied node owns keys",
        ),
        (&["--runs", "many"], "not a number: many"),
        (&["--runs"], "--runs needs a value"),
        (&["--some", "2", "--seed", "1"], "name its --cell"),
        (
            &["--some", "2", "--binary", "no-such-file"],
            "cargo build --release",
        ),
    ] {
        let refused = run(args);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

/// Something that answers as the binary does where a run begins, and then makes no load.
const IDLE: &str = "#!/bin/sh
case $1 in
  serve) echo ready now; exec tail -f /dev/null ;;
  bench) exec tail -f /dev/null ;;
esac
";

/// A runner in the middle of a run: servers, processes and proxies are there.
fn runner(folder: &Path) -> Child {
    let idle = folder.join("idle");
    fs::write(&idle, IDLE).expect("written");
    fs::set_permissions(&idle, fs::Permissions::from_mode(0o700)).expect("set");
    let results = folder.join("results");
    let runner = matrix(&["--cell", "kill-leader/copying", "--binary"])
        .arg(idle)
        .arg("--results")
        .arg(&results)
        // Where servers keep what they have.
        .env("TMPDIR", folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let begun = || {
        results
            .join("kill-leader-copying-0")
            .join("bench.out")
            .exists()
    };
    wait_until("the load is started", begun);
    // The runner, three members, four servers, four processes and a load.
    wait_until("all of them run", || alive(folder) >= 13);
    runner
}

/// How many processes know this folder: from their environment, or because they work in it. (A redis-server
/// writes its title over its environment.)
fn alive(folder: &Path) -> usize {
    let words = folder.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").expect("a Linux").flatten();
    processes
        .filter(|entry| {
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            let works_in = fs::read_link(entry.path().join("cwd"));
            environ.windows(words.len()).any(|window| window == words)
                || works_in.is_ok_and(|cwd| cwd.starts_with(folder))
        })
        .count()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "still waiting: {what}");
        thread::park_timeout(Duration::from_millis(10));
    }
}

#[test]
fn an_interrupted_runner_ends_everything_that_it_started() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut runner = runner(folder.path());
        kill_process(Pid::from_child(&runner), signal).expect("it lives");
        assert_eq!(runner.wait().expect("ended").code(), Some(130));
        wait_until("nothing is left", || alive(folder.path()) == 0);
        let left = fs::read_dir(folder.path()).expect("listed").flatten();
        let names: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert!(
            names.iter().all(|name| name == "idle" || name == "results"),
            "{names:?}"
        );
    }
}

#[test]
fn a_killed_runner_leaves_no_process_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut runner = runner(folder.path());
    runner.kill().expect("it lives");
    runner.wait().expect("ended");
    wait_until("nothing is left", || alive(folder.path()) == 0);
}
