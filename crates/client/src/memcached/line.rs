//! Lines, the words in them, and the numbers that servers take without doubt.

use crate::resp::ArgSpan;

/// A line at the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Bytes of its content, without what ends it.
    pub(super) content: usize,
    /// Bytes with what ends it.
    pub(super) whole: usize,
}

/// The line at the front of `input`, of which `searched` bytes are known to hold no end.
pub(super) fn line(input: &[u8], searched: usize) -> Option<Line> {
    let end = searched + memchr::memchr(b'\n', &input[searched..])?;
    let content = if end > 0 && input[end - 1] == b'\r' {
        end - 1
    } else {
        end
    };
    Some(Line {
        content,
        whole: end + 1,
    })
}

/// Puts the places of the words of `content` into `words`, no more than `max` of them. Says whether
/// there was exactly one blank between any two and none around them, or that there were too many.
pub(super) fn split(content: &[u8], words: &mut Vec<ArgSpan>, max: usize) -> Option<bool> {
    words.clear();
    let mut tidy = true;
    let mut start = 0;
    loop {
        let end = memchr::memchr(b' ', &content[start..]).map_or(content.len(), |at| start + at);
        if end > start {
            if words.len() == max {
                return None;
            }
            words.push(ArgSpan::new(start, end - start));
        } else {
            tidy = false;
        }
        if end == content.len() {
            return Some(tidy);
        }
        start = end + 1;
    }
}

/// Whether a line holds nothing that could end it, or a word, in somebody's eyes.
pub(super) fn is_clean(content: &[u8]) -> bool {
    content.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f)
}

/// A number without sign, of at most 20 digits.
pub(super) fn unsigned(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 20 {
        return None;
    }
    let mut number: u64 = 0;
    for byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

/// The same of at most 32 bits.
pub(super) fn unsigned_32(word: &[u8]) -> Option<u32> {
    unsigned(word).and_then(|number| u32::try_from(number).ok())
}

/// A number of 32 bits, with a minus if it is negative.
pub(super) fn signed_32(word: &[u8]) -> Option<i32> {
    match word.strip_prefix(b"-") {
        None => unsigned(word).and_then(|number| i32::try_from(number).ok()),
        Some(digits) => {
            let number = i64::try_from(unsigned(digits)?).ok()?;
            i32::try_from(-number).ok()
        }
    }
}

/// A length of a value, as servers take them: below 2 GiB with the line end behind it.
pub(super) fn length(word: &[u8]) -> Option<usize> {
    let number = unsigned(word)?;
    (number <= i32::MAX as u64 - 2).then_some(number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(content: &[u8]) -> (Vec<&[u8]>, Option<bool>) {
        let mut words = Vec::new();
        let tidy = split(content, &mut words, 4);
        let words = words.iter().map(|word| &content[word.range()]).collect();
        (words, tidy)
    }

    #[test]
    fn words_are_told_apart_by_blanks_however_many() {
        assert_eq!(
            words(b"get a b"),
            (vec![&b"get"[..], b"a", b"b"], Some(true))
        );
        assert_eq!(words(b" get  a "), (vec![&b"get"[..], b"a"], Some(false)));
        assert_eq!(words(b""), (vec![], Some(false)));
        assert_eq!(
            words(b"1 2 3 4"),
            (vec![&b"1"[..], b"2", b"3", b"4"], Some(true))
        );
        assert_eq!(words(b"1 2 3 4 5").1, None);
    }

    #[test]
    fn a_line_ends_with_or_without_a_carriage_return() {
        let check = |input: &[u8], expected| {
            assert_eq!(
                line(input, 0).map(|line| (line.content, line.whole)),
                expected
            );
        };
        check(b"mn\r\nrest", Some((2, 4)));
        check(b"mn\nrest", Some((2, 3)));
        check(b"\n", Some((0, 1)));
        check(b"\r\n", Some((0, 2)));
        check(b"mn\r", None);
    }

    #[test]
    fn numbers_have_no_signs_but_a_minus_and_no_overflow() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            &b""[..],
            b"18446744073709551616",
            b"+1",
            b"-1",
            b"1a",
            b"0x1",
            b" 1",
        ] {
            assert_eq!(unsigned(bad), None, "{bad:?}");
        }
        assert_eq!(signed_32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(signed_32(b"2147483648"), None);
        assert_eq!(signed_32(b"--1"), None);
        assert_eq!(length(b"2147483645"), Some(2_147_483_645));
        assert_eq!(length(b"2147483646"), None);
    }
}
