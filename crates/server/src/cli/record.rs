//! `record`: the pool's record in its store, with or without processes that serve it: made, written out, put back,
//! looked at over time.

mod nodes;
mod place;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clockwise_cluster::{
    Epoch, InvalidRecord, NewNode, NewPool, Nonce, Record, RestoreError, Revision, View,
};
use serde::Serialize;

use super::exit::{Exit, Failure};
use super::output::{self, Format, percent};
use crate::comparison::{self, Comparison};
use crate::random;
use crate::serve::stores::Access;
use crate::up::placing::{Kind, Placing};
use nodes::{NodeWord, nodes_of};
use place::{Open, Place};

/// A record has at most 1 MiB; what a person has formatted anew may have more.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, clap::Subcommand)]
pub(super) enum RecordVerb {
    /// Makes a pool: writes its first record where there is none.
    Init(InitArgs),
    /// Prints the record, or that of an epoch which is still kept.
    Export(ExportArgs),
    /// Puts an exported record in place, where there is none or over the one that is there.
    Import(ImportArgs),
    /// Lists the epochs that are kept, and what changed in each.
    History {
        #[command(flatten)]
        place: Place,
    },
    /// Shows what differs between two epochs, or two files: nodes, weights, shares, what moves.
    Diff(DiffArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    #[command(flatten)]
    place: Place,
    /// A node; as often as there are nodes.
    #[arg(long = "node", value_name = "ID=HOST:PORT[,weight=W][,domain=PATH]")]
    nodes: Vec<NodeWord>,
    /// A TOML or JSON file with `nodes`, each with id, address, weight and domain; `-` reads JSON from stdin.
    #[arg(long, value_name = "FILE")]
    nodes_file: Option<PathBuf>,
    /// How keys find their nodes; slots without it.
    #[arg(long, value_enum)]
    placement: Option<Kind>,
    /// Hash only what stands in the first braces of a key.
    #[arg(long)]
    hash_tags: bool,
    /// Let clients run scripts, which must declare their keys.
    #[arg(long)]
    scripts: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    place: Place,
    /// One of the epochs that `record history` lists; the present one without it.
    #[arg(long, value_name = "E")]
    epoch: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ImportArgs {
    #[command(flatten)]
    place: Place,
    /// What `record export` printed; `-` reads it from stdin.
    file: PathBuf,
    /// Take the place of the record that is there, at the epoch that --expect-epoch says.
    #[arg(long, requires = "expect_epoch")]
    replace: bool,
    /// The epoch of the record that is replaced.
    #[arg(long, value_name = "E", requires = "replace")]
    expect_epoch: Option<u64>,
    /// Replace it although keys get other owners, and are copied nowhere: who has them now does not answer for
    /// them any more.
    #[arg(long, requires = "replace")]
    owners_change: bool,
    /// An epoch that processes may have seen since the export: the record begins above it.
    #[arg(long, value_name = "E")]
    above_epoch: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(super) struct DiffArgs {
    #[command(flatten)]
    place: Place,
    /// An epoch that is kept, or a file.
    from: Side,
    /// Another one; the present record without it.
    to: Option<Side>,
}

/// One side of a comparison.
#[derive(Clone, Debug)]
enum Side {
    Epoch(u64),
    File(PathBuf),
}

impl std::str::FromStr for Side {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.parse() {
            Ok(epoch) => Self::Epoch(epoch),
            Err(_) => Self::File(text.into()),
        })
    }
}

pub(super) fn run(verb: RecordVerb, format: Format) -> Result<Exit, Failure> {
    match verb {
        RecordVerb::Init(args) => init(&args, format),
        RecordVerb::Export(args) => export(&args, format),
        RecordVerb::Import(args) => import(&args, format),
        RecordVerb::History { place } => history(&place, format),
        RecordVerb::Diff(args) => diff(&args, format),
    }
}

/// What was written.
#[derive(Serialize)]
struct Written {
    store: String,
    pool: String,
    revision: u64,
    nodes: usize,
    /// The epoch of the record that was there.
    replaced_epoch: Option<u64>,
}

fn written(
    open: &Open,
    record: &Record,
    replaced: Option<Epoch>,
    format: Format,
) -> Result<Exit, Failure> {
    let written = Written {
        store: open.name.clone(),
        pool: record.pool().to_string(),
        revision: record.revision().get(),
        nodes: record.membership().nodes.len(),
        replaced_epoch: replaced.map(Epoch::get),
    };
    match format {
        Format::Json => output::json("Record", Some(record.epoch().get()), &written)?,
        Format::Table => {
            let instead = replaced.map(|epoch| format!(", in the place of epoch {epoch}"));
            output::line(&format!(
                "pool {} is at epoch {} with {} nodes in {}{}",
                written.pool,
                record.epoch(),
                written.nodes,
                written.store,
                instead.unwrap_or_default()
            ))?;
            output::line("\nServe it with:  clockwise serve --config FILE")?;
        }
    }
    Ok(Exit::Done)
}

fn init(args: &InitArgs, format: Format) -> Result<Exit, Failure> {
    let mut nodes: Vec<NewNode> = args.nodes.iter().map(|word| word.0.clone()).collect();
    if let Some(file) = &args.nodes_file {
        nodes.extend(nodes_of(file)?);
    }
    if nodes.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "a pool has at least one node: name them with --node ID=HOST:PORT or --nodes-file FILE",
        ));
    }
    let open = args.place.open(Access::Write)?;
    if let Some(record) = open.record()? {
        let words = format!(
            "{} holds pool {} already, at epoch {}: nothing was changed",
            open.name,
            open.pool,
            record.epoch()
        );
        return Err(Failure::new(Exit::Guard, words).with_next(
            "look at it with `clockwise record export`; change it with `clockwise node`",
        ));
    }
    let mut pool = NewPool::new(open.pool.clone(), nodes);
    pool.scheme = pool.scheme.with_hash_tags(args.hash_tags);
    // As `up` makes them: what is stored should lie evenly, and move no more than it must.
    pool.generator = Placing::usual(args.placement.unwrap_or(Kind::Slots)).generator();
    pool.options.scripts = args.scripts;
    let record = with_nonces(|nonces| Record::create(pool, nonces))?
        .map_err(|error: InvalidRecord| Failure::new(Exit::Usage, error))?;
    let record = open.commit(Revision::new(0), record)?;
    written(&open, &record, None, format)
}

