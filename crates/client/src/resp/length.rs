//! The decimal numbers that follow a type byte: lengths and counts.
//!
//! Accepted is only what a Redis server accepts there: an optional minus, no plus, no leading zero,
//! no space, and `\r\n` behind it. Two readings of one length are how requests get smuggled.

/// Digits of the largest length taken; more are an error before the line ends.
const DIGITS_MAX: usize = 10;

/// What a length line holds so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// The line has not arrived whole, and nothing in it is wrong yet.
    More,
    /// The number, and the offset behind its `\r\n`.
    Is(i64, usize),
    /// Not a number as servers write or take it.
    Malformed,
}

/// Reads the number that starts at `at`.
pub(super) fn read(input: &[u8], at: usize) -> Length {
    let mut next = at;
    let negative = input.get(next) == Some(&b'-');
    if negative {
        next += 1;
    }
    let first = next;
    let mut number: i64 = 0;
    while let Some(digit) = input.get(next).filter(|byte| byte.is_ascii_digit()) {
        if next - first == DIGITS_MAX {
            return Length::Malformed;
        }
        number = number * 10 + i64::from(digit - b'0');
        next += 1;
    }
    let digits = next - first;
    let leading_zero = digits > 0 && input[first] == b'0' && (digits > 1 || negative);
    if leading_zero {
        return Length::Malformed;
    }
    match (input.get(next), input.get(next + 1)) {
        (None, _) => Length::More,
        (Some(b'\r'), _) if digits == 0 => Length::Malformed,
        (Some(b'\r'), None) => Length::More,
        (Some(b'\r'), Some(b'\n')) => Length::Is(if negative { -number } else { number }, next + 2),
        _ => Length::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_as_servers_read_it() {
        for (text, expected) in [
            (&b"0\r\n"[..], Length::Is(0, 3)),
            (b"12\r\nrest", Length::Is(12, 4)),
            (b"-1\r\n", Length::Is(-1, 4)),
            (b"2000000000\r\n", Length::Is(2_000_000_000, 12)),
            (b"", Length::More),
            (b"-", Length::More),
            (b"12", Length::More),
            (b"12\r", Length::More),
            (b"\r\n", Length::Malformed),
            (b"-\r\n", Length::Malformed),
            (b"+5\r\n", Length::Malformed),
            (b"007\r\n", Length::Malformed),
            (b"-0\r\n", Length::Malformed),
            (b" 5\r\n", Length::Malformed),
            (b"5 \r\n", Length::Malformed),
            (b"5\n", Length::Malformed),
            (b"5\rx", Length::Malformed),
            (b"12345678901", Length::Malformed),
            (b"5x", Length::Malformed),
        ] {
            assert_eq!(
                read(text, 0),
                expected,
                "{:?}",
                String::from_utf8_lossy(text)
            );
        }
    }
}
