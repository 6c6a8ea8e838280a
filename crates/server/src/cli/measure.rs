//! `measure`: how evenly a placement spreads keys, and what moves when nodes join or leave. Offline.
//!
//! Every key is placed before and after, and once more by modulo: the cost is a few hashes a key, and no key
//! is kept. Where a placement has intervals, their lengths tell what endlessly many keys would show.

use std::path::PathBuf;

use clockwise_placement::{Edit, Member, NodeId, Weight, measure_keys, points_for, weigh_requests};

use super::algorithms::{Name, Rules, SchemeName};
use super::exit::{Exit, Failure};
use super::measured::{Losses, Measured, Plan, Sides};
use super::output::{self, Format};
use super::svg;

/// Beyond this a run takes minutes and tells nothing new.
const KEYS_MAX: u64 = 1_000_000_000;
const HOLE: &str = "{}";
/// Requests for the most asked for key of the skewed workload.
const REQUESTS_MOST: f64 = 1e12;

/// What to measure.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: clockwise measure --scheme article-md5 --nodes 10 --keys 200000 --join 1"
)]
pub(super) struct Args {
    /// How keys find their nodes.
    #[arg(long, value_enum, default_value = "ring")]
    algorithm: Name,
    /// How keys and nodes become positions.
    #[arg(long, value_enum, default_value = "clockwise/v1")]
    scheme: SchemeName,
    /// Nodes before the change.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes: u32,
    /// Points of a node of weight 1 on a ring.
    #[arg(long, value_name = "V", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    points: u32,
    /// Slots of an owner table.
    #[arg(long, value_name = "P", default_value_t = Rules::SLOTS)]
    slots: usize,
    /// Entries of a Maglev table, a prime; some 1,000 a node unless given.
    #[arg(long, value_name = "M")]
    table: Option<u32>,
    /// Nodes that hold each key, on a ring or in slots.
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    replicas: u8,
    /// Failure domains that the nodes are dealt to in turn.
    #[arg(long, value_name = "Z", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    zones: Option<u32>,
    /// Weights that the nodes are dealt in turn, such as 1,1,2.
    #[arg(long, value_name = "W", value_delimiter = ',', default_value = "1")]
    weights: Vec<Weight>,
    /// Keys to place.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX))]
    keys: u64,
    /// In the skewed workload, requests for the k-th key fall with this power of k.
    #[arg(long, value_name = "S", default_value = "1", value_parser = exponent)]
    zipf: f64,
    /// Nodes that join, named after the last one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    join: Option<u32>,
    /// Nodes that leave, the last ones first.
    #[arg(long, value_name = "N", conflicts_with = "join")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    leave: Option<u32>,
    /// Also say how many points bring the most loaded of so many nodes down to this times the mean.
    #[arg(long, value_name = "X", value_parser = aim)]
    aim: Option<f64>,
    /// Names of nodes; {} is a number from 0.
    #[arg(long, value_name = "FORMAT", default_value = "cache-{}", value_parser = format_with_hole)]
    node_format: Template,
    /// Names of keys; {} is a number from 0.
    #[arg(long, value_name = "FORMAT", default_value = "user:{}", value_parser = format_with_hole)]
    key_format: Template,
    /// Draw the load of every node into this file.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// A name with a number in it.
#[derive(Clone, Debug)]
struct Template {
    before: String,
    after: String,
}

fn format_with_hole(text: &str) -> Result<Template, String> {
    match text.split_once(HOLE) {
        Some((before, after)) if !after.contains(HOLE) => Ok(Template {
            before: before.to_owned(),
            after: after.to_owned(),
        }),
        _ => Err(format!(
            "it needs {HOLE} exactly once, where the number goes"
        )),
    }
}

impl Template {
    fn name(&self, number: u64) -> String {
        format!("{}{number}{}", self.before, self.after)
    }
}

fn exponent(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|power| (0.0..=3.0).contains(power))
        .ok_or_else(|| "it is no number from 0 to 3".to_owned())
}

