//! How a connection to a node begins, and what the node's answer to that means.

use crate::credentials::Password;
use crate::memcached;
use crate::resp::{Protocol, Value, write_command};

/// The field by which a clockwise router gives itself away in its reply to `HELLO`.
pub const ROUTER_FIELD: &str = "clockwise_version";

/// Who we are to a node.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The user of the node's generation.
    pub user: String,
    /// Its password.
    pub password: Password,
}

/// How a connection begins, and so what is spoken over it.
#[derive(Clone, Copy, Debug)]
pub enum Greeting<'a> {
    /// RESP of this version: with `HELLO`, and as this user where there is one.
    Hello(Protocol, Option<&'a Credential>),
    /// memcached: with the question for its version.
    Version,
}

impl Greeting<'_> {
    /// Appends it as it goes out.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(protocol, Some(Credential { user, password })) => {
                let hello = ["HELLO", digit(protocol), "AUTH", user, password.reveal()];
                write_command(out, &hello);
            }
            Self::Hello(protocol, None) => write_command(out, &["HELLO", digit(protocol)]),
            Self::Version => out.extend_from_slice(b"version\r\n"),
        }
    }
}

fn digit(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Resp2 => "2",
        Protocol::Resp3 => "3",
    }
}

/// How logging in went.
#[derive(Debug, PartialEq, Eq)]
pub enum Login {
    /// The conversation is open.
    Done,
    /// The node does not know our user or its password.
    Denied,
    /// It is no server of ours; its words.
    Refused(String),
}

/// What the answer to `HELLO` means. Only a server's facts, with the version asked for, open the
/// conversation; an echo does not. With them comes the number by which the server knows the connection,
/// if it has told.
pub(super) fn by_hello(protocol: Protocol, reply: &[u8]) -> (Login, Option<i64>) {
    let login = match Value::parse(reply) {
        Ok(Some((value, _))) if fact(&value, ROUTER_FIELD).is_some() => a_router(),
        Ok(Some((value, _))) if speaks(&value, protocol) => {
            let id = fact(&value, "id").and_then(Value::as_integer);
            return (Login::Done, id);
        }
        Ok(Some((Value::Error(text), _)))
            if text.starts_with("WRONGPASS") || text.starts_with("NOAUTH") =>
        {
            Login::Denied
        }
        Ok(Some((Value::Error(text), _))) => Login::Refused(text),
        _ => Login::Refused("not a reply to HELLO".to_owned()),
    };
    (login, None)
}

/// What the answer to `version` means.
pub(super) fn by_version(reply: &[u8]) -> Login {
    let text = String::from_utf8_lossy(reply).trim_end().to_owned();
    match text.strip_prefix("VERSION ") {
        Some(version) if version.contains(memcached::ROUTER_VERSION) => a_router(),
        Some(_) => Login::Done,
        None if text.starts_with("CLIENT_ERROR unauthenticated") => Login::Denied,
        None => Login::Refused(text),
    }
}

fn a_router() -> Login {
    Login::Refused("it is a router, not a server".to_owned())
}

/// Whether these are a server's facts about itself, in this version of the protocol.
fn speaks(facts: &Value, protocol: Protocol) -> bool {
    let expected = match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    fact(facts, "proto").and_then(Value::as_integer) == Some(expected)
}

/// One of the facts in a reply to `HELLO`.
pub fn fact<'a>(facts: &'a Value, name: &str) -> Option<&'a Value> {
    let mut pairs = facts.pairs().into_iter();
    pairs.find_map(|(key, value)| (key.as_text() == Some(name)).then_some(value))
}
