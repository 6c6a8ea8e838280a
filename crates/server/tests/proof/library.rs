//! The library's client under the checked workload, while a node joins and another leaves: no
//! acknowledged write is lost, none comes back, and calls for moving keys wait a moment instead of
//! failing.
//!
//! The workload speaks to a front of this test that passes each request to a [`Client`] and nothing
//! else; no router is on the way of a key.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clockwise_client::resp::Protocol;
use clockwise_client::resp::{
    RequestLimits, RequestScanner, Scan, Value, write_array, write_bulk, write_error,
    write_integer, write_null, write_simple,
};
use clockwise_client::{Access, Client, Error};
use futures_util::future::join_all;
use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::client::Command;
use crate::load::{audited, fill, more_writes, seed, work};
use crate::pool::Pool;
use crate::serving::pool_key;

/// Passes on what the workload asks, on a port of its own.
struct Front {
    addr: SocketAddr,
    _serving: JoinSet<()>,
}

impl Front {
    async fn start(client: Client) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, client.clone()));
            }
        });
        Self {
            addr,
            _serving: serving,
        }
    }
}

/// Answers in the order of the requests; all that have come are on their way at once.
async fn serve(mut stream: TcpStream, client: Client) {
    let mut scanner = RequestScanner::default();
    let (mut input, mut answers) = (Vec::new(), FuturesOrdered::new());
    loop {
        tokio::select! {
            read = stream.read_buf(&mut input) => {
                if !read.is_ok_and(|read| read > 0) {
                    return;
                }
                while let Some(command) = next_command(&mut scanner, &mut input) {
                    answers.push_back(answer(client.clone(), command));
                }
            }
            Some(answer) = answers.next() => {
                let mut out: Vec<u8> = answer;
                if stream.write_all(&out).await.is_err() {
                    return;
                }
                out.clear();
            }
        }
    }
}

fn next_command(scanner: &mut RequestScanner, input: &mut Vec<u8>) -> Option<Command> {
    let limits = RequestLimits::default();
    let (consumed, command) = match scanner.scan(&limits, input) {
        Ok(Scan::Request { consumed, request }) => {
            let words = request.args().map(<[u8]>::to_vec);
            (consumed, words.collect::<Command>())
        }
        Ok(Scan::More) => return None,
        other => panic!("the workload sends requests: {other:?}"),
    };
    input.drain(..consumed);
    Some(command)
}

async fn answer(client: Client, command: Command) -> Vec<u8> {
    let mut out = Vec::new();
    if command[0] == b"MGET" {
        // Of several owners: a call each.
        let values = join_all(command[1..].iter().map(|key| client.get(key))).await;
        match values.into_iter().collect::<Result<Vec<_>, Error>>() {
            Ok(values) => {
                write_array(&mut out, values.len());
                for value in values {
                    write(&mut out, &value.map_or(Value::Null, Value::Bulk));
                }
            }
            Err(error) => write_error(&mut out, &words(&error)),
        }
        return out;
    }
    match client.command(&command).await {
        Ok(value) => write(&mut out, &value),
        Err(error) => write_error(&mut out, &words(&error)),
    }
    out
}

/// An error in the words that the workload knows from the router.
fn words(error: &Error) -> String {
    match error {
        Error::Refused { message, .. } => message.clone(),
        error if error.may_have_happened() => {
            format!("ERR clockwise: outcome unknown: {error}")
        }
        error if error.is_retryable() => format!("TRYAGAIN clockwise: {error}"),
        error => format!("ERR {error}"),
    }
}

fn write(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => write_null(out, Protocol::Resp2),
        Value::Simple(text) => write_simple(out, text),
        Value::Integer(number) => write_integer(out, *number),
        Value::Bulk(bytes) => write_bulk(out, bytes),
        other => panic!("the workload asks for nothing that is answered by {other:?}"),
    }
}

