//! The users of a node: their names, their rights, and who else may write.
//!
//! Three kinds of user exist. Client users (`cw-g7`) may do what applications do, on every key but
//! the reserved ones; term users (`cw-t3`) may do what a move needs; all others are not ours. Key
//! patterns of a server can only allow, so "every key but those with the reserved prefix" is spelled
//! as its exact complement: keys that leave the prefix at its first, second, … byte, and the prefix's
//! own beginnings.
//!
//! Each user of ours carries a *mark of the run* in which it was made, as a key pattern that matches
//! no key. A server does not tell where a user came from; but one whose mark is not that of the
//! present run was read from a configuration or user file, and would come back after every fence.

use std::collections::{BTreeMap, BTreeSet};

use super::link::Abilities;
use crate::driver::{Generation, Term};

/// Keys that begin with this belong to the driver: values on their way in pieces, and canaries.
/// Client users cannot touch them.
pub const RESERVED_PREFIX: &[u8] = b"~cw~";

const CLIENT_USER: &str = "cw-g";
const TERM_USER: &str = "cw-t";

/// What the term user may run: exactly what this driver sends. With `ACL SETUSER` among it this is
/// no small power; it keeps mistakes small, not attackers.
const TERM_RULES: &[&str] = &[
    // Together the same as `~*`, behind which no server takes the mark of the run, be it when it
    // reads the user back from a file that somebody has rewritten.
    "~?*",
    "~",
    "resetchannels",
    "-@all",
    "+acl|deluser",
    "+acl|setuser",
    "+acl|users",
    "+append",
    "+bgsave",
    "+client|list",
    "+client|setname",
    "+client|tracking",
    "+config|get",
    "+dbsize",
    "+dump",
    "+exec",
    "+exists",
    "+getrange",
    "+hello",
    "+hlen",
    "+hscan",
    "+hset",
    "+info",
    "+llen",
    "+lrange",
    "+memory|usage",
    "+mget",
    "+mset",
    "+multi",
    "+pexpireat",
    "+pexpiretime",
    "+ping",
    "+rename",
    "+restore",
    "+rpush",
    "+sadd",
    "+scan",
    "+scard",
    "+set",
    "+sscan",
    "+strlen",
    "+time",
    "+type",
    "+unlink",
    "+xack",
    "+xadd",
    "+xclaim",
    "+xdel",
    "+xgroup",
    "+xinfo",
    "+xlen",
    "+xpending",
    "+xrange",
    "+xsetid",
    "+xtrim",
    "+zadd",
    "+zcard",
    "+zscan",
];

/// What client users may run. Not what changes the server or everybody's data at once, nor another
/// database: tracking does not say which database a key was touched in.
const CLIENT_RULES: &[&str] = &[
    "resetchannels",
    "&*",
    "+@all",
    "-@admin",
    "-@dangerous",
    // Dangerous for their cost only. What reads keys that their arguments do not name (`BY`, `GET`), a
    // server refuses to users who may not read every key, as ours may not.
    "+sort",
    "+sort_ro",
    // A router ends the waits of its own clients when a handover begins.
    "+client|unblock",
    "-select",
    "-move",
    "-swapdb",
    "-function|flush",
    "-function|delete",
    "-function|restore",
];

/// Beside the commands that servers call writes: what replaces or rewrites data all the same.
const ALSO_WRITES: &[&str] = &["acl|setuser", "debug", "replicaof", "slaveof"];

/// The client user of a generation.
pub(super) fn client_user(generation: Generation) -> String {
    format!("{CLIENT_USER}{}", generation.0)
}

/// The user of a term.
pub(super) fn term_user(term: Term) -> String {
    format!("{TERM_USER}{}", term.0)
}

/// The generation whose client user has this name.
pub(super) fn generation_of(user: &str) -> Option<Generation> {
    number_behind(CLIENT_USER, user).map(Generation)
}

/// The term whose user has this name.
pub(super) fn term_of(user: &str) -> Option<Term> {
    number_behind(TERM_USER, user).map(Term)
}

/// Only the form that we write: another spelling of the same number is not our user.
fn number_behind(prefix: &str, user: &str) -> Option<u64> {
    let digits = user.strip_prefix(prefix)?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// Whether a key belongs to the driver.
pub(super) fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(RESERVED_PREFIX)
}

/// The arguments of `ACL SETUSER` behind the name that make a client user from nothing.
pub(super) fn client_user_rules(password: &str, scripts: bool, run_id: &str) -> Vec<Vec<u8>> {
    let mut rules = user_rules(password, run_id);
    rules.extend(
        client_key_patterns()
            .into_iter()
            .map(|pattern| [b"~", pattern.as_slice()].concat()),
    );
    rules.extend(CLIENT_RULES.iter().map(|rule| rule.as_bytes().to_vec()));
    if !scripts {
        rules.push(b"-@scripting".to_vec());
    }
    rules
}

