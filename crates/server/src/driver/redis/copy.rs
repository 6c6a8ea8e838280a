//! Values on their way from one server to another.
//!
//! Strings travel as their bytes and everything else as a dump. Nothing is taken before its type and
//! size are known, so that no server is kept from others for long by one value: what is large is
//! reported as such and goes in pieces. A string costs its source `GETRANGE`, and `PEXPIRETIME` where any key has
//! an expiry, in one round trip where strings are expected, and `TYPE` before them in a trip of its own where
//! they are not. Read again, when it is known to be small, it shares one `MGET` with others; small strings
//! without an expiry are written by `MSET`.

use bytes::Bytes;
use clockwise_client::resp::code_word;

use super::acl::{self, RESERVED_PREFIX};
use super::expiries::{Expiry, read_with_expiries};
use super::frame::{Frame, Pipeline};
use super::link::Link;
use super::survey::{
    BURST_BYTES, Found, HEAD_BYTES, Kind, Look, SMALL_BYTES, lengths, look, unless_changed,
};
use crate::driver::{DriverError, Item, Key, Payload, Read, WriteRefused};

/// Keys looked at in one call.
const KEYS_MAX: usize = 1000;
/// Bytes of values after which a read ends with what it has.
const READ_BYTES_MAX: u64 = 8 << 20;
/// A string of more bytes goes in pieces: compressing or copying 4 MiB takes a server some
/// milliseconds.
pub(super) const TEXT_BYTES_MAX: u64 = 4 << 20;
/// A value of more elements goes in pieces: dumping or restoring ten thousand takes a server some
/// ten milliseconds.
const ELEMENTS_MAX: u64 = 10_000;
/// A value of any type but stream that takes more memory goes in pieces.
const DUMP_BYTES_MAX: u64 = 4 << 20;
/// Streams lie in memory as they are dumped.
const STREAM_BYTES_MAX: u64 = 16 << 20;
/// Values that one command reads or writes, where they are known to be small.
const SMALL_KEYS: usize = 64;
/// Bytes of a string that is written together with others.
const SMALL_TEXT_BYTES_MAX: usize = 1 << 10;
/// Keys removed by one command.
const UNLINK_KEYS: usize = 500;

/// One step of the listing.
pub(super) async fn scan(
    link: &Link,
    cursor: u64,
    count: u32,
) -> Result<(u64, Vec<Key>), DriverError> {
    let (cursor, count) = (cursor.to_string(), count.max(1).to_string());
    let frame = link
        .ask(
            "SCAN",
            &[b"SCAN", cursor.as_bytes(), b"COUNT", count.as_bytes()],
        )
        .await?;
    let (next, mut keys) = read_scan(&frame).ok_or_else(|| link.odd("SCAN", &frame))?;
    keys.retain(|key| !acl::is_reserved(key));
    Ok((next, keys))
}

/// The next cursor and what was listed.
pub(super) fn read_scan(frame: &Frame) -> Option<(u64, Vec<Bytes>)> {
    let mut strings = frame.strings();
    if strings.array()? != 2 {
        return None;
    }
    let cursor = std::str::from_utf8(&strings.string()?).ok()?.parse().ok()?;
    let count = strings.array()?;
    let listed: Option<Vec<Bytes>> = (0..count).map(|_| strings.string()).collect();
    Some((cursor, listed?))
}

