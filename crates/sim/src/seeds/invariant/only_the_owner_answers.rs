//! I2: a request is executed by the node that owns its key by the committed record, and by no other.

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;

/// See the module.
pub(super) struct OnlyTheOwnerAnswers;

impl Invariant for OnlyTheOwnerAnswers {
    fn name(&self) -> &'static str {
        "I2 only the owner answers"
    }

    fn see(&mut self, fact: &Fact, truth: &Truth, _: Micros) -> Result<(), String> {
        let Fact::Executed(done) = fact else {
            return Ok(());
        };
        let owner = truth.owner(done.key);
        if owner == done.node {
            return Ok(());
        }
        Err(format!(
            "{} was answered by n{} under epoch {}; n{owner} owns it in epoch {}",
            done.key.name(),
            done.node,
            done.epoch,
            truth.record.epoch()
        ))
    }
}
