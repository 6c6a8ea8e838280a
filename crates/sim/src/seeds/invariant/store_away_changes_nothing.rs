//! I16: who cannot reach the store commits nothing; views stay as they were (I11 sees those that do not).

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;

/// See the module.
pub(super) struct StoreAwayChangesNothing;

impl Invariant for StoreAwayChangesNothing {
    fn name(&self) -> &'static str {
        "I16 a store that is away changes nothing"
    }

    fn see(&mut self, fact: &Fact, _: &Truth, _: Micros) -> Result<(), String> {
        match fact {
            Fact::StoreAway {
                process,
                committed: true,
            } => Err(format!(
                "process {process} committed to a store that it cannot reach"
            )),
            _ => Ok(()),
        }
    }
}
