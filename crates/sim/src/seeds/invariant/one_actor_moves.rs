//! I12: what a process does for a move never lands at the node that owns the key; only the leader commits.

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;

/// See the module.
pub(super) struct OneActorMoves;

impl Invariant for OneActorMoves {
    fn name(&self) -> &'static str {
        "I12 one actor moves"
    }

    fn see(&mut self, fact: &Fact, truth: &Truth, _: Micros) -> Result<(), String> {
        match fact {
            Fact::Moved(moved)
                if moved.before != moved.after && truth.owner(moved.key) == moved.node =>
            {
                Err(format!(
                    "term {} changed {} at n{} by {:?}, and n{} owns it",
                    moved.term,
                    moved.key.name(),
                    moved.node,
                    moved.why,
                    moved.node
                ))
            }
            Fact::Committed {
                term: Some(term),
                leading,
                ..
            } if *leading != Some(*term) => {
                Err(format!("term {term} committed while {leading:?} leads"))
            }
            _ => Ok(()),
        }
    }
}
