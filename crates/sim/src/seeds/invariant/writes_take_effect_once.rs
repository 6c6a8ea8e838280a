//! I19: a write takes effect at most once. One that is sent again could undo what came between.
//!
//! The values cannot tell: a write that is executed twice is the last one twice.

use std::collections::BTreeSet;

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;

/// See the module.
#[derive(Default)]
pub(super) struct WritesTakeEffectOnce {
    executed: BTreeSet<u64>,
}

impl Invariant for WritesTakeEffectOnce {
    fn name(&self) -> &'static str {
        "I19 a write takes effect once"
    }

    fn see(&mut self, fact: &Fact, _: &Truth, _: Micros) -> Result<(), String> {
        match fact {
            Fact::Executed(done) => match done.write {
                Some(write) if !self.executed.insert(write) => Err(format!(
                    "write {write} of {} was executed again, at n{} under epoch {}",
                    done.key.name(),
                    done.node,
                    done.epoch
                )),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
