//! What is wrong with the pool's Redis and Valkey servers, from what each shows of itself.

use std::collections::BTreeMap;

use super::check::Check;
use super::finding::{Finding, host_and_port, path_word, word};
use super::pool::{Clock, NodeSeen, PoolSeen};
use crate::driver::{NodeFacts, Persistence};
use crate::serve::secrets::Source;

/// A normal client that has this much to read may be the router with one large value for its client: a value
/// has 64 MiB at most, and several are on their way at a time.
const OUTPUT_BUFFER_MIN: u64 = 256 << 20;
const MIB: u64 = 1 << 20;

/// How a person logs in to a node as its administrator. The password itself is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoginHint {
    pub(super) user: String,
    pub(super) password: Source,
}

impl LoginHint {
    /// The password as a shell is told to find it.
    fn password_word(&self) -> String {
        match &self.password {
            Source::File(path) => format!("\"$(cat {})\"", path_word(path)),
            Source::Variable(name) => format!("\"${name}\""),
        }
    }
}

/// Whether a connection without a password may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stranger {
    LetIn,
    KeptOut,
    Unknown,
}

/// Why nothing more is known of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unseen {
    /// Nobody answers, or not in time.
    Away(String),
    /// The administrator is not let in.
    Denied(String),
    /// It is older than any that can be used.
    Old(String),
    /// It is part of something else: `cluster` or `sentinel`.
    Mode(String),
    /// Something else.
    Strange(String),
    /// We have no password to look with.
    NoPassword,
}

/// One node's server.
#[derive(Clone, Debug)]
pub(super) struct RedisSeen {
    pub(super) node: NodeSeen,
    pub(super) stranger: Stranger,
    pub(super) said: Result<RedisSaid, Unseen>,
}

/// What a server shows to its administrator.
#[derive(Clone, Debug)]
pub(super) struct RedisSaid {
    /// What the preflight of a change sees.
    pub(super) facts: NodeFacts,
    /// `CONFIG GET` of what is looked at here.
    pub(super) settings: BTreeMap<String, String>,
    /// Where its primary is, of a replica.
    pub(super) primary: Option<String>,
    /// Keys in databases other than 0.
    pub(super) other_keys: u64,
    pub(super) clock: Option<Clock>,
}

impl RedisSaid {
    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }
}

/// Everything wrong with one server.
pub(super) fn findings(pool: &PoolSeen, hint: &LoginHint, seen: &RedisSeen) -> Vec<Finding> {
    let mut findings = Findings {
        place: seen.node.place(),
        address: &seen.node.address,
        hint,
        found: Vec::new(),
    };
    let has_file = match &seen.said {
        Ok(said) => said.setting("aclfile").is_some_and(|file| !file.is_empty()),
        Err(_) => false,
    };
    if seen.stranger == Stranger::LetIn {
        let (host, port) = host_and_port(&seen.node.address);
        let close = findings.close(
            has_file,
            &format!("redis-cli -h {} -p {}", word(host), word(port)),
        );
        findings.add(
            Check::RedisOpen,
            "it answered a PING without a password",
            close,
        );
    }
    match &seen.said {
        Err(unseen) => of_unseen(unseen, &seen.node, &mut findings),
        Ok(said) => {
            if let Some(primary) = &said.primary {
                let what = format!("it is a replica of {primary}");
                let next = format!(
                    "clockwise node set {} --addr {}",
                    word(&seen.node.id),
                    word(primary)
                );
                findings.add(Check::RedisReplica, what, next);
            }
            of_access(pool, seen.stranger, said, &mut findings);
            of_data(pool, said, &mut findings);
            of_limits(said, &mut findings);
        }
    }
    findings.found
}

/// Findings of one server, and the commands that speak to it.
struct Findings<'a> {
    place: String,
    address: &'a str,
    hint: &'a LoginHint,
    found: Vec<Finding>,
}

