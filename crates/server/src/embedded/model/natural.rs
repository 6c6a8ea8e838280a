//! Whole numbers of any size, as far as reading and writing decimals needs them.

use std::cmp::Ordering;

const LIMB_BITS: u32 = u32::BITS;
/// Digits that are dealt with at a time, and ten to that power.
const CHUNK_DIGITS: u32 = 9;
const CHUNK: u32 = 10u32.pow(CHUNK_DIGITS);

/// A number without sign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Natural {
    /// The lowest first. Invariant: the last one is not 0.
    limbs: Vec<u32>,
}

/// `bits · 2^exponent`, and whether a little more was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leading {
    pub(super) bits: u128,
    pub(super) exponent: i64,
    pub(super) inexact: bool,
}

impl From<u64> for Natural {
    fn from(number: u64) -> Self {
        Self::of(vec![low(number), low(number >> LIMB_BITS)])
    }
}

/// The lowest limb.
fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("masked to 32 bits")
}

impl Natural {
    fn of(mut limbs: Vec<u32>) -> Self {
        while limbs.last() == Some(&0) {
            limbs.pop();
        }
        Self { limbs }
    }

    /// How many bits it has; 0 for 0.
    pub(super) fn bits(&self) -> u32 {
        let leading = self.limbs.last().map_or(0, |limb| limb.leading_zeros());
        u32::try_from(self.limbs.len()).unwrap_or(u32::MAX) * LIMB_BITS - leading
    }

    /// Becomes `self · factor + addend`.
    pub(super) fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for limb in &mut self.limbs {
            carry += u64::from(*limb) * u64::from(factor);
            *limb = low(carry);
            carry >>= LIMB_BITS;
        }
        if carry > 0 {
            self.limbs.push(low(carry));
        }
    }

    /// The number with so many zeros behind it, in decimal.
    pub(super) fn with_zeros(mut self, count: u32) -> Self {
        for _ in 0..count / CHUNK_DIGITS {
            self.multiply_add(CHUNK, 0);
        }
        self.multiply_add(10u32.pow(count % CHUNK_DIGITS), 0);
        self
    }

    /// The number times two to a power.
    pub(super) fn shifted(mut self, by: u32) -> Self {
        self.multiply_add(1 << (by % LIMB_BITS), 0);
        let zeros = vec![0; usize::try_from(by / LIMB_BITS).unwrap_or(usize::MAX)];
        Self::of([zeros, self.limbs].concat())
    }

    /// The quotient's highest 69 bits or so. Neither number is 0.
    pub(super) fn divided(&self, divisor: &Self) -> Leading {
        const STEPS: i64 = 70;
        let (own, other) = (self.bits(), divisor.bits());
        // As long as each other: the quotient lies between a half and two.
        let mut rest = self.clone().shifted(other.saturating_sub(own));
        let divisor = divisor.clone().shifted(own.saturating_sub(other));
        let mut bits = 0;
        for _ in 0..STEPS {
            bits <<= 1;
            if rest.compare(&divisor) != Ordering::Less {
                rest.subtract(&divisor);
                bits |= 1;
            }
            rest = rest.shifted(1);
        }
        Leading {
            bits,
            exponent: i64::from(own) - i64::from(other) - (STEPS - 1),
            inexact: !rest.limbs.is_empty(),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let by_length = self.limbs.len().cmp(&other.limbs.len());
        by_length.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }

    /// Takes a number off that is not greater.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        let others = other.limbs.iter().chain(std::iter::repeat(&0));
        for (limb, other) in self.limbs.iter_mut().zip(others) {
            let (once, first) = limb.overflowing_sub(*other);
            let (twice, second) = once.overflowing_sub(u32::from(borrow));
            (*limb, borrow) = (twice, first || second);
        }
        debug_assert!(!borrow);
        *self = Self::of(std::mem::take(&mut self.limbs));
    }

    /// In decimal.
    pub(super) fn to_text(&self) -> String {
        let mut limbs = self.limbs.clone();
        let mut chunks = Vec::new();
        while !limbs.is_empty() {
            let mut rest = 0;
            for limb in limbs.iter_mut().rev() {
                let whole = rest << LIMB_BITS | u64::from(*limb);
                *limb = low(whole / u64::from(CHUNK));
                rest = whole % u64::from(CHUNK);
            }
            chunks.push(rest);
            limbs = Self::of(limbs).limbs;
        }
        let first = chunks.pop().unwrap_or(0).to_string();
        let others = chunks.iter().rev().map(|chunk| format!("{chunk:09}"));
        std::iter::once(first).chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn natural(text: &str) -> Natural {
        let mut number = Natural::default();
        for digit in text.bytes() {
            number.multiply_add(10, u32::from(digit - b'0'));
        }
        number
    }

    #[test]
    fn numbers_are_read_scaled_and_written() {
        for text in [
            "0",
            "7",
            "4294967296",
            "340282366920938463463374607431768211456",
        ] {
            assert_eq!(natural(text).to_text(), text);
        }
        assert_eq!(
            natural("12").with_zeros(25).to_text(),
            format!("12{:025}", 0)
        );
        assert_eq!(
            Natural::from(3).shifted(100),
            natural("3802951800684688204490109616128")
        );
        assert_eq!(
            (
                natural("0").bits(),
                natural("255").bits(),
                natural("4294967296").bits()
            ),
            (0, 8, 33)
        );
    }

    #[test]
    fn a_quotient_has_its_highest_bits_and_says_whether_there_are_more() {
        let exact = natural("170141183460469231731687303715884105728").divided(&natural("2"));
        assert_eq!(
            (exact.bits, exact.exponent, exact.inexact),
            (1 << 69, 126 - 69, false)
        );
        let third = natural("1").divided(&natural("3"));
        assert!(third.inexact);
        // A third in binary is 0.010101…
        assert_eq!(third.bits, 0x15_5555_5555_5555_5555);
        assert_eq!(third.exponent, -70);
    }
}
