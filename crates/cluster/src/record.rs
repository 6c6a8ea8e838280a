//! The record: all that is stored about one pool, in one piece, under one revision.
//!
//! A record is never changed in place. [`Record::create`] makes the first, [`Record::decode`] reads one,
//! and the functions of this crate that take a record return the next, checked. A record in memory carries
//! the revision it was read at; the store compares it and gives the next one when it commits.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use clockwise_placement::{Domain, NodeId, Weight};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::layout::{Layout, SchemeSpec, Seat, SpreadRule};
use crate::{
    Address, Change, Epoch, Finished, Generation, Generator, InvalidRecord, Node, NodeState, Nonce,
    PoolName, Revision, Staged, as_text,
};

/// The format that this version writes.
pub const FORMAT: u32 = 1;

/// The membership of one pool as stored: immutable, and valid since it was made.
///
/// ```
/// use clockwise_cluster::{NewNode, NewPool, Nonce, Record};
/// let node = NewNode::new("cache-a".parse()?, "127.0.0.1:6379".parse()?);
/// let record = Record::create(NewPool::new("main".parse()?, vec![node]), &mut || Nonce::new([7; 16]))?;
/// let bytes = record.encode()?;
/// assert_eq!(Record::decode(&bytes)?, record);
/// assert_eq!((record.epoch().get(), record.revision().get()), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    pub(crate) format: u32,
    pub(crate) pool: PoolName,
    pub(crate) protocol: Protocol,
    pub(crate) class: ServiceClass,
    pub(crate) revision: Revision,
    pub(crate) epoch: Epoch,
    pub(crate) membership: Membership,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) retired: Vec<Tombstone>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) staged: Vec<Staged>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) change: Option<Change>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) finished: Option<Finished>,
    #[serde(default)]
    pub(crate) options: Options,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

impl Record {
    /// The first record of a pool: epoch 1, never committed, every node active under generation 1.
    ///
    /// # Errors
    /// Whatever makes the pool invalid: an id or an address twice, a weight of 0, no nodes, too many points.
    pub fn create(pool: NewPool, nonces: &mut dyn FnMut() -> Nonce) -> Result<Self, InvalidRecord> {
        let node = |new: NewNode| Node {
            id: new.id,
            address: new.address,
            domain: new.domain,
            weight: new.weight,
            state: NodeState::Active,
            generation: Generation::FIRST,
            nonce: nonces(),
            incarnation: None,
            unknown: Map::new(),
        };
        let record = Self {
            format: FORMAT,
            pool: pool.name,
            protocol: pool.protocol,
            class: pool.class,
            revision: Revision::new(0),
            epoch: Epoch::FIRST,
            membership: Membership {
                scheme: pool.scheme,
                generator: pool.generator,
                replicas: pool.replicas,
                spread: pool.spread,
                nodes: pool.nodes.into_iter().map(node).collect(),
                unknown: Map::new(),
            },
            retired: Vec::new(),
            staged: Vec::new(),
            change: None,
            finished: None,
            options: pool.options,
            unknown: Map::new(),
        };
        let mut record = record.normalised();
        record.check()?;
        let (layout, _) = record.membership.layout().planned(None)?;
        layout.build()?;
        record.membership.generator = layout.generator;
        if let Generator::Slots { .. } = &record.membership.generator {
            record.check_room()?;
        }
        Ok(record)
    }

    /// The format it was read in or made for.
    #[must_use]
    pub const fn format(&self) -> u32 {
        self.format
    }

    /// The pool's name.
    #[must_use]
    pub const fn pool(&self) -> &PoolName {
        &self.pool
    }

    /// What its nodes speak.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// What may happen to its data.
    #[must_use]
    pub const fn class(&self) -> ServiceClass {
        self.class
    }

    /// The revision it was read at, which a commit compares.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The same record as committed under a revision. Only stores call this.
    #[must_use]
    pub fn at_revision(self, revision: Revision) -> Self {
        Self { revision, ..self }
    }

    /// What routers act on changes with this number.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The nodes, and the layout they are in when no change runs.
    #[must_use]
    pub const fn membership(&self) -> &Membership {
        &self.membership
    }

    /// A node of the pool. O(log nodes).
    #[must_use]
    pub fn node(&self, id: &NodeId) -> Option<&Node> {
        self.membership.node(id)
    }

    /// Nodes that were removed, with the highest generation each had, sorted by id.
    #[must_use]
    pub fn retired(&self) -> &[Tombstone] {
        &self.retired
    }

    /// Edits that wait for `apply`, in order.
    #[must_use]
    pub fn staged(&self) -> &[Staged] {
        &self.staged
    }

    /// The change in flight.
    #[must_use]
    pub const fn change(&self) -> Option<&Change> {
        self.change.as_ref()
    }

    /// The last change that ended.
    #[must_use]
    pub const fn finished(&self) -> Option<&Finished> {
        self.finished.as_ref()
    }

    /// Settings that decide no ownership.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// The highest generation that a removed node of this id had; 0 if there was none.
    pub(crate) fn highest_retired(&self, id: &NodeId) -> Generation {
        let at = self
            .retired
            .binary_search_by(|tombstone| tombstone.id.cmp(id));
        at.map_or(Generation::new(0), |at| self.retired[at].generation)
    }

