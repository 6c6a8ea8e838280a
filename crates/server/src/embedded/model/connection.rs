//! Commands about the connection and the node: greeting, login, names, information.

use clockwise_client::resp::Protocol;

use super::call::{Call, Outcome, quoted, words};
use super::glob;
use super::number;
use super::table::{self, Command};

/// The version whose behaviour is imitated; clients choose their commands by it.
pub(super) const VERSION: &str = "7.0.0";

pub(super) fn ping(call: &mut Call<'_>) -> Outcome {
    match call.args.len() {
        1 => call.reply_simple("PONG"),
        2 => call.reply_bulk(call.arg(1)),
        _ => Err(format!(
            "ERR wrong number of arguments for '{}' command",
            call.name
        )),
    }
}

pub(super) fn echo(call: &mut Call<'_>) -> Outcome {
    call.reply_bulk(call.arg(1))
}

pub(super) fn quit(call: &mut Call<'_>) -> Outcome {
    call.connection.quits = true;
    call.reply_ok()
}

pub(super) fn reset(call: &mut Call<'_>) -> Outcome {
    call.connection.protocol = Protocol::Resp2;
    call.connection.name.clear();
    call.connection.admission = None;
    call.reply_simple("RESET")
}

pub(super) fn select(call: &mut Call<'_>) -> Outcome {
    match call.small_integer_arg(1)? {
        0 => call.reply_ok(),
        _ => Err("ERR DB index is out of range".to_owned()),
    }
}

pub(super) fn auth(call: &mut Call<'_>) -> Outcome {
    match call.args.len() {
        2 => login(call, b"default", call.arg(1))?,
        3 => login(call, call.arg(1), call.arg(2))?,
        _ => return Err(words::SYNTAX.to_owned()),
    }
    call.reply_ok()
}

fn login(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Outcome {
    let admission = call.access.admit(user, password);
    call.connection.admission =
        Some(admission.ok_or("WRONGPASS invalid username-password pair or user is disabled.")?);
    Ok(())
}

pub(super) fn hello(call: &mut Call<'_>) -> Outcome {
    let mut protocol = call.connection.protocol;
    if call.args.len() > 1 {
        let version = number::integer(call.arg(1))
            .ok_or("ERR Protocol version is not an integer or out of range")?;
        protocol = match version {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err("NOPROTO unsupported protocol version".to_owned()),
        };
    }
    let (mut at, mut credentials) = (2, None);
    while at < call.args.len() {
        let left = call.args.len() - at - 1;
        match call.option(at).as_str() {
            "auth" if left >= 2 => {
                credentials = Some((call.arg(at + 1), call.arg(at + 2)));
                at += 3;
            }
            "setname" if left >= 1 => {
                // Before what follows is looked at, as servers of version 7.0 do.
                call.connection.name = checked_name(call.arg(at + 1))?;
                at += 2;
            }
            _ => {
                let option = String::from_utf8_lossy(call.arg(at));
                return Err(format!("ERR Syntax error in HELLO option '{option}'"));
            }
        }
    }
    if let Some((user, password)) = credentials {
        login(call, user, password)?;
    }
    if call.connection.admission.is_none() {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
             the same time"
                .to_owned(),
        );
    }
    call.connection.protocol = protocol;
    greet(call)
}

fn greet(call: &mut Call<'_>) -> Outcome {
    let id = i64::try_from(call.connection.id).unwrap_or(i64::MAX);
    call.reply_map(7)?;
    for (name, value) in [("server", "redis"), ("version", VERSION)] {
        call.reply_bulk(name.as_bytes())?;
        call.reply_bulk(value.as_bytes())?;
    }
    call.reply_bulk(b"proto")?;
    call.reply_integer(if call.connection.protocol == Protocol::Resp3 {
        3
    } else {
        2
    })?;
    call.reply_bulk(b"id")?;
    call.reply_integer(id)?;
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        call.reply_bulk(name.as_bytes())?;
        call.reply_bulk(value.as_bytes())?;
    }
    call.reply_bulk(b"modules")?;
    call.reply_array(0)
}

fn unknown_subcommand(call: &Call<'_>) -> String {
    let (name, command) = (quoted(call.arg(1), 128), call.name.to_uppercase());
    format!("ERR unknown subcommand '{name}'. Try {command} HELP.")
}

/// Names are shown in lists of words.
fn checked_name(name: &[u8]) -> Result<bytes::Bytes, String> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Ok(bytes::Bytes::copy_from_slice(name))
    } else {
        Err("ERR Client names cannot contain spaces, newlines or special characters.".to_owned())
    }
}

pub(super) fn client(call: &mut Call<'_>) -> Outcome {
    match (call.option(1).as_str(), call.args.len()) {
        ("id", 2) => call.reply_integer(i64::try_from(call.connection.id).unwrap_or(i64::MAX)),
        ("getname", 2) if call.connection.name.is_empty() => call.reply_null(),
        ("getname", 2) => {
            let name = call.connection.name.clone();
            call.reply_bulk(&name)
        }
        ("setname", 3) => {
            call.connection.name = checked_name(call.arg(2))?;
            call.reply_ok()
        }
        ("info", 2) => {
            let line = describe(call);
            call.reply_text(&line)
        }
        // Clients send these without being asked, and tell nobody when they fail.
        ("setinfo", 4) | ("no-evict" | "no-touch", 3) => call.reply_ok(),
        ("id" | "getname" | "setname" | "info" | "setinfo" | "no-evict" | "no-touch", _) => {
            Err(format!(
                "ERR wrong number of arguments for 'client|{}' command",
                call.option(1)
            ))
        }
        _ => Err(unknown_subcommand(call)),
    }
}

