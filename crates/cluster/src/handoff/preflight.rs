//! What has to be true of every server before a handoff begins, and every reason why it is refused.
//!
//! All reasons are reported at once, so that a person mends them in one go.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use clockwise_placement::NodeId;

use super::message::Identity;
use crate::Incarnation;

/// Expiry travels as absolute time: a server whose clock is off by more would expire keys early or late.
pub const CLOCK_SKEW_MS_MAX: u64 = 100;

/// What was seen of every server of one handoff.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The source. Lost ones are looked for too.
    pub source: Seen,
    /// Whether the source is to be given up without a copy.
    pub source_lost: bool,
    /// Which run of which data the source has to be: the old owners may still have what it would give back.
    pub source_expected: Option<Incarnation>,
    /// The targets, in their order.
    pub targets: Vec<TargetFacts>,
    /// Users who may write although they are not ours.
    pub foreign_writers_allowed: Vec<String>,
    /// The observer's clock when the servers were asked, milliseconds since 1970.
    pub clock_ms: u64,
}

/// What was seen of a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetFacts {
    /// The server.
    pub seen: Seen,
    /// Whether the node leaves the pool with this change.
    pub leaving: bool,
    /// Bytes that it is expected to take in.
    pub bytes_expected: u64,
    /// Why it did not take a value that the source serialised.
    pub canary: Result<(), String>,
}

/// One server, or why nothing is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The node.
    pub node: NodeId,
    /// What it looks like.
    pub facts: Result<ServerFacts, Unseen>,
}

/// Why nothing is known of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unseen {
    /// Nobody answers.
    Unreachable(String),
    /// It does not let the administrator in.
    Denied(String),
    /// It is not a server of this pool's kind.
    WrongServer(String),
}

/// What the administrator sees of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerFacts {
    /// Which run of which data it is.
    pub identity: Identity,
    /// What a restart would keep.
    pub persistence: Persistence,
    /// Bytes of memory in use.
    pub memory_used_bytes: u64,
    /// Limit of memory, where there is one.
    pub memory_limit_bytes: Option<u64>,
    /// Whether it drops keys of its own accord when memory is full.
    pub evicts: bool,
    /// Its clock, milliseconds since 1970.
    pub clock_ms: u64,
    /// Users who may write and are neither ours nor the administrator.
    pub foreign_writers: Vec<String>,
    /// Why somebody without a password is let in, now or after a restart; none if nobody is.
    pub open_by_default: Option<String>,
    /// Users of ours that stand in a file and would come back with a restart.
    pub persisted_users: Vec<String>,
    /// Commands and rights that a move needs and this server refuses.
    pub missing_rights: Vec<String>,
}

/// How much of what a server acknowledged survives its restart. Ordered: later keeps more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Persistence {
    /// Nothing, or what an old snapshot file happens to hold.
    None,
    /// Snapshots at intervals.
    Snapshots,
    /// A log of writes, synced about once a second or by the system.
    AppendEverySecond,
    /// A log of writes, synced before each reply.
    AppendAlways,
}

