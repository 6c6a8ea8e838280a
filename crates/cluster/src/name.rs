//! Names that people give: of pools and of changes.

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::as_text;

/// The longest name in bytes.
const NAME_BYTES_MAX: usize = 64;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// The name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                check(text).map(|()| Self(Box::from(text)))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                as_text::serialize(self, serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                as_text::deserialize(deserializer)
            }
        }
    };
}

name! {
    /// The name of a pool: 1 to 64 of `A-Z a-z 0-9 . _ -`.
    ///
    /// ```
    /// use clockwise_cluster::PoolName;
    /// let pool: PoolName = "sessions".parse()?;
    /// assert_eq!(pool.as_str(), "sessions");
    /// # Ok::<(), clockwise_cluster::NameError>(())
    /// ```
    PoolName
}

name! {
    /// The name of a change: 1 to 64 of `A-Z a-z 0-9 . _ -`.
    ///
    /// ```
    /// use clockwise_cluster::ChangeId;
    /// assert!("join-d.2".parse::<ChangeId>().is_ok() && "join d".parse::<ChangeId>().is_err());
    /// ```
    ChangeId
}

fn check(text: &str) -> Result<(), NameError> {
    let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match text.chars().find(|&c| !belongs(c)) {
        _ if !(1..=NAME_BYTES_MAX).contains(&text.len()) => {
            Err(NameError::Length { bytes: text.len() })
        }
        Some(found) => Err(NameError::Character { found }),
        None => Ok(()),
    }
}

/// Why a text is no name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NameError {
    /// Empty, or longer than 64 bytes.
    Length {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It has a character other than `A-Z a-z 0-9 . _ -`.
    Character {
        /// The first such character.
        found: char,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { bytes } => write!(
                f,
                "name has {bytes} bytes, 1 to {NAME_BYTES_MAX} are allowed"
            ),
            Self::Character { found } => {
                write!(
                    f,
                    "name has the character {found:?}; letters, digits, '.', '_' and '-' are allowed"
                )
            }
        }
    }
}

impl core::error::Error for NameError {}
