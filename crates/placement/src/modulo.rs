//! `hash % N`: perfectly even, and right where the set of nodes never changes. The baseline that loses.
//!
//! A node is its index in a list. One more node changes the divisor for every key at once.

use alloc::boxed::Box;

use crate::measure::Owners;
use crate::placement::numbered;
use crate::{Member, NodeIx, PlacementError, Scheme};

/// Keys on a numbered list of nodes by remainder. They know no weights, and domains have no say.
///
/// ```
/// use clockwise_placement::{Member, Modulo, Owners, Scheme};
/// let nodes = ["b", "a"].map(|id| Member::new(id.parse().unwrap()));
/// let modulo = Modulo::new(Scheme::default(), nodes)?;
/// let number = Scheme::default().modulo(b"user:42", 2);
/// assert_eq!(modulo.owner_of(b"user:42").get(), number);
/// # Ok::<(), clockwise_placement::PlacementError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Modulo {
    scheme: Scheme,
    members: Box<[Member]>,
}

impl Modulo {
    /// Numbers the members as they are given.
    ///
    /// # Errors
    /// No members, too many, an id twice, a weight of 0, weights that differ.
    pub fn new(
        scheme: Scheme,
        members: impl IntoIterator<Item = Member>,
    ) -> Result<Self, PlacementError> {
        let members = numbered("modulo", members)?;
        Ok(Self { scheme, members })
    }
}

impl Owners for Modulo {
    fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    fn nodes(&self) -> &[Member] {
        &self.members
    }

    fn owner_of(&self, key: &[u8]) -> NodeIx {
        NodeIx::of(self.scheme.modulo(key, self.members.len()))
    }
}

/// The share of keys that change their index when `before` nodes become `after`: exact for even hashes.
///
/// By the Chinese remainder theorem min(N, M) of every lcm(N, M) residues stay.
///
/// ```
/// use clockwise_placement::modulo_moved_share;
/// assert_eq!(modulo_moved_share(4, 5), 0.8);
/// assert_eq!(modulo_moved_share(10, 10), 0.0);
/// ```
#[must_use]
pub fn modulo_moved_share(before: usize, after: usize) -> f64 {
    let (before, after) = (before as u64, after as u64);
    if before == 0 || after == 0 {
        return if before == after { 0.0 } else { 1.0 };
    }
    let least_common = before / gcd(before, after) * after;
    1.0 - before.min(after) as f64 / least_common as f64
}

/// The greatest common divisor.
pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
