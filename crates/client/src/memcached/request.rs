//! Where a client's request ends, and what of it goes to a server.
//!
//! Cost: each byte of a line is looked at two or three times, values are passed by their length. A line
//! as tidy as clients write them goes on as it came; another one is written anew, with one blank between
//! words. Nothing is allocated for a request once the buffers of its scanner have grown.

use super::answer::Quiet;
use super::header::{self, Fault, Header, WORDS_MAX};
use super::line::{Line, line, split};
use super::{Verb, base64};
use crate::resp::ArgSpan;

/// Bytes of a line, unless it may have a list of keys; as servers have it.
const LINE_BYTES_MAX: usize = 2_048;

/// Words kept allocated between requests; what a long list of keys needed is given back.
const WORDS_KEPT: usize = 256;

/// Bytes kept allocated likewise.
const FRAME_KEPT_BYTES: usize = 16 << 10;

const LINE_END: &[u8] = b"\r\n";

/// What a request may cost before it is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Bytes of a line with a list of keys (`get`, `gets`). All others have 2,048.
    pub line_bytes_max: usize,
    /// Keys of one request.
    pub keys_max: usize,
    /// Bytes of a value. Servers have a limit of their own, 1 MiB by default.
    pub value_bytes_max: usize,
    /// Bytes of a refused value that are still read and dropped; beyond, the connection ends.
    pub skip_bytes_max: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            line_bytes_max: 1 << 20,
            keys_max: 65_536,
            value_bytes_max: 64 << 20,
            // What servers can be told to take as one value: a client of theirs may send it in good faith.
            skip_bytes_max: 1 << 30,
        }
    }
}

impl RequestLimits {
    /// For clients that have not yet said who they are: the little a login needs.
    pub const UNAUTHENTICATED: Self = Self {
        line_bytes_max: LINE_BYTES_MAX,
        keys_max: 16,
        value_bytes_max: 4 << 10,
        skip_bytes_max: 0,
    };
}

/// Why a request's sender cannot be understood any further. After the answer the connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A value stands behind the line, and nobody can say how long it is.
    #[error("CLIENT_ERROR bad command line format")]
    Format,
    /// Likewise, since words are missing or too many.
    #[error("ERROR")]
    Unknown,
    /// The value is not followed by a line end.
    #[error("CLIENT_ERROR bad data chunk")]
    DataChunk,
    /// A line is longer than the limit.
    #[error("CLIENT_ERROR line too long")]
    LineTooLong,
    /// A value is too long even to be passed over.
    #[error("SERVER_ERROR object too large for cache")]
    ValueTooLarge,
    /// The binary protocol.
    #[error("CLIENT_ERROR the binary protocol is not spoken here")]
    Binary,
    /// A browser was made to send it.
    #[error("CLIENT_ERROR this is no web server")]
    Http,
}

/// Why a request is not taken, in the words of servers where they have any. The connection goes on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No such command, or not with so many words.
    #[error("ERROR")]
    Unknown,
    /// A key that is too long, a byte that is not allowed, a number that is none.
    #[error("CLIENT_ERROR bad command line format")]
    Format,
    /// A word too many for `delete`.
    #[error("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]")]
    DeleteUsage,
    /// A time that is no number of 32 bits.
    #[error("CLIENT_ERROR invalid exptime argument")]
    Exptime,
    /// A difference that is no number of 64 bits.
    #[error("CLIENT_ERROR invalid numeric delta argument")]
    Delta,
    /// A key that should be base64 and is not.
    #[error("CLIENT_ERROR error decoding key")]
    Base64,
    /// The flag `q` twice.
    #[error("CLIENT_ERROR duplicate flag")]
    DuplicateFlag,
    /// More flags than servers take.
    #[error("CLIENT_ERROR options flags are too long")]
    TooManyFlags,
    /// More keys than the limit.
    #[error("CLIENT_ERROR more than {limit} keys in one request")]
    TooManyKeys {
        /// The limit.
        limit: usize,
    },
    /// A value over the limit.
    #[error("SERVER_ERROR object too large for cache")]
    ValueTooLarge,
    /// It administers one server.
    #[error("CLIENT_ERROR it administers one server; connect to the node")]
    OneServer,
}