    /// Sorted where the invariants say so: a person may have written it in another order.
    pub(crate) fn normalised(mut self) -> Self {
        self.membership.nodes.sort_by(|a, b| a.id.cmp(&b.id));
        self.retired.sort_by(|a, b| a.id.cmp(&b.id));
        if let Some(change) = &mut self.change {
            change.before.members.sort_by(|a, b| a.id.cmp(&b.id));
            change.after.members.sort_by(|a, b| a.id.cmp(&b.id));
            for handoff in &mut change.handoffs {
                handoff.targets.sort();
            }
            change.handoffs.sort_by(|a, b| a.order().cmp(&b.order()));
        }
        self
    }
}

/// What the nodes of a pool speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Protocol {
    /// RESP, to Redis or Valkey.
    #[default]
    Redis,
    /// memcached.
    Memcached,
}

impl Protocol {
    /// Whether its servers can be told to serve only whom the record lets in. Where they cannot, nobody
    /// keeps a late writer from the old owner of a key, and so no key is copied when it changes its owner.
    #[must_use]
    pub const fn can_fence(self) -> bool {
        matches!(self, Self::Redis)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        })
    }
}

/// What may happen to a pool's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ServiceClass {
    /// A miss is cheap.
    Cache,
    /// Nothing acknowledged may be lost.
    #[default]
    Store,
}

impl fmt::Display for ServiceClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cache => "cache",
            Self::Store => "store",
        })
    }
}

/// The nodes of a pool, and how keys are placed on them when no change runs.
///
/// While a change runs this holds the nodes of both sides, and the change says who owns what.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Membership {
    /// How keys and points become positions.
    #[serde(default)]
    pub scheme: SchemeSpec,
    /// How the intervals come about.
    #[serde(default)]
    pub generator: Generator,
    /// How many nodes hold a key.
    #[serde(default = "one")]
    pub replicas: u8,
    /// What to do where replicas cannot all be on distinct domains.
    #[serde(default)]
    pub spread: SpreadRule,
    // Invariant: sorted by id, no id twice, no address twice.
    /// The nodes, sorted by id.
    pub nodes: Vec<Node>,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

const fn one() -> u8 {
    1
}

impl Membership {
    /// A node. O(log nodes).
    #[must_use]
    pub fn node(&self, id: &NodeId) -> Option<&Node> {
        self.nodes
            .binary_search_by(|node| node.id.cmp(id))
            .ok()
            .map(|at| &self.nodes[at])
    }

    /// What decides ownership when no change runs: all nodes in their seats.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let seat = |node: &Node| Seat::new(node.id.clone(), node.weight, node.domain.clone());
        Layout {
            scheme: self.scheme.clone(),
            generator: self.generator.clone(),
            replicas: self.replicas,
            spread: self.spread,
            members: self.nodes.iter().map(seat).collect(),
            unknown: Map::new(),
        }
    }
}

/// What is left of a removed node, so that its generations are never used again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tombstone {
    /// The id it had.
    #[serde(with = "as_text")]
    pub id: NodeId,
    /// The highest generation it had.
    pub generation: Generation,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

/// Settings of a pool that decide no ownership.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Options {
    /// Whether clients may run scripts, whose undeclared keys nobody can see.
    pub scripts: bool,
    /// Whether clients may empty all nodes at once (memcached's `flush_all`).
    #[serde(skip_serializing_if = "is_false")]
    pub flush_all: bool,
    /// Users on the nodes who may write although they are not ours.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign_writers: Vec<String>,
    /// How fast handoffs may copy.
    pub throttle: Throttle,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

const fn is_false(value: &bool) -> bool {
    !*value
}

/// How fast handoffs may copy; 0 is without limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Throttle {
    /// Keys a second, over all sources.
    pub keys_per_second: u64,
    /// Bytes a second, over all sources.
    pub bytes_per_second: u64,
}

/// All that must be said to make a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPool {
    /// Its name.
    pub name: PoolName,
    /// What its nodes speak.
    pub protocol: Protocol,
    /// What may happen to its data.
    pub class: ServiceClass,
    /// How keys and points become positions.
    pub scheme: SchemeSpec,
    /// How the intervals come about.
    pub generator: Generator,
    /// How many nodes hold a key.
    pub replicas: u8,
    /// What to do where replicas cannot all be on distinct domains.
    pub spread: SpreadRule,
    /// Its nodes, at least one.
    pub nodes: Vec<NewNode>,
    /// Settings that decide no ownership.
    pub options: Options,
}

impl NewPool {
    /// A Redis pool of class store on a ring of 200 points a weight, one copy of each key.
    #[must_use]
    pub fn new(name: PoolName, nodes: Vec<NewNode>) -> Self {
        Self {
            name,
            protocol: Protocol::default(),
            class: ServiceClass::default(),
            scheme: SchemeSpec::default(),
            generator: Generator::default(),
            replicas: 1,
            spread: SpreadRule::default(),
            nodes,
            options: Options::default(),
        }
    }
}

/// A node of a pool that is being made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewNode {
    /// The stable name.
    pub id: NodeId,
    /// Where its server listens.
    pub address: Address,
    /// How much it takes beside the others.
    pub weight: Weight,
    /// Where it stands.
    pub domain: Domain,
}

impl NewNode {
    /// A node of weight 1 of which no place is known.
    #[must_use]
    pub fn new(id: NodeId, address: Address) -> Self {
        Self {
            id,
            address,
            weight: Weight::ONE,
            domain: Domain::default(),
        }
    }
}
