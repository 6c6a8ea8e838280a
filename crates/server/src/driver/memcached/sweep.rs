//! Taking away from a server what it should not have.
//!
//! Its crawler lists all keys (`lru_crawler metadump`), and what is not to be kept is deleted in batches over
//! a second connection. A key stands in a line as it is where it can, else in base64; a key that fits in
//! neither way is out of every client's reach, too, and stays. Only the strays are remembered, and no more than some megabytes of them at a time: then they are deleted, and the listing
//! begins anew.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clockwise_client::memcached::KEY_BYTES_MAX;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// To take a connection, and for every line.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Between two tries while the crawler is busy with somebody else's listing.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How often it is asked before somebody else's listing is taken to be endless.
const BUSY_TRIES: u32 = 300;
/// Bytes of strays that are remembered.
const STRAYS_BYTES_MAX: usize = 16 << 20;
/// Keys deleted before the server's answer is waited for, and its clients get their turn.
const BATCH: usize = 500;
/// Between two batches.
const BATCH_PAUSE: Duration = Duration::from_millis(5);
/// A line of the listing: a key of 250 bytes, each percent-encoded, and numbers.
const LINE_BYTES_MAX: usize = 4 << 10;
/// A key whose base64 is the longest that servers take as a word.
const ENCODED_KEY_BYTES_MAX: usize = KEY_BYTES_MAX / 4 * 3;

/// Keys to be removed, and whether there may be more.
struct Strays {
    keys: Vec<Box<[u8]>>,
    more: bool,
}

/// Removes what is not to be kept.
pub(super) async fn sweep(
    address: &str,
    keep: &(dyn for<'a> Fn(&'a [u8]) -> bool + Send + Sync),
    removed: &AtomicU64,
) -> io::Result<u64> {
    let mut count = 0;
    loop {
        let strays = list(address, keep).await?;
        count += strays.keys.len() as u64;
        delete(address, &strays.keys, removed).await?;
        if !strays.more {
            return Ok(count);
        }
    }
}

async fn connect(address: &str) -> io::Result<BufReader<TcpStream>> {
    let stream = timeout(ANSWER_WITHIN, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

async fn read_line(stream: &mut BufReader<TcpStream>, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    let mut limited = stream.take(LINE_BYTES_MAX as u64 + 1);
    timeout(ANSWER_WITHIN, limited.read_until(b'\n', line)).await??;
    if line.len() > LINE_BYTES_MAX {
        return Err(strange(line));
    }
    match line.last() {
        Some(b'\n') => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn strange(line: &[u8]) -> io::Error {
    let shown = &line[..line.len().min(80)];
    io::Error::other(format!(
        "it answers: {}",
        shown.trim_ascii_end().escape_ascii()
    ))
}

async fn list(
    address: &str,
    keep: &(dyn for<'a> Fn(&'a [u8]) -> bool + Send + Sync),
) -> io::Result<Strays> {
    let mut stream = connect(address).await?;
    let (mut line, mut key) = (Vec::new(), Vec::new());
    let mut strays = Strays {
        keys: Vec::new(),
        more: false,
    };
    let (mut bytes, mut tries) = (0, 0);
    stream.write_all(b"lru_crawler metadump hash\r\n").await?;
    loop {
        read_line(&mut stream, &mut line).await?;
        if line.starts_with(b"END") {
            return Ok(strays);
        }
        if line.starts_with(b"BUSY") && tries < BUSY_TRIES {
            tries += 1;
            sleep(BUSY_PAUSE).await;
            stream.write_all(b"lru_crawler metadump hash\r\n").await?;
            continue;
        }
        let Some(encoded) = line.strip_prefix(b"key=") else {
            return Err(strange(&line));
        };
        let encoded = encoded
            .split(|byte| *byte == b' ')
            .next()
            .unwrap_or_default();
        if !decode(encoded, &mut key) {
            return Err(strange(&line));
        }
        let nameable = is_plain(&key) || key.len() <= ENCODED_KEY_BYTES_MAX;
        if nameable && !keep(&key) {
            bytes += key.len() + size_of::<Box<[u8]>>();
            strays.keys.push(key.as_slice().into());
        }
        if bytes > STRAYS_BYTES_MAX {
            strays.more = true;
            return Ok(strays);
        }
    }
}

/// Percent-decodes a word; says whether it was one.
fn decode(word: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let mut rest = word;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let digits = rest
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            return false;
        };
        out.push(byte);
        rest = &rest[2..];
    }
    !out.is_empty()
}

async fn delete(address: &str, keys: &[Box<[u8]>], removed: &AtomicU64) -> io::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut stream = connect(address).await?;
    let (mut requests, mut line) = (Vec::new(), Vec::new());
    for batch in keys.chunks(BATCH) {
        requests.clear();
        for key in batch {
            append_delete(key, &mut requests);
        }
        requests.extend_from_slice(b"mn\r\n");
        timeout(ANSWER_WITHIN, stream.write_all(&requests)).await??;
        loop {
            read_line(&mut stream, &mut line).await?;
            match line.as_slice() {
                b"MN\r\n" => break,
                // It has gone by itself.
                b"NF\r\n" | b"HD\r\n" => {}
                _ => return Err(strange(&line)),
            }
        }
        removed.fetch_add(batch.len() as u64, Ordering::Relaxed);
        sleep(BATCH_PAUSE).await;
    }
    Ok(())
}