/// One whole request that a server surely reads as we do.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    verb: Verb,
    quiet: Quiet,
    frame: &'a [u8],
    keys: &'a [ArgSpan],
    decoded: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// What it asks for.
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// What of the answer the client does not want to read.
    pub fn quiet(&self) -> Quiet {
        self.quiet
    }

    /// Its bytes as they go to a server, which answers each such frame exactly once.
    pub fn frame(&self) -> &'a [u8] {
        self.frame
    }

    /// How many keys it has.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// The bytes that the key at `index` means to the server, decoded if need be.
    ///
    /// # Panics
    /// When `index` is not below [`key_count`](Self::key_count).
    pub fn key(&self, index: usize) -> &'a [u8] {
        let word = &self.frame[self.keys[index].range()];
        self.decoded.unwrap_or(word)
    }

    /// The places of the keys in the [`frame`](Self::frame).
    pub fn keys(&self) -> &'a [ArgSpan] {
        self.keys
    }

    /// The value behind its line, of a request that stores one.
    pub fn value(&self) -> Option<&'a [u8]> {
        if !self.verb.has_value() {
            return None;
        }
        let line = memchr::memchr(b'\n', self.frame)? + 1;
        self.frame.get(line..self.frame.len() - LINE_END.len())
    }

    /// The place of the words in front of its keys, of a request that has keys.
    pub fn head(&self) -> ArgSpan {
        let end = self.keys.first().map_or(0, |key| key.range().start);
        ArgSpan::new(0, end.saturating_sub(1))
    }

    /// The words of its line, without the line end.
    pub fn words(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let end = memchr::memchr(b'\r', self.frame).unwrap_or(self.frame.len());
        self.frame[..end].split(|byte| *byte == b' ')
    }
}

/// What the bytes so far amount to.
#[derive(Debug)]
pub enum Scan<'a> {
    /// Not yet a whole request. Keep the bytes and call again with more behind them.
    More,
    /// Drop so many bytes from the front and call again: parts of a refused value.
    Skip(usize),
    /// A request; drop `consumed` bytes when done with it.
    Request {
        /// Bytes of the input it took.
        consumed: usize,
        /// The request.
        request: Request<'a>,
    },
    /// A request is not taken; answer it and drop `consumed` bytes. Its value, if it has one, is passed
    /// over from here on.
    Refused {
        /// Bytes of the input its line took.
        consumed: usize,
        /// Why.
        refusal: Refusal,
        /// What of the answer its client does not want to read.
        quiet: Quiet,
        /// What a server does in its stead: a value too large to be stored replaces the one before all the
        /// same, by nothing. A request of our own, to be sent where that key is.
        instead: Option<Request<'a>>,
    },
}

