//! What is so, whoever knows it: the committed record, and what every key holds.
//!
//! Each request takes effect at one moment, so the writes of a key have one order. What the last of them left
//! is what the next request has to see, wherever it is executed; whether its answer arrives does not matter.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use clockwise_cluster::{Record, View};

use super::server::{Key, Value};

/// Two clocks may differ by so much before an expiry is early or late.
const SKEW_MS_MAX: u64 = 250;

/// What is so.
#[derive(Debug)]
pub(super) struct Truth {
    pub(super) record: Arc<Record>,
    pub(super) view: Rc<View>,
    // Fingerprints of every epoch that was published.
    pub(super) published: BTreeMap<u64, u64>,
    values: BTreeMap<Key, Value>,
    // Changes of a server's own making: a restart lost what it had acknowledged.
    excused: BTreeMap<Key, u64>,
}

impl Truth {
    pub(super) fn new(record: Arc<Record>) -> Self {
        let view = View::from_record(&record).expect("the first record is good");
        let published = BTreeMap::from([(record.epoch().get(), print_of(&view))]);
        Self {
            record,
            view: Rc::new(view),
            published,
            values: BTreeMap::new(),
            excused: BTreeMap::new(),
        }
    }

    /// Takes in what was committed.
    pub(super) fn committed(&mut self, record: Arc<Record>) {
        if record.epoch() != self.record.epoch() {
            let view = View::from_record(&record).expect("a committed record is good");
            self.published.insert(record.epoch().get(), print_of(&view));
            self.view = Rc::new(view);
        }
        self.record = record;
    }

    /// The rank of the node that owns a key, by the committed record.
    pub(super) fn owner(&self, key: Key) -> usize {
        let route = self.view.route(self.view.position(key.as_ref()));
        rank_of(self.view.node(route.node).id.as_str())
    }

    /// What the last write of a key left.
    pub(super) fn value(&self, key: Key) -> Option<Value> {
        self.values.get(&key).copied()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = (Key, Value)> + '_ {
        self.values.iter().map(|(key, value)| (*key, *value))
    }

    pub(super) fn set(&mut self, key: Key, value: Option<Value>) {
        match value {
            Some(value) => self.values.insert(key, value),
            None => self.values.remove(&key),
        };
        self.excused.remove(&key);
    }

    /// A server lost what it had acknowledged, as it may: whatever is there when it is next looked at is so.
    pub(super) fn excuse(&mut self, key: Key) {
        *self.excused.entry(key).or_default() += 1;
    }

    pub(super) fn is_excused(&self, key: Key) -> bool {
        self.excused.contains_key(&key)
    }

    /// Whether a value that expires then may or may not be there by some clock.
    pub(super) fn may_have_expired(value: Option<Value>, now_ms: u64) -> bool {
        let at_ms = value.and_then(|value| value.expires_at_ms);
        at_ms.is_some_and(|at_ms| at_ms <= now_ms + SKEW_MS_MAX)
    }
}

fn print_of(view: &View) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    format!("{:?}", view.fingerprint()).hash(&mut hasher);
    hasher.finish()
}

/// The same of a view that somebody adopted.
pub(super) fn fingerprint(view: &View) -> u64 {
    print_of(view)
}

/// Nodes are named by their rank.
pub(super) fn name_of(rank: usize) -> String {
    format!("n{rank}")
}

pub(super) fn rank_of(name: &str) -> usize {
    let digits = name.strip_prefix('n').expect("as it was named");
    digits.parse().expect("as it was named")
}