async fn library(pool: &Pool) -> Client {
    Client::builder()
        .store(Arc::clone(&pool.store), None)
        .access(Access::PoolKey(pool_key()))
        // A busy disk keeps an append-only file waiting for seconds.
        .timeout(Duration::from_secs(20))
        .build()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_of_a_client_is_lost_while_nodes_join_and_leave() {
    let seed = seed();
    let mut pool = Pool::start(&["a", "b", "c"]).await;
    fill(&pool, 30_000).await;
    let client = library(&pool).await;
    let front = Front::start(client.clone()).await;
    let workload = work(front.addr, seed, 4_000, 6_000).await;
    let epoch = client.epoch();

    pool.stage_join("d").await;
    pool.throttle(10_000).await;
    more_writes(&workload, 2_000).await;
    let before = workload.mark();
    pool.apply().await;
    let joined = pool.end().await;
    pool.stage_leave("c").await;
    pool.apply().await;
    let left = pool.end().await;
    let after = workload.mark();
    let during = after.since(&before);
    more_writes(&workload, 2_000).await;
    println!(
        "joined in {joined:?}, left in {left:?}, {} writes meanwhile",
        during.acknowledged_writes()
    );
    let report = audited(workload).await;
    assert_eq!((joined.err(), left.err()), (None, None));
    assert!(report.is_clean(), "{:?}", report.faults);
    assert_eq!(report.unknown_writes, 0, "a handover breaks no connection");
    assert_eq!(report.refused_writes, 0, "{:?}", report.errors);
    assert!(during.acknowledged_writes() > 1_000);
    assert!(client.epoch() > epoch);
    // It has reached the node that came, and has left the one that went.
    let owners: std::collections::BTreeSet<_> = (0..1_000)
        .map(|number| client.owner(format!("still:{number}")).to_string())
        .collect();
    assert_eq!(owners.into_iter().collect::<Vec<_>>(), ["a", "b", "d"]);
}

/// A client that hears nothing of the record while keys move: it writes nothing to an old owner, and
/// reads nothing old. scylladb/scylladb#2308 with the whole handoff.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hears_of_no_epoch_loses_no_write_and_reads_nothing_old() {
    let mut pool = Pool::start(&["a", "b"]).await;
    let frozen = Client::builder()
        .store(Arc::new(Frozen(pool.record().await)), None)
        .access(Access::PoolKey(pool_key()))
        .build()
        .await
        .unwrap();
    let client = library(&pool).await;
    let keys: Vec<String> = (0..300).map(|number| format!("key:{number}")).collect();
    for key in &keys {
        frozen.set(key, "first").await.unwrap();
    }
    pool.stage_join("c").await;
    pool.apply().await;
    assert_eq!(pool.end().await.err(), None);
    let mut moved = 0;
    for key in &keys {
        client.set(key, "second").await.unwrap();
        moved += usize::from(client.owner(key).as_str() == "c");
    }
    assert!(moved > 30, "{moved}");
    for key in &keys {
        // What moved nowhere may be written by it as long as its user is let in; both give moved keys
        // away here, so nobody lets it in.
        let written = frozen.set(key, "stale").await.unwrap_err();
        let read = frozen.get(key).await.unwrap_err();
        for error in [written, read] {
            assert!(
                !error.may_have_happened() || matches!(error, Error::Unknown { .. }),
                "{error}"
            );
        }
        assert_eq!(client.get(key).await, Ok(Some(b"second".to_vec())), "{key}");
    }
}

/// A store that went deaf with its first record.
#[derive(Debug)]
struct Frozen(Arc<clockwise_cluster::Record>);

mod frozen {
    //! What a deaf store says.

    use std::sync::Arc;

    use async_trait::async_trait;
    use clockwise_client::store::{
        CommitError, HistoryCopy, LeadError, Leader, Leadership, ReadError, Store,
    };
    use clockwise_cluster::{Record, Revision, Term};
    use tokio::sync::watch;

    use super::Frozen;

    #[async_trait]
    impl Store for Frozen {
        async fn read(&self) -> Result<Option<Arc<Record>>, ReadError> {
            Ok(Some(Arc::clone(&self.0)))
        }

        async fn commit(
            &self,
            _expected: Revision,
            _next: Record,
            _guard: Option<Term>,
        ) -> Result<Arc<Record>, CommitError> {
            Err(CommitError::ReadOnly)
        }

        fn watch(&self) -> watch::Receiver<Option<Arc<Record>>> {
            watch::Sender::new(Some(Arc::clone(&self.0))).subscribe()
        }

        fn trouble(&self) -> watch::Receiver<Option<ReadError>> {
            watch::Sender::new(None).subscribe()
        }

        async fn lead(&self, _name: &str) -> Result<Leadership, LeadError> {
            Err(LeadError::ReadOnly)
        }

        async fn leader(&self, _name: &str) -> Result<Option<Leader>, ReadError> {
            Ok(None)
        }

        async fn leads(&self, _term: Term) -> Result<bool, ReadError> {
            Ok(false)
        }

        async fn resign(&self, _term: Term) -> Result<(), ReadError> {
            Ok(())
        }

        async fn history(&self) -> Result<Vec<HistoryCopy>, ReadError> {
            Ok(Vec::new())
        }
    }
}
