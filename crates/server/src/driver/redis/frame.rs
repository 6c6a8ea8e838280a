//! One reply as it came, and one pipeline as it goes.
//!
//! Most replies of a move are strings and integers by the hundred thousand: they are read in place,
//! without a copy. Only nested ones become a tree.

use bytes::Bytes;
use clockwise_client::resp::{Reply, Value, write_command};

/// One reply of the server, still in its own bytes.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    bytes: Bytes,
    kind: u8,
}

impl Frame {
    pub(super) fn new(reply: Reply, bytes: Bytes) -> Self {
        Self {
            bytes,
            kind: reply.kind,
        }
    }

    /// Whether the server sent this of its own accord.
    pub(super) fn is_push(&self) -> bool {
        self.kind == b'>'
    }

    /// The words of an error.
    pub(super) fn error(&self) -> Option<String> {
        match self.kind {
            b'-' => Some(String::from_utf8_lossy(self.line()).into_owned()),
            b'!' => match self.value() {
                Value::Error(why) => Some(why),
                other => Some(format!("{other:?}")),
            },
            _ => None,
        }
    }

    /// The bytes of a string or status; `None` for everything else, null included.
    pub(super) fn text(&self) -> Option<Bytes> {
        match self.kind {
            b'$' => {
                let header = memchr::memchr(b'\n', &self.bytes)? + 1;
                let end = self.bytes.len() - 2;
                // A null is a header alone.
                (header <= end).then(|| self.bytes.slice(header..end))
            }
            b'+' => Some(self.bytes.slice(1..self.bytes.len() - 2)),
            _ => None,
        }
    }

    /// The number.
    pub(super) fn integer(&self) -> Option<i64> {
        if self.kind != b':' {
            return None;
        }
        std::str::from_utf8(self.line()).ok()?.parse().ok()
    }

    /// The number, where it counts something.
    pub(super) fn count(&self) -> Option<u64> {
        u64::try_from(self.integer()?).ok()
    }

    /// The strings and arrays of the reply one after the other, in place.
    pub(super) fn strings(&self) -> Strings<'_> {
        Strings {
            bytes: &self.bytes,
            at: 0,
        }
    }

    /// The reply as a tree.
    pub(super) fn value(&self) -> Value {
        match Value::parse(&self.bytes) {
            Ok(Some((value, _))) => value,
            // The scanner found a whole reply in these bytes.
            Ok(None) | Err(_) => Value::Null,
        }
    }

    fn line(&self) -> &[u8] {
        &self.bytes[1..self.bytes.len() - 2]
    }
}

/// Reads a reply of arrays and strings from its beginning.
pub(super) struct Strings<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl Strings<'_> {
    /// The elements of the array that begins here; `None` when none does.
    pub(super) fn array(&mut self) -> Option<usize> {
        self.header(b'*')
    }

    /// The string that begins here, as a slice of the reply.
    pub(super) fn string(&mut self) -> Option<Bytes> {
        let length = self.header(b'$')?;
        let end = self.at.checked_add(length)?;
        let string = (end + 2 <= self.bytes.len()).then(|| self.bytes.slice(self.at..end))?;
        self.at = end + 2;
        Some(string)
    }

    /// The string that begins here, or nothing where a null does.
    pub(super) fn string_or_null(&mut self) -> Option<Option<Bytes>> {
        let rest = self.bytes.get(self.at..)?;
        for null in [&b"_\r\n"[..], b"$-1\r\n"] {
            if rest.starts_with(null) {
                self.at += null.len();
                return Some(None);
            }
        }
        self.string().map(Some)
    }

    fn header(&mut self, kind: u8) -> Option<usize> {
        let rest = self.bytes.get(self.at..)?;
        let line = &rest[..memchr::memchr(b'\r', rest)?];
        let number = line.strip_prefix(&[kind])?;
        self.at += line.len() + 2;
        std::str::from_utf8(number).ok()?.parse().ok()
    }
}

/// Commands that go out in one write and are answered in order.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    pub(super) bytes: Vec<u8>,
    pub(super) commands: usize,
}

impl Pipeline {
    /// Room for `commands` of about `bytes` each.
    pub(super) fn with_capacity(commands: usize, bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(commands.saturating_mul(bytes)),
            commands: 0,
        }
    }

    /// One command alone.
    pub(super) fn of(args: &[&[u8]]) -> Self {
        let mut pipeline = Self::default();
        pipeline.push(args);
        pipeline
    }

    pub(super) fn push(&mut self, args: &[&[u8]]) {
        write_command(&mut self.bytes, args);
        self.commands += 1;
    }

    /// The commands of another behind these.
    pub(super) fn append(&mut self, other: Self) {
        self.bytes.extend_from_slice(&other.bytes);
        self.commands += other.commands;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands == 0
    }
}
