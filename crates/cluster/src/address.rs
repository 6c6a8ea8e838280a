//! Where a node's server listens, as text: this crate opens no connection and resolves no name.

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::as_text;

/// The longest address in bytes: a host name of 253, a colon, five digits, two brackets.
const ADDRESS_BYTES_MAX: usize = 261;

/// `host:port` as text: a name, an IPv4 address or a bracketed IPv6 address, and a port from 1.
///
/// ```
/// use clockwise_cluster::Address;
/// let address: Address = "[::1]:6379".parse()?;
/// assert_eq!((address.host(), address.port()), ("::1", 6379));
/// assert!("cache-a".parse::<Address>().is_err() && "cache-a:0".parse::<Address>().is_err());
/// # Ok::<(), clockwise_cluster::AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    text: Box<str>,
    port: u16,
}

impl Address {
    /// The host, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = self
            .text
            .rsplit_once(':')
            .map_or(&*self.text, |(host, _)| host);
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
    }

    /// The port, 1 to 65535.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The whole, as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(AddressError::TooLong { bytes: text.len() });
        }
        let (host, port) = text.rsplit_once(':').ok_or(AddressError::NoPort)?;
        if host.is_empty() {
            return Err(AddressError::NoHost);
        }
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let belongs = |c: char| match inner {
            Some(_) => c.is_ascii_hexdigit() || matches!(c, ':' | '.'),
            None => c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'),
        };
        if let Some(found) = inner.unwrap_or(host).chars().find(|&c| !belongs(c)) {
            return Err(AddressError::Character { found });
        }
        if inner == Some("") {
            return Err(AddressError::NoHost);
        }
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        match port.parse() {
            Ok(port) if digits && port > 0 => Ok(Self {
                text: Box::from(text),
                port,
            }),
            _ => Err(AddressError::Port),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.text)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        as_text::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_text::deserialize(deserializer)
    }
}

/// Why a text is no address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AddressError {
    /// Longer than any host name and port.
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// Nothing after a colon.
    NoPort,
    /// Nothing before the port.
    NoHost,
    /// A character no host has.
    Character {
        /// The first such character.
        found: char,
    },
    /// Not a number from 1 to 65535.
    Port,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes } => {
                write!(
                    f,
                    "address has {bytes} bytes, at most {ADDRESS_BYTES_MAX} are allowed"
                )
            }
            Self::NoPort => f.write_str("address has no port, expected host:port"),
            Self::NoHost => f.write_str("address has no host, expected host:port"),
            Self::Character { found } => write!(f, "address has the character {found:?}"),
            Self::Port => f.write_str("port is not a number from 1 to 65535"),
        }
    }
}

impl core::error::Error for AddressError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (text, host, port) in [
            ("127.0.0.1:6379", "127.0.0.1", 6379),
            ("cache_a.example.org:1", "cache_a.example.org", 1),
            ("[::1]:65535", "::1", 65535),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(
                (address.host(), address.port(), address.to_string().as_str()),
                (host, port, text)
            );
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_its_reason() {
        for (text, error) in [
            ("", AddressError::NoPort),
            ("cache-a", AddressError::NoPort),
            (":6379", AddressError::NoHost),
            ("[]:6379", AddressError::NoHost),
            ("cache-a:", AddressError::Port),
            ("cache-a:0", AddressError::Port),
            ("cache-a:65536", AddressError::Port),
            ("cache-a:+80", AddressError::Port),
            ("::1:6379", AddressError::Character { found: ':' }),
            ("a b:6379", AddressError::Character { found: ' ' }),
            ("redis://a:6379", AddressError::Character { found: ':' }),
            ("[evil host]:6379", AddressError::Character { found: 'v' }),
        ] {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        }
        let long = "a".repeat(300) + ":1";
        assert_eq!(
            long.parse::<Address>(),
            Err(AddressError::TooLong { bytes: 302 })
        );
    }
}
