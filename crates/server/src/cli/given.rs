//! The options by which a person named the server, repeated in the commands that are suggested next: typed as
//! they stand, those have to reach the same server.

use std::path::Path;

use super::server::Target;
use crate::doctor::word;

/// Where `up` keeps everything unless it is told otherwise.
pub(super) const DIR: &str = "./clockwise-data";

const DIR_VARIABLE: &str = "CLOCKWISE_DIR";
const ADMIN_VARIABLE: &str = "CLOCKWISE_ADMIN";
const PROGRAM: &str = "clockwise ";
/// Verbs that talk to a server.
const ASKING: [&str; 14] = [
    "status", "owner", "route", "clients", "node", "pool", "staged", "unstage", "plan", "apply",
    "moves", "throttle", "resume", "abort",
];
/// Verbs that work on the folder.
const ON_THE_FOLDER: [&str; 3] = ["up", "down", "bench"];

/// What was given. What stands in the environment holds for the next command anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    dir: Option<String>,
    admin: Option<String>,
}

impl Given {
    /// What names the server of a verb.
    pub(super) fn of(target: &Target) -> Self {
        let from_environment = std::env::var(ADMIN_VARIABLE).ok();
        let admin = target.admin.clone();
        Self {
            admin: admin.filter(|admin| Some(admin) != from_environment.as_ref()),
            ..Self::folder(&target.dir)
        }
    }

    /// What names the address of an admin API alone, where it is known.
    pub(super) fn admin(address: Option<&str>) -> Self {
        let from_environment = std::env::var(ADMIN_VARIABLE).ok();
        let address = address.filter(|address| Some(*address) != from_environment.as_deref());
        Self {
            dir: None,
            admin: address.map(str::to_owned),
        }
    }

    /// What names a folder alone.
    pub(super) fn folder(dir: &Path) -> Self {
        let from_environment = std::env::var_os(DIR_VARIABLE);
        let known = dir == Path::new(DIR) || from_environment.is_some_and(|known| dir == known);
        Self {
            dir: (!known).then(|| dir.display().to_string()),
            admin: None,
        }
    }

    /// The words, with the options behind the verb of every command of ours that is in them. A command in
    /// backquotes is spoken of, not suggested.
    pub(super) fn told(&self, words: &str) -> String {
        let mut told = String::with_capacity(words.len());
        let mut rest = words;
        while let Some(at) = rest.find(PROGRAM) {
            let (before, command) = rest.split_at(at + PROGRAM.len());
            let suggested = rest[..at]
                .chars()
                .next_back()
                .is_none_or(char::is_whitespace);
            told.push_str(before);
            rest = command;
            let verb = verb_of(command);
            let named = [" --dir", " --admin"]
                .iter()
                .any(|option| command[verb.len()..].starts_with(option));
            if suggested && !named {
                told.push_str(verb);
                told.push_str(&self.options(verb));
                rest = &command[verb.len()..];
            }
        }
        told.push_str(rest);
        told
    }

    fn options(&self, verb: &str) -> String {
        let first = verb.split(' ').next().unwrap_or_default();
        let asks = ASKING.contains(&first);
        let dir = self
            .dir
            .as_ref()
            .filter(|_| asks || ON_THE_FOLDER.contains(&first));
        let admin = self.admin.as_ref().filter(|_| asks);
        let option = |name: &str, value: &String| format!(" {name} {}", word(value));
        let dir = dir.map(|dir| option("--dir", dir));
        let admin = admin.map(|admin| option("--admin", admin));
        [dir, admin].into_iter().flatten().collect()
    }
}

/// The verb that a command begins with, both words of those that have two.
fn verb_of(command: &str) -> &str {
    let end_of_word = |text: &str| {
        text.find(|letter: char| {
            !(letter.is_ascii_alphanumeric() || letter == '|' || letter == '-')
        })
        .unwrap_or(text.len())
    };
    let mut end = end_of_word(command);
    if ["node", "pool"].contains(&&command[..end]) && command[end..].starts_with(' ') {
        end += 1 + end_of_word(&command[end + 1..]);
    }
    &command[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &Given, words: &str, told: &str) {
        assert_eq!(given.told(words), told);
    }

    #[test]
    fn commands_that_are_suggested_reach_the_same_server() {
        let folder = Given {
            dir: Some("./tour".to_owned()),
            admin: None,
        };
        check(&folder, "clockwise plan", "clockwise plan --dir ./tour");
        check(
            &folder,
            "Stage one with:  clockwise node add|set|remove ID",
            "Stage one with:  clockwise node add|set|remove --dir ./tour ID",
        );
        check(
            &folder,
            "clockwise resume --wait      or:  clockwise abort --wait",
            "clockwise resume --dir ./tour --wait      or:  clockwise abort --dir ./tour --wait",
        );
        check(
            &folder,
            "clockwise pool set --placement ring",
            "clockwise pool set --dir ./tour --placement ring",
        );
        check(
            &folder,
            "clockwise up, which finds its nodes again",
            "clockwise up --dir ./tour, which finds its nodes again",
        );
        let elsewhere = "clockwise abort --admin 10.0.0.2:7380";
        check(&folder, elsewhere, elsewhere);
        let left = "pass --dir DIR of the running `clockwise up`, clockwise down --dir DIR";
        check(&folder, left, left);
        check(
            &folder,
            "clockwise measure --nodes 3",
            "clockwise measure --nodes 3",
        );
    }

    #[test]
    fn an_address_is_of_use_to_verbs_that_ask_and_odd_names_are_quoted() {
        let both = Given {
            dir: Some("it's here".to_owned()),
            admin: Some("127.0.0.1:7".to_owned()),
        };
        check(
            &both,
            "clockwise status",
            r"clockwise status --dir 'it'\''s here' --admin 127.0.0.1:7",
        );
        check(&both, "clockwise up", r"clockwise up --dir 'it'\''s here'");
        check(&Given::default(), "clockwise plan", "clockwise plan");
    }
}
