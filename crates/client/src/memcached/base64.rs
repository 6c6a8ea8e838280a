//! Keys in base64 (the meta flag `b`).
//!
//! Servers pass over what is not of the alphabet. Here a key is taken only in the one form that all read
//! alike, since the decoded bytes say which node it belongs to.

/// Appends the decoded `word` to `out`, or nothing if it is not plainly base64 of at least a byte.
pub(super) fn decode(word: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if word.is_empty() || !word.len().is_multiple_of(4) {
        return None;
    }
    let padding = word.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let start = out.len();
    let digits = &word[..word.len() - padding];
    for group in digits.chunks(4) {
        let mut bits: u32 = 0;
        for at in 0..4 {
            let value = match group.get(at) {
                Some(byte) => digit(*byte),
                None => Some(0),
            };
            let Some(value) = value else {
                out.truncate(start);
                return None;
            };
            bits = bits << 6 | value;
        }
        let [_, first, second, third] = bits.to_be_bytes();
        out.extend_from_slice(&[first, second, third][..group.len() - 1]);
    }
    Some(())
}

fn digit(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648_are_decoded_and_nothing_doubtful_is() {
        let check = |word: &[u8], expected: Option<&[u8]>| {
            let mut out = b"before".to_vec();
            let decoded = decode(word, &mut out).map(|()| &out[6..]);
            assert_eq!(decoded, expected, "{}", word.escape_ascii());
        };
        check(b"Zg==", Some(b"f"));
        check(b"Zm8=", Some(b"fo"));
        check(b"Zm9v", Some(b"foo"));
        check(b"Zm9vYmFy", Some(b"foobar"));
        check(b"AP8K", Some(&[0, 255, 10]));
        let doubtful: [&[u8]; 8] = [
            b"",
            b"Zg",
            b"Zg=",
            b"Zg===",
            b"====",
            b"Zm9v!Zm8",
            b"Zg==Zg==",
            b"Z===",
        ];
        for word in doubtful {
            check(word, None);
        }
    }
}
