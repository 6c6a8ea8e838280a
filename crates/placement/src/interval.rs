//! The stretch of the circle that one point owns.
//!
//! The rule is the same everywhere: a point owns what lies after its predecessor, through itself.

use core::fmt;

use crate::Position;

/// The size of the circle as a float, for shares.
const CIRCLE: f64 = 18_446_744_073_709_551_616.0;

/// The positions after `after`, through `through`: `(after, through]`.
///
/// An interval is never empty. With `after == through` it is the whole circle, as with a ring of one point.
///
/// ```
/// use clockwise_placement::{Interval, Position};
/// let b = Interval { after: Position(20), through: Position(50) };
/// assert!(!b.contains(Position(20)) && b.contains(Position(21)) && b.contains(Position(50)));
/// assert_eq!(b.len(), 30);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Interval {
    /// The position before the first one of the interval.
    pub after: Position,
    /// The last position of the interval.
    pub through: Position,
}

impl Interval {
    /// The whole circle, ending at `through`.
    #[must_use]
    pub const fn whole(through: Position) -> Self {
        Self {
            after: through,
            through,
        }
    }

    /// Whether the interval holds `position`. Wraps through the end of the circle.
    #[must_use]
    pub const fn contains(&self, position: Position) -> bool {
        let last = self.after.next().steps_to(self.through);
        self.after.next().steps_to(position) <= last
    }

    /// The number of positions: 1 through 2^64.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an interval is never empty")]
    pub const fn len(&self) -> u128 {
        self.after.next().steps_to(self.through) as u128 + 1
    }

    /// The share of the circle, above 0 and at most 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        share_of_circle(self.len())
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {}]", self.after, self.through)
    }
}

/// What part of the circle so many positions are.
pub(crate) fn share_of_circle(positions: u128) -> f64 {
    positions as f64 / CIRCLE
}
