//! A pool of real servers with a router in front, and a client that sees every byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clockwise::driver::redis::{Login, Patience, RedisDriver, RedisOptions as RedisDriverOptions};
use clockwise::driver::{Driver, Generation, NodeAddress, Term};
use clockwise::router::{Limits, Router, RouterConfig, RouterHandle, RouterStats, Secrets};
use clockwise_client::credentials::{Password, PoolKey, client_login};
use clockwise_client::resp::{Value, write_command};
use clockwise_cluster::{NewNode, NewPool, Node, Nonce, Record, SchemeSpec, View};
use clockwise_testkit::{RedisOptions, RedisServer};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// How long a test waits for what must come, however busy the machine is. Only a failure takes as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The router's limits without those of time: a test that is about one of these sets it itself, and
/// no other is decided by how busy the machine is.
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
    /// Addresses of further nodes, `a0` and on, that nobody starts.
    pub(crate) strangers: Vec<String>,
    pub(crate) workers: usize,
    pub(crate) limits: Limits,
    pub(crate) hash_tags: bool,
    pub(crate) scripts: bool,
    pub(crate) password: Option<&'static str>,
    /// Nodes let in nobody but the client users of the record.
    pub(crate) closed: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: 3,
            strangers: Vec::new(),
            workers: 1,
            limits: patient(),
            hash_tags: false,
            scripts: false,
            password: None,
            closed: false,
        }
    }
}

pub(crate) struct Pool {
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) record: Record,
    view: watch::Sender<Arc<View>>,
    pub(crate) key: PoolKey,
    router: Option<RouterHandle>,
    runtime: Runtime,
}

/// The administrator of closed nodes.
pub(crate) const ADMIN: (&str, &str) = ("admin", "admin-password");

pub(crate) fn start(plan: Plan) -> Pool {
    let servers = (0..plan.nodes).map(|_| start_server(plan.closed)).collect();
    start_router(servers, plan)
}

fn start_router(servers: Vec<RedisServer>, plan: Plan) -> Pool {
    let record = record_of(&servers, &plan.strangers, plan.hash_tags);
    let record = if plan.scripts {
        record.with_scripts(true)
    } else {
        record
    };
    let key = PoolKey::from([9; 32]);
    if plan.closed {
        for (node, server) in record.membership().nodes.iter().zip(&servers) {
            let_in(server, &key, node);
        }
    }
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
            pool_key: plan.closed.then(|| key.clone()),
            password: plan.password.map(password),
        },
        view,
    };
    let router = runtime.block_on(async { Router::start(config) }).unwrap();
    Pool {
        servers,
        record,
        view: sender,
        key,
        router: Some(router),
        runtime,
    }
}

/// A password, the way it comes into the router: from a file that only its owner can read.
fn password(text: &str) -> Password {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Password::from_file(file.path()).unwrap()
}

/// A server as a node: open to everybody, or to its administrator only.
pub(crate) fn start_server(closed: bool) -> RedisServer {
    if !closed {
        return RedisServer::start(RedisOptions::default());
    }
    let acl = vec![
        "user default off".to_owned(),
        format!("user {} on >{} ~* &* +@all", ADMIN.0, ADMIN.1),
    ];
    let admin = Some((ADMIN.0.to_owned(), ADMIN.1.to_owned()));
    RedisServer::start(RedisOptions {
        acl,
        admin,
        ..RedisOptions::default()
    })
}