impl Findings<'_> {
    fn add(&mut self, check: Check, what: impl Into<String>, next: impl Into<String>) {
        self.found
            .push(Finding::new(check, &*self.place, what, next));
    }

    /// `redis-cli` for this server, reading commands.
    fn cli(&self) -> String {
        let (host, port) = host_and_port(self.address);
        let user = match &*self.hint.user {
            "default" => String::new(),
            user => format!(" --user {}", word(user)),
        };
        let password = self.hint.password_word();
        format!(
            "REDISCLI_AUTH={password} redis-cli -h {}{user} -p {}",
            word(host),
            word(port)
        )
    }

    /// Sets something now and after a restart.
    fn set(&self, command: &str) -> String {
        format!(
            "printf '%s\\n' 'CONFIG SET {command}' 'CONFIG REWRITE' | {}",
            self.cli()
        )
    }

    /// Deletes users. Servers take almost anything for a name, and what is in one would be read by the shell and by
    /// redis-cli: such a name is typed by a person.
    fn delete_users(&self, names: &[String]) -> String {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "_.:@-".contains(letter);
        if names.iter().all(|name| name.chars().all(plain)) {
            let names = names.join(" ");
            return format!("printf '%s\\n' 'ACL DELUSER {names}' | {}", self.cli());
        }
        "remove them with ACL DELUSER, typed with care: names with quotes or blanks are read by shells".to_owned()
    }

    /// Closes the server to connections without a password, now and after a restart.
    fn close(&self, has_user_file: bool, cli: &str) -> String {
        let password = self.hint.password_word();
        // By way of its input, so that the password is in no list of processes.
        let commands = match has_user_file {
            true => "ACL SETUSER default resetpass >%s\\nACL SAVE\\n",
            false => "CONFIG SET requirepass %s\\nCONFIG REWRITE\\n",
        };
        format!("printf '{commands}' {password} | {cli}")
    }
}

fn of_unseen(unseen: &Unseen, node: &NodeSeen, findings: &mut Findings<'_>) {
    let elsewhere = format!("clockwise node set {} --addr HOST:PORT", word(&node.id));
    match unseen {
        Unseen::Away(why) => findings.add(
            Check::NodeAway,
            why,
            format!("start its server, or say where it is: {elsewhere}"),
        ),
        Unseen::Denied(why) => {
            let next = format!(
                "put the password of {} into its configuration file as requirepass, and restart it",
                findings.hint.password
            );
            findings.add(Check::RedisLogin, why, next);
        }
        Unseen::Old(version) => findings.add(
            Check::RedisOld,
            format!("version {version}"),
            "install redis-server 7 or later, or valkey",
        ),
        Unseen::Mode(mode) => findings.add(
            Check::RedisClusterMode,
            format!("it runs in mode {mode}"),
            "set cluster-enabled no in its configuration file, remove its nodes.conf, and restart it",
        ),
        Unseen::Strange(why) => findings.add(Check::NotAServer, why, elsewhere),
        Unseen::NoPassword => findings.add(
            Check::NotLookedAt,
            "the administrator's password is not known here, so its settings were not looked at",
            "clockwise doctor --config FILE, or give it by CLOCKWISE_NODES_PASSWORD",
        ),
    }
}

/// Who gets in, and what they may do.
fn of_access(pool: &PoolSeen, stranger: Stranger, said: &RedisSaid, findings: &mut Findings<'_>) {
    let facts = &said.facts;
    if let Some(why) = &facts.open_by_default
        && stranger != Stranger::LetIn
    {
        let next = findings.close(false, &findings.cli());
        findings.add(Check::RedisOpenLater, why, next);
    }
    if said.setting("protected-mode") == Some("no") {
        let next = findings.set("protected-mode yes");
        findings.add(Check::RedisProtectedMode, "protected-mode is no", next);
    }
    if !facts.missing_rights.is_empty() {
        findings.add(
            Check::RedisCommands,
            facts.missing_rights.join("; "),
            "remove rename-command lines from its configuration file, let the administrator do all (ACL SETUSER \
             NAME +@all allkeys), and restart it",
        );
    }
    if !facts.persisted_users.is_empty() {
        let names = facts.persisted_users.join(" ");
        let next = format!(
            "remove them from its configuration or user file, then: {}",
            findings.delete_users(&facts.persisted_users)
        );
        findings.add(Check::RedisKeptUsers, format!("users {names}"), next);
    }
    let allowed = |name: &&String| {
        let allowed = pool.allowed_writers.as_ref();
        !allowed.is_some_and(|allowed| allowed.contains(name))
    };
    for name in facts.foreign_writers.iter().filter(allowed) {
        let next = format!(
            "{}      or, if you know about it:  clockwise apply --allow-writer {}",
            findings.delete_users(std::slice::from_ref(name)),
            word(name)
        );
        findings.add(Check::RedisForeignWriter, format!("user {name}"), next);
    }
}