/// As [`read`], of keys that were small strings when they were last read: many of them are read by
/// one command.
pub(super) async fn read_small(link: &Link, keys: &[Key]) -> Result<Vec<Read>, DriverError> {
    let keys = &keys[..keys.len().min(KEYS_MAX)];
    let mut pipeline = Pipeline::with_capacity(keys.len(), 32);
    for keys in keys.chunks(SMALL_KEYS) {
        let mut args: Vec<&[u8]> = vec![b"MGET"];
        args.extend(keys.iter().map(Bytes::as_ref));
        pipeline.push(&args);
    }
    let (frames, expiries) = read_with_expiries(link, "MGET", keys, pipeline).await?;
    let mut texts = Vec::with_capacity(keys.len());
    for frame in frames {
        let frame = link.check("MGET", frame)?;
        let mut strings = frame.strings();
        let count = strings.array().ok_or_else(|| link.odd("MGET", &frame))?;
        for _ in 0..count {
            let text = strings.string_or_null();
            texts.push(text.ok_or_else(|| link.odd("MGET", &frame))?);
        }
    }
    let mut reads = Vec::with_capacity(keys.len());
    let mut others = Vec::new();
    for (rank, text) in texts.into_iter().enumerate() {
        let expires_at_ms = match (expiries.of(rank), &text) {
            (Some(Expiry::Gone), _) => {
                reads.push(Read::Gone);
                continue;
            }
            // No string any more: gone, or of another type.
            (_, None) => {
                others.push(rank);
                reads.push(Read::Gone);
                continue;
            }
            (None | Some(Expiry::Never), Some(_)) => None,
            (Some(Expiry::At(ms)), Some(_)) => Some(ms),
        };
        reads.push(Read::Item(Item {
            payload: Payload::Text(text.unwrap_or_default()),
            expires_at_ms,
            untracked: false,
        }));
    }
    let names: Vec<Key> = others.iter().map(|&rank| keys[rank].clone()).collect();
    let mut read_again = 0;
    while read_again < names.len() {
        for read in read(link, &names[read_again..]).await? {
            reads[others[read_again]] = read;
            read_again += 1;
        }
    }
    Ok(reads)
}

/// What is known of a key while it is read.
enum Step {
    Done(Read),
    /// Asked for next; takes about so many bytes.
    Fetch {
        found: Found,
        bytes: u64,
    },
}

pub(super) async fn read(link: &Link, keys: &[Key]) -> Result<Vec<Read>, DriverError> {
    let keys = &keys[..keys.len().min(KEYS_MAX)];
    let mut steps: Vec<Step> = look(link, keys)
        .await?
        .into_iter()
        .map(first_step)
        .collect();
    look_closer(link, keys, &mut steps).await?;
    let mut total = 0;
    let enough = steps.iter().position(|step| {
        total += match step {
            Step::Done(Read::Item(item)) => item.payload.len() as u64,
            Step::Done(_) => 0,
            Step::Fetch { bytes, .. } => *bytes,
        };
        total > READ_BYTES_MAX
    });
    steps.truncate(enough.unwrap_or(keys.len()).max(1));
    fetch(link, keys, &mut steps).await?;
    let read = steps.into_iter().map(|step| match step {
        Step::Done(read) => read,
        // Everything has been fetched; a key that is not there any more is gone.
        Step::Fetch { .. } => Read::Gone,
    });
    Ok(read.collect())
}

fn first_step(look: Look) -> Step {
    match look {
        Look::Gone => Step::Done(Read::Gone),
        Look::Text { found, head } if head.len() < HEAD_BYTES => {
            let payload = Payload::Text(head);
            Step::Done(Read::Item(Item {
                payload,
                expires_at_ms: found.expires_at_ms,
                untracked: false,
            }))
        }
        Look::Text { found, .. } => Step::Fetch {
            found,
            bytes: SMALL_BYTES + 1,
        },
        Look::Other { found, bytes } => Step::Fetch { found, bytes },
    }
}

/// Counts the elements of what is not small, and puts aside what is too large.
async fn look_closer(link: &Link, keys: &[Key], steps: &mut [Step]) -> Result<(), DriverError> {
    let mut unclear: Vec<(&Key, &mut Step, Kind)> = Vec::new();
    for (key, step) in keys.iter().zip(steps) {
        if let Step::Fetch { found, bytes } = step
            && *bytes > SMALL_BYTES
        {
            let kind = found.kind;
            unclear.push((key, step, kind));
        }
    }
    let asked: Vec<(&Key, Kind)> = unclear.iter().map(|(key, _, kind)| (*key, *kind)).collect();
    let lengths = lengths(link, &asked).await?;
    for ((_, step, _), length) in unclear.into_iter().zip(lengths) {
        if let Step::Fetch { found, bytes } = step {
            let (kind, weight) = (found.kind, *bytes);
            if kind == Kind::TEXT {
                *bytes = length;
            }
            if is_big(kind, weight, length) {
                *step = Step::Done(Read::Big {
                    bytes: weight.max(length),
                });
            }
        }
    }
    Ok(())
}

