//! I13: a node that is another run than the one that became an owner answers for nothing it got then.

use super::super::executor::Micros;
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;
use super::super::truth::rank_of;
use clockwise_cluster::HandoffState;

/// See the module.
pub(super) struct RunsAreToldApart;

impl Invariant for RunsAreToldApart {
    fn name(&self) -> &'static str {
        "I13 runs are told apart"
    }

    fn see(&mut self, fact: &Fact, truth: &Truth, _: Micros) -> Result<(), String> {
        let Fact::Executed(done) = fact else {
            return Ok(());
        };
        let view = &truth.view;
        let Some(moving) = view.moving(view.position(done.key.as_ref())) else {
            return Ok(());
        };
        let change = truth.record.change().expect("something moves");
        let name = |index| view.node(index).id.clone();
        let (before, after) = (name(moving.before), name(moving.after));
        let handoff = match truth.owner(done.key) == rank_of(after.as_str()) {
            true => change.forward(&before),
            false => change.reverse(&after),
        };
        let uncleaned =
            |state: HandoffState| matches!(state, HandoffState::Flipped | HandoffState::Cleaning);
        let Some(handoff) = handoff.filter(|handoff| uncleaned(handoff.state)) else {
            return Ok(());
        };
        let gives_back = change.reverse(&after);
        if gives_back.is_some_and(|back| back.state != HandoffState::Planned)
            && !handoff.is_reverse()
        {
            return Ok(());
        }
        let mut flips = handoff.flip.iter();
        let flip = flips.find(|flip| rank_of(flip.target.as_str()) == done.node);
        let run = format!("r{}.{}", done.node, done.run);
        match flip {
            Some(flip) if flip.incarnation.run_id.as_str() != run => Err(format!(
                "{} was answered by {run}, and {} had become its owner",
                done.key.name(),
                flip.incarnation.run_id.as_str()
            )),
            _ => Ok(()),
        }
    }
}
