//! One running `clockwise serve`, gone when dropped.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::{Run, clockwise};

const READY_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// A process that serves.
pub(crate) struct Serve {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) ready: String,
    token: PathBuf,
    talk: PathBuf,
    child: Child,
}

/// One that has been started and may not be ready.
pub(crate) struct Starting {
    lines: mpsc::Receiver<String>,
    token: PathBuf,
    talk: PathBuf,
    child: Child,
}

impl Starting {
    /// Starts one with this configuration, which names the token's file `token` beside it.
    pub(crate) fn new(config: &Path, environment: &[(&str, &str)]) -> Self {
        let talk = config.with_extension("talk");
        let file = OpenOptions::new().create(true).append(true).open(&talk);
        let mut command = clockwise();
        command.args(["serve", "--config"]).arg(config);
        for (name, value) in environment {
            command.env(name, value);
        }
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(file.unwrap())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.into_iter().try_for_each(|line| sender.send(line))
        });
        Self {
            lines,
            token: config.with_file_name("token"),
            talk,
            child,
        }
    }

    /// Whether it is not ready after it has said this.
    pub(crate) fn waits_and_says(&mut self, words: &str) -> bool {
        wait_until("it says why it waits", || {
            fs::read_to_string(&self.talk).unwrap().contains(words)
        });
        self.lines.try_recv().is_err() && self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn ready(mut self) -> Serve {
        let ready = self.lines.recv_timeout(READY_WITHIN).unwrap_or_else(|_| {
            let ended = self.child.try_wait();
            drop(self.child.kill());
            let talk = fs::read_to_string(&self.talk).unwrap_or_default();
            panic!("not ready; ended: {ended:?}; it said:\n{talk}");
        });
        let field = |name: &str| {
            let start = format!("{name}=");
            let mut words = ready.split(' ');
            let found = words.find_map(|word| word.strip_prefix(start.as_str()));
            found.map(|address| address.parse().unwrap())
        };
        Serve {
            listen: field("listen"),
            admin: field("admin"),
            ready: ready.clone(),
            token: self.token,
            talk: self.talk,
            child: self.child,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its exit code once it has ended by itself, and what it said.
    pub(crate) fn ended(mut self) -> (i32, String) {
        let status = self.child.wait().unwrap();
        (
            status.code().unwrap(),
            fs::read_to_string(&self.talk).unwrap(),
        )
    }
}

impl Serve {
    pub(crate) fn start(config: &Path) -> Self {
        Starting::new(config, &[]).ready()
    }

    pub(crate) fn talk(&self) -> String {
        fs::read_to_string(&self.talk).unwrap_or_default()
    }

    /// Runs a verb against its admin API.
    pub(crate) fn run(&self, args: &[&str]) -> Run {
        let admin = self.admin.unwrap().to_string();
        let token = fs::read_to_string(&self.token).unwrap();
        let mut command = clockwise();
        command.args(args).args(["--admin", &admin]);
        let output = command
            .env("CLOCKWISE_TOKEN", token.trim())
            .output()
            .unwrap();
        Run {
            exit: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn status(&self) -> Value {
        self.run(&["status", "-o", "json"]).json("Status")
    }

    pub(crate) fn problems(&self) -> String {
        self.status()["problems"].to_string()
    }

    /// What it answers to a monitoring system: the status and the body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        get(self.admin.unwrap(), path)
    }

    pub(crate) fn client(&self) -> redis::Connection {
        client(self.listen.unwrap(), None)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn end(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.child.wait().unwrap()
    }

    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if self.lives() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
        if thread::panicking() {
            eprintln!("{} said:\n{}", self.ready, self.talk());
        }
    }
}

/// A client of a router, which may have to give a password.
pub(crate) fn client(listen: SocketAddr, password: Option<&str>) -> redis::Connection {
    try_client(listen, password).unwrap()
}

pub(crate) fn try_client(
    listen: SocketAddr,
    password: Option<&str>,
) -> redis::RedisResult<redis::Connection> {
    let login = password.map_or(String::new(), |password| format!(":{password}@"));
    let client = redis::Client::open(format!("redis://{login}{listen}/"))?;
    client.get_connection_with_timeout(Duration::from_secs(5))
}

/// What an admin API answers.
pub(crate) fn get(admin: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}

/// Waits for something that must come true.
pub(crate) fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_within(READY_WITHIN, what, holds);
}

/// The same with a bound of its own.
pub(crate) fn wait_within(within: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !holds() {
        assert!(
            Instant::now() < deadline,
            "still waiting after {within:?}: {what}"
        );
        thread::park_timeout(POLL);
    }
}