fn aim(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|load| (1.0..=1e6).contains(load))
        .ok_or_else(|| "it is no load over the mean: a number from 1 on".to_owned())
}

pub(super) fn run(args: &Args, format: Format) -> Result<Exit, Failure> {
    let measured = measure(args)?;
    if let Some(path) = &args.plot {
        svg::write(path, &[measured.chart()])?;
    }
    match format {
        Format::Json => output::json("Measure", None, &measured)?,
        Format::Table => output::line(&measured.table())?,
    }
    Ok(Exit::Done)
}

fn usage(words: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, words)
}

fn rules(args: &Args) -> Result<Rules, Failure> {
    let algorithm = match args.scheme {
        SchemeName::Modulo => Name::Modulo,
        _ => args.algorithm,
    };
    if args.replicas > 1 && !matches!(algorithm, Name::Ring | Name::Slots) {
        return Err(usage(
            "--replicas: only rings and slots are measured with several",
        ));
    }
    Ok(Rules {
        algorithm,
        scheme: args.scheme,
        points: args.points,
        slots: args.slots,
        table: args.table,
        replicas: args.replicas,
    })
}

/// So many nodes, numbered from 0.
fn members(args: &Args, count: u32) -> Result<Vec<Member>, Failure> {
    let member = |number: u32| {
        let name = args.node_format.name(number.into());
        let id: NodeId = name
            .parse()
            .map_err(|error| usage(format!("--node-format gives {name:?}: {error}")))?;
        let weight = args.weights[number as usize % args.weights.len()];
        let zone = args.zones.map(|zones| format!("zone-{}", number % zones));
        let domain = zone.unwrap_or_default().parse();
        let domain = domain.expect("a short name is a domain");
        Ok(Member::new(id).with_weight(weight).with_domain(domain))
    };
    (0..count).map(member).collect()
}

fn measure(args: &Args) -> Result<Measured, Failure> {
    let rules = rules(args)?;
    let leave = args.leave.unwrap_or(0);
    if leave >= args.nodes {
        let words = format!("--leave: of {} nodes at least one must stay", args.nodes);
        return Err(usage(words));
    }
    let everybody = members(args, args.nodes + args.join.unwrap_or(0))?;
    let (first, joining) = everybody.split_at(args.nodes as usize);
    let leaving = first.iter().rev().take(leave as usize);
    let edits: Vec<Edit> = leaving
        .map(|member| Edit::Leave(member.id.clone()))
        .chain(joining.iter().cloned().map(Edit::Join))
        .collect();
    let before = rules.build(first.to_vec()).map_err(usage)?;
    let after = rules.change(&*before, &edits).map_err(usage)?;

    let keys = || (0..args.keys).map(|number| args.key_format.name(number));
    let by_keys = measure_keys(&*before, Some(&*after), keys());
    let requests = (1u32..).zip(keys()).map(|(rank, key)| {
        let requests = REQUESTS_MOST / f64::from(rank).powf(args.zipf);
        (key, requests as u64)
    });
    let requests = weigh_requests(&*before, requests);
    let sides = Sides {
        rules: &rules,
        first,
        before: &*before,
        after: &*after,
    };
    let losses = Losses::of(&*before, rules.algorithm, keys());
    let plan = args.aim.map(|aim| plan(args, aim)).transpose()?;
    Ok(Measured::new(
        &sides,
        &by_keys,
        (args.zipf, &requests),
        losses,
        plan,
    ))
}

fn plan(args: &Args, aim: f64) -> Result<Plan, Failure> {
    let found = points_for(args.nodes as usize, aim).ok_or_else(|| {
        let words = format!("--aim: no ring of {} nodes comes down to {aim}", args.nodes);
        usage(words).with_next("slots are as even as whole slots can be: --algorithm slots")
    })?;
    Ok(Plan {
        aim,
        points: found.points,
        max_over_mean: found.max_over_mean,
        max_over_mean_p95: found.max_over_mean_p95,
        rings: found.rings,
    })
}
