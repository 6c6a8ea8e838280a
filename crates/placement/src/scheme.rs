//! How bytes become positions: a named, versioned recipe that never changes under its name.
//!
//! `clockwise/v1` hashes a key's bytes as they are, with XXH3-64 under a seed or with SipHash-1-3 under
//! a secret key. Point `i` of a node is the hash, by the same function, of the bytes of its id followed
//! by `i` as four bytes, least significant first. The suffix has a fixed length, so no two pairs of id
//! and index spell the same bytes.

use alloc::sync::Arc;
use core::fmt;

use siphasher::sip::SipHasher13;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::node::NAME_BYTES_MAX;
use crate::{NodeId, Position};

/// The name of our own scheme.
const V1: &str = "clockwise/v1";

/// The function that `clockwise/v1` hashes with.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyHash {
    /// XXH3-64: fast, the default. A seed is no secret: whoever knows the placement can aim keys at a node.
    Xxh3 {
        /// The seed, 0 unless there is a reason.
        seed: u64,
    },
    /// SipHash-1-3 under a secret key: for keys that strangers choose.
    SipHash13 {
        /// The secret.
        key: [u8; 16],
    },
}

impl Default for KeyHash {
    fn default() -> Self {
        Self::Xxh3 { seed: 0 }
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xxh3 { seed } => f.debug_struct("Xxh3").field("seed", seed).finish(),
            // The key is a secret, and debug output ends in logs.
            Self::SipHash13 { .. } => f.debug_struct("SipHash13").finish_non_exhaustive(),
        }
    }
}

impl KeyHash {
    fn hash(&self, bytes: &[u8]) -> Position {
        Position(match self {
            Self::Xxh3 { seed } => xxh3_64_with_seed(bytes, *seed),
            Self::SipHash13 { key } => SipHasher13::new_with_key(key).hash(bytes),
        })
    }
}

/// A recipe that is not ours: how another program turns keys and points into positions.
///
/// The name must stand for all of it, options included: two recipes of one name are taken to be the same.
pub trait Recipe: Send + Sync {
    /// The name, such as `article-md5`.
    fn name(&self) -> &str;
    /// Where a key lies.
    fn key(&self, key: &[u8]) -> Position;
    /// Where the copy of this number of a node's points lies.
    fn point(&self, node: &NodeId, copy: u32) -> Position;
    /// The index that `hash % N` gives a key: the remainder of all of its hash, not of its position only.
    ///
    /// `nodes` is not 0.
    fn modulo(&self, key: &[u8], nodes: usize) -> usize {
        remainder(self.key(key), nodes)
    }
}

fn remainder(position: Position, nodes: usize) -> usize {
    // Below `nodes`, so it fits where that does.
    (position.0 % nodes as u64) as usize
}

/// A named recipe for positions. Cheap to clone.
///
/// ```
/// use clockwise_placement::{KeyHash, Scheme};
/// let scheme = Scheme::v1(KeyHash::Xxh3 { seed: 0 });
/// assert_eq!(scheme.name(), "clockwise/v1");
/// assert_eq!(scheme.position(b"user:42"), Scheme::default().position(b"user:42"));
/// ```
#[derive(Clone)]
pub struct Scheme(Inner);

#[derive(Clone)]
enum Inner {
    V1(KeyHash),
    Foreign(Arc<dyn Recipe>),
}

impl Scheme {
    /// `clockwise/v1` with this hash.
    #[must_use]
    pub const fn v1(hash: KeyHash) -> Self {
        Self(Inner::V1(hash))
    }

    /// A recipe of another program.
    #[must_use]
    pub fn foreign(recipe: Arc<dyn Recipe>) -> Self {
        Self(Inner::Foreign(recipe))
    }

