//! The stored form: JSON of at most 1 MiB, with its format number, read so that no bytes can do harm.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::Deserialize;
use serde_json::error::Category;

use crate::record::FORMAT;
use crate::{InvalidRecord, Record};

/// The most bytes a record may have. Stores refuse larger values, etcd at 1.5 MiB.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// The oldest format that this version still reads.
const FORMAT_OLDEST: u32 = 1;

#[derive(Deserialize)]
struct Header {
    format: Option<u32>,
}

impl Record {
    /// The stored form of this record.
    ///
    /// # Errors
    /// When it has more than 1 MiB.
    pub fn encode(&self) -> Result<Vec<u8>, TooLarge> {
        debug_assert_eq!(self.check(), Ok(()), "a record is valid since it was made");
        // Its maps have text keys and its numbers are integers, so nothing in it can fail to be written.
        let bytes = serde_json::to_vec(self).expect("a record has a stored form");
        match bytes.len() {
            fitting if fitting <= RECORD_BYTES_MAX => Ok(bytes),
            bytes => Err(TooLarge {
                bytes,
                limit: RECORD_BYTES_MAX,
            }),
        }
    }

    /// Reads a stored record and checks it.
    ///
    /// Fields that this version does not know are kept and written again.
    ///
    /// # Errors
    /// Empty, torn or foreign bytes, a format from the future, a record that contradicts itself.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(DecodeError::TooLarge(TooLarge {
                bytes: bytes.len(),
                limit: RECORD_BYTES_MAX,
            }));
        }
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(DecodeError::Empty);
        }
        let header: Header = serde_json::from_slice(bytes)?;
        match header.format {
            None => return Err(DecodeError::NoFormat),
            Some(found) if found > FORMAT => {
                return Err(DecodeError::FromTheFuture {
                    found,
                    known: FORMAT,
                });
            }
            Some(found) if found < FORMAT_OLDEST => {
                return Err(DecodeError::TooOld {
                    found,
                    oldest: FORMAT_OLDEST,
                });
            }
            Some(_) => {}
        }
        let record = serde_json::from_slice::<Self>(bytes)?.normalised();
        record.check()?;
        Ok(record)
    }
}

/// The record would not fit into a store: fewer nodes, shorter names or a smaller slot table are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLarge {
    /// How many bytes it has.
    pub bytes: usize,
    /// How many it may have.
    pub limit: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "record has {} bytes, at most {} are allowed",
            self.bytes, self.limit
        )
    }
}

impl core::error::Error for TooLarge {}

/// Why bytes are no record. Whoever has a valid one in memory keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DecodeError {
    /// Nothing there.
    Empty,
    /// The bytes end before the record does.
    Torn {
        /// The line at which they end.
        line: usize,
        /// The column at which they end.
        column: usize,
    },
    /// Not JSON, or not the JSON of a record.
    Malformed {
        /// The line of the fault.
        line: usize,
        /// The column of the fault.
        column: usize,
        /// What the reader says about it.
        reason: String,
    },
    /// No format number, so not a record.
    NoFormat,
    /// Written by a later version: upgrade this one.
    FromTheFuture {
        /// The format found.
        found: u32,
        /// The latest known here.
        known: u32,
    },
    /// Written by a version that is too old: read it with one in between.
    TooOld {
        /// The format found.
        found: u32,
        /// The oldest read here.
        oldest: u32,
    },
    /// More bytes than a record may have.
    TooLarge(TooLarge),
    /// It contradicts itself.
    Invalid(InvalidRecord),
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        match error.classify() {
            Category::Eof => Self::Torn { line, column },
            _ => Self::Malformed {
                line,
                column,
                reason: error.to_string(),
            },
        }
    }
}

impl From<InvalidRecord> for DecodeError {
    fn from(error: InvalidRecord) -> Self {
        Self::Invalid(error)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("record is empty"),
            Self::Torn { line, column } => {
                write!(f, "record is torn: it ends at line {line} column {column}")
            }
            Self::Malformed { reason, .. } => write!(f, "record is malformed: {reason}"),
            Self::NoFormat => f.write_str("record has no format number"),
            Self::FromTheFuture { found, known } => {
                write!(
                    f,
                    "record has format {found}, this version knows {known}: upgrade it"
                )
            }
            Self::TooOld { found, oldest } => {
                write!(
                    f,
                    "record has format {found}, this version reads {oldest} and later"
                )
            }
            Self::TooLarge(error) => error.fmt(f),
            Self::Invalid(error) => write!(f, "record is invalid: {error}"),
        }
    }
}

impl core::error::Error for DecodeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::TooLarge(error) => Some(error),
            Self::Invalid(error) => Some(error),
            _ => None,
        }
    }
}
