//! The round trips of a copy: each reads at the source, acts at a target and says what became of it.
//!
//! They know nothing of rounds or dirty keys; whoever runs them keeps the books. Of one key at most one
//! is under way, so their order does not matter.

use std::sync::Arc;

use clockwise_cluster::copier::{Found, Lane};
use clockwise_cluster::handoff::Server;

use super::super::mandate::Mandate;
use super::super::station::Link;
use super::remembered::Size;
use crate::driver::{Digest, DriverError, Item, Key, PieceRead, Read, Untracked, WriteRefused};

/// Times a large value is begun anew because its staging value went away.
const STAGINGS_MAX: u32 = 3;
/// What two clocks may differ by without a difference in expiry meaning anything.
const CLOCK_SKEW_MS: u64 = 100;

/// A call that failed, and at which server.
#[derive(Debug)]
pub(super) struct OpError {
    pub(super) at: Server,
    pub(super) error: DriverError,
}

/// Says at which server an error happened.
pub(super) trait At<T> {
    fn at(self, at: Server) -> Result<T, OpError>;
}

impl<T> At<T> for Result<T, DriverError> {
    fn at(self, at: Server) -> Result<T, OpError> {
        self.map_err(|error| OpError { at, error })
    }
}

/// Both ends of a lane.
#[derive(Clone)]
pub(super) struct Ends {
    pub(super) source: Link,
    pub(super) target: Link,
    pub(super) lane: Lane,
}

impl Ends {
    const fn target_server(&self) -> Server {
        Server::Target(self.lane)
    }
}

/// Whether what was written is read back and compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Check {
    Later,
    AtOnce,
}

/// What became of a batch.
#[derive(Debug, Default)]
pub(super) struct BatchOutcome {
    /// What reading each key gave, in their order.
    pub(super) found: Vec<Found>,
    /// The first value that the target did not take.
    pub(super) refused: Option<WriteRefused>,
    /// Keys that differ although they were just copied.
    pub(super) different: Vec<Key>,
}

/// Copies keys: reads them, writes those that exist, removes the others.
pub(super) async fn copy(
    ends: Ends,
    keys: Vec<Key>,
    check: Check,
) -> Result<BatchOutcome, OpError> {
    let reads = read_all(&ends.source, &keys, Size::Unknown).await;
    let reads = reads.at(Server::Source)?;
    let found = reads.iter().map(found).collect();
    let (mut items, mut gone) = (Vec::with_capacity(keys.len()), Vec::new());
    for (key, read) in keys.iter().zip(&reads) {
        match read {
            Read::Gone => gone.push(key.clone()),
            Read::Item(item) => items.push((key.clone(), item.clone())),
            // Handed out again alone.
            Read::Big { .. } => {}
        }
    }
    let target = &ends.target.session;
    let written = async {
        if items.is_empty() {
            Ok(Vec::new())
        } else {
            target.write(items).await
        }
    };
    let removed = async {
        if gone.is_empty() {
            Ok(0)
        } else {
            target.remove(&gone).await
        }
    };
    let (written, removed) = futures_util::join!(written, removed);
    removed.at(ends.target_server())?;
    let refused = written
        .at(ends.target_server())?
        .into_iter()
        .find_map(Result::err);
    let different = match check {
        Check::AtOnce if refused.is_none() => differences(&ends, &keys, &reads).await?,
        _ => Vec::new(),
    };
    Ok(BatchOutcome {
        found,
        refused,
        different,
    })
}

fn found(read: &Read) -> Found {
    match read {
        Read::Gone => Found::Gone,
        Read::Item(item) => Found::Value {
            bytes: item.payload.len() as u64,
            untracked: item.untracked,
        },
        Read::Big { .. } => Found::Big,
    }
}

/// Reads all keys, however many answers that takes.
async fn read_all(link: &Link, keys: &[Key], size: Size) -> Result<Vec<Read>, DriverError> {
    let mut reads = Vec::with_capacity(keys.len());
    while reads.len() < keys.len() {
        let rest = &keys[reads.len()..];
        let more = match size {
            Size::Small => link.session.read_small(rest).await?,
            Size::Unknown => link.session.read(rest).await?,
        };
        if more.is_empty() {
            break;
        }
        reads.extend(more);
    }
    Ok(reads)
}

