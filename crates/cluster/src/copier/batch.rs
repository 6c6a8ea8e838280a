//! What goes into a copy's books and what comes out of them.

use alloc::vec::Vec;

/// What a waiting key costs beside its own bytes: its place in an ordered set and its allocation.
pub const KEY_OVERHEAD_BYTES: usize = 96;

/// The one ordered way to a target, numbered like the handoff's targets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lane(pub u16);

impl Lane {
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Bounds of one copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Keys in a batch. Everybody else at the server waits for as many to be read or written.
    pub batch_keys_max: usize,
    /// Bytes a batch is estimated to hold; a server is stalled for as long as it serialises them.
    pub batch_bytes_max: u64,
    /// Listed keys that wait to be read before the listing pauses.
    pub listed_keys_max: usize,
    /// Bytes of touched keys that wait before the listing pauses for them.
    pub dirty_bytes_max: usize,
    /// Keys whose changes the stream of touched keys does not show, to be copied again under the fence.
    pub untracked_keys_max: usize,
    /// Bytes of one large value that are brought over again under the fence.
    pub part_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            batch_keys_max: 64,
            batch_bytes_max: 1 << 20,
            listed_keys_max: 8_192,
            dirty_bytes_max: 32 << 20,
            untracked_keys_max: 20_000,
            part_bytes_max: 2 << 20,
        }
    }
}

/// Keys on their way to one target. Hand it back to [`Copier::landed`](super::Copier::landed) once the target has answered
/// for every key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch<K> {
    /// Where they go.
    pub lane: Lane,
    /// The keys, in the order in which they are read and written.
    pub keys: Vec<K>,
    // What was taken out of the throttle for it.
    pub(super) bytes_estimated: u64,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next<K> {
    /// Read these and write them to their target.
    Batch(Batch<K>),
    /// Copy this one in pieces, then call [`Copier::big_landed`](super::Copier::big_landed).
    Big(Lane, K),
    /// The throttle allows nothing before this moment.
    At(u64),
    /// Nothing until something is listed, touched or lands.
    Nothing,
}

/// What reading one key of a batch gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It does not exist: it is removed at the target.
    Gone,
    /// A value of this many bytes.
    Value {
        /// Size of the payload.
        bytes: u64,
        /// Changed in ways that the stream of touched keys does not show.
        untracked: bool,
    },
    /// Too large for a batch: it will be handed out alone.
    Big,
}

/// What is brought over again under the fence, since the stream of touched keys does not show its changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Untracked {
    /// Values that are copied again as they are.
    pub keys: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Large values of which only the part that the stream does not show is brought over.
    pub parts: u64,
    /// Bytes of these parts.
    pub part_bytes: u64,
}

/// Why a copy cannot go on although every connection works.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum CopyStop {
    /// Keys are touched faster than they can be copied.
    DirtOutgrowsCopying {
        /// Touched keys that wait.
        waiting: u64,
    },
    /// A large value was changed during each of several passes.
    BigKeyUnsteady {
        /// Its name.
        key: Vec<u8>,
        /// How many passes were made.
        passes: u32,
    },
    /// There are too many values of a kind that must be copied under the fence.
    TooManyUntracked {
        /// How many were seen.
        keys: u64,
    },
    /// Of a large value, too much must be brought over under the fence.
    PartTooLarge {
        /// Its name.
        key: Vec<u8>,
        /// Bytes of the part.
        bytes: u64,
    },
}

/// What a copy has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Keys listed that move.
    pub listed: u64,
    /// Touches heard of, repeats within a round counted once.
    pub touched: u64,
    /// Keys written at a target, repeats counted.
    pub copied: u64,
    /// Keys removed at a target because they were gone at the source.
    pub removed: u64,
    /// Bytes of payload read.
    pub bytes: u64,
    /// Keys found different when both sides were compared.
    pub mismatches: u64,
}

/// What a waiting key costs in bytes.
pub(super) fn cost<K: AsRef<[u8]>>(key: &K) -> usize {
    key.as_ref().len() + KEY_OVERHEAD_BYTES
}
