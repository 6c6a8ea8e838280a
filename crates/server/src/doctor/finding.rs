//! What was found, ranked, and how a command that mends it is written.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::check::{Check, Severity};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked for.
    pub check: Check,
    /// Where: a node, an endpoint, a process, a file.
    pub place: String,
    /// What was seen there.
    pub what: String,
    /// The command that mends it, to be pasted; where there is none, what to do.
    pub next: String,
}

impl Finding {
    /// A finding of a check.
    pub(super) fn new(
        check: Check,
        place: impl Into<String>,
        what: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            check,
            place: printable(&place.into()),
            what: printable(&what.into()),
            next: without_controls(&next.into()),
        }
    }

    /// How grave it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.check.about().severity
    }
}

/// The gravest first, then in the order of the checks, then by place.
pub(super) fn ranked(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by(|one, two| {
        let key = |finding: &Finding| (finding.severity(), finding.check);
        key(one)
            .cmp(&key(two))
            .then_with(|| one.place.cmp(&two.place))
    });
    findings.dedup();
    findings
}

/// A finding as programs read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingText {
    /// How grave it is.
    pub severity: Severity,
    /// The name of the check.
    pub check: String,
    /// Where.
    pub place: String,
    /// What was seen.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// What to type.
    pub next: String,
}

impl From<&Finding> for FindingText {
    fn from(finding: &Finding) -> Self {
        let about = finding.check.about();
        Self {
            severity: about.severity,
            check: about.name.to_owned(),
            place: finding.place.clone(),
            what: finding.what.clone(),
            why: about.why.to_owned(),
            next: finding.next.clone(),
        }
    }
}

/// Words of servers on a person's terminal: no control characters, and not without end.
fn printable(text: &str) -> String {
    const CHARS_MAX: usize = 600;
    let mut shown: String = text.chars().take(CHARS_MAX).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        shown.push('…');
    }
    without_controls(&shown)
}

fn without_controls(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().map(shown).collect()
}

/// As a shell takes it for one word.
pub(crate) fn word(value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_./:-@%+,".contains(letter);
    if !value.is_empty() && value.chars().all(plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

/// A path as a shell takes it.
pub(super) fn path_word(path: &Path) -> String {
    word(&path.display().to_string())
}

/// `HOST:PORT` in its two parts; an address in brackets without them.
pub(super) fn host_and_port(address: &str) -> (&str, &str) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}

/// Whether an address or the host of a URL is of this machine alone.
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_comes_first_and_nothing_twice() {
        let find = |check, place: &str| Finding::new(check, place, "so", "do");
        let found = ranked(vec![
            find(Check::StagedEdits, "pool"),
            find(Check::RedisTimeout, "b"),
            find(Check::RedisEvicts, "b"),
            find(Check::RedisTimeout, "a"),
            find(Check::RedisTimeout, "b"),
        ]);
        let shown: Vec<_> = found
            .iter()
            .map(|finding| format!("{} {} {}", finding.severity(), finding.check, finding.place))
            .collect();
        assert_eq!(
            shown,
            [
                "error redis-evicts b",
                "warning redis-timeout a",
                "warning redis-timeout b",
                "note staged-edits pool"
            ]
        );
    }

    #[test]
    fn what_servers_say_cannot_write_on_a_terminal() {
        let found = Finding::new(Check::NodeAway, "n\u{1b}[2J", "x\r\n".repeat(900), "");
        assert_eq!(found.place, "n [2J");
        let found = Finding::new(Check::NodeAway, "", "", "node set a\u{1b}[2J");
        assert_eq!(found.next, "node set a [2J");
        assert!(found.what.chars().count() <= 601 && !found.what.contains('\n'));
    }

    #[test]
    fn addresses_and_words_are_taken_apart() {
        assert_eq!(host_and_port("[::1]:6379"), ("::1", "6379"));
        assert_eq!(host_and_port("a.example:1"), ("a.example", "1"));
        assert!(is_loopback("::1") && is_loopback("127.9.9.9") && is_loopback("localhost"));
        assert!(!is_loopback("10.0.0.1") && !is_loopback("a.example"));
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word("[::1]:6379"), "'[::1]:6379'");
    }
}
