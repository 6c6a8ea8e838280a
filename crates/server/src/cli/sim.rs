//! `sim`: rounds of joins, leaves, new weights and lost domains, over several placements side by side. Offline.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clockwise_placement::{Algorithm, Edit, Member, NodeId, Placement, Weight, diff, measure_keys};
use serde::{Deserialize, Serialize};

use super::algorithms::{Name, Rules, SchemeName};
use super::exit::{Exit, Failure};
use super::measured::{Losses, hints};
use super::output::{self, Format, percent};
use super::svg::{self, Chart, Series};

/// What to go through.
#[derive(Debug, clap::Args)]
#[command(after_help = "A scenario is a TOML file; docs/placement.md has one.")]
pub(super) struct Args {
    /// The scenario.
    scenario: PathBuf,
    /// Draw movement and load per round into this file.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    /// Keys that are placed in every round.
    #[serde(default = "keys_default")]
    keys: u32,
    /// For placements that have replicas.
    #[serde(default = "one")]
    replicas: u8,
    placements: Vec<Contender>,
    nodes: Vec<Node>,
    rounds: Vec<Round>,
}

fn keys_default() -> u32 {
    100_000
}

fn one() -> u8 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contender {
    algorithm: Name,
    /// The algorithm's name unless given.
    name: Option<String>,
    #[serde(default)]
    scheme: SchemeName,
    points: Option<u32>,
    slots: Option<usize>,
    table: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    id: String,
    weight: Option<toml::Value>,
    #[serde(default)]
    domain: String,
}

/// What happens at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Round {
    #[serde(default)]
    join: Vec<Node>,
    #[serde(default)]
    leave: Vec<String>,
    #[serde(default)]
    reweight: BTreeMap<String, toml::Value>,
    /// A domain whose nodes all leave.
    lose: Option<String>,
}

/// What came out, with the names that scripts rely on.
#[derive(Debug, Serialize)]
struct Outcome {
    keys: u32,
    placements: Vec<Course>,
}

#[derive(Debug, Serialize)]
struct Course {
    name: String,
    algorithm: Name,
    /// The first one is the state before any round.
    rounds: Vec<State>,
    /// Why it could not go on.
    refused: Option<String>,
}

#[derive(Debug, Serialize)]
struct State {
    nodes: usize,
    moved: u64,
    needless: u64,
    moved_share: f64,
    /// The least that had to move and what did, in parts of the key space with every copy counted.
    copies: Option<f64>,
    copies_least: Option<f64>,
    max_over_mean: f64,
    /// The same of copies, and the best of it that weights and failure domains allow, where it was planned for.
    copies_max_over_mean: Option<f64>,
    optimum_over_mean: Option<f64>,
    /// Why planned slots are not even, and which newcomers do not help.
    hints: Vec<String>,
    worst_loss_over_mean: Option<f64>,
    /// The part of the keys whose replicas are all in different outermost domains.
    distinct_share: Option<f64>,
}

pub(super) fn run(args: &Args, format: Format) -> Result<Exit, Failure> {
    let outcome = Scenario::read(&args.scenario)?.play()?;
    if let Some(path) = &args.plot {
        svg::write(path, &outcome.charts())?;
    }
    match format {
        Format::Json => output::json("Sim", None, &outcome)?,
        Format::Table => output::line(&outcome.table())?,
    }
    Ok(Exit::Done)
}

fn usage(words: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, words)
}

