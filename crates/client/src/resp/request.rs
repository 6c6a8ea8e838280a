//! Where a client's request ends, and where its arguments lie.
//!
//! A request is an array of strings, or an inline line. It is accepted only in the one form in
//! which servers read it without ambiguity, so that an accepted frame can be passed on as it came:
//! lengths without sign, zeros or spaces, `\r\n` where it belongs (servers do not look at the two
//! bytes behind a string; we do). Cost: each byte of a header is looked at once or twice, payloads
//! are skipped by their length.
//!
//! What is too large but well formed is [skipped](Scan::Skip) as it arrives and then
//! [refused](Scan::Refused): its payload is never read as commands and the connection can stay.
//! What breaks the grammar is a [`ProtocolError`]: nothing behind it can be trusted.

use std::ops::Range;

use super::inline;
use super::length::{self, Length};

/// What a request may cost before it is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Elements of an array. A larger declared count is a protocol error, like for servers.
    pub elements_max: u32,
    /// Bytes of one argument.
    pub bulk_bytes_max: u32,
    /// Bytes of a whole request, headers included; below 4 GiB.
    pub request_bytes_max: u32,
    /// Bytes of an inline line, its end included.
    pub inline_bytes_max: u32,
    /// Bytes of a refused request that are still read and dropped; beyond, a protocol error.
    pub skip_bytes_max: u64,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            elements_max: 1_048_576,
            bulk_bytes_max: 64 << 20,
            request_bytes_max: 65 << 20,
            // What servers take; people paste long lines.
            inline_bytes_max: 64 << 10,
            // What servers take as one string by default: a client of theirs may send it in good faith.
            skip_bytes_max: 1 << 30,
        }
    }
}

impl RequestLimits {
    /// For clients that have not yet said who they are: the little a login needs.
    pub const UNAUTHENTICATED: Self = Self {
        elements_max: 10,
        bulk_bytes_max: 16 << 10,
        request_bytes_max: 64 << 10,
        inline_bytes_max: 16 << 10,
        skip_bytes_max: 0,
    };
}

/// Why a request's sender cannot be understood any further. After the answer the connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The element count is no number a server takes, or beyond the limit.
    #[error("Protocol error: invalid multibulk length")]
    Elements,
    /// A string's length is no number a server takes, or too large even to be skipped.
    #[error("Protocol error: invalid bulk length")]
    Bulk,
    /// An element does not start as a string.
    #[error("Protocol error: expected '$', got '{}'", char::from(*got).escape_default())]
    NotABulk {
        /// The byte found.
        got: u8,
    },
    /// A string is not followed by a line end.
    #[error("Protocol error: expected line end after a string of the declared length")]
    NoLineEnd,
    /// An inline line is longer than the limit.
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
    /// The words of an inline line cannot be told apart.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The request as a whole is too large even to be skipped.
    #[error("Protocol error: too big request")]
    TooLargeToSkip,
}

/// Why a well formed request is not taken. The connection can go on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// One argument is too long.
    #[error("an argument of {bytes} bytes is over the limit of {limit}")]
    Argument {
        /// Its declared length.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The request is too long in all.
    #[error("a request of more than {limit} bytes is over the limit")]
    Request {
        /// The limit.
        limit: u64,
    },
}

/// The place of one argument in its request's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgSpan {
    start: u32,
    len: u32,
}

impl ArgSpan {
    pub(crate) fn new(start: usize, len: usize) -> Self {
        let fit = |number| u32::try_from(number).expect("requests are limited to less than 4 GiB");
        Self {
            start: fit(start),
            len: fit(len),
        }
    }

    /// As a range of the frame.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }

    /// Bytes of the argument.
    pub fn len(self) -> usize {
        self.len as usize
    }

    /// Whether the argument is the empty string.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// One whole request: its canonical bytes and the places of its arguments. There is at least one.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    frame: &'a [u8],
    args: &'a [ArgSpan],
}

impl<'a> Request<'a> {
    /// The request as an array of strings, fit to be sent to a server.
    pub fn frame(&self) -> &'a [u8] {
        self.frame
    }

    /// Arguments, the command's name included.
    pub fn count(&self) -> usize {
        self.args.len()
    }

    /// The argument at `index`; 0 is the command's name.
    ///
    /// # Panics
    /// When `index` is not below [`count`](Self::count).
    pub fn arg(&self, index: usize) -> &'a [u8] {
        &self.frame[self.args[index].range()]
    }

    /// The argument at `index`, where there is one.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.args.get(index).map(|span| &self.frame[span.range()])
    }

    /// The place of the argument at `index` in the [`frame`](Self::frame).
    ///
    /// # Panics
    /// When `index` is not below [`count`](Self::count).
    pub fn span(&self, index: usize) -> ArgSpan {
        self.args[index]
    }

    /// All arguments in order.
    pub fn args(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let frame = self.frame;
        self.args.iter().map(move |span| &frame[span.range()])
    }
}

