//! From what a caller asks to bytes for a node, and from its reply to what the caller is given.

use std::borrow::Cow;
use std::time::Duration;

use super::builder::ClientLimits;
use super::call::{Answer, Keys};
use super::error::Error;
use crate::commands::{Action, Command, CommandTable, Local, NoKeys, Reason, Script};
use crate::resp::{
    Request, RequestLimits, RequestScanner, Scan, Value, write_array, write_bulk, write_command,
};
use crate::routing::Effect;

/// Of a caller's own words, in an error.
const QUOTED_MAX: usize = 64;

/// A request, ready for whichever node owns its keys.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) command: Cow<'static, str>,
    pub(super) frame: Box<[u8]>,
    pub(super) keys: Keys,
    pub(super) effect: Effect,
    pub(super) scripted: bool,
}

impl Outbound {
    /// A command that is known here, with its one key and what follows it.
    pub(super) fn typed(effect: Effect, command: &'static str, key: &[u8], rest: &[&[u8]]) -> Self {
        let bytes: usize = rest.iter().map(|argument| argument.len() + 16).sum();
        let mut frame = Vec::with_capacity(64 + key.len() + bytes);
        write_array(&mut frame, 2 + rest.len());
        write_bulk(&mut frame, command.as_bytes());
        write_bulk(&mut frame, key);
        let end = frame.len() - b"\r\n".len();
        for argument in rest {
            write_bulk(&mut frame, argument);
        }
        Self {
            command: Cow::Borrowed(command),
            frame: frame.into(),
            keys: Keys::One(end - key.len()..end),
            effect,
            scripted: false,
        }
    }

    /// Any command, judged by what the servers say of it.
    pub(super) fn of_command<A: AsRef<[u8]>>(
        table: &CommandTable,
        scripts: bool,
        args: &[A],
    ) -> Result<Self, Error> {
        let mut frame = Vec::new();
        write_command(&mut frame, args);
        let mut scanner = RequestScanner::default();
        let limits = RequestLimits {
            // What it may have is said by the client's own limits.
            bulk_bytes_max: u32::MAX >> 1,
            request_bytes_max: u32::MAX >> 1,
            ..RequestLimits::default()
        };
        let (command, ranges) = match scanner.scan(&limits, &frame) {
            Ok(Scan::Request { request, .. }) => {
                let command = find(table, &request)?;
                available(command, scripts, &request)?;
                let at = key_positions(command, &request)?;
                let ranges: Vec<_> = at.iter().map(|at| request.span(*at).range()).collect();
                (command, ranges)
            }
            // Without arguments, or with more than any server takes.
            _ => {
                let command = args.first().map(|name| quoted(name.as_ref()));
                return Err(Error::Arguments {
                    command: command.unwrap_or_default(),
                });
            }
        };
        let keys = match <[_; 1]>::try_from(ranges) {
            Ok([one]) => Keys::One(one),
            Err(many) => Keys::Many(many.into()),
        };
        Ok(Self {
            command: Cow::Owned(shown(command)),
            frame: frame.into(),
            keys,
            effect: command.effect,
            scripted: matches!(command.action, Action::Script(_)),
        })
    }

    pub(super) fn check(&self, limits: &ClientLimits) -> Result<(), Error> {
        let too_large = |what, bytes, limit| Error::TooLarge { what, bytes, limit };
        let (bytes, limit) = (self.frame.len(), limits.request_bytes_max);
        if bytes > limit {
            return Err(too_large("a request", bytes, limit));
        }
        let limit = limits.key_bytes_max;
        match self.keys.of(&self.frame).find(|key| key.len() > limit) {
            Some(key) => Err(too_large("a key", key.len(), limit)),
            None => Ok(()),
        }
    }
}

