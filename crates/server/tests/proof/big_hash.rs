//! A hash of 100,000 fields moves, and the servers it leaves and reaches answer others all the while.
//!
//! What is measured is what a client of those servers meets: the longest time a PING took. A busy machine
//! delays pings too, so the test has a few tries; a server that is really held up is so in each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clockwise_client::resp::Value;
use clockwise_testkit::RedisServer;

use crate::client::{Client, words};
use crate::keys::way;
use crate::pool::{ADMIN, Pool, server_options};

const FIELDS: usize = 100_000;
const BLOCKED_MAX: Duration = Duration::from_millis(100);
const TRIES: usize = 4;

/// Pings a server from a thread of its own.
struct Pinging {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Pinging {
    fn start(server: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut client = Client::login(server, "default", ADMIN);
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                client.run("PING");
                longest = longest.max(began.elapsed());
            }
            longest
        });
        Self { stop, thread }
    }

    /// The longest a PING took.
    fn end(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn field(number: usize) -> (String, String) {
    (format!("field-{number}"), format!("{number:0>40}"))
}

fn fill(client: &mut Client, key: &str) {
    let numbers: Vec<usize> = (0..FIELDS).collect();
    let commands = numbers.chunks(500).map(|numbers| {
        let mut command = words(&[b"HSET", key.as_bytes()]);
        for &number in numbers {
            let (field, value) = field(number);
            command.extend([field.into_bytes(), value.into_bytes()]);
        }
        command
    });
    client.pipeline(&commands.collect::<Vec<_>>());
}

fn check(client: &mut Client, key: &str) {
    assert_eq!(
        client.run(&format!("HLEN {key}")),
        Value::Integer(FIELDS as i64)
    );
    let get = |number| words(&[b"HGET", key.as_bytes(), field(number).0.as_bytes()]);
    let values = client.pipeline(&(0..FIELDS).map(get).collect::<Vec<_>>());
    for (number, value) in values.into_iter().enumerate() {
        assert_eq!(value, Value::Bulk(field(number).1.into()), "field {number}");
    }
}

/// Moves a big hash by a join; says how long pings took at its old and new server.
async fn move_one() -> (Duration, Duration) {
    let mut pool = Pool::start(&["a", "b", "c"]).await;
    pool.stage_join("d").await;
    let ahead = pool.view_ahead().await;
    let key = (0..).map(|number| format!("big:{number}"));
    let mut ways = key.map(|key| (way(&ahead, key.as_bytes()), key));
    let (source, key) = ways.find_map(|(way, key)| Some((way?.0, key))).unwrap();
    let mut client = Client::connect(pool.router());
    fill(&mut client, &key);
    client.run(&format!("PEXPIREAT {key} 4000000000000"));

    let pinging = [&source, "d"].map(|name| Pinging::start(pool.servers[name].socket_addr()));
    pool.apply().await;
    let took = pool.settle().await;
    let [old, new] = pinging.map(Pinging::end);

    println!(
        "moved in {took:?}; the longest ping took {old:?} at the source, {new:?} at the target"
    );
    check(&mut client, &key);
    assert_eq!(
        client.run(&format!("PEXPIRETIME {key}")),
        Value::Integer(4_000_000_000_000)
    );
    assert_eq!(
        pool.check_places().await,
        1,
        "the source has lost it, no piece is left"
    );
    (old, new)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hash_of_100_000_fields_moves_without_holding_up_its_servers() {
    for _ in 0..TRIES {
        let (old, new) = move_one().await;
        if old.max(new) <= BLOCKED_MAX {
            return;
        }
    }
    panic!("in each of {TRIES} tries a server was held up for more than {BLOCKED_MAX:?}");
}

#[test]
fn a_server_that_is_held_up_is_noticed() {
    let mut options = server_options();
    options.config.push("enable-debug-command yes".to_owned());
    let server = RedisServer::start(options);
    let pinging = Pinging::start(server.socket_addr());
    Client::login(server.socket_addr(), "default", ADMIN).run("DEBUG SLEEP 0.15");
    assert!(pinging.end() > BLOCKED_MAX);
}
