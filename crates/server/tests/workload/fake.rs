//! A server with a fault planted in it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clockwise_client::resp::{Protocol, write_array, write_null};
use clockwise_client::resp::{Value, write_bulk, write_error, write_integer, write_simple};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// What the server does to some of the requests that it could do it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plant {
    Nothing,
    /// Acknowledges a `SET` and forgets it.
    LoseSet,
    /// Acknowledges a `DEL` and forgets it.
    LoseDelete,
    /// Gives a deleted value back some time later.
    Resurrect,
    /// Answers a read with what was there before the last write, once.
    ServeStale,
    /// Moves an expiry by so much.
    ShiftExpiry(i64),
    /// Keeps a value beyond its expiry.
    OutliveExpiry,
    /// Drops an expiry.
    ForgetExpiry,
    /// Acknowledges a `PEXPIREAT` and forgets it.
    LoseExpire,
    /// Lets a value go before its expiry.
    ExpireEarly,
    /// Exchanges the replies of two requests that came together.
    SwapReplies,
    /// Exchanges two values of an `MGET`.
    SwapInMultiGet,
    /// Flips a bit in a value that is read.
    DamageValue,
    /// Executes an `INCR` twice and answers with the first result.
    IncrementTwice,
    /// Answers an `INCR` as if it were executed.
    LoseIncrement,
    /// Executes a `SET` and says that it did not.
    RefuseExecuted,
    /// Says that it did not execute a write, and did not. No fault.
    Refuse,
    /// Closes the connection after executing a write. No fault.
    CloseExecuted,
    /// Closes the connection without executing a write. No fault.
    CloseUnexecuted,
    /// Does not know `PEXPIRETIME`. No fault.
    OldServer,
    /// Answers nobody for so many milliseconds, once. No fault.
    Stall(u64),
}

/// Of the requests that a fault could be done to, one in so many suffers it.
const ONE_IN: u64 = 50;

#[derive(Debug)]
pub(crate) struct FakeServer {
    pub(crate) addr: String,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    plant: Plant,
    armed: AtomicU64,
    candidates: AtomicU64,
    planted: AtomicU64,
    stalled_until: Mutex<Option<Instant>>,
    items: Mutex<BTreeMap<Vec<u8>, Item>>,
}

#[derive(Debug, Clone, Default)]
struct Item {
    /// `None`: deleted.
    value: Option<Vec<u8>>,
    expires_at_ms: Option<u64>,
    /// The value before this one.
    before: Option<Vec<u8>>,
    /// Deleted, and to come back.
    comes_back: bool,
}

enum Answer {
    Reply(Vec<u8>),
    Close,
}

impl FakeServer {
    pub(crate) async fn start(plant: Plant) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            plant,
            armed: AtomicU64::new(0),
            candidates: AtomicU64::new(0),
            planted: AtomicU64::new(0),
            stalled_until: Mutex::default(),
            items: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&serving)));
            }
        });
        FakeServer {
            addr,
            shared,
            accepting: accepting.abort_handle(),
        }
    }

    /// From now on the fault happens.
    pub(crate) fn arm(&self) {
        self.shared.armed.store(1, Ordering::SeqCst);
    }

    /// From now on it does not, and what it did stays.
    pub(crate) fn disarm(&self) {
        self.shared.armed.store(0, Ordering::SeqCst);
    }

    /// How many connections are open: each holds what they share, as do this server and its listener.
    pub(crate) fn connections(&self) -> usize {
        Arc::strong_count(&self.shared) - 2
    }

    /// How often it happened.
    pub(crate) fn planted(&self) -> u64 {
        self.shared.planted.load(Ordering::SeqCst)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut input = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        input.extend_from_slice(&buffer[..count]);
        let mut replies: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut close = false;
        while let Some((request, bytes)) = Value::parse(&input).unwrap() {
            input.drain(..bytes);
            let args: Vec<Vec<u8>> = request
                .as_array()
                .unwrap()
                .iter()
                .map(|arg| arg.as_bytes().unwrap().to_vec())
                .collect();
            match shared.answer(&args) {
                Answer::Reply(reply) => replies.push((args[0].clone(), reply)),
                Answer::Close => {
                    close = true;
                    break;
                }
            }
        }
        shared.swap(&mut replies);
        shared.stall().await;
        let replies: Vec<u8> = replies.into_iter().flat_map(|(_, reply)| reply).collect();
        if stream.write_all(&replies).await.is_err() || close {
            return;
        }
    }
}

