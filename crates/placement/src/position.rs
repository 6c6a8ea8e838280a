//! A place on the circle of 2^64 positions, on which keys and points meet.

use core::fmt;
use core::str::FromStr;

/// A place on the circle. After [`Position::MAX`] comes [`Position::MIN`].
///
/// Written as 16 lower-case hexadecimal digits, and read back from at most as many.
///
/// ```
/// use clockwise_placement::Position;
/// assert_eq!(Position(20).to_string(), "0000000000000014");
/// assert_eq!("0000000000000014".parse(), Ok(Position(20)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    /// The first position.
    pub const MIN: Self = Self(0);
    /// The last position, whose successor is the first.
    pub const MAX: Self = Self(u64::MAX);

    /// The position after this one, clockwise.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// How many steps clockwise lead from this position to `other`.
    #[must_use]
    pub const fn steps_to(self, other: Self) -> u64 {
        other.0.wrapping_sub(self.0)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Position({:#x})", self.0)
    }
}

impl FromStr for Position {
    type Err = HexError;

    fn from_str(text: &str) -> Result<Self, HexError> {
        parse_hex(text).map(Self)
    }
}

/// The text is not 1 to 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HexError;

impl fmt::Display for HexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected 1 to 16 hexadecimal digits")
    }
}

impl core::error::Error for HexError {}

/// The standard parser would take a leading `+`, and any number of zeros.
pub(crate) fn parse_hex(text: &str) -> Result<u64, HexError> {
    let digits =
        (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !digits {
        return Err(HexError);
    }
    u64::from_str_radix(text, 16).map_err(|_| HexError)
}
