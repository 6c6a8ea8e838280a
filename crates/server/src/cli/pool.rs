//! Verbs about the pool as a whole: `pool set` stages another placement of its keys.

use clockwise_cluster::Edit;

use super::exit::{Exit, Failure};
use super::look::print_staged;
use super::output::Format;
use super::server::Target;
use crate::admin::answer::{Envelope, Status};
use crate::admin::call::StageCall;
use crate::up::placing::{Kind, Placing};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Pool {
    /// Stages another placement; what is not said stays as the pool has it.
    ///
    /// Where slots move in steps, the same once more asks for the next step.
    Set(SetArgs),
}

#[derive(Debug, clap::Args)]
#[group(id = "what", required = true, multiple = true, args = ["placement", "points", "slots", "overload", "step"])]
pub(super) struct SetArgs {
    /// How keys find their nodes.
    #[arg(long, value_enum)]
    placement: Option<Kind>,
    /// Points of a node of weight 1, on a ring.
    #[arg(long, value_name = "V", value_parser = clap::value_parser!(u32).range(1..))]
    points: Option<u32>,
    /// How many slots.
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    slots: Option<u32>,
    /// Per cent by which a node may be off its share when that saves moves, with slots.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    overload: Option<u8>,
    /// The most copies that one change may move, in per cent of all, with slots.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    step: Option<u8>,
    #[command(flatten)]
    pub(super) target: Target,
}

pub(super) fn set(args: &SetArgs, format: Format) -> Result<Exit, Failure> {
    let server = args.target.find()?;
    let Envelope { body: status, .. } = server.get("status", &[])?.parse::<Envelope<Status>>()?;
    let placing = args.placing(status.placement)?;
    let edit = Edit::SetGenerator {
        generator: placing.generator(),
    };
    print_staged(&server.post("stage", &StageCall::of(edit))?, format)
}

impl SetArgs {
    /// What is asked for, from what the pool has.
    fn placing(&self, present: Option<Placing>) -> Result<Placing, Failure> {
        let kind = self.placement.or(present.map(Placing::kind));
        let kind = kind.unwrap_or(Kind::Slots);
        let usual = Placing::usual(kind);
        let base = present.filter(|present| present.kind() == kind);
        let mut placing = base.unwrap_or(usual);
        let misplaced = match &mut placing {
            Placing::Ring { points_per_weight } => {
                *points_per_weight = self.points.unwrap_or(*points_per_weight);
                let given = [
                    ("--slots", self.slots.is_some()),
                    ("--overload", self.overload.is_some()),
                    ("--step", self.step.is_some()),
                ];
                given.into_iter().find(|(_, given)| *given)
            }
            Placing::Slots {
                slots,
                overload_percent,
                step_percent,
            } => {
                *slots = self.slots.unwrap_or(*slots);
                *overload_percent = self.overload.unwrap_or(*overload_percent);
                *step_percent = self.step.unwrap_or(*step_percent);
                Some(("--points", self.points.is_some())).filter(|(_, given)| *given)
            }
        };
        match misplaced {
            None => Ok(placing),
            Some((option, _)) => {
                let words = format!("{option} says nothing about a pool on {kind}");
                let other = other(kind);
                Err(
                    Failure::new(Exit::Usage, words).with_next(match self.placement {
                        None => format!("say the placement too: --placement {other}"),
                        Some(_) => format!("leave {option} out, or say --placement {other}"),
                    }),
                )
            }
        }
    }
}

const fn other(kind: Kind) -> Kind {
    match kind {
        Kind::Ring => Kind::Slots,
        Kind::Slots => Kind::Ring,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn args(placement: Option<Kind>) -> SetArgs {
        SetArgs {
            placement,
            points: None,
            slots: None,
            overload: None,
            step: None,
            target: Target {
                admin: None,
                dir: PathBuf::new(),
            },
        }
    }

    #[test]
    fn what_is_not_said_stays_as_the_pool_has_it() {
        let present = Placing::Slots {
            slots: 512,
            overload_percent: 3,
            step_percent: 10,
        };
        let same = args(Some(Kind::Slots)).placing(Some(present));
        assert_eq!(same.unwrap(), present);
        let asked = SetArgs {
            step: Some(20),
            ..args(None)
        };
        let expected = Placing::Slots {
            slots: 512,
            overload_percent: 3,
            step_percent: 20,
        };
        assert_eq!(asked.placing(Some(present)).unwrap(), expected);
        let ring = args(Some(Kind::Ring)).placing(Some(present)).unwrap();
        let points_per_weight = 200;
        assert_eq!(ring, Placing::Ring { points_per_weight });
    }

    #[test]
    fn a_number_that_the_placement_does_not_have_is_refused_by_its_name() {
        let ring = Placing::usual(Kind::Ring);
        let slots = SetArgs {
            slots: Some(64),
            ..args(None)
        };
        let refused = slots.placing(Some(ring)).unwrap_err();
        assert!(refused.to_string().contains("--slots"), "{refused}");
        let said = refused.next.expect("a way out");
        assert_eq!(said, "say the placement too: --placement slots");
        let points = SetArgs {
            points: Some(64),
            ..args(Some(Kind::Slots))
        };
        let refused = points.placing(Some(ring)).unwrap_err();
        assert!(refused.to_string().contains("--points"), "{refused}");
        let said = refused.next.expect("a way out");
        assert_eq!(said, "leave --points out, or say --placement ring");
    }
}
