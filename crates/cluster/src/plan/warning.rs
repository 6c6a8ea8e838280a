//! What a person should know before applying a plan that nothing forbids.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use clockwise_placement::{Hint, NodeId};
use serde::Serialize;

use super::{Basis, Fate, Plan};
use crate::generator::Outlook;
use crate::{Address, Edit, Generator, as_text};

/// A node whose load is above this over its fair part is named: the next one to run full.
const OVER_MEAN_MAX: f64 = 1.5;

/// What a person should know.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// The most loaded node keeps all it has: a node that joins does not help where help is needed.
    CannotHelp {
        /// Who joins.
        #[serde(serialize_with = "as_text::serialize")]
        node: NodeId,
        /// Who stays as loaded as it is.
        #[serde(serialize_with = "as_text::serialize")]
        loaded: NodeId,
    },
    /// A newcomer without which the most loaded node would have no more, as the planning of slots shows.
    NoRelief {
        /// Who joins.
        #[serde(serialize_with = "as_text::serialize")]
        node: NodeId,
    },
    /// A failure domain holds all copies that the spread allows there: more nodes in it relieve only each other.
    DomainFull {
        /// Its path.
        domain: String,
        /// How many copies of every key it holds.
        copies: u64,
    },
    /// A failure domain must hold more copies than its weights ask for, since there are too few others.
    DomainStrained {
        /// Its path.
        domain: String,
        /// How many copies of every key it holds.
        copies: u64,
    },
    /// A member owns nothing.
    OwnsNothing {
        /// Which.
        #[serde(serialize_with = "as_text::serialize")]
        node: NodeId,
    },
    /// Fewer nodes than replicas.
    TooFewNodes {
        /// How many replicas have no node.
        missing: u8,
    },
    /// Replicas share a failure domain.
    TooFewDomains {
        /// The level, 1 for the outermost.
        level: u64,
        /// How many replicas share a domain with another.
        missing: u8,
    },
    /// A node owns much more than its weight asks for.
    Uneven {
        /// Which.
        #[serde(serialize_with = "as_text::serialize")]
        node: NodeId,
        /// What it owns over its fair part.
        over_mean: f64,
        /// What evens it out.
        remedy: Remedy,
    },
    /// More moves than a step may, for these reasons, each with its part of all copies.
    BeyondStep {
        /// What a step may move, in per cent of all copies.
        step_percent: u8,
        /// Slots of nodes that leave.
        leaving: f64,
        /// Parts of slots of which other nodes hold the longest: a slot has one list of owners.
        unaligned: f64,
        /// Further copies of every key.
        further: f64,
        /// Slots whose copies share a failure domain and must not.
        crowded: f64,
        /// A single slot, where a step may move less than that.
        slot: f64,
    },
    /// A node holds many more copies than its weight asks for, since its failure domain has few nodes.
    SmallDomain {
        /// Which.
        #[serde(serialize_with = "as_text::serialize")]
        node: NodeId,
        /// Its copies over its fair part.
        over_mean: f64,
    },
    /// If a node were lost, all it has would fall to one other.
    OneHeir {
        /// The node.
        #[serde(serialize_with = "as_text::serialize")]
        node: NodeId,
        /// Who would get all of it.
        #[serde(serialize_with = "as_text::serialize")]
        heir: NodeId,
        /// The heir's load then, over its fair part.
        over_mean: f64,
    },
    /// A lost node's keys are gone for good.
    DataLost {
        /// The node.
        #[serde(serialize_with = "as_text::serialize")]
        node: NodeId,
        /// Its keys when they were last counted, if they were.
        keys: Option<u64>,
    },
    /// Nothing is copied to a new address: the server there must be the same one, with its data.
    SameServerExpected {
        /// The node.
        #[serde(serialize_with = "as_text::serialize")]
        node: NodeId,
        /// Where it will be looked for.
        address: Address,
    },
    /// Nothing is copied: what moves is missing at its new owner until clients put it there.
    Misses {
        /// The part of all keys, and so of requests if all were asked for alike.
        share: f64,
        /// Keys, if somebody has counted.
        #[serde(skip_serializing_if = "Option::is_none")]
        keys: Option<u64>,
    },
    /// Most of the keys move.
    MostKeysMove {
        /// The part of all keys.
        share: f64,
    },
    /// The shares are not exact.
    Estimated {
        /// How they were come by.
        basis: Basis,
    },
}

/// What evens out a node that owns too much.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Remedy {
    /// More points, on a ring.
    Points,
    /// More slots.
    Slots,
    /// The steps that are left of a change of slots.
    Steps,
}

impl Remedy {
    fn of(plan: &Plan) -> Self {
        match plan.generator {
            Generator::Ring { .. } => Self::Points,
            Generator::Slots { .. } if plan.is_amid_steps() => Self::Steps,
            Generator::Slots { .. } => Self::Slots,
        }
    }
}

