//! A node as the record keeps it: identity, address, place, weight, state, credential, incarnation.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use clockwise_placement::{Domain, NodeId, Weight};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use crate::layout::has_no_levels;
use crate::{Address, Generation, as_text};

/// The longest run or replication id in bytes. Redis uses 40.
const INCARNATION_BYTES_MAX: usize = 128;

/// A node of a pool: what a server of this name is, where it is, and which credential lets clients in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Node {
    /// The stable name. Points derive from it, so a node keeps its keys when its address changes.
    #[serde(with = "as_text")]
    pub id: NodeId,
    /// Where its server listens.
    pub address: Address,
    /// Where it stands; empty when no place is known.
    #[serde(with = "as_text", default, skip_serializing_if = "has_no_levels")]
    pub domain: Domain,
    /// How much it takes beside the others. While a change runs, the weight after it.
    #[serde(with = "as_text", default)]
    pub weight: Weight,
    /// What part it plays.
    pub state: NodeState,
    /// Which client user is let in. Never reused for this id.
    pub generation: Generation,
    /// What makes this generation's password unguessable.
    pub nonce: Nonce,
    /// Which run of which data the rebalancer last recognised under this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

/// The part a node plays in its pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NodeState {
    /// Comes in with the change in flight and owns what has flipped to it.
    Joining,
    /// Of class cache: filled beside the old owners, which still serve.
    Warming,
    /// Owns what the placement gives it.
    Active,
    /// Goes with the change in flight. Never a target.
    Leaving,
    /// Lost for good; goes with the change in flight without handing over what it had.
    Down,
}

impl NodeState {
    /// The word in the record, on the command line and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Warming => "warming",
            Self::Active => "active",
            Self::Leaving => "leaving",
            Self::Down => "down",
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Sixteen random bytes, new with every generation of a node's credential. Comes from outside.
///
/// ```
/// use clockwise_cluster::Nonce;
/// let nonce = Nonce::new([0xab; 16]);
/// assert_eq!(nonce.to_string(), "abababababababababababababababab");
/// assert_eq!(nonce.to_string().parse(), Ok(nonce));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// A nonce of these bytes, which must be random.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, as they enter the password.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({self})")
    }
}

impl FromStr for Nonce {
    type Err = NonceError;

    fn from_str(text: &str) -> Result<Self, NonceError> {
        hex_16(text).map(Self).ok_or(NonceError)
    }
}

/// Sixteen bytes from 32 hexadecimal digits.
pub(crate) fn hex_16(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

impl Serialize for Nonce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        as_text::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Nonce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_text::deserialize(deserializer)
    }
}

/// The text is not 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NonceError;

impl fmt::Display for NonceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nonce is not 32 hexadecimal digits")
    }
}

impl core::error::Error for NonceError {}

/// What makes one run of one server with one history of data recognisable.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Incarnation {
    /// Changes at every start of the server.
    pub run_id: ServerId,
    /// Changes when the data set is replaced by another's, although the process went on.
    pub replication_id: ServerId,
}

/// A name that a server gave itself: printable ASCII without spaces, 1 to 128 bytes.
///
/// ```
/// use clockwise_cluster::ServerId;
/// let id: ServerId = "8f3c0a".parse()?;
/// assert_eq!(id.as_str(), "8f3c0a");
/// assert!("".parse::<ServerId>().is_err());
/// # Ok::<(), clockwise_cluster::ServerIdError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(Box<str>);

impl ServerId {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServerId {
    type Err = ServerIdError;

    fn from_str(text: &str) -> Result<Self, ServerIdError> {
        let fits = (1..=INCARNATION_BYTES_MAX).contains(&text.len());
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits && printable {
            Ok(Self(Box::from(text)))
        } else {
            Err(ServerIdError)
        }
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerId({})", self.0)
    }
}

impl Serialize for ServerId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        as_text::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for ServerId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// The text is empty, too long, or has spaces or other unprintable characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerIdError;

impl fmt::Display for ServerIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "run or replication id is not 1 to {INCARNATION_BYTES_MAX} printable characters"
        )
    }
}

impl core::error::Error for ServerIdError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_read_from_32_digits_only() {
        for text in [
            "",
            "ab",
            "+babababababababababababababababa",
            &"a".repeat(31),
            &"g".repeat(32),
        ] {
            assert_eq!(text.parse::<Nonce>(), Err(NonceError), "{text}");
        }
    }
}
