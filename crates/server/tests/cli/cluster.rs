//! A whole `clockwise up` for a test: on free ports, in a folder of its own, gone when dropped.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::program::{Run, clockwise, run};

const READY_WITHIN: Duration = Duration::from_secs(60);
/// Where a test's folder has what `up` says on stderr.
const TALK: &str = "talk";
/// On free ports, on the folder that follows.
const UP: [&str; 6] = [
    "up",
    "--listen",
    "127.0.0.1:0",
    "--admin",
    "127.0.0.1:0",
    "--dir",
];
const POLL: Duration = Duration::from_millis(10);

/// A running `up` and its folder.
pub(crate) struct Cluster {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) epoch: u64,
    folder: TempDir,
    child: Child,
}

impl Cluster {
    /// Starts one on a new folder.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_on(tempfile::tempdir().expect("a scratch folder"), args)
    }

    /// Starts one with nothing said, on a machine that has no servers.
    pub(crate) fn start_without_servers() -> Self {
        let mut command = clockwise();
        command
            .env("PATH", "")
            .env("CLOCKWISE_REDIS_SERVER", "/nowhere/redis-server");
        Self::spawn(command, tempfile::tempdir().expect("a scratch folder"), &[])
    }

    /// Starts one on a folder that may have been used before.
    pub(crate) fn start_on(folder: TempDir, args: &[&str]) -> Self {
        Self::spawn(clockwise(), folder, args)
    }

    /// The same with another redis-server.
    pub(crate) fn start_on_with(folder: TempDir, redis_server: &Path, args: &[&str]) -> Self {
        let mut command = clockwise();
        command.env("CLOCKWISE_REDIS_SERVER", redis_server);
        Self::spawn(command, folder, args)
    }

    /// Starts one whose log goes where nothing can be written.
    pub(crate) fn start_unheard(args: &[&str]) -> Self {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let talk = full.expect("a device that is always full");
        let folder = tempfile::tempdir().expect("a scratch folder");
        Self::spawn_with(clockwise(), folder, talk, args)
    }

    fn spawn(command: Command, folder: TempDir, args: &[&str]) -> Self {
        let talk = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.path().join(TALK))
            .expect("a file for what it says");
        Self::spawn_with(command, folder, talk, args)
    }

    fn spawn_with(mut command: Command, folder: TempDir, talk: File, args: &[&str]) -> Self {
        let mut child = command
            .args(UP)
            .arg(data(folder.path()))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(talk)
            .spawn()
            .expect("the binary starts");
        let stdout = child.stdout.take().expect("piped");
        let (sender, lines) = mpsc::channel();
        // It reads on, so that a second line would be seen and a full pipe never stops the process.
        thread::spawn(move || {
            BufReader::new(stdout)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|l| sender.send(l))
        });
        let line = lines.recv_timeout(READY_WITHIN).unwrap_or_else(|_| {
            let ended = child.try_wait().expect("its state");
            child.kill().expect("it can be killed");
            panic!(
                "no ready line within {READY_WITHIN:?}; ended: {ended:?}; it said:\n{}",
                talk_in(&folder)
            );
        });
        let field = |name: &str| {
            let start = format!("{name}=");
            let found = line
                .split(' ')
                .find_map(|word| word.strip_prefix(start.as_str()));
            found
                .unwrap_or_else(|| panic!("{name} is missing in {line:?}"))
                .to_owned()
        };
        assert!(line.starts_with("ready listen="), "{line:?}");
        assert_eq!(
            PathBuf::from(field("dir")),
            data(folder.path()).canonicalize().expect("it exists")
        );
        Self {
            listen: field("listen").parse().expect("an address"),
            admin: field("admin").parse().expect("an address"),
            epoch: field("epoch").parse().expect("a number"),
            folder,
            child,
        }
    }

    /// The data folder.
    pub(crate) fn dir(&self) -> PathBuf {
        data(self.folder.path())
    }

    /// What it has said on stderr, with what was said before on the same folder.
    pub(crate) fn talk(&self) -> String {
        talk_in(&self.folder)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a verb against it.
    pub(crate) fn run(&self, args: &[&str]) -> Run {
        let dir = self.dir();
        let mut words = args.to_vec();
        words.extend(["--dir", dir.to_str().expect("text")]);
        run(&words)
    }

    /// A verb of ours as it is suggested to whoever named the folder.
    pub(crate) fn suggested(&self, verb: &str, rest: &str) -> String {
        format!("clockwise {verb} --dir {} {rest}", self.dir().display())
    }

    /// A client of its router.
    pub(crate) fn client(&self) -> redis::Connection {
        let client =
            redis::Client::open(format!("redis://{}/", self.listen)).expect("a redis address");
        client
            .get_connection_with_timeout(Duration::from_secs(5))
            .expect("the router takes clients")
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn signal(&mut self, signal: rustix::process::Signal) -> (ExitStatus, Duration) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let began = Instant::now();
        rustix::process::kill_process(pid, signal).expect("it can be signalled");
        let status = self.child.wait().expect("it ends");
        (status, began.elapsed())
    }

    /// Ends it without a chance to clean up; gives the folder back.
    pub(crate) fn kill(mut self) -> TempDir {
        self.signal(rustix::process::Signal::KILL);
        std::mem::replace(
            &mut self.folder,
            tempfile::tempdir().expect("a scratch folder"),
        )
    }

    /// Ends it as a person would; gives the folder back.
    pub(crate) fn end(mut self) -> TempDir {
        let (status, _) = self.signal(rustix::process::Signal::TERM);
        assert!(status.success(), "{status}");
        std::mem::replace(
            &mut self.folder,
            tempfile::tempdir().expect("a scratch folder"),
        )
    }

    /// The processes of its servers, by node, as their cards name them.
    pub(crate) fn servers(&self) -> Vec<(String, i32)> {
        servers(self.folder.path())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
        end_servers(self.folder.path());
        if thread::panicking() {
            eprintln!("it said:\n{}", self.talk());
        }
    }
}

