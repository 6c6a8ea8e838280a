//! Where a server's reply ends, in RESP2 and RESP3.
//!
//! Only the frame is understood, not the content: a scalar ends at its line end or its declared
//! length, an aggregate with its last element. Aggregates nest up to [`REPLY_DEPTH_MAX`]; the open
//! ones are a fixed array of counters, so that no reply makes the scanner allocate. Attributes in
//! front of a value belong to that value; out-of-band pushes are told apart from replies. Streamed
//! strings and aggregates (`$?`), which no server sends today, are errors.
//!
//! Whatever is not plainly a frame is an error, and after an error the connection must go: a reply
//! handed to the wrong request is worse than no reply.

use super::length::{self, Length};

/// Aggregates inside aggregates that are followed; servers reply with fewer than ten.
pub const REPLY_DEPTH_MAX: usize = 64;

/// Bytes of a line that is no string of declared length: statuses, errors, numbers.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A whole reply at the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its bytes, attributes in front included.
    pub bytes: usize,
    /// Its first byte, behind attributes: `+ - : $ * % ~ # , ( _ ! = >`.
    pub kind: u8,
}

impl Reply {
    /// Whether this is no answer to a request but a message of the server's own accord.
    pub fn is_push(self) -> bool {
        self.kind == b'>'
    }

    /// Whether the server answers with an error.
    pub fn is_error(self) -> bool {
        matches!(self.kind, b'-' | b'!')
    }
}

/// Why a server's bytes are no reply. The connection cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// No reply starts with this byte.
    #[error("a reply cannot start with '{}'", char::from(*got).escape_default())]
    UnknownType {
        /// The byte found.
        got: u8,
    },
    /// A length or count is no number a server writes.
    #[error("malformed length in a reply")]
    Length,
    /// A line or a string does not end where it must.
    #[error("missing line end in a reply")]
    NoLineEnd,
    /// Aggregates nest deeper than [`REPLY_DEPTH_MAX`].
    #[error("reply nested deeper than {REPLY_DEPTH_MAX}")]
    TooDeep,
    /// A reply is longer than the limit given.
    #[error("reply longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
}

/// Finds replies in a stream of bytes. Keeps its place in an unfinished one: give it the same bytes
/// again with more behind them.
#[derive(Debug)]
pub struct ReplyScanner {
    /// Offset of the next header.
    at: usize,
    /// Bytes of the line at `at` known to hold no line end.
    searched: usize,
    /// Elements still missing in each open aggregate; the first entry stands for the reply itself.
    missing: [u64; REPLY_DEPTH_MAX + 1],
    depth: usize,
    kind: u8,
    bytes_max: usize,
}

/// What one header opens.
enum Element {
    /// A value that ends at this offset.
    Scalar { end: usize },
    /// So many elements follow from this offset. `counts` is false for an attribute, which stands
    /// in front of the value it describes.
    Aggregate {
        elements: u64,
        from: usize,
        counts: bool,
    },
}

