//! I12: what a process does for a move never lands at the node that owns the key; only the leader commits; a
//! term never ends what a higher one does at a node.

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
            // A loser that wakes up late would cut the leader off. No value is lost by that, the leader begins
            // again; but it would as often as the loser wakes up.
            Fact::Entered {
                term,
                node,
                highest_before: Some(highest),
                highest_after,
            } if highest > term && *highest_after != Some(*highest) => Err(format!(
                "term {term} ended the session of term {highest} at n{node}"
            )),
            _ => Ok(()),
        }
    }
}
