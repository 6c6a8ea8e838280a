//! After the last write: every key is read once more, and every copy of it on every node.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use clockwise_client::credentials::Password;
use clockwise_client::resp::Value;
use tokio::time::{Instant, sleep};

use super::connection::{Broken, Connection, Target};
use super::ledger::{Ledger, Times};
use super::op::{ExpiryCommand, Op, Settled};

const KEYS_PER_BATCH: usize = 128;
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// A server that answers nothing for so long is not waited for any longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much of the keys the audit could read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Audited {
    pub(super) keys_read: usize,
    pub(super) keys_unread: usize,
}

/// Reads every key's value and expiry, and once more those on which something wrong was seen.
pub(super) async fn read_all(ledger: &Ledger, target: &Target, expiry: ExpiryCommand) -> Audited {
    let all = (0..ledger.len()).collect();
    let unread = read_keys(all, ledger, target, expiry).await;
    read_keys(ledger.faulty().into(), ledger, target, expiry).await;
    Audited {
        keys_read: ledger.len() - unread,
        keys_unread: unread,
    }
}

/// Returns how many could not be read.
async fn read_keys(
    mut unread: VecDeque<usize>,
    ledger: &Ledger,
    target: &Target,
    expiry: ExpiryCommand,
) -> usize {
    let mut progress = Instant::now();
    let mut connection = None;
    while !unread.is_empty() && progress.elapsed() < PATIENCE {
        let before = unread.len();
        let read = read_batch(&mut unread, &mut connection, ledger, target, expiry).await;
        if read.is_err() {
            connection = None;
        }
        if unread.len() < before {
            progress = Instant::now();
        } else {
            sleep(RETRY_AFTER).await;
        }
    }
    unread.len()
}

/// Keys that were not answered stay among the unread.
async fn read_batch(
    unread: &mut VecDeque<usize>,
    connection: &mut Option<Connection>,
    ledger: &Ledger,
    target: &Target,
    expiry: ExpiryCommand,
) -> Result<(), Broken> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(Connection::open(target).await?),
    };
    let keys: Vec<usize> = unread.iter().copied().take(KEYS_PER_BATCH).collect();
    let sent_ms = ledger.clock.now_ms();
    let both = |key: &usize| {
        let (value, expiry) = (ledger.begin_read(*key), ledger.begin_read(*key));
        [Op::Get(value), Op::Expiry(expiry)]
    };
    let ops: Vec<Op> = keys.iter().flat_map(both).collect();
    for op in &ops {
        connection.queue(|out| op.encode(ledger, expiry, out));
    }
    let answers = connection.replies(ops.len()).await?;
    let times = Times {
        sent_ms,
        answered_ms: ledger.clock.now_ms(),
    };
    let mut read = vec![true; keys.len()];
    for (at, (op, answer)) in ops.into_iter().zip(answers).enumerate() {
        let settled = op.answered(answer, ledger, expiry, times)?;
        read[at / 2] &= !matches!(settled, Settled::Refused(_));
    }
    for (key, read) in keys.into_iter().zip(read) {
        unread.pop_front();
        if !read {
            unread.push_back(key);
        }
    }
    Ok(())
}

/// A server that holds keys of a pool.
#[derive(Debug, Clone)]
pub struct NodeAccess {
    /// `host:port`.
    pub addr: String,
    /// User and password to log in with; they must allow `SCAN`.
    pub auth: Option<(String, Password)>,
}

/// Which nodes hold which key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Copies {
    /// For each key the positions, in the list given, of the nodes that hold it, in order.
    pub by_key: BTreeMap<Vec<u8>, Vec<usize>>,
}

/// Why a node's keys could not be listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{addr} cannot be listed: {why}")]
pub struct ListError {
    /// The node.
    pub addr: String,
    /// What happened.
    pub why: Broken,
}

impl Copies {
    /// Lists every key on every node. What is written or moved meanwhile may be missed.
    ///
    /// # Errors
    /// If a node cannot be reached or does not allow it.
    pub async fn list(nodes: &[NodeAccess], timeout: Duration) -> Result<Copies, ListError> {
        let mut copies = Copies::default();
        for (at, node) in nodes.iter().enumerate() {
            let target = Target {
                addr: node.addr.clone(),
                auth: node.auth.clone(),
                timeout,
            };
            let keys = list_keys(&target).await.map_err(|why| ListError {
                addr: node.addr.clone(),
                why,
            })?;
            for key in keys {
                let holders = copies.by_key.entry(key).or_default();
                // A listing may name a key twice.
                if holders.last() != Some(&at) {
                    holders.push(at);
                }
            }
        }
        Ok(copies)
    }

    /// Copies at nodes other than the owner, which is asked for each key as a position in the list.
    pub fn left_behind(&self, owner: impl Fn(&[u8]) -> usize) -> Vec<(&[u8], usize)> {
        let mut left = Vec::new();
        for (key, holders) in &self.by_key {
            let owner = owner(key);
            let others = holders.iter().filter(|holder| **holder != owner);
            left.extend(others.map(|holder| (key.as_slice(), *holder)));
        }
        left
    }
}

async fn list_keys(target: &Target) -> Result<Vec<Vec<u8>>, Broken> {
    let mut connection = Connection::open(target).await?;
    let mut keys = Vec::new();
    let mut cursor = b"0".to_vec();
    loop {
        let scan: [&[u8]; 4] = [b"SCAN", &cursor, b"COUNT", b"1000"];
        let answer = connection.call(&scan).await?;
        let unexpected = || Broken::Protocol(format!("SCAN was answered with {answer:?}"));
        let [next, Value::Array(listed)] = answer.as_array().ok_or_else(unexpected)? else {
            return Err(unexpected());
        };
        cursor = next.as_bytes().ok_or_else(unexpected)?.to_vec();
        keys.extend(
            listed
                .iter()
                .filter_map(|key| key.as_bytes().map(<[u8]>::to_vec)),
        );
        if cursor == b"0" {
            return Ok(keys);
        }
    }
}