fn describe(call: &Call<'_>) -> String {
    let connection = &*call.connection;
    let user = connection.admission.map_or_else(
        || "default".to_owned(),
        |user| format!("cw-g{}", user.generation.0),
    );
    let protocol = if connection.protocol == Protocol::Resp3 {
        3
    } else {
        2
    };
    let name = String::from_utf8_lossy(&connection.name);
    format!(
        "id={} addr={} name={name} db=0 user={user} resp={protocol}\n",
        connection.id, connection.address
    )
}

/// What clients and tools ask for when they start.
fn settings(call: &Call<'_>) -> Vec<(&'static str, String)> {
    vec![
        ("appendonly", "no".to_owned()),
        ("databases", "1".to_owned()),
        (
            "maxmemory",
            call.data.memory_limit().unwrap_or(0).to_string(),
        ),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("save", String::new()),
    ]
}

pub(super) fn config(call: &mut Call<'_>) -> Outcome {
    if call.option(1) != "get" {
        return Err(unknown_subcommand(call));
    }
    if call.args.len() < 3 {
        return Err("ERR wrong number of arguments for 'config|get' command".to_owned());
    }
    let mut settings = settings(call);
    let patterns: Vec<_> = call.args[2..]
        .iter()
        .map(|pattern| pattern.to_ascii_lowercase())
        .collect();
    settings.retain(|(name, _)| {
        patterns
            .iter()
            .any(|pattern| glob::matches(pattern, name.as_bytes()))
    });
    call.reply_map(settings.len())?;
    for (name, value) in settings {
        call.reply_bulk(name.as_bytes())?;
        call.reply_bulk(value.as_bytes())?;
    }
    Ok(())
}

pub(super) fn time(call: &mut Call<'_>) -> Outcome {
    call.reply_array(2)?;
    call.reply_bulk((call.now_ms / 1000).to_string().as_bytes())?;
    call.reply_bulk((call.now_ms % 1000 * 1000).to_string().as_bytes())
}

pub(super) fn info(call: &mut Call<'_>) -> Outcome {
    let keys = call.data.len();
    let sections = [
        (
            "Server",
            format!(
                "redis_version:{VERSION}\r\nredis_mode:standalone\r\nclockwise_version:{}\r\n\
                 clockwise_engine:embedded, keeps data in memory only\r\n",
                env!("CARGO_PKG_VERSION")
            ),
        ),
        (
            "Memory",
            format!(
                "used_memory:{}\r\nmaxmemory:{}\r\nmaxmemory_policy:noeviction\r\n",
                call.data.memory_bytes(),
                call.data.memory_limit().unwrap_or(0)
            ),
        ),
        (
            "Stats",
            format!("total_commands_processed:{}\r\n", call.data.commands),
        ),
        (
            "Replication",
            "role:master\r\nconnected_slaves:0\r\n".to_owned(),
        ),
        (
            "Keyspace",
            if keys == 0 {
                String::new()
            } else {
                format!("db0:keys={keys},expires=0,avg_ttl=0\r\n")
            },
        ),
    ];
    let asked: Vec<_> = (1..call.args.len()).map(|at| call.option(at)).collect();
    let is_asked = |name: &str| {
        asked.is_empty()
            || asked.iter().any(|asked| {
                ["all", "default", "everything", &name.to_lowercase()].contains(&asked.as_str())
            })
    };
    let shown = sections.iter().filter(|(name, _)| is_asked(name));
    let text: Vec<_> = shown
        .map(|(name, lines)| format!("# {name}\r\n{lines}"))
        .collect();
    call.reply_text(&text.join("\r\n"))
}

pub(super) fn command(call: &mut Call<'_>) -> Outcome {
    if call.args.len() == 1 {
        call.reply_array(table::COMMANDS.len())?;
        return table::COMMANDS
            .iter()
            .try_for_each(|command| describe_command(call, command));
    }
    match call.option(1).as_str() {
        "count" => call.reply_count(table::COMMANDS.len()),
        // No documents, which clients take for an old server's answer.
        "docs" => call.reply_map(0),
        "info" if call.args.len() == 2 => {
            call.reply_array(table::COMMANDS.len())?;
            table::COMMANDS
                .iter()
                .try_for_each(|command| describe_command(call, command))
        }
        "info" => {
            call.reply_array(call.args.len() - 2)?;
            for name in &call.args[2..] {
                match table::find(name) {
                    Some(command) => describe_command(call, command)?,
                    None => call.reply_null()?,
                }
            }
            Ok(())
        }
        _ => Err(unknown_subcommand(call)),
    }
}

/// Name, arity, flags, where the keys are; then, empty, what servers of version 7 add.
fn describe_command(call: &mut Call<'_>, command: &Command) -> Outcome {
    call.reply_array(10)?;
    call.reply_bulk(command.name.as_bytes())?;
    call.reply_integer(command.arity)?;
    let flags = command.flags();
    call.reply_array(flags.len())?;
    flags.iter().try_for_each(|flag| call.reply_simple(flag))?;
    let (first, last, step) = command.keys;
    [first, last, step]
        .into_iter()
        .try_for_each(|number| call.reply_integer(number))?;
    (0..4).try_for_each(|_| call.reply_array(0))
}
