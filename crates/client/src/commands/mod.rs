//! Which commands there are and where their keys stand, as the servers themselves say.
//!
//! The table is made from a node's reply to `COMMAND`, so that it knows what that version knows,
//! and overlaid with our [policy](Action): what we answer ourselves, what we split over
//! nodes, what we refuse and why. Lookup costs one hash of at most 24 bytes.

mod ask;
mod key_spec;
mod policy;
#[cfg(test)]
mod verdicts;

use std::collections::HashMap;

use crate::resp::Value;
use crate::routing::Effect;

pub use ask::keep_table;
pub use key_spec::{KeySpec, NoKeys, Search};
pub use policy::{Action, Local, Reason, Scatter, Script, TimeoutAt};

/// A command or subcommand.
#[derive(Clone, Debug)]
pub struct Command {
    /// In lower case; of a subcommand `container|name`.
    pub name: Box<str>,
    /// Arguments with the name: exactly so many, or at least so many if negative.
    arity: i64,
    /// Whether it may change something.
    pub effect: Effect,
    /// Where its keys stand.
    pub keys: KeySpec,
    /// What is done with it.
    pub action: Action,
    subcommands: Vec<Command>,
}

impl Command {
    /// Whether it may have so many arguments, its name included.
    #[must_use]
    pub fn takes(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity >= 0 {
            arguments == self.arity
        } else {
            arguments >= -self.arity
        }
    }

    /// Does with it what `known` says, subcommands included; some of those a server may lack.
    fn overlay(&mut self, known: &Command) {
        self.action = known.action;
        for known in &known.subcommands {
            let own = self.subcommands.iter_mut();
            match own.into_iter().find(|own| own.name == known.name) {
                Some(own) => own.action = known.action,
                None => self.subcommands.push(known.clone()),
            }
        }
    }

    /// One of its subcommands, whatever the case of the name.
    #[must_use]
    pub fn subcommand(&self, name: &[u8]) -> Option<&Command> {
        self.subcommands.iter().find(|command| {
            let own = command
                .name
                .rsplit_once('|')
                .map_or(&*command.name, |(_, own)| own);
            own.as_bytes().eq_ignore_ascii_case(name)
        })
    }
}

/// The longest name looked up; no server has one as long.
const NAME_BYTES_MAX: usize = 24;

type Name = [u8; NAME_BYTES_MAX];

/// All commands of a server.
#[derive(Debug, Default)]
pub struct CommandTable {
    by_name: HashMap<Name, Command, std::hash::BuildHasherDefault<NameHasher>>,
    complete: bool,
    transactions: bool,
    server_version: Box<str>,
}

impl CommandTable {
    /// What is known before any node has answered: what needs no node.
    pub fn without_nodes() -> Self {
        let mut table = Self::default();
        for (name, arity, action) in policy::WITHOUT_NODES {
            let command = Command {
                name: (*name).into(),
                arity: *arity,
                effect: Effect::Write,
                keys: KeySpec::None,
                action: *action,
                subcommands: Vec::new(),
            };
            match name.split_once('|') {
                None => table.insert(command),
                Some((container, _)) => {
                    let container = folded(container.as_bytes())
                        .and_then(|container| table.by_name.get_mut(&container))
                        .expect("a subcommand follows its command");
                    container.subcommands.push(command);
                }
            }
        }
        table
    }

    /// For a protocol whose commands need no table.
    pub fn unneeded() -> Self {
        Self {
            complete: true,
            ..Self::default()
        }
    }

    /// The table of a server that replied `reply` to `COMMAND`; `None` if that is no such reply.
    pub fn of_server(reply: &Value, version: &str) -> Option<Self> {
        let mut table = Self {
            server_version: version.into(),
            ..Self::without_nodes()
        };
        for entry in reply.as_array()? {
            let mut command = command(entry)?;
            table.transactions |= &*command.name == "exec";
            if let Some(known) = table.find(command.name.as_bytes()) {
                command.overlay(known);
            }
            table.insert(command);
        }
        table.complete = table.by_name.len() > policy::WITHOUT_NODES.len();
        table.complete.then_some(table)
    }

    /// Whether a server's commands are in it, so that a name it lacks does not exist.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the server knows `MULTI` and `EXEC`.
    pub fn has_transactions(&self) -> bool {
        self.transactions
    }

    /// Of the server that was asked; clients choose their commands by it.
    pub fn server_version(&self) -> &str {
        if self.server_version.is_empty() {
            "7.0.0"
        } else {
            &self.server_version
        }
    }

    /// A command, whatever the case of its name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Command> {
        self.by_name.get(&folded(name)?)
    }

    fn insert(&mut self, command: Command) {
        if let Some(name) = folded(command.name.as_bytes()) {
            self.by_name.insert(name, command);
        }
    }
}

/// The name in lower case, padded with zeros.
fn folded(name: &[u8]) -> Option<Name> {
    let mut folded = [0; NAME_BYTES_MAX];
    folded.get_mut(..name.len())?.copy_from_slice(name);
    folded.make_ascii_lowercase();
    Some(folded)
}

/// Mixes the 24 bytes of a name. Names come from the server, so nobody can aim at one bucket with
/// more than a lookup that fails.
#[derive(Default)]
struct NameHasher(u64);

impl std::hash::Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word))
                .wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Reads one entry of the reply: name, arity, flags, first, last, step, and from version 7 on
/// categories, tips, key specifications and subcommands.
fn command(entry: &Value) -> Option<Command> {
    let fields = entry.as_array()?;
    let name = fields.first()?.as_text()?.to_ascii_lowercase();
    let arity = fields.get(1)?.as_integer()?;
    let words = |at: usize| -> Vec<String> {
        let list = fields.get(at).and_then(Value::as_array).unwrap_or_default();
        list.iter()
            .filter_map(Value::as_text)
            .map(str::to_ascii_lowercase)
            .collect()
    };
    let (flags, categories) = (words(2), words(6));
    let flag = |wanted: &str| flags.iter().any(|flag| flag == wanted);
    let keys = KeySpec::read(&name, flag("movablekeys"), fields);
    let subcommands = fields.get(9).and_then(Value::as_array).unwrap_or_default();
    let subcommands: Vec<Command> = subcommands.iter().map(command).collect::<Option<_>>()?;
    let facts = policy::Facts {
        name: &name,
        flags: &flags,
        categories: &categories,
        keyed: keys
            .as_ref()
            .is_ok_and(|keys| !matches!(keys, KeySpec::None)),
    };
    let mut action = match &keys {
        Ok(_) => policy::action(&facts),
        Err(_) => Action::Refuse(Reason::KeysUnknown),
    };
    // A family of commands is what its members are.
    let administers = |member: &Command| member.action == Action::Refuse(Reason::Admin);
    if action == Action::Refuse(Reason::Keyless) && subcommands.iter().any(administers) {
        action = Action::Refuse(Reason::Admin);
    }
    Some(Command {
        effect: if flag("readonly") {
            Effect::Read
        } else {
            Effect::Write
        },
        name: name.into(),
        arity,
        keys: keys.unwrap_or(KeySpec::None),
        action,
        subcommands,
    })
}