impl Plan {
    /// Whether more has to move after this change, which goes in steps.
    fn is_amid_steps(&self) -> bool {
        self.slots.is_some_and(|slots| slots.copies_left > 0.0)
    }
}

pub(super) fn warnings<'a>(
    plan: &Plan,
    edits: impl Iterator<Item = &'a Edit>,
    outlook: Option<&Outlook>,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    about_edits(edits, &mut warnings);
    about_moves(plan, &mut warnings);
    if let Some(outlook) = outlook {
        about_step(outlook, &mut warnings);
        about_slots(&outlook.hints, &mut warnings);
    }
    about_spread(plan, &mut warnings);
    about_balance(plan, &mut warnings);
    warnings
}

fn about_edits<'a>(edits: impl Iterator<Item = &'a Edit>, warnings: &mut Vec<Warning>) {
    for edit in edits {
        match edit {
            Edit::RemoveLost { id, keys_counted } => {
                warnings.push(Warning::DataLost {
                    node: id.clone(),
                    keys: *keys_counted,
                });
            }
            Edit::SetAddress { id, address } => warnings.push(Warning::SameServerExpected {
                node: id.clone(),
                address: address.clone(),
            }),
            _ => {}
        }
    }
}

/// What a change costs where nothing is copied.
pub(super) fn about_misses(plan: &mut Plan) {
    let (share, keys) = (plan.moves.share, plan.moves.keys);
    if !plan.at_once {
        plan.warnings.push(Warning::Misses { share, keys });
    }
}

fn about_moves(plan: &Plan, warnings: &mut Vec<Warning>) {
    let moves = &plan.moves;
    if moves.basis != Basis::Exact {
        warnings.push(Warning::Estimated { basis: moves.basis });
    }
    if moves.share > 0.5 {
        warnings.push(Warning::MostKeysMove { share: moves.share });
    }
    if plan.is_amid_steps() {
        // A later step may relieve those whom this one passes over.
        return;
    }
    if plan
        .nodes
        .iter()
        .any(|node| !matches!(node.fate, Fate::Stays | Fate::Joins))
    {
        // A newcomer takes the part of one that goes, and with it from those who would else have to.
        return;
    }
    let loaded = plan.nodes.iter().filter(|node| node.fate == Fate::Stays);
    let loaded = loaded.max_by(|a, b| a.over_mean_before.total_cmp(&b.over_mean_before));
    // Less by a thousandth would be no relief either.
    let Some(loaded) = loaded.filter(|node| node.copies_after > node.copies_before * 0.999) else {
        return;
    };
    for node in plan.nodes.iter().filter(|node| node.fate == Fate::Joins) {
        warnings.push(Warning::CannotHelp {
            node: node.id.clone(),
            loaded: loaded.id.clone(),
        });
    }
}

fn about_step(outlook: &Outlook, warnings: &mut Vec<Warning>) {
    let (step_percent, why) = (outlook.step_percent, outlook.unavoidable);
    // No part of a slot is so small that this would hide it.
    if why.total() > f64::from(step_percent) / 100.0 + 1e-9 {
        warnings.push(Warning::BeyondStep {
            step_percent,
            leaving: why.leaving,
            unaligned: why.unaligned,
            further: why.further,
            crowded: why.crowded,
            slot: why.slot,
        });
    }
}

/// What the planning of slots has shown, unless it is said already.
fn about_slots(hints: &[Hint], warnings: &mut Vec<Warning>) {
    for hint in hints {
        let warning = match hint.clone() {
            Hint::NoRelief { node } => Warning::NoRelief { node },
            Hint::DomainFull { domain, copies } => Warning::DomainFull { domain, copies },
            Hint::DomainStrained { domain, copies } => Warning::DomainStrained { domain, copies },
            _ => continue,
        };
        let helpless = |said: &Warning| match (said, &warning) {
            (Warning::CannotHelp { node: said, .. }, Warning::NoRelief { node }) => said == node,
            _ => false,
        };
        if !warnings.iter().any(helpless) {
            warnings.push(warning);
        }
    }
}

fn about_spread(plan: &Plan, warnings: &mut Vec<Warning>) {
    let missing = &plan.shortfall_after;
    if missing.nodes > 0 {
        warnings.push(Warning::TooFewNodes {
            missing: missing.nodes,
        });
    }
    for (level, &missing) in (1..).zip(&missing.domains) {
        if missing > 0 {
            warnings.push(Warning::TooFewDomains { level, missing });
        }
    }
}

