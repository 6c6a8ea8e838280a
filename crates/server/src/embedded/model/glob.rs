//! Patterns of `KEYS` and `SCAN … MATCH`: `*`, `?`, `[a-z]`, `[^x]`, `\` before a character.
//!
//! Odd patterns mean what they mean to Redis: a class without its end reaches to the end of the
//! pattern, a range may be written backwards, a star alone does not match the empty key. Time is
//! bounded by the product of the lengths of pattern and text, however many stars there are.

/// Whether the whole of `text` matches.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    compare(pattern, text) == Outcome::Match
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Match,
    Differs,
    /// A star has tried the whole rest of the text: one before it need not try a shorter rest.
    Exhausted,
}

fn compare(mut pattern: &[u8], mut text: &[u8]) -> Outcome {
    while let (Some(&first), Some(&byte)) = (pattern.first(), text.first()) {
        let (holds, rest) = match first {
            b'*' => return star(pattern, text),
            b'?' => (true, &pattern[1..]),
            b'[' => class(&pattern[1..], byte),
            b'\\' if pattern.len() >= 2 => (pattern[1] == byte, &pattern[2..]),
            _ => (first == byte, &pattern[1..]),
        };
        if !holds {
            return Outcome::Differs;
        }
        (pattern, text) = (rest, &text[1..]);
        if text.is_empty() {
            while let [b'*', rest @ ..] = pattern {
                pattern = rest;
            }
        }
    }
    if pattern.is_empty() && text.is_empty() {
        Outcome::Match
    } else {
        Outcome::Differs
    }
}

/// A pattern that begins with a star, against a text that is not empty.
fn star(mut pattern: &[u8], text: &[u8]) -> Outcome {
    while let [b'*', b'*', ..] = pattern {
        pattern = &pattern[1..];
    }
    if pattern.len() == 1 {
        return Outcome::Match;
    }
    for from in 0..text.len() {
        match compare(&pattern[1..], &text[from..]) {
            Outcome::Differs => {}
            settled => return settled,
        }
    }
    Outcome::Exhausted
}

/// Whether a class holds a byte, and what follows the class.
fn class(mut rest: &[u8], byte: u8) -> (bool, &[u8]) {
    let negated = rest.first() == Some(&b'^');
    if negated {
        rest = &rest[1..];
    }
    let mut holds = false;
    loop {
        match rest {
            [b'\\', escaped, behind @ ..] => {
                holds |= *escaped == byte;
                rest = behind;
            }
            [b']', behind @ ..] => return (holds != negated, behind),
            [] => return (holds != negated, rest),
            [from, b'-', to, behind @ ..] => {
                holds |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest = behind;
            }
            [one, behind @ ..] => {
                holds |= *one == byte;
                rest = behind;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_stars_over_a_long_key_take_no_long_time() {
        let (pattern, text) = (b"a*".repeat(200), vec![b'a'; 5000]);
        assert!(!matches(&[pattern.as_slice(), b"b"].concat(), &text));
    }

    #[test]
    fn patterns_match_as_they_do_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", false),
            ("", "", true),
            ("", "a", false),
            ("*", "anything", true),
            ("a*", "a", true),
            ("a*b", "ab", true),
            ("a*b", "axxb", true),
            ("a*b", "axxc", false),
            ("**a**", "xay", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("[]a]", "a", false),
            ("[a", "a", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\", "a\\", true),
            ("[\\]]", "]", true),
            ("user:*:name", "user:1:2:name", true),
            ("a[b]*", "ab", true),
            ("a*[b]*c", "aabbcc", true),
            ("a*x*", "ab", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern:?} {text:?}"
            );
        }
    }
}
