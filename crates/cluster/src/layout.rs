//! What decides who owns a key, and nothing else: scheme, generator, replicas, and the members with
//! their weights and domains.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use clockwise_placement::{
    Domain, KeyHash, Member, NodeId, Placement, PlacementError, RingSpec, Scheme, Spread, Weight,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use crate::node::hex_16;
use crate::{Generator, SlotRules, as_text};

/// The name of our own scheme, the one this crate can build.
pub const SCHEME_V1: &str = "clockwise/v1";

/// One side of a change: equal layouts place every key alike.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Layout {
    /// How keys and points become positions.
    pub scheme: SchemeSpec,
    /// How the intervals come about.
    pub generator: Generator,
    /// How many nodes hold a key.
    pub replicas: u8,
    /// What to do where replicas cannot all be on distinct domains.
    #[serde(default)]
    pub spread: SpreadRule,
    // Invariant: sorted by id, no id twice.
    /// Who takes part, sorted by id.
    pub members: Vec<Seat>,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

impl Layout {
    /// Whether a node takes part. O(log members).
    #[must_use]
    pub fn has(&self, id: &NodeId) -> bool {
        self.seat(id).is_some()
    }

    /// The seat of a node. O(log members).
    #[must_use]
    pub fn seat(&self, id: &NodeId) -> Option<&Seat> {
        self.members
            .binary_search_by(|seat| seat.id.cmp(id))
            .ok()
            .map(|at| &self.members[at])
    }

    /// Builds the placement that this layout describes. O(points × log points).
    ///
    /// ```
    /// use clockwise_cluster::{NewNode, NewPool, Nonce, Record};
    /// let a = NewNode::new("a".parse()?, "127.0.0.1:7001".parse()?);
    /// let record = Record::create(NewPool::new("main".parse()?, vec![a]), &mut || Nonce::new([7; 16]))?;
    /// assert_eq!(record.membership().layout().build()?.point_count(), 200);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A scheme that this version does not know, a slot table of nodes that are not members, and whatever
    /// stands in the way of the placement itself.
    pub fn build(&self) -> Result<Placement, LayoutError> {
        let (scheme, members) = (self.recipe()?, self.seated());
        let placement = match &self.generator {
            Generator::Ring { points_per_weight } => RingSpec {
                scheme,
                points_per_weight: *points_per_weight,
                replicas: self.replicas,
                spread: self.spread.spread(),
                members,
            }
            .build()?,
            Generator::Slots {
                slots,
                owners,
                table,
                rules,
            } => {
                rules.iter().try_for_each(SlotRules::check)?;
                let table = self.table_of_ranks(owners, table)?;
                let slots = usize::try_from(*slots).unwrap_or(usize::MAX);
                Placement::from_slots(scheme, members, self.replicas, slots, &table)?
            }
        };
        Ok(placement)
    }

    /// The scheme that keys are placed by.
    pub(crate) fn recipe(&self) -> Result<Scheme, LayoutError> {
        self.scheme
            .scheme()
            .ok_or_else(|| LayoutError::UnknownScheme {
                name: self.scheme.name.clone(),
            })
    }

    /// Its members as the placement crate takes them.
    pub(crate) fn seated(&self) -> Vec<Member> {
        self.members.iter().map(Seat::member).collect()
    }

    /// The slot table in ranks of members instead of ranks among its owners.
    fn table_of_ranks(&self, owners: &[NodeId], table: &[u16]) -> Result<Vec<u16>, LayoutError> {
        let rank = |owner: &NodeId| {
            let at = self.members.binary_search_by(|seat| seat.id.cmp(owner));
            let rank = at.ok().and_then(|at| u16::try_from(at).ok());
            rank.ok_or_else(|| LayoutError::SlotsOfStranger {
                node: owner.clone(),
            })
        };
        let ranks = owners.iter().map(rank).collect::<Result<Vec<_>, _>>()?;
        let named = |&entry: &u16| {
            let unknown = LayoutError::NoSuchOwner {
                entry,
                owners: ranks.len(),
            };
            ranks.get(usize::from(entry)).copied().ok_or(unknown)
        };
        table.iter().map(named).collect()
    }
}

/// A node's seat in a layout: what decides how much it owns, and which of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Seat {
    /// The node.
    #[serde(with = "as_text")]
    pub id: NodeId,
    /// How much it takes beside the others.
    #[serde(with = "as_text", default)]
    pub weight: Weight,
    /// Where it stands.
    #[serde(with = "as_text", default, skip_serializing_if = "has_no_levels")]
    pub domain: Domain,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

pub(crate) fn has_no_levels(domain: &Domain) -> bool {
    domain.depth() == 0
}

impl Seat {
    /// A seat without anything a later format may add.
    #[must_use]
    pub fn new(id: NodeId, weight: Weight, domain: Domain) -> Self {
        Self {
            id,
            weight,
            domain,
            unknown: Map::new(),
        }
    }

    fn member(&self) -> Member {
        Member {
            id: self.id.clone(),
            weight: self.weight,
            domain: self.domain.clone(),
        }
    }
}

/// The recipe that turns keys into positions, with its options.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SchemeSpec {
    /// The frozen name, such as `clockwise/v1`.
    pub name: String,
    /// The hash of `clockwise/v1`.
    pub hash: HashSpec,
    /// Whether only the part of a key between the first `{` and the next `}` is hashed, so that keys can
    /// be kept together. It decides ownership, so changing it is a change like any other.
    #[serde(default)]
    pub hash_tags: bool,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

