//! How fast the Redis driver copies and compares: two servers started here, strings of 100 bytes.
//!
//! ```text
//! cargo run --release -p clockwise --example copy_rate -- [KEYS]
//! ```
//!
//! Prints keys per second, and the processor time that one key costs the source, the target and us.
//! The latter does not depend on what else the machine does.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use clockwise::driver::redis::{Login, Patience, RedisDriver, RedisOptions};
use clockwise::driver::{Driver, Key, NodeAddress, Read, Session, Term};
use clockwise_client::resp::write_command;
use clockwise_placement::NodeId;
use clockwise_testkit::{RedisOptions as Started, RedisServer};
use futures_util::{StreamExt, stream};

/// Keys a step of the listing.
const BATCH: u32 = 500;
/// Batches under way in each stage.
const DEPTH: usize = 2;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let keys: usize = std::env::args()
        .nth(1)
        .map_or(200_000, |keys| keys.parse().unwrap());
    let servers = [
        RedisServer::start(Started::default()),
        RedisServer::start(Started::default()),
    ];
    fill(&servers[0], keys);
    let [source, target] = [session(&servers[0]).await, session(&servers[1]).await];
    for round in 0..3 {
        let meter = Meter::start(&servers);
        let copied = copy(source.as_ref(), target.as_ref()).await;
        meter.report(&format!("copy, round {round}"), copied);
    }
    let meter = Meter::start(&servers);
    let compared = compare(source.as_ref(), target.as_ref()).await;
    meter.report("compare", compared);
}

async fn session(server: &RedisServer) -> Box<dyn Session> {
    let driver = RedisDriver::new(RedisOptions {
        administrator: Login {
            user: "default".to_owned(),
            password: None,
        },
        scripts: false,
        patience: Patience::default(),
    });
    let node = NodeAddress {
        id: NodeId::new("measured").unwrap(),
        address: server.addr(),
    };
    driver.session(&node, Term(1)).await.unwrap()
}

/// The whole listing, batch by batch.
fn batches(source: &dyn Session) -> impl stream::Stream<Item = Vec<Key>> {
    stream::unfold(Some(0), move |cursor| async move {
        let (next, keys) = source.scan(cursor?, BATCH).await.unwrap();
        Some((keys, (next != 0).then_some(next)))
    })
}

async fn copy(source: &dyn Session, target: &dyn Session) -> usize {
    let read = batches(source).map(|keys| async move {
        let read = source.read(&keys).await.unwrap();
        assert_eq!(read.len(), keys.len());
        keys.into_iter().zip(read).map(|(key, read)| match read {
            Read::Item(item) => (key, item),
            other => panic!("{other:?}"),
        })
    });
    let written = read.buffered(DEPTH).map(|items| async move {
        let written = target.write(items.collect()).await.unwrap();
        written
            .iter()
            .for_each(|written| assert_eq!(*written, Ok(())));
        written.len()
    });
    written
        .buffered(DEPTH)
        .fold(0, |sum, count| async move { sum + count })
        .await
}

async fn compare(source: &dyn Session, target: &dyn Session) -> usize {
    let compared = batches(source).map(|keys| async move {
        let (here, there) = tokio::join!(source.digests(&keys), target.digests(&keys));
        assert_eq!(here.unwrap(), there.unwrap());
        keys.len()
    });
    compared
        .buffered(DEPTH)
        .fold(0, |sum, count| async move { sum + count })
        .await
}

fn fill(server: &RedisServer, keys: usize) {
    let mut stream = TcpStream::connect(server.socket_addr()).unwrap();
    for first in (0..keys).step_by(1000) {
        let mut batch = Vec::new();
        let last = keys.min(first + 1000);
        for rank in first..last {
            let key = format!("key:{rank:012}");
            let value: String = (0..100)
                .map(|at| char::from(b'a' + u8::try_from((rank * 31 + at * at) % 26).unwrap()))
                .collect();
            write_command(
                &mut batch,
                &[b"SET".as_slice(), key.as_bytes(), value.as_bytes()],
            );
        }
        stream.write_all(&batch).unwrap();
        let mut replies = vec![0; "+OK\r\n".len() * (last - first)];
        stream.read_exact(&mut replies).unwrap();
    }
}

/// Time on the wall, and processor time of the source, the target and this process.
struct Meter<'a> {
    servers: &'a [RedisServer; 2],
    begun: Instant,
    busy: [Duration; 3],
}

impl<'a> Meter<'a> {
    fn start(servers: &'a [RedisServer; 2]) -> Self {
        Self {
            servers,
            begun: Instant::now(),
            busy: busy(servers),
        }
    }

    fn report(self, what: &str, keys: usize) {
        let wall = self.begun.elapsed();
        let count = keys as f64;
        let busy = busy(self.servers);
        let [source, target, own] =
            [0, 1, 2].map(|who| (busy[who] - self.busy[who]).as_secs_f64() * 1e6 / count);
        let rate = count / wall.as_secs_f64();
        println!(
            "{what}: {rate:.0} keys/s; per key {source:.2} us source, {target:.2} us target, {own:.2} us own"
        );
    }
}

fn busy(servers: &[RedisServer; 2]) -> [Duration; 3] {
    let of = |process: String| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let ticks: u64 = fields
            .split(' ')
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<u64>().unwrap())
            .sum();
        // A tick is a hundredth of a second on Linux.
        Duration::from_millis(ticks * 10)
    };
    [
        of(servers[0].pid().to_string()),
        of(servers[1].pid().to_string()),
        of("self".to_owned()),
    ]
}