fn is_big(kind: Kind, bytes: u64, length: u64) -> bool {
    match kind {
        Kind::TEXT => length > TEXT_BYTES_MAX,
        Kind::Elements(_) => length > ELEMENTS_MAX || bytes > DUMP_BYTES_MAX,
        Kind::Stream => bytes > STREAM_BYTES_MAX,
        // Cannot be had in pieces.
        Kind::Other => false,
    }
}

/// Takes the values, some at a time.
async fn fetch(link: &Link, keys: &[Key], steps: &mut [Step]) -> Result<(), DriverError> {
    let mut from = 0;
    while from < steps.len() {
        let mut pipeline = Pipeline::default();
        let mut burst = 0;
        let mut through = from;
        while through < steps.len() && burst < BURST_BYTES {
            if let Step::Fetch { found, bytes } = &steps[through] {
                match found.kind {
                    Kind::TEXT => pipeline.push(&[b"GETRANGE", &keys[through], b"0", b"-1"]),
                    _ => pipeline.push(&[b"DUMP", &keys[through]]),
                }
                burst += bytes;
            }
            through += 1;
        }
        let mut frames = link.call("DUMP", pipeline).await?.into_iter();
        for step in &mut steps[from..through] {
            if let Step::Fetch { found, .. } = step {
                let frame = frames
                    .next()
                    .ok_or_else(|| link.peer().refused("DUMP", "no reply"))?;
                let bytes = unless_changed(link, "DUMP", frame)?.and_then(|frame| frame.text());
                *step = Step::Done(fetched(found, bytes));
            }
        }
        from = through;
    }
    Ok(())
}

fn fetched(found: &Found, bytes: Option<Bytes>) -> Read {
    let Some(bytes) = bytes else {
        return Read::Gone;
    };
    let untracked = found.kind == Kind::Stream;
    let payload = if found.kind == Kind::TEXT {
        Payload::Text(bytes)
    } else {
        Payload::Dump(bytes)
    };
    Read::Item(Item {
        payload,
        expires_at_ms: found.expires_at_ms,
        untracked,
    })
}

/// Stores values, replacing what is there.
pub(super) async fn write(
    link: &Link,
    items: &[(Key, Item)],
) -> Result<Vec<Result<(), WriteRefused>>, DriverError> {
    let bytes: usize = items
        .iter()
        .map(|(key, item)| key.len() + item.payload.len() + 96)
        .sum();
    let mut pipeline = Pipeline::with_capacity(1, bytes);
    let mut counts = Vec::with_capacity(items.len());
    let mut rest = items;
    while let Some((key, item)) = rest.first() {
        let run = rest
            .iter()
            .take(SMALL_KEYS)
            .take_while(|(_, item)| is_plain(item));
        let count = run.count().max(1);
        let (now, later) = rest.split_at(count);
        if count == 1 {
            push_item(&mut pipeline, key, item);
        } else {
            push_together(&mut pipeline, now);
        }
        counts.push(count);
        rest = later;
    }
    let frames = link.call("RESTORE", pipeline).await?;
    let mut results = Vec::with_capacity(items.len());
    for (frame, count) in frames.iter().zip(counts) {
        let result = written(link, frame)?;
        results.extend(std::iter::repeat_n(result, count));
    }
    Ok(results)
}

/// Whether it may be written together with others: all of them, or none, are stored.
fn is_plain(item: &Item) -> bool {
    let is_small =
        matches!(&item.payload, Payload::Text(text) if text.len() <= SMALL_TEXT_BYTES_MAX);
    is_small && item.expires_at_ms.is_none()
}

fn push_together(pipeline: &mut Pipeline, items: &[(Key, Item)]) {
    let mut args: Vec<&[u8]> = vec![b"MSET"];
    for (key, item) in items {
        if let Payload::Text(text) = &item.payload {
            args.extend([key.as_ref(), text.as_ref()]);
        }
    }
    pipeline.push(&args);
}

