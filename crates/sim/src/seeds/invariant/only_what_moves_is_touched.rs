//! I8: a move changes keys whose owner changes, and no others.

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;

/// See the module.
pub(super) struct OnlyWhatMovesIsTouched;

impl Invariant for OnlyWhatMovesIsTouched {
    fn name(&self) -> &'static str {
        "I8 only what moves is touched"
    }

    fn see(&mut self, fact: &Fact, truth: &Truth, _: Micros) -> Result<(), String> {
        let Fact::Moved(moved) = fact else {
            return Ok(());
        };
        // Late effects of a change that ended meanwhile find nothing, or are somebody else's concern.
        let view = &truth.view;
        if truth.record.change().is_none() {
            return match moved.before == moved.after {
                true => Ok(()),
                false => Err(format!(
                    "{} changed at n{} while nothing moves",
                    moved.key.name(),
                    moved.node
                )),
            };
        }
        let moves = view.moving(view.position(moved.key.as_ref()));
        let stray = moved.after.is_none() && truth.owner(moved.key) != moved.node;
        if moves.is_some() || stray || moved.before == moved.after {
            return Ok(());
        }
        Err(format!(
            "{} changed at n{}, and it does not move",
            moved.key.name(),
            moved.node
        ))
    }
}
