//! `hash % N`: perfectly even, and right where the set of nodes never changes. The baseline that loses.
//!
//! A node is its index in a list. One more node changes the divisor for every key at once.

use crate::Position;

/// The index of the node that owns a position among so many.
#[must_use]
pub fn modulo_owner(position: Position, nodes: usize) -> usize {
    assert!(nodes > 0, "somebody must own the position");
    // A 64-bit remainder is below `nodes`, so it fits where that does.
    (position.0 % nodes as u64) as usize
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