/// Finds requests in a stream of bytes. Keeps its place in an unfinished one, hence one scanner a
/// connection, and always the same bytes in front until it says otherwise.
#[derive(Debug, Default)]
pub struct RequestScanner {
    progress: Progress,
    words: Vec<ArgSpan>,
    keys: Vec<ArgSpan>,
    frame: Vec<u8>,
    decoded: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Progress {
    /// At the first byte of a request.
    #[default]
    Start,
    /// In a line; its first `searched` bytes hold no end.
    Line { searched: usize },
    /// Behind the line of a request that has so many bytes in all.
    Value { whole: usize },
    /// In a refused value, of which so many bytes are still to come.
    Passing { left: usize },
}

impl RequestScanner {
    /// Looks for the next request at the front of `input`.
    ///
    /// # Errors
    /// Nobody can say where the next request begins.
    pub fn scan<'a>(
        &'a mut self,
        limits: &RequestLimits,
        input: &'a [u8],
    ) -> Result<Scan<'a>, ProtocolError> {
        let searched = match self.progress {
            Progress::Start => 0,
            Progress::Line { searched } => searched,
            Progress::Value { whole } if input.len() < whole => return Ok(Scan::More),
            Progress::Value { .. } => 0,
            Progress::Passing { left } => return Ok(self.pass(left, input.len())),
        };
        match input.first() {
            None => return Ok(Scan::More),
            Some(0x80) => return Err(ProtocolError::Binary),
            Some(_) => {}
        }
        let limit = match may_be_long(input) {
            true => limits.line_bytes_max,
            false => LINE_BYTES_MAX,
        };
        match line(input, searched) {
            Some(line) if line.content > limit => Err(ProtocolError::LineTooLong),
            Some(line) => self.line(limits, input, line),
            None if input.len() > limit => Err(ProtocolError::LineTooLong),
            None => {
                self.progress = Progress::Line {
                    searched: input.len(),
                };
                Ok(Scan::More)
            }
        }
    }

    /// Whether a request has begun and is not whole yet.
    #[must_use]
    pub fn in_request(&self) -> bool {
        !matches!(self.progress, Progress::Start)
    }

    fn pass<'a>(&mut self, left: usize, there: usize) -> Scan<'a> {
        let passed = left.min(there);
        self.progress = match left - passed {
            0 => Progress::Start,
            left => Progress::Passing { left },
        };
        match passed {
            0 => Scan::More,
            passed => Scan::Skip(passed),
        }
    }

    fn line<'a>(
        &'a mut self,
        limits: &RequestLimits,
        input: &'a [u8],
        line: Line,
    ) -> Result<Scan<'a>, ProtocolError> {
        let content = &input[..line.content];
        let words_max = match has_list(input) {
            true => limits.keys_max.saturating_add(2),
            false => WORDS_MAX,
        };
        self.words.clear();
        self.words.shrink_to(WORDS_KEPT);
        let Some(tidy) = split(content, &mut self.words, words_max) else {
            return self.refuse(limits, line, too_many_words(content, &self.words, limits));
        };
        match header::read(content, &self.words) {
            Ok(header) if header.keys.len() > limits.keys_max => {
                self.refuse(limits, line, too_many_keys(limits))
            }
            Ok(header) => self.request(limits, input, (line, tidy), &header),
            Err(fault) => self.refuse(limits, line, fault),
        }
    }

    fn request<'a>(
        &'a mut self,
        limits: &RequestLimits,
        input: &'a [u8],
        (line, tidy): (Line, bool),
        header: &Header,
    ) -> Result<Scan<'a>, ProtocolError> {
        let content = &input[..line.content];
        if header.encoded && !self.decode(content, header) {
            return self.refuse(limits, line, undecodable(header));
        }
        let mut whole = line.whole;
        if let Some(bytes) = header.value_bytes {
            if bytes > limits.value_bytes_max {
                return self.too_large(limits, content, line, header);
            }
            whole += bytes + LINE_END.len();
            if input.len() < whole {
                self.progress = Progress::Value { whole };
                return Ok(Scan::More);
            }
            if !input[..whole].ends_with(LINE_END) {
                return Err(ProtocolError::DataChunk);
            }
        }
        self.progress = Progress::Start;
        let as_it_came =
            tidy && header.dropped.is_empty() && line.whole == line.content + LINE_END.len();
        let (frame, keys) = if as_it_came {
            (&input[..whole], &self.words[header.keys.clone()])
        } else {
            self.write_line(content, header);
            self.frame.extend_from_slice(&input[line.whole..whole]);
            (&self.frame[..], &self.keys[..])
        };
        let request = Request {
            verb: header.verb,
            quiet: header.quiet,
            frame,
            keys,
            decoded: header.encoded.then_some(&self.decoded[..]),
        };
        Ok(Scan::Request {
            consumed: whole,
            request,
        })
    }

    /// Decodes the key.
    fn decode(&mut self, content: &[u8], header: &Header) -> bool {
        self.decoded.clear();
        let word = self.words[header.keys.start];
        base64::decode(&content[word.range()], &mut self.decoded).is_some()
    }

    /// Writes a line anew, and notes where its keys are now.
    fn write_line(&mut self, content: &[u8], header: &Header) {
        self.keys.clear();
        self.keys.shrink_to(WORDS_KEPT);
        self.frame.clear();
        self.frame.shrink_to(FRAME_KEPT_BYTES);
        for (at, word) in self.words.iter().enumerate() {
            if header.dropped.contains(&at) {
                continue;
            }
            if !self.frame.is_empty() {
                self.frame.push(b' ');
            }
            if header.keys.contains(&at) {
                self.keys.push(ArgSpan::new(self.frame.len(), word.len()));
            }
            self.frame.extend_from_slice(&content[word.range()]);
        }
        self.frame.extend_from_slice(LINE_END);
    }

    /// A value is too large: what was there before goes all the same, as with servers.
    fn too_large<'a>(
        &'a mut self,
        limits: &RequestLimits,
        content: &[u8],
        line: Line,
        header: &Header,
    ) -> Result<Scan<'a>, ProtocolError> {
        let bytes = header.value_bytes.unwrap_or(0);
        let fault = Fault::Value(Refusal::ValueTooLarge, header.quiet, bytes);
        let (name, end): (&[u8], &[u8]) = match (header.verb, header.encoded) {
            (Verb::MetaSet, true) => (b"md ", b" b\r\n"),
            (Verb::MetaSet, false) => (b"md ", LINE_END),
            (Verb::Set, _) => (b"delete ", LINE_END),
            _ => return self.refuse(limits, line, fault),
        };
        let key = &content[self.words[header.keys.start].range()];
        self.frame.clear();
        self.frame.extend_from_slice(name);
        self.frame.extend_from_slice(key);
        self.frame.extend_from_slice(end);
        self.keys.clear();
        self.keys.push(ArgSpan::new(name.len(), key.len()));
        let Scan::Refused {
            consumed,
            refusal,
            quiet,
            ..
        } = self.refuse(limits, line, fault)?
        else {
            unreachable!("a refusal was asked for");
        };
        let instead = Request {
            verb: match header.verb {
                Verb::MetaSet => Verb::MetaDelete,
                _ => Verb::Delete,
            },
            quiet: Quiet::Everything,
            frame: &self.frame,
            keys: &self.keys,
            decoded: header.encoded.then_some(&self.decoded[..]),
        };
        Ok(Scan::Refused {
            consumed,
            refusal,
            quiet,
            instead: Some(instead),
        })
    }

    fn refuse<'a>(
        &'a mut self,
        limits: &RequestLimits,
        line: Line,
        fault: Fault,
    ) -> Result<Scan<'a>, ProtocolError> {
        let (refusal, quiet) = match fault {
            Fault::Lost(error) => return Err(error),
            Fault::Line(refusal, quiet) => {
                self.progress = Progress::Start;
                (refusal, quiet)
            }
            Fault::Value(_, _, bytes) if bytes > limits.skip_bytes_max => {
                return Err(ProtocolError::ValueTooLarge);
            }
            Fault::Value(refusal, quiet, bytes) => {
                self.progress = Progress::Passing {
                    left: bytes + LINE_END.len(),
                };
                (refusal, quiet)
            }
        };
        Ok(Scan::Refused {
            consumed: line.whole,
            refusal,
            quiet,
            instead: None,
        })
    }
}