    /// The name of the recipe.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.0 {
            Inner::V1(_) => V1,
            Inner::Foreign(recipe) => recipe.name(),
        }
    }

    /// The hash of `clockwise/v1`; none for a foreign recipe.
    #[must_use]
    pub const fn key_hash(&self) -> Option<KeyHash> {
        match &self.0 {
            Inner::V1(hash) => Some(*hash),
            Inner::Foreign(_) => None,
        }
    }

    /// Where a key lies: one hash of its bytes, no allocation.
    #[inline]
    #[must_use]
    pub fn position(&self, key: &[u8]) -> Position {
        match self.position_in_place(key) {
            Some(position) => position,
            None => self.position_by_call(key),
        }
    }

    /// The same for short keys and the default hash: a call would be a tenth of a lookup.
    #[inline(always)]
    pub(crate) fn position_in_place(&self, key: &[u8]) -> Option<Position> {
        match &self.0 {
            Inner::V1(KeyHash::Xxh3 { seed }) if key.len() <= 16 => {
                Some(Position(xxh3_64_with_seed(key, *seed)))
            }
            _ => None,
        }
    }

    #[inline(never)]
    fn position_by_call(&self, key: &[u8]) -> Position {
        match &self.0 {
            Inner::V1(hash) => hash.hash(key),
            Inner::Foreign(recipe) => recipe.key(key),
        }
    }

    /// The index that `hash % N` gives a key among so many nodes.
    ///
    /// # Panics
    /// When there are no nodes.
    #[must_use]
    pub fn modulo(&self, key: &[u8], nodes: usize) -> usize {
        assert!(nodes > 0, "somebody must own the key");
        match &self.0 {
            Inner::V1(hash) => remainder(hash.hash(key), nodes),
            Inner::Foreign(recipe) => recipe.modulo(key, nodes),
        }
    }

    /// Where a point of a node lies.
    #[must_use]
    pub fn point(&self, node: &NodeId, copy: u32) -> Position {
        match &self.0 {
            Inner::V1(hash) => {
                let mut point = Position::MIN;
                for_each_label::<1>(
                    node,
                    core::iter::once(copy),
                    |label| hash.hash(label),
                    |position| point = position,
                );
                point
            }
            Inner::Foreign(recipe) => recipe.point(node, copy),
        }
    }

    /// Where several points of a node lie, in the order of their numbers.
    pub(crate) fn for_each_point(
        &self,
        node: &NodeId,
        copies: impl Iterator<Item = u32>,
        mut act: impl FnMut(Position),
    ) {
        match &self.0 {
            Inner::V1(hash) => hash_points(*hash, node, copies, act),
            Inner::Foreign(recipe) => copies.for_each(|copy| act(recipe.point(node, copy))),
        }
    }
}

/// The points of `clockwise/v1`: the hash of the id's bytes and of four for the number.
fn hash_points(
    hash: KeyHash,
    node: &NodeId,
    copies: impl Iterator<Item = u32>,
    act: impl FnMut(Position),
) {
    match hash {
        KeyHash::Xxh3 { seed } if node.as_str().len() + 4 <= 16 => {
            // Known to be short, a label is hashed without a call.
            let hash = |label: &[u8]| Position(xxh3_64_with_seed(label, seed));
            for_each_label::<16>(node, copies, hash, act);
        }
        hash => for_each_label::<16>(node, copies, |label| hash.hash(label), act),
    }
}

/// A processor waits when it reads what it has only just written in other pieces, so several labels are
/// written before the first of them is hashed.
#[inline(always)]
fn for_each_label<const AT_ONCE: usize>(
    node: &NodeId,
    mut copies: impl Iterator<Item = u32>,
    hash: impl Fn(&[u8]) -> Position,
    mut act: impl FnMut(Position),
) {
    let name = node.as_str().as_bytes();
    let label = name.len()..name.len() + 4;
    let mut labels = [[0; NAME_BYTES_MAX + 4]; AT_ONCE];
    let several = copies.size_hint().0.clamp(1, AT_ONCE);
    for bytes in &mut labels[..several] {
        bytes[..name.len()].copy_from_slice(name);
    }
    loop {
        let mut written = 0;
        for (bytes, copy) in labels.iter_mut().zip(copies.by_ref().take(AT_ONCE)) {
            bytes[label.clone()].copy_from_slice(&copy.to_le_bytes());
            written += 1;
        }
        if written == 0 {
            return;
        }
        for bytes in &labels[..written] {
            act(hash(&bytes[..label.end]));
        }
    }
}

impl Default for Scheme {
    fn default() -> Self {
        Self::v1(KeyHash::default())
    }
}

impl PartialEq for Scheme {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Inner::V1(mine), Inner::V1(theirs)) => mine == theirs,
            (Inner::Foreign(mine), Inner::Foreign(theirs)) => mine.name() == theirs.name(),
            _ => false,
        }
    }
}

impl Eq for Scheme {}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::V1(hash) => f.debug_tuple(V1).field(hash).finish(),
            Inner::Foreign(recipe) => f.debug_tuple(recipe.name()).finish(),
        }
    }
}
