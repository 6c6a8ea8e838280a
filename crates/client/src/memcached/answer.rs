//! What belongs to which request, and what of it its client wants to read.

use super::Verb;
use super::line::{line, unsigned};

/// What of an answer a client does not want to read. A request goes to its server without that wish, so
/// that every request has its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quiet {
    /// It reads everything.
    #[default]
    Nothing,
    /// It reads nothing, errors neither: `noreply`.
    Everything,
    /// It does not read that there was nothing: `mg` with the flag `q`.
    Miss,
    /// It does not read that it was done: `ms` and `md` with the flag `q`.
    Done,
    /// Likewise, nor the number: `ma` with the flag `q`.
    Counted,
}

impl Quiet {
    /// What the flag `q` means to a command of the meta protocol.
    pub(super) fn of_meta(verb: Verb) -> Self {
        match verb {
            Verb::MetaGet => Self::Miss,
            Verb::MetaArithmetic => Self::Counted,
            _ => Self::Done,
        }
    }

    /// Whether the client does not want to read this answer.
    #[must_use]
    pub fn hides(self, answer: &[u8]) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Miss => has_code(answer, b"EN"),
            Self::Done => has_code(answer, b"HD"),
            Self::Counted => has_code(answer, b"HD") || has_code(answer, b"VA"),
        }
    }
}

fn has_code(answer: &[u8], code: &[u8]) -> bool {
    let behind = answer.strip_prefix(code);
    behind.is_some_and(|behind| matches!(behind.first(), Some(b' ' | b'\r')))
}

/// Whether a server says that it did not do what it was asked.
#[must_use]
pub fn is_error(answer: &[u8]) -> bool {
    answer.starts_with(b"ERROR")
        || answer.starts_with(b"CLIENT_ERROR")
        || answer.starts_with(b"SERVER_ERROR")
}

/// Whether a whole answer can be the one to this request, both as they go over a server's connection.
///
/// Answers are matched to requests by their order alone; this notices when the order was lost. An item
/// must bear a key that was asked for, and a meta answer the opaque word of its request.
#[must_use]
pub fn answers(frame: &[u8], answer: &[u8]) -> bool {
    let Some(verb) = Verb::of_frame(frame) else {
        return false;
    };
    if is_error(answer) {
        return true;
    }
    let code = |codes: &[&[u8]]| codes.iter().any(|code| has_code(answer, code));
    match verb {
        Verb::Get | Verb::Gets => are_items_of(frame, 1, answer),
        Verb::Gat | Verb::Gats => are_items_of(frame, 2, answer),
        Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend => {
            code(&[b"STORED", b"NOT_STORED"])
        }
        Verb::Cas => code(&[b"STORED", b"NOT_STORED", b"EXISTS", b"NOT_FOUND"]),
        Verb::Incr | Verb::Decr => code(&[b"NOT_FOUND"]) || is_number(answer),
        Verb::Touch => code(&[b"TOUCHED", b"NOT_FOUND"]),
        Verb::Delete => code(&[b"DELETED", b"NOT_FOUND"]),
        Verb::FlushAll | Verb::Verbosity => code(&[b"OK"]),
        Verb::Version => code(&[b"VERSION"]),
        Verb::Stats => code(&[b"STAT", b"END", b"OK", b"RESET"]),
        Verb::Quit => false,
        Verb::MetaNoop => code(&[b"MN"]),
        Verb::MetaGet => code(&[b"VA", b"HD", b"EN"]) && is_opaque_of(frame, answer),
        Verb::MetaSet => code(&[b"HD", b"NS", b"EX", b"NF"]) && is_opaque_of(frame, answer),
        Verb::MetaDelete => code(&[b"HD", b"NF", b"EX"]) && is_opaque_of(frame, answer),
        Verb::MetaArithmetic => {
            code(&[b"HD", b"VA", b"NF", b"NS", b"EX"]) && is_opaque_of(frame, answer)
        }
        Verb::MetaDebug => code(&[b"ME", b"EN"]),
    }
}

/// `incr` and `decr` may leave blanks behind a number that has become shorter.
fn is_number(answer: &[u8]) -> bool {
    let number = answer.strip_suffix(b"\r\n").unwrap_or(answer);
    unsigned(number.trim_ascii_end()).is_some()
}

fn first_line(bytes: &[u8]) -> &[u8] {
    line(bytes, 0).map_or(bytes, |line| &bytes[..line.content])
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ')
}

/// Whether the items are of keys from the word at `first` on, in the order of the request.
fn are_items_of(frame: &[u8], first: usize, answer: &[u8]) -> bool {
    let mut keys = words(first_line(frame)).skip(first);
    let mut items = Items::of(answer);
    let in_order = items.all(|item| keys.any(|key| key == item.key));
    in_order && items.rest() == b"END\r\n"
}

/// Whether an answer says again the opaque word that its request had.
fn is_opaque_of(frame: &[u8], answer: &[u8]) -> bool {
    let opaque = |line| words(line).skip(1).find(|word| word.first() == Some(&b'O'));
    // The key and the length of a value may begin with that letter, and stand in front.
    let flags = match Verb::of_frame(frame) {
        Some(Verb::MetaSet) => 3,
        _ => 2,
    };
    let asked = words(first_line(frame)).skip(flags);
    let asked = asked.into_iter().find(|word| word.first() == Some(&b'O'));
    let said = opaque(first_line(answer));
    // Old servers leave it out of a miss.
    said.is_none() || asked == said
}

/// One item of an answer to `get` and its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its bytes, from `VALUE` to the line end behind the value.
    pub bytes: &'a [u8],
}

/// The items at the front of an answer.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    rest: &'a [u8],
}

impl<'a> Items<'a> {
    /// Of a whole answer, as a [`ReplyScanner`](super::ReplyScanner) found it.
    #[must_use]
    pub fn of(answer: &'a [u8]) -> Self {
        Self { rest: answer }
    }

    /// What is behind the items taken so far.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let line = line(self.rest, 0)?;
        let mut words = words(&self.rest[..line.content]);
        if words.next() != Some(b"VALUE") {
            return None;
        }
        let (key, _flags, bytes) = (words.next()?, words.next()?, words.next()?);
        let whole = line.whole + usize::try_from(unsigned(bytes)?).ok()? + 2;
        let (bytes, rest) = self.rest.split_at_checked(whole)?;
        self.rest = rest;
        Some(Item { key, bytes })
    }
}
