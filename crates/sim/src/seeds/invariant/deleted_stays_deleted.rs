//! I6: no copy, retry or return of a node brings back what was deleted.

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;

/// See the module.
pub(super) struct DeletedStaysDeleted;

impl Invariant for DeletedStaysDeleted {
    fn name(&self) -> &'static str {
        "I6 what was deleted stays deleted"
    }

    fn see(&mut self, fact: &Fact, truth: &Truth, _: Micros) -> Result<(), String> {
        match fact {
            Fact::Executed(done)
                if !done.either && done.expected.is_none() && done.seen.is_some() =>
            {
                Err(format!(
                    "{} is back at n{} after its deletion",
                    done.key.name(),
                    done.node
                ))
            }
            Fact::Rest(rest) => {
                for (node, held) in rest.held.iter().enumerate() {
                    for (key, value) in held {
                        let wrong = truth.value(*key).is_none() && truth.owner(*key) == node;
                        let excused = truth.is_excused(*key)
                            || Truth::may_have_expired(Some(*value), rest.now_ms);
                        if wrong && !excused {
                            return Err(format!(
                                "at rest deleted {} is at its owner n{node}",
                                key.name()
                            ));
                        }
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
