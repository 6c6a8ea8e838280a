//! A digest by which two processes see that they place keys alike.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use xxhash_rust::xxh3::Xxh3Default;

use crate::position::{HexError, parse_hex};
use crate::{NodeIx, Placement, Position};

/// What two processes compare before they trust each other's routing: 16 hexadecimal digits.
///
/// It covers what decides ownership and nothing else: how keys become positions, the intervals, and the
/// ids of their owners in order. Addresses, weights and domains count only as far as they change an owner.
/// A secret hash key is covered by what it does to two fixed keys and cannot be read off.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    pub(crate) fn of(placement: &Placement) -> Self {
        let mut digest = Xxh3Default::new();
        let scheme = placement.scheme();
        put(&mut digest, scheme.name().as_bytes());
        for probe in [&b"clockwise"[..], b"fingerprint"] {
            digest.update(&scheme.position(probe).0.to_le_bytes());
        }
        // Owners are numbered by id among those that own something, so that idle members do not count.
        let mut number = alloc::vec![NodeIx::NONE; placement.nodes().len()];
        let mut owners = 0;
        for (rank, member) in placement.nodes().iter().enumerate() {
            if placement.places(NodeIx::of(rank)) {
                number[rank] = NodeIx::of(owners);
                owners += 1;
                put(&mut digest, member.id.as_str().as_bytes());
            }
        }
        put(&mut digest, b"");
        let mut line = Vec::new();
        let mut absorb = |through: Position, owners: &[NodeIx]| {
            line.clear();
            line.extend_from_slice(&through.0.to_le_bytes());
            for owner in owners {
                line.extend_from_slice(&number[owner.get()].raw().to_le_bytes());
            }
            digest.update(&line);
        };
        // Neighbours with equal owners are one run. A circle of one run ends nowhere: say at its last position.
        let first = placement.list(0);
        let mut uniform = true;
        let mut intervals = placement.intervals().peekable();
        while let Some((interval, owners)) = intervals.next() {
            if intervals.peek().map_or(first, |(_, next)| *next) != owners {
                uniform = false;
                absorb(interval.through, owners);
            }
        }
        if uniform {
            absorb(Position::MAX, first);
        }
        Self(digest.digest())
    }
}

/// A field of any length, so that no two sequences of fields look alike.
fn put(digest: &mut Xxh3Default, field: &[u8]) {
    digest.update(&(field.len() as u64).to_le_bytes());
    digest.update(field);
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = HexError;

    fn from_str(text: &str) -> Result<Self, HexError> {
        parse_hex(text).map(Self)
    }
}
