//! I1: whoever is answered sees what the last executed write left; at rest the owner has it.

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::server::Value;
use super::super::truth::Truth;

/// See the module.
pub(super) struct NoWriteLost;

impl Invariant for NoWriteLost {
    fn name(&self) -> &'static str {
        "I1 no write is lost"
    }

    fn see(&mut self, fact: &Fact, truth: &Truth, _: Micros) -> Result<(), String> {
        match fact {
            Fact::Executed(done) if !done.either && done.expected.is_some() => {
                let write = |value: Option<Value>| value.map(|value| (value.write, value.count));
                if write(done.seen) == write(done.expected) {
                    return Ok(());
                }
                Err(format!(
                    "{} at n{} is {:?}, the last write left {:?}",
                    done.key.name(),
                    done.node,
                    write(done.seen),
                    write(done.expected)
                ))
            }
            Fact::Rest(rest) => {
                for (key, value) in truth.keys() {
                    if truth.is_excused(key) || Truth::may_have_expired(Some(value), rest.now_ms) {
                        continue;
                    }
                    let owner = truth.owner(key);
                    let found = rest.held[owner].iter().find(|(held, _)| *held == key);
                    if found.is_none_or(|(_, found)| found.write != value.write) {
                        return Err(format!(
                            "at rest {} is not at its owner n{owner}",
                            key.name()
                        ));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
