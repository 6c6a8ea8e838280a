//! Extended precision: the 80-bit `long double` in which Redis keeps `INCRBYFLOAT`.
//!
//! Rust has no such type, so this is integer arithmetic: a value is `significand · 2^exponent` with 64
//! bits of significand, reading and adding are exact and then rounded once, half to even, as the
//! processor does. Reading takes what C's `strtold` takes, writing is `%.17Lf` without the zeros at its end.
//!
//! Cost: reading is quadratic in the length of the text, which [`TEXT_BYTES_MAX`] bounds.

use super::natural::{Leading, Natural};

/// The longest number that Redis reads, and one more.
const TEXT_BYTES_MAX: usize = 5 << 10;
/// The exponents of the least and the greatest numbers, with a significand of 64 bits.
const EXPONENT_MIN: i64 = -16_445;
const EXPONENT_MAX: i64 = 16_320;
/// Decimal exponents beyond which, either way, no number is left. Bounds what is computed.
const DECIMAL_MAX: i64 = 6_000;
/// Digits after the point that are written.
const FRACTION_DIGITS: usize = 17;
const FRACTION_UNIT: u128 = 10u128.pow(17);

/// A finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extended {
    negative: bool,
    /// Invariant: its highest bit is set, or the exponent is the least.
    significand: u64,
    exponent: i64,
}

/// What a text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Finite(Extended),
    Infinite,
}

impl Extended {
    pub(super) const ZERO: Self = Self {
        negative: false,
        significand: 0,
        exponent: EXPONENT_MIN,
    };

    /// The sum; `None` beyond the greatest number.
    pub(super) fn plus(self, other: Self) -> Option<Self> {
        let by_size = |number: &Self| (number.exponent, number.significand);
        let (large, small) = if by_size(&self) >= by_size(&other) {
            (self, other)
        } else {
            (other, self)
        };
        // 63 bits of room below: more than one is lost to a difference only if none was shifted out.
        let apart = u32::try_from(large.exponent - small.exponent).unwrap_or(u32::MAX);
        let (high, low) = (
            u128::from(large.significand) << 63,
            u128::from(small.significand) << 63,
        );
        let shifted = low.checked_shr(apart).unwrap_or(0);
        let inexact = shifted.checked_shl(apart) != Some(low) && low != 0;
        let sum = if large.negative == small.negative {
            high + shifted
        } else {
            // What was shifted out is less than one.
            high - shifted - u128::from(inexact)
        };
        if sum == 0 {
            return Some(Self::ZERO);
        }
        Self::round(large.negative, sum, large.exponent - 63, inexact)
    }

    /// The nearest number to `bits · 2^exponent`, a little more of which was lost if it is `inexact`.
    /// Bits must be many enough then: 66. `None` beyond the greatest number.
    fn round(negative: bool, bits: u128, exponent: i64, inexact: bool) -> Option<Self> {
        let excess = i64::from(u128::BITS - bits.leading_zeros()) - 64;
        let shift = excess.max(EXPONENT_MIN - exponent);
        let mut exponent = exponent + shift;
        let significand = match u64::try_from(shift) {
            Ok(shift) => rounded(bits, shift, inexact),
            Err(_) => bits << -shift,
        };
        let significand = u64::try_from(significand).unwrap_or_else(|_| {
            // Rounded up to the next power of two.
            exponent += 1;
            1 << 63
        });
        (exponent <= EXPONENT_MAX).then_some(Self {
            negative,
            significand,
            exponent,
        })
    }

    /// In decimal, as people write it.
    pub(super) fn to_text(self) -> String {
        let (whole, fraction) = match u32::try_from(self.exponent) {
            Ok(exponent) => (
                Natural::from(self.significand).shifted(exponent).to_text(),
                0,
            ),
            Err(_) => {
                let units = u128::from(self.significand) * FRACTION_UNIT;
                let units = rounded(units, self.exponent.unsigned_abs(), false);
                ((units / FRACTION_UNIT).to_string(), units % FRACTION_UNIT)
            }
        };
        let fraction = format!("{fraction:0FRACTION_DIGITS$}");
        let text = format!("{whole}.{fraction}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let minus = if self.negative && text != "0" {
            "-"
        } else {
            ""
        };
        format!("{minus}{text}")
    }
}

