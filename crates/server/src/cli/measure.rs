//! `measure`: how evenly a placement spreads keys, and what moves when nodes join or leave. Offline.
//!
//! Every key is placed twice, before and after, and once more by modulo: the cost is a few hashes a
//! key, and no key is kept.

use std::fmt::Write;

use clockwise_dialects::article;
use clockwise_placement::{Member, NodeId, Placement, PlacementError, Position, RingSpec, Scheme};
use serde::Serialize;

use super::exit::{Exit, Failure};
use super::output::{self, Format, count, percent};

/// Beyond this a run takes minutes and tells nothing new.
const KEYS_MAX: u64 = 1_000_000_000;
const HOLE: &str = "{}";

/// What to measure.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: clockwise measure --scheme article-md5 --nodes 10 --keys 200000 --join 1"
)]
pub(super) struct Args {
    /// How keys and nodes become positions.
    #[arg(long, value_enum)]
    scheme: SchemeName,
    /// Nodes before the change.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes: u32,
    /// Points of each node on the ring.
    #[arg(long, value_name = "V", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    points: u32,
    /// Keys to place.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX))]
    keys: u64,
    /// Nodes that join, named after the last one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    join: Option<u32>,
    /// Nodes that leave, the last ones first.
    #[arg(long, value_name = "N", conflicts_with = "join")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    leave: Option<u32>,
    /// Names of nodes; {} is a number from 0.
    #[arg(long, value_name = "FORMAT", default_value = "cache-{}", value_parser = format_with_hole)]
    node_format: Template,
    /// Names of keys; {} is a number from 0.
    #[arg(long, value_name = "FORMAT", default_value = "user:{}", value_parser = format_with_hole)]
    key_format: Template,
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
    fn fill(&self, number: u64, text: &mut String) {
        text.clear();
        text.push_str(&self.before);
        write!(text, "{number}").expect("a string takes everything");
        text.push_str(&self.after);
    }

    fn name(&self, number: u64) -> String {
        let mut text = String::new();
        self.fill(number, &mut text);
        text
    }
}

/// The placements that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SchemeName {
    /// Our own: XXH3-64.
    #[value(name = "clockwise/v1")]
    ClockwiseV1,
    /// MD5, as one article publishes figures for it.
    #[value(name = "article-md5")]
    ArticleMd5,
    /// SHA-256, as another article does.
    #[value(name = "article-sha256")]
    ArticleSha256,
    /// `hash % N` of our own hash.
    #[value(name = "modulo")]
    Modulo,
}

impl SchemeName {
    /// The recipe of its positions.
    fn scheme(self) -> Scheme {
        match self {
            Self::ClockwiseV1 | Self::Modulo => Scheme::default(),
            Self::ArticleMd5 => article::article_md5(),
            Self::ArticleSha256 => article::article_sha256(),
        }
    }
}

/// One side of the change. Nodes are numbered as they were named.
struct Side {
    nodes: usize,
    /// Modulo without one.
    ring: Option<Ring>,
}

struct Ring {
    placement: Placement,
    /// The number of the node of each rank: a placement sorts its members by name.
    number_of_rank: Vec<usize>,
}

impl Side {
    fn ring(scheme: Scheme, points: u32, ids: &[NodeId]) -> Result<Self, PlacementError> {
        let members = ids.iter().cloned().map(Member::new);
        let spec = RingSpec {
            scheme,
            points_per_weight: points,
            ..RingSpec::new(members)
        };
        let placement = spec.build()?;
        let mut number_of_rank = vec![0; ids.len()];
        for (number, id) in ids.iter().enumerate() {
            let rank = placement.index_of(id).expect("every id is a member").get();
            number_of_rank[rank] = number;
        }
        Ok(Self {
            nodes: ids.len(),
            ring: Some(Ring {
                placement,
                number_of_rank,
            }),
        })
    }

    fn owner(&self, scheme: &Scheme, key: &[u8], position: Position) -> usize {
        match &self.ring {
            Some(ring) => ring.number_of_rank[ring.placement.owner_at(position).get()],
            None => scheme.modulo(key, self.nodes),
        }
    }
}

/// What was found, with the names that scripts rely on.
#[derive(Debug, Serialize)]
struct Measured {
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
}

/// What one node had before the change.
#[derive(Debug, Serialize)]
struct Load {
    id: String,
    keys: u64,
    share: f64,
}

pub(super) fn run(args: &Args, format: Format) -> Result<Exit, Failure> {
    let measured = measure(args)?;
    match format {
        Format::Json => output::json("Measure", None, &measured)?,
        Format::Table => print(args, &measured)?,
    }
    Ok(Exit::Done)
}

