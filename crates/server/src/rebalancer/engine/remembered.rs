//! The names of the keys that were copied, so that comparing does not have to list the source again.
//!
//! Whatever a source has was there all the while, and then the listing named it, or it was touched since
//! and was copied for that: either way it was copied and is remembered here. The values are read again on
//! both sides; only the second listing is spared, which would be mostly of keys that stay.
//!
//! A key costs its own bytes and about [`KEY_OVERHEAD_BYTES`]. Beyond [`BYTES_MAX`] everything is forgotten
//! again, and the source is listed. Whether a key is known is told by a hash of 64 bits with a seed of this
//! process: of a million keys two have the same in one of 40 million cases, and then the second of them is
//! not compared.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::mem;

use clockwise_cluster::copier::Lane;

use crate::driver::Key;

/// What a key costs beside its bytes: where it ends, and its hash in a table that is half empty at worst.
const KEY_OVERHEAD_BYTES: usize = 24;
/// What the names of one source may take: 1.5 million keys of 20 bytes.
const BYTES_MAX: usize = 64 << 20;

/// Bytes of a string that counts as small.
pub(super) const SMALL_BYTES_MAX: u64 = 4 << 10;

/// What is known of a value beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Size {
    /// It was a small string when it was copied.
    Small,
    Unknown,
}

/// Names of copied keys, each once.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    // Of each lane first the small ones, then the others.
    lanes: Vec<[Names; 2]>,
    seed: RandomState,
    hashes: HashSet<u64>,
    bytes: usize,
    too_many: bool,
}

/// Names one behind the other.
#[derive(Clone, Debug, Default)]
struct Names {
    bytes: Vec<u8>,
    // Where each name ends. `BYTES_MAX` fits.
    ends: Vec<u32>,
}

impl Remembered {
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            lanes: vec![<[Names; 2]>::default(); lanes],
            ..Self::default()
        }
    }

    /// A key copied again keeps the size that it had at first: a change of it is copied anyway.
    pub(super) fn note(&mut self, lane: Lane, key: &Key, size: Size) {
        if self.too_many || !self.hashes.insert(self.seed.hash_one(key)) {
            return;
        }
        self.bytes += key.len() + KEY_OVERHEAD_BYTES;
        if self.bytes > BYTES_MAX {
            self.too_many = true;
            self.lanes.clear();
            self.hashes = HashSet::new();
            return;
        }
        let names = &mut self.lanes[usize::from(lane.0)][size as usize];
        names.bytes.extend_from_slice(key);
        // Fits, since all of them together do.
        names
            .ends
            .push(u32::try_from(names.bytes.len()).unwrap_or(u32::MAX));
    }

    /// Whether no copied key is missing here.
    pub(super) fn is_whole(&self) -> bool {
        !self.too_many
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.hashes.contains(&self.seed.hash_one(key))
    }

    /// Up to `count` keys of a lane, from the one of this number on.
    pub(super) fn some(&self, lane: Lane, size: Size, from: usize, count: usize) -> Vec<Key> {
        let Some(of_lane) = self.lanes.get(usize::from(lane.0)) else {
            return Vec::new();
        };
        let names = &of_lane[size as usize];
        let through = names.ends.len().min(from + count);
        let mut start = match from {
            0 => 0,
            from => names.ends.get(from - 1).copied().unwrap_or_default(),
        };
        let ends = names.ends.get(from..through).unwrap_or_default();
        let keys = ends.iter().map(|&end| {
            let start = mem::replace(&mut start, end);
            Key::copy_from_slice(&names.bytes[start as usize..end as usize])
        });
        keys.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Lane = Lane(0);

    #[test]
    fn each_key_is_remembered_once_and_told_in_pieces() {
        let mut remembered = Remembered::new(2);
        for name in ["a", "", "bb", "a", "ccc", ""] {
            remembered.note(T, &Key::from(name), Size::Small);
        }
        remembered.note(Lane(1), &Key::from("other"), Size::Small);
        remembered.note(T, &Key::from("large"), Size::Unknown);
        assert!(remembered.is_whole());
        assert!(remembered.has(&Key::from("bb")) && !remembered.has(&Key::from("b")));
        let mut told = Vec::new();
        loop {
            let some = remembered.some(T, Size::Small, told.len(), 3);
            if some.is_empty() {
                break;
            }
            told.extend(some);
        }
        assert_eq!(told, ["a", "", "bb", "ccc"]);
        assert_eq!(remembered.some(T, Size::Unknown, 0, 3), ["large"]);
        assert_eq!(remembered.some(Lane(1), Size::Small, 0, 3), ["other"]);
    }

    #[test]
    fn more_than_fits_is_forgotten_and_said_so() {
        let mut remembered = Remembered::new(1);
        let large = vec![b'x'; BYTES_MAX / 2 - KEY_OVERHEAD_BYTES];
        remembered.note(T, &Key::from([&large[..], b"1"].concat()), Size::Small);
        assert!(remembered.is_whole());
        remembered.note(T, &Key::from([&large[..], b"2"].concat()), Size::Small);
        assert!(!remembered.is_whole());
        assert!(remembered.some(T, Size::Small, 0, 1).is_empty());
    }
}