/// What the bytes so far amount to.
#[derive(Debug)]
pub enum Scan<'a> {
    /// Not yet a whole request. Keep the bytes and call again with more behind them.
    More,
    /// Drop so many bytes from the front and call again: empty requests, or parts of a refused one.
    Skip(usize),
    /// A request; drop `consumed` bytes when done with it.
    Request {
        /// Bytes of the input it took.
        consumed: usize,
        /// The request.
        request: Request<'a>,
    },
    /// A request that is too large has passed by; drop `consumed` bytes and answer the refusal.
    Refused {
        /// Bytes of the input its last part took.
        consumed: usize,
        /// Why.
        refusal: Refusal,
    },
}

/// Finds requests in a stream of bytes. Keeps its place in an unfinished one, hence one scanner a
/// connection, and always the same bytes in front until it says otherwise.
#[derive(Debug, Default)]
pub struct RequestScanner {
    progress: Progress,
    args: Vec<ArgSpan>,
    inline_frame: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Progress {
    /// At the first byte of a request.
    #[default]
    Start,
    /// In an inline line; its first `searched` bytes hold no end.
    Line { searched: usize },
    /// In an array: `missing` elements, the next one's header at offset `at`.
    Elements { missing: u32, at: usize },
    /// In an array that will be refused: `payload` bytes of the current string (line end included)
    /// and `missing` elements behind it.
    Skipping {
        missing: u32,
        payload: u64,
        skipped: u64,
        refusal: Refusal,
    },
}

/// Spans kept allocated between requests; what an outsized request needed is given back.
const ARGS_KEPT: usize = 256;

impl RequestScanner {
    /// Looks for the next request at the front of `input`.
    pub fn scan<'a>(
        &'a mut self,
        limits: &RequestLimits,
        input: &'a [u8],
    ) -> Result<Scan<'a>, ProtocolError> {
        match self.progress {
            Progress::Start => match input.first() {
                None => Ok(Scan::More),
                Some(b'*') => self.start_array(limits, input),
                Some(_) => self.line(limits, input, 0),
            },
            Progress::Line { searched } => self.line(limits, input, searched),
            Progress::Elements { missing, at } => self.elements(limits, input, missing, at),
            Progress::Skipping {
                missing,
                payload,
                skipped,
                refusal,
            } => self.skip(
                limits,
                input,
                Skip {
                    missing,
                    payload,
                    skipped,
                    at: 0,
                    refusal,
                },
            ),
        }
    }

    /// Whether a request has begun and is not whole yet.
    pub fn in_request(&self) -> bool {
        !matches!(self.progress, Progress::Start)
    }

    fn start_array<'a>(
        &'a mut self,
        limits: &RequestLimits,
        input: &'a [u8],
    ) -> Result<Scan<'a>, ProtocolError> {
        let (count, at) = match length::read(input, 1) {
            Length::More => return Ok(Scan::More),
            Length::Malformed => return Err(ProtocolError::Elements),
            Length::Is(count, behind) => (count, behind),
        };
        if count <= 0 {
            return Ok(Scan::Skip(at));
        }
        let missing = u32::try_from(count)
            .ok()
            .filter(|count| *count <= limits.elements_max);
        let missing = missing.ok_or(ProtocolError::Elements)?;
        self.args.clear();
        self.args.shrink_to(ARGS_KEPT);
        self.elements(limits, input, missing, at)
    }

    fn elements<'a>(
        &'a mut self,
        limits: &RequestLimits,
        input: &'a [u8],
        mut missing: u32,
        mut at: usize,
    ) -> Result<Scan<'a>, ProtocolError> {
        while missing > 0 {
            let Some((bytes, payload_at)) = bulk_header(input, at)? else {
                self.progress = Progress::Elements { missing, at };
                return Ok(Scan::More);
            };
            if let Some(refusal) = refuse(limits, payload_at, bytes) {
                let payload = bytes + LINE_END;
                let skip = Skip {
                    missing: missing - 1,
                    payload,
                    skipped: 0,
                    at: payload_at,
                    refusal,
                };
                return self.skip(limits, input, skip);
            }
            // Below request_bytes_max, so it fits.
            let end = payload_at + bytes as usize;
            match (input.get(end), input.get(end + 1)) {
                (Some(b'\r'), Some(b'\n')) => {}
                (None, _) | (Some(b'\r'), None) => {
                    self.progress = Progress::Elements { missing, at };
                    return Ok(Scan::More);
                }
                _ => return Err(ProtocolError::NoLineEnd),
            }
            self.args.push(ArgSpan::new(payload_at, end - payload_at));
            at = end + 2;
            missing -= 1;
        }
        self.progress = Progress::Start;
        Ok(Scan::Request {
            consumed: at,
            request: Request {
                frame: &input[..at],
                args: &self.args,
            },
        })
    }

    /// Passes over what is left of a refused request, payload by payload.
    fn skip<'a>(
        &'a mut self,
        limits: &RequestLimits,
        input: &'a [u8],
        mut skip: Skip,
    ) -> Result<Scan<'a>, ProtocolError> {
        self.args = Vec::new();
        loop {
            if skip.skipped + skip.at as u64 + skip.payload > limits.skip_bytes_max {
                return Err(ProtocolError::TooLargeToSkip);
            }
            let here = (input.len() - skip.at) as u64;
            let passed = skip.payload.min(here);
            skip.at += passed as usize;
            skip.payload -= passed;
            let pending = skip.payload > 0;
            if !pending && skip.missing == 0 {
                self.progress = Progress::Start;
                return Ok(Scan::Refused {
                    consumed: skip.at,
                    refusal: skip.refusal,
                });
            }
            let header = if pending {
                None
            } else {
                bulk_header(input, skip.at)?
            };
            let Some((bytes, payload_at)) = header else {
                return Ok(self.pause_skipping(skip));
            };
            skip.at = payload_at;
            skip.payload = bytes + LINE_END;
            skip.missing -= 1;
        }
    }

    fn pause_skipping(&mut self, skip: Skip) -> Scan<'static> {
        let Skip {
            missing,
            payload,
            skipped,
            at,
            refusal,
        } = skip;
        self.progress = Progress::Skipping {
            missing,
            payload,
            skipped: skipped + at as u64,
            refusal,
        };
        if at == 0 { Scan::More } else { Scan::Skip(at) }
    }

    fn line<'a>(
        &'a mut self,
        limits: &RequestLimits,
        input: &'a [u8],
        searched: usize,
    ) -> Result<Scan<'a>, ProtocolError> {
        let end = memchr::memchr(b'\n', &input[searched..]).map(|offset| searched + offset);
        let length = end.map_or(input.len(), |end| end + 1);
        if length > limits.inline_bytes_max as usize {
            return Err(ProtocolError::InlineTooLong);
        }
        let Some(end) = end else {
            self.progress = Progress::Line {
                searched: input.len(),
            };
            return Ok(Scan::More);
        };
        self.progress = Progress::Start;
        let line = &input[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inline::split(line, &mut self.inline_frame, &mut self.args)
            .map_err(|inline::Unbalanced| ProtocolError::UnbalancedQuotes)?;
        if self.args.is_empty() {
            return Ok(Scan::Skip(end + 1));
        }
        if self.args.len() > limits.elements_max as usize {
            return Err(ProtocolError::Elements);
        }
        let request = Request {
            frame: &self.inline_frame,
            args: &self.args,
        };
        Ok(Scan::Request {
            consumed: end + 1,
            request,
        })
    }
}