impl ReplyScanner {
    /// A scanner that takes replies of up to `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        let mut missing = [0; REPLY_DEPTH_MAX + 1];
        missing[0] = 1;
        Self {
            at: 0,
            searched: 0,
            missing,
            depth: 0,
            kind: 0,
            bytes_max,
        }
    }

    /// Looks for a reply at the front of `input`; `None` means more bytes are needed.
    pub fn scan(&mut self, input: &[u8]) -> Result<Option<Reply>, ReplyError> {
        loop {
            let Some(kind) = input.get(self.at).copied() else {
                return self.wait(input);
            };
            let Some(element) = self.element(kind, input)? else {
                return self.wait(input);
            };
            self.searched = 0;
            match element {
                Element::Scalar { end } => {
                    self.at = end;
                    self.count(kind);
                }
                Element::Aggregate {
                    elements,
                    from,
                    counts,
                } => {
                    self.at = from;
                    if counts {
                        self.count(kind);
                    }
                    self.open(elements)?;
                }
            }
            while self.missing[self.depth] == 0 {
                if self.depth == 0 {
                    return self.finish().map(Some);
                }
                self.depth -= 1;
            }
        }
    }

    /// Bytes of the unfinished reply that have been understood.
    pub fn scanned(&self) -> usize {
        self.at
    }

    fn wait(&self, input: &[u8]) -> Result<Option<Reply>, ReplyError> {
        if input.len() > self.bytes_max {
            Err(ReplyError::TooLong {
                limit: self.bytes_max,
            })
        } else {
            Ok(None)
        }
    }

    fn finish(&mut self) -> Result<Reply, ReplyError> {
        let reply = Reply {
            bytes: self.at,
            kind: self.kind,
        };
        if reply.bytes > self.bytes_max {
            return Err(ReplyError::TooLong {
                limit: self.bytes_max,
            });
        }
        self.at = 0;
        self.missing[0] = 1;
        Ok(reply)
    }

    /// One element of the innermost open aggregate has begun.
    fn count(&mut self, kind: u8) {
        if self.depth == 0 {
            self.kind = kind;
        }
        self.missing[self.depth] -= 1;
    }

    fn open(&mut self, elements: u64) -> Result<(), ReplyError> {
        if elements == 0 {
            return Ok(());
        }
        if self.depth == REPLY_DEPTH_MAX {
            return Err(ReplyError::TooDeep);
        }
        self.depth += 1;
        self.missing[self.depth] = elements;
        Ok(())
    }

    fn element(&mut self, kind: u8, input: &[u8]) -> Result<Option<Element>, ReplyError> {
        match kind {
            b'+' | b'-' | b':' | b',' | b'(' | b'#' | b'_' => {
                let end = self.line_end(input)?;
                Ok(end.map(|end| Element::Scalar { end }))
            }
            b'$' | b'!' | b'=' => self.string(kind, input),
            b'*' | b'~' | b'>' | b'%' | b'|' => self.aggregate(kind, input),
            got => Err(ReplyError::UnknownType { got }),
        }
    }

    /// The offset behind the line that starts at `at`.
    fn line_end(&mut self, input: &[u8]) -> Result<Option<usize>, ReplyError> {
        let from = self.at + self.searched;
        let Some(offset) = memchr::memchr(b'\r', &input[from..]) else {
            self.searched = input.len() - self.at;
            return if self.searched > LINE_BYTES_MAX {
                Err(ReplyError::NoLineEnd)
            } else {
                Ok(None)
            };
        };
        let end = from + offset;
        match input.get(end + 1) {
            Some(b'\n') => Ok(Some(end + 2)),
            Some(_) => Err(ReplyError::NoLineEnd),
            None => {
                self.searched = end - self.at;
                Ok(None)
            }
        }
    }

    fn string(&self, kind: u8, input: &[u8]) -> Result<Option<Element>, ReplyError> {
        let (bytes, from) = match length::read(input, self.at + 1) {
            Length::More => return Ok(None),
            Length::Malformed => return Err(ReplyError::Length),
            // RESP2's way to say that there is no value.
            Length::Is(-1, behind) if kind == b'$' => {
                return Ok(Some(Element::Scalar { end: behind }));
            }
            Length::Is(bytes, behind) => (
                usize::try_from(bytes).map_err(|_| ReplyError::Length)?,
                behind,
            ),
        };
        let end = from.saturating_add(bytes);
        if end > self.bytes_max {
            return Err(ReplyError::TooLong {
                limit: self.bytes_max,
            });
        }
        match (input.get(end), input.get(end + 1)) {
            (Some(b'\r'), Some(b'\n')) => Ok(Some(Element::Scalar { end: end + 2 })),
            (None, _) | (Some(b'\r'), None) => Ok(None),
            _ => Err(ReplyError::NoLineEnd),
        }
    }

    fn aggregate(&self, kind: u8, input: &[u8]) -> Result<Option<Element>, ReplyError> {
        let (count, from) = match length::read(input, self.at + 1) {
            Length::More => return Ok(None),
            Length::Malformed => return Err(ReplyError::Length),
            Length::Is(-1, behind) if kind == b'*' => {
                return Ok(Some(Element::Scalar { end: behind }));
            }
            Length::Is(count, behind) => (
                u64::try_from(count).map_err(|_| ReplyError::Length)?,
                behind,
            ),
        };
        let elements = if matches!(kind, b'%' | b'|') {
            count * 2
        } else {
            count
        };
        Ok(Some(Element::Aggregate {
            elements,
            from,
            counts: kind != b'|',
        }))
    }
}
