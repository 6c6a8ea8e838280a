//! What is asked of a memcached, and how it answers: what it is, how much it holds, and that it forgets keys.
//!
//! It knows no users and fences nobody, so that there is no session with it: a pool of it is never moved as
//! a store is.

mod statistics;
mod sweep;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use clockwise_client::memcached::{ReplyScan, ReplyScanner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) use statistics::Statistics;

use super::{Driver, DriverError, Identity, NodeAddress, NodeFacts, Persistence, Session, Term};

/// To take a connection, and to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Statistics have some 3 KiB.
const REPLY_BYTES_MAX: usize = 64 << 10;

/// Speaks to memcached servers that let everybody in.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemcachedDriver;

#[async_trait]
impl Driver for MemcachedDriver {
    async fn inspect(&self, node: &NodeAddress) -> Result<NodeFacts, DriverError> {
        let text = match timeout(ANSWER_WITHIN, ask(&node.address, b"stats\r\n")).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => return Err(unreachable(node, error.to_string())),
            Err(_) => return Err(unreachable(node, "no answer in time".to_owned())),
        };
        facts(&text).ok_or_else(|| DriverError::WrongServer {
            node: node.id.clone(),
            address: node.address.clone(),
            why: match text.lines().next() {
                Some(line) if line.starts_with("STAT clockwise_") => {
                    "it is a router, not a server".to_owned()
                }
                Some(line) => format!("to stats it answers: {}", line.escape_debug()),
                None => "it answers nothing to stats".to_owned(),
            },
        })
    }

    async fn canary(
        &self,
        _source: &NodeAddress,
        _target: &NodeAddress,
    ) -> Result<(), DriverError> {
        // Nothing of one server has to be understood by another.
        Ok(())
    }

    async fn session(
        &self,
        node: &NodeAddress,
        _term: Term,
    ) -> Result<Box<dyn Session>, DriverError> {
        Err(DriverError::Refused {
            node: node.id.clone(),
            command: "the session of a leader",
            why: "memcached knows no users".to_owned(),
        })
    }

    async fn sweep(
        &self,
        node: &NodeAddress,
        keep: &(dyn for<'a> Fn(&'a [u8]) -> bool + Send + Sync),
        removed: &AtomicU64,
    ) -> Result<u64, DriverError> {
        let swept = sweep::sweep(&node.address, keep, removed).await;
        swept.map_err(|error| unreachable(node, error.to_string()))
    }
}

fn unreachable(node: &NodeAddress, why: String) -> DriverError {
    DriverError::Unreachable {
        node: node.id.clone(),
        address: node.address.clone(),
        why,
    }
}

/// Sends one request and gives its whole answer.
pub(crate) async fn ask(address: &str, request: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request).await?;
    let mut scanner = ReplyScanner::new(REPLY_BYTES_MAX);
    let mut input = Vec::new();
    loop {
        match scanner.scan(&input) {
            Ok(ReplyScan::Reply(reply)) => {
                input.truncate(reply.bytes);
                return Ok(String::from_utf8_lossy(&input).into_owned());
            }
            Ok(ReplyScan::More) => {}
            // What it is, whoever asked can say better.
            Ok(_) | Err(_) => return Ok(String::from_utf8_lossy(&input).into_owned()),
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// What a server's statistics say; none if these are not a server's.
fn facts(statistics: &str) -> Option<NodeFacts> {
    let statistics = Statistics(statistics);
    let number = |name| statistics.number(name);
    let run_id = statistics.run_id()?;
    Some(NodeFacts {
        server: format!("memcached {}", statistics.field("version")?),
        identity: Identity {
            replication_id: run_id.clone(),
            run_id,
            primary: true,
        },
        persistence: Persistence::None,
        memory_used_bytes: number("bytes")?,
        memory_limit_bytes: number("limit_maxbytes").filter(|bytes| *bytes > 0),
        evicts: true,
        refuses_writes: None,
        keys: number("curr_items")?,
        clock_ms: number("time")?.saturating_mul(1_000),
        foreign_writers: Vec::new(),
        open_by_default: None,
        persisted_users: Vec::new(),
        missing_rights: Vec::new(),
        highest_term: None,
        replicas: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_statistics_are_facts_and_a_routers_are_not() {
        let text = "STAT pid 7\r\nSTAT uptime 40\r\nSTAT time 1040\r\nSTAT version 1.6.18\r\n\
                    STAT bytes 70\r\nSTAT limit_maxbytes 67108864\r\nSTAT curr_items 2\r\nEND\r\n";
        let facts = facts(text).unwrap();
        assert_eq!((facts.keys, facts.memory_used_bytes), (2, 70));
        assert_eq!(facts.memory_limit_bytes, Some(64 << 20));
        assert_eq!(
            (facts.server.as_str(), facts.identity.run_id.as_str()),
            ("memcached 1.6.18", "7-1000")
        );
        // A router tells no process.
        let router = text.replace("STAT pid 7", "STAT clockwise_nodes 3");
        assert!(super::facts(&router).is_none());
    }
}