/// The command, or the subcommand, that a request names.
fn find<'a>(table: &'a CommandTable, request: &Request<'_>) -> Result<&'a Command, Error> {
    let unknown = |name: &[u8]| Error::UnknownCommand {
        command: quoted(name),
    };
    let name = request.arg(0);
    let command = table.find(name).ok_or_else(|| unknown(name))?;
    let command = match (command.action, request.get(1)) {
        (Action::Container, Some(second)) => command
            .subcommand(second)
            .ok_or_else(|| unknown(&[name, b" ", second].concat()))?,
        (Action::Container, None) => return Err(arguments(command)),
        _ => command,
    };
    if command.takes(request.count()) {
        Ok(command)
    } else {
        Err(arguments(command))
    }
}

/// Whether it may go over a connection that all callers share.
fn available(command: &Command, scripts: bool, request: &Request<'_>) -> Result<(), Error> {
    let reason = match command.action {
        Action::Forward | Action::Scatter(_) => return Ok(()),
        Action::ForwardUnlessBlocking if !blocks(request) => return Ok(()),
        Action::Script(Script::Keyed) if scripts => return Ok(()),
        Action::Script(Script::Keyed) => Reason::Scripts,
        Action::ForwardUnlessBlocking | Action::Block(_) => Reason::Blocking,
        Action::Script(Script::Load | Script::Manage) => Reason::ScriptsOfOne,
        Action::Watch => Reason::SharedConnection,
        Action::Local(
            Local::Ping
            | Local::Echo
            | Local::Time
            | Local::Info
            | Local::Cluster
            | Local::ConfigGet
            | Local::Clockwise
            | Local::Http,
        ) => Reason::Keyless,
        Action::Local(_) => Reason::SharedConnection,
        Action::AnyNode | Action::SumOverNodes | Action::Scan | Action::Container => {
            Reason::Keyless
        }
        Action::Refuse(reason) => reason,
    };
    Err(unavailable(command, reason))
}

/// Whether a reader of streams would wait; what follows `STREAMS` are keys.
fn blocks(request: &Request<'_>) -> bool {
    let mut options = request.args().skip(1);
    options
        .by_ref()
        .take_while(|word| !word.eq_ignore_ascii_case(b"STREAMS"))
        .any(|word| word.eq_ignore_ascii_case(b"BLOCK"))
}

fn key_positions(command: &Command, request: &Request<'_>) -> Result<Vec<usize>, Error> {
    match command.keys.positions(request) {
        Ok(at) if !at.is_empty() => Ok(at),
        Ok(_) => Err(unavailable(command, Reason::Keyless)),
        Err(NoKeys::Zero) if matches!(command.action, Action::Script(_)) => {
            Err(unavailable(command, Reason::KeylessScript))
        }
        Err(NoKeys::Zero) => Err(unavailable(command, Reason::Keyless)),
        Err(NoKeys::Patterns) => Err(unavailable(command, Reason::KeysUnknown)),
        Err(NoKeys::Malformed) => Err(arguments(command)),
    }
}

fn shown(command: &Command) -> String {
    command.name.replace('|', " ")
}

fn arguments(command: &Command) -> Error {
    let command = shown(command);
    Error::Arguments { command }
}

fn unavailable(command: &Command, reason: Reason) -> Error {
    let command = shown(command);
    Error::Unavailable { command, reason }
}

fn quoted(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(QUOTED_MAX)];
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}

/// A time in whole milliseconds, as servers take it: at least one, since none would be refused.
pub(super) fn milliseconds(ttl: Duration) -> String {
    // More than servers take; they say so.
    let most = u128::from(u64::MAX);
    ttl.as_millis().clamp(1, most).to_string()
}

/// What a node answered to a command.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) value: Value,
    command: Cow<'static, str>,
    effect: Effect,
}

impl Reply {
    pub(super) fn read(
        answer: Answer,
        command: Cow<'static, str>,
        effect: Effect,
        scripted: bool,
    ) -> Result<Self, Error> {
        match (Value::parse(&answer.bytes), answer.from) {
            (Ok(Some((Value::Error(message), _))), Some((node, epoch))) => Err(Error::Refused {
                node,
                epoch,
                message,
                effect,
                scripted,
            }),
            (Ok(Some((value, _))), _) if !matches!(value, Value::Error(_)) => Ok(Self {
                value,
                command,
                effect,
            }),
            _ => Err(unexpected(command, effect)),
        }
    }

