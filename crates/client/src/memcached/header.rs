//! What a line says, if a server would surely read it as we do.
//!
//! Numbers that servers check are checked here: one that they refuse in the header of a value would leave
//! the value to be read as commands, and `noreply` in the place of a number would leave a request without
//! an answer. What they answer in one line whatever it is (meta flags) is theirs to judge.

use std::ops::Range;

use super::answer::Quiet;
use super::line::{is_clean, length, signed_32, unsigned, unsigned_32};
use super::request::{ProtocolError, Refusal};
use super::{KEY_BYTES_MAX, Verb};
use crate::resp::ArgSpan;

/// Words of a meta request that servers take, the command included.
pub(super) const META_WORDS_MAX: usize = 19;

/// Words of a request without a list of keys that are looked at.
pub(super) const WORDS_MAX: usize = 24;

/// Commands that administer one server.
const OF_ONE_SERVER: [&[u8]; 9] = [
    b"cache_memlimit",
    b"extstore",
    b"lru",
    b"lru_crawler",
    b"misbehave",
    b"refresh_certs",
    b"shutdown",
    b"slabs",
    b"watch",
];

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) verb: Verb,
    pub(super) quiet: Quiet,
    /// Words that do not go to a server.
    pub(super) dropped: Range<usize>,
    /// Words that are keys.
    pub(super) keys: Range<usize>,
    /// The key is in base64.
    pub(super) encoded: bool,
    /// Bytes of the value behind the line.
    pub(super) value_bytes: Option<usize>,
}

/// Why a request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It ends with its line.
    Line(Refusal, Quiet),
    /// A value of so many bytes stands behind it.
    Value(Refusal, Quiet, usize),
    /// Nobody knows where it ends.
    Lost(ProtocolError),
}

/// Reads the words of a line.
pub(super) fn read(content: &[u8], words: &[ArgSpan]) -> Result<Header, Fault> {
    let line = Words { content, words };
    let Some(verb) = line.get(0).and_then(Verb::of) else {
        return Err(stranger(&line));
    };
    if !is_clean(content) {
        return Err(match verb.has_value() {
            true => Fault::Lost(ProtocolError::Format),
            false => Fault::Line(Refusal::Format, Quiet::Nothing),
        });
    }
    match verb {
        Verb::Get | Verb::Gets => keys(verb, &line, 1),
        Verb::Gat | Verb::Gats => touching_keys(verb, &line),
        Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend => {
            storing(verb, &line, 5)
        }
        Verb::Cas => storing(verb, &line, 6),
        Verb::Incr | Verb::Decr | Verb::Touch => number(verb, &line),
        Verb::Delete => deleting(&line),
        Verb::FlushAll => flushing(&line),
        Verb::Verbosity => verbosity(&line),
        Verb::Stats | Verb::Quit | Verb::MetaNoop => Ok(keyless(verb, Quiet::Nothing, 0..0)),
        Verb::Version => Ok(keyless(verb, Quiet::Nothing, 1..line.count())),
        Verb::MetaGet | Verb::MetaDelete | Verb::MetaArithmetic => meta(verb, &line, 2),
        Verb::MetaDebug => debugging(&line),
        Verb::MetaSet => meta_storing(&line),
    }
}

struct Words<'a> {
    content: &'a [u8],
    words: &'a [ArgSpan],
}

impl<'a> Words<'a> {
    fn count(&self) -> usize {
        self.words.len()
    }

    fn get(&self, at: usize) -> Option<&'a [u8]> {
        self.words.get(at).map(|word| &self.content[word.range()])
    }

    /// What is read of a request whose last word may be `noreply`.
    fn quiet(&self) -> Quiet {
        match self.words.last() {
            Some(word) if &self.content[word.range()] == b"noreply" => Quiet::Everything,
            _ => Quiet::Nothing,
        }
    }

    fn has_key(&self, at: usize) -> bool {
        self.get(at).is_some_and(|key| key.len() <= KEY_BYTES_MAX)
    }
}

fn keyless(verb: Verb, quiet: Quiet, dropped: Range<usize>) -> Header {
    Header {
        verb,
        quiet,
        dropped,
        keys: 0..0,
        encoded: false,
        value_bytes: None,
    }
}