/// What becomes of data.
fn of_data(pool: &PoolSeen, said: &RedisSaid, findings: &mut Findings<'_>) {
    let facts = &said.facts;
    if let Some(why) = &facts.refuses_writes {
        let next = format!("{} INFO persistence", findings.cli());
        findings.add(Check::RedisFull, why, next);
    }
    if pool.store {
        let append = findings.set("appendonly yes");
        match facts.persistence {
            Persistence::None => findings.add(
                Check::RedisNoPersistence,
                "appendonly is no, and save is empty",
                append,
            ),
            Persistence::Snapshots => findings.add(
                Check::RedisSnapshotsOnly,
                format!(
                    "appendonly is no, save is {}",
                    said.setting("save").unwrap_or("set")
                ),
                append,
            ),
            Persistence::AppendEverySecond | Persistence::AppendAlways => {}
        }
        let policy = said.setting("maxmemory-policy").unwrap_or("noeviction");
        if facts.evicts {
            let limit = facts.memory_limit_bytes.unwrap_or(0) / MIB;
            findings.add(
                Check::RedisEvicts,
                format!("maxmemory-policy is {policy}, and maxmemory {limit} MiB"),
                findings.set("maxmemory-policy noeviction"),
            );
        }
    }
    let appends = facts.persistence >= Persistence::AppendEverySecond;
    if appends && said.setting("appendfsync") == Some("no") {
        let next = findings.set("appendfsync everysec");
        findings.add(Check::RedisAppendFsync, "appendfsync is no", next);
    }
    if said.other_keys > 0 {
        findings.add(
            Check::RedisOtherDatabases,
            format!("{} keys in databases other than 0", said.other_keys),
            format!("{} INFO keyspace", findings.cli()),
        );
    }
}

/// What cuts clients off, and what ends the server.
fn of_limits(said: &RedisSaid, findings: &mut Findings<'_>) {
    if said.facts.memory_limit_bytes.is_none() {
        // Twice what it holds is a start; how much the machine has is for the person to say.
        let used = said.facts.memory_used_bytes.div_ceil(MIB).max(32) * 2;
        let next = findings.set(&format!("maxmemory {used}mb"));
        findings.add(Check::RedisNoMaxmemory, "maxmemory is 0", next);
    }
    match said.setting("timeout") {
        None | Some("0") => {}
        Some(seconds) => {
            let next = findings.set("timeout 0");
            findings.add(Check::RedisTimeout, format!("timeout is {seconds} s"), next);
        }
    }
    let buffers = said.setting("client-output-buffer-limit").unwrap_or("");
    if let Some(limit) = normal_limit(buffers).filter(|limit| *limit < OUTPUT_BUFFER_MIN) {
        findings.add(
            Check::RedisOutputBuffer,
            format!(
                "client-output-buffer-limit of normal clients is {} MiB",
                limit / MIB
            ),
            findings.set("client-output-buffer-limit \"normal 0 0 0\""),
        );
    }
}

