//! What a node's folder says of its server: a card of the one that was started last, and, once that has
//! ended in good order, a note of what it saved.
//!
//! Whoever starts the next server reads the note. If the server then loads what was saved, its card says
//! whom it continues; whoever comes later and finds that server running learns it too.

use std::fs;
use std::io;
use std::path::Path;

use clockwise_cluster::Incarnation;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::data_dir::{DataDirError, write_private};
use super::process::ProcessId;

const CARD: &str = "server.json";
const SAVED: &str = "saved.json";

/// What makes a running server recognisable, and what it goes on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Card {
    pub(super) process: ProcessId,
    pub(super) port: u16,
    pub(super) run_id: String,
    /// The run whose data it loaded whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) continues: Option<Incarnation>,
}

/// The card in a node's folder; one that cannot be made out is as good as none.
pub(super) fn read(folder: &Path) -> io::Result<Option<Card>> {
    read_json(&folder.join(CARD))
}

/// What the last server saved when it ended in good order; `None` if it did not, saves nothing, or left a
/// note that cannot be made out.
pub(super) fn saved(folder: &Path) -> io::Result<Option<Incarnation>> {
    read_json(&folder.join(SAVED))
}

/// A server runs: its card takes the place of what the last one left.
pub(super) fn begin(folder: &Path, card: &Card) -> Result<(), DataDirError> {
    // In this order: a note that outlived its server would vouch for a later one.
    remove(&folder.join(SAVED))?;
    write_json(&folder.join(CARD), card)
}

/// The server has ended.
pub(super) fn end(folder: &Path, saved: Option<&Incarnation>) -> Result<(), DataDirError> {
    if let Some(saved) = saved {
        write_json(&folder.join(SAVED), saved)?;
    }
    remove(&folder.join(CARD))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(serde_json::from_str(&text)
            .inspect_err(
                |error| tracing::warn!(path = %path.display(), %error, "not readable, passed over"),
            )
            .ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("{}: {error}", path.display()),
        )),
    }
}

fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), DataDirError> {
    let text = serde_json::to_string(value).map_err(|error| failed(path, error.into()))?;
    write_private(path, &text)
}

fn remove(path: &Path) -> Result<(), DataDirError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, error)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, source: io::Error) -> DataDirError {
    DataDirError::File {
        path: path.to_owned(),
        source,
    }
}