/// Bytes of a line end.
const LINE_END: u64 = 2;

/// The place in a request that is being passed over.
struct Skip {
    missing: u32,
    payload: u64,
    skipped: u64,
    at: usize,
    refusal: Refusal,
}

/// The declared length of the string whose header is at `at`, and the offset of its payload.
fn bulk_header(input: &[u8], at: usize) -> Result<Option<(u64, usize)>, ProtocolError> {
    match input.get(at) {
        None => return Ok(None),
        Some(b'$') => {}
        Some(got) => return Err(ProtocolError::NotABulk { got: *got }),
    }
    match length::read(input, at + 1) {
        Length::More => Ok(None),
        Length::Malformed => Err(ProtocolError::Bulk),
        Length::Is(bytes, behind) => match u64::try_from(bytes) {
            Ok(bytes) => Ok(Some((bytes, behind))),
            Err(_) => Err(ProtocolError::Bulk),
        },
    }
}

fn refuse(limits: &RequestLimits, payload_at: usize, bytes: u64) -> Option<Refusal> {
    if bytes > u64::from(limits.bulk_bytes_max) {
        return Some(Refusal::Argument {
            bytes,
            limit: u64::from(limits.bulk_bytes_max),
        });
    }
    let end = payload_at as u64 + bytes + LINE_END;
    (end > u64::from(limits.request_bytes_max)).then_some(Refusal::Request {
        limit: u64::from(limits.request_bytes_max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_count_takes_no_memory() {
        let mut scanner = RequestScanner::default();
        let limits = RequestLimits {
            elements_max: u32::MAX,
            ..RequestLimits::default()
        };
        assert!(matches!(
            scanner.scan(&limits, b"*2000000000\r\n$1\r\na\r\n"),
            Ok(Scan::More)
        ));
        assert!(scanner.args.capacity() <= ARGS_KEPT);
        assert!(scanner.in_request());
    }

    #[test]
    fn the_memory_of_an_outsized_request_is_given_back() {
        let mut scanner = RequestScanner::default();
        let limits = RequestLimits::default();
        let large = [b"*100000\r\n".to_vec(), b"$0\r\n\r\n".repeat(100_000)].concat();
        assert!(matches!(
            scanner.scan(&limits, &large),
            Ok(Scan::Request { .. })
        ));
        assert!(matches!(
            scanner.scan(&limits, b"*1\r\n$4\r\nPING\r\n"),
            Ok(Scan::Request { .. })
        ));
        assert!(scanner.args.capacity() <= ARGS_KEPT);
    }
}