/// The lower of the limits of normal clients in `normal 0 0 0 slave … pubsub …`; zeros are no limit.
fn normal_limit(setting: &str) -> Option<u64> {
    let words: Vec<&str> = setting.split_whitespace().collect();
    let normal = words.chunks_exact(4).find(|class| class[0] == "normal")?;
    let limits = normal[1..3]
        .iter()
        .filter_map(|word| word.parse::<u64>().ok());
    limits.filter(|limit| *limit > 0).min()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::driver::Identity;

    fn sound() -> RedisSaid {
        let settings = [
            ("maxmemory-policy", "noeviction"),
            ("protected-mode", "yes"),
            ("appendfsync", "everysec"),
            ("timeout", "0"),
            (
                "client-output-buffer-limit",
                "normal 0 0 0 slave 1 2 60 pubsub 1 2 60",
            ),
        ];
        RedisSaid {
            facts: NodeFacts {
                server: "redis 7.0.15".to_owned(),
                identity: Identity {
                    run_id: "r".to_owned(),
                    primary: true,
                    replication_id: "d".to_owned(),
                },
                persistence: Persistence::AppendEverySecond,
                memory_used_bytes: 1,
                memory_limit_bytes: Some(64 << 20),
                evicts: false,
                refuses_writes: None,
                keys: 0,
                clock_ms: 0,
                foreign_writers: Vec::new(),
                open_by_default: None,
                persisted_users: Vec::new(),
                missing_rights: Vec::new(),
                highest_term: None,
                replicas: Vec::new(),
            },
            settings: settings
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            primary: None,
            other_keys: 0,
            clock: None,
        }
    }

    fn pool(store: bool) -> PoolSeen {
        PoolSeen {
            epoch: 1,
            memcached: false,
            store,
            slots: true,
            replicas: 1,
            staged: 0,
            change: None,
            nodes: Vec::new(),
            allowed_writers: Some(vec!["known".to_owned()]),
        }
    }

    fn find(store: bool, stranger: Stranger, said: Result<RedisSaid, Unseen>) -> Vec<Finding> {
        let seen = RedisSeen {
            node: NodeSeen {
                id: "n1".to_owned(),
                address: "10.0.0.1:6379".to_owned(),
                domain: String::new(),
                settled: true,
                weight: 1.0,
                share: 1.0,
            },
            stranger,
            said,
        };
        let hint = LoginHint {
            user: "default".to_owned(),
            password: Source::File(PathBuf::from("/etc/it's/nodes.password")),
        };
        findings(&pool(store), &hint, &seen)
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut RedisSaid), of_store: &[Check], of_cache: &[Check]) {
        let mut said = sound();
        change(&mut said);
        for (store, expected) in [(true, of_store), (false, of_cache)] {
            let found = find(store, Stranger::KeptOut, Ok(said.clone()));
            let checks: Vec<_> = found.iter().map(|finding| finding.check).collect();
            assert_eq!(checks, expected, "store: {store}");
        }
    }

    /// A node's users may be called anything but blanks.
    #[test]
    fn a_command_to_paste_has_no_name_that_a_shell_or_a_terminal_would_obey() {
        for name in ["x';touch${IFS}x;'", "$(id)", "\u{1b}[2J", "a\"b", "é"] {
            let mut said = sound();
            said.facts.foreign_writers = vec![name.to_owned()];
            said.facts.persisted_users = vec![name.to_owned()];
            let found = find(true, Stranger::KeptOut, Ok(said));
            assert_eq!(found.len(), 2, "{found:?}");
            for finding in found {
                let next = &finding.next;
                assert!(!next.contains("'ACL DELUSER"), "{next}");
                assert!(next.contains("typed with care"), "{next}");
                assert!(!next.chars().any(char::is_control), "{next}");
                // What is left of the name is one quoted word.
                let quoted = word(name).replace('\u{1b}', " ");
                assert!(!next.contains(name) || next.contains(&quoted), "{next}");
            }
        }
        let mut said = sound();
        said.facts.foreign_writers = vec!["intruder".to_owned()];
        let found = find(true, Stranger::KeptOut, Ok(said));
        assert!(
            found[0].next.contains("'ACL DELUSER intruder'"),
            "{found:?}"
        );
    }

    #[test]
    fn each_setting_is_judged_by_what_the_pool_promises() {
        let set = |name: &'static str, value: &'static str| {
            move |said: &mut RedisSaid| {
                said.settings.insert(name.to_owned(), value.to_owned());
            }
        };
        check(|_| (), &[], &[]);
        check(
            |said| said.facts.persistence = Persistence::None,
            &[Check::RedisNoPersistence],
            &[],
        );
        check(
            |said| said.facts.persistence = Persistence::Snapshots,
            &[Check::RedisSnapshotsOnly],
            &[],
        );
        check(|said| said.facts.evicts = true, &[Check::RedisEvicts], &[]);
        let both = |one: Check| vec![one];
        for (name, value, one) in [
            ("appendfsync", "no", Check::RedisAppendFsync),
            ("protected-mode", "no", Check::RedisProtectedMode),
            ("timeout", "300", Check::RedisTimeout),
            (
                "client-output-buffer-limit",
                "slave 1 2 60 normal 0 1048576 60",
                Check::RedisOutputBuffer,
            ),
        ] {
            check(set(name, value), &both(one), &both(one));
        }
        let high = "normal 1073741824 0 0";
        check(set("client-output-buffer-limit", high), &[], &[]);
    }

    #[test]
    fn what_a_change_would_be_refused_for_is_found_before() {
        let one = |check: Check| [check];
        for (change, found) in [
            (
                (|said: &mut RedisSaid| said.facts.missing_rights = vec!["ACL: no".to_owned()])
                    as fn(&mut RedisSaid),
                Check::RedisCommands,
            ),
            (
                |said| said.facts.persisted_users = vec!["cw-g7".to_owned()],
                Check::RedisKeptUsers,
            ),
            (
                |said| said.facts.foreign_writers = vec!["app".to_owned(), "known".to_owned()],
                Check::RedisForeignWriter,
            ),
            (
                |said| said.facts.refuses_writes = Some("OOM".to_owned()),
                Check::RedisFull,
            ),
            (
                |said| said.facts.open_by_default = Some("not set".to_owned()),
                Check::RedisOpenLater,
            ),
            (
                |said| said.primary = Some("10.0.0.9:6379".to_owned()),
                Check::RedisReplica,
            ),
            (|said| said.other_keys = 3, Check::RedisOtherDatabases),
            (
                |said| said.facts.memory_limit_bytes = None,
                Check::RedisNoMaxmemory,
            ),
        ] {
            check(change, &one(found), &one(found));
        }
    }

    #[test]
    fn what_cannot_be_seen_is_a_finding_too() {
        for (unseen, expected) in [
            (Unseen::Away("refused".to_owned()), Check::NodeAway),
            (Unseen::Denied("WRONGPASS".to_owned()), Check::RedisLogin),
            (Unseen::Old("6.0.16".to_owned()), Check::RedisOld),
            (Unseen::Mode("cluster".to_owned()), Check::RedisClusterMode),
            (
                Unseen::Strange("HTTP/1.1 400".to_owned()),
                Check::NotAServer,
            ),
            (Unseen::NoPassword, Check::NotLookedAt),
        ] {
            let found = find(true, Stranger::Unknown, Err(unseen));
            let checks: Vec<_> = found.iter().map(|finding| finding.check).collect();
            assert_eq!(checks, [expected]);
        }
    }

    #[test]
    fn commands_name_where_the_password_is_and_never_what_it_is() {
        let mut said = sound();
        said.facts.open_by_default = Some("user default needs no password".to_owned());
        let found = find(true, Stranger::LetIn, Ok(said));
        let checks: Vec<_> = found.iter().map(|finding| finding.check).collect();
        assert_eq!(
            checks,
            [Check::RedisOpen],
            "the later follows from the earlier"
        );
        assert_eq!(
            found[0].next,
            "printf 'CONFIG SET requirepass %s\\nCONFIG REWRITE\\n' \
             \"$(cat '/etc/it'\\''s/nodes.password')\" | redis-cli -h 10.0.0.1 -p 6379"
        );
    }
}
