//! memcached.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::port::{Start, on_free_ports};
use crate::process::{Process, Program};

const MEMCACHED: Program = Program {
    name: "memcached",
    debian_package: "memcached",
};
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// How a [`MemcachedServer`] is started.
#[derive(Debug, Clone, Default)]
pub struct MemcachedOptions {
    /// `-m`: memory for items in MiB; memcached's own default (64) when absent.
    pub memory_mib: Option<u32>,
    /// Further arguments.
    pub args: Vec<String>,
}

/// A running memcached; killed and waited for when dropped.
#[derive(Debug)]
pub struct MemcachedServer {
    process: Process,
    port: u16,
    options: MemcachedOptions,
    dir: TempDir,
}

impl MemcachedServer {
    /// Starts a server on a free port and returns when it answers.
    ///
    /// # Panics
    /// If `memcached` is missing or does not start.
    #[track_caller]
    #[must_use]
    pub fn start(options: MemcachedOptions) -> MemcachedServer {
        let dir = match tempfile::Builder::new()
            .prefix("clockwise-memcached-")
            .tempdir()
        {
            Ok(dir) => dir,
            Err(error) => panic!("no temporary directory for memcached: {error}"),
        };
        let (process, [port]) = on_free_ports(|[port]| launch(dir.path(), &options, port));
        MemcachedServer {
            process,
            port,
            options,
            dir,
        }
    }

    /// The port it listens on; the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn addr(&self) -> String {
        self.socket_addr().to_string()
    }

    /// The address as a socket address.
    #[must_use]
    pub fn socket_addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
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

    /// SIGKILL, and waits for the end.
    pub fn kill9(&mut self) {
        self.process.kill9();
    }

    /// SIGTERM, and waits for the end.
    #[track_caller]
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Starts it again, empty, on the same port, after killing it if it still runs.
    #[track_caller]
    pub fn restart(&mut self) {
        self.process.kill9();
        match launch(self.dir.path(), &self.options, self.port) {
            Start::Ready(process) => self.process = process,
            Start::PortTaken => panic!("port {} was taken while the server was down", self.port),
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

    /// Sends one command of the text protocol (line ends included) on a connection of its own
    /// and returns the reply up to and including the line that is `end`, such as `END\r\n`.
    ///
    /// # Panics
    /// If the connection fails or the reply does not come within 2 s.
    #[track_caller]
    pub fn ask(&self, command: &str, end: &str) -> String {
        match ask(self.socket_addr(), command, end) {
            Ok(reply) => reply,
            Err(error) => panic!("memcached on port {} to {command:?}: {error}", self.port),
        }
    }
}

#[track_caller]
fn launch(dir: &Path, options: &MemcachedOptions, port: u16) -> Start {
    let mut args: Vec<OsString> = ["-l", "127.0.0.1", "-U", "0", "-p"].map(Into::into).into();
    args.push(port.to_string().into());
    if let Some(memory_mib) = options.memory_mib {
        args.extend(["-m".into(), memory_mib.to_string().into()]);
    }
    if rustix::process::geteuid().is_root() {
        // memcached refuses to run as root unless told so.
        args.extend(["-u".into(), "root".into()]);
    }
    args.extend(options.args.iter().map(Into::into));
    let mut process = Process::spawn(&MEMCACHED, args, &dir.join("log"));
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let own = format!("STAT pid {}\r\n", process.pid());
    // Another server that took the port would answer too, with another pid.
    let ready = process.wait_until_ready(|_| {
        ask(addr, "stats\r\n", "END\r\n").is_ok_and(|reply| reply.contains(&own))
    });
    if ready {
        Start::Ready(process)
    } else {
        Start::PortTaken
    }
}

fn ask(addr: SocketAddr, command: &str, end: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&addr, ASK_TIMEOUT)?;
    stream.set_read_timeout(Some(ASK_TIMEOUT))?;
    stream.write_all(command.as_bytes())?;
    let mut reply = Vec::new();
    let mut buffer = [0; 4096];
    let last_line = |reply: &[u8]| {
        reply.ends_with(end.as_bytes())
            && (reply.len() == end.len() || reply[..reply.len() - end.len()].ends_with(b"\n"))
    };
    while !last_line(&reply) {
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => reply.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&reply).into_owned())
}