impl SchemeSpec {
    /// `clockwise/v1` with this hash, whole keys hashed.
    #[must_use]
    pub fn v1(hash: HashSpec) -> Self {
        Self {
            name: String::from(SCHEME_V1),
            hash,
            hash_tags: false,
            unknown: Map::new(),
        }
    }

    /// The same with or without hash tags.
    #[must_use]
    pub fn with_hash_tags(self, hash_tags: bool) -> Self {
        Self { hash_tags, ..self }
    }

    /// The recipe itself; none if this version does not know the name.
    pub(crate) fn scheme(&self) -> Option<Scheme> {
        (self.name == SCHEME_V1).then(|| Scheme::v1(self.hash.key_hash()))
    }
}

impl fmt::Display for SchemeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = match self.hash {
            HashSpec::Xxh3 { .. } => "xxh3-64",
            HashSpec::SipHash13 { .. } => "siphash-1-3",
        };
        write!(
            f,
            "{} {hash}{}",
            self.name,
            if self.hash_tags { ", hash tags" } else { "" }
        )
    }
}

impl Default for SchemeSpec {
    fn default() -> Self {
        Self::v1(HashSpec::default())
    }
}

/// The hash of a scheme as the record keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
#[non_exhaustive]
pub enum HashSpec {
    /// XXH3-64 under a seed. Whoever knows the seed can aim keys at one node.
    #[serde(rename = "xxh3-64")]
    Xxh3 {
        /// The seed, 16 hexadecimal digits in the record.
        #[serde(default, with = "hex_seed")]
        seed: u64,
    },
    /// SipHash-1-3 under a secret key, for keys that strangers choose. Who reads the record knows it.
    #[serde(rename = "siphash-1-3")]
    SipHash13 {
        /// The secret, 32 hexadecimal digits in the record.
        key: SecretKey,
    },
}

impl HashSpec {
    fn key_hash(self) -> KeyHash {
        match self {
            Self::Xxh3 { seed } => KeyHash::Xxh3 { seed },
            Self::SipHash13 { key } => KeyHash::SipHash13 { key: key.0 },
        }
    }
}

impl Default for HashSpec {
    fn default() -> Self {
        Self::Xxh3 { seed: 0 }
    }
}

impl fmt::Debug for HashSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key_hash().fmt(f)
    }
}

/// The key of a keyed hash. Not shown by `Debug`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretKey([u8; 16]);

impl SecretKey {
    /// A key of these bytes, which must be random.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

impl Serialize for SecretKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", u128::from_be_bytes(self.0)))
    }
}

impl<'de> Deserialize<'de> for SecretKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        hex_16(&text)
            .map(Self)
            .ok_or_else(|| de::Error::custom("hash key is not 32 hexadecimal digits"))
    }
}

/// A seed as 16 hexadecimal digits: as a number it would not survive every JSON reader.
mod hex_seed {
    use alloc::string::String;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(seed: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{seed:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(&text, 16) {
            Ok(seed) if digits => Ok(seed),
            _ => Err(de::Error::custom("seed is not up to 16 hexadecimal digits")),
        }
    }
}

/// What to do where replicas cannot all be on distinct domains, or on distinct nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum SpreadRule {
    /// Spread them as widely as the members allow, and report what is missing.
    #[default]
    Widest,
    /// Refuse unless all replicas are on distinct domains of this depth.
    Distinct {
        /// 0 for distinct nodes only, 1 for the outermost level of the domains, and so on.
        depth: u8,
    },
}

impl SpreadRule {
    pub(crate) const fn spread(self) -> Spread {
        match self {
            Self::Widest => Spread::Widest,
            Self::Distinct { depth } => Spread::Distinct { depth },
        }
    }
}

impl fmt::Display for SpreadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Widest => f.write_str("as wide as can be"),
            Self::Distinct { depth: 0 } => f.write_str("distinct nodes or nothing"),
            Self::Distinct { depth } => write!(f, "distinct domains of level {depth} or nothing"),
        }
    }
}

/// Why a layout is no placement. Mend what it names, or upgrade.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LayoutError {
    /// The scheme is none that this version can compute.
    UnknownScheme {
        /// Its name.
        name: String,
    },
    /// The slot table gives slots to a node that is no member.
    SlotsOfStranger {
        /// The node.
        node: NodeId,
    },
    /// An entry of the slot table is no rank among its owners.
    NoSuchOwner {
        /// The entry.
        entry: u16,
        /// How many owners the table names.
        owners: usize,
    },
    /// Rules for a slot table that nobody could follow.
    SlotRules {
        /// The rules.
        rules: SlotRules,
    },
    /// What stands in the way of the placement.
    Placement(PlacementError),
}

impl From<PlacementError> for LayoutError {
    fn from(error: PlacementError) -> Self {
        Self::Placement(error)
    }
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownScheme { name } => write!(f, "scheme {name:?} is unknown to this version"),
            Self::SlotsOfStranger { node } => {
                write!(
                    f,
                    "the slot table gives slots to node {node}, which is no member"
                )
            }
            Self::NoSuchOwner { entry, owners } => {
                write!(f, "the slot table names owner {entry}, there are {owners}")
            }
            Self::SlotRules { rules } => write!(
                f,
                "slots with an overload of {} % and steps of {} %: the one goes from 0 to 100, the other \
                 from 1 to 100",
                rules.overload_percent, rules.step_percent
            ),
            Self::Placement(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for LayoutError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Placement(error) => Some(error),
            _ => None,
        }
    }
}
