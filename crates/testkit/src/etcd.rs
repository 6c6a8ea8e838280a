//! etcd, as a cluster of one or of several members.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::port::{Start, free_ports, on_free_ports};
use crate::process::{POLL_INTERVAL, Process, Program, START_DEADLINE};

const ETCD: Program = Program {
    name: "etcd",
    debian_package: "etcd-server",
};
const ETCDCTL: Program = Program {
    name: "etcdctl",
    debian_package: "etcd-client",
};
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// What etcd logs when it has joined its cluster and listens to clients, in the clear or not.
const READY: &str = "serving client traffic";
/// Whether a set of ports is free is known only when all members have them.
const CLUSTER_STARTS_MAX: usize = 5;

/// How an [`EtcdServer`] is started.
#[derive(Debug, Clone, Default)]
pub struct EtcdOptions {
    /// Further arguments, such as `--auto-compaction-retention=1`.
    pub args: Vec<String>,
    /// Speaks TLS to its clients.
    pub tls: Option<EtcdTlsFiles>,
}

/// The certificates of an [`EtcdServer`], in PEM.
#[derive(Debug, Clone)]
pub struct EtcdTlsFiles {
    /// Its certificate.
    pub certificate: PathBuf,
    /// The key of its certificate.
    pub key: PathBuf,
    /// Who must have signed its clients' certificates; none are asked for without.
    pub client_authority: Option<PathBuf>,
}

/// A running etcd; killed, waited for and its data removed when dropped.
#[derive(Debug)]
pub struct EtcdServer {
    process: Process,
    place: Place,
    options: EtcdOptions,
    dir: TempDir,
}

/// Where a member is, and with whom.
#[derive(Debug, Clone)]
struct Place {
    name: String,
    /// For clients, then for peers.
    ports: [u16; 2],
    /// `NAME=URL,…` of all members.
    cluster: String,
}

impl EtcdServer {
    /// Starts a server with free ports for clients and peers, and returns when it is healthy.
    ///
    /// # Panics
    /// If `etcd` is missing or does not start.
    #[track_caller]
    #[must_use]
    pub fn start(options: EtcdOptions) -> EtcdServer {
        let dir = new_dir();
        let alone = |ports| Place::cluster_of(&[ports]).remove(0);
        let (process, ports) = on_free_ports(|ports| launch(dir.path(), &options, &alone(ports)));
        EtcdServer {
            process,
            place: alone(ports),
            options,
            dir,
        }
    }

    /// The port for clients; the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.place.ports[0]
    }

    /// `127.0.0.1:PORT` for clients.
    #[must_use]
    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// `http://127.0.0.1:PORT` for clients, or `https`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.place.client_url(&self.options)
    }

    /// Its directory, for files that should go with it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The pid of this start.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it logged since its last start.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Whether the process lives; a paused one does.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Whether this member leads its cluster. `false` if it does not answer.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()));
        get(addr, "/metrics").is_ok_and(|metrics| {
            metrics
                .lines()
                .any(|line| line == "etcd_server_is_leader 1")
        })
    }

    /// What `etcdctl` prints when it asks this server, without the line's end.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn ctl(&self, args: &[&str]) -> String {
        let mut command = Command::new(ETCDCTL.path());
        command.arg(format!("--endpoints={}", self.endpoint()));
        run(command.args(args))
    }

    /// Writes a copy of the data to a file, which [`restore`](EtcdServer::restore) takes.
    #[track_caller]
    #[must_use]
    pub fn snapshot(&self) -> PathBuf {
        let copy = self.dir().join("snapshot");
        self.ctl(&["snapshot", "save", &copy.display().to_string()]);
        copy
    }

    /// Replaces the data by a copy, as an operator would, and starts again on the same ports.
    #[track_caller]
    pub fn restore(&mut self, copy: &Path) {
        self.process.kill9();
        let data = self.dir().join("data");
        if let Err(error) = fs::remove_dir_all(&data) {
            panic!("cannot remove {}: {error}", data.display());
        }
        let mut command = Command::new(ETCDCTL.path());
        command.args(["snapshot", "restore", &copy.display().to_string()]);
        command.args(["--data-dir", &data.display().to_string()]);
        command.args(["--name", &self.place.name]);
        command.args(["--initial-cluster", &self.place.cluster]);
        command.args(["--initial-advertise-peer-urls", &self.place.peer_url()]);
        run(&mut command);
        self.restart();
    }

    /// SIGKILL, and waits for the end. The data stays.
    pub fn kill9(&mut self) {
        self.process.kill9();
    }

    /// SIGTERM, and waits for the end.
    #[track_caller]
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Starts it again with the same data and ports, after killing it if it still runs.
    #[track_caller]
    pub fn restart(&mut self) {
        self.process.kill9();
        match launch(self.dir.path(), &self.options, &self.place) {
            Start::Ready(process) => self.process = process,
            Start::PortTaken => {
                panic!(
                    "ports {:?} were taken while etcd was down",
                    self.place.ports
                )
            }
        }
    }

    /// SIGSTOP: connections stay open and nobody answers. Returns when it has stopped.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }
}

/// Several members that agree.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<EtcdServer>,
}