impl Scenario {
    fn read(path: &Path) -> Result<Self, Failure> {
        let fault = |words: String| usage(format!("{}: {words}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
        let scenario: Self = toml::from_str(&text).map_err(|error| fault(error.to_string()))?;
        if scenario.placements.is_empty() {
            return Err(fault("placements: there is nothing to compare".to_owned()));
        }
        if scenario.keys == 0 {
            return Err(fault("keys: 0 keys tell nothing".to_owned()));
        }
        Ok(scenario)
    }

    fn play(&self) -> Result<Outcome, Failure> {
        let first = self
            .nodes
            .iter()
            .map(Node::member)
            .collect::<Result<Vec<_>, _>>()?;
        let play = |contender: &Contender| self.play_one(contender, &first);
        Ok(Outcome {
            keys: self.keys,
            placements: self.placements.iter().map(play).collect::<Result<_, _>>()?,
        })
    }

    fn play_one(&self, contender: &Contender, first: &[Member]) -> Result<Course, Failure> {
        let rules = Rules {
            algorithm: contender.algorithm,
            scheme: contender.scheme,
            points: contender
                .points
                .unwrap_or(clockwise_placement::POINTS_PER_WEIGHT),
            slots: contender.slots.unwrap_or(Rules::SLOTS),
            table: contender.table,
            replicas: self.replicas,
        };
        let mut now = rules.build(first.to_vec()).map_err(usage)?;
        let mut course = Course {
            name: contender
                .name
                .clone()
                .unwrap_or_else(|| now.name().to_owned()),
            algorithm: contender.algorithm,
            rounds: vec![self.state(&rules, &*now, &*now)],
            refused: None,
        };
        for (number, round) in (1..).zip(&self.rounds) {
            let edits = round.edits(now.nodes())?;
            match rules.change(&*now, &edits) {
                Ok(next) => {
                    course.rounds.push(self.state(&rules, &*now, &*next));
                    now = next;
                }
                Err(error) => {
                    course.refused = Some(format!("round {number}: {error}"));
                    break;
                }
            }
        }
        Ok(course)
    }

    fn state(&self, rules: &Rules, before: &dyn Algorithm, now: &dyn Algorithm) -> State {
        let keys = || (0..self.keys).map(|number| format!("user:{number}"));
        let moves = measure_keys(before, Some(now), keys())
            .moves
            .unwrap_or_default();
        let placement = now.intervals();
        let movement = before.intervals().zip(placement);
        let movement = movement.and_then(|(before, now)| Some(diff(before, now).ok()?.movement()));
        let losses = Losses::of(now, rules.algorithm, keys());
        State {
            nodes: now.nodes().len(),
            moved: moves.moved,
            needless: moves.needless,
            moved_share: moves.moved as f64 / f64::from(self.keys),
            copies: movement.as_ref().map(|movement| movement.copies_share()),
            copies_least: movement.as_ref().map(|movement| movement.least_share()),
            max_over_mean: match placement.map(Placement::balance) {
                Some(balance) => balance.max_over_mean,
                None => measure_keys(now, None, keys()).max_over_mean,
            },
            copies_max_over_mean: placement
                .map(|placement| placement.balance_of_copies().max_over_mean),
            optimum_over_mean: now.slots_plan().map(|plan| plan.optimum_over_mean),
            hints: hints(now),
            worst_loss_over_mean: losses.worst_over_mean(),
            distinct_share: placement
                .filter(|placement| placement.replicas_placed() > 1)
                .and_then(|placement| {
                    placement
                        .dispersion()
                        .first()
                        .map(|level| level.distinct_share)
                }),
        }
    }
}

fn weight(of: &str, value: &toml::Value) -> Result<Weight, Failure> {
    let text = match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(whole) => whole.to_string(),
        toml::Value::Float(number) => number.to_string(),
        other => {
            return Err(usage(format!(
                "node {of}: weight is a {}",
                other.type_str()
            )));
        }
    };
    text.parse()
        .map_err(|error| usage(format!("node {of}: {error}")))
}

fn id(text: &str) -> Result<NodeId, Failure> {
    text.parse()
        .map_err(|error| usage(format!("{text:?}: {error}")))
}

impl Node {
    fn member(&self) -> Result<Member, Failure> {
        let weight = self
            .weight
            .as_ref()
            .map(|value| weight(&self.id, value))
            .transpose()?;
        let domain = self.domain.parse();
        let domain = domain.map_err(|error| usage(format!("node {}: {error}", self.id)))?;
        Ok(Member::new(id(&self.id)?)
            .with_weight(weight.unwrap_or_default())
            .with_domain(domain))
    }
}

impl Round {
    fn edits(&self, members: &[Member]) -> Result<Vec<Edit>, Failure> {
        let mut edits = Vec::new();
        for node in &self.join {
            edits.push(Edit::Join(node.member()?));
        }
        for name in &self.leave {
            edits.push(Edit::Leave(id(name)?));
        }
        for (name, value) in &self.reweight {
            edits.push(Edit::Reweight(id(name)?, weight(name, value)?));
        }
        if let Some(domain) = &self.lose {
            let lost = |member: &&Member| {
                let rest = member.domain.as_str().strip_prefix(domain.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            // The last first, as numbered nodes can go in that order only.
            let lost: Vec<_> = members.iter().rev().filter(lost).collect();
            if lost.is_empty() {
                return Err(usage(format!("lose: no node is in {domain:?}")));
            }
            edits.extend(
                lost.into_iter()
                    .map(|member| Edit::Leave(member.id.clone())),
            );
        }
        Ok(edits)
    }
}

impl Outcome {
    fn table(&self) -> String {
        let figure =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
        let share = |value: Option<f64>| value.map_or("-".to_owned(), percent);
        let mut rows = Vec::new();
        for course in &self.placements {
            for (number, state) in course.rounds.iter().enumerate() {
                rows.push(vec![
                    course.name.clone(),
                    number.to_string(),
                    state.nodes.to_string(),
                    percent(state.moved_share),
                    percent(state.needless as f64 / f64::from(self.keys)),
                    share(state.copies),
                    share(state.copies_least),
                    figure(Some(state.max_over_mean)),
                    figure(state.copies_max_over_mean),
                    figure(state.optimum_over_mean),
                    figure(state.worst_loss_over_mean),
                    share(state.distinct_share),
                ]);
            }
        }
        let header = [
            "placement",
            "round",
            "nodes",
            "moved",
            "needless",
            "copies",
            "least",
            "max/mean",
            "of copies",
            "optimum",
            "a loss",
            "dispersed",
        ];
        let mut text = output::table(&header, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], rows);
        for course in &self.placements {
            for (number, state) in course.rounds.iter().enumerate() {
                for hint in &state.hints {
                    text.push_str(&format!("\n{}, round {number}: {hint}", course.name));
                }
            }
            if let Some(refused) = &course.refused {
                text.push_str(&format!("\n{} stops in {refused}", course.name));
            }
        }
        text
    }

    fn charts(&self) -> [Chart; 2] {
        let rounds = self
            .placements
            .iter()
            .map(|course| course.rounds.len())
            .max()
            .unwrap_or(0);
        let chart = |title: &str, reference, value: fn(&State) -> f64| Chart {
            title: title.to_owned(),
            groups: (0..rounds).map(|round| format!("round {round}")).collect(),
            series: self
                .placements
                .iter()
                .map(|course| Series {
                    name: course.name.clone(),
                    values: (0..rounds)
                        .map(|round| course.rounds.get(round).map(value))
                        .collect(),
                })
                .collect(),
            reference,
        };
        [
            chart("keys moved in each round, in per cent", None, |state| {
                100.0 * state.moved_share
            }),
            chart(
                "load of the most loaded node over the mean",
                Some(1.0),
                |state| state.max_over_mean,
            ),
        ]
    }
}
