//! Collections by pieces: which command gives the next elements, and which one adds them.
//!
//! A piece's elements are a flat list. A hash gives fields and values in turn, a sorted set members
//! and scores; a string is one element. Content that does not change while it is read comes exactly
//! once, whatever the server does to its tables meanwhile; content that changes is dirty and comes
//! again.

use clockwise_client::resp::Value;

use super::copy::read_scan;
use super::frame::{Frame, Pipeline};
use super::survey::Shape;
use crate::driver::Key;

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

    /// The elements read, and the next place unless these were the last. `None`: no such reply.
    pub(super) fn read(&self, frame: &Frame) -> Option<(Vec<bytes::Bytes>, Option<Self>)> {
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

/// Adds the command that appends elements to `key`, if there are any.
pub(super) fn push_write(pipeline: &mut Pipeline, shape: Shape, key: &[u8], elements: &[&[u8]]) {
    if elements.is_empty() {
        return;
    }
    let command: &[u8] = match shape {
        Shape::Text => b"APPEND",
        Shape::List => b"RPUSH",
        Shape::Set => b"SADD",
        Shape::Hash => b"HSET",
        Shape::SortedSet => b"ZADD",
    };
    let mut args = Vec::with_capacity(2 + elements.len());
    args.extend([command, key]);
    if shape == Shape::SortedSet {
        args.extend(elements.chunks_exact(2).flat_map(|pair| [pair[1], pair[0]]));
    } else {
        args.extend(elements);
    }
    pipeline.push(&args);
}