/// Whether a key can stand in a line as it is: the keys that routers take from clients, but those in base64.
fn is_plain(key: &[u8]) -> bool {
    key.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}

/// Appends the request that deletes a key, and is answered only when it does not.
fn append_delete(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"md ");
    if is_plain(key) {
        // Base64 would make a long key too long.
        out.extend_from_slice(key);
        out.extend_from_slice(b" q\r\n");
    } else {
        encode(key, out);
        out.extend_from_slice(b" b q\r\n");
    }
}

/// Appends the base64 of a key.
fn encode(key: &[u8], out: &mut Vec<u8>) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in key.chunks(3) {
        let mut bits = 0;
        for at in 0..3 {
            bits = bits << 8 | u32::from(group.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let digit = (bits >> (18 - 6 * at)) & 63;
            out.push(if at <= group.len() {
                ALPHABET[digit as usize]
            } else {
                b'='
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_a_crawler_writes_them() {
        let mut out = Vec::new();
        assert!(decode(b"user%3a42", &mut out) && out == b"user:42");
        assert!(decode(b"%0A%ff", &mut out) && out == [10, 255]);
        for bad in [&b"%"[..], b"%0", b"%zz", b""] {
            assert!(!decode(bad, &mut out), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn the_longest_keys_are_named_in_words_that_servers_take() {
        let check = |key: &[u8], expected: &str| {
            let mut out = Vec::new();
            append_delete(key, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        let long = "k".repeat(KEY_BYTES_MAX);
        check(long.as_bytes(), &format!("md {long} q\r\n"));
        check(b"f o", "md ZiBv b q\r\n");
        let mut out = Vec::new();
        encode(&[b' '; ENCODED_KEY_BYTES_MAX], &mut out);
        assert!(out.len() <= KEY_BYTES_MAX);
        out.clear();
        encode(&[b' '; ENCODED_KEY_BYTES_MAX + 1], &mut out);
        assert!(out.len() > KEY_BYTES_MAX);
    }

    #[tokio::test]
    async fn a_line_without_end_is_not_kept() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let flood = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            // Until the reader has gone.
            while stream.write_all(&[b'k'; 64 << 10]).await.is_ok() {}
        };
        let read = async {
            let mut stream = connect(&address).await.unwrap();
            let mut line = Vec::new();
            let error = read_line(&mut stream, &mut line).await.unwrap_err();
            assert!(error.to_string().starts_with("it answers: kkk"), "{error}");
            assert_eq!(line.len(), LINE_BYTES_MAX + 1);
        };
        tokio::join!(flood, read);
    }

    #[test]
    fn keys_are_written_in_base64() {
        let check = |key: &[u8], expected: &[u8]| {
            let mut out = Vec::new();
            encode(key, &mut out);
            assert_eq!(out, expected);
        };
        check(b"f", b"Zg==");
        check(b"fo", b"Zm8=");
        check(b"foo", b"Zm9v");
        check(&[0, 255, 10], b"AP8K");
    }
}