/// What is said of a line with more words than are looked at.
fn too_many_words(content: &[u8], words: &[ArgSpan], limits: &RequestLimits) -> Fault {
    let verb = words
        .first()
        .and_then(|word| Verb::of(&content[word.range()]));
    match verb {
        Some(verb) if verb.has_keys() => too_many_keys(limits),
        Some(Verb::MetaSet) => header::read(content, words)
            .err()
            .unwrap_or(Fault::Lost(ProtocolError::Format)),
        Some(verb) if verb.has_value() => Fault::Lost(ProtocolError::Unknown),
        Some(verb) if verb.is_meta() => Fault::Line(Refusal::TooManyFlags, Quiet::Nothing),
        _ => Fault::Line(Refusal::Unknown, Quiet::Nothing),
    }
}

fn too_many_keys(limits: &RequestLimits) -> Fault {
    let limit = limits.keys_max;
    Fault::Line(Refusal::TooManyKeys { limit }, Quiet::Nothing)
}

/// A key that should be base64 and is not.
fn undecodable(header: &Header) -> Fault {
    let refusal = match header.verb {
        Verb::MetaDebug => Refusal::Format,
        _ => Refusal::Base64,
    };
    match header.value_bytes {
        Some(bytes) => Fault::Value(refusal, Quiet::Nothing, bytes),
        None => Fault::Line(refusal, Quiet::Nothing),
    }
}

/// Whether this may be the beginning of a line that is as long as its list of keys.
fn may_be_long(input: &[u8]) -> bool {
    let line = trimmed(input);
    line.starts_with(b"get ") || line.starts_with(b"gets ")
}

/// Whether a list of keys may follow.
fn has_list(input: &[u8]) -> bool {
    let line = trimmed(input);
    line.starts_with(b"get") || line.starts_with(b"gat")
}

fn trimmed(input: &[u8]) -> &[u8] {
    let start = input.iter().position(|byte| *byte != b' ');
    &input[start.unwrap_or(input.len())..]
}
