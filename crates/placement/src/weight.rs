//! How much of the load a node takes beside the others.

use core::fmt;
use core::str::FromStr;

/// A decimal with at most two places, kept in hundredths, so that every process counts alike.
///
/// ```
/// use clockwise_placement::Weight;
/// let weight: Weight = "1.5".parse()?;
/// assert_eq!((weight.hundredths(), weight.to_string().as_str()), (150, "1.5"));
/// assert!("NaN".parse::<Weight>().is_err() && "1.005".parse::<Weight>().is_err());
/// # Ok::<(), clockwise_placement::WeightError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u32);

impl Weight {
    /// The weight of a node of which nothing else is said: 1.
    pub const ONE: Self = Self(100);

    /// A weight of so many hundredths.
    #[must_use]
    pub const fn from_hundredths(hundredths: u32) -> Self {
        Self(hundredths)
    }

    /// The weight in hundredths.
    #[must_use]
    pub const fn hundredths(self) -> u32 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 100, self.0 % 100);
        match part {
            0 => write!(f, "{whole}"),
            part if part % 10 == 0 => write!(f, "{whole}.{}", part / 10),
            part => write!(f, "{whole}.{part:02}"),
        }
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weight({self})")
    }
}

impl FromStr for Weight {
    type Err = WeightError;

    fn from_str(text: &str) -> Result<Self, WeightError> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) {
            return Err(WeightError::NotDecimal);
        }
        if part.len() > 2 {
            return Err(WeightError::TooFine);
        }
        let part: u32 = part.parse().map_err(|_| WeightError::NotDecimal)?;
        let part = if text.len() - whole.len() == 2 {
            part * 10
        } else {
            part
        };
        let whole: u32 = whole.parse().map_err(|_| WeightError::TooLarge)?;
        whole
            .checked_mul(100)
            .and_then(|hundredths| hundredths.checked_add(part))
            .map(Self)
            .ok_or(WeightError::TooLarge)
    }
}

/// Why a text is no weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WeightError {
    /// Not of the form `12` or `12.34`: no sign, no exponent, neither `NaN` nor infinity.
    NotDecimal,
    /// More than two places.
    TooFine,
    /// Above 42,949,672.95.
    TooLarge,
}

impl fmt::Display for WeightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotDecimal => "weight is not a plain decimal such as 1 or 0.75",
            Self::TooFine => "weight has more than two decimal places",
            Self::TooLarge => "weight is above 42949672.95",
        })
    }
}

impl core::error::Error for WeightError {}
