//! Collections by pieces: which command gives the next elements, and which one adds them.
//!
//! A piece's elements are a flat list. A hash gives fields, values and the fields' own expiries in
//! turn (milliseconds, or nothing), a sorted set members and scores; a string is one element. Content that does not change while it is read comes exactly
//! once, whatever the server does to its tables meanwhile; content that changes is dirty and comes
//! again.

use bytes::Bytes;
use clockwise_client::resp::Value;

use super::copy::read_scan;
use super::frame::{Frame, Pipeline};
use super::link::Link;
use super::survey::{Shape, unless_changed};
use crate::driver::{DriverError, Key};

/// Where in a value the next piece starts: an index, an offset, or a cursor of the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) shape: Shape,
    pub(super) at: u64,
    /// Elements a piece, or bytes of a string.
    pub(super) count: u64,
}

impl Place {
    /// The start of a value that is read in one piece.
    pub(super) fn whole(shape: Shape) -> Self {
        Self {
            shape,
            at: 0,
            count: u64::from(u32::MAX),
        }
    }

    /// Adds the command that reads from here.
    pub(super) fn push_read(&self, pipeline: &mut Pipeline, key: &Key) {
        let at = self.at.to_string();
        let count = self.count.to_string();
        let last = (self.at + self.count - 1).to_string();
        let (at, count, last) = (at.as_bytes(), count.as_bytes(), last.as_bytes());
        match self.shape {
            Shape::Text => pipeline.push(&[b"GETRANGE", key, at, last]),
            Shape::List => pipeline.push(&[b"LRANGE", key, at, last]),
            Shape::Set => pipeline.push(&[b"SSCAN", key, at, b"COUNT", count]),
            Shape::Hash => pipeline.push(&[b"HSCAN", key, at, b"COUNT", count]),
            Shape::SortedSet => pipeline.push(&[b"ZSCAN", key, at, b"COUNT", count]),
        }
    }

    /// The elements read (of a hash without the fields' expiries), and the next place unless these were the last. `None`: no such reply.
    pub(super) fn read(&self, frame: &Frame) -> Option<(Vec<Bytes>, Option<Self>)> {
        match self.shape {
            Shape::Text => {
                let text = frame.text()?;
                let next = self.behind(text.len() as u64);
                Some((vec![text], next))
            }
            Shape::List => {
                let Value::Array(items) = frame.value() else {
                    return None;
                };
                let next = self.behind(items.len() as u64);
                let items = items.into_iter().map(|item| match item {
                    Value::Bulk(bytes) => Some(bytes.into()),
                    _ => None,
                });
                Some((items.collect::<Option<_>>()?, next))
            }
            _ => {
                let (cursor, elements) = read_scan(frame)?;
                Some((
                    elements,
                    (cursor != 0).then_some(Self {
                        at: cursor,
                        ..*self
                    }),
                ))
            }
        }
    }

    /// The place behind what was got; less than asked for is the end.
    fn behind(&self, got: u64) -> Option<Self> {
        (got == self.count).then_some(Self {
            at: self.at + got,
            ..*self
        })
    }
}

/// Puts its expiry behind each field and value of some hashes.
pub(super) async fn with_field_expiries(
    link: &Link,
    hashes: Vec<(&Key, Vec<Bytes>)>,
) -> Result<Vec<Vec<Bytes>>, DriverError> {
    let mut frames = Vec::new();
    if link.abilities().field_expiry {
        let mut pipeline = Pipeline::default();
        for (key, elements) in &hashes {
            let count = (elements.len() / 2).to_string();
            let mut args: Vec<&[u8]> = vec![b"HPEXPIRETIME", key, b"FIELDS", count.as_bytes()];
            args.extend(elements.chunks_exact(2).map(|pair| pair[0].as_ref()));
            pipeline.push(&args);
        }
        frames = link.call("HPEXPIRETIME", pipeline).await?;
    }
    let mut frames = frames.into_iter();
    let mut complete = Vec::with_capacity(hashes.len());
    for (_, elements) in hashes {
        let expiries = match frames.next() {
            Some(frame) => unless_changed(link, "HPEXPIRETIME", frame)?.map(|frame| frame.value()),
            None => None,
        };
        let expiries = expiries
            .as_ref()
            .and_then(Value::as_array)
            .unwrap_or_default();
        let pairs = elements.chunks_exact(2).enumerate();
        let triples = pairs.flat_map(|(rank, pair)| {
            let expiry = expiries
                .get(rank)
                .and_then(Value::as_integer)
                .filter(|ms| *ms > 0);
            [
                pair[0].clone(),
                pair[1].clone(),
                expiry.map_or_else(Bytes::new, |ms| ms.to_string().into()),
            ]
        });
        complete.push(triples.collect());
    }
    Ok(complete)
}

/// Adds the commands that append elements to `key`, if there are any.
pub(super) fn push_write(pipeline: &mut Pipeline, shape: Shape, key: &[u8], elements: &[&[u8]]) {
    if elements.is_empty() {
        return;
    }
    let mut args: Vec<&[u8]> = Vec::with_capacity(2 + elements.len());
    match shape {
        Shape::Text => args.extend([b"APPEND", key]),
        Shape::List => args.extend([b"RPUSH", key]),
        Shape::Set => args.extend([b"SADD", key]),
        Shape::Hash => args.extend([b"HSET", key]),
        Shape::SortedSet => args.extend([b"ZADD", key]),
    }
    match shape {
        Shape::Text | Shape::List | Shape::Set => args.extend(elements),
        Shape::Hash => args.extend(
            elements
                .chunks_exact(3)
                .flat_map(|field| [field[0], field[1]]),
        ),
        Shape::SortedSet => {
            args.extend(elements.chunks_exact(2).flat_map(|pair| [pair[1], pair[0]]))
        }
    }
    pipeline.push(&args);
    if shape == Shape::Hash {
        for field in elements
            .chunks_exact(3)
            .filter(|field| !field[2].is_empty())
        {
            pipeline.push(&[b"HPEXPIREAT", key, field[2], b"FIELDS", b"1", field[0]]);
        }
    }
}
