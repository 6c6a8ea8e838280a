//! Who can own keys: a stable name, never an address.

use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;

use crate::{Domain, Weight};

/// The longest node name and domain component, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// The stable name of a node: 1 to 64 of `A-Z a-z 0-9 . _ -`.
///
/// Points are derived from it, so a node keeps its keys when its address changes. Cloning is cheap.
///
/// ```
/// use clockwise_placement::NodeId;
/// let id: NodeId = "cache-a".parse()?;
/// assert_eq!(id.as_ref(), "cache-a");
/// assert!("10.0.0.1:6379".parse::<NodeId>().is_err());
/// # Ok::<(), clockwise_placement::NodeIdError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// A node of this name.
    ///
    /// # Errors
    /// When the name is empty, longer than 64 bytes, or has a character that does not belong.
    pub fn new(name: &str) -> Result<Self, NodeIdError> {
        match check_name(name) {
            Ok(()) => Ok(Self(Arc::from(name))),
            Err(fault) => Err(NodeIdError { fault }),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for NodeId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeId {
    type Err = NodeIdError;

    fn from_str(name: &str) -> Result<Self, NodeIdError> {
        Self::new(name)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({})", self.0)
    }
}

/// The rank of a node among a placement's members, which are sorted by id.
///
/// Means nothing outside the placement that it came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct NodeIx(u16);

impl NodeIx {
    // Ten thousand members at most: every rank fits, and this value is none.
    pub(crate) const NONE: Self = Self(u16::MAX);

    pub(crate) fn of(rank: usize) -> Self {
        Self(u16::try_from(rank).expect("a placement has at most 10,000 members"))
    }

    /// The rank of the same node once another one has come at `joined`.
    #[inline]
    pub(crate) fn after_join(self, joined: Self) -> Self {
        Self(self.0 + u16::from(self >= joined))
    }

    /// The rank of the same node once the one at `left` is gone.
    #[inline]
    pub(crate) fn after_leave(self, left: Self) -> Self {
        Self(self.0 - u16::from(self > left))
    }

    pub(crate) const fn raw(self) -> u16 {
        self.0
    }

    /// The rank as an index into [`Placement::nodes`](crate::Placement::nodes).
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// A node as a placement sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The stable name.
    pub id: NodeId,
    /// How much it takes beside the others.
    pub weight: Weight,
    /// Where it stands.
    pub domain: Domain,
}

impl Member {
    /// A node of weight 1 of which no place is known.
    #[must_use]
    pub fn new(id: NodeId) -> Self {
        Self {
            id,
            weight: Weight::ONE,
            domain: Domain::default(),
        }
    }

    /// The same node with another weight.
    #[must_use]
    pub fn with_weight(self, weight: Weight) -> Self {
        Self { weight, ..self }
    }

    /// The same node in another place.
    #[must_use]
    pub fn with_domain(self, domain: Domain) -> Self {
        Self { domain, ..self }
    }
}

/// Why a text names no node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeIdError {
    /// What is wrong with it.
    pub fault: NameFault,
}

/// What is wrong with a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NameFault {
    /// It has no characters.
    Empty,
    /// It has more than 64 bytes.
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It has a character other than `A-Z a-z 0-9 . _ -`.
    Character {
        /// The first such character.
        found: char,
    },
}

pub(crate) fn check_name(name: &str) -> Result<(), NameFault> {
    if name.is_empty() {
        return Err(NameFault::Empty);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameFault::TooLong { bytes: name.len() });
    }
    let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match name.chars().find(|&c| !belongs(c)) {
        Some(found) => Err(NameFault::Character { found }),
        None => Ok(()),
    }
}

impl fmt::Display for NameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::TooLong { bytes } => {
                write!(f, "has {bytes} bytes, at most {NAME_BYTES_MAX} are allowed")
            }
            Self::Character { found } => {
                write!(
                    f,
                    "has the character {found:?}; letters, digits, '.', '_' and '-' are allowed"
                )
            }
        }
    }
}

impl fmt::Display for NodeIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node id {}", self.fault)
    }
}

impl core::error::Error for NodeIdError {}
