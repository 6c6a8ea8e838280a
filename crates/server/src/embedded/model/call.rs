//! One command being executed: what it may look at and change, and how it replies.

use bytes::Bytes;
use clockwise_client::resp::{
    Protocol, write_array, write_bulk, write_error, write_integer, write_map, write_null,
    write_simple,
};

use xxhash_rust::xxh3::xxh3_64;

use super::access::{Access, Admission};
use super::data::Data;
use super::number;

/// What a node knows of a client's connection.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) id: u64,
    pub(super) address: String,
    pub(super) name: Bytes,
    pub(super) protocol: Protocol,
    pub(super) admission: Option<Admission>,
    /// The client has said goodbye.
    pub(super) quits: bool,
}

/// A command with everything it needs.
pub(super) struct Call<'a> {
    pub(super) data: &'a mut Data,
    pub(super) access: &'a Access,
    pub(super) connection: &'a mut Connection,
    /// With the command's name in front.
    pub(super) args: &'a [&'a [u8]],
    /// The command's name in lower case.
    pub(super) name: &'static str,
    pub(super) now_ms: u64,
    pub(super) out: &'a mut Vec<u8>,
}

/// Says what went wrong in the words that servers use.
pub(super) mod words {
    pub(in super::super) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
    pub(in super::super) const SYNTAX: &str = "ERR syntax error";
    pub(in super::super) const NO_SUCH_KEY: &str = "ERR no such key";
    pub(in super::super) const TOO_LONG: &str =
        "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
}

/// An argument as an error quotes it: up to a zero byte, and not all of a long one.
pub(super) fn quoted(arg: &[u8], bytes_max: usize) -> String {
    let text = arg.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(&text[..text.len().min(bytes_max)]).into_owned()
}

/// A command's end: it has replied, or it ends with an error.
pub(super) type Outcome = Result<(), String>;

impl<'a> Call<'a> {
    pub(super) fn arg(&self, at: usize) -> &'a [u8] {
        self.args[at]
    }

    /// The option at `at` in lower case.
    pub(super) fn option(&self, at: usize) -> String {
        String::from_utf8_lossy(self.args[at]).to_ascii_lowercase()
    }

    pub(super) fn integer_arg(&self, at: usize) -> Result<i64, String> {
        number::integer(self.args[at]).ok_or_else(|| words::NOT_AN_INTEGER.to_owned())
    }

    /// A number that must fit into 32 bits, such as that of a database.
    pub(super) fn small_integer_arg(&self, at: usize) -> Result<i32, String> {
        i32::try_from(self.integer_arg(at)?).map_err(|_| {
            format!(
                "ERR value is out of range, value must between {} and {}",
                i32::MIN,
                i32::MAX
            )
        })
    }

    /// A place among the keys that nobody foresees: it differs from command to command.
    pub(super) fn random(&self) -> u64 {
        xxh3_64(&self.data.commands.to_be_bytes()) >> 1
    }

    /// Stores a string, replacing what is there; one whose time is over only takes that away.
    pub(super) fn set(&mut self, key: &[u8], value: Vec<u8>, expires_at_ms: Option<u64>) {
        self.data.set(key, value, expires_at_ms, self.now_ms);
    }

    pub(super) fn reply_ok(&mut self) -> Outcome {
        self.reply_simple("OK")
    }

    pub(super) fn reply_simple(&mut self, text: &str) -> Outcome {
        write_simple(self.out, text);
        Ok(())
    }

    pub(super) fn reply_integer(&mut self, number: i64) -> Outcome {
        write_integer(self.out, number);
        Ok(())
    }

    pub(super) fn reply_count(&mut self, count: usize) -> Outcome {
        self.reply_integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(super) fn reply_bulk(&mut self, bytes: &[u8]) -> Outcome {
        write_bulk(self.out, bytes);
        Ok(())
    }

    pub(super) fn reply_null(&mut self) -> Outcome {
        write_null(self.out, self.connection.protocol);
        Ok(())
    }

    pub(super) fn reply_array(&mut self, count: usize) -> Outcome {
        write_array(self.out, count);
        Ok(())
    }

    pub(super) fn reply_map(&mut self, pairs: usize) -> Outcome {
        write_map(self.out, self.connection.protocol, pairs);
        Ok(())
    }

    pub(super) fn reply_error(&mut self, words: &str) {
        write_error(self.out, words);
    }

    /// A text for people: of a kind of its own where the protocol has one.
    pub(super) fn reply_text(&mut self, text: &str) -> Outcome {
        match self.connection.protocol {
            Protocol::Resp2 => self.reply_bulk(text.as_bytes()),
            Protocol::Resp3 => {
                let format = "txt:";
                self.out.extend_from_slice(
                    format!("={}\r\n{format}{text}\r\n", format.len() + text.len()).as_bytes(),
                );
                Ok(())
            }
        }
    }
}