/// Makes the client user that the record names for a node, as the leader does.
pub(crate) fn let_in(server: &RedisServer, key: &PoolKey, node: &Node) {
    let driver = RedisDriver::new(RedisDriverOptions {
        administrator: Login {
            user: ADMIN.0.to_owned(),
            password: Some(ADMIN.1.to_owned()),
        },
        scripts: false,
        patience: Patience {
            connect: PATIENCE,
            call: PATIENCE,
        },
    });
    let address = NodeAddress {
        id: node.id.clone(),
        address: server.addr(),
    };
    let (_, password) = client_login(key, node);
    let made = async {
        let session = driver.session(&address, Term(1)).await?;
        let generation = Generation(node.generation.get());
        session
            .make_client_user(generation, password.reveal())
            .await
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(made).unwrap();
}

fn record_of(servers: &[RedisServer], strangers: &[String], hash_tags: bool) -> Record {
    let node = |letter: char, at: usize, address: &str| {
        let id = format!("{letter}{at}").parse().unwrap();
        NewNode::new(id, address.parse().unwrap())
    };
    let servers = servers.iter().enumerate();
    let strangers = strangers.iter().enumerate();
    let nodes = servers
        .map(|(at, server)| node('n', at, &server.addr()))
        .chain(strangers.map(|(at, address)| node('a', at, address)))
        .collect();
    let mut count = 0;
    let scheme = SchemeSpec::default().with_hash_tags(hash_tags);
    let pool = NewPool {
        scheme,
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
        self.router().addr()
    }

    pub(crate) fn router(&self) -> &RouterHandle {
        self.router.as_ref().unwrap()
    }

    /// Whether the router has no connection to a node, as far as it has told.
    pub(crate) fn is_cut_off(&self, node: usize) -> bool {
        self.stats().nodes[&format!("n{node}").parse().unwrap()].connections == 0
    }

    pub(crate) fn stats(&self) -> RouterStats {
        self.router().stats()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.addr())
    }

    pub(crate) fn view(&self) -> Arc<View> {
        Arc::new(View::from_record(&self.record).unwrap())
    }

    /// Makes `record` the one that the router acts on.
    pub(crate) fn publish(&mut self, record: Record) {
        self.record = record;
        self.view.send_replace(self.view());
        let epoch = self.record.epoch();
        wait_until(&format!("the router acts on epoch {epoch}"), || {
            self.stats().epoch == Some(epoch)
        });
    }

    /// The server that owns a key now.
    pub(crate) fn owner(&self, key: &str) -> usize {
        let view = self.view();
        view.route(view.position(key.as_bytes())).node.get()
    }

    /// A key of this form that this server owns.
    pub(crate) fn key_on(&self, server: usize, form: &str) -> String {
        (0..)
            .map(|number| format!("{form}{number}"))
            .find(|key| self.owner(key) == server)
            .unwrap()
    }

    /// Keys of this form, so many, that this server owns.
    pub(crate) fn keys_on(&self, server: usize, form: &str, count: usize) -> Vec<String> {
        (0..)
            .map(|number| format!("{form}{number}"))
            .filter(|key| self.owner(key) == server)
            .take(count)
            .collect()
    }

    /// Requests of a server that got no answer of it.
    pub(crate) fn errors_of(&self, server: usize) -> u64 {
        self.stats().nodes[&format!("n{server}").parse().unwrap()].errors
    }

    /// Another router in front of the same servers, open ones.
    pub(crate) fn restarted(mut self, limits: Limits) -> Self {
        let plan = Plan {
            limits,
            ..Plan::default()
        };
        start_router(std::mem::take(&mut self.servers), plan)
    }

    pub(crate) fn drain(&mut self, deadline: Duration) {
        let router = self.router.take().unwrap();
        self.runtime.block_on(router.drain(deadline));
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

/// Ends the threads that look at its flag, also when their test fails.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
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

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        let mut request = Vec::new();
        write_command(&mut request, args);
        self.raw(&request);
    }

    pub(crate) fn read(&mut self) -> Value {
        loop {
            if let Some((value, bytes)) = Value::parse(&self.input).unwrap() {
                self.input.drain(..bytes);
                return value;
            }
            assert!(
                self.fill() > 0,
                "closed by the router; unread: {:?}",
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

    /// Sends one request and reads its answer.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        self.send(args);
        self.read()
    }

    /// The same for requests without blanks in their arguments.
    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.call(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// The error that a request is answered with.
    #[track_caller]
    pub(crate) fn error(&mut self, line: &str) -> String {
        match self.ask(line) {
            Value::Error(text) => text,
            other => panic!("{line} was answered with {other:?}"),
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

    pub(crate) fn finish_sending(&self) {
        self.socket.shutdown(Shutdown::Write).unwrap();
    }
}

pub(crate) fn ok() -> Value {
    Value::Simple("OK".into())
}

pub(crate) fn bulk(bytes: impl AsRef<[u8]>) -> Value {
    Value::Bulk(bytes.as_ref().to_vec())
}
