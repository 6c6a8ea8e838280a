//! A TCP proxy that can be told to misbehave: it delays, holds back, cuts in the middle of a message, and
//! sends to another server.
//!
//! Rules go by who connects. The proxy finds the process behind each connection in `/proc`, so that one
//! address, such as the one in a pool's record, can be bad for one process and good for all others.
//!
//! What TCP never loses is not lost here either: a partition holds bytes back, as packets that are sent
//! again and again would be, and they arrive once it is over, unless somebody has closed by then.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::port::free_ports;

const CHUNK_BYTES: usize = 16 * 1024;
/// What a direction of a connection may hold back before its sender feels it.
const HELD_BYTES_MAX: usize = 1 << 20;
/// How long a pump may be unaware of a new rule.
const NEWS_WITHIN: Duration = Duration::from_millis(5);
/// No system's is longer.
const TICK: Duration = Duration::from_millis(10);
const DIAL_WITHIN: Duration = Duration::from_secs(2);
const BINDS_MAX: usize = 20;

/// What a direction of a connection does with bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flow {
    /// They pass.
    #[default]
    Passes,
    /// They wait until this changes.
    Stalls,
}

/// How connections of a process behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weather {
    /// How much later each byte arrives at least, in each direction; up to 10 ms more where it follows others.
    pub delay: Duration,
    /// From the client to the server.
    pub to_server: Flow,
    /// From the server to the client.
    pub to_client: Flow,
}

impl Weather {
    /// Nothing passes either way.
    pub const PARTITION: Weather = Weather {
        delay: Duration::ZERO,
        to_server: Flow::Stalls,
        to_client: Flow::Stalls,
    };

    /// Everything arrives so much later.
    #[must_use]
    pub const fn late(delay: Duration) -> Weather {
        Weather {
            delay,
            to_server: Flow::Passes,
            to_client: Flow::Passes,
        }
    }
}

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// A proxy in front of one server; everything of it ends with its value.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    upstream: Mutex<SocketAddr>,
    weather: Mutex<BTreeMap<u32, Weather>>,
    connections: Mutex<Vec<Connection>>,
    ended: AtomicBool,
}

#[derive(Debug)]
struct Connection {
    pair: Arc<Pair>,
    pumps: Vec<JoinHandle<()>>,
}

/// The two halves of a connection through the proxy.
#[derive(Debug)]
struct Pair {
    /// The process that connected, if it was still there to be found.
    pid: Option<u32>,
    client: TcpStream,
    server: TcpStream,
    /// [`NO_CUT`], or which way the message goes in whose middle the connection ends.
    cut: AtomicU8,
}

const NO_CUT: u8 = 0;
const CUT_TO_SERVER: u8 = 1;
const CUT_TO_CLIENT: u8 = 2;

