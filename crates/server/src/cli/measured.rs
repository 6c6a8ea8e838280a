//! What `measure` found: the names that scripts rely on, a table for people, and a chart.

use std::collections::BTreeMap;
use std::fmt::Write;

use clockwise_placement::{
    Algorithm, Balance, KeyMeasure, Loss, Member, NodeId, Placement, diff, expected_cv,
    losses_by_keys,
};
use serde::Serialize;

use super::algorithms::{Name, Rules};
use super::output::{self, count, percent};
use super::svg::{Chart, Series};

/// A placement before a change and after it.
pub(super) struct Sides<'a> {
    pub(super) rules: &'a Rules,
    /// The nodes before, in the order in which they are numbered.
    pub(super) first: &'a [Member],
    pub(super) before: &'a dyn Algorithm,
    pub(super) after: &'a dyn Algorithm,
}

/// Fields are only ever added.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    algorithm: &'static str,
    scheme: String,
    points: Option<u32>,
    keys: u64,
    nodes_before: usize,
    nodes_after: usize,
    nodes: Vec<Load>,
    max_over_mean: f64,
    min_over_mean: f64,
    moved: u64,
    needless: u64,
    modulo_moved: u64,
    /// Why some nodes have no loss.
    loss_missing: Option<String>,
    /// Why planned slots are not even after the change, and which newcomers do not help.
    hints: Vec<String>,
    /// By the lengths of intervals; none where the algorithm has no intervals.
    exact: Option<Exact>,
    /// The same keys, asked for unequally.
    skewed: Skewed,
    /// What an aim would take, where one was given.
    plan: Option<Plan>,
}

/// What one node had before the change.
#[derive(Debug, Serialize)]
struct Load {
    id: String,
    weight: String,
    domain: String,
    keys: u64,
    share: f64,
    requests_share: f64,
    exact_share: Option<f64>,
    exact_over_mean: Option<f64>,
    copies_share: Option<f64>,
    /// None where the algorithm cannot be without this node.
    loss: Option<Lost>,
}

/// What it means to the others when this node is lost.
#[derive(Debug, Serialize)]
struct Lost {
    heirs: usize,
    worst: Option<String>,
    worst_over_mean: f64,
}

#[derive(Debug, Serialize)]
struct Exact {
    max_over_mean: f64,
    min_over_mean: f64,
    cv: f64,
    /// What chance gives equal nodes; only a ring is left to chance.
    expected_cv: Option<f64>,
    copies_max_over_mean: f64,
    /// The best of that which weights and failure domains allow; where it was planned for.
    optimum_over_mean: Option<f64>,
    domains: Vec<Domain>,
    dispersion: Vec<Level>,
    moved: Moved,
}

#[derive(Debug, Serialize)]
struct Domain {
    domain: String,
    nodes: usize,
    weight_share: f64,
    primaries_share: f64,
    copies_share: f64,
}

#[derive(Debug, Serialize)]
struct Level {
    level: usize,
    domains: usize,
    distinct_share: f64,
    worst: usize,
}

/// In parts of the key space, each copy counted.
#[derive(Debug, Serialize)]
struct Moved {
    primaries: f64,
    copies: f64,
    copies_least: f64,
    copies_needless: f64,
}

#[derive(Debug, Serialize)]
struct Skewed {
    zipf: f64,
    max_over_mean: f64,
    min_over_mean: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Plan {
    pub(super) aim: f64,
    pub(super) points: u32,
    pub(super) max_over_mean: f64,
    pub(super) max_over_mean_p95: f64,
    pub(super) rings: usize,
}

/// Keys that losses are measured with where an algorithm has no intervals to walk along.
const KEYS_LOST_MAX: usize = 100_000;
/// Each loss may take another table of all nodes, and keys placed in it.
const NODES_LOST_MAX: usize = 100;

/// What the loss of each node means to the others, and why that is not known of some.
pub(super) struct Losses {
    by_node: Vec<Option<Loss>>,
    missing: Option<String>,
}

impl Losses {
    /// The load of the most loaded node after the worst loss, over its fair part; none unless all are known.
    pub(super) fn worst_over_mean(&self) -> Option<f64> {
        let known: Option<Vec<&Loss>> = self.by_node.iter().map(Option::as_ref).collect();
        let loads = known?.into_iter().map(|loss| loss.worst_over_mean);
        loads.reduce(f64::max)
    }

