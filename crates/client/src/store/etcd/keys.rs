//! Where a pool's keys are in etcd.
//!
//! ```text
//! <prefix>/<pool>/record           the record; what it says is so
//! <prefix>/<pool>/history/<epoch>  the first record of each of the last 16 epochs
//! <prefix>/<pool>/term             the highest term of leadership ever begun
//! <prefix>/<pool>/leader/<name>    who leads under which term; ends with the leader's lease
//! <prefix>/<pool>/clients/<id>     who routes by which epoch; ends with their lease
//! ```
//!
//! A term is a counter of ours and no revision of etcd: those go back when a copy is restored.

use bytes::Bytes;
use clockwise_cluster::{Epoch, PoolName, Term};
use serde::{Deserialize, Serialize};

const FORMAT: u32 = 1;

#[derive(Debug, Clone)]
pub(super) struct Keys {
    /// With the slash at its end.
    pool: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, pool: &PoolName) -> Keys {
        let prefix = prefix.trim_end_matches('/');
        Keys {
            pool: format!("{prefix}/{pool}/"),
        }
    }

    pub(super) fn record(&self) -> Bytes {
        format!("{}record", self.pool).into()
    }

    pub(super) fn history(&self) -> Bytes {
        format!("{}history/", self.pool).into()
    }

    /// With leading zeros, so that keys are in the order of epochs.
    pub(super) fn copy(&self, epoch: Epoch) -> Bytes {
        format!("{}history/{epoch:020}", self.pool).into()
    }

    pub(super) fn epoch_of(&self, copy: &[u8]) -> Option<Epoch> {
        let name = copy.strip_prefix(&*self.history())?;
        std::str::from_utf8(name).ok()?.parse().ok()
    }

    pub(super) fn term(&self) -> Bytes {
        format!("{}term", self.pool).into()
    }

    pub(super) fn leaders(&self) -> Bytes {
        format!("{}leader/", self.pool).into()
    }

    pub(super) fn leader(&self, name: &str) -> Bytes {
        format!("{}leader/{name}", self.pool).into()
    }

    pub(super) fn registrants(&self) -> Bytes {
        format!("{}clients/", self.pool).into()
    }

    pub(super) fn registrant(&self, id: &str) -> Bytes {
        format!("{}clients/{id}", self.pool).into()
    }
}

/// How errors name a key.
pub(super) fn place(key: &[u8]) -> String {
    format!("etcd key {}", String::from_utf8_lossy(key))
}

/// What stands under the term's key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredTerm {
    format: u32,
    term: Term,
}

impl StoredTerm {
    pub(super) fn encode(term: Term) -> Bytes {
        let format = FORMAT;
        to_bytes(&StoredTerm { format, term })
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Term, String> {
        let stored: StoredTerm =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match stored.format {
            FORMAT => Ok(stored.term),
            format => Err(format!("format {format}, this version knows {FORMAT}")),
        }
    }
}

/// What stands under a leader's key. No two calls that want to lead write the same, also if they
/// aim at one term at a time, or at a term that etcd forgot because a copy was restored.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredLeader {
    pub(super) format: u32,
    pub(super) term: Term,
    /// For people.
    pub(super) holder: String,
    /// Where it can be asked what it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) contact: Option<String>,
    /// Of the store value that leads.
    pub(super) store: String,
    /// Which of the store's calls this is.
    pub(super) call: u64,
}

impl StoredLeader {
    pub(super) fn new(
        term: Term,
        (holder, contact): (&str, Option<&str>),
        store: &str,
        call: u64,
    ) -> StoredLeader {
        StoredLeader {
            format: FORMAT,
            term,
            holder: holder.to_owned(),
            contact: contact.map(str::to_owned),
            store: store.to_owned(),
            call,
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        to_bytes(self)
    }

    /// `None` for what we did not write.
    pub(super) fn decode(bytes: &[u8]) -> Option<StoredLeader> {
        serde_json::from_slice(bytes).ok()
    }
}

fn to_bytes(stored: &impl Serialize) -> Bytes {
    let bytes = serde_json::to_vec(stored);
    bytes.expect("numbers and text have a stored form").into()
}