/// Without its lowest bits, rounded half to even.
fn rounded(bits: u128, shift: u64, inexact: bool) -> u128 {
    let shift = u32::try_from(shift).unwrap_or(u32::MAX);
    let kept = bits.checked_shr(shift).unwrap_or(0);
    let lost = bits ^ kept.checked_shl(shift).unwrap_or(0);
    // What is shifted further than it is long is less than half.
    let half = match shift {
        0 => return kept,
        _ => 1u128.checked_shl(shift - 1).unwrap_or(u128::MAX),
    };
    kept + u128::from(lost > half || lost == half && (inexact || kept & 1 == 1))
}

/// Reads the whole text as a number; `None` where it is none, or too large or too small for one.
pub(super) fn read(text: &[u8]) -> Option<Number> {
    if text.len() >= TEXT_BYTES_MAX {
        return None;
    }
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let text = text.to_ascii_lowercase();
    if matches!(text.as_slice(), b"inf" | b"infinity") {
        return Some(Number::Infinite);
    }
    let literal = match text.strip_prefix(b"0x") {
        Some(digits) => Literal::read(digits, 16, b'p'),
        None => Literal::read(&text, 10, b'e'),
    }?;
    literal.value(negative).map(Number::Finite)
}

/// `digits · 10^decimal · 2^binary`.
struct Literal {
    digits: Natural,
    decimal: i64,
    binary: i64,
}

impl Literal {
    /// Digits, perhaps with a point among them, and perhaps a mark with an exponent behind.
    fn read(text: &[u8], base: u32, mark: u8) -> Option<Self> {
        let (mantissa, scale) = match text.iter().position(|byte| *byte == mark) {
            Some(at) => (&text[..at], exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let whole = mantissa.split(|byte| *byte == b'.').next()?.len();
        let places = mantissa.len().saturating_sub(whole + 1);
        let fraction = &mantissa[mantissa.len() - places..];
        if whole + places == 0 {
            return None;
        }
        let mut digits = Natural::default();
        for byte in mantissa[..whole].iter().chain(fraction) {
            let digit = char::from(*byte).to_digit(base)?;
            digits.multiply_add(base, digit);
        }
        let places = i64::try_from(places).ok()?;
        let (decimal, binary) = match base {
            10 => (scale - places, 0),
            _ => (0, scale - 4 * places),
        };
        Some(Self {
            digits,
            decimal,
            binary,
        })
    }

    fn value(self, negative: bool) -> Option<Extended> {
        let bits = i64::from(self.digits.bits());
        if bits == 0 {
            return Some(Extended {
                negative,
                ..Extended::ZERO
            });
        }
        // Three bits make less than a digit, four make more.
        if bits / 4 + self.decimal > DECIMAL_MAX || bits / 3 + self.decimal < -DECIMAL_MAX {
            return None;
        }
        let zeros = u32::try_from(self.decimal.unsigned_abs()).ok()?;
        let one = Natural::from(1);
        let Leading {
            bits,
            exponent,
            inexact,
        } = if self.decimal >= 0 {
            self.digits.with_zeros(zeros).divided(&one)
        } else {
            self.digits.divided(&one.with_zeros(zeros))
        };
        let exponent = exponent.saturating_add(self.binary);
        let number = Extended::round(negative, bits, exponent, inexact)?;
        (number.significand != 0).then_some(number)
    }
}

/// A whole number with or without sign; one that is too large to be told from others stops growing.
fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = digits.iter().fold(0i64, |size, digit| {
        (size * 10 + i64::from(digit - b'0')).min(i64::from(i32::MAX))
    });
    Some(if negative { -size } else { size })
}