/// Why a handoff is not begun.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// Nobody answers.
    Unreachable {
        /// The node.
        node: NodeId,
        /// The system's words.
        why: String,
    },
    /// The administrator is not let in.
    Denied {
        /// The node.
        node: NodeId,
        /// The server's words.
        why: String,
    },
    /// It is not a server of this pool's kind.
    WrongServer {
        /// The node.
        node: NodeId,
        /// What answered.
        why: String,
    },
    /// The node to be given up without a copy answers.
    LostNodeAnswers {
        /// The node.
        node: NodeId,
    },
    /// A node that gives keys back restarted or its data was replaced since it got them, while the old
    /// owners may still have theirs.
    SourceChanged {
        /// The node.
        node: NodeId,
        /// Who became the owner.
        expected: Incarnation,
        /// Who answers now.
        found: Incarnation,
    },
    /// Two nodes are one server.
    SameServer {
        /// The source.
        source: NodeId,
        /// The target.
        target: NodeId,
    },
    /// Commands and rights that a move needs are missing.
    MissingRights {
        /// The node.
        node: NodeId,
        /// Which.
        rights: Vec<String>,
    },
    /// Somebody without a password is let in, now or after a restart: nobody could be fenced.
    OpenByDefault {
        /// The node.
        node: NodeId,
        /// What lets them in.
        why: String,
    },
    /// Users of ours stand in a file: fenced ones would come back with a restart.
    PersistedUsers {
        /// The node.
        node: NodeId,
        /// Which.
        users: Vec<String>,
    },
    /// Users who are not ours may write: the fence would not stop them.
    ForeignWriters {
        /// The node.
        node: NodeId,
        /// Which.
        users: Vec<String>,
    },
    /// It does not take writes of its own.
    NotPrimary {
        /// The node.
        node: NodeId,
    },
    /// The target keeps less over a restart than the source does.
    LessDurable {
        /// The target.
        target: NodeId,
        /// What it keeps.
        keeps: Persistence,
        /// What the source keeps.
        source_keeps: Persistence,
    },
    /// The target drops keys when memory is full.
    TargetEvicts {
        /// The target.
        target: NodeId,
    },
    /// The target has no room.
    NoRoom {
        /// The target.
        target: NodeId,
        /// What it is expected to take in.
        bytes_expected: u64,
        /// What is free.
        bytes_free: u64,
    },
    /// The target leaves the pool.
    TargetLeaves {
        /// The target.
        target: NodeId,
    },
    /// The target cannot read what the source serialises.
    CanaryDied {
        /// The target.
        target: NodeId,
        /// The server's words.
        why: String,
    },
    /// A server's clock is off.
    ClockSkew {
        /// The node.
        node: NodeId,
        /// By how much.
        skew_ms: u64,
    },
}

/// Every reason not to begin; none means that the copy may begin.
#[must_use]
pub fn check(facts: &Facts) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let source = match (&facts.source.facts, facts.source_lost) {
        (Ok(_), true) => {
            refusals.push(Refusal::LostNodeAnswers {
                node: facts.source.node.clone(),
            });
            None
        }
        (Err(_), true) => None,
        (_, false) => check_server(&facts.source, facts, &mut refusals),
    };
    if let (Some(expected), Some(source)) = (&facts.source_expected, source)
        && source.identity.incarnation != *expected
    {
        refusals.push(Refusal::SourceChanged {
            node: facts.source.node.clone(),
            expected: expected.clone(),
            found: source.identity.incarnation.clone(),
        });
    }
    for target in &facts.targets {
        if let Some(seen) = check_server(&target.seen, facts, &mut refusals) {
            check_target(target, seen, &mut refusals);
            if let Some(source) = source {
                check_pair(&facts.source.node, source, target, seen, &mut refusals);
            }
        }
    }
    refusals
}

/// What both a source and a target must be.
fn check_server<'a>(
    seen: &'a Seen,
    facts: &Facts,
    refusals: &mut Vec<Refusal>,
) -> Option<&'a ServerFacts> {
    let node = || seen.node.clone();
    let server = match &seen.facts {
        Ok(server) => server,
        Err(unseen) => {
            refusals.push(match unseen.clone() {
                Unseen::Unreachable(why) => Refusal::Unreachable { node: node(), why },
                Unseen::Denied(why) => Refusal::Denied { node: node(), why },
                Unseen::WrongServer(why) => Refusal::WrongServer { node: node(), why },
            });
            return None;
        }
    };
    if !server.missing_rights.is_empty() {
        refusals.push(Refusal::MissingRights {
            node: node(),
            rights: server.missing_rights.clone(),
        });
    }
    if let Some(why) = server.open_by_default.clone() {
        refusals.push(Refusal::OpenByDefault { node: node(), why });
    }
    if !server.persisted_users.is_empty() {
        refusals.push(Refusal::PersistedUsers {
            node: node(),
            users: server.persisted_users.clone(),
        });
    }
    let strangers = server
        .foreign_writers
        .iter()
        .filter(|user| !facts.foreign_writers_allowed.contains(user));
    let users: Vec<String> = strangers.cloned().collect();
    if !users.is_empty() {
        refusals.push(Refusal::ForeignWriters {
            node: node(),
            users,
        });
    }
    if !server.identity.primary {
        refusals.push(Refusal::NotPrimary { node: node() });
    }
    let skew_ms = server.clock_ms.abs_diff(facts.clock_ms);
    if skew_ms > CLOCK_SKEW_MS_MAX {
        refusals.push(Refusal::ClockSkew {
            node: node(),
            skew_ms,
        });
    }
    Some(server)
}