impl Shared {
    /// Waits for the end of the one stall.
    async fn stall(&self) {
        let Plant::Stall(stall_ms) = self.plant else {
            return;
        };
        if self.armed.swap(0, Ordering::SeqCst) == 1 {
            let until = Instant::now() + Duration::from_millis(stall_ms);
            *self.stalled_until.lock().unwrap() = Some(until);
            self.planted.fetch_add(1, Ordering::SeqCst);
        }
        let until = *self.stalled_until.lock().unwrap();
        if let Some(until) = until {
            sleep_until(until).await;
        }
    }

    /// Whether this candidate suffers the fault.
    fn strikes(&self, plant: Plant) -> bool {
        if self.plant != plant || self.armed.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let candidate = self.candidates.fetch_add(1, Ordering::SeqCst);
        let strikes = candidate % ONE_IN == ONE_IN - 1;
        if strikes {
            self.planted.fetch_add(1, Ordering::SeqCst);
        }
        strikes
    }

    fn swap(&self, replies: &mut [(Vec<u8>, Vec<u8>)]) {
        for at in 1..replies.len() {
            let gets = replies[at].0 == b"GET" && replies[at - 1].0 == b"GET";
            if gets && replies[at].1 != replies[at - 1].1 && self.strikes(Plant::SwapReplies) {
                let (first, second) = replies.split_at_mut(at);
                std::mem::swap(&mut first[at - 1].1, &mut second[0].1);
                return;
            }
        }
    }

    fn answer(&self, args: &[Vec<u8>]) -> Answer {
        let mut items = self.items.lock().unwrap();
        let mut out = Vec::new();
        let verb = str::from_utf8(&args[0]).unwrap();
        let writes = matches!(verb, "SET" | "DEL" | "INCR" | "PEXPIREAT");
        if writes && self.strikes(Plant::Refuse) {
            write_error(&mut out, "TRYAGAIN not now");
            return Answer::Reply(out);
        }
        if writes && self.strikes(Plant::CloseUnexecuted) {
            return Answer::Close;
        }
        if writes && self.strikes(Plant::CloseExecuted) {
            self.execute(verb, args, &mut items, &mut out);
            return Answer::Close;
        }
        self.execute(verb, args, &mut items, &mut out);
        Answer::Reply(out)
    }

    fn execute(
        &self,
        verb: &str,
        args: &[Vec<u8>],
        items: &mut BTreeMap<Vec<u8>, Item>,
        out: &mut Vec<u8>,
    ) {
        match verb {
            "MGET" => self.multi_get(args, items, out),
            "SET" => self.set(args, items.entry(args[1].clone()).or_default(), out),
            _ => self.execute_on(verb, args, items.entry(args[1].clone()).or_default(), out),
        }
    }

    fn execute_on(&self, verb: &str, args: &[Vec<u8>], item: &mut Item, out: &mut Vec<u8>) {
        self.expire(item);
        match verb {
            "GET" => match self.get(item) {
                Some(value) => write_bulk(out, &value),
                None => write_null(out, Protocol::Resp2),
            },
            "DEL" => self.delete(item, out),
            "INCR" => self.increment(item, out),
            "PEXPIREAT" => {
                let exists = item.value.is_some();
                if exists && !self.strikes(Plant::LoseExpire) {
                    item.expires_at_ms = Some(self.expiry(&args[2]));
                }
                write_integer(out, i64::from(exists));
            }
            "PEXPIRETIME" if self.plant == Plant::OldServer => {
                write_error(out, "ERR unknown command 'PEXPIRETIME'");
            }
            "PEXPIRETIME" => write_integer(out, expiry_number(item, 0)),
            "PTTL" => write_integer(out, expiry_number(item, now_ms())),
            other => panic!("the workload sent {other}"),
        }
    }