fn with_nonces<T>(make: impl FnOnce(&mut dyn FnMut() -> Nonce) -> T) -> Result<T, Failure> {
    random::with_nonces(make)
        .map_err(|error| Failure::new(Exit::Failed, format!("no random bytes: {error}")))
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let failed =
        |error: std::io::Error| Failure::new(Exit::Failed, format!("{}: {error}", file.display()));
    let mut bytes = Vec::new();
    let source: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(fs::File::open(file).map_err(failed)?),
    };
    let mut limited = source.take(FILE_BYTES_MAX + 1);
    limited.read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        let words = format!("{}: more than {FILE_BYTES_MAX} bytes", file.display());
        return Err(Failure::new(Exit::Usage, words));
    }
    Ok(bytes)
}

fn record_of(file: &Path) -> Result<Record, Failure> {
    let bytes = read(file)?;
    let fault = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, format!("{}: {error}", file.display()))
    };
    // As the store would have it: a person may have laid it out for reading.
    let value: serde_json::Value = match serde_json::from_slice(&bytes) {
        Ok(value) => value,
        // Its own reader says best what is wrong.
        Err(_) => return Record::decode(&bytes).map_err(|error| fault(&error)),
    };
    let value = match value["kind"] == EXPORT {
        true => &value["record"],
        false => &value,
    };
    let compact = serde_json::to_vec(value).map_err(|error| fault(&error))?;
    Record::decode(&compact).map_err(|error| fault(&error))
}

/// The kind of an export in its envelope, which `import` takes too.
const EXPORT: &str = "Export";

#[derive(Serialize)]
struct Export<'a> {
    record: &'a Record,
}

