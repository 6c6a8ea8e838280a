//! What a server says in its log, as far as it is understood.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// What a redis-server writes into its log when it starts.
const STARTS: &str = "Redis is starting";
/// What it writes into its log once it has loaded its append-only file.
const LOADED: &str = "DB loaded from append only file";
/// Of what a server has just logged, so much is looked at.
const LOG_BYTES_MAX: u64 = 256 << 10;

/// Whether a server that has just started has loaded its append-only file.
pub(super) fn has_loaded(log: &str) -> bool {
    let since_start = log.rfind(STARTS).map_or("", |at| &log[at..]);
    since_start.contains(LOADED)
}

/// The end of what a log gained; a damaged log gives what can be read.
pub(super) fn text_after(path: &Path, from: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut log| {
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(
            from.max(length.saturating_sub(LOG_BYTES_MAX)),
        ))?;
        log.take(LOG_BYTES_MAX).read_to_end(&mut bytes)
    });
    if let Err(error) = read {
        tracing::warn!(path = %path.display(), %error, "log not read");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}
