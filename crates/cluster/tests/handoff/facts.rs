//! What a preflight sees in stories: good servers, but for what the story says.

use clockwise_cluster::HandoffId;
use clockwise_cluster::handoff::preflight::{
    Facts, Persistence, Seen, ServerFacts, TargetFacts, Unseen,
};

use crate::book::Book;

const CLOCK_MS: u64 = 1_000_000;

pub(crate) fn good(book: &Book, id: &HandoffId) -> Facts {
    let (source, targets) = book.source_and_targets(id);
    let lost = book.entry(id).expect("in flight").source_lost;
    let mut seen = server(book, &source);
    if lost {
        seen.facts = Err(Unseen::Unreachable("connection refused".to_string()));
    }
    let target = |target: &String| TargetFacts {
        seen: server(book, target),
        leaving: false,
        bytes_expected: 1_000,
        canary: Ok(()),
    };
    Facts {
        source: seen,
        source_lost: lost,
        source_expected: book.entry(id).expect("in flight").source_expected,
        targets: targets.iter().map(target).collect(),
        foreign_writers_allowed: vec!["exporter".to_string()],
        clock_ms: CLOCK_MS,
    }
}

fn server(book: &Book, name: &str) -> Seen {
    let facts = ServerFacts {
        identity: book.identity(name),
        persistence: Persistence::AppendEverySecond,
        memory_used_bytes: 5_000,
        memory_limit_bytes: None,
        evicts: false,
        clock_ms: CLOCK_MS + 100,
        foreign_writers: vec!["exporter".to_string()],
        open_by_default: None,
        persisted_users: Vec::new(),
        missing_rights: Vec::new(),
    };
    Seen {
        node: name.parse().unwrap(),
        facts: Ok(facts),
    }
}

/// `d evicts`: good servers, but for one thing about one node.
pub(crate) fn but(book: &Book, id: &HandoffId, words: &str) -> Facts {
    let mut facts = good(book, id);
    for words in words.split(" and ") {
        let (node, what) = words.split_once(' ').expect("NODE WHAT");
        if facts.source.node.as_str() == node {
            spoil(&mut facts.source, what, None);
            if what == "answers" {
                facts.source.facts = server(book, node).facts;
            }
            continue;
        }
        let source = facts.source.facts.clone().ok();
        let of_node = |target: &&mut TargetFacts| target.seen.node.as_str() == node;
        let target = facts
            .targets
            .iter_mut()
            .find(of_node)
            .expect("a target of this name");
        match what {
            "leaves" => target.leaving = true,
            "has no room" => {
                target.bytes_expected = 6_000;
                spoil(&mut target.seen, what, None);
            }
            "cannot read the canary" => target.canary = Err("payload version".to_string()),
            _ => spoil(&mut target.seen, what, source.as_ref()),
        }
    }
    facts
}

fn spoil(seen: &mut Seen, what: &str, source: Option<&ServerFacts>) {
    let unseen = match what {
        "cannot be reached" => Some(Unseen::Unreachable("connection refused".to_string())),
        "denies us" => Some(Unseen::Denied("WRONGPASS".to_string())),
        "speaks HTTP" => Some(Unseen::WrongServer("HTTP/1.1 400".to_string())),
        _ => None,
    };
    if let Some(unseen) = unseen {
        seen.facts = Err(unseen);
        return;
    }
    let Ok(server) = &mut seen.facts else { return };
    match what {
        "lacks rights" => {
            server.missing_rights = vec!["RESTORE".to_string(), "ACL SETUSER".to_string()]
        }
        "is open" => server.open_by_default = Some("user default has no password".to_string()),
        "has users of ours in a file" => server.persisted_users = vec!["cw-g3".to_string()],
        "has strangers" => {
            server.foreign_writers = vec!["exporter".to_string(), "backup".to_string()]
        }
        "is a replica" => server.identity.primary = false,
        "keeps snapshots" => server.persistence = Persistence::Snapshots,
        "evicts" => server.evicts = true,
        "has no room" => server.memory_limit_bytes = Some(10_000),
        "is 101 ms behind" => server.clock_ms = CLOCK_MS - 101,
        "is the same server" => server.identity = source.expect("seen").identity.clone(),
        "answers" => {}
        other => panic!("no fault {other}"),
    }
}