impl FaultProxy {
    /// Listens on a free port of the loopback interface.
    ///
    /// # Panics
    /// If no port can be had.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> FaultProxy {
        let listener = bound();
        let addr = match listener.local_addr() {
            Ok(addr) => addr,
            Err(error) => panic!("no address of a listening socket: {error}"),
        };
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            weather: Mutex::default(),
            connections: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let acceptor = thread::spawn(move || own.accept(&listener));
        FaultProxy {
            addr,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// Where to connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How connections of a process behave from now on, those that are open included.
    pub fn set(&self, pid: u32, weather: Weather) {
        lock(&self.shared.weather).insert(pid, weather);
    }

    /// Ends each open connection of a process in the middle of its next message: half of what arrives next
    /// passes, and nothing after it. Returns how many connections that will hit.
    pub fn cut(&self, pid: u32, way: Way) -> usize {
        let cut = match way {
            Way::ToServer => CUT_TO_SERVER,
            Way::ToClient => CUT_TO_CLIENT,
        };
        let connections = lock(&self.shared.connections);
        let of_process = connections.iter().filter(|one| one.pair.pid == Some(pid));
        of_process
            .map(|one| one.pair.cut.store(cut, Ordering::Relaxed))
            .count()
    }

    /// Sends to another server from now on, and ends all that is open.
    pub fn redirect(&self, upstream: SocketAddr) {
        *lock(&self.shared.upstream) = upstream;
        for connection in lock(&self.shared.connections).iter() {
            connection.pair.close();
        }
    }

    /// Open connections of a process.
    #[must_use]
    pub fn connections(&self, pid: u32) -> usize {
        let mut connections = lock(&self.shared.connections);
        connections.retain(|one| !one.pumps.iter().all(JoinHandle::is_finished));
        let of_process = connections.iter().filter(|one| one.pair.pid == Some(pid));
        of_process.count()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Wakes the acceptor; if it fails, nobody is there to be woken.
        let _woken = TcpStream::connect_timeout(&self.addr, DIAL_WITHIN);
        if let Some(acceptor) = self.acceptor.take() {
            // A panic of its own was printed already.
            let _ended = acceptor.join();
        }
        let connections = std::mem::take(&mut *lock(&self.shared.connections));
        for connection in &connections {
            connection.pair.close();
        }
        for pump in connections.into_iter().flat_map(|one| one.pumps) {
            let _ended = pump.join();
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.ended.load(Ordering::Relaxed) {
                return;
            }
            let Ok(client) = client else { continue };
            let own = Arc::clone(self);
            // Dialling may wait for a server that stands still; others connect meanwhile.
            let dialler = thread::spawn(move || own.join(client));
            drop(dialler);
        }
    }

    /// Connects to the server and begins to pump. Without a server the client is closed, as by a host that
    /// is up with nobody listening.
    fn join(self: Arc<Self>, client: TcpStream) {
        let pid = client
            .peer_addr()
            .ok()
            .and_then(|peer| process_of(peer, client.local_addr().ok()?));
        let upstream = *lock(&self.upstream);
        let Ok(server) = TcpStream::connect_timeout(&upstream, DIAL_WITHIN) else {
            return;
        };
        let ready = client.set_nodelay(true).and(server.set_nodelay(true));
        if ready.is_err() {
            return;
        }
        let pair = Arc::new(Pair {
            pid,
            client,
            server,
            cut: AtomicU8::new(NO_CUT),
        });
        let mut connections = lock(&self.connections);
        if self.ended.load(Ordering::Relaxed) {
            return;
        }
        connections.retain(|one| !one.pumps.iter().all(JoinHandle::is_finished));
        let pump = |way| {
            let (shared, pair) = (Arc::clone(&self), Arc::clone(&pair));
            thread::spawn(move || {
                if Pump::new(&shared, &pair, way).run().is_err() {
                    pair.close();
                }
            })
        };
        let pumps = vec![pump(Way::ToServer), pump(Way::ToClient)];
        connections.push(Connection { pair, pumps });
    }

    fn weather(&self, pid: Option<u32>) -> Weather {
        let of_process = pid.and_then(|pid| lock(&self.weather).get(&pid).copied());
        of_process.unwrap_or_default()
    }
}

impl Pair {
    fn close(&self) {
        // Closed already is as good.
        let _closed = self.client.shutdown(Shutdown::Both);
        let _closed = self.server.shutdown(Shutdown::Both);
    }
}

/// One direction of a connection.
struct Pump<'a> {
    shared: &'a Shared,
    pair: &'a Pair,
    way: Way,
    from: &'a TcpStream,
    to: &'a TcpStream,
    /// When it arrived, and what.
    held: VecDeque<(Instant, Vec<u8>)>,
    held_bytes: usize,
    input_ended: bool,
}

impl<'a> Pump<'a> {
    fn new(shared: &'a Shared, pair: &'a Pair, way: Way) -> Self {
        let (from, to) = match way {
            Way::ToServer => (&pair.client, &pair.server),
            Way::ToClient => (&pair.server, &pair.client),
        };
        Pump {
            shared,
            pair,
            way,
            from,
            to,
            held: VecDeque::new(),
            held_bytes: 0,
            input_ended: false,
        }
    }

