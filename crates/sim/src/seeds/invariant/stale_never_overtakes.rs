//! I3, I4: once a write was executed under a view, no write of a view that names another node before it is.
//!
//! It looks at requests alone and needs no record: two nodes that accept writes of a key by turns are seen
//! even if the record were wrong.

use std::collections::BTreeMap;

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::server::Key;
use super::super::truth::Truth;

/// See the module.
#[derive(Default)]
pub(super) struct StaleNeverOvertakes {
    // The highest epoch under which each key was written, and where.
    newest: BTreeMap<Key, (u64, usize)>,
}

impl Invariant for StaleNeverOvertakes {
    fn name(&self) -> &'static str {
        "I3 a stale view never overtakes a newer one"
    }

    fn see(&mut self, fact: &Fact, _: &Truth, _: Micros) -> Result<(), String> {
        let Fact::Executed(done) = fact else {
            return Ok(());
        };
        let newest = self
            .newest
            .entry(done.key)
            .or_insert((done.epoch, done.node));
        if done.node != newest.1 && done.epoch < newest.0 {
            return Err(format!(
                "{} was answered by n{} under epoch {} after n{} had answered under epoch {}",
                done.key.name(),
                done.node,
                done.epoch,
                newest.1,
                newest.0
            ));
        }
        if done.epoch >= newest.0 {
            *newest = (done.epoch, done.node);
        }
        Ok(())
    }
}