fn about_balance(plan: &Plan, warnings: &mut Vec<Warning>) {
    let there = |fate: Fate| matches!(fate, Fate::Joins | Fate::Stays);
    let members = || plan.nodes.iter().filter(|node| there(node.fate));
    for node in members() {
        if node.share_after == 0.0 {
            warnings.push(Warning::OwnsNothing {
                node: node.id.clone(),
            });
        } else if node.over_mean_after > OVER_MEAN_MAX {
            let (node, over_mean) = (node.id.clone(), node.over_mean_after);
            // Where first owners are even, it is the spread of the further copies that is not.
            let by_spread = plan.replicas > 1 && plan.balance_after.max_over_mean <= OVER_MEAN_MAX;
            warnings.push(match by_spread {
                true => Warning::SmallDomain { node, over_mean },
                false => Warning::Uneven {
                    node,
                    over_mean,
                    remedy: Remedy::of(plan),
                },
            });
        }
    }
    if members().count() < 3 {
        return;
    }
    for loss in plan.losses.iter().filter(|loss| loss.heirs == 1) {
        if let Some(heir) = &loss.worst {
            warnings.push(Warning::OneHeir {
                node: loss.node.clone(),
                heir: heir.clone(),
                over_mean: loss.worst_over_mean,
            });
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Points => "more points would even it out",
            Self::Slots => "more slots would even it out",
            Self::Steps => "the steps that are left even it out",
        })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotHelp { node, loaded } => {
                write!(
                    f,
                    "{node} does not help: {loaded}, the most loaded node, keeps all it has"
                )
            }
            Self::NoRelief { node } => Hint::NoRelief { node: node.clone() }.fmt(f),
            Self::DomainFull { domain, copies } => {
                let (domain, copies) = (domain.clone(), *copies);
                Hint::DomainFull { domain, copies }.fmt(f)
            }
            Self::DomainStrained { domain, copies } => {
                let (domain, copies) = (domain.clone(), *copies);
                Hint::DomainStrained { domain, copies }.fmt(f)
            }
            Self::OwnsNothing { node } => write!(f, "{node} owns nothing"),
            Self::TooFewNodes { missing } => {
                write!(f, "nodes: {missing} too few for the replicas")
            }
            Self::TooFewDomains { level, missing } => {
                write!(
                    f,
                    "failure domains of level {level}: {missing} too few for the replicas"
                )
            }
            Self::Uneven {
                node,
                over_mean,
                remedy,
            } => {
                write!(f, "{node} has {over_mean:.2} times its fair part: {remedy}")
            }
            Self::BeyondStep {
                step_percent,
                leaving,
                unaligned,
                further,
                crowded,
                slot,
            } => {
                let reasons = [
                    (leaving, "in slots of nodes that leave"),
                    (
                        unaligned,
                        "of slots that several nodes share now, where a slot has one list of owners (more slots, less of it)",
                    ),
                    (further, "as further copies of every key"),
                    (crowded, "out of failure domains that copies must not share"),
                    (slot, "as the one slot that a step moves at least"),
                ];
                let total: f64 = reasons.iter().map(|(part, _)| **part).sum();
                write!(
                    f,
                    "{:.1} % of the copies move, although a step is {step_percent} %",
                    total * 100.0
                )?;
                let mut separator = ": ";
                for (part, reason) in reasons.iter().filter(|(part, _)| **part > 0.0) {
                    write!(f, "{separator}{:.1} % {reason}", *part * 100.0)?;
                    separator = ", ";
                }
                Ok(())
            }
            Self::SmallDomain { node, over_mean } => write!(
                f,
                "{node} holds {over_mean:.2} times its fair part of the copies: its failure domain has \
                 few nodes"
            ),
            Self::OneHeir {
                node,
                heir,
                over_mean,
            } => write!(
                f,
                "if {node} were lost, all of it would fall to one node; {heir} would be at {over_mean:.2} \
                 times its fair part"
            ),
            Self::DataLost {
                node,
                keys: Some(keys),
            } => write!(
                f,
                "{keys} keys of {node}, as last counted, are gone for good"
            ),
            Self::DataLost { node, keys: None } => {
                write!(
                    f,
                    "all keys of {node} are gone for good; nobody has counted them"
                )
            }
            Self::SameServerExpected { node, address } => {
                write!(
                    f,
                    "nothing is copied: the server at {address} must be {node} with its data"
                )
            }
            Self::Misses { share, keys } => {
                write!(f, "nothing is copied: {:.1} % of all keys", share * 100.0)?;
                if let Some(keys) = keys {
                    write!(f, ", {keys} now,")?;
                }
                f.write_str(" are missing at their new owners until clients put them there")
            }
            Self::MostKeysMove { share } => write!(f, "{:.1} % of all keys move", share * 100.0),
            Self::Estimated {
                basis: Basis::Sampled { keys },
            } => write!(
                f,
                "every key gets a new position: shares are estimated from {keys} made-up keys"
            ),
            Self::Estimated { .. } => f.write_str(
                "only keys with a hash tag move: shares are what it would be if all had one",
            ),
        }
    }
}