fn of_key(verb: Verb, quiet: Quiet, dropped: Range<usize>) -> Header {
    Header {
        keys: 1..2,
        ..keyless(verb, quiet, dropped)
    }
}

/// A command that is not understood.
fn stranger(line: &Words<'_>) -> Fault {
    let name = line.get(0).unwrap_or_default();
    let last = line.words.last().map(|word| &line.content[word.range()]);
    if last.is_some_and(|last| last.starts_with(b"HTTP/")) {
        // A browser was made to send it, and what stands behind is meant as commands.
        return Fault::Lost(ProtocolError::Http);
    }
    let refusal = match OF_ONE_SERVER.contains(&name) {
        true => Refusal::OneServer,
        false => Refusal::Unknown,
    };
    Fault::Line(refusal, Quiet::Nothing)
}

fn keys(verb: Verb, line: &Words<'_>, first: usize) -> Result<Header, Fault> {
    if line.count() <= first {
        return Err(Fault::Line(Refusal::Unknown, Quiet::Nothing));
    }
    if !(first..line.count()).all(|at| line.has_key(at)) {
        return Err(Fault::Line(Refusal::Format, Quiet::Nothing));
    }
    Ok(Header {
        keys: first..line.count(),
        ..keyless(verb, Quiet::Nothing, 0..0)
    })
}

fn touching_keys(verb: Verb, line: &Words<'_>) -> Result<Header, Fault> {
    let header = keys(verb, line, 2)?;
    match line.get(1).and_then(signed_32) {
        Some(_) => Ok(header),
        None => Err(Fault::Line(Refusal::Exptime, Quiet::Nothing)),
    }
}

/// `words` are needed, and servers take one more, `noreply` or not.
fn storing(verb: Verb, line: &Words<'_>, words: usize) -> Result<Header, Fault> {
    if line.count() != words && line.count() != words + 1 {
        return Err(Fault::Lost(ProtocolError::Unknown));
    }
    let Some(value_bytes) = line.get(4).and_then(length) else {
        return Err(Fault::Lost(ProtocolError::Format));
    };
    let quiet = line.quiet();
    let numbers = line.get(2).and_then(unsigned_32).is_some()
        && line.get(3).and_then(signed_32).is_some()
        && (verb != Verb::Cas || line.get(5).and_then(unsigned).is_some());
    if !numbers || !line.has_key(1) {
        return Err(Fault::Value(Refusal::Format, quiet, value_bytes));
    }
    Ok(Header {
        value_bytes: Some(value_bytes),
        ..of_key(verb, quiet, words..line.count())
    })
}

fn number(verb: Verb, line: &Words<'_>) -> Result<Header, Fault> {
    if line.count() != 3 && line.count() != 4 {
        return Err(Fault::Line(Refusal::Unknown, Quiet::Nothing));
    }
    let quiet = line.quiet();
    if !line.has_key(1) {
        return Err(Fault::Line(Refusal::Format, quiet));
    }
    let (fits, refusal) = match verb {
        Verb::Touch => (line.get(2).and_then(signed_32).is_some(), Refusal::Exptime),
        _ => (line.get(2).and_then(unsigned).is_some(), Refusal::Delta),
    };
    match fits {
        true => Ok(of_key(verb, quiet, 3..line.count())),
        false => Err(Fault::Line(refusal, quiet)),
    }
}

/// `delete key`, with a `0` that old clients send, with `noreply`.
fn deleting(line: &Words<'_>) -> Result<Header, Fault> {
    if !(2..=4).contains(&line.count()) {
        return Err(Fault::Line(Refusal::Unknown, Quiet::Nothing));
    }
    let zero = line.get(2) == Some(b"0");
    let quiet = match line.count() {
        2 => Quiet::Nothing,
        _ => line.quiet(),
    };
    let fits = match line.count() {
        2 => true,
        3 => zero || quiet == Quiet::Everything,
        _ => zero && quiet == Quiet::Everything,
    };
    if !fits {
        return Err(Fault::Line(Refusal::DeleteUsage, quiet));
    }
    match line.has_key(1) {
        true => Ok(of_key(Verb::Delete, quiet, 2..line.count())),
        false => Err(Fault::Line(Refusal::Format, quiet)),
    }
}