impl EtcdCluster {
    /// Starts `N` members and returns when all are ready.
    ///
    /// # Panics
    /// If `etcd` is missing or does not start.
    #[track_caller]
    #[must_use]
    pub fn start<const N: usize>(options: &EtcdOptions) -> EtcdCluster {
        for _ in 0..CLUSTER_STARTS_MAX {
            if let Some(members) = start_members::<N>(options) {
                return EtcdCluster { members };
            }
        }
        panic!("no {N} free pairs of ports after {CLUSTER_STARTS_MAX} attempts");
    }

    /// The members, in a fixed order.
    #[must_use]
    pub fn members(&self) -> &[EtcdServer] {
        &self.members
    }

    /// A member, to kill or restart.
    pub fn member(&mut self, index: usize) -> &mut EtcdServer {
        &mut self.members[index]
    }

    /// The endpoints of all members.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(EtcdServer::endpoint).collect()
    }

    /// Which member leads, once one does.
    ///
    /// # Panics
    /// If none leads within some seconds.
    #[track_caller]
    #[must_use]
    pub fn wait_for_leader(&self) -> usize {
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            if let Some(leader) = self.leader() {
                return leader;
            }
            assert!(Instant::now() < deadline, "no member leads");
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Which member says that it leads, if one does now.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(EtcdServer::is_leader)
    }
}

#[track_caller]
fn start_members<const N: usize>(options: &EtcdOptions) -> Option<Vec<EtcdServer>> {
    // Peers and clients of all, drawn together so that they differ.
    let (clients, peers) = (free_ports::<N>(), free_ports::<N>());
    let ports: Vec<[u16; 2]> = clients.into_iter().zip(peers).map(Into::into).collect();
    // None is ready before most of them run, so all are started first.
    let started: Vec<_> = Place::cluster_of(&ports)
        .into_iter()
        .map(|place| {
            let dir = new_dir();
            let process = spawn(dir.path(), options, &place);
            (process, place, dir)
        })
        .collect();
    let mut members = Vec::new();
    for (process, place, dir) in started {
        let Start::Ready(process) = wait(process) else {
            return None;
        };
        members.push(EtcdServer {
            process,
            place,
            options: options.clone(),
            dir,
        });
    }
    Some(members)
}

impl Place {
    /// The place of each member of a new cluster.
    fn cluster_of(ports: &[[u16; 2]]) -> Vec<Place> {
        let names: Vec<String> = (0..ports.len()).map(|at| format!("node{at}")).collect();
        let entries: Vec<String> = names
            .iter()
            .zip(ports)
            .map(|(name, ports)| format!("{name}={}", peer_url(ports[1])))
            .collect();
        let place = |(name, ports): (String, &[u16; 2])| Place {
            name,
            ports: *ports,
            cluster: entries.join(","),
        };
        names.into_iter().zip(ports).map(place).collect()
    }

    fn client_url(&self, options: &EtcdOptions) -> String {
        let scheme = if options.tls.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://127.0.0.1:{}", self.ports[0])
    }

    fn peer_url(&self) -> String {
        peer_url(self.ports[1])
    }
}

fn peer_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

#[track_caller]
fn new_dir() -> TempDir {
    match tempfile::Builder::new().prefix("clockwise-etcd-").tempdir() {
        Ok(dir) => dir,
        Err(error) => panic!("no temporary directory for etcd: {error}"),
    }
}

#[track_caller]
fn launch(dir: &Path, options: &EtcdOptions, place: &Place) -> Start {
    wait(spawn(dir, options, place))
}

#[track_caller]
fn spawn(dir: &Path, options: &EtcdOptions, place: &Place) -> Process {
    let data = dir.join("data").display().to_string();
    let client_url = place.client_url(options);
    let peer_url = place.peer_url();
    let mut args: Vec<OsString> = [
        ("--name", &*place.name),
        ("--data-dir", &data),
        ("--listen-client-urls", &client_url),
        ("--advertise-client-urls", &client_url),
        ("--listen-peer-urls", &peer_url),
        ("--initial-advertise-peer-urls", &peer_url),
        ("--initial-cluster", &place.cluster),
        ("--logger", "zap"),
    ]
    .iter()
    .flat_map(|(flag, value)| [OsString::from(flag), OsString::from(value)])
    .collect();
    if let Some(tls) = &options.tls {
        args.extend(["--cert-file".into(), tls.certificate.clone().into()]);
        args.extend(["--key-file".into(), tls.key.clone().into()]);
        if let Some(authority) = &tls.client_authority {
            args.push("--client-cert-auth".into());
            args.extend(["--trusted-ca-file".into(), authority.clone().into()]);
        }
    }
    args.extend(options.args.iter().map(Into::into));
    Process::spawn(&ETCD, args, &dir.join("log"))
}

#[track_caller]
fn wait(mut process: Process) -> Start {
    // Its own log: another etcd that took the port has another one.
    if process.wait_until_ready(|process| process.log().contains(READY)) {
        Start::Ready(process)
    } else {
        Start::PortTaken
    }
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = match command.env("ETCDCTL_API", "3").output() {
        Ok(output) => output,
        Err(error) => panic!("cannot start {command:?}: {error}"),
    };
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

fn get(addr: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&addr, ASK_TIMEOUT)?;
    stream.set_read_timeout(Some(ASK_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {addr}\r\n\r\n")?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}
