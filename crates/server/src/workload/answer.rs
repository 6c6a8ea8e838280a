//! What an error reply says about the request it answers.

use super::history::Outcome;

/// Code words that servers use only for what they did not execute.
const NOT_EXECUTED: [&str; 18] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "DENIED",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOPROTO",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
    "WRONGTYPE",
];

/// Those after which the same request may succeed in a moment.
const RETRYABLE: [&str; 6] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "NOREPLICAS",
    "TRYAGAIN",
];

/// How the clockwise router begins what it says about a write on a connection that broke.
const OUTCOME_UNKNOWN: &str = "ERR clockwise: outcome unknown";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The code word, under which it is counted.
    pub(super) kind: String,
    pub(super) outcome: Outcome,
    pub(super) retryable: bool,
}

/// Reads an error line, without the minus sign. What is not known not to be executed is unknown.
pub(super) fn refusal(line: &str) -> Refusal {
    if line.starts_with(OUTCOME_UNKNOWN) {
        return Refusal {
            kind: "UNKNOWN".to_owned(),
            outcome: Outcome::Unknown,
            retryable: false,
        };
    }
    let code = line.split(' ').next().unwrap_or_default();
    let not_executed = NOT_EXECUTED.contains(&code);
    Refusal {
        kind: code.to_owned(),
        outcome: if not_executed {
            Outcome::NotExecuted
        } else {
            Outcome::Unknown
        },
        retryable: RETRYABLE.contains(&code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_as_far_as_it_says_something() {
        let cases = [
            (
                "TRYAGAIN clockwise: the key is being handed over",
                Outcome::NotExecuted,
                true,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                Outcome::NotExecuted,
                true,
            ),
            (
                "NOPERM this user has no permissions",
                Outcome::NotExecuted,
                false,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                Outcome::NotExecuted,
                false,
            ),
            (
                "ERR clockwise: outcome unknown: the connection broke",
                Outcome::Unknown,
                false,
            ),
            ("ERR something else", Outcome::Unknown, false),
            ("", Outcome::Unknown, false),
        ];
        for (line, outcome, retryable) in cases {
            let refusal = refusal(line);
            assert_eq!(
                (refusal.outcome, refusal.retryable),
                (outcome, retryable),
                "{line}"
            );
        }
        assert_eq!(refusal("ERR clockwise: outcome unknown: x").kind, "UNKNOWN");
    }
}