fn flushing(line: &Words<'_>) -> Result<Header, Fault> {
    if line.count() > 3 {
        return Err(Fault::Line(Refusal::Unknown, Quiet::Nothing));
    }
    let quiet = line.quiet();
    let without_delay = match quiet {
        Quiet::Everything => 2,
        _ => 1,
    };
    if line.count() == without_delay {
        return Ok(keyless(Verb::FlushAll, quiet, 1..line.count()));
    }
    match line.get(1).and_then(signed_32) {
        Some(_) => Ok(keyless(Verb::FlushAll, quiet, 2..line.count())),
        None => Err(Fault::Line(Refusal::Exptime, quiet)),
    }
}

fn verbosity(line: &Words<'_>) -> Result<Header, Fault> {
    if line.count() != 2 && line.count() != 3 {
        return Err(Fault::Line(Refusal::Unknown, Quiet::Nothing));
    }
    let quiet = line.quiet();
    match line.get(1).and_then(unsigned_32) {
        Some(_) => Ok(keyless(Verb::Verbosity, quiet, 2..line.count())),
        None => Err(Fault::Line(Refusal::Format, quiet)),
    }
}

/// A meta request without a value, with its flags from the word at `flags` on.
fn meta(verb: Verb, line: &Words<'_>, flags: usize) -> Result<Header, Fault> {
    let refuse = |refusal| Err(Fault::Line(refusal, Quiet::Nothing));
    if line.count() < 2 {
        return refuse(Refusal::Unknown);
    }
    if !line.has_key(1) {
        return refuse(Refusal::Format);
    }
    if line.count() > META_WORDS_MAX {
        return refuse(Refusal::TooManyFlags);
    }
    let flags = Flags::read(line, flags);
    match flags.twice_quiet {
        true => refuse(Refusal::DuplicateFlag),
        false => Ok(flags.header(verb)),
    }
}

/// `me key [b]`: of one flag only, and only there.
fn debugging(line: &Words<'_>) -> Result<Header, Fault> {
    if !line.has_key(1) || line.count() > META_WORDS_MAX {
        return Err(Fault::Line(Refusal::Format, Quiet::Nothing));
    }
    Ok(Header {
        encoded: line.get(2) == Some(b"b"),
        ..of_key(Verb::MetaDebug, Quiet::Nothing, 0..0)
    })
}

fn meta_storing(line: &Words<'_>) -> Result<Header, Fault> {
    if line.count() < 2 {
        return Err(Fault::Lost(ProtocolError::Unknown));
    }
    let Some(value_bytes) = line.get(2).and_then(length) else {
        return Err(Fault::Lost(ProtocolError::Format));
    };
    match meta(Verb::MetaSet, line, 3) {
        Ok(header) => Ok(Header {
            value_bytes: Some(value_bytes),
            ..header
        }),
        Err(Fault::Line(refusal, quiet)) => Err(Fault::Value(refusal, quiet, value_bytes)),
        Err(fault) => Err(fault),
    }
}

/// The flags that concern us; servers look at the first byte of each word.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    quiet_at: Option<usize>,
    twice_quiet: bool,
    encoded: bool,
}

impl Flags {
    fn read(line: &Words<'_>, from: usize) -> Self {
        let mut flags = Self::default();
        for at in from..line.count() {
            match line.get(at).and_then(<[u8]>::first) {
                Some(b'q') => {
                    flags.twice_quiet = flags.quiet_at.is_some();
                    flags.quiet_at = Some(at);
                }
                Some(b'b') => flags.encoded = true,
                _ => {}
            }
        }
        flags
    }

    fn header(self, verb: Verb) -> Header {
        let quiet = self.quiet_at.map(|at| (Quiet::of_meta(verb), at..at + 1));
        let (quiet, dropped) = quiet.unwrap_or((Quiet::Nothing, 0..0));
        Header {
            encoded: self.encoded,
            ..of_key(verb, quiet, dropped)
        }
    }
}
