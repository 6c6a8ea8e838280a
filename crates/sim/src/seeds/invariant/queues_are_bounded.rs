//! I18: no more requests are held than the limit says.

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;

/// See the module.
pub(super) struct QueuesAreBounded;

impl Invariant for QueuesAreBounded {
    fn name(&self) -> &'static str {
        "I18 queues are bounded"
    }

    fn see(&mut self, fact: &Fact, _: &Truth, _: Micros) -> Result<(), String> {
        match fact {
            Fact::Queued {
                client,
                held,
                held_max,
            } if held > held_max => Err(format!(
                "client {client} holds {held} requests, {held_max} are allowed"
            )),
            _ => Ok(()),
        }
    }
}