/// What comparing keys has shown.
#[derive(Debug)]
pub(super) struct Comparison {
    /// How many of them the source has.
    pub(super) keys: u64,
    pub(super) different: Vec<Key>,
}

/// Compares keys on both sides.
pub(super) async fn compare(ends: Ends, keys: Vec<Key>, size: Size) -> Result<Comparison, OpError> {
    let (source, target) = futures_util::join!(
        read_all(&ends.source, &keys, size),
        read_all(&ends.target, &keys, size)
    );
    let (source, target) = (source.at(Server::Source)?, target.at(ends.target_server())?);
    let there = source.iter().filter(|read| **read != Read::Gone).count();
    Ok(Comparison {
        keys: there as u64,
        different: different_reads(&ends, &keys, &source, &target).await?,
    })
}

/// The keys that a target has otherwise than they were just read at the source.
async fn differences(ends: &Ends, keys: &[Key], source: &[Read]) -> Result<Vec<Key>, OpError> {
    let target = read_all(&ends.target, keys, Size::Unknown).await;
    let target = target.at(ends.target_server())?;
    different_reads(ends, keys, source, &target).await
}

/// Equal bytes are equal values. Where bytes differ the contents decide, since a server may serialise one
/// value in many ways.
async fn different_reads(
    ends: &Ends,
    keys: &[Key],
    source: &[Read],
    target: &[Read],
) -> Result<Vec<Key>, OpError> {
    let pairs = keys.iter().zip(source.iter().zip(target));
    let doubtful = pairs.filter(|(_, (source, target))| !same_bytes(source, target));
    let (large, whole): (Vec<_>, Vec<_>) =
        doubtful.partition(|(_, (source, _))| matches!(source, Read::Big { .. }));
    let names = |pairs: Vec<(&Key, _)>| pairs.into_iter().map(|(key, _)| key.clone()).collect();
    let mut different = different_contents(ends, names(whole), Content::All).await?;
    different.extend(different_contents(ends, names(large), Content::Tracked).await?);
    Ok(different)
}

/// What of values is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    All,
    /// Not what is brought over once more under the fence: clients change it and nobody tells.
    Tracked,
}

/// The keys whose logical digests differ.
pub(super) async fn different_contents(
    ends: &Ends,
    keys: Vec<Key>,
    content: Content,
) -> Result<Vec<Key>, OpError> {
    if keys.is_empty() {
        return Ok(keys);
    }
    let digests = async |link: &Link| match content {
        Content::All => link.session.digests(&keys).await,
        Content::Tracked => link.session.tracked_digests(&keys).await,
    };
    let (source, target) = futures_util::join!(digests(&ends.source), digests(&ends.target));
    let (source, target) = (source.at(Server::Source)?, target.at(ends.target_server())?);
    let differs = |(source, target): (&Option<Digest>, &Option<Digest>)| source != target;
    let pairs = keys.iter().zip(source.iter().zip(&target));
    Ok(pairs
        .filter(|(_, pair)| differs(*pair))
        .map(|(key, _)| key.clone())
        .collect())
}

/// What became of the part of a large value that the stream of touched keys does not show.
#[derive(Debug, Default)]
pub(super) struct PartOutcome {
    /// Its bytes at the source, if it has such a part.
    pub(super) bytes: Option<u64>,
    /// Whether it is the same on both sides now.
    pub(super) equal: bool,
    pub(super) refused: Option<WriteRefused>,
}

/// Brings over the part of a value that the stream of touched keys does not show, and reads it back.
/// Clients may change it meanwhile, unless they are fenced off.
pub(super) async fn copy_part(ends: &Ends, key: &Key) -> Result<PartOutcome, OpError> {
    let (source, target) = futures_util::join!(
        ends.source.session.read_untracked(key),
        ends.target.session.read_untracked(key)
    );
    let (source, target) = (source.at(Server::Source)?, target.at(ends.target_server())?);
    let mut outcome = PartOutcome {
        bytes: source.as_ref().map(|Untracked(part)| part.len() as u64),
        equal: source == target,
        refused: None,
    };
    if let (Some(new), Some(here), false) = (&source, &target, outcome.equal) {
        let session = &ends.target.session;
        let written = session.write_untracked(key, here, new).await;
        // What else it may refuse comes from changes meanwhile, or shows in what is read back.
        let written = written.at(ends.target_server())?;
        outcome.refused = written
            .err()
            .filter(|why| *why == WriteRefused::OutOfMemory);
        let now = session.read_untracked(key).await;
        outcome.equal = now.at(ends.target_server())? == source;
    }
    Ok(outcome)
}

