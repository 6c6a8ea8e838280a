//! What a store can do wrong to a key.

use std::fmt;

use serde::Serialize;

/// A kind of fault. A key counts once, with the first that was seen on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// An acknowledged write is gone, although nothing was written after it.
    Lost,
    /// A read saw an older state than it must; later the right one was there, or it had been
    /// written over.
    Stale,
    /// A deleted value came back.
    Resurrected,
    /// An expiry is not the one that was set, or a value was there after it.
    WrongTtl,
    /// What was read was never written to that key: another key's value, or a damaged one.
    Corrupt,
    /// A counter is above what was sent to it: an increment was executed twice.
    Duplicated,
    /// A write took effect that had not been executed: so its answer said, or what was read later.
    Phantom,
}

impl FaultKind {
    /// All of them, the worst first.
    pub const ALL: [FaultKind; 7] = [
        FaultKind::Lost,
        FaultKind::Stale,
        FaultKind::Resurrected,
        FaultKind::WrongTtl,
        FaultKind::Corrupt,
        FaultKind::Duplicated,
        FaultKind::Phantom,
    ];

    /// The word for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::Lost => "lost",
            FaultKind::Stale => "stale",
            FaultKind::Resurrected => "resurrected",
            FaultKind::WrongTtl => "wrong TTL",
            FaultKind::Corrupt => "corrupt",
            FaultKind::Duplicated => "duplicated",
            FaultKind::Phantom => "phantom",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A key on which something wrong was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fault {
    /// What was wrong.
    pub kind: FaultKind,
    /// The key.
    pub key: String,
    /// What was seen, and what should have been.
    pub detail: String,
    /// When it was first seen, in milliseconds since 1970.
    pub at_ms: u64,
}
