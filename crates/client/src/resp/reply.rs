//! Where a server's reply ends, in RESP2 and RESP3.
//!
//! Only the frame is understood, not the content: a scalar ends at its line end or its declared
//! length, an aggregate with its last element. Aggregates nest up to [`REPLY_DEPTH_MAX`]; the open
//! ones are a fixed array of counters, so that no reply makes the scanner allocate. Attributes in
//! front of a value belong to that value; out-of-band pushes are told apart from replies. Streamed
//! strings and aggregates (`$?`), which no server sends today, are errors.
//!
//! A reply over the limit can be [skipped](ReplyScan::Skip) as it arrives, so that it costs its own
//! request an answer and nobody else anything.
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

/// What is at the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyScan {
    /// No whole reply yet: more bytes are needed.
    More,
    /// So many bytes, of a reply over the limit: drop them and go on behind them.
    Skip(usize),
    /// A whole reply.
    Reply(Reply),
    /// The end of a reply over the limit.
    TooLong {
        /// What is left of it at the front of the input.
        rest: Reply,
        /// Bytes it had in all.
        whole: u64,
    },
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
    /// Bytes of this reply that were skipped; not zero only if it is over the limit.
    skipped: u64,
    /// A string over the limit is passing by; `at` is where it ends, perhaps behind the input.
    in_string: bool,
}

/// What one header opens.
enum Element {
    /// A value that ends at this offset.
    Scalar { end: usize },
    /// A string that ends at this offset, which has not arrived, of a reply over the limit.
    Passing { end: usize },
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
            skipped: 0,
            in_string: false,
        }
    }

    /// Looks for a reply at the front of `input`; `None` means more bytes are needed. One over the
    /// limit is an error.
    pub fn scan(&mut self, input: &[u8]) -> Result<Option<Reply>, ReplyError> {
        match self.scan_or_skip(input)? {
            ReplyScan::More => Ok(None),
            ReplyScan::Reply(reply) => Ok(Some(reply)),
            ReplyScan::Skip(_) | ReplyScan::TooLong { .. } => Err(ReplyError::TooLong {
                limit: self.bytes_max,
            }),
        }
    }

    /// The same, and passes over a reply that is over the limit: no more of it than the limit need
    /// ever be kept.
    ///
    /// ```
    /// use clockwise_client::resp::{ReplyScan, ReplyScanner};
    ///
    /// let mut scanner = ReplyScanner::new(8);
    /// assert_eq!(scanner.scan_or_skip(b"$9\r\n1234"), Ok(ReplyScan::Skip(8)));
    /// let Ok(ReplyScan::TooLong { rest, whole }) = scanner.scan_or_skip(b"56789\r\n+OK\r\n") else {
    ///     panic!("its end has arrived");
    /// };
    /// assert_eq!((rest.bytes, whole), (7, 15));
    /// ```
    pub fn scan_or_skip(&mut self, input: &[u8]) -> Result<ReplyScan, ReplyError> {
        loop {
            let passed = if self.in_string {
                self.end_string(input)?
            } else {
                self.step(input)?
            };
            if !passed {
                return Ok(self.wait(input));
            }
            if self.in_string {
                continue;
            }
            while self.missing[self.depth] == 0 {
                if self.depth == 0 {
                    return Ok(self.finish());
                }
                self.depth -= 1;
            }
        }
    }

    /// Passes the line end of a string over the limit. Says whether it was there.
    fn end_string(&mut self, input: &[u8]) -> Result<bool, ReplyError> {
        let end = line_end_at(input, self.at)?;
        if let Some(end) = end {
            (self.at, self.in_string) = (end, false);
        }
        Ok(end.is_some())
    }

    /// Passes one header, and its value if that has arrived. Says whether there was one.
    fn step(&mut self, input: &[u8]) -> Result<bool, ReplyError> {
        let Some(kind) = input.get(self.at).copied() else {
            return Ok(false);
        };
        let Some(element) = self.element(kind, input)? else {
            return Ok(false);
        };
        self.searched = 0;
        match element {
            Element::Scalar { end } => {
                self.at = end;
                self.count(kind);
            }
            Element::Passing { end } => {
                (self.at, self.in_string) = (end, true);
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
        Ok(true)
    }

    /// The input ends within a reply: of one over the limit, what is understood can go.
    fn wait(&mut self, input: &[u8]) -> ReplyScan {
        let too_long = self.in_string || self.skipped > 0 || input.len() > self.bytes_max;
        let understood = self.at.min(input.len());
        if !too_long || understood == 0 {
            return ReplyScan::More;
        }
        self.at -= understood;
        self.skipped += understood as u64;
        ReplyScan::Skip(understood)
    }

    fn finish(&mut self) -> ReplyScan {
        let reply = Reply {
            bytes: self.at,
            kind: self.kind,
        };
        let whole = self.skipped + reply.bytes as u64;
        (self.at, self.skipped) = (0, 0);
        self.missing[0] = 1;
        if whole > self.bytes_max as u64 {
            ReplyScan::TooLong { rest: reply, whole }
        } else {
            ReplyScan::Reply(reply)
        }
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
        let too_long = end > self.bytes_max || self.skipped > 0;
        Ok(match line_end_at(input, end)? {
            Some(end) => Some(Element::Scalar { end }),
            None if too_long => Some(Element::Passing { end }),
            None => None,
        })
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

/// The offset behind the line end that must be at `at`; `None` if it has not arrived.
fn line_end_at(input: &[u8], at: usize) -> Result<Option<usize>, ReplyError> {
    match (input.get(at), input.get(at + 1)) {
        (Some(b'\r'), Some(b'\n')) => Ok(Some(at + 2)),
        (None, _) | (Some(b'\r'), None) => Ok(None),
        _ => Err(ReplyError::NoLineEnd),
    }
}
