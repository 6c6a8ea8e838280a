//! I5: a value expires when its last write said, wherever it is; none gains or loses an expiry.

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;

/// See the module.
pub(super) struct ExpiryTravels;

impl Invariant for ExpiryTravels {
    fn name(&self) -> &'static str {
        "I5 expiry travels with the value"
    }

    fn see(&mut self, fact: &Fact, _: &Truth, _: Micros) -> Result<(), String> {
        let Fact::Executed(done) = fact else {
            return Ok(());
        };
        match (done.seen, done.expected) {
            (Some(seen), Some(expected))
                if !done.either
                    && seen.write == expected.write
                    && seen.expires_at_ms != expected.expires_at_ms =>
            {
                Err(format!(
                    "{} at n{} expires at {:?}, it was written to expire at {:?}",
                    done.key.name(),
                    done.node,
                    seen.expires_at_ms,
                    expected.expires_at_ms
                ))
            }
            _ => Ok(()),
        }
    }
}
