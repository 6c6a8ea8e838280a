//! Putting a record from a file in the place of another, or of none.
//!
//! A copy is older than what has happened since. Epochs go on above both, and every node gets a credential that
//! nobody has had: whoever was fenced since the copy was made stays out.

use alloc::vec::Vec;
use core::fmt;

use serde_json::Map;

use crate::record::{Record, Tombstone};
use crate::{ChangeId, Epoch, Generation, InvalidRecord, Nonce, PoolName, Protocol};

/// How far generations of a copy go on when nothing says which were used since: further than any pool gets
/// between two copies.
const GENERATIONS_UNSEEN: u64 = 1 << 20;

/// Why a copy does not take another record's place.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RestoreError {
    /// The copy was made while keys moved: where they are now it does not say.
    CopyOfChange {
        /// The change that ran.
        id: ChangeId,
    },
    /// Keys move now: the copy does not say where they are.
    ChangeInFlight {
        /// The change.
        id: ChangeId,
    },
    /// It is of another pool.
    OtherPool {
        /// The pool of the copy.
        copy: PoolName,
        /// The pool whose place it would take.
        pool: PoolName,
    },
    /// Its nodes speak something else.
    OtherProtocol {
        /// What those of the copy speak.
        copy: Protocol,
        /// What those of the pool speak.
        pool: Protocol,
    },
    /// What would come of it contradicts itself.
    Invalid(InvalidRecord),
}

impl Record {
    /// The record that takes the place of `present`, or of none, with the membership and the options of this copy.
    ///
    /// Its epoch is above both, and `above` where one is given; nodes are let in under generations above all that
    /// either knows, with nonces of their own; what is staged in either is left out. Nodes that only `present` has
    /// leave tombstones.
    ///
    /// # Errors
    /// A change in flight in either, another pool, another protocol, or a record that contradicts itself.
    ///
    /// ```
    /// use clockwise_cluster::{Epoch, NewNode, NewPool, Nonce, Record};
    /// let nonces = &mut || Nonce::new([7; 16]);
    /// let node = |id: &str, port| NewNode::new(id.parse().unwrap(), format!("127.0.0.1:{port}").parse().unwrap());
    /// let copy = Record::create(NewPool::new("main".parse()?, vec![node("a", 1), node("b", 2)]), nonces)?;
    /// let present = Record::create(NewPool::new("main".parse()?, vec![node("a", 1)]), nonces)?.with_scripts(true);
    /// let restored = copy.restored(Some(&present), None, nonces)?;
    /// assert_eq!(restored.epoch(), present.epoch().next());
    /// let a = restored.node(&"a".parse()?).unwrap();
    /// assert_eq!(a.generation.get(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restored(
        &self,
        present: Option<&Self>,
        above: Option<Epoch>,
        nonces: &mut dyn FnMut() -> Nonce,
    ) -> Result<Self, RestoreError> {
        if let Some(change) = &self.change {
            return Err(RestoreError::CopyOfChange {
                id: change.id.clone(),
            });
        }
        if let Some(present) = present {
            present.may_be_replaced_by(self)?;
        }
        let highest = present.map_or(self.epoch, |present| present.epoch.max(self.epoch));
        let mut next = Self {
            epoch: above.map_or(highest, |above| above.max(highest)).next(),
            staged: Vec::new(),
            finished: None,
            retired: self.tombstones_with(present),
            ..self.clone()
        };
        for node in &mut next.membership.nodes {
            let known = present.map_or(Generation::new(0), |present| {
                let there = present.node(&node.id);
                let there = there.map_or(Generation::new(0), |node| node.generation);
                there.max(present.highest_retired(&node.id))
            });
            let known = known
                .max(node.generation)
                .max(self.highest_retired(&node.id));
            node.generation = match present {
                Some(_) => known.next(),
                None => Generation::new(known.get() + GENERATIONS_UNSEEN),
            };
            node.nonce = nonces();
        }
        let next = next.normalised();
        next.check().map_err(RestoreError::Invalid)?;
        Ok(next)
    }

    fn may_be_replaced_by(&self, copy: &Self) -> Result<(), RestoreError> {
        if self.pool != copy.pool {
            return Err(RestoreError::OtherPool {
                copy: copy.pool.clone(),
                pool: self.pool.clone(),
            });
        }
        if self.protocol != copy.protocol {
            return Err(RestoreError::OtherProtocol {
                copy: copy.protocol,
                pool: self.protocol,
            });
        }
        match &self.change {
            Some(change) => Err(RestoreError::ChangeInFlight {
                id: change.id.clone(),
            }),
            None => Ok(()),
        }
    }

    /// What is left of nodes that either has removed, or that only the other one has.
    fn tombstones_with(&self, present: Option<&Self>) -> Vec<Tombstone> {
        let Some(present) = present else {
            return self.retired.clone();
        };
        let gone = present.membership.nodes.iter().map(|node| Tombstone {
            id: node.id.clone(),
            generation: node.generation,
            unknown: Map::new(),
        });
        let mut all: Vec<Tombstone> = self.retired.clone();
        for other in present.retired.iter().cloned().chain(gone) {
            if self.node(&other.id).is_some() {
                continue;
            }
            match all.iter_mut().find(|known| known.id == other.id) {
                Some(known) => known.generation = known.generation.max(other.generation),
                None => all.push(other),
            }
        }
        all
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CopyOfChange { id } => write!(
                f,
                "the copy was made while {id} ran, and does not say where its keys are now; take one of an epoch at \
                 rest"
            ),
            Self::ChangeInFlight { id } => write!(
                f,
                "{id} runs, and the copy does not say where its keys are; let it end or abort it first"
            ),
            Self::OtherPool { copy, pool } => {
                write!(f, "the copy is of pool {copy}, not of {pool}")
            }
            Self::OtherProtocol { copy, pool } => {
                write!(
                    f,
                    "the copy is of nodes that speak {copy}, and those of the pool speak {pool}"
                )
            }
            Self::Invalid(error) => write!(f, "what would come of it is no record: {error}"),
        }
    }
}