/// The commands that the rights of a term speak of. A server may know the right and have renamed the
/// command away.
pub(super) fn commands_needed() -> impl Iterator<Item = &'static str> {
    let commands = TERM_RULES.iter().filter_map(|rule| rule.strip_prefix('+'));
    commands.map(|command| command.split('|').next().unwrap_or(command))
}

/// The arguments of `ACL SETUSER` behind the name that make a term user from nothing.
pub(super) fn term_user_rules(password: &str, abilities: Abilities, run_id: &str) -> Vec<Vec<u8>> {
    let mut rules = user_rules(password, run_id);
    rules.extend(TERM_RULES.iter().map(|rule| rule.as_bytes().to_vec()));
    if abilities.waits_for_log {
        rules.push(b"+waitaof".to_vec());
    }
    if abilities.field_expiry {
        rules.extend([b"+hpexpiretime".to_vec(), b"+hpexpireat".to_vec()]);
    }
    rules
}

fn user_rules(password: &str, run_id: &str) -> Vec<Vec<u8>> {
    let password = format!(">{password}").into_bytes();
    vec![
        b"reset".to_vec(),
        b"on".to_vec(),
        password,
        run_mark(run_id).into_bytes(),
    ]
}

/// A key pattern that matches nothing: its first class of characters is empty.
fn run_mark(run_id: &str) -> String {
    format!("~[]run-{run_id}")
}

/// Patterns that together match every key without the reserved prefix, and no other. Ordinary keys
/// match the first.
fn client_key_patterns() -> Vec<Vec<u8>> {
    let mut patterns = Vec::with_capacity(2 * RESERVED_PREFIX.len());
    for (at, byte) in RESERVED_PREFIX.iter().enumerate() {
        let shared = &RESERVED_PREFIX[..at];
        patterns.push([shared, b"[^", &[*byte], b"]*"].concat());
        patterns.push(shared.to_vec());
    }
    patterns
}

/// A line of `ACL LIST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedUser<'a> {
    pub(super) name: &'a str,
    /// Whether anybody can log in as this user: it is on and has a password or needs none.
    pub(super) enters: bool,
    /// Whether it needs no password.
    pub(super) nopass: bool,
    /// Its rules, those of each selector apart.
    rules: Vec<Vec<&'a str>>,
}

impl<'a> ListedUser<'a> {
    /// Reads `user NAME on #… ~* &* +@all (~x +get)`.
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split(' ').skip_while(|word| *word != "user").skip(1);
        let name = words.next()?;
        let mut rules = vec![Vec::new()];
        for word in words {
            if word.starts_with('(') {
                rules.push(Vec::new());
            }
            rules.last_mut()?.push(word.trim_matches(['(', ')']));
            // A pattern may end like a selector. Starting a list too many only finds more writers.
            if word.ends_with(')') {
                rules.push(Vec::new());
            }
        }
        let has = |rule: &str| rules[0].contains(&rule);
        let nopass = has("nopass");
        let enters = has("on") && (nopass || rules[0].iter().any(|rule| rule.starts_with('#')));
        Some(Self {
            name,
            enters,
            nopass,
            rules,
        })
    }

    /// Whether the user was made in the run of the server that has this id.
    pub(super) fn made_in_run(&self, run_id: &str) -> bool {
        self.rules[0].contains(&run_mark(run_id).as_str())
    }

    /// Categories that the rules speak of, for [`Categories`].
    pub(super) fn categories(&self) -> impl Iterator<Item = &'a str> {
        self.rules.iter().flatten().filter_map(|rule| {
            rule.strip_prefix(['+', '-'])
                .and_then(|rule| rule.strip_prefix('@'))
                .filter(|name| *name != "all")
        })
    }

    /// Whether the user's rules may let it write. Key patterns are not looked at: a user of no key
    /// may still flush all of them.
    pub(super) fn may_write(&self, categories: &Categories) -> bool {
        self.enters && self.rules.iter().any(|rules| categories.let_write(rules))
    }
}

/// Commands by category, as `ACL CAT` has them.
#[derive(Clone, Debug, Default)]
pub(super) struct Categories {
    commands: BTreeMap<String, BTreeSet<String>>,
    /// The category `write`, and what writes all the same.
    writes: BTreeSet<String>,
}

impl Categories {
    pub(super) fn insert(&mut self, category: &str, commands: impl IntoIterator<Item = String>) {
        let commands: BTreeSet<String> = commands.into_iter().collect();
        if category == "write" {
            let also = ALSO_WRITES.iter().map(|command| (*command).to_owned());
            self.writes = commands.iter().cloned().chain(also).collect();
        }
        self.commands.insert(category.to_owned(), commands);
    }

