//! The expiries of many keys, without a question for each where a server has none at all.
//!
//! `INFO keyspace` counts the keys that have one. Where it says none both before and after values were read,
//! none of these had one: whatever was set or ran out between is told by the stream of dirty keys. Where
//! it says otherwise each key is asked. What the last answer said decides only which is tried first.

use super::frame::{Frame, Pipeline};
use super::link::Link;
use super::server::read_info;
use crate::driver::{DriverError, Key};

/// The reply of `PEXPIRETIME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    Gone,
    Never,
    At(u64),
}

impl Expiry {
    pub(super) fn read(link: &Link, frame: &Frame) -> Result<Self, DriverError> {
        match frame.integer() {
            Some(-2) => Ok(Self::Gone),
            Some(-1) => Ok(Self::Never),
            Some(ms) => u64::try_from(ms)
                .map(Self::At)
                .map_err(|_| link.odd("PEXPIRETIME", frame)),
            None => {
                let frame = link.check("PEXPIRETIME", frame.clone())?;
                Err(link.odd("PEXPIRETIME", &frame))
            }
        }
    }
}

/// What is known of the expiries of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expiries {
    /// No key of the server has one. Which of them exist is not known.
    Nowhere,
    /// That of each key.
    Each(Vec<Expiry>),
}

impl Expiries {
    /// That of the key of this number; nothing where no key has one.
    pub(super) fn of(&self, rank: usize) -> Option<Expiry> {
        match self {
            Self::Nowhere => None,
            Self::Each(expiries) => expiries.get(rank).copied(),
        }
    }
}

/// Sends the commands of `values`, which read `keys`, and finds the keys' expiries: their replies, and
/// those. Two questions more than the values' where the server has no expiries, otherwise one a key.
pub(super) async fn read_with_expiries(
    link: &Link,
    command: &'static str,
    keys: &[Key],
    values: Pipeline,
) -> Result<(Vec<Frame>, Expiries), DriverError> {
    let replies = values.commands;
    let mut pipeline = Pipeline::with_capacity(2, 32);
    if link.expects_expiries() {
        pipeline.append(values);
        push_each(&mut pipeline, keys);
        push_count(&mut pipeline);
        let mut frames = link.call(command, pipeline).await?;
        let count = frames.pop().map(|frame| read_count(link, frame));
        link.expect_expiries(count.transpose()? != Some(0));
        let each = frames.split_off(replies.min(frames.len()));
        return Ok((frames, read_each(link, &each)?));
    }
    push_count(&mut pipeline);
    pipeline.append(values);
    push_count(&mut pipeline);
    let mut frames = link.call(command, pipeline).await?.into_iter();
    let mut counts = frames
        .next()
        .map_or(Ok(0), |frame| read_count(link, frame))?;
    let mut frames: Vec<Frame> = frames.collect();
    counts += frames
        .pop()
        .map_or(Ok(0), |frame| read_count(link, frame))?;
    if counts == 0 {
        return Ok((frames, Expiries::Nowhere));
    }
    link.expect_expiries(true);
    let mut pipeline = Pipeline::with_capacity(keys.len(), 48);
    push_each(&mut pipeline, keys);
    let each = link.call("PEXPIRETIME", pipeline).await?;
    Ok((frames, read_each(link, &each)?))
}

fn push_each(pipeline: &mut Pipeline, keys: &[Key]) {
    for key in keys {
        pipeline.push(&[b"PEXPIRETIME", key]);
    }
}

fn read_each(link: &Link, frames: &[Frame]) -> Result<Expiries, DriverError> {
    let expiries = frames.iter().map(|frame| Expiry::read(link, frame));
    Ok(Expiries::Each(expiries.collect::<Result<_, _>>()?))
}

fn push_count(pipeline: &mut Pipeline) {
    pipeline.push(&[b"INFO", b"keyspace"]);
}

/// How many keys of database 0 have an expiry.
fn read_count(link: &Link, frame: Frame) -> Result<u64, DriverError> {
    let frame = link.check("INFO", frame)?;
    let count = read_info(link, &frame)?.keys_with_expiry();
    count.ok_or_else(|| link.odd("INFO", &frame))
}
