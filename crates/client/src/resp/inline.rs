//! Inline commands: a line of words, as a person types them into a plain connection.
//!
//! The words are split as Redis servers split them, quotes and escapes included, and written anew
//! as a request array. What goes on to a node is therefore always the one canonical form.

use super::request::ArgSpan;
use super::write::{write_array, write_bulk};

/// A quote that never closes, or with something directly behind it, or a byte no line may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unbalanced;

/// Splits `line` (without its end) and writes the words into `frame` as an array, with their places
/// in `args`. Both are cleared first; a line without words leaves them empty.
pub(super) fn split(
    line: &[u8],
    frame: &mut Vec<u8>,
    args: &mut Vec<ArgSpan>,
) -> Result<(), Unbalanced> {
    frame.clear();
    args.clear();
    // A server's C string ends at a zero byte; what follows would be read by one side only.
    if memchr::memchr(0, line).is_some() {
        return Err(Unbalanced);
    }
    let mut words = Vec::with_capacity(line.len());
    let mut at = skip_space(line, 0);
    while at < line.len() {
        let start = words.len();
        at = take_word(line, at, &mut words)?;
        args.push(ArgSpan::new(start, words.len() - start));
        at = skip_space(line, at);
    }
    if args.is_empty() {
        return Ok(());
    }
    write_array(frame, args.len());
    for arg in args {
        write_bulk(frame, &words[arg.range()]);
        let line_end = 2;
        *arg = ArgSpan::new(frame.len() - line_end - arg.len(), arg.len());
    }
    Ok(())
}

/// The C library's notion of space, which has one byte (vertical tab) more than Rust's.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

fn skip_space(line: &[u8], from: usize) -> usize {
    line[from..]
        .iter()
        .position(|byte| !is_space(*byte))
        .map_or(line.len(), |space| from + space)
}

/// Copies the word that starts at `at`; gives the offset behind it. A quote may open inside a word;
/// when it closes the word must end.
fn take_word(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Result<usize, Unbalanced> {
    while let Some(&byte) = line.get(at) {
        let behind = match byte {
            b'"' => double_quoted(line, at + 1, word),
            b'\'' => single_quoted(line, at + 1, word),
            _ if is_space(byte) => return Ok(at),
            _ => {
                word.push(byte);
                at += 1;
                continue;
            }
        };
        let behind = behind.ok_or(Unbalanced)?;
        return match line.get(behind) {
            Some(next) if !is_space(*next) => Err(Unbalanced),
            _ => Ok(behind),
        };
    }
    Ok(at)
}

/// Copies up to the closing `"`, resolving escapes; gives the offset behind it.
fn double_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match line.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => {
                let escaped = *line.get(at + 1)?;
                if let (b'x', Some(byte)) = (escaped, hex_pair(line, at + 2)) {
                    word.push(byte);
                    at += 4;
                    continue;
                }
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => other,
                });
                at += 2;
            }
            byte => {
                word.push(*byte);
                at += 1;
            }
        }
    }
}

/// Copies up to the closing `'`; only `\'` is an escape.
fn single_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match (line.get(at)?, line.get(at + 1)) {
            (b'\'', _) => return Some(at + 1),
            (b'\\', Some(b'\'')) => {
                word.push(b'\'');
                at += 2;
            }
            (byte, _) => {
                word.push(*byte);
                at += 1;
            }
        }
    }
}

fn hex_pair(line: &[u8], at: usize) -> Option<u8> {
    let high = char::from(*line.get(at)?).to_digit(16)?;
    let low = char::from(*line.get(at + 1)?).to_digit(16)?;
    u8::try_from(high * 16 + low).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, Unbalanced> {
        let (mut frame, mut args) = (Vec::new(), Vec::new());
        split(line, &mut frame, &mut args)?;
        Ok(args
            .iter()
            .map(|span| frame[span.range()].to_vec())
            .collect())
    }

    #[test]
    fn words_quotes_and_escapes_split_as_servers_split_them() {
        for (line, expected) in [
            (&b""[..], &[][..]),
            (b" \t\x0b\x0c\r ", &[]),
            (b"get  key", &[&b"get"[..], b"key"]),
            (b"\tget\x0bkey ", &[b"get", b"key"]),
            (br#"set k "a b""#, &[b"set", b"k", b"a b"]),
            (
                br#"set k "\x41\x4z\n\r\t\b\a\q\"\\""#,
                &[b"set", b"k", b"Ax4z\n\r\t\x08\x07q\"\\"],
            ),
            (br"set k 'a \n \'b\''", &[b"set", b"k", br"a \n 'b'"]),
            (br#"echo ab"c d""#, &[b"echo", b"abc d"]),
            (br#"echo "" ''"#, &[b"echo", b"", b""]),
            (br#"echo "\x00""#, &[b"echo", b"\0"]),
        ] {
            let expected: Vec<Vec<u8>> = expected.iter().map(|word| word.to_vec()).collect();
            assert_eq!(
                words(line),
                Ok(expected),
                "{:?}",
                String::from_utf8_lossy(line)
            );
        }
    }

    #[test]
    fn an_open_quote_or_text_behind_a_closed_one_is_refused() {
        for line in [
            &br#"echo "abc"#[..],
            br"echo 'abc",
            br#"echo "abc"d"#,
            br"echo 'a'b",
            br#"echo "a\"#,
            b"echo a\0b",
        ] {
            assert_eq!(
                words(line),
                Err(Unbalanced),
                "{:?}",
                String::from_utf8_lossy(line)
            );
        }
    }

    #[test]
    fn the_words_are_written_as_one_request_array() {
        let (mut frame, mut args) = (Vec::new(), Vec::new());
        split(br#" set "a b" 1"#, &mut frame, &mut args).expect("balanced");
        assert_eq!(frame, b"*3\r\n$3\r\nset\r\n$3\r\na b\r\n$1\r\n1\r\n");
    }
}