    /// By interval where the algorithm walks on along them, else by some of the keys.
    pub(super) fn of(
        algorithm: &dyn Algorithm,
        name: Name,
        keys: impl Iterator<Item = String> + Clone,
    ) -> Self {
        let nodes = algorithm.nodes().len();
        match (name, algorithm.intervals()) {
            (Name::Ring | Name::Slots, Some(placement)) => Self {
                by_node: placement.losses().into_iter().map(Some).collect(),
                missing: None,
            },
            (Name::Maglev | Name::Jump | Name::Modulo, _) if nodes > NODES_LOST_MAX => Self {
                by_node: vec![None; nodes],
                missing: Some(format!(
                    "{} places all keys anew for each loss, which is measured for up to {NODES_LOST_MAX} nodes",
                    algorithm.name()
                )),
            },
            _ => {
                let losses = losses_by_keys(algorithm, keys.take(KEYS_LOST_MAX));
                let fault = losses.iter().find_map(|loss| loss.as_ref().err());
                Self {
                    missing: fault.map(ToString::to_string),
                    by_node: losses.into_iter().map(Result::ok).collect(),
                }
            }
        }
    }
}

impl Measured {
    pub(super) fn new(
        sides: &Sides<'_>,
        by_keys: &KeyMeasure,
        (zipf, requests): (f64, &Balance),
        losses: Losses,
        plan: Option<Plan>,
    ) -> Self {
        let moves = by_keys.moves.unwrap_or_default();
        let rules = sides.rules;
        Self {
            algorithm: sides.before.name(),
            scheme: match rules.algorithm {
                Name::Modulo => "modulo".to_owned(),
                _ => sides.before.scheme().name().to_owned(),
            },
            points: (rules.algorithm == Name::Ring).then_some(rules.points),
            keys: by_keys.nodes.iter().map(|node| node.keys).sum(),
            nodes_before: sides.before.nodes().len(),
            nodes_after: sides.after.nodes().len(),
            nodes: loads(sides, by_keys, requests, &losses.by_node),
            max_over_mean: by_keys.max_over_mean,
            min_over_mean: by_keys.min_over_mean,
            moved: moves.moved,
            needless: moves.needless,
            modulo_moved: moves.modulo_moved,
            loss_missing: losses.missing,
            hints: hints(sides.after),
            exact: Exact::of(sides),
            skewed: Skewed {
                zipf,
                max_over_mean: requests.max_over_mean,
                min_over_mean: requests.min_over_mean,
            },
            plan,
        }
    }

    /// The load of every node over its fair part.
    pub(super) fn chart(&self) -> Chart {
        let mean = |node: &Load| match node.exact_over_mean {
            Some(over_mean) => over_mean,
            None => node.share * self.nodes.len() as f64,
        };
        Chart {
            title: format!("load of each node over its fair part, {}", self.algorithm),
            groups: self.nodes.iter().map(|node| node.id.clone()).collect(),
            series: vec![Series {
                name: "load over fair part".to_owned(),
                values: self.nodes.iter().map(|node| Some(mean(node))).collect(),
            }],
            reference: Some(1.0),
        }
    }

    pub(super) fn table(&self) -> String {
        let share = |share: Option<f64>| share.map_or("-".to_owned(), percent);
        let rows = self.nodes.iter().map(|node| {
            let lost = |lost: &Lost| {
                let heirs = if lost.heirs == 1 { "heir" } else { "heirs" };
                format!("{:.2}, {} {heirs}", lost.worst_over_mean, lost.heirs)
            };
            vec![
                node.id.clone(),
                count(node.keys),
                percent(node.share),
                share(node.exact_share),
                share(node.copies_share),
                percent(node.requests_share),
                node.loss.as_ref().map_or("-".to_owned(), lost),
            ]
        });
        let header = [
            "node",
            "keys",
            "share",
            "exact",
            "copies",
            "requests",
            "when lost",
        ];
        let mut text = output::table(&header, &[1, 2, 3, 4, 5], rows.collect());
        let mut say = |line: String| write!(text, "\n{line}").expect("a string takes everything");
        say(String::new());
        say(format!(
            "keys      max/mean {:.3}   min/mean {:.3}",
            self.max_over_mean, self.min_over_mean
        ));
        if let Some(exact) = &self.exact {
            exact.say(&mut say);
        }
        say(format!(
            "requests  max/mean {:.3}   min/mean {:.3}   when the k-th key is asked for k^-{} as often",
            self.skewed.max_over_mean, self.skewed.min_over_mean, self.skewed.zipf
        ));
        if let Some(why) = &self.loss_missing {
            say(format!("when lost {why}"));
        }
        if let Some(plan) = &self.plan {
            say(format!(
                "aim       max/mean {} takes {} points a node: {:.3} in the mean of {} rings, {:.3} in one of twenty",
                plan.aim, plan.points, plan.max_over_mean, plan.rings, plan.max_over_mean_p95
            ));
        }
        for hint in &self.hints {
            say(format!("hint      {hint}"));
        }
        self.say_what_moves(&mut say);
        text
    }

