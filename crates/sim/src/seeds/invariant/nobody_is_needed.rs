//! I7: with every fault over, the change in flight comes to its end; no copy is left behind.
//!
//! Two kinds of leftovers are allowed. A restart that loses the last second may bring copies back that had been
//! removed; and a node that leaves and cannot be reached keeps what it had, also when it joins again. Nobody is
//! routed to either, and what a node becomes the owner of is swept there first.

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;
use super::super::truth::name_of;

/// See the module.
pub(super) struct NobodyIsNeeded;

impl Invariant for NobodyIsNeeded {
    fn name(&self) -> &'static str {
        "I7 it ends without a person"
    }

    fn see(&mut self, fact: &Fact, truth: &Truth, _: Micros) -> Result<(), String> {
        let Fact::Rest(rest) = fact else {
            return Ok(());
        };
        if let Some(why) = &rest.unfinished {
            return Err(format!("the change does not end: {why}"));
        }
        for (node, held) in rest.held.iter().enumerate() {
            let in_pool = truth
                .record
                .node(&name_of(node).parse().expect("a plain name"))
                .is_some();
            let stray = held.iter().find(|(key, _)| truth.owner(*key) != node);
            if let (true, false, Some((key, _))) = (in_pool, rest.leftovers[node], stray) {
                return Err(format!("at rest n{node} still has {}", key.name()));
            }
        }
        Ok(())
    }
}