fn talk_in(folder: &TempDir) -> String {
    std::fs::read_to_string(folder.path().join(TALK)).unwrap_or_default()
}

/// Where a test's folder has the data of `up`.
pub(crate) fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Runs an `up` that does not start, on the data of a test's folder.
pub(crate) fn refused_up(folder: &Path, args: &[&str]) -> Run {
    let dir = data(folder);
    let mut words = UP.to_vec();
    words.push(dir.to_str().expect("text"));
    words.extend(args);
    run(&words)
}

/// The servers that cards in a folder name.
pub(crate) fn servers(folder: &Path) -> Vec<(String, i32)> {
    let Ok(nodes) = std::fs::read_dir(data(folder).join("nodes")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for node in nodes {
        let node = node.expect("a readable folder entry");
        let Ok(card) = std::fs::read_to_string(node.path().join("server.json")) else {
            continue;
        };
        let card: serde_json::Value = serde_json::from_str(&card).expect("a card is JSON");
        let pid = card["process"]["pid"]
            .as_i64()
            .expect("a card names its process");
        found.push((
            node.file_name().to_string_lossy().into_owned(),
            i32::try_from(pid).expect("a process id"),
        ));
    }
    found.sort();
    found
}

/// Whether a process runs; one that nobody collected does not.
pub(crate) fn lives(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .starts_with('Z')
    })
}

/// Ends servers whose `up` is gone.
pub(crate) fn end_servers(folder: &Path) -> Run {
    run(&["down", "--dir", data(folder).to_str().expect("text")])
}

/// Waits for something that must come true.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + READY_WITHIN;
    while !holds() {
        assert!(Instant::now() < deadline, "still waiting: {what}");
        thread::park_timeout(POLL);
    }
}
