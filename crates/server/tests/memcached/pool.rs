//! A pool of real memcached servers with a router in front, and a client that sees every byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clockwise::router::{Limits, Router, RouterConfig, RouterHandle, RouterStats, Secrets};
use clockwise_client::credentials::Password;
use clockwise_client::memcached::{ReplyScan, ReplyScanner};
use clockwise_cluster::{NewNode, NewPool, Nonce, Protocol, Record, ServiceClass, View};
use clockwise_testkit::{MemcachedOptions, MemcachedServer};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// How long a test waits for what must come, however busy the machine is. Only a failure takes as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The router's limits without those of time: a test that is about one of these sets it itself.
pub(crate) fn patient() -> Limits {
    // More than the test's own patience, so that what hangs is told by the test.
    const MS: u64 = 2 * PATIENCE.as_secs() * 1_000;
    let mut limits = Limits {
        reply_ms_max: MS,
        answer_ms_max: MS,
        request_ms_max: MS,
        login_ms_max: MS,
        unread_ms_max: MS,
        choke_ms_max: MS,
        ..Limits::default()
    };
    limits.traffic.hold.wait_ms_max = MS;
    limits.traffic.wait.wait_ms_max = MS;
    limits.traffic.connect_ms_max = MS;
    limits
}

/// How a pool is started.
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    /// Arguments of each server.
    pub(crate) args: Vec<String>,
    pub(crate) workers: usize,
    pub(crate) limits: Limits,
    pub(crate) flush_all: bool,
    pub(crate) password: Option<&'static str>,
    /// Addresses of further nodes, `a0` and on, that nobody starts.
    pub(crate) strangers: Vec<String>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: 3,
            args: Vec::new(),
            workers: 1,
            limits: patient(),
            flush_all: false,
            password: None,
            strangers: Vec::new(),
        }
    }
}

pub(crate) struct Pool {
    pub(crate) servers: Vec<MemcachedServer>,
    pub(crate) record: Record,
    _view: watch::Sender<Arc<View>>,
    router: Option<RouterHandle>,
    _runtime: Runtime,
}

pub(crate) fn start(plan: Plan) -> Pool {
    let options = MemcachedOptions {
        args: plan.args,
        ..MemcachedOptions::default()
    };
    let servers: Vec<_> = (0..plan.nodes)
        .map(|_| MemcachedServer::start(options.clone()))
        .collect();
    let addresses = servers.iter().map(MemcachedServer::addr);
    let record = record_of(addresses.collect(), &plan.strangers).with_flush_all(plan.flush_all);
    let (sender, view) = watch::channel(Arc::new(View::from_record(&record).unwrap()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let config = RouterConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        workers: plan.workers,
        limits: plan.limits,
        secrets: Secrets {
            pool_key: None,
            password: plan.password.map(password),
        },
        view,
    };
    let router = runtime.block_on(async { Router::start(config) }).unwrap();
    Pool {
        servers,
        record,
        _view: sender,
        router: Some(router),
        _runtime: runtime,
    }
}

/// A password, the way it comes into the router: from a file that only its owner can read.
fn password(text: &str) -> Password {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Password::from_file(file.path()).unwrap()
}

fn record_of(servers: Vec<String>, strangers: &[String]) -> Record {
    let node = |letter: char, at: usize, address: &str| {
        let id = format!("{letter}{at}").parse().unwrap();
        NewNode::new(id, address.parse().unwrap())
    };
    let strangers = strangers.iter().enumerate();
    let nodes = servers
        .iter()
        .enumerate()
        .map(|(at, address)| node('n', at, address))
        .chain(strangers.map(|(at, address)| node('a', at, address)))
        .collect();
    let mut count = 0;
    let pool = NewPool {
        protocol: Protocol::Memcached,
        class: ServiceClass::Cache,
        ..NewPool::new("pool".parse().unwrap(), nodes)
    };
    Record::create(pool, &mut || {
        count += 1;
        Nonce::new([count; 16])
    })
    .unwrap()
}

impl Pool {
    pub(crate) fn addr(&self) -> SocketAddr {
        self.router.as_ref().unwrap().addr()
    }

    pub(crate) fn stats(&self) -> RouterStats {
        self.router.as_ref().unwrap().stats()
    }

    /// As while the record says two things of one epoch, and after it.
    pub(crate) fn halt(&self, why: Option<&str>) {
        self.router.as_ref().unwrap().halt(why.map(Arc::from));
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.addr())
    }

    /// The server that owns a key.
    pub(crate) fn owner(&self, key: &[u8]) -> usize {
        let view = View::from_record(&self.record).unwrap();
        view.route(view.position(key)).node.get()
    }

    /// A key of this form that this server owns.
    pub(crate) fn key_on(&self, server: usize, form: &str) -> String {
        (0..)
            .map(|number| format!("{form}{number}"))
            .find(|key| self.owner(key.as_bytes()) == server)
            .unwrap()
    }

    /// A client of one server, without a router.
    pub(crate) fn direct(&self, server: usize) -> Client {
        Client::connect(self.servers[server].socket_addr())
    }
}

/// Waits for something that other threads bring about.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if done() {
            return;
        }
        // Nothing is ever sent: this is a pause between two looks.
        assert!(never.recv_timeout(Duration::from_millis(5)).is_err());
    }
    panic!("waited in vain: {what}");
}

/// A client on a plain socket. Every read has a deadline.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            input: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).unwrap();
    }

    /// The next whole reply.
    pub(crate) fn read(&mut self) -> String {
        let mut scanner = ReplyScanner::new(usize::MAX);
        loop {
            match scanner.scan(&self.input) {
                Ok(ReplyScan::Reply(reply)) => {
                    let reply: Vec<u8> = self.input.drain(..reply.bytes).collect();
                    return String::from_utf8_lossy(&reply).into_owned();
                }
                Ok(ReplyScan::More) => {}
                other => panic!("{other:?} in {:?}", String::from_utf8_lossy(&self.input)),
            }
            assert!(
                self.fill() > 0,
                "closed; unread: {:?}",
                String::from_utf8_lossy(&self.input)
            );
        }
    }

    fn fill(&mut self) -> usize {
        let mut chunk = vec![0; 1 << 20];
        let read = match self.socket.read(&mut chunk) {
            Ok(read) => read,
            Err(error) => panic!("no answer: {error}"),
        };
        self.input.extend_from_slice(&chunk[..read]);
        read
    }

    /// Sends requests and reads one reply.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> String {
        self.send(request);
        self.read()
    }

    /// Sends requests and reads everything that is said to them.
    pub(crate) fn all(&mut self, requests: impl AsRef<[u8]>) -> Vec<String> {
        self.send(requests);
        self.send("mn\r\n");
        let mut replies = Vec::new();
        loop {
            match self.read() {
                reply if reply == "MN\r\n" => return replies,
                reply => replies.push(reply),
            }
        }
    }

    /// Whether the other side has closed, after everything it sent was read.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0; 1];
        match self.socket.read(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}
