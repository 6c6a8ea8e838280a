//! What the first word of an error reply says about the request it answers.
//!
//! A server executes a request or refuses it, and most refusals begin with a code word of their own. Words that
//! stand only before what was not executed are listed here; everything else, `ERR` above all, is silent about
//! it. Of a script's reply no word says anything: a script may write, then fail with any of them.

/// Words of servers, of routers and of cluster proxies for what was not executed.
const NOT_EXECUTED: [&str; 19] = [
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
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
    "WRONGTYPE",
];

/// Those after which the same request may succeed in a moment.
const PASSING: [&str; 6] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "NOREPLICAS",
    "TRYAGAIN",
];

/// The first word of an error line (without the minus sign), empty if there is none.
///
/// ```
/// use clockwise_client::resp::code_word;
///
/// assert_eq!(code_word("WRONGTYPE Operation against a key"), "WRONGTYPE");
/// assert_eq!(code_word(""), "");
/// ```
#[must_use]
pub fn code_word(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

/// Whether the line says that the request, which is no script, was not executed. `false` says nothing.
///
/// ```
/// use clockwise_client::resp::is_not_executed;
///
/// assert!(is_not_executed("OOM command not allowed when used memory > 'maxmemory'."));
/// assert!(!is_not_executed("ERR value is not an integer or out of range"));
/// ```
#[must_use]
pub fn is_not_executed(line: &str) -> bool {
    NOT_EXECUTED.contains(&code_word(line))
}

/// Whether the line says that the request was not executed and may be, when it is sent again in a moment.
#[must_use]
pub fn is_passing(line: &str) -> bool {
    PASSING.contains(&code_word(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_was_not_executed() {
        for word in PASSING {
            assert!(is_not_executed(&format!("{word} in a moment")), "{word}");
        }
        assert!(!is_passing("OOM"));
        // Whole words, and only the first.
        for line in [
            "",
            "ERR BUSY",
            "BUSYGROUP name already exists",
            " BUSY",
            "busy",
        ] {
            assert!(!is_not_executed(line) && !is_passing(line), "{line}");
        }
    }
}