    pub(super) fn bytes(self) -> Result<Option<Vec<u8>>, Error> {
        match self.value {
            Value::Bulk(bytes) => Ok(Some(bytes)),
            Value::Null => Ok(None),
            _ => Err(unexpected(self.command, self.effect)),
        }
    }

    pub(super) fn integer(self) -> Result<i64, Error> {
        match self.value {
            Value::Integer(number) => Ok(number),
            _ => Err(unexpected(self.command, self.effect)),
        }
    }

    /// What can be answered by `OK` alone.
    pub(super) fn done(self) -> Result<(), Error> {
        let (command, effect) = (self.command.clone(), self.effect);
        match self.was_done()? {
            true => Ok(()),
            false => Err(unexpected(command, effect)),
        }
    }

    /// What is answered by `OK`, or by nothing if it was not done.
    pub(super) fn was_done(self) -> Result<bool, Error> {
        match self.value {
            Value::Simple(text) if text == "OK" => Ok(true),
            Value::Null => Ok(false),
            _ => Err(unexpected(self.command, self.effect)),
        }
    }
}

fn unexpected(command: Cow<'static, str>, effect: Effect) -> Error {
    Error::Unexpected {
        command: command.into_owned(),
        effect,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(outbound: &Outbound) -> Vec<&[u8]> {
        outbound.keys.of(&outbound.frame).collect()
    }

    #[test]
    fn a_typed_request_is_a_frame_whose_key_is_found() {
        for key in [&b""[..], b"k", b"\r\n$0", &[0xff; 300]] {
            let outbound = Outbound::typed(Effect::Write, "SET", key, &[b"v", b"PX", b"5"]);
            let mut frame = Vec::new();
            write_command(&mut frame, &[b"SET", key, b"v", b"PX", b"5"]);
            assert_eq!(*outbound.frame, *frame);
            assert_eq!(keys(&outbound), [key]);
        }
    }

    #[test]
    fn what_needs_no_server_to_be_judged_is_judged_without_one() {
        let table = CommandTable::without_nodes();
        let of = |line: &str| {
            let args: Vec<_> = line.split(' ').collect();
            Outbound::of_command(&table, false, &args).map(|_| ())
        };
        let refused = |line: &str| match of(line) {
            Err(Error::Unavailable { reason, .. }) => reason,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(refused("PING"), Reason::Keyless);
        assert_eq!(refused("multi"), Reason::SharedConnection);
        assert_eq!(refused("WATCH k"), Reason::SharedConnection);
        assert_eq!(refused("client id"), Reason::SharedConnection);
        assert_eq!(refused("KEYS *"), Reason::WholeKeySpace);
        assert_eq!(refused("FLUSHALL"), Reason::Flush);
        assert!(matches!(
            of("nonsense k"),
            Err(Error::UnknownCommand { .. })
        ));
        assert!(matches!(
            of("client nonsense"),
            Err(Error::UnknownCommand { .. })
        ));
        assert!(matches!(of("echo"), Err(Error::Arguments { .. })));
        let none: [&str; 0] = [];
        let empty = Outbound::of_command(&table, false, &none);
        assert!(matches!(empty, Err(Error::Arguments { .. })));
    }

    #[test]
    fn limits_are_checked_before_anything_is_sent() {
        let limits = ClientLimits {
            request_bytes_max: 100,
            key_bytes_max: 10,
            ..ClientLimits::default()
        };
        let check = |key: &[u8], value: &[u8]| {
            Outbound::typed(Effect::Write, "SET", key, &[value]).check(&limits)
        };
        assert_eq!(check(b"0123456789", b"v"), Ok(()));
        let too_long = check(b"0123456789a", b"v").unwrap_err();
        assert!(
            too_long.to_string().starts_with("a key of 11 bytes"),
            "{too_long}"
        );
        let too_large = check(b"k", &[0; 100]).unwrap_err();
        assert!(
            too_large.to_string().starts_with("a request of"),
            "{too_large}"
        );
        assert!(!too_large.is_retryable() && !too_large.may_have_happened());
    }
}
