//! etcd, as a cluster of one.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::port::{Start, on_free_ports};
use crate::process::{Process, Program};

const ETCD: Program = Program {
    name: "etcd",
    debian_package: "etcd-server",
};
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// How an [`EtcdServer`] is started.
#[derive(Debug, Clone, Default)]
pub struct EtcdOptions {
    /// Further arguments, such as `--auto-compaction-retention=1`.
    pub args: Vec<String>,
}

/// A running etcd; killed, waited for and its data removed when dropped.
#[derive(Debug)]
pub struct EtcdServer {
    process: Process,
    /// For clients, then for peers.
    ports: [u16; 2],
    options: EtcdOptions,
    dir: TempDir,
}

impl EtcdServer {
    /// Starts a server with free ports for clients and peers, and returns when it is healthy.
    ///
    /// # Panics
    /// If `etcd` is missing or does not start.
    #[track_caller]
    #[must_use]
    pub fn start(options: EtcdOptions) -> EtcdServer {
        let dir = match tempfile::Builder::new().prefix("clockwise-etcd-").tempdir() {
            Ok(dir) => dir,
            Err(error) => panic!("no temporary directory for etcd: {error}"),
        };
        let (process, ports) = on_free_ports(|ports| launch(dir.path(), &options, ports));
        EtcdServer {
            process,
            ports,
            options,
            dir,
        }
    }

    /// The port for clients; the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports[0]
    }

    /// `127.0.0.1:PORT` for clients.
    #[must_use]
    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// `http://127.0.0.1:PORT` for clients.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.addr())
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
        match launch(self.dir.path(), &self.options, self.ports) {
            Start::Ready(process) => self.process = process,
            Start::PortTaken => panic!("ports {:?} were taken while etcd was down", self.ports),
        }
    }

    /// SIGSTOP: connections stay open and nobody answers.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }
}

#[track_caller]
fn launch(dir: &Path, options: &EtcdOptions, [clients, peers]: [u16; 2]) -> Start {
    let data = dir.join("data").display().to_string();
    let client_url = format!("http://127.0.0.1:{clients}");
    let peer_url = format!("http://127.0.0.1:{peers}");
    let mut args: Vec<OsString> = [
        ("--name", "node"),
        ("--data-dir", &data),
        ("--listen-client-urls", &client_url),
        ("--advertise-client-urls", &client_url),
        ("--listen-peer-urls", &peer_url),
        ("--initial-advertise-peer-urls", &peer_url),
        ("--initial-cluster", &format!("node={peer_url}")),
        ("--logger", "zap"),
    ]
    .iter()
    .flat_map(|(flag, value)| [OsString::from(flag), OsString::from(value)])
    .collect();
    args.extend(options.args.iter().map(Into::into));
    let mut process = Process::spawn(&ETCD, args, &dir.join("log"));
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, clients));
    // Another etcd that took the port would be healthy too, with another data directory.
    let ready = process.wait_until_ready(|_| {
        get(addr, "/debug/vars").is_ok_and(|body| body.contains(&data))
            && get(addr, "/health").is_ok_and(|body| body.contains("\"health\":\"true\""))
    });
    if ready {
        Start::Ready(process)
    } else {
        Start::PortTaken
    }
}

fn get(addr: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&addr, ASK_TIMEOUT)?;
    stream.set_read_timeout(Some(ASK_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {addr}\r\n\r\n")?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}
