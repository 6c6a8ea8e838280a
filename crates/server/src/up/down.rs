//! `down`: ends what runs on a folder, whether its `up` is still there or was killed.

use std::time::{Duration, Instant};

use clockwise_client::credentials::{CredentialError, Password};
use clockwise_client::store::{FileOptions, FileStore, OpenError};
use tokio::time::sleep;

use super::data_dir::{ADMIN_ADDRESS, DataDir, DataDirError, LISTEN_ADDRESS, LOCK, NODES_PASSWORD};
use super::node_server::{NodeServerError, NodeServers, Persist, Program};
use super::process::{ProcessId, holding_removed};
use super::settings::{Settings, SettingsError};

/// `up` gives itself ten seconds.
const UP_ENDS_WITHIN: Duration = Duration::from_secs(15);
const SERVERS_END_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Why something is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownError {
    /// The process that holds the folder does not end.
    #[error("{}, which holds the folder, does not end{}", process(*pid), by_force(*pid))]
    UpStays {
        /// The process.
        pid: Option<u32>,
    },
    /// It could not be asked to end.
    #[error("{}, which holds the folder, cannot be asked to end: {why}", process(*pid))]
    Unsignalled {
        /// The process.
        pid: Option<u32>,
        /// The system's words.
        why: String,
    },
    /// The system gives no runtime.
    #[error("a runtime: {source}")]
    Runtime {
        /// The system's words.
        source: std::io::Error,
    },
    /// A server that was left.
    #[error(transparent)]
    Server(#[from] NodeServerError),
    /// The record's store, which holds the folder's lock.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The administrator's password of the nodes.
    #[error(transparent)]
    Password(#[from] CredentialError),
    /// The folder's settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The folder itself.
    #[error(transparent)]
    Folder(#[from] DataDirError),
}

/// What was ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Ended {
    /// The process that held the folder, if one did.
    pub up: Option<u32>,
    /// Servers that had been left without one.
    pub servers: Vec<String>,
}

/// Ends everything that runs on the folder. Nothing left is success; none where nothing was ever started.
///
/// # Errors
/// The first thing that does not end; what could be ended was.
pub fn down(dir: &DataDir) -> Result<Option<Ended>, DownError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .map_err(|source| DownError::Runtime { source })?
        .block_on(end(dir))
}

async fn end(dir: &DataDir) -> Result<Option<Ended>, DownError> {
    let mut ended = Ended::default();
    let kept = Settings::kept(dir);
    let unused = matches!(kept, Ok(None)) && !dir.path().join(LOCK).exists();
    if unused && dir.nodes()?.is_empty() {
        return Ok(None);
    }
    // Whoever opens the record for writing holds the folder.
    let _held = match FileStore::open(dir.path(), FileOptions::default()) {
        Ok(held) => held,
        Err(OpenError::Locked { pid, .. }) => {
            ended.up = pid;
            end_up(pid)?;
            wait_for(dir, pid).await?
        }
        Err(error) => return Err(error.into()),
    };
    // Somebody removed the lock file: whoever had locked it runs on, and its servers with it.
    if let Some(holder) = holding_removed(&dir.path().join(LOCK)) {
        ended.up = u32::try_from(holder.pid).ok();
        end_up(ended.up)?;
        wait_for_end(holder).await?;
    }
    let password = Password::load_or_create(&dir.path().join(NODES_PASSWORD))?;
    // What servers keep matters to those that start, not to those that end.
    let persist = kept
        .ok()
        .flatten()
        .map_or(Persist::Aof, |kept| kept.persist);
    let redis = NodeServers::new(dir.clone(), Program::Redis { persist, password });
    let memcached = NodeServers::new(dir.clone(), Program::Memcached);
    redis.begin_end();
    memcached.begin_end();
    let deadline = Instant::now() + SERVERS_END_WITHIN;
    let mut failed = None;
    for id in dir.nodes()? {
        // The folder's settings may be gone; a node's own folder says what ran in it.
        let servers = match Program::Memcached.ran_in(&dir.node(&id)?) {
            true => &memcached,
            false => &redis,
        };
        match servers.end_left(&id, deadline) {
            Ok(true) => ended.servers.push(id.to_string()),
            Ok(false) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    for name in [LISTEN_ADDRESS, ADMIN_ADDRESS] {
        dir.remove(name)?;
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(Some(ended)),
    }
}

/// Asks the holder to end, as a terminal or a service manager would.
fn end_up(pid: Option<u32>) -> Result<(), DownError> {
    let unsignalled = |why: String| DownError::Unsignalled { pid, why };
    // It has the lock but has not said so yet: it will end by itself or say so.
    let Some(number) = pid else { return Ok(()) };
    let number = i32::try_from(number).map_err(|error| unsignalled(error.to_string()))?;
    let Some(process) = ProcessId::of(number) else {
        return Ok(());
    };
    process
        .ask_to_end()
        .map_err(|error| unsignalled(error.to_string()))
}

async fn wait_for_end(holder: ProcessId) -> Result<(), DownError> {
    let deadline = Instant::now() + UP_ENDS_WITHIN;
    while holder.lives() {
        if Instant::now() >= deadline {
            let pid = u32::try_from(holder.pid).ok();
            return Err(DownError::UpStays { pid });
        }
        sleep(POLL).await;
    }
    Ok(())
}

async fn wait_for(dir: &DataDir, pid: Option<u32>) -> Result<FileStore, DownError> {
    let deadline = Instant::now() + UP_ENDS_WITHIN;
    loop {
        match FileStore::open(dir.path(), FileOptions::default()) {
            Ok(held) => return Ok(held),
            Err(OpenError::Locked { .. }) if Instant::now() < deadline => sleep(POLL).await,
            Err(OpenError::Locked { .. }) => return Err(DownError::UpStays { pid }),
            Err(error) => return Err(error.into()),
        }
    }
}

fn by_force(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| {
        format!("; if it hangs, end it with `kill -9 {pid}`, then its nodes with `clockwise down`")
    })
}

pub(super) fn process(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}
