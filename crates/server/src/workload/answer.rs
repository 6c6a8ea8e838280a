//! What an error reply says about the request it answers.

use clockwise_client::resp::{code_word, is_not_executed, is_passing};

use super::history::Outcome;

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
    Refusal {
        kind: code_word(line).to_owned(),
        outcome: if is_not_executed(line) {
            Outcome::NotExecuted
        } else {
            Outcome::Unknown
        },
        retryable: is_passing(line),
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
