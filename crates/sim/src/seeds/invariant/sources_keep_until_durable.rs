//! I14: a copy at the source goes only when the new owner's would survive a restart.

use super::super::executor::Micros;
use super::super::fact::Why;
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;

/// See the module.
pub(super) struct SourcesKeepUntilDurable;

impl Invariant for SourcesKeepUntilDurable {
    fn name(&self) -> &'static str {
        "I14 sources keep until copies are durable"
    }

    fn see(&mut self, fact: &Fact, _: &Truth, _: Micros) -> Result<(), String> {
        match fact {
            Fact::Moved(moved)
                if moved.why == Why::Clean && moved.before.is_some() && moved.unsynced_at_owner =>
            {
                Err(format!(
                    "{} was removed from n{} before its new owner had it on disk",
                    moved.key.name(),
                    moved.node
                ))
            }
            _ => Ok(()),
        }
    }
}
