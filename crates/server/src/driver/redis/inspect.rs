//! What the administrator sees of a server before it takes part in a change.
//!
//! **Who gets in without a password after a restart** cannot be seen from afar: the server does not
//! show its files. The rule here is what can be checked soundly. Now, an unauthenticated connection
//! must be refused. And without a user file `requirepass` must be set: users switched off by command
//! leave it empty, and those come back open. What stays unseen: `requirepass` set by `CONFIG SET` and
//! never written to the file, and a user file that differs from the users in memory.

use std::collections::BTreeSet;

use clockwise_client::resp::Value;

use super::RedisOptions;
use super::acl::{self, Categories, ListedUser};
use super::frame::{Frame, Pipeline};
use super::info::Info;
use super::link::Link;
use super::server::{abilities, delete_users, read_info, set_user};
use crate::driver::{DriverError, NodeAddress, NodeFacts, Persistence};

/// A user made and deleted to see whether the rights of a move can be given. It cannot log in.
const PROBE_USER: &str = "cw-probe";

/// Settings that decide what survives a restart and who gets in after it.
#[derive(Debug, Default)]
struct Settings {
    requirepass: String,
    aclfile: String,
    save: String,
    appendfsync: String,
    stop_writes_on_bgsave_error: String,
}

/// What the server shows of itself, as far as it does.
struct Sight {
    info: Info,
    clock_ms: u64,
    users: Vec<String>,
    settings: Settings,
    missing_rights: Vec<String>,
}

pub(super) async fn inspect(
    node: &NodeAddress,
    options: &RedisOptions,
) -> Result<NodeFacts, DriverError> {
    let link = Link::open(
        &node.id,
        &node.address,
        &options.administrator,
        options.patience,
    )
    .await?;
    let mut sight = look(&link).await?;
    let Some(identity) = sight.info.identity() else {
        return Err(link
            .peer()
            .wrong_server("INFO shows no run_id, role or master_replid"));
    };
    probe_rights(&link, &identity.run_id, options, &mut sight.missing_rights).await?;
    let replicas = sight.info.replicas();
    for replica in &replicas {
        probe_replica(node, replica, options, &mut sight.missing_rights).await;
    }

    let users: Vec<ListedUser<'_>> = sight
        .users
        .iter()
        .filter_map(|line| ListedUser::parse(line))
        .collect();
    let categories = categories(&link, &users).await?;
    let is_ours = |name: &str| acl::generation_of(name).is_some() || acl::term_of(name).is_some();
    let foreign = |user: &&ListedUser<'_>| {
        !is_ours(user.name)
            && user.name != options.administrator.user
            && user.may_write(&categories)
    };
    let persisted =
        |user: &&ListedUser<'_>| is_ours(user.name) && !user.made_in_run(&identity.run_id);
    let names =
        |users: Vec<&ListedUser<'_>>| users.iter().map(|user| user.name.to_owned()).collect();

    let limit = sight.info.number("maxmemory").filter(|bytes| *bytes > 0);
    let policy = sight.info.get("maxmemory_policy").unwrap_or("noeviction");
    Ok(NodeFacts {
        server: format!(
            "{} {}",
            link.greeting().server,
            server_version(&link, &sight.info)
        ),
        persistence: persistence(&sight.info, &sight.settings),
        memory_used_bytes: sight.info.number("used_memory").unwrap_or(0),
        memory_limit_bytes: limit,
        evicts: limit.is_some() && policy != "noeviction",
        refuses_writes: refuses_writes(&sight.info, &sight.settings, limit, policy),
        keys: sight.info.keys(),
        clock_ms: sight.clock_ms,
        foreign_writers: names(users.iter().filter(foreign).collect()),
        open_by_default: open_by_default(&users, &sight.settings),
        persisted_users: names(users.iter().filter(persisted).collect()),
        missing_rights: sight.missing_rights,
        highest_term: users
            .iter()
            .filter_map(|user| acl::term_of(user.name))
            .max(),
        replicas,
        identity,
    })
}

