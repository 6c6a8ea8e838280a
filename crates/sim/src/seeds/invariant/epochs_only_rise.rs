//! I10, I11: epochs only rise, in the store and at every client; every view that somebody goes by was
//! published, and equal epochs mean equal fingerprints.

use std::collections::BTreeMap;

use clockwise_cluster::{Record, View};

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::truth::{Truth, fingerprint};

/// See the module.
#[derive(Default)]
pub(super) struct EpochsOnlyRise {
    adopted: BTreeMap<usize, u64>,
    generations: BTreeMap<String, (u64, String)>,
}

impl EpochsOnlyRise {
    /// A generation of a node is never used again with another credential.
    fn generations(&mut self, record: &Record) -> Result<(), String> {
        for node in &record.membership().nodes {
            let named = (node.generation.get(), node.nonce.to_string());
            let known = self
                .generations
                .entry(node.id.to_string())
                .or_insert_with(|| named.clone());
            if named.0 < known.0 || (named.0 == known.0 && named.1 != known.1) {
                return Err(format!("{} uses generation {} again", node.id, named.0));
            }
            *known = named;
        }
        Ok(())
    }
}

impl Invariant for EpochsOnlyRise {
    fn name(&self) -> &'static str {
        "I11 epochs only rise"
    }

    fn see(&mut self, fact: &Fact, truth: &Truth, _: Micros) -> Result<(), String> {
        match fact {
            Fact::Committed { before, after, .. } => {
                let (old, new) = (before.epoch(), after.epoch());
                if new < old {
                    return Err(format!("epoch {new} was committed after {old}"));
                }
                if new == old {
                    let print =
                        |record: &Record| View::from_record(record).map(|view| fingerprint(&view));
                    let named = |record: &Record| {
                        let nodes = record.membership().nodes.iter();
                        nodes
                            .map(|node| (node.generation, node.nonce))
                            .collect::<Vec<_>>()
                    };
                    if named(before) != named(after) || print(before) != print(after) {
                        return Err(format!("routers have to act otherwise within epoch {new}"));
                    }
                }
                self.generations(after)
            }
            Fact::Adopted {
                client,
                epoch,
                fingerprint,
            } => {
                let known = self.adopted.insert(*client, *epoch);
                if known.is_some_and(|known| known > *epoch) {
                    return Err(format!("client {client} went back to epoch {epoch}"));
                }
                match truth.published.get(epoch) {
                    Some(published) if published == fingerprint => Ok(()),
                    _ => Err(format!(
                        "client {client} goes by a view of epoch {epoch} that nobody published"
                    )),
                }
            }
            _ => Ok(()),
        }
    }
}