    /// Whether a list of rules, applied in order, leaves a command that writes. Where the server did
    /// not tell which commands write, anything may.
    fn let_write(&self, rules: &[&str]) -> bool {
        let mut allowed: BTreeSet<&str> = BTreeSet::new();
        for rule in rules {
            match (*rule, rule.strip_prefix('+'), rule.strip_prefix('-')) {
                ("+@all" | "allcommands", ..) => {
                    allowed.extend(self.writes.iter().map(String::as_str))
                }
                ("-@all" | "nocommands", ..) => allowed.clear(),
                (_, Some(added), _) => allowed.extend(self.named(added, true)),
                (_, _, Some(taken)) => {
                    for command in self.named(taken, false) {
                        allowed.remove(command);
                    }
                }
                _ => {}
            }
        }
        self.writes.is_empty() || !allowed.is_empty()
    }

    /// The writing commands that a rule names. In doubt all when it allows, and none when it takes.
    fn named(&self, rule: &str, allows: bool) -> Vec<&str> {
        if let Some(category) = rule.strip_prefix('@') {
            return match self.commands.get(category) {
                Some(commands) => self
                    .writes
                    .intersection(commands)
                    .map(String::as_str)
                    .collect(),
                None if allows => self.writes.iter().map(String::as_str).collect(),
                None => Vec::new(),
            };
        }
        let container = rule.split('|').next().unwrap_or(rule);
        let is_named = |command: &&String| {
            let whole = command.as_str() == rule || command.split('|').next() == Some(rule);
            // `+set|x` allows SET with one first argument.
            whole || (allows && command.as_str() == container)
        };
        self.writes
            .iter()
            .filter(is_named)
            .map(String::as_str)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn categories() -> Categories {
        let mut categories = Categories::default();
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        categories.insert(
            "write",
            words("set del flushall restore xgroup|create xgroup|destroy hset"),
        );
        categories.insert("read", words("get exists hget"));
        categories.insert(
            "dangerous",
            words("flushall restore acl|setuser debug replicaof slaveof keys"),
        );
        categories.insert("hash", words("hget hset"));
        categories
    }

    #[track_caller]
    fn check(line: &str, may_write: bool) {
        let user = ListedUser::parse(line).unwrap();
        assert_eq!(user.may_write(&categories()), may_write, "{line}");
    }

    #[test]
    fn a_user_may_write_unless_its_rules_exclude_it() {
        check("user app on #aa ~* &* +@all", true);
        check("user app on nopass ~* &* +@all", true);
        check("user app off #aa ~* &* +@all", false);
        check("user app on ~* &* +@all", false);
        check("user app on #aa ~* resetchannels -@all +@read", false);
        check("user app on #aa ~* resetchannels -@all +@hash", true);
        check("user app on #aa ~* resetchannels +@all -@write", true);
        check(
            "user app on #aa ~* resetchannels +@all -@write -@dangerous",
            false,
        );
        check("user app on #aa ~* resetchannels -@all +get +set", true);
        check(
            "user app on #aa ~* resetchannels -@all +get +set -set",
            false,
        );
        check("user app on #aa resetchannels -@all +xgroup|create", true);
        check(
            "user app on #aa resetchannels -@all +xgroup -xgroup|create -xgroup|destroy",
            false,
        );
        check(
            "user app on #aa resetchannels -@all +config|get +info +ping",
            false,
        );
        check("user app on #aa resetchannels -@all +slaveof", true);
        check("user app on #aa resetchannels -@all +@nobodyknows", true);
        check("user app on #aa resetchannels -@all +set|k", true);
    }

    #[test]
    fn a_selector_that_writes_makes_a_writer() {
        check(
            "user app on #aa ~* resetchannels -@all +get (~tmp:* resetchannels -@all +set)",
            true,
        );
        check(
            "user app on #aa ~* resetchannels -@all +get (~tmp:* resetchannels -@all +exists)",
            false,
        );
        check(
            "user app on #aa ~a) resetchannels -@all (~b) -@all +get) (~c -@all +del)",
            true,
        );
    }

    #[test]
    fn only_the_name_as_we_write_it_is_ours() {
        assert_eq!(generation_of("cw-g0"), Some(Generation(0)));
        assert_eq!(
            generation_of(&client_user(Generation(u64::MAX))),
            Some(Generation(u64::MAX))
        );
        assert_eq!(term_of(&term_user(Term(12))), Some(Term(12)));
        for name in [
            "cw-g",
            "cw-g07",
            "cw-g+7",
            "cw-g7x",
            "cw-t7",
            "cw-g18446744073709551616",
            "xcw-g7",
        ] {
            assert_eq!(generation_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_user_of_another_run_is_recognised() {
        let line = "user cw-g3 on #aa ~[]run-abc ~[^~]* &* +@all";
        let user = ListedUser::parse(line).unwrap();
        assert!(user.made_in_run("abc") && !user.made_in_run("abd"));
    }
}