    fn say_what_moves(&self, say: &mut impl FnMut(String)) {
        if self.nodes_before == self.nodes_after {
            return say("\nSee what moves with:  the same and --join 1 or --leave 1".to_owned());
        }
        let share = |keys: u64| percent(keys as f64 / self.keys as f64);
        say(format!(
            "moved     {} of {} keys ({}) from {} to {} nodes, {} of them needlessly; modulo would move {} ({})",
            count(self.moved),
            count(self.keys),
            share(self.moved),
            self.nodes_before,
            self.nodes_after,
            count(self.needless),
            count(self.modulo_moved),
            share(self.modulo_moved),
        ));
        say("\nCompare with:  the same and --algorithm slots".to_owned());
    }
}

/// What the planning of slots has shown.
pub(super) fn hints(algorithm: &dyn Algorithm) -> Vec<String> {
    let plan = algorithm.slots_plan();
    plan.map_or_else(Vec::new, |plan| {
        plan.hints.iter().map(ToString::to_string).collect()
    })
}

/// What every node has, in the order in which nodes are numbered.
fn loads(
    sides: &Sides<'_>,
    by_keys: &KeyMeasure,
    requests: &Balance,
    losses: &[Option<Loss>],
) -> Vec<Load> {
    let rank_of: BTreeMap<&NodeId, usize> = (0..)
        .zip(sides.before.nodes())
        .map(|(rank, member)| (&member.id, rank))
        .collect();
    let placement = sides.before.intervals();
    let primaries = placement.map(Placement::balance);
    let copies = placement.map(Placement::balance_of_copies);
    let load = |member: &Member| {
        let rank = rank_of[&member.id];
        let lost = |loss: &Loss| Lost {
            heirs: loss.heirs,
            worst: loss
                .worst
                .map(|node| sides.before.nodes()[node.get()].id.to_string()),
            worst_over_mean: loss.worst_over_mean,
        };
        Load {
            id: member.id.to_string(),
            weight: member.weight.to_string(),
            domain: member.domain.to_string(),
            keys: by_keys.nodes[rank].keys,
            share: by_keys.nodes[rank].share,
            requests_share: requests.loads[rank].share,
            exact_share: primaries.as_ref().map(|balance| balance.loads[rank].share),
            exact_over_mean: primaries
                .as_ref()
                .map(|balance| balance.loads[rank].over_mean),
            copies_share: copies.as_ref().map(|balance| balance.loads[rank].share),
            loss: losses[rank].as_ref().map(lost),
        }
    };
    sides.first.iter().map(load).collect()
}

impl Exact {
    fn of(sides: &Sides<'_>) -> Option<Self> {
        let before = sides.before.intervals()?;
        let movement = diff(before, sides.after.intervals()?).ok()?.movement();
        let balance = before.balance();
        let (nodes, points) = (before.nodes().len(), sides.rules.points as usize);
        let copies = movement.copies.max(1) as f64;
        let domain = |load: clockwise_placement::DomainLoad| Domain {
            domain: load.domain,
            nodes: load.nodes,
            weight_share: load.weight_share,
            primaries_share: load.primaries_share,
            copies_share: load.copies_share,
        };
        let level = |level: clockwise_placement::Dispersion| Level {
            level: level.level,
            domains: level.domains,
            distinct_share: level.distinct_share,
            worst: level.worst,
        };
        Some(Self {
            max_over_mean: balance.max_over_mean,
            min_over_mean: balance.min_over_mean,
            cv: balance.cv,
            expected_cv: (sides.rules.algorithm == Name::Ring).then(|| expected_cv(nodes, points)),
            copies_max_over_mean: before.balance_of_copies().max_over_mean,
            optimum_over_mean: sides.before.slots_plan().map(|plan| plan.optimum_over_mean),
            domains: before.domain_loads(0).into_iter().map(domain).collect(),
            dispersion: before.dispersion().into_iter().map(level).collect(),
            moved: Moved {
                primaries: movement.primaries_share(),
                copies: movement.copies_share(),
                copies_least: movement.least_share(),
                copies_needless: movement.copies_share()
                    * (movement.copies_needless as f64 / copies),
            },
        })
    }

    fn say(&self, say: &mut impl FnMut(String)) {
        let chance = match self.expected_cv {
            Some(cv) => format!(" where chance gives {}", percent(cv)),
            None => String::new(),
        };
        say(format!(
            "exact     max/mean {:.3}   min/mean {:.3}   spread {}{chance}",
            self.max_over_mean,
            self.min_over_mean,
            percent(self.cv)
        ));
        if let Some(optimum) = self.optimum_over_mean {
            say(format!(
                "optimum   max/mean {optimum:.3} of the copies, by weights and failure domains; here {:.3}",
                self.copies_max_over_mean
            ));
        }
        for domain in &self.domains {
            say(format!(
                "domain    {}: {} nodes, {} of the weight, {} of the keys, {} of the copies",
                domain.domain,
                domain.nodes,
                percent(domain.weight_share),
                percent(domain.primaries_share),
                percent(domain.copies_share)
            ));
        }
        for level in &self.dispersion {
            say(format!(
                "replicas  all in different domains for {} of the keys, at most {} in one of {}",
                percent(level.distinct_share),
                level.worst,
                level.domains
            ));
        }
        if self.moved.copies > 0.0 {
            say(format!(
                "copies    {} of the key space moves, at least {} must, {} needlessly",
                percent(self.moved.copies),
                percent(self.moved.copies_least),
                percent(self.moved.copies_needless)
            ));
        }
    }
}
