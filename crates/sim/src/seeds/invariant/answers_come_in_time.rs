//! I4: every request ends, answered or refused or unknown, within what its waits add up to; none is left.

use super::super::executor::MS;
use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;

/// A hold, a wait for a connection, an answer that does not come, and the same once more when it is repeated.
const TOOK_MAX: Micros = 8_000 * MS;

/// See the module.
pub(super) struct AnswersComeInTime;

impl Invariant for AnswersComeInTime {
    fn name(&self) -> &'static str {
        "I4 every request ends in time"
    }

    fn see(&mut self, fact: &Fact, _: &Truth, _: Micros) -> Result<(), String> {
        match fact {
            Fact::Ended { client, took } if *took > TOOK_MAX => Err(format!(
                "a request of client {client} took {} ms",
                took / MS
            )),
            Fact::Rest(rest) if rest.open > 0 => {
                Err(format!("{} requests never came to an end", rest.open))
            }
            _ => Ok(()),
        }
    }
}