fn check_target(target: &TargetFacts, server: &ServerFacts, refusals: &mut Vec<Refusal>) {
    let node = || target.seen.node.clone();
    if target.leaving {
        refusals.push(Refusal::TargetLeaves { target: node() });
    }
    if server.evicts {
        refusals.push(Refusal::TargetEvicts { target: node() });
    }
    if let Some(limit) = server.memory_limit_bytes {
        let bytes_free = limit.saturating_sub(server.memory_used_bytes);
        if bytes_free < target.bytes_expected {
            refusals.push(Refusal::NoRoom {
                target: node(),
                bytes_expected: target.bytes_expected,
                bytes_free,
            });
        }
    }
    if let Err(why) = &target.canary {
        refusals.push(Refusal::CanaryDied {
            target: node(),
            why: why.clone(),
        });
    }
}

fn check_pair(
    source_node: &NodeId,
    source: &ServerFacts,
    target: &TargetFacts,
    server: &ServerFacts,
    refusals: &mut Vec<Refusal>,
) {
    if server.identity.incarnation.run_id == source.identity.incarnation.run_id {
        refusals.push(Refusal::SameServer {
            source: source_node.clone(),
            target: target.seen.node.clone(),
        });
    }
    if server.persistence < source.persistence {
        refusals.push(Refusal::LessDurable {
            target: target.seen.node.clone(),
            keeps: server.persistence,
            source_keeps: source.persistence,
        });
    }
}

impl fmt::Display for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "nothing",
            Self::Snapshots => "snapshots",
            Self::AppendEverySecond => "a log synced every second",
            Self::AppendAlways => "a log synced before each reply",
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { node, why } => write!(f, "{node} cannot be reached: {why}"),
            Self::Denied { node, why } => {
                write!(f, "{node} does not let the administrator in: {why}")
            }
            Self::WrongServer { node, why } => {
                write!(f, "{node} is not a server that this pool can use: {why}")
            }
            Self::LostNodeAnswers { node } => {
                write!(
                    f,
                    "{node} answers; remove it without --lost, so that its keys are kept"
                )
            }
            Self::SourceChanged {
                node,
                expected,
                found,
            } => write!(
                f,
                "{node} was run {} when it became the owner and is run {} now; the old owners may still have \
                 what it lost",
                expected.run_id, found.run_id
            ),
            Self::SameServer { source, target } => {
                write!(f, "{source} and {target} are the same server")
            }
            Self::MissingRights { node, rights } => {
                write!(f, "{node} refuses what a move needs: {}", Names(rights))
            }
            Self::OpenByDefault { node, why } => write!(
                f,
                "{node} lets anybody in without a password, now or after a restart: {why}; \
                 set requirepass or `user default off` in its configuration file"
            ),
            Self::PersistedUsers { node, users } => write!(
                f,
                "{node} has users of ours in its configuration or ACL file, where a restart would bring them \
                 back: {}",
                Names(users)
            ),
            Self::ForeignWriters { node, users } => write!(
                f,
                "{node} has other users who can write, whom no fence would stop: {}; \
                 remove them or allow them by name",
                Names(users)
            ),
            Self::NotPrimary { node } => write!(f, "{node} is a replica"),
            Self::LessDurable {
                target,
                keeps,
                source_keeps,
            } => {
                write!(
                    f,
                    "{target} keeps {keeps} over a restart, its source keeps {source_keeps}"
                )
            }
            Self::TargetEvicts { target } => {
                write!(
                    f,
                    "{target} drops keys when its memory is full; set maxmemory-policy noeviction"
                )
            }
            Self::NoRoom {
                target,
                bytes_expected,
                bytes_free,
            } => {
                write!(
                    f,
                    "{target} has memory for {bytes_free} more bytes, and {bytes_expected} are expected"
                )
            }
            Self::TargetLeaves { target } => {
                write!(f, "{target} leaves the pool and cannot take keys")
            }
            Self::CanaryDied { target, why } => {
                write!(
                    f,
                    "{target} does not take what its source serialises: {why}"
                )
            }
            Self::ClockSkew { node, skew_ms } => {
                write!(
                    f,
                    "the clock of {node} is off by {skew_ms} ms, at most {CLOCK_SKEW_MS_MAX} are allowed"
                )
            }
        }
    }
}

struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}