fn export(args: &ExportArgs, format: Format) -> Result<Exit, Failure> {
    let open = args.place.open(Access::Read)?;
    let record = match args.epoch {
        Some(epoch) => open.epoch(epoch)?,
        None => open.existing()?,
    };
    match format {
        Format::Json => {
            let epoch = Some(record.epoch().get());
            output::json(EXPORT, epoch, &Export { record: &record })?;
        }
        Format::Table => {
            let text = serde_json::to_string_pretty(&*record);
            output::line(&text.map_err(|error| Failure::new(Exit::Failed, error))?)?;
        }
    }
    Ok(Exit::Done)
}

fn import(args: &ImportArgs, format: Format) -> Result<Exit, Failure> {
    let copy = record_of(&args.file)?;
    let open = args.place.open(Access::Write)?;
    let present = open.record()?;
    match (&present, args.expect_epoch) {
        (Some(present), None) => {
            let words = format!(
                "{} holds pool {} at epoch {}: nothing was changed",
                open.name,
                open.pool,
                present.epoch()
            );
            return Err(Failure::new(Exit::Guard, words).with_next(format!(
                "to take its place:  clockwise record import --replace --expect-epoch {} …",
                present.epoch()
            )));
        }
        (Some(present), Some(expected)) if present.epoch().get() != expected => {
            let words = format!(
                "the record is at epoch {}, not {expected}: nothing was changed",
                present.epoch()
            );
            return Err(Failure::new(Exit::Conflict, words).with_next("clockwise record history"));
        }
        (None, Some(expected)) => {
            let words = format!(
                "{} holds no pool {}, so nothing of epoch {expected} to replace",
                open.name, open.pool
            );
            return Err(Failure::new(Exit::Conflict, words)
                .with_next("leave --replace and --expect-epoch out"));
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    if *copy.pool() != open.pool {
        let words = format!("the file is of pool {}, not {}", copy.pool(), open.pool);
        return Err(Failure::new(Exit::Guard, words));
    }
    let above = args.above_epoch.map(Epoch::new);
    let restored = with_nonces(|nonces| copy.restored(present.as_deref(), above, nonces))?;
    let restored = restored.map_err(|error| {
        let exit = match &error {
            RestoreError::Invalid(_) => Exit::Usage,
            _ => Exit::Guard,
        };
        Failure::new(exit, error)
    })?;
    // As whoever serves it will: a record that makes no view is refused now, not by all of them.
    View::from_record(&restored)
        .map_err(|error| Failure::new(Exit::Usage, format!("the record makes no view: {error}")))?;
    if let Some(present) = present.as_deref().filter(|_| !args.owners_change) {
        check_owners(present, &restored)?;
    }
    let expected = present
        .as_ref()
        .map_or(Revision::new(0), |present| present.revision());
    let replaced = present.as_ref().map(|present| present.epoch());
    let record = open.commit(expected, restored)?;
    written(&open, &record, replaced, format)
}

/// A record that is put in place moves no key: who owned it must still.
fn check_owners(present: &Record, restored: &Record) -> Result<(), Failure> {
    let what = match comparison::compare(present, restored) {
        Ok(compared) if compared.same_owners => return Ok(()),
        Ok(compared) => format!(
            "with this record {} of positions have another owner, and their keys would stay where nobody looks for \
             them",
            percent(compared.moved_share)
        ),
        Err(error) => format!(
            "the record that is there makes no view ({error}), so that nobody can tell whether keys get other owners"
        ),
    };
    let words = format!("{what}: nothing was changed");
    Err(Failure::new(Exit::Guard, words).with_next(
        "compare them with `clockwise record diff`; keys are moved by `clockwise node` and `clockwise apply`; where \
         the keys lie as the file says, or may be lost:  --owners-change",
    ))
}

/// One epoch that is kept.
#[derive(Serialize)]
struct EpochText {
    epoch: u64,
    revision: Option<u64>,
    nodes: Option<usize>,
    change: Option<String>,
    /// What happened with it, in words; none of the oldest.
    changes: Vec<String>,
    /// Why the copy cannot be read.
    unreadable: Option<String>,
}

#[derive(Serialize)]
struct HistoryText {
    pool: String,
    epochs: Vec<EpochText>,
}

fn history(place: &Place, format: Format) -> Result<Exit, Failure> {
    let open = place.open(Access::Read)?;
    let present = open.existing()?;
    let copies = open.history()?;
    let mut before: Option<&Record> = None;
    let mut epochs = Vec::new();
    for copy in &copies {
        let record = copy.record.as_ref().ok();
        let changes = match (before, record) {
            (Some(before), Some(record)) => comparison::told(before, record),
            _ => Vec::new(),
        };
        epochs.push(EpochText {
            epoch: copy.epoch.get(),
            revision: record.map(|record| record.revision().get()),
            nodes: record.map(|record| record.membership().nodes.len()),
            change: record.and_then(|record| record.change().map(|change| change.id.to_string())),
            changes,
            unreadable: copy.record.as_ref().err().map(ToString::to_string),
        });
        before = record.map(|record| &**record);
    }
    let history = HistoryText {
        pool: present.pool().to_string(),
        epochs,
    };
    match format {
        Format::Json => output::json("History", Some(present.epoch().get()), &history)?,
        Format::Table => {
            let rows = history.epochs.iter().map(|epoch| {
                let what = match &epoch.unreadable {
                    Some(why) => format!("cannot be read: {why}"),
                    None if epoch.changes.is_empty() => "the oldest that is kept".to_owned(),
                    None => epoch.changes.join("; "),
                };
                let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
                vec![
                    epoch.epoch.to_string(),
                    or_dash(epoch.nodes.map(|nodes| nodes.to_string())),
                    or_dash(epoch.change.clone()),
                    what,
                ]
            });
            let header = ["epoch", "nodes", "change", "what changed"];
            output::line(&output::table(&header, &[0, 1], rows.collect()))?;
            let now = present.epoch();
            output::line(&format!(
                "\nthe record is at epoch {now}, revision {}",
                present.revision()
            ))?;
        }
    }
    Ok(Exit::Done)
}

fn diff(args: &DiffArgs, format: Format) -> Result<Exit, Failure> {
    let needs_store = |side: &Option<&Side>| !matches!(side, Some(Side::File(_)));
    let sides = [Some(&args.from), args.to.as_ref()];
    let open = match sides.iter().any(needs_store) {
        true => Some(args.place.open(Access::Read)?),
        false => None,
    };
    let [from, to] = sides.map(|side| match (side, &open) {
        (Some(Side::File(file)), _) => record_of(file).map(Arc::new),
        (Some(Side::Epoch(epoch)), Some(open)) => open.epoch(*epoch),
        (None, Some(open)) => open.existing(),
        (_, None) => Err(Failure::new(Exit::Usage, "which record?")),
    });
    let (from, to) = (from?, to?);
    let compared = comparison::compare(&from, &to)
        .map_err(|error| Failure::new(Exit::Failed, format!("a record makes no view: {error}")))?;
    match format {
        Format::Json => output::json("Diff", Some(compared.to_epoch), &compared)?,
        Format::Table => print_diff(&compared)?,
    }
    Ok(Exit::Done)
}

fn print_diff(compared: &Comparison) -> Result<(), Failure> {
    output::line(&format!(
        "epoch {} -> {}",
        compared.from_epoch, compared.to_epoch
    ))?;
    if let Some(placement) = &compared.placement {
        output::line(&format!("placed by {} -> {}", placement.from, placement.to))?;
    }
    let rows = compared.nodes.iter().map(|node| {
        vec![
            node.id.clone(),
            node.what.to_owned(),
            percent(node.share_from),
            percent(node.share_to),
            node.changes.join("; "),
        ]
    });
    let header = ["node", "", "share", "then", "what changed"];
    output::line(&format!(
        "\n{}",
        output::table(&header, &[2, 3], rows.collect())
    ))?;
    if compared.same_owners {
        return output::line("\nevery key has the same owner");
    }
    let how = match compared.sampled {
        true => " (drawn from 65,536 keys: the two hash keys in different ways)",
        false => "",
    };
    output::line(&format!(
        "\n{} of positions have another owner{how}",
        percent(compared.moved_share)
    ))?;
    for flow in &compared.flows {
        let intervals = match flow.intervals {
            0 => String::new(),
            1 => ", 1 interval".to_owned(),
            count => format!(", {count} intervals"),
        };
        output::line(&format!(
            "  {} -> {}  {}{intervals}",
            flow.from,
            flow.to,
            percent(flow.share)
        ))?;
    }
    Ok(())
}
