//! redis-server.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::port::{Start, on_free_ports};
use crate::process::{Process, Program};

const REDIS_SERVER: Program = Program {
    name: "redis-server",
    debian_package: "redis-server",
};
const REDIS_CLI: Program = Program {
    name: "redis-cli",
    debian_package: "redis-tools",
};
const READY_LINE: &str = "Ready to accept connections";
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// How a [`RedisServer`] is started. The default has no password, no persistence and no limit of
/// memory.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    /// `requirepass`: the password of the user `default`, written into the configuration file.
    pub password: Option<String>,
    /// An append-only file, synced every second.
    pub append_only: bool,
    /// `maxmemory` in bytes.
    pub max_memory: Option<u64>,
    /// `maxmemory-policy`, such as `allkeys-lru`.
    pub policy: Option<String>,
    /// Lines of an ACL file; empty means none. `password` and an ACL file that defines `default`
    /// exclude each other.
    pub acl: Vec<String>,
    /// User and password with which [`RedisServer::cli`] logs in, where it is not `default` with
    /// `password`.
    pub admin: Option<(String, String)>,
    /// Further lines of the configuration file.
    pub config: Vec<String>,
}

/// A running redis-server; killed, waited for and its directory removed when dropped.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    port: u16,
    options: RedisOptions,
    /// Declared after `process`, so that it is removed when nothing writes there any more.
    dir: TempDir,
}

impl RedisServer {
    /// Starts a server on a free port and returns when it answers.
    ///
    /// # Panics
    /// If `redis-server` is missing or does not start.
    #[track_caller]
    #[must_use]
    pub fn start(options: RedisOptions) -> RedisServer {
        let dir = match tempfile::Builder::new()
            .prefix("clockwise-redis-")
            .tempdir()
        {
            Ok(dir) => dir,
            Err(error) => panic!("no temporary directory for redis-server: {error}"),
        };
        let (process, [port]) = on_free_ports(|[port]| launch(dir.path(), &options, port));
        RedisServer {
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

    /// Its directory: `redis.conf`, `users.acl`, `log` and the data.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The options it was started with; changes count from the next [`restart`](Self::restart).
    pub fn options_mut(&mut self) -> &mut RedisOptions {
        &mut self.options
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

    /// SIGKILL, and waits for the end. The directory stays.
    pub fn kill9(&mut self) {
        self.process.kill9();
    }

    /// SIGTERM: the server saves what its configuration asks for and ends; waits for it.
    #[track_caller]
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Starts it again with the same directory and port, after killing it if it still runs.
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

    /// Bytes that have arrived for the server, on all its connections, and that it has not read.
    ///
    /// # Panics
    /// Where there is no `/proc/net/tcp`.
    #[track_caller]
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        let table = match fs::read_to_string("/proc/net/tcp") {
            Ok(table) => table,
            Err(error) => panic!("/proc/net/tcp: {error}"),
        };
        table
            .lines()
            .filter_map(|line| unread_at(line, self.port))
            .sum()
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// Runs `redis-cli` with these arguments, logged in, and returns what it printed, without
    /// the last line end. An error reply is printed text too.
    ///
    /// # Panics
    /// If `redis-cli` is missing or cannot connect.
    #[track_caller]
    pub fn cli(&self, args: &[&str]) -> String {
        let mut command = Command::new(REDIS_CLI.path());
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        if let Some((user, password)) = self.login() {
            command
                .args(["--user", user])
                .env("REDISCLI_AUTH", password);
        }
        let output = match command.args(args).output() {
            Ok(output) => output,
            Err(error) => panic!("cannot run redis-cli: {error}"),
        };
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            panic!("redis-cli {args:?} failed: {complaint}");
        }
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.ends_with('\n') {
            text.pop();
        }
        text
    }

    fn login(&self) -> Option<(&str, &str)> {
        let admin = self.options.admin.as_ref();
        let default = self.options.password.as_ref();
        admin
            .map(|(user, password)| (user.as_str(), password.as_str()))
            .or_else(|| default.map(|password| ("default", password.as_str())))
    }
}

/// What waits to be read on the connection of this line, if the server at `port` is its end:
/// `slot: local remote state sent:unread ...`, in hexadecimal digits.
fn unread_at(line: &str, port: u16) -> Option<usize> {
    const ESTABLISHED: &str = "01";
    let mut fields = line.split_whitespace().skip(1);
    let (local, _remote) = (fields.next()?, fields.next()?);
    let (state, queues) = (fields.next()?, fields.next()?);
    let (_, local_port) = local.rsplit_once(':')?;
    let (_, unread) = queues.split_once(':')?;
    let ours = u16::from_str_radix(local_port, 16) == Ok(port) && state == ESTABLISHED;
    ours.then(|| usize::from_str_radix(unread, 16).ok())?
}

#[track_caller]
fn launch(dir: &Path, options: &RedisOptions, port: u16) -> Start {
    let configuration = dir.join("redis.conf");
    write(&configuration, &configuration_text(dir, options, port));
    if !options.acl.is_empty() {
        write(&dir.join("users.acl"), &lines(&options.acl));
    }
    let args = vec![configuration.into_os_string()];
    let mut process = Process::spawn(&REDIS_SERVER, args, &dir.join("log"));
    // The line stands in our own log only if our own process holds the port.
    if process.wait_until_ready(|process| process.log().contains(READY_LINE) && answers(port)) {
        Start::Ready(process)
    } else {
        Start::PortTaken
    }
}

fn configuration_text(dir: &Path, options: &RedisOptions, port: u16) -> String {
    let mut text = vec![
        format!("port {port}"),
        "bind 127.0.0.1".to_owned(),
        "save \"\"".to_owned(),
        format!("dir {}", dir.display()),
        format!(
            "appendonly {}",
            if options.append_only { "yes" } else { "no" }
        ),
    ];
    if let Some(password) = &options.password {
        text.push(format!("requirepass {password}"));
    }
    if let Some(bytes) = options.max_memory {
        text.push(format!("maxmemory {bytes}"));
    }
    if let Some(policy) = &options.policy {
        text.push(format!("maxmemory-policy {policy}"));
    }
    if !options.acl.is_empty() {
        text.push(format!("aclfile {}", dir.join("users.acl").display()));
    }
    text.extend(options.config.iter().cloned());
    lines(&text)
}

fn lines(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

#[track_caller]
fn write(path: &Path, text: &str) {
    if let Err(error) = fs::write(path, text) {
        panic!("cannot write {}: {error}", path.display());
    }
}

/// Whether PING gets an answer other than "loading"; one that asks for a password is an answer.
fn answers(port: u16) -> bool {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let ask = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&addr, PROBE_TIMEOUT)?;
        stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
        stream.write_all(b"PING\r\n")?;
        let mut reply = Vec::new();
        let mut buffer = [0; 256];
        while !reply.ends_with(b"\r\n") {
            match stream.read(&mut buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => reply.extend_from_slice(&buffer[..count]),
            }
        }
        Ok(reply)
    };
    ask().is_ok_and(|reply| !reply.starts_with(b"-LOADING"))
}
