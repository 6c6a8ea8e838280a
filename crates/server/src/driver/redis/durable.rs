//! Waiting until what was written survives a restart, as well as the server can promise it.
//!
//! In order of preference: `WAITAOF` (from version 7.2) asks exactly this. An append-only file that
//! is synced every second is safe two seconds later, if no sync was delayed meanwhile and the last
//! write of the file went well. Without one, a snapshot that began afterwards must have finished. A
//! server without either keeps nothing, and there is nothing to wait for.

use std::time::{Duration, Instant};

use clockwise_client::resp::Value;
use tokio::time::sleep;

use super::acl::RESERVED_PREFIX;
use super::frame::Pipeline;
use super::info::Info;
use super::link::Link;
use super::server::info;
use crate::driver::DriverError;

/// How long a snapshot or a synced log is waited for.
const DURABLE_PATIENCE: Duration = Duration::from_secs(600);
/// Between two looks at a server that forks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A log synced "every second" may be behind by two: servers put a write off while a sync runs.
const SYNC_DELAY: Duration = Duration::from_secs(2);

pub(super) async fn wait(link: &Link) -> Result<(), DriverError> {
    let started = Instant::now();
    let (logs, always, snapshots) = promises(link).await?;
    match (logs, always, snapshots) {
        (true, true, _) => Ok(()),
        (true, false, _) if link.abilities().waits_for_log => wait_aof(link, started).await,
        (true, false, _) => log_is_synced(link, started).await,
        (false, _, true) => snapshot_is_made(link, started).await,
        (false, _, false) => Ok(()),
    }
}

/// Whether the server keeps a log, syncs it before each reply, makes snapshots.
async fn promises(link: &Link) -> Result<(bool, bool, bool), DriverError> {
    let logs = info(link, &["persistence"]).await?.number("aof_enabled") == Some(1);
    let frame = link
        .ask("CONFIG GET", &[b"CONFIG", b"GET", b"appendfsync", b"save"])
        .await?;
    let settings = frame.value();
    let is = |name: &str, holds: &dyn Fn(&str) -> bool| {
        settings
            .pairs()
            .iter()
            .any(|(key, value)| key.as_text() == Some(name) && value.as_text().is_some_and(holds))
    };
    Ok((
        logs,
        is("appendfsync", &|value| value == "always"),
        is("save", &|value| !value.is_empty()),
    ))
}

/// Asks for the log to be synced. `WAITAOF` speaks of what its own connection wrote, so this one
/// writes first.
async fn wait_aof(link: &Link, started: Instant) -> Result<(), DriverError> {
    let mark = [RESERVED_PREFIX, b"durable"].concat();
    link.ask("SET", &[b"SET", &mark, b"", b"PX", b"1000"])
        .await?;
    while started.elapsed() < DURABLE_PATIENCE {
        let patience = SYNC_DELAY.as_millis().to_string();
        let pipeline = Pipeline::of(&[b"WAITAOF", b"1", b"0", patience.as_bytes()]);
        let frames = link
            .call_within("WAITAOF", pipeline, SYNC_DELAY + link.patience())
            .await?;
        for frame in frames {
            let counts = link.check("WAITAOF", frame)?.value();
            if counts
                .as_array()
                .and_then(|counts| counts.first())
                .and_then(Value::as_integer)
                == Some(1)
            {
                return Ok(());
            }
        }
    }
    Err(link.peer().refused(
        "WAITAOF",
        format_args!("the log is not synced after {DURABLE_PATIENCE:?}"),
    ))
}

async fn log_is_synced(link: &Link, started: Instant) -> Result<(), DriverError> {
    let mut delayed = delayed_syncs(&info(link, &["persistence"]).await?);
    while started.elapsed() < DURABLE_PATIENCE {
        sleep(SYNC_DELAY).await;
        let now = info(link, &["persistence"]).await?;
        if now.get("aof_last_write_status") == Some("ok") && delayed_syncs(&now) == delayed {
            return Ok(());
        }
        delayed = delayed_syncs(&now);
    }
    Err(link.peer().refused(
        "INFO persistence",
        format_args!("the log is not synced after {DURABLE_PATIENCE:?}"),
    ))
}

fn delayed_syncs(info: &Info) -> Option<u64> {
    info.number("aof_delayed_fsync")
}

/// Starts a snapshot, after one that runs already and may have begun too early.
async fn snapshot_is_made(link: &Link, started: Instant) -> Result<(), DriverError> {
    let mut asked = false;
    while started.elapsed() < DURABLE_PATIENCE {
        let now = info(link, &["persistence"]).await?;
        let busy = now.number("rdb_bgsave_in_progress") != Some(0)
            || now.number("aof_rewrite_in_progress") != Some(0);
        match (busy, asked) {
            (true, _) => {}
            (false, false) => {
                // Refused when something else has forked since: then it is tried again.
                let frames = link.call("BGSAVE", Pipeline::of(&[b"BGSAVE"])).await?;
                asked = frames.first().is_some_and(|frame| frame.error().is_none());
            }
            (false, true) if now.get("rdb_last_bgsave_status") == Some("ok") => return Ok(()),
            (false, true) => {
                return Err(link
                    .peer()
                    .refused("BGSAVE", "the snapshot failed; see the server's log"));
            }
        }
        sleep(LOOK_AGAIN).await;
    }
    Err(link.peer().refused(
        "BGSAVE",
        format_args!("no snapshot after {DURABLE_PATIENCE:?}"),
    ))
}
