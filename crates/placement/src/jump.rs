//! Jump consistent hash: a number for a key, without any memory.
//!
//! Lamping and Veach, 2014. Perfectly even, and moves exactly what a new last bucket takes. But a bucket is
//! a number: only the last one can go, none has a weight, and there are no replicas. It is for shards that
//! are numbered and only grow.

use alloc::boxed::Box;

use crate::measure::Owners;
use crate::placement::numbered;
use crate::{Member, NodeIx, PlacementError, Scheme};

/// The bucket of a key among so many, bit for bit as the authors' code has it.
///
/// # Panics
/// When there are no buckets.
///
/// ```
/// use clockwise_placement::jump_hash;
/// let grown = (0..1000).filter(|&key| jump_hash(key, 11) != jump_hash(key, 10));
/// assert!(grown.clone().all(|key| jump_hash(key, 11) == 10));
/// ```
#[must_use]
pub fn jump_hash(mut key: u64, buckets: u32) -> u32 {
    assert!(buckets > 0, "somebody must own the key");
    let (mut bucket, mut jump) = (0, 0_i64);
    while jump < i64::from(buckets) {
        bucket = jump;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let draw = ((key >> 33) + 1) as f64;
        // Multiplication and division of doubles are exact to the last bit everywhere.
        jump = ((bucket + 1) as f64 * (f64::from(1_u32 << 31) / draw)) as i64;
    }
    u32::try_from(bucket).expect("a bucket is below their number")
}

/// Keys on a numbered list of nodes by jump consistent hash. They know no weights, and domains have no say.
#[derive(Clone, Debug)]
pub struct Jump {
    scheme: Scheme,
    members: Box<[Member]>,
}

impl Jump {
    /// Numbers the members as they are given.
    ///
    /// # Errors
    /// No members, too many, an id twice, a weight of 0, weights that differ.
    pub fn new(
        scheme: Scheme,
        members: impl IntoIterator<Item = Member>,
    ) -> Result<Self, PlacementError> {
        let members = numbered("jump", members)?;
        Ok(Self { scheme, members })
    }
}

impl Owners for Jump {
    fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    fn nodes(&self) -> &[Member] {
        &self.members
    }

    fn owner_of(&self, key: &[u8]) -> NodeIx {
        let buckets = u32::try_from(self.members.len()).expect("at most 10,000 members");
        NodeIx::of(jump_hash(self.scheme.position(key).0, buckets) as usize)
    }
}
