//! Every command of a real server has one verdict, and `docs/router.md` says which.
//!
//! `CLOCKWISE_GOLDEN=write cargo test -p clockwise-client verdicts` writes the table of the page anew.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

use clockwise_testkit::{RedisOptions, RedisServer};

use super::policy::WITHOUT_NODES;
use super::{Action, Command, CommandTable, Local, Reason, Scatter, Script, TimeoutAt};
use crate::resp::{Value, write_command};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/router.md");
const BEGIN: &str =
    "<!-- What follows is written by a test, crates/client/src/commands/verdicts.rs. -->\n";
const END: &str = "<!-- So far. -->\n";

/// What becomes of commands that reach nodes, for users, in the order of the page.
const REACHING: &[(Action, &str)] = &[
    (
        Action::Forward,
        "goes to the node that owns its keys, which must be one",
    ),
    (
        Action::ForwardUnlessBlocking,
        "likewise; with the option `BLOCK` it waits there, over a connection of the client's own",
    ),
    (
        Action::Block(TimeoutAt::End),
        "likewise; it waits there, over a connection of the client's own",
    ),
    (
        Action::Watch,
        "likewise, over a connection of the client's own, as does the `EXEC` behind it",
    ),
    (
        Action::Scatter(Scatter::Mget),
        "split over the owners of its keys; the values come back in the order of the keys",
    ),
    (
        Action::Scatter(Scatter::Mset),
        "split over the owners of its keys; `OK` when all of them said so",
    ),
    (
        Action::Scatter(Scatter::Count),
        "split over the owners of its keys; the numbers are added up",
    ),
    (Action::Scan, "goes through all nodes, one after the other"),
    (
        Action::SumOverNodes,
        "asked of every node; the numbers are added up",
    ),
    (Action::AnyNode, "asked of any node"),
    (
        Action::Script(Script::Keyed),
        "where the pool allows scripts: goes to the node that owns its keys, at least one",
    ),
    (
        Action::Local(Local::Multi),
        "a transaction: kept by the router until `EXEC`, then sent as one to the node that owns its keys",
    ),
    (
        Action::Local(Local::ClientSwitch),
        "answered by the router where it changes nothing (`OFF`; `CLIENT REPLY ON`); else refused, since clients share the connections to nodes",
    ),
    (
        Action::Script(Script::Load),
        "where the pool allows scripts: sent to every node",
    ),
];

/// What becomes of a command, for users, and the place of that on the page.
fn verdict(action: Action) -> (usize, String) {
    let action = match action {
        Action::Local(Local::Exec | Local::Discard) => Action::Local(Local::Multi),
        Action::Block(_) => Action::Block(TimeoutAt::End),
        other => other,
    };
    let reaches = REACHING.iter().position(|(known, _)| *known == action);
    let reason = match (action, reaches) {
        (_, Some(place)) => return (place, REACHING[place].1.to_owned()),
        (Action::Local(_), _) => return (REACHING.len(), "answered by the router".to_owned()),
        (Action::Script(Script::Manage), _) => Reason::ScriptsOfOne,
        (Action::Refuse(reason), _) => reason,
        (other, _) => unreachable!("{other:?}: a family is what its members are"),
    };
    (REACHING.len() + 1, format!("refused: {}", reason.text()))
}

/// Asks a server on a connection of its own.
fn ask(server: &RedisServer, args: &[&str]) -> Value {
    let mut socket = TcpStream::connect(server.socket_addr()).unwrap();
    let mut request = Vec::new();
    write_command(&mut request, args);
    socket.write_all(&request).unwrap();
    let mut reply = Vec::new();
    loop {
        if let Some((value, _)) = Value::parse(&reply).unwrap() {
            return value;
        }
        let mut chunk = [0; 1 << 16];
        let read = socket.read(&mut chunk).unwrap();
        assert!(read > 0, "the server closed");
        reply.extend_from_slice(&chunk[..read]);
    }
}

/// The members of a family, or the command itself.
fn members(command: &Command) -> Vec<&Command> {
    match command.action {
        Action::Container => command.subcommands.iter().collect(),
        _ => vec![command],
    }
}

