//! What keys hold, before anything of it is taken: type, expiry, size.
//!
//! No command that a server would have to work long for is sent before this is known. All commands
//! here take constant time, whatever the size of the value.

use std::time::Duration;

use bytes::Bytes;

use super::expiries::{Expiries, Expiry, read_with_expiries};
use super::frame::{Frame, Pipeline};
use super::link::Link;
use crate::driver::{DriverError, Key};

/// Bytes of a string taken before its length is asked for. Most are shorter.
pub(super) const HEAD_BYTES: usize = 16 << 10;
/// A value of more bytes is looked at twice: its elements are counted before it is taken.
pub(super) const SMALL_BYTES: u64 = 64 << 10;
/// Bytes of values asked for in one write: with 4 ms for a megabyte, what a server is kept busy by us
/// before others have their turn.
pub(super) const BURST_BYTES: u64 = 512 << 10;

/// Types whose content is a string or a list of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    List,
    Set,
    /// Elements are fields and values in turn.
    Hash,
    /// Elements are members and scores in turn.
    SortedSet,
}

/// The types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Elements(Shape),
    Stream,
    /// A module's own: can be dumped, and nothing else is known of it.
    Other,
}

impl Kind {
    pub(super) const TEXT: Self = Self::Elements(Shape::Text);

    /// Reads the reply of `TYPE`; `None` when there is no key.
    fn parse(name: &[u8]) -> Option<Self> {
        match name {
            b"none" => None,
            b"string" => Some(Self::Elements(Shape::Text)),
            b"list" => Some(Self::Elements(Shape::List)),
            b"set" => Some(Self::Elements(Shape::Set)),
            b"hash" => Some(Self::Elements(Shape::Hash)),
            b"zset" => Some(Self::Elements(Shape::SortedSet)),
            b"stream" => Some(Self::Stream),
            _ => Some(Self::Other),
        }
    }

    /// One byte for the type, in pieces and in digests.
    pub(super) fn letter(self) -> u8 {
        match self {
            Self::Elements(Shape::Text) => b't',
            Self::Elements(Shape::List) => b'l',
            Self::Elements(Shape::Set) => b's',
            Self::Elements(Shape::Hash) => b'h',
            Self::Elements(Shape::SortedSet) => b'z',
            Self::Stream => b'x',
            Self::Other => b'?',
        }
    }

    /// The type that has this letter and can go in pieces.
    pub(super) fn of_letter(letter: u8) -> Option<Self> {
        let shapes = [
            Shape::Text,
            Shape::List,
            Shape::Set,
            Shape::Hash,
            Shape::SortedSet,
        ];
        let kinds = shapes.map(Self::Elements).into_iter().chain([Self::Stream]);
        kinds.into_iter().find(|kind| kind.letter() == letter)
    }

    /// The command that counts a value's elements, or a string's bytes.
    fn length_command(self) -> &'static [u8] {
        match self {
            Self::Elements(Shape::Text) => b"STRLEN",
            Self::Elements(Shape::List) => b"LLEN",
            Self::Elements(Shape::Set) => b"SCARD",
            Self::Elements(Shape::Hash) => b"HLEN",
            Self::Elements(Shape::SortedSet) => b"ZCARD",
            Self::Stream => b"XLEN",
            // Says 1: a module's value counts as one element.
            Self::Other => b"EXISTS",
        }
    }
}

/// A key that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) expires_at_ms: Option<u64>,
}

/// Type and expiry of each key; `None` where there is none.
pub(super) async fn survey(link: &Link, keys: &[Key]) -> Result<Vec<Option<Found>>, DriverError> {
    let mut pipeline = Pipeline::with_capacity(2 * keys.len(), 64);
    for key in keys {
        pipeline.push(&[b"TYPE", key]);
        pipeline.push(&[b"PEXPIRETIME", key]);
    }
    let frames = link.call("TYPE", pipeline).await?;
    frames
        .chunks_exact(2)
        .map(|pair| found(link, &pair[0], &pair[1]))
        .collect()
}

fn found(link: &Link, kind: &Frame, expiry: &Frame) -> Result<Option<Found>, DriverError> {
    let kind = link.check("TYPE", kind.clone())?;
    let name = kind.text().ok_or_else(|| link.odd("TYPE", &kind))?;
    let Some(kind) = Kind::parse(&name) else {
        return Ok(None);
    };
    Ok(match Expiry::read(link, expiry)? {
        Expiry::Gone => None,
        Expiry::Never => Some(Found {
            kind,
            expires_at_ms: None,
        }),
        Expiry::At(ms) => Some(Found {
            kind,
            expires_at_ms: Some(ms),
        }),
    })
}

/// What a first look at a key shows.
#[derive(Clone, Debug)]
pub(super) enum Look {
    Gone,
    /// A string; whole when its head is shorter than [`HEAD_BYTES`].
    Text {
        found: Found,
        head: Bytes,
    },
    /// Anything else, and about how many bytes of memory it takes.
    Other {
        found: Found,
        bytes: u64,
    },
}

/// Type and expiry of each key, with the beginning of a string or the size of anything else: one round
/// trip and one or two commands a key where the last look showed strings alone, otherwise two trips and three.
pub(super) async fn look(link: &Link, keys: &[Key]) -> Result<Vec<Look>, DriverError> {
    if link.expects_texts() {
        return look_for_texts(link, keys).await;
    }
    let looks = look_by_type(link, keys).await?;
    let others = looks.iter().any(|look| matches!(look, Look::Other { .. }));
    link.expect_texts(!others);
    Ok(looks)
}

