//! Where a server's reply ends.
//!
//! A reply is one line; or items, each a line and a value, up to `END`; or statistics, lines up to `END`; or a
//! meta answer, a line and a value. Which of these it is shows its first word, so that a scanner needs to
//! know nothing of requests. What is not plainly a reply is an error, and after an error the connection
//! must go.
//!
//! A reply over the limit can be [skipped](ReplyScan::Skip) as it arrives, so that it costs its own request an
//! answer and nobody else anything.

use super::line::{line, unsigned};

/// Bytes of a line of a server: a key, and numbers around it. The longest are those of statistics.
const LINE_BYTES_MAX: usize = 8 << 10;

/// A whole reply at the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its bytes.
    pub bytes: usize,
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
    /// No reply starts so, or it does not go on so.
    #[error("no reply begins so")]
    Unknown,
    /// A length is no number a server writes.
    #[error("malformed length in a reply")]
    Length,
    /// A line or a value does not end where it must.
    #[error("missing line end in a reply")]
    NoLineEnd,
}

/// What the lines seen so far make of the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    /// It is the first.
    #[default]
    Nothing,
    /// Items, up to `END`.
    Items,
    /// Statistics, up to `END`.
    Statistics,
}

/// Finds replies in a stream of bytes. Keeps its place in an unfinished one: give it the same bytes again
/// with more behind them.
#[derive(Debug)]
pub struct ReplyScanner {
    within: Within,
    /// Offset of the next line, or of the end of the value that is passing by.
    at: usize,
    /// Bytes of the line at `at` known to hold no line end.
    searched: usize,
    bytes_max: usize,
    /// Bytes of this reply that were skipped; not zero only if it is over the limit.
    skipped: u64,
    /// A value that has not arrived ends at `at`.
    passing: bool,
    /// The reply ends with that value.
    last: bool,
}

/// What one line opens.
enum Part {
    /// Nothing: the reply ends with it.
    End,
    /// More lines.
    Lines(Within),
    /// A value of so many bytes.
    Value { bytes: usize, within: Within },
}

impl ReplyScanner {
    /// A scanner that takes replies of up to `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            within: Within::Nothing,
            at: 0,
            searched: 0,
            bytes_max,
            skipped: 0,
            passing: false,
            last: false,
        }
    }

    /// Looks for a reply at the front of `input`, and passes over one that is over the limit: no more of it
    /// than the limit and a line need ever be kept.
    ///
    /// ```
    /// use clockwise_client::memcached::{Reply, ReplyScan, ReplyScanner};
    ///
    /// let mut scanner = ReplyScanner::new(1 << 20);
    /// assert_eq!(scanner.scan(b"VALUE a 0 2\r\nhi\r\nEN"), Ok(ReplyScan::More));
    /// let whole = b"VALUE a 0 2\r\nhi\r\nEND\r\nSTORED\r\n";
    /// assert_eq!(scanner.scan(whole), Ok(ReplyScan::Reply(Reply { bytes: 22 })));
    /// ```
    ///
    /// # Errors
    /// What is no reply.
    pub fn scan(&mut self, input: &[u8]) -> Result<ReplyScan, ReplyError> {
        loop {
            let ended = match self.passing {
                true => self.end_value(input)?,
                false => self.step(input)?,
            };
            match ended {
                None => return Ok(self.wait(input)),
                Some(true) => return Ok(self.finish()),
                Some(false) => {}
            }
        }
    }

    /// Passes the end of a value. Says whether the reply ends with it; `None` if it has not arrived.
    fn end_value(&mut self, input: &[u8]) -> Result<Option<bool>, ReplyError> {
        match (input.get(self.at), input.get(self.at + 1)) {
            (Some(b'\r'), Some(b'\n')) => {
                self.at += 2;
                self.passing = false;
                Ok(Some(self.last))
            }
            (None, _) | (Some(b'\r'), None) => Ok(None),
            _ => Err(ReplyError::NoLineEnd),
        }
    }

    /// Passes one line. Says whether the reply ends with it; `None` if it has not arrived.
    fn step(&mut self, input: &[u8]) -> Result<Option<bool>, ReplyError> {
        let Some(rest) = input.get(self.at..) else {
            return Ok(None);
        };
        let Some(line) = line(rest, self.searched) else {
            self.searched = rest.len();
            return match rest.len() > LINE_BYTES_MAX {
                true => Err(ReplyError::NoLineEnd),
                false => Ok(None),
            };
        };
        if line.whole != line.content + 2 {
            return Err(ReplyError::NoLineEnd);
        }
        let part = part(self.within, &rest[..line.content])?;
        self.searched = 0;
        self.at += line.whole;
        Ok(Some(match part {
            Part::End => true,
            Part::Lines(within) => {
                self.within = within;
                false
            }
            Part::Value { bytes, within } => {
                self.at = self.at.checked_add(bytes).ok_or(ReplyError::Length)?;
                (self.passing, self.within) = (true, within);
                self.last = within == Within::Nothing;
                false
            }
        }))
    }

    /// The input ends within a reply: of one over the limit, what is understood can go.
    fn wait(&mut self, input: &[u8]) -> ReplyScan {
        let too_long = self.skipped > 0
            || input.len() > self.bytes_max
            || (self.passing && self.at > self.bytes_max);
        let understood = self.at.min(input.len());
        if !too_long || understood == 0 {
            return ReplyScan::More;
        }
        self.at -= understood;
        self.skipped += understood as u64;
        ReplyScan::Skip(understood)
    }

    fn finish(&mut self) -> ReplyScan {
        let reply = Reply { bytes: self.at };
        let whole = self.skipped + reply.bytes as u64;
        (self.at, self.skipped, self.within) = (0, 0, Within::Nothing);
        match whole > self.bytes_max as u64 {
            true => ReplyScan::TooLong { rest: reply, whole },
            false => ReplyScan::Reply(reply),
        }
    }
}

/// What a line opens.
fn part(within: Within, line: &[u8]) -> Result<Part, ReplyError> {
    let mut words = line.split(|byte| *byte == b' ');
    let first = words.next().unwrap_or_default();
    match (within, first) {
        (Within::Nothing | Within::Items, b"VALUE") => {
            let bytes = words.nth(2).and_then(unsigned);
            let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
            Ok(Part::Value {
                bytes: bytes.ok_or(ReplyError::Length)?,
                within: Within::Items,
            })
        }
        (Within::Nothing | Within::Statistics, b"STAT") => Ok(Part::Lines(Within::Statistics)),
        (Within::Nothing, b"VA") => {
            let bytes = words.next().and_then(unsigned);
            let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
            Ok(Part::Value {
                bytes: bytes.ok_or(ReplyError::Length)?,
                within: Within::Nothing,
            })
        }
        (_, b"END") => Ok(Part::End),
        (Within::Nothing, word) if is_code(word) => Ok(Part::End),
        _ => Err(ReplyError::Unknown),
    }
}

/// Whether a line that is a whole reply begins with this word.
fn is_code(word: &[u8]) -> bool {
    let upper = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'_' || *byte == b':';
    let word_of_ours = word.len() >= 2 && word.iter().all(upper);
    word_of_ours || unsigned(word).is_some()
}