    /// Until both sides are closed; an error ends both directions.
    fn run(mut self) -> std::io::Result<()> {
        while !self.shared.ended.load(Ordering::Relaxed) {
            let weather = self.shared.weather(self.pair.pid);
            self.send(weather)?;
            if self.input_ended && self.held.is_empty() {
                return self.to.shutdown(Shutdown::Write);
            }
            self.receive(weather)?;
        }
        Ok(())
    }

    fn stalls(&self, weather: Weather) -> bool {
        let flow = match self.way {
            Way::ToServer => weather.to_server,
            Way::ToClient => weather.to_client,
        };
        flow == Flow::Stalls
    }

    /// Passes on what is due.
    fn send(&mut self, weather: Weather) -> std::io::Result<()> {
        if self.stalls(weather) {
            return Ok(());
        }
        while let Some((arrived, bytes)) = self.held.front() {
            if arrived.elapsed() < weather.delay {
                break;
            }
            let cut = match self.way {
                Way::ToServer => CUT_TO_SERVER,
                Way::ToClient => CUT_TO_CLIENT,
            };
            if self.pair.cut.load(Ordering::Relaxed) == cut {
                self.to.write_all(&bytes[..bytes.len() / 2])?;
                return Err(ErrorKind::ConnectionAborted.into());
            }
            self.to.write_all(bytes)?;
            self.held_bytes -= bytes.len();
            self.held.pop_front();
        }
        Ok(())
    }

    /// Waits for bytes, for the next that are due, or for a little while.
    fn receive(&mut self, weather: Weather) -> std::io::Result<()> {
        let due = self
            .held
            .front()
            .map(|(arrived, _)| weather.delay.saturating_sub(arrived.elapsed()));
        let wait = due
            .filter(|_| !self.stalls(weather))
            .unwrap_or(NEWS_WITHIN * if self.held.is_empty() { 10 } else { 1 })
            .clamp(Duration::from_micros(50), NEWS_WITHIN * 10);
        // The system's timeouts of reads are as coarse as its ticks, and would add to a short delay.
        let soon = due.is_some_and(|due| due < TICK) && !self.stalls(weather);
        if soon || self.input_ended || self.held_bytes >= HELD_BYTES_MAX {
            thread::park_timeout(wait);
            return Ok(());
        }
        self.from.set_read_timeout(Some(wait))?;
        let mut chunk = vec![0; CHUNK_BYTES];
        match self.from.read(&mut chunk) {
            Ok(0) => self.input_ended = true,
            Ok(count) => {
                chunk.truncate(count);
                self.held_bytes += count;
                self.held.push_back((Instant::now(), chunk));
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[track_caller]
fn bound() -> TcpListener {
    for _ in 0..BINDS_MAX {
        let [port] = free_ports::<1>();
        // Taken again a moment later: another one.
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener;
        }
    }
    panic!("no free port on 127.0.0.1 after {BINDS_MAX} attempts");
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process at the other end of a connection of this machine, found by its socket.
fn process_of(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let (local, remote) = (words.nth(1)?, words.next()?);
        let is_it = port_of(local)? == peer.port() && port_of(remote)? == own.port();
        // After both addresses: state, queues, timer, retransmits, user, timeout.
        is_it.then(|| words.nth(6).map(str::to_owned))?
    })?;
    let socket = format!("socket:[{inode}]");
    let pids = fs::read_dir("/proc").ok()?.flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .find(|pid: &u32| {
            let files = fs::read_dir(format!("/proc/{pid}/fd")).ok();
            files.into_iter().flatten().flatten().any(|file| {
                let target = fs::read_link(file.path());
                target.is_ok_and(|target| target.to_str() == Some(&socket))
            })
        })
}

/// `0100007F:1F90`.
fn port_of(address: &str) -> Option<u16> {
    let (_, port) = address.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok()
}