/// Asks all keys for the beginning of a string; those of another type refuse, and are looked at again. An
/// error reply is counted by servers, so that one makes the next look go by type again.
async fn look_for_texts(link: &Link, keys: &[Key]) -> Result<Vec<Look>, DriverError> {
    let head_end = (HEAD_BYTES - 1).to_string();
    let mut pipeline = Pipeline::with_capacity(keys.len(), 64);
    for key in keys {
        pipeline.push(&[b"GETRANGE", key, b"0", head_end.as_bytes()]);
    }
    let (frames, expiries) = read_with_expiries(link, "GETRANGE", keys, pipeline).await?;
    let mut looks = Vec::with_capacity(keys.len());
    let mut others = Vec::new();
    for (rank, frame) in frames.into_iter().enumerate() {
        let expires_at_ms = match expiries.of(rank) {
            // What the other reply says went away between the two: somebody touched it.
            Some(Expiry::Gone) => {
                looks.push(Look::Gone);
                continue;
            }
            None | Some(Expiry::Never) => None,
            Some(Expiry::At(ms)) => Some(ms),
        };
        let Some(frame) = unless_changed(link, "GETRANGE", frame)? else {
            others.push(looks.len());
            looks.push(Look::Gone);
            continue;
        };
        let head = frame.text().ok_or_else(|| link.odd("GETRANGE", &frame))?;
        if head.is_empty() && expiries == Expiries::Nowhere {
            // An empty string, or none at all.
            others.push(looks.len());
            looks.push(Look::Gone);
            continue;
        }
        let kind = Kind::TEXT;
        let found = Found {
            kind,
            expires_at_ms,
        };
        looks.push(Look::Text { found, head });
    }
    if !others.is_empty() {
        let keys: Vec<Key> = others.iter().map(|&rank| keys[rank].clone()).collect();
        for (rank, look) in others.into_iter().zip(look_by_type(link, &keys).await?) {
            if matches!(look, Look::Other { .. }) {
                link.expect_texts(false);
            }
            looks[rank] = look;
        }
    }
    Ok(looks)
}

async fn look_by_type(link: &Link, keys: &[Key]) -> Result<Vec<Look>, DriverError> {
    let found = survey(link, keys).await?;
    let head_end = (HEAD_BYTES - 1).to_string();
    let mut pipeline = Pipeline::with_capacity(keys.len(), 64);
    for (key, found) in keys.iter().zip(&found) {
        match found {
            None => {}
            Some(found) if found.kind == Kind::TEXT => {
                pipeline.push(&[b"GETRANGE", key, b"0", head_end.as_bytes()]);
            }
            Some(_) => push_weight(&mut pipeline, key),
        }
    }
    let mut frames = link.call("GETRANGE", pipeline).await?.into_iter();
    let looks = found.into_iter().map(|found| {
        let Some(found) = found else {
            return Ok(Look::Gone);
        };
        let frame = frames
            .next()
            .ok_or_else(|| link.peer().refused("GETRANGE", "no reply"))?;
        if found.kind != Kind::TEXT {
            return Ok(
                weight(link, &frame)?.map_or(Look::Gone, |bytes| Look::Other { found, bytes })
            );
        }
        let Some(frame) = unless_changed(link, "GETRANGE", frame)? else {
            return Ok(Look::Gone);
        };
        let head = frame.text().ok_or_else(|| link.odd("GETRANGE", &frame))?;
        Ok(Look::Text { found, head })
    });
    looks.collect()
}

/// Adds the question how many bytes of memory a key takes (a few of its elements are measured).
pub(super) fn push_weight(pipeline: &mut Pipeline, key: &Key) {
    pipeline.push(&[b"MEMORY", b"USAGE", key]);
}

/// The answer; `None` when the key is gone.
pub(super) fn weight(link: &Link, frame: &Frame) -> Result<Option<u64>, DriverError> {
    let frame = link.check("MEMORY USAGE", frame.clone())?;
    Ok(frame.count())
}

/// Elements (bytes of a string) of each key; 0 where its type has changed.
pub(super) async fn lengths(link: &Link, keys: &[(&Key, Kind)]) -> Result<Vec<u64>, DriverError> {
    let mut pipeline = Pipeline::with_capacity(keys.len(), 64);
    for (key, kind) in keys {
        pipeline.push(&[kind.length_command(), key]);
    }
    let frames = link.call("STRLEN", pipeline).await?;
    frames
        .into_iter()
        .map(|frame| {
            Ok(unless_changed(link, "STRLEN", frame)?
                .and_then(|frame| frame.count())
                .unwrap_or(0))
        })
        .collect()
}

/// Passes a reply on; `None` when the key has another type than it had a moment ago.
pub(super) fn unless_changed(
    link: &Link,
    command: &'static str,
    frame: Frame,
) -> Result<Option<Frame>, DriverError> {
    match frame.error() {
        Some(why) if why.starts_with("WRONGTYPE") => Ok(None),
        _ => link.check(command, frame).map(Some),
    }
}

/// The server's clock.
pub(super) async fn clock_ms(link: &Link) -> Result<u64, DriverError> {
    let frame = link.ask("TIME", &[b"TIME"]).await?;
    read_clock(&frame)
        .map(|clock| u64::try_from(clock.as_millis()).unwrap_or(u64::MAX))
        .ok_or_else(|| link.odd("TIME", &frame))
}

/// Time since 1970, from the reply of `TIME`.
pub(super) fn read_clock(frame: &Frame) -> Option<Duration> {
    let value = frame.value();
    let [seconds, micros] = value.as_array()? else {
        return None;
    };
    let seconds: u64 = seconds.as_text()?.parse().ok()?;
    let micros: u64 = micros.as_text()?.parse().ok()?;
    Some(Duration::from_secs(seconds) + Duration::from_micros(micros))
}
