//! The talk of a long-running process on stderr.

use std::io::{self, IsTerminal};

use crate::running::log::{USUAL, filter};

/// Says how much, in a level or in tracing's own words.
const VARIABLE: &str = "CLOCKWISE_LOG";

/// Changes how much is said. What the environment asks for stays.
pub(super) type SetLevel = Box<dyn Fn(Option<&str>) -> Result<(), String>>;

/// Begins: as much as the environment says, else as much as is `asked` for.
pub(super) fn to_stderr(asked: Option<&str>) -> SetLevel {
    let said = std::env::var(VARIABLE)
        .ok()
        .filter(|words| !words.is_empty());
    let usable = said.as_deref().and_then(|words| filter(words).ok());
    let fixed = usable.is_some();
    let begin = usable
        .or_else(|| filter(asked.unwrap_or(USUAL)).ok())
        .unwrap_or_default();
    let log = tracing_subscriber::fmt()
        // It would say on stderr, by a panic of whoever logs, that stderr cannot be written.
        .log_internal_errors(false)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .with_env_filter(begin)
        .with_filter_reloading();
    let handle = log.reload_handle();
    log.init();
    Box::new(move |words| {
        if fixed {
            return Err(format!("{VARIABLE} says how much, until a restart"));
        }
        let filter = filter(words.unwrap_or(USUAL))?;
        handle.reload(filter).map_err(|error| error.to_string())
    })
}
