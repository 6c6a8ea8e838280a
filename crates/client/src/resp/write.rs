//! Small writers that append RESP to a buffer. Each costs one copy of what it is given.

/// Which version of RESP a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Protocol {
    /// What every connection starts with.
    #[default]
    Resp2,
    /// After `HELLO 3`: maps, sets, doubles, nulls and pushes of their own.
    Resp3,
}

/// Appends the header of an array of `count` elements, which the caller writes next.
pub fn write_array(out: &mut Vec<u8>, count: usize) {
    header(out, b'*', count);
}

/// Appends the header of a map of `pairs`: a map in RESP3, an array of keys and values in RESP2.
pub fn write_map(out: &mut Vec<u8>, protocol: Protocol, pairs: usize) {
    match protocol {
        Protocol::Resp2 => header(out, b'*', pairs * 2),
        Protocol::Resp3 => header(out, b'%', pairs),
    }
}

/// Appends a string of any bytes.
pub fn write_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends "no such thing" in the protocol's own form.
pub fn write_null(out: &mut Vec<u8>, protocol: Protocol) {
    out.extend_from_slice(match protocol {
        Protocol::Resp2 => b"$-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}

/// Appends an integer.
pub fn write_integer(out: &mut Vec<u8>, number: i64) {
    out.push(b':');
    if number < 0 {
        out.push(b'-');
    }
    decimal(out, number.unsigned_abs());
    out.extend_from_slice(b"\r\n");
}

/// Appends a status line such as `+OK`. The text is ours and holds no line break.
pub fn write_simple(out: &mut Vec<u8>, text: &str) {
    debug_assert!(!text.contains(['\r', '\n']));
    out.push(b'+');
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends an error line. Line breaks in the text, which may quote a client, become spaces.
pub fn write_error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    out.extend(text.bytes().map(|byte| {
        if matches!(byte, b'\r' | b'\n') {
            b' '
        } else {
            byte
        }
    }));
    out.extend_from_slice(b"\r\n");
}

/// Appends a request: an array of strings.
pub fn write_command<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    write_array(out, args.len());
    for arg in args {
        write_bulk(out, arg.as_ref());
    }
}

fn header(out: &mut Vec<u8>, kind: u8, count: usize) {
    out.push(kind);
    decimal(out, count as u64);
    out.extend_from_slice(b"\r\n");
}

fn decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("tests write text")
    }

    #[test]
    fn each_writer_appends_its_form() {
        assert_eq!(
            written(|out| write_command(out, &["GET", "k"])),
            "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
        );
        assert_eq!(written(|out| write_map(out, Protocol::Resp2, 3)), "*6\r\n");
        assert_eq!(written(|out| write_map(out, Protocol::Resp3, 3)), "%3\r\n");
        assert_eq!(written(|out| write_null(out, Protocol::Resp2)), "$-1\r\n");
        assert_eq!(written(|out| write_null(out, Protocol::Resp3)), "_\r\n");
        assert_eq!(
            written(|out| write_integer(out, i64::MIN)),
            ":-9223372036854775808\r\n"
        );
        assert_eq!(written(|out| write_integer(out, 0)), ":0\r\n");
        assert_eq!(written(|out| write_simple(out, "OK")), "+OK\r\n");
        assert_eq!(written(|out| write_bulk(out, b"")), "$0\r\n\r\n");
    }

    #[test]
    fn an_error_that_quotes_a_client_stays_one_line() {
        assert_eq!(
            written(|out| write_error(out, "ERR unknown 'a\r\n+OK\r\n'")),
            "-ERR unknown 'a  +OK  '\r\n"
        );
    }
}