fn push_item(pipeline: &mut Pipeline, key: &Key, item: &Item) {
    let expiry = item.expires_at_ms.map(|ms| ms.max(1).to_string());
    let at = expiry.as_deref().map(str::as_bytes);
    match (&item.payload, at) {
        (Payload::Text(text), None) => pipeline.push(&[b"SET", key, text]),
        (Payload::Text(text), Some(at)) => pipeline.push(&[b"SET", key, text, b"PXAT", at]),
        (Payload::Dump(dump), at) => {
            pipeline.push(&[
                b"RESTORE",
                key,
                at.unwrap_or(b"0"),
                dump,
                b"REPLACE",
                b"ABSTTL",
            ]);
        }
    }
}

/// What the reply to a write means for its key, or for the whole connection.
pub(super) fn written(link: &Link, frame: &Frame) -> Result<Result<(), WriteRefused>, DriverError> {
    let Some(why) = frame.error() else {
        return Ok(Ok(()));
    };
    match code_word(&why) {
        "OOM" => Ok(Err(WriteRefused::OutOfMemory)),
        "BUSY" | "NOPERM" | "NOAUTH" | "LOADING" | "MASTERDOWN" => {
            link.check("RESTORE", frame.clone()).map(|_| Ok(()))
        }
        "ERR" if why.contains("DUMP payload") || why.contains("Bad data format") => {
            Ok(Err(WriteRefused::BadPayload(why)))
        }
        _ => Ok(Err(WriteRefused::Other(why))),
    }
}

/// Removes keys; says how many existed.
pub(super) async fn remove(link: &Link, keys: &[Key]) -> Result<u64, DriverError> {
    let mut pipeline = Pipeline::with_capacity(keys.len(), 32);
    for keys in keys.chunks(UNLINK_KEYS) {
        let mut args: Vec<&[u8]> = vec![b"UNLINK"];
        args.extend(keys.iter().map(Bytes::as_ref));
        pipeline.push(&args);
    }
    let mut removed = 0;
    for frame in link.call("UNLINK", pipeline).await? {
        let frame = link.check("UNLINK", frame)?;
        removed += frame.count().ok_or_else(|| link.odd("UNLINK", &frame))?;
    }
    Ok(removed)
}

/// Which of the keys exist.
pub(super) async fn exists(link: &Link, keys: &[Key]) -> Result<Vec<bool>, DriverError> {
    let mut pipeline = Pipeline::with_capacity(keys.len(), 48);
    for key in keys {
        pipeline.push(&[b"EXISTS", key]);
    }
    let frames = link.call("EXISTS", pipeline).await?;
    frames
        .into_iter()
        .map(|frame| {
            let frame = link.check("EXISTS", frame)?;
            frame
                .count()
                .map(|count| count > 0)
                .ok_or_else(|| link.odd("EXISTS", &frame))
        })
        .collect()
}

/// Sends a small hash from one server to the other, over the administrator's connections, and takes
/// it away from both.
pub(super) async fn canary(source: &Link, target: &Link) -> Result<(), DriverError> {
    // Of this pair and this connection alone: others may sing to the same servers at this moment.
    let name = format!(
        "canary:{}:{}:{}",
        source.peer().node,
        target.peer().node,
        source.greeting().client_id
    );
    let key = [RESERVED_PREFIX, name.as_bytes()].concat();
    let heard = sing(source, target, &key).await;
    for link in [source, target] {
        // What was heard says more than why this failed, and the key goes by itself.
        let gone = link.ask("UNLINK", &[b"UNLINK", &key]).await;
        if heard.is_ok() {
            gone?;
        }
    }
    heard
}

async fn sing(source: &Link, target: &Link, key: &[u8]) -> Result<(), DriverError> {
    // Also gone when we are: both in one write, so that an end of ours does not come between.
    let mut request = Pipeline::of(&[b"HSET", key, b"song", b"heard"]);
    request.push(&[b"PEXPIRE", key, b"10000"]);
    for frame in source.call("HSET", request).await? {
        source.check("HSET", frame)?;
    }
    let dump = source.ask("DUMP", &[b"DUMP", key]).await?;
    let dump = dump.text().ok_or_else(|| source.odd("DUMP", &dump))?;
    target
        .ask("RESTORE", &[b"RESTORE", key, b"10000", &dump, b"REPLACE"])
        .await?;
    Ok(())
}
