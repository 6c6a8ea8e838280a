//! Servers, sessions and a plain client for the tests beside this file.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use clockwise::driver::redis::{Login, Patience, RedisDriver, RedisOptions};
use clockwise::driver::{Driver, Item, Key, NodeAddress, PieceRead, Read, Session, Term};
use clockwise_client::resp::{Value, write_command};
use clockwise_placement::NodeId;
use clockwise_testkit::{RedisOptions as Started, RedisServer};

/// The administrator's password on every server here.
pub(crate) const ADMIN: &str = "open-sesame";

pub(crate) fn options() -> RedisOptions {
    RedisOptions {
        administrator: Login {
            user: "default".to_owned(),
            password: Some(ADMIN.to_owned()),
        },
        scripts: false,
        patience: Patience {
            connect: Duration::from_secs(2),
            call: Duration::from_secs(10),
        },
    }
}

pub(crate) fn driver() -> RedisDriver {
    RedisDriver::new(options())
}

pub(crate) fn start() -> RedisServer {
    start_with(Started::default())
}

pub(crate) fn start_with(options: Started) -> RedisServer {
    RedisServer::start(Started {
        password: Some(ADMIN.to_owned()),
        ..options
    })
}

pub(crate) fn node(server: &RedisServer) -> NodeAddress {
    address(&server.addr())
}

pub(crate) fn address(address: &str) -> NodeAddress {
    NodeAddress {
        id: NodeId::new("node-under-test").unwrap(),
        address: address.to_owned(),
    }
}

pub(crate) async fn session(server: &RedisServer) -> Box<dyn Session> {
    driver().session(&node(server), Term(1)).await.unwrap()
}

pub(crate) fn key(name: impl AsRef<[u8]>) -> Key {
    Bytes::copy_from_slice(name.as_ref())
}

/// Every key of a server, in order.
pub(crate) async fn all_keys(session: &dyn Session) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut cursor = 0;
    loop {
        let (next, listed) = session.scan(cursor, 500).await.unwrap();
        keys.extend(listed);
        cursor = next;
        if cursor == 0 {
            keys.sort_unstable();
            keys.dedup();
            return keys;
        }
    }
}

/// Copies keys as a rebalancer does: whole values in batches, large ones in pieces. Says how many
/// went in pieces.
pub(crate) async fn copy(source: &dyn Session, target: &dyn Session, keys: &[Key]) -> usize {
    let mut large = Vec::new();
    let mut rest = keys;
    while !rest.is_empty() {
        let read = source.read(rest).await.unwrap();
        let (now, later) = rest.split_at(read.len());
        let mut items: Vec<(Key, Item)> = Vec::new();
        let mut gone = Vec::new();
        for (key, read) in now.iter().zip(read) {
            match read {
                Read::Gone => gone.push(key.clone()),
                Read::Item(item) => items.push((key.clone(), item)),
                Read::Big { .. } => large.push(key.clone()),
            }
        }
        for written in target.write(items).await.unwrap() {
            written.unwrap();
        }
        target.remove(&gone).await.unwrap();
        rest = later;
    }
    for key in &large {
        copy_in_pieces(source, target, key).await;
    }
    large.len()
}

/// Copies one key in pieces; says how many there were.
pub(crate) async fn copy_in_pieces(source: &dyn Session, target: &dyn Session, key: &Key) -> usize {
    let (mut cursor, mut pieces) = (None, 0);
    loop {
        let PieceRead::Piece(piece, next) = source.read_piece(key, cursor).await.unwrap() else {
            panic!("{key:?} is gone");
        };
        target
            .write_piece(key, piece, pieces == 0)
            .await
            .unwrap()
            .unwrap();
        pieces += 1;
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    target.finish_pieces(key).await.unwrap().unwrap();
    pieces
}

/// A plain client on one connection, without any cleverness.
pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    /// Bytes at the front of `input` that were replies taken already.
    taken: usize,
}

impl Client {
    pub(crate) fn connect(server: &RedisServer) -> Self {
        let stream = TcpStream::connect(server.socket_addr()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Self {
            stream,
            input: Vec::new(),
            taken: 0,
        }
    }

    /// As the administrator.
    pub(crate) fn admin(server: &RedisServer) -> Self {
        Self::login(server, "default", ADMIN)
    }

    pub(crate) fn login(server: &RedisServer, user: &str, password: &str) -> Self {
        let mut client = Self::connect(server);
        assert_eq!(
            client.ask(&[b"AUTH", user.as_bytes(), password.as_bytes()]),
            Value::Simple("OK".to_owned())
        );
        client
    }

    /// Sends one command and reads its reply.
    pub(crate) fn ask(&mut self, args: &[&[u8]]) -> Value {
        self.send(&command(args));
        self.reply()
    }

    /// As [`Client::ask`], from words; an error is a failure.
    #[track_caller]
    pub(crate) fn run(&mut self, line: &str) -> Value {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let reply = self.ask(&args);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        reply
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends bytes to a server that may have closed the connection.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Ok(()) => {}
            Err(error) => assert!(matches!(
                error.kind(),
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
            )),
        }
    }

    pub(crate) fn reply(&mut self) -> Value {
        match self.try_reply() {
            Some(reply) => reply,
            None => panic!("the server closed the connection"),
        }
    }

    /// The next reply, or `None` when the server has closed the connection.
    pub(crate) fn try_reply(&mut self) -> Option<Value> {
        loop {
            if let Some((value, bytes)) = Value::parse(&self.input[self.taken..]).unwrap() {
                self.taken += bytes;
                return Some(value);
            }
            self.input.drain(..self.taken);
            self.taken = 0;
            let mut buffer = [0; 64 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

pub(crate) fn command(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_command(&mut bytes, args);
    bytes
}

/// A small generator of random numbers that can be repeated (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    /// From `CLOCKWISE_SEED` when it is set, else a new seed. Prints how to repeat the test.
    pub(crate) fn seeded(test: &str) -> Self {
        let fresh = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), test);
        let seed = std::env::var("CLOCKWISE_SEED")
            .ok()
            .map_or_else(fresh, |seed| seed.parse().unwrap());
        println!(
            "repeat with: CLOCKWISE_SEED={seed} cargo test -p clockwise --test redis_driver {test}"
        );
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap();
        usize::try_from(self.next() % end).unwrap()
    }

    pub(crate) fn bytes(&mut self, length_max: usize) -> Vec<u8> {
        let length = self.below(length_max + 1);
        (0..length).map(|_| self.next().to_be_bytes()[0]).collect()
    }
}