impl core::error::Error for RestoreError {}

#[cfg(test)]
mod tests {
    use alloc::format;

    use crate::{Apply, Edit, NewNode, NewPool, Step};

    use super::*;

    fn nonces() -> impl FnMut() -> Nonce {
        let mut last = 0;
        move || {
            last += 1;
            Nonce::new([last; 16])
        }
    }

    fn pool(name: &str, ids: &[&str]) -> Record {
        let nodes = ids.iter().enumerate().map(|(index, id)| {
            let address = format!("127.0.0.1:{}", index + 1);
            NewNode::new(id.parse().unwrap(), address.parse().unwrap())
        });
        let pool = NewPool::new(name.parse().unwrap(), nodes.collect());
        Record::create(pool, &mut nonces()).unwrap()
    }

    fn removing(record: &Record, id: &str) -> Record {
        let edit = Edit::Remove {
            id: id.parse().unwrap(),
        };
        let staged = record.stage(edit).unwrap();
        let apply = Apply {
            expected: staged.epoch(),
            id: "away".parse().unwrap(),
            now_ms: 0,
            nonces: &mut nonces(),
        };
        staged.apply(apply).unwrap()
    }

    /// The record once that node is gone.
    fn without(record: &Record, id: &str) -> Record {
        let changing = removing(record, id);
        let handoffs = changing.change().unwrap().handoffs.clone();
        let moved = handoffs.iter().fold(changing, |record, handoff| {
            let generation = record.node(&handoff.source).unwrap().generation.next();
            let incarnation = crate::Incarnation {
                run_id: "r".parse().unwrap(),
                replication_id: "d".parse().unwrap(),
            };
            let steps = [
                Step::Copying,
                Step::Verifying,
                Step::Handover {
                    generation,
                    nonce: Nonce::new([99; 16]),
                },
                Step::Flip {
                    targets: handoff
                        .targets
                        .iter()
                        .map(|_| incarnation.clone())
                        .collect(),
                },
                Step::Cleaning,
                Step::Done,
            ];
            steps.iter().fold(record, |record, step| {
                record.step(&handoff.id(), step, 1).unwrap()
            })
        });
        moved.end_change(2).unwrap()
    }

    #[test]
    fn a_node_comes_back_under_a_generation_that_nobody_has_had() {
        let copy = pool("main", &["a", "b"]);
        let present = without(&copy, "b");
        let id = "b".parse().unwrap();
        let used = present.highest_retired(&id);
        assert!(
            used > Generation::FIRST,
            "b was fenced when it gave its keys"
        );
        let restored = copy.restored(Some(&present), None, &mut nonces()).unwrap();
        assert_eq!(restored.node(&id).unwrap().generation, used.next());
        assert_eq!(restored.epoch(), present.epoch().next());
        assert!(restored.retired().is_empty());
        // And away again: the tombstone keeps the highest.
        let again = present
            .restored(Some(&restored), None, &mut nonces())
            .unwrap();
        assert_eq!(again.highest_retired(&id), used.next());
    }

    #[test]
    fn without_a_record_generations_and_the_epoch_leap() {
        let copy = pool("main", &["a"]);
        let restored = copy
            .restored(None, Some(Epoch::new(40)), &mut nonces())
            .unwrap();
        assert_eq!(restored.epoch().get(), 41);
        let node = &restored.membership().nodes[0];
        assert!(node.generation.get() > GENERATIONS_UNSEEN);
        assert_eq!(
            Record::decode(&restored.encode().unwrap()).unwrap(),
            restored
        );
    }

    #[test]
    fn nothing_takes_the_place_of_moving_keys_and_no_other_pool_does() {
        let copy = pool("main", &["a", "b"]);
        let moving = removing(&copy, "b");
        let refused = |copy: &Record, present: &Record| {
            copy.restored(Some(present), None, &mut nonces())
                .unwrap_err()
        };
        assert!(matches!(
            refused(&moving, &copy),
            RestoreError::CopyOfChange { .. }
        ));
        assert!(matches!(
            refused(&copy, &moving),
            RestoreError::ChangeInFlight { .. }
        ));
        assert!(matches!(
            refused(&pool("other", &["a"]), &copy),
            RestoreError::OtherPool { .. }
        ));
        let mut cache = copy.clone();
        cache.protocol = Protocol::Memcached;
        assert!(matches!(
            refused(&cache, &copy),
            RestoreError::OtherProtocol { .. }
        ));
    }
}