/// Asks all that the facts are made of, in one round trip. What is refused is noted.
async fn look(link: &Link) -> Result<Sight, DriverError> {
    const COMMANDS: [(&str, &[&[u8]]); 4] = [
        ("INFO", &[b"INFO"]),
        ("TIME", &[b"TIME"]),
        ("ACL LIST", &[b"ACL", b"LIST"]),
        (
            "CONFIG GET",
            &[
                b"CONFIG",
                b"GET",
                b"requirepass",
                b"aclfile",
                b"save",
                b"appendfsync",
                b"stop-writes-on-bgsave-error",
            ],
        ),
    ];
    let mut pipeline = Pipeline::default();
    for (_, args) in COMMANDS {
        pipeline.push(args);
    }
    let frames = link.call("INFO", pipeline).await?;
    let mut missing_rights = Vec::new();
    let mut seen: [Option<&Frame>; 4] = [None; 4];
    for (((command, _), frame), seen) in COMMANDS.iter().zip(&frames).zip(&mut seen) {
        match frame.error() {
            None => *seen = Some(frame),
            Some(why) => missing_rights.push(format!("{command}: {why}")),
        }
    }
    let [info, time, users, settings] = seen;
    let Some(info) = info else {
        // Without it nothing is known; the error says whether we were refused or it is no such server.
        return Err(link.peer().refused("INFO", missing_rights.swap_remove(0)));
    };
    Ok(Sight {
        info: read_info(link, info)?,
        clock_ms: time
            .map(Frame::value)
            .as_ref()
            .and_then(read_time)
            .unwrap_or(0),
        users: users
            .map(Frame::value)
            .as_ref()
            .map(texts)
            .unwrap_or_default(),
        settings: settings
            .map(Frame::value)
            .as_ref()
            .map(read_settings)
            .unwrap_or_default(),
        missing_rights,
    })
}

/// Milliseconds since 1970 from the seconds and microseconds of `TIME`.
pub(super) fn read_time(time: &Value) -> Option<u64> {
    let [seconds, micros] = time.as_array()? else {
        return None;
    };
    let seconds: u64 = seconds.as_text()?.parse().ok()?;
    let micros: u64 = micros.as_text()?.parse().ok()?;
    Some(seconds * 1000 + micros / 1000)
}

fn texts(list: &Value) -> Vec<String> {
    let elements = list.as_array().unwrap_or_default();
    elements
        .iter()
        .filter_map(|element| element.as_text().map(str::to_owned))
        .collect()
}

fn read_settings(map: &Value) -> Settings {
    let mut settings = Settings::default();
    for (name, value) in map.pairs() {
        let Some(value) = value.as_text() else {
            continue;
        };
        match name.as_text() {
            Some("requirepass") => settings.requirepass = value.to_owned(),
            Some("aclfile") => settings.aclfile = value.to_owned(),
            Some("save") => settings.save = value.to_owned(),
            Some("appendfsync") => settings.appendfsync = value.to_owned(),
            Some("stop-writes-on-bgsave-error") => {
                settings.stop_writes_on_bgsave_error = value.to_owned();
            }
            _ => {}
        }
    }
    settings
}

/// Valkey calls itself by the Redis version that it is compatible with, and tells its own beside it.
fn server_version<'a>(link: &'a Link, info: &'a Info) -> &'a str {
    info.get("valkey_version")
        .unwrap_or(&link.greeting().version)
}

fn persistence(info: &Info, settings: &Settings) -> Persistence {
    if info.number("aof_enabled") == Some(1) {
        return if settings.appendfsync == "always" {
            Persistence::AppendAlways
        } else {
            Persistence::AppendEverySecond
        };
    }
    if settings.save.is_empty() {
        Persistence::None
    } else {
        Persistence::Snapshots
    }
}

/// What the server answers `MISCONF` or `OOM` for.
fn refuses_writes(
    info: &Info,
    settings: &Settings,
    limit: Option<u64>,
    policy: &str,
) -> Option<String> {
    let failed = |field: &str| info.get(field) == Some("err");
    if info.number("aof_enabled") == Some(1) && failed("aof_last_write_status") {
        return Some(
            "it cannot write its append-only file (MISCONF); see its log and the room on its disk"
                .to_owned(),
        );
    }
    if !settings.save.is_empty()
        && settings.stop_writes_on_bgsave_error == "yes"
        && failed("rdb_last_bgsave_status")
    {
        return Some(
            "its last snapshot failed (MISCONF); see its log and the room on its disk".to_owned(),
        );
    }
    let used = info.number("used_memory").unwrap_or(0);
    // What its buffers take does not count against the limit.
    let buffers = info.number("mem_not_counted_for_evict").unwrap_or(0);
    let limit =
        limit.filter(|limit| policy == "noeviction" && used.saturating_sub(buffers) > *limit)?;
    Some(format!(
        "its memory is full (OOM): {used} bytes are used, maxmemory is {limit}"
    ))
}

