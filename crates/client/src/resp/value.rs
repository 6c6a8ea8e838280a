//! A reply as a tree, for the few places that read content rather than pass it on.

use super::reply::{REPLY_DEPTH_MAX, Reply, ReplyError, ReplyScanner};

/// One reply of a server.
///
/// RESP3's richer forms are kept apart only where the difference carries meaning.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value: `$-1`, `*-1` or `_`.
    Null,
    /// A status line.
    Simple(String),
    /// An error, its code word included.
    Error(String),
    /// A number, or a boolean as 0 and 1.
    Integer(i64),
    /// A floating point or big number as the server wrote it.
    Number(String),
    /// A string of any bytes; of a verbatim string, the text behind its format.
    Bulk(Vec<u8>),
    /// An array, a set or a push.
    Array(Vec<Value>),
    /// A map, in the server's order.
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// Reads one reply from the front of `input`, and says how many bytes it took; `None` when it is
    /// not all there. Attributes are passed over.
    ///
    /// Cost: one allocation an aggregate and one a string. Memory is taken for elements that are
    /// there, not for those announced.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, ReplyError> {
        let Some(Reply { bytes, .. }) = ReplyScanner::new(usize::MAX).scan(input)? else {
            return Ok(None);
        };
        let mut rest = &input[..bytes];
        Ok(Some((parse(&mut rest, 0)?, bytes)))
    }

    /// The bytes of a string or status.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bulk(bytes) => Some(bytes),
            Self::Simple(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    /// The text of a string or status.
    pub fn as_text(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()?).ok()
    }

    /// The number.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The elements of an array, set or push.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// Keys and values of a map, also where RESP2 wrote it as one flat array.
    pub fn pairs(&self) -> Vec<(&Value, &Value)> {
        match self {
            Self::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
            Self::Array(elements) => elements
                .chunks_exact(2)
                .map(|pair| (&pair[0], &pair[1]))
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// Parses one value whose frame the scanner has found whole.
fn parse(rest: &mut &[u8], depth: usize) -> Result<Value, ReplyError> {
    if depth > REPLY_DEPTH_MAX {
        return Err(ReplyError::TooDeep);
    }
    while rest.first() == Some(&b'|') {
        let (_, line) = line(rest)?;
        let count = count(line)?.unwrap_or(0);
        pairs(rest, count, depth)?;
    }
    let (kind, line) = line(rest)?;
    let text = || String::from_utf8_lossy(line).into_owned();
    Ok(match kind {
        b'+' => Value::Simple(text()),
        b'-' => Value::Error(text()),
        b'_' => Value::Null,
        b'#' => Value::Integer(i64::from(line == b"t")),
        b',' | b'(' => Value::Number(text()),
        b':' => Value::Integer(text().parse().map_err(|_| ReplyError::Length)?),
        _ => {
            let Some(count) = count(line)? else {
                return Ok(Value::Null);
            };
            match kind {
                b'$' | b'!' | b'=' => string(kind, count, rest),
                b'%' => Value::Map(pairs(rest, count, depth)?),
                _ => Value::Array(elements(rest, count, depth)?),
            }
        }
    })
}

/// Takes a line off the front: its type byte, and its text without the line end.
fn line<'a>(rest: &mut &'a [u8]) -> Result<(u8, &'a [u8]), ReplyError> {
    let end = memchr::memchr(b'\r', rest)
        .filter(|end| *end > 0)
        .ok_or(ReplyError::NoLineEnd)?;
    let (kind, line) = (rest[0], &rest[1..end]);
    *rest = &rest[end + 2..];
    Ok((kind, line))
}

/// A count or length; `None` for the -1 that stands for no value.
fn count(line: &[u8]) -> Result<Option<usize>, ReplyError> {
    let text = std::str::from_utf8(line).map_err(|_| ReplyError::Length)?;
    match text.parse::<i64>().map_err(|_| ReplyError::Length)? {
        -1 => Ok(None),
        count => usize::try_from(count)
            .map(Some)
            .map_err(|_| ReplyError::Length),
    }
}

fn string(kind: u8, bytes: usize, rest: &mut &[u8]) -> Value {
    let content = &rest[..bytes];
    *rest = &rest[bytes + 2..];
    match kind {
        b'!' => Value::Error(String::from_utf8_lossy(content).into_owned()),
        // Three letters and a colon say how a verbatim string is meant.
        b'=' => Value::Bulk(content.get(4..).unwrap_or_default().to_vec()),
        _ => Value::Bulk(content.to_vec()),
    }
}

fn elements(rest: &mut &[u8], count: usize, depth: usize) -> Result<Vec<Value>, ReplyError> {
    (0..count).map(|_| parse(rest, depth + 1)).collect()
}

fn pairs(rest: &mut &[u8], count: usize, depth: usize) -> Result<Vec<(Value, Value)>, ReplyError> {
    (0..count)
        .map(|_| Ok((parse(rest, depth + 1)?, parse(rest, depth + 1)?)))
        .collect()
}