fn same_bytes(source: &Read, target: &Read) -> bool {
    match (source, target) {
        (Read::Gone, Read::Gone) => true,
        (Read::Item(source), Read::Item(target)) => {
            source.payload == target.payload && source.expires_at_ms == target.expires_at_ms
        }
        // It expired between the two reads, or just after it was copied.
        (Read::Item(item), Read::Gone) | (Read::Gone, Read::Item(item)) => expires_about_now(item),
        _ => false,
    }
}

fn expires_about_now(item: &Item) -> bool {
    let soon_ms = super::super::mandate::wall_clock_ms() + CLOCK_SKEW_MS;
    item.expires_at_ms.is_some_and(|at_ms| at_ms <= soon_ms)
}

/// What became of a large value.
#[derive(Debug)]
pub(super) struct BigOutcome {
    pub(super) bytes: u64,
    /// Bytes of the part that the stream of touched keys does not show, if it has one.
    pub(super) part: Option<u64>,
    pub(super) refused: Option<WriteRefused>,
    pub(super) different: bool,
}

/// Copies a large value piece by piece into a staging value, then puts that in place; as the throttle of a
/// mandate allows.
pub(super) async fn copy_big(
    throttled: Option<Arc<Mandate>>,
    ends: Ends,
    key: Key,
    check: Check,
) -> Result<BigOutcome, OpError> {
    let mut outcome = BigOutcome {
        bytes: 0,
        part: None,
        refused: None,
        different: false,
    };
    for _ in 0..STAGINGS_MAX {
        match stage(throttled.as_deref(), &ends, &key, &mut outcome.bytes).await? {
            Ok(()) => {
                outcome.refused = None;
                break;
            }
            Err(WriteRefused::StagingLost) => outcome.refused = Some(WriteRefused::StagingLost),
            Err(refused) => {
                outcome.refused = Some(refused);
                break;
            }
        }
    }
    if outcome.refused.is_some() {
        return Ok(outcome);
    }
    let part = ends.source.session.read_untracked(&key).await;
    outcome.part = part.at(Server::Source)?.map(|part| part.0.len() as u64);
    if check == Check::AtOnce {
        let different = different_contents(&ends, vec![key], Content::Tracked).await?;
        outcome.different = !different.is_empty();
    }
    Ok(outcome)
}

/// One pass over a large value.
async fn stage(
    throttle: Option<&Mandate>,
    ends: &Ends,
    key: &Key,
    bytes: &mut u64,
) -> Result<Result<(), WriteRefused>, OpError> {
    let (source, target) = (&ends.source.session, &ends.target.session);
    let (mut cursor, mut first) = (None, true);
    loop {
        if let Some(mandate) = throttle {
            throttled(mandate).await;
        }
        match source.read_piece(key, cursor).await.at(Server::Source)? {
            PieceRead::Gone => {
                target
                    .remove(std::slice::from_ref(key))
                    .await
                    .at(ends.target_server())?;
                return Ok(Ok(()));
            }
            PieceRead::Piece(piece, next) => {
                let size = piece.payload.len() as u64;
                if let Some(mandate) = throttle {
                    mandate.throttle().spend(0, size);
                }
                *bytes += size;
                let written = target
                    .write_piece(key, piece, first)
                    .await
                    .at(ends.target_server())?;
                if let Err(refused) = written {
                    return Ok(Err(refused));
                }
                if next.is_none() {
                    return target.finish_pieces(key).await.at(ends.target_server());
                }
                (cursor, first) = (next, false);
            }
        }
    }
}

/// Waits until the throttle lets something through.
async fn throttled(mandate: &Mandate) {
    loop {
        let now_ms = mandate.now_ms();
        let wait_ms = {
            let mut throttle = mandate.throttle();
            if throttle.bytes_allowed(now_ms) > 0 {
                return;
            }
            throttle.ready_at(now_ms).saturating_sub(now_ms).max(1)
        };
        // The throttle may be changed meanwhile.
        tokio::time::sleep(std::time::Duration::from_millis(wait_ms.min(100))).await;
    }
}