fn open_by_default(users: &[ListedUser<'_>], settings: &Settings) -> Option<String> {
    let Some(default) = users.iter().find(|user| user.name == "default") else {
        return Some("the users of the server cannot be seen".to_owned());
    };
    if default.enters && default.nopass {
        return Some("user default needs no password".to_owned());
    }
    if settings.aclfile.is_empty() && settings.requirepass.is_empty() {
        return Some(
            "requirepass is not set, so that user default, closed by a command now, is open after a restart: \
             set requirepass in the server's configuration file"
                .to_owned(),
        );
    }
    None
}

/// Makes a user with the rights of a move and one with those of clients, and deletes it: what the
/// server does not know or the administrator may not give shows itself.
async fn probe_rights(
    link: &Link,
    run_id: &str,
    options: &RedisOptions,
    missing_rights: &mut Vec<String>,
) -> Result<(), DriverError> {
    let closed = |mut rules: Vec<Vec<u8>>| {
        rules.extend([b"resetpass".to_vec(), b"off".to_vec()]);
        rules
    };
    let abilities = abilities(link).await.unwrap_or_default();
    let probes = [
        set_user(
            link,
            PROBE_USER,
            &closed(acl::term_user_rules("", abilities, run_id)),
        )
        .await,
        set_user(
            link,
            PROBE_USER,
            &closed(acl::client_user_rules("", options.scripts, run_id)),
        )
        .await,
        delete_users(link, |name| name == PROBE_USER).await,
    ];
    for probe in probes {
        match probe {
            Ok(()) => {}
            Err(DriverError::Refused { command, why, .. }) => {
                missing_rights.push(format!("{command}: {why}"))
            }
            Err(DriverError::Denied { why, .. }) => missing_rights.push(why),
            Err(other) => return Err(other),
        }
    }
    missing_rights.extend(renamed_away(link).await?);
    missing_rights.dedup();
    Ok(())
}

/// Commands that a move needs and that are not there under their names.
async fn renamed_away(link: &Link) -> Result<Vec<String>, DriverError> {
    let commands: Vec<&str> = acl::commands_needed().collect();
    let mut args: Vec<&[u8]> = vec![b"COMMAND", b"INFO"];
    args.extend(commands.iter().map(|command| command.as_bytes()));
    let frames = link.call("COMMAND INFO", Pipeline::of(&args)).await?;
    let infos = frames.first().map_or(Value::Null, Frame::value);
    let is_missing = |(_, info): &(&&str, &Value)| **info == Value::Null;
    let missing = commands
        .iter()
        .zip(infos.as_array().unwrap_or_default())
        .filter(is_missing);
    Ok(missing
        .map(|(command, _)| format!("{command}: the server does not know this command"))
        .collect())
}

/// A replica that cannot be entered cannot be fenced.
async fn probe_replica(
    node: &NodeAddress,
    address: &str,
    options: &RedisOptions,
    missing_rights: &mut Vec<String>,
) {
    let mut of_replica = Vec::new();
    let probed = async {
        let link = Link::open(&node.id, address, &options.administrator, options.patience).await?;
        probe_rights(&link, "", options, &mut of_replica).await
    };
    if let Err(error) = probed.await {
        of_replica.push(error.to_string());
    }
    missing_rights.extend(
        of_replica
            .into_iter()
            .map(|why| format!("replica {address}: {why}")),
    );
}

/// The categories that the users' rules speak of.
async fn categories(link: &Link, users: &[ListedUser<'_>]) -> Result<Categories, DriverError> {
    let mut names: BTreeSet<&str> = users.iter().flat_map(ListedUser::categories).collect();
    names.insert("write");
    let mut pipeline = Pipeline::default();
    for name in &names {
        pipeline.push(&[b"ACL", b"CAT", name.as_bytes()]);
    }
    let frames = link.call("ACL CAT", pipeline).await?;
    let mut categories = Categories::default();
    for (name, frame) in names.iter().zip(&frames) {
        if frame.error().is_none() {
            categories.insert(name, texts(&frame.value()));
        }
    }
    Ok(categories)
}
