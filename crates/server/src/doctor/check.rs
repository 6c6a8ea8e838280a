//! All checks that there are: their names, how grave each is, and why it matters.
//!
//! The table in `docs/doctor.md` is written from here.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How grave a finding is. Ordered: the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work, or data or secrets are at stake.
    Error,
    /// Something will hurt one day, or hurts under load.
    Warning,
    /// Good to know.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// What a check is known by.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name in answers, which scripts rely on.
    pub name: &'static str,
    /// How grave it is when it finds something.
    pub severity: Severity,
    /// What it finds.
    pub finds: &'static str,
    /// Why that matters, in one line.
    pub why: &'static str,
}

macro_rules! checks {
    ($($check:ident $severity:ident $name:literal $finds:literal $why:literal)*) => {
        /// Something that is looked for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Check {
            $(#[doc = $finds] $check,)*
        }

        impl Check {
            /// All of them, in the order of the documentation.
            pub const ALL: &'static [Check] = &[$(Check::$check,)*];

            /// What it is known by.
            #[must_use]
            pub const fn about(self) -> About {
                match self {
                    $(Check::$check => About {
                        name: $name,
                        severity: Severity::$severity,
                        finds: $finds,
                        why: $why,
                    },)*
                }
            }
        }
    };
}

checks! {
    EtcdAway Error "etcd-away"
        "a member of etcd does not answer, or answers no reads"
        "without a majority of members nothing can be changed, and a leader that is gone is not followed"
    EtcdNoSpace Error "etcd-no-space"
        "etcd has raised the alarm NOSPACE"
        "it takes no writes: no change is committed, and leases are not granted"
    EtcdCorrupt Error "etcd-corrupt"
        "etcd has raised the alarm CORRUPT"
        "its members disagree about what they store, and so about who owns which key"
    EtcdBrowsers Error "etcd-browsers"
        "etcd carries out what a web page of any site sends it"
        "a page that an operator opens can rewrite the record"
    EtcdClearText Error "etcd-clear-text"
        "an endpoint beyond this machine is spoken to without TLS"
        "whoever listens on the way reads passwords and can change the record"
    EtcdOpen Warning "etcd-open"
        "the record can be read without a user and without a certificate"
        "whoever reaches etcd can rewrite the record, and with it who owns which key"
    EtcdOld Warning "etcd-old"
        "etcd is older than the first release of its line without known bypasses of its access control"
        "events of watches get lost and users get around their rights in older ones"
    EtcdFewMembers Warning "etcd-few-members"
        "etcd has fewer than three members that vote"
        "the loss of one stops all changes, and the loss of its disk loses the record"
    EtcdEvenMembers Note "etcd-even-members"
        "etcd has an even number of members that vote"
        "one more than the next lower odd number bears no further loss, and is one more that can fail"
    EtcdUnnamed Note "etcd-unnamed-members"
        "the configuration names fewer endpoints than etcd has members"
        "this process is cut off when those few are away, although etcd has a majority"
    EtcdUncompacted Note "etcd-never-compacted"
        "etcd keeps more than a thousand revisions and has never removed one"
        "what is never compacted grows until etcd is out of space and takes no writes"

    ServerAway Error "server-away"
        "the admin API does not answer"
        "nothing can be staged, applied or aborted by way of it"
    RecordAway Error "record-away"
        "the record cannot be read"
        "nothing can be changed, and a process that starts finds no view to serve by"
    NobodyLeads Error "nobody-leads"
        "no rebalancer leads the pool"
        "no key moves, and a node that restarts lets no clients in"
    MoveStopped Error "move-stopped"
        "a move stands still until somebody does something"
        "the change does not end, and no other one can be applied"
    NodeClosed Error "node-closed"
        "a node lets no clients in until somebody accepts it"
        "its keys are answered with errors"
    NodeAway Error "node-away"
        "a node's server does not answer"
        "its keys are answered with errors"
    NotAServer Error "not-a-server"
        "what answers at a node's address is no server that this pool can use"
        "its keys are answered with errors"
    SameServer Error "same-server"
        "two nodes of the pool are one server"
        "what one of them cleans the other one loses"
    TooFewNodes Error "too-few-nodes"
        "the pool has fewer nodes than replicas"
        "keys have fewer copies than was asked for"
    OneDomain Warning "one-domain"
        "a pool with replicas has all its nodes in one failure domain"
        "what takes that domain down takes all copies"
    UnevenShare Warning "uneven-share"
        "a node owns more than 1.25 times what its weight asks for"
        "it fills and is busy before the others"
    ClockSkew Warning "clock-skew"
        "clocks of two nodes differ by more than 100 ms"
        "expiries travel as absolute times, and a change is refused"
    NotLookedAt Warning "not-looked-at"
        "something could not be looked at, for want of time or of a password"
        "what is wrong there is not in this answer"
    StagedEdits Note "staged-edits"
        "edits wait for `apply`"
        "whoever applies next applies these too"
    ChangeRunning Note "change-running"
        "keys move"
        "no other change can be applied until it ends"
    EmbeddedNodes Note "embedded-nodes"
        "the nodes are in the process of `up`, and their keys in its memory"
        "a restart loses them"

    RedisLogin Error "redis-login"
        "a node does not let the administrator in"
        "nobody can lead the pool on it: its keys cannot be moved, nor its clients let in"
    RedisOpen Error "redis-open"
        "a node lets a connection without a password in"
        "whoever reaches it reads and writes past the router and past the fence of a move"
    RedisOld Error "redis-old"
        "a node's server is older than version 7"
        "it lacks commands that a move needs"
    RedisClusterMode Error "redis-cluster-mode"
        "a node's server runs as part of a cluster or as a sentinel"
        "it refuses keys of slots that it does not own, whatever the record says"
    RedisReplica Error "redis-replica"
        "a node's server is the replica of another one"
        "it refuses writes, or loses them to its primary"
    RedisCommands Error "redis-commands"
        "a node does not know, or does not allow, commands that a move needs"
        "a change that touches it is refused"
    RedisKeptUsers Error "redis-kept-users"
        "users of ours stand in a node's configuration or user file"
        "they come back after a restart, past every fence"
    RedisFull Error "redis-refuses-writes"
        "a node refuses writes at the moment"
        "clients get its errors, and moves to it stand still"
    RedisNoPersistence Error "redis-no-persistence"
        "a node of a pool of class store keeps nothing over a restart"
        "writes that were acknowledged are gone when it restarts"
    RedisEvicts Error "redis-evicts"
        "a node of a pool of class store drops keys when its memory is full"
        "writes that were acknowledged disappear without a word"
    RedisSnapshotsOnly Warning "redis-snapshots-only"
        "a node of a pool of class store keeps snapshots and no append-only file"
        "a restart loses what was acknowledged since the last snapshot"
    RedisAppendFsync Warning "redis-appendfsync"
        "a node leaves it to the system when its append-only file reaches the disk"
        "a machine that stops loses some thirty seconds of acknowledged writes, not one"
    RedisOpenLater Warning "redis-open-after-restart"
        "a node asks for a password now, and its configuration file has none"
        "after a restart it lets everybody in"
    RedisForeignWriter Warning "redis-foreign-writer"
        "a user who is not ours may write to a node"
        "a move cannot fence that user, so `apply` is refused"
    RedisOutputBuffer Warning "redis-output-buffer"
        "a node cuts clients off that have less than 256 MiB of answers to read"
        "large values, and the stream of changed keys that a move follows, break and begin again"
    RedisTimeout Warning "redis-timeout"
        "a node closes connections that are idle"
        "a router's next request on one is answered with an error"
    RedisOtherDatabases Warning "redis-other-databases"
        "a node has keys in databases other than 0"
        "no client of the router sees them, and no move takes them along"
    RedisNoMaxmemory Note "redis-no-maxmemory"
        "a node has no limit of memory"
        "the system ends it when memory runs out, where a limit would refuse writes"
    RedisProtectedMode Note "redis-protected-mode"
        "a node has protected-mode off"
        "should its password ever be missing, it lets every network in"

    MemcachedUdp Error "memcached-udp"
        "a node listens on UDP"
        "strangers use it to flood others, and it asks nobody for a password"
    MemcachedCrawler Error "memcached-crawler-off"
        "a node's crawler is switched off"
        "its keys cannot be listed, so that a change cannot clean it"
    MemcachedOld Error "memcached-old"
        "a node's server is older than version 1.6"
        "it lacks the meta protocol"
    MemcachedExposed Warning "memcached-all-interfaces"
        "a node listens on all interfaces of its machine"
        "memcached asks nobody for a password: let only routers reach it"
    MemcachedNoEviction Warning "memcached-no-eviction"
        "a node refuses writes when its memory is full (`-M`)"
        "a cache that is full takes nothing new until items expire"
    MemcachedItemSize Warning "memcached-item-size"
        "a node takes smaller items than others of the pool, or than 1 MiB"
        "whether a value can be stored depends on its key"
    MemcachedEvictions Note "memcached-evictions"
        "a node has dropped items to make room"
        "more memory would answer more requests"

    ViewDiffers Error "view-differs"
        "somebody places keys differently from the record at the same epoch"
        "two clients look for one key on two nodes"
    ViewBehind Warning "view-behind"
        "somebody routes by an earlier epoch"
        "its requests for keys that moved are refused or wait"
    VersionsDiffer Warning "versions-differ"
        "processes of the pool run different versions"
        "finish the upgrade: a version that knows less refuses what others write"
    NoView Note "no-view"
        "somebody is registered and has no view yet"
        "it serves nobody"
    RegistrationUnread Note "registration-unreadable"
        "a registration cannot be read"
        "a change of a cache pool waits for it"
    OneRebalancer Note "one-rebalancer"
        "one process alone may lead"
        "when it ends nobody follows it until it is started again"
    SecretExposed Error "secret-exposed"
        "a file with a secret can be read by others than its owner"
        "whoever has an account on the machine has the pool; processes refuse to start with it"
    SecretMissing Error "secret-missing"
        "a secret that a process needs is not where its configuration says"
        "the process does not start"
    SecretReused Warning "secret-reused"
        "two secrets of different purpose are the same"
        "whoever is told one has the other"
    AdminExposed Warning "admin-exposed"
        "the admin API listens beyond this machine"
        "its token travels in the clear; keep it in a network that you trust, or behind a tunnel"
    RouterOpen Warning "router-open"
        "the router listens beyond this machine and asks for no password"
        "whoever reaches it reads and writes all keys"
    FolderOpen Note "folder-open"
        "others may look into the data folder"
        "they see which nodes there are"
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.about().name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
    const BEGIN: &str =
        "<!-- What follows is written by a test, crates/server/src/doctor/check.rs. -->\n";
    const END: &str = "<!-- So far. -->";

    #[test]
    fn names_are_words_and_each_is_there_once() {
        let names: BTreeSet<_> = Check::ALL.iter().map(|check| check.about().name).collect();
        assert_eq!(names.len(), Check::ALL.len());
        for name in names {
            assert!(
                name.bytes()
                    .all(|letter| letter.is_ascii_lowercase() || letter == b'-'),
                "{name}"
            );
        }
    }

    /// With `CLOCKWISE_GOLDEN` set it is written, otherwise compared.
    #[test]
    fn the_page_has_every_check() {
        let mut shown = String::from(
            "| check | how grave | what it finds | why it matters |\n|---|---|---|---|\n",
        );
        for check in Check::ALL {
            let About {
                name,
                severity,
                finds,
                why,
            } = check.about();
            shown.push_str(&format!("| `{name}` | {severity} | {finds} | {why} |\n"));
        }
        let page = std::fs::read_to_string(PAGE).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (written, after) = rest.split_once(END).unwrap();
        if std::env::var_os("CLOCKWISE_GOLDEN").is_some() {
            std::fs::write(PAGE, [before, BEGIN, &shown, END, after].concat()).unwrap();
        } else {
            assert_eq!(
                written, shown,
                "the page is out of date: see the head of this test"
            );
        }
    }
}