    fn multi_get(&self, args: &[Vec<u8>], items: &mut BTreeMap<Vec<u8>, Item>, out: &mut Vec<u8>) {
        let mut values: Vec<Option<Vec<u8>>> = Vec::new();
        for key in &args[1..] {
            let item = items.entry(key.clone()).or_default();
            self.expire(item);
            values.push(item.value.clone());
        }
        if values[0] != values[1] && self.strikes(Plant::SwapInMultiGet) {
            values.swap(0, 1);
        }
        write_array(out, values.len());
        for value in values {
            match value {
                Some(value) => write_bulk(out, &value),
                None => write_null(out, Protocol::Resp2),
            }
        }
    }

    fn set(&self, args: &[Vec<u8>], item: &mut Item, out: &mut Vec<u8>) {
        if self.strikes(Plant::LoseSet) {
            return write_simple(out, "OK");
        }
        self.expire(item);
        item.before = item.value.take();
        item.value = Some(args[2].clone());
        item.comes_back = false;
        item.expires_at_ms = args.get(4).map(|at| self.expiry(at));
        if item.expires_at_ms.is_some() && self.strikes(Plant::ForgetExpiry) {
            item.expires_at_ms = None;
        }
        if self.strikes(Plant::RefuseExecuted) {
            write_error(out, "TRYAGAIN it was not executed");
        } else {
            write_simple(out, "OK");
        }
    }

    fn get(&self, item: &mut Item) -> Option<Vec<u8>> {
        if item.comes_back {
            item.value = item.before.take();
            item.expires_at_ms = None;
            item.comes_back = false;
        }
        let mut value = item.value.clone();
        // A damaged counter is another count: that is a fault of another kind.
        let long = |value: &&mut Vec<u8>| value.len() > 20;
        if let Some(value) = value.as_mut().filter(long)
            && self.strikes(Plant::DamageValue)
        {
            let last = value.len() - 1;
            value[last] ^= 1;
        }
        if item.before.is_some() && self.strikes(Plant::ServeStale) {
            return item.before.clone();
        }
        value
    }

    fn delete(&self, item: &mut Item, out: &mut Vec<u8>) {
        let existed = item.value.is_some();
        if existed && self.strikes(Plant::LoseDelete) {
            return write_integer(out, 1);
        }
        let comes_back = existed && self.strikes(Plant::Resurrect);
        *item = Item {
            before: item.value.take(),
            comes_back,
            ..Item::default()
        };
        write_integer(out, i64::from(existed));
    }

    fn increment(&self, item: &mut Item, out: &mut Vec<u8>) {
        let text = item.value.clone().unwrap_or_else(|| b"0".to_vec());
        let count: i64 = str::from_utf8(&text).unwrap().parse().unwrap();
        let by = match self.plant {
            Plant::IncrementTwice if self.strikes(Plant::IncrementTwice) => 2,
            Plant::LoseIncrement if self.strikes(Plant::LoseIncrement) => 0,
            _ => 1,
        };
        item.value = Some((count + by).to_string().into_bytes());
        write_integer(out, count + 1);
    }

    fn expiry(&self, at_ms: &[u8]) -> u64 {
        let at_ms: u64 = str::from_utf8(at_ms).unwrap().parse().unwrap();
        match self.plant {
            Plant::ShiftExpiry(by_ms) if self.strikes(self.plant) => {
                at_ms.checked_add_signed(by_ms).unwrap()
            }
            _ => at_ms,
        }
    }

    fn expire(&self, item: &mut Item) {
        let Some(at_ms) = item.expires_at_ms else {
            return;
        };
        let early = now_ms() + 200 < at_ms && self.strikes(Plant::ExpireEarly);
        if early || (now_ms() >= at_ms && self.plant != Plant::OutliveExpiry) {
            *item = Item::default();
        } else if now_ms() >= at_ms {
            self.planted.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn expiry_number(item: &Item, from_ms: u64) -> i64 {
    match (&item.value, item.expires_at_ms) {
        (None, _) => -2,
        (Some(_), None) => -1,
        (Some(_), Some(at_ms)) => i64::try_from(at_ms - from_ms).unwrap(),
    }
}

fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since_1970.as_millis()).unwrap()
}
