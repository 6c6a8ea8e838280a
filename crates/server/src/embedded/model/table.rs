//! All commands of the embedded node, in one table: it dispatches them, checks the number of their
//! arguments, and is what `COMMAND` replies.

use super::call::{Call, Outcome};
use super::{connection, counters, expiry, keys, strings};

/// What a command does to keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Reads.
    Read,
    /// Writes, and may need more memory.
    Write,
    /// Only takes away.
    Remove,
    /// Is about the node or the connection.
    None,
    /// Likewise, and allowed before the login.
    Open,
}

/// A command.
#[derive(Clone, Copy)]
pub(super) struct Command {
    /// In lower case.
    pub(super) name: &'static str,
    /// Arguments with the name: exactly so many, or at least so many if negative.
    pub(super) arity: i64,
    pub(super) effect: Effect,
    /// First and last key, and the step between them.
    pub(super) keys: (i64, i64, i64),
    pub(super) run: fn(&mut Call<'_>) -> Outcome,
}

impl Command {
    pub(super) fn takes(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity >= 0 {
            arguments == self.arity
        } else {
            arguments >= -self.arity
        }
    }

    pub(super) fn flags(&self) -> &'static [&'static str] {
        match self.effect {
            Effect::Read => &["readonly", "fast"],
            Effect::Write => &["write", "denyoom", "fast"],
            Effect::Remove => &["write", "fast"],
            Effect::None => &["loading", "stale", "fast"],
            Effect::Open => &["loading", "stale", "fast", "no_auth"],
        }
    }

    /// The keys among its arguments.
    pub(super) fn keys_of<'a>(&self, args: &'a [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> {
        let (first, last, step) = self.keys;
        let from_end = |at: i64| {
            if at < 0 {
                i64::try_from(args.len()).unwrap_or(0) + at
            } else {
                at
            }
        };
        let index = |at: i64| usize::try_from(at).unwrap_or(0);
        let places = index(first)..=index(from_end(last));
        let none = first == 0;
        places
            .step_by(index(step).max(1))
            .filter(move |_| !none)
            .filter_map(|at| args.get(at).copied())
    }
}

/// The command of this name, however it is written.
pub(super) fn find(name: &[u8]) -> Option<&'static Command> {
    let folded = name.to_ascii_lowercase();
    let at = COMMANDS.partition_point(|command| command.name.as_bytes() < folded.as_slice());
    COMMANDS
        .get(at)
        .filter(|command| command.name.as_bytes() == folded)
}

const fn command(
    name: &'static str,
    arity: i64,
    effect: Effect,
    keys: (i64, i64, i64),
    run: fn(&mut Call<'_>) -> Outcome,
) -> Command {
    Command {
        name,
        arity,
        effect,
        keys,
        run,
    }
}

const NO_KEY: (i64, i64, i64) = (0, 0, 0);
const ONE: (i64, i64, i64) = (1, 1, 1);
const TWO: (i64, i64, i64) = (1, 2, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);
const PAIRS: (i64, i64, i64) = (1, -1, 2);

/// Sorted by name.
pub(super) const COMMANDS: &[Command] = {
    use Effect::{None, Open, Read, Remove, Write};
    &[
        command("append", 3, Write, ONE, strings::append),
        command("auth", -2, Open, NO_KEY, connection::auth),
        command("client", -2, None, NO_KEY, connection::client),
        command("command", -1, None, NO_KEY, connection::command),
        command("config", -2, None, NO_KEY, connection::config),
        command("copy", -3, Write, TWO, keys::copy),
        command("dbsize", 1, Read, NO_KEY, keys::dbsize),
        command("decr", 2, Write, ONE, counters::decr),
        command("decrby", 3, Write, ONE, counters::decrby),
        command("del", -2, Remove, ALL, keys::del),
        command("echo", 2, None, NO_KEY, connection::echo),
        command("exists", -2, Read, ALL, keys::exists),
        command("expire", -3, Remove, ONE, expiry::expire),
        command("expireat", -3, Remove, ONE, expiry::expireat),
        command("expiretime", 2, Read, ONE, expiry::expiretime),
        command("flushall", -1, Remove, NO_KEY, keys::flush),
        command("flushdb", -1, Remove, NO_KEY, keys::flush),
        command("get", 2, Read, ONE, strings::get),
        command("getdel", 2, Remove, ONE, strings::getdel),
        command("getex", -2, Remove, ONE, strings::getex),
        command("getrange", 4, Read, ONE, strings::getrange),
        command("getset", 3, Write, ONE, strings::getset),
        command("hello", -1, Open, NO_KEY, connection::hello),
        command("incr", 2, Write, ONE, counters::incr),
        command("incrby", 3, Write, ONE, counters::incrby),
        command("incrbyfloat", 3, Write, ONE, counters::incrbyfloat),
        command("info", -1, None, NO_KEY, connection::info),
        command("keys", 2, Read, NO_KEY, keys::keys),
        command("mget", -2, Read, ALL, strings::mget),
        command("mset", -3, Write, PAIRS, strings::mset),
        command("msetnx", -3, Write, PAIRS, strings::msetnx),
        command("persist", 2, Remove, ONE, expiry::persist),
        command("pexpire", -3, Remove, ONE, expiry::pexpire),
        command("pexpireat", -3, Remove, ONE, expiry::pexpireat),
        command("pexpiretime", 2, Read, ONE, expiry::pexpiretime),
        command("ping", -1, None, NO_KEY, connection::ping),
        command("psetex", 4, Write, ONE, strings::psetex),
        command("pttl", 2, Read, ONE, expiry::pttl),
        command("quit", -1, Open, NO_KEY, connection::quit),
        command("randomkey", 1, Read, NO_KEY, keys::randomkey),
        command("rename", 3, Remove, TWO, keys::rename),
        command("renamenx", 3, Remove, TWO, keys::renamenx),
        command("reset", 1, Open, NO_KEY, connection::reset),
        command("scan", -2, Read, NO_KEY, keys::scan),
        command("select", 2, None, NO_KEY, connection::select),
        command("set", -3, Write, ONE, strings::set),
        command("setex", 4, Write, ONE, strings::setex),
        command("setnx", 3, Write, ONE, strings::setnx),
        command("setrange", 4, Write, ONE, strings::setrange),
        command("strlen", 2, Read, ONE, strings::strlen),
        command("substr", 4, Read, ONE, strings::getrange),
        command("time", 1, None, NO_KEY, connection::time),
        command("touch", -2, Read, ALL, keys::exists),
        command("ttl", 2, Read, ONE, expiry::ttl),
        command("type", 2, Read, ONE, keys::kind),
        command("unlink", -2, Remove, ALL, keys::del),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_command_is_found() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        for command in COMMANDS {
            let found = find(command.name.to_uppercase().as_bytes()).unwrap();
            assert_eq!(found.name, command.name);
        }
        assert!(find(b"").is_none() && find(b"zadd").is_none() && find(b"gets").is_none());
    }

    #[test]
    fn keys_are_found_where_the_table_says() {
        let args: Vec<&[u8]> = vec![b"x", b"a", b"1", b"b", b"2"];
        let keys = |name: &[u8]| find(name).unwrap().keys_of(&args).collect::<Vec<_>>();
        assert_eq!(keys(b"get"), [b"a"]);
        assert_eq!(keys(b"mset"), [b"a", b"b"]);
        assert_eq!(keys(b"del"), [b"a", b"1", b"b", b"2"]);
        assert_eq!(keys(b"rename"), [b"a", b"1"]);
        assert!(keys(b"scan").is_empty());
    }
}
