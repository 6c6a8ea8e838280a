//! The pool of a story: its record, who leads, and which run each server is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

use clockwise_cluster::handoff::{Entry, Identity};
use clockwise_cluster::{
    AbortError, Apply, Direction, Edit, Epoch, Generator, HandoffId, Incarnation, NewNode, NewPool,
    Nonce, Record, Step, StepError,
};

/// A record in a store, and the servers.
#[derive(Clone)]
pub(crate) struct Book {
    pub(crate) record: Rc<Record>,
    pub(crate) leads: bool,
    runs: BTreeMap<String, u32>,
    nonces: u8,
}

impl Book {
    /// A pool of active nodes, one after the other on ports from 7001.
    pub(crate) fn new(names: &str) -> Self {
        let node = |(at, name): (usize, &str)| NewNode::new(name.parse().unwrap(), address(at + 1));
        let nodes: Vec<NewNode> = names.split(' ').enumerate().map(node).collect();
        let pool = NewPool::new("main".parse().unwrap(), nodes);
        let record = Record::create(pool, &mut || Nonce::new([1; 16])).unwrap();
        Self {
            record: Rc::new(record),
            leads: true,
            runs: BTreeMap::new(),
            nonces: 1,
        }
    }

    /// `add d`, `remove a`, `lose b`
    pub(crate) fn stage(&mut self, words: &str) {
        let (verb, name) = words.split_once(' ').unwrap();
        let id = name.parse().unwrap();
        let edit = match verb {
            "add" => Edit::Add {
                id,
                address: address(9),
                weight: "1".parse().unwrap(),
                domain: "".parse().unwrap(),
            },
            "points" => Edit::SetGenerator {
                generator: Generator::Ring {
                    points_per_weight: name.parse().unwrap(),
                },
            },
            "remove" => Edit::Remove { id },
            "lose" => Edit::RemoveLost {
                id,
                keys_counted: Some(1_000),
            },
            other => panic!("no edit {other}"),
        };
        self.record = Rc::new(self.record.stage(edit).unwrap());
    }

    pub(crate) fn apply(&mut self) {
        let expected = self.record.epoch();
        let id = "change-1".parse().unwrap();
        let nonce = self.nonce();
        let apply = Apply {
            expected,
            id,
            now_ms: 0,
            nonces: &mut || nonce,
        };
        self.record = Rc::new(self.record.apply(apply).unwrap());
    }

    pub(crate) fn nonce(&mut self) -> Nonce {
        self.nonces += 1;
        Nonce::new([self.nonces; 16])
    }

    pub(crate) fn handoffs(&self) -> Vec<HandoffId> {
        let change = self.record.change();
        change.map_or_else(Vec::new, |change| {
            change.handoffs.iter().map(|handoff| handoff.id()).collect()
        })
    }

    pub(crate) fn entry(&self, id: &HandoffId) -> Option<Entry> {
        Entry::of(&self.record, id)
    }

    pub(crate) fn commit(
        &mut self,
        id: &HandoffId,
        step: &Step,
        now_ms: u64,
    ) -> Result<Epoch, StepError> {
        self.record = Rc::new(self.record.step(id, step, now_ms)?);
        Ok(self.record.epoch())
    }

    /// Aborts the change, unless a lost node's part has flipped.
    pub(crate) fn turn_back(&mut self, now_ms: u64) {
        match self.record.abort(now_ms) {
            Ok(record) => self.record = Rc::new(record),
            Err(error) => assert!(matches!(error, AbortError::NodeLost { .. }), "{error}"),
        }
    }

    pub(crate) fn end(&mut self, now_ms: u64) {
        self.record = Rc::new(self.record.end_change(now_ms).unwrap());
    }

    pub(crate) fn restart(&mut self, node: &str) {
        *self.runs.entry(node.to_string()).or_insert(1) += 1;
    }

    /// `a1` is the first run of a.
    pub(crate) fn identity(&self, node: &str) -> Identity {
        let run = self.runs.get(node).copied().unwrap_or(1);
        identity_of(&format!("{node}{run}"))
    }

    pub(crate) fn source_and_targets(&self, id: &HandoffId) -> (String, Vec<String>) {
        let handoff = self.record.change().unwrap().handoff(id).unwrap();
        let targets = handoff.targets.iter().map(ToString::to_string).collect();
        (handoff.source.to_string(), targets)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("epoch {}", self.record.epoch());
        match self.record.change() {
            None => {
                let nodes: Vec<&str> = self
                    .record
                    .membership()
                    .nodes
                    .iter()
                    .map(|node| node.id.as_str())
                    .collect();
                writeln!(text, ", at rest: {}", nodes.join(" ")).unwrap();
            }
            Some(change) => {
                text.push_str(if change.direction == Direction::Back {
                    ", going back\n"
                } else {
                    "\n"
                });
                for handoff in &change.handoffs {
                    let targets: Vec<&str> = handoff
                        .targets
                        .iter()
                        .map(|target| target.as_str())
                        .collect();
                    let generation = self.record.node(&handoff.source).unwrap().generation;
                    write!(
                        text,
                        "{} -> {}: {}",
                        name(&handoff.id()),
                        targets.join(" "),
                        handoff.state
                    )
                    .unwrap();
                    write!(text, ", source at generation {generation}").unwrap();
                    for flip in &handoff.flip {
                        write!(text, ", to {}", flip.incarnation.run_id).unwrap();
                    }
                    text.push('\n');
                }
            }
        }
        text
    }
}

fn address(port: usize) -> clockwise_cluster::Address {
    format!("127.0.0.1:700{port}").parse().unwrap()
}

/// The identity of a run: `a2` is the second one of a.
pub(crate) fn identity_of(run: &str) -> Identity {
    let incarnation = Incarnation {
        run_id: run.parse().unwrap(),
        replication_id: format!("data-{run}").parse().unwrap(),
    };
    Identity {
        incarnation,
        primary: true,
    }
}

/// The source's name; with an apostrophe where it gives back.
pub(crate) fn name(id: &HandoffId) -> String {
    format!("{}{}", id.source, if id.reverse { "'" } else { "" })
}