fn measure(args: &Args) -> Result<Measured, Failure> {
    let usage = |words: String| Failure::new(Exit::Usage, words);
    let after = match (args.join, args.leave) {
        (Some(join), _) => args.nodes + join,
        (None, Some(leave)) if leave < args.nodes => args.nodes - leave,
        (None, Some(_)) => {
            return Err(usage(format!(
                "--leave: of {} nodes at least one must stay",
                args.nodes
            )));
        }
        (None, None) => args.nodes,
    };
    let mut ids = Vec::new();
    for number in 0..u64::from(args.nodes.max(after)) {
        let name = args.node_format.name(number);
        let id: NodeId = name
            .parse()
            .map_err(|error| usage(format!("--node-format gives {name:?}: {error}")))?;
        ids.push(id);
    }
    let scheme = args.scheme.scheme();
    let side = |nodes: u32| {
        let nodes = &ids[..nodes as usize];
        match args.scheme {
            SchemeName::Modulo => Ok(Side {
                nodes: nodes.len(),
                ring: None,
            }),
            _ => Side::ring(scheme.clone(), args.points, nodes),
        }
    };
    let refused = |error: PlacementError| usage(error.to_string());
    let (before, after) = (
        side(args.nodes).map_err(refused)?,
        side(after).map_err(refused)?,
    );
    Ok(count_keys(args, &scheme, &ids, &before, &after))
}

fn count_keys(
    args: &Args,
    scheme: &Scheme,
    ids: &[NodeId],
    before: &Side,
    after: &Side,
) -> Measured {
    let mut loads = vec![0; before.nodes];
    let (mut moved, mut needless, mut modulo_moved) = (0, 0, 0);
    let mut key = String::new();
    for number in 0..args.keys {
        args.key_format.fill(number, &mut key);
        let bytes = key.as_bytes();
        let position = scheme.position(bytes);
        let (from, to) = (
            before.owner(scheme, bytes, position),
            after.owner(scheme, bytes, position),
        );
        loads[from] += 1;
        if from != to {
            moved += 1;
            // Between two nodes that are there before and after, nothing had to move.
            needless += u64::from(from < after.nodes && to < before.nodes);
        }
        let stays = scheme.modulo(bytes, before.nodes) == scheme.modulo(bytes, after.nodes);
        modulo_moved += u64::from(!stays);
    }
    let mean = args.keys as f64 / before.nodes as f64;
    let over_mean = |keys: Option<&u64>| keys.map_or(0.0, |&keys| keys as f64 / mean);
    Measured {
        scheme: match args.scheme {
            SchemeName::Modulo => "modulo".to_owned(),
            _ => scheme.name().to_owned(),
        },
        points: (args.scheme != SchemeName::Modulo).then_some(args.points),
        keys: args.keys,
        nodes_before: before.nodes,
        nodes_after: after.nodes,
        max_over_mean: over_mean(loads.iter().max()),
        min_over_mean: over_mean(loads.iter().min()),
        nodes: loads
            .iter()
            .zip(ids)
            .map(|(&keys, id)| Load::new(id, keys, args.keys))
            .collect(),
        moved,
        needless,
        modulo_moved,
    }
}

impl Load {
    fn new(id: &NodeId, keys: u64, all: u64) -> Self {
        Self {
            id: id.to_string(),
            keys,
            share: keys as f64 / all as f64,
        }
    }
}

fn print(args: &Args, measured: &Measured) -> Result<(), Failure> {
    let rows = measured
        .nodes
        .iter()
        .map(|node| vec![node.id.clone(), count(node.keys), percent(node.share)]);
    output::line(&output::table(
        &["node", "keys", "share"],
        &[1, 2],
        rows.collect(),
    ))?;
    let Measured {
        max_over_mean,
        min_over_mean,
        ..
    } = measured;
    output::line(&format!(
        "\nload   max/mean {max_over_mean:.2}   min/mean {min_over_mean:.2}"
    ))?;
    if measured.nodes_before == measured.nodes_after {
        let words = "\nSee what moves with:  the same and --join 1 or --leave 1";
        return output::line(words);
    }
    let share = |keys: u64| percent(keys as f64 / measured.keys as f64);
    output::line(&format!(
        "moved  {} of {} keys ({}) from {} to {} nodes, {} of them needlessly; modulo would move {} ({})",
        count(measured.moved),
        count(measured.keys),
        share(measured.moved),
        measured.nodes_before,
        measured.nodes_after,
        count(measured.needless),
        count(measured.modulo_moved),
        share(measured.modulo_moved),
    ))?;
    let other = match args.scheme {
        SchemeName::Modulo => "--scheme clockwise/v1".to_owned(),
        _ => format!("--points {}", args.points.saturating_mul(2)),
    };
    output::line(&format!("\nCompare with:  the same and {other}"))
}