#[test]
fn each_command_of_a_server_has_one_verdict_and_the_page_says_which() {
    let server = RedisServer::start(RedisOptions::default());
    let table = CommandTable::of_server(&ask(&server, &["COMMAND"]), "").unwrap();
    let names = ask(&server, &["COMMAND", "LIST"]);
    // It lists subcommands too, as `client|id`.
    let names: BTreeSet<&str> = names
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_text)
        .collect();
    assert!(names.len() > 300, "{}", names.len());

    let mut rows: BTreeMap<(usize, String), BTreeSet<String>> = BTreeMap::new();
    let mut judged = BTreeSet::new();
    for name in names.iter().filter(|name| !name.contains('|')) {
        let members = members(table.find(name.as_bytes()).unwrap());
        assert!(!members.is_empty(), "{name} is a family without members");
        for member in members {
            assert!(judged.insert(&*member.name), "{name} twice");
            let shown = member.name.replace('|', " ").to_uppercase();
            rows.entry(verdict(member.action))
                .or_default()
                .insert(shown);
        }
    }
    // A subcommand has its own verdict, or its command's.
    for (name, family) in names
        .iter()
        .filter_map(|name| Some((name, name.split_once('|')?.0)))
    {
        assert_ne!(judged.contains(name), judged.contains(family), "{name}");
    }
    // Nothing is spoken of that no server knows, but what is ours or came later.
    let ours = ["clockwise", "post", "host:", "waitaof"];
    for known in table.by_name.values().map(|command| &*command.name) {
        assert!(
            ours.contains(&known) || names.contains(known),
            "no server has '{known}'"
        );
    }

    let mut shown = String::from("| what becomes of it | commands |\n|---|---|\n");
    for ((_, verdict), commands) in &rows {
        let commands: Vec<String> = commands.iter().map(|name| format!("`{name}`")).collect();
        shown.push_str(&format!("| {verdict} | {} |\n", commands.join(" ")));
    }
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    if std::env::var_os("CLOCKWISE_GOLDEN").is_some() {
        std::fs::write(PAGE, [before, BEGIN, &shown, END, after].concat()).unwrap();
    } else if server
        .cli(&["INFO", "server"])
        .contains("redis_version:7.0.")
    {
        // The page is about the version that Debian has; others have commands more.
        assert_eq!(
            written, shown,
            "the page is out of date: see the head of this file"
        );
    }
}

#[test]
fn what_is_known_without_nodes_takes_the_arguments_that_servers_take() {
    let server = RedisServer::start(RedisOptions::default());
    let told = CommandTable::of_server(&ask(&server, &["COMMAND"]), "").unwrap();
    let known = CommandTable::without_nodes();
    // What is ours, or came with later servers.
    let unknown = [
        "clockwise",
        "post",
        "host:",
        "waitaof",
        "client|setinfo",
        "client|no-touch",
    ];
    let mut compared = 0;
    for (name, arity, _) in WITHOUT_NODES
        .iter()
        .filter(|(name, ..)| !unknown.contains(name))
    {
        let find = |table: &CommandTable| match name.split_once('|') {
            None => table.find(name.as_bytes()).map(|command| command.arity),
            Some((container, name)) => {
                let container = table.find(container.as_bytes())?;
                Some(container.subcommand(name.as_bytes())?.arity)
            }
        };
        assert_eq!(find(&told), Some(*arity), "{name}");
        assert_eq!(find(&known), Some(*arity), "{name}");
        compared += 1;
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn each_command_stands_where_it_is_looked_for_whatever_its_case() {
    let server = RedisServer::start(RedisOptions::default());
    let table = CommandTable::of_server(&ask(&server, &["COMMAND"]), "").unwrap();
    for (name, action) in [
        ("GeT", Action::Forward),
        ("XREAD", Action::ForwardUnlessBlocking),
        ("sort_ro", Action::Forward),
        ("EVALSHA", Action::Script(Script::Keyed)),
        ("Keys", Action::Refuse(Reason::WholeKeySpace)),
        ("acl", Action::Refuse(Reason::Admin)),
        ("publish", Action::Refuse(Reason::PubSub)),
    ] {
        assert_eq!(
            table.find(name.as_bytes()).unwrap().action,
            action,
            "{name}"
        );
    }
    let of = |container: &str, name: &str| {
        let container = table.find(container.as_bytes()).unwrap();
        container.subcommand(name.as_bytes()).unwrap().action
    };
    assert_eq!(of("OBJECT", "Encoding"), Action::Forward);
    assert_eq!(of("script", "LOAD"), Action::Script(Script::Load));
    assert_eq!(of("client", "KILL"), Action::Refuse(Reason::Admin));
    assert_eq!(
        of("client", "CACHING"),
        Action::Refuse(Reason::SharedConnection)
    );
}
