//! The command line: one file per group of verbs, one form of answer, one table of exit codes.
//!
//! stdout is data, stderr is talk. Every verb takes `-o json`.

mod algorithms;
mod bench;
mod change;
mod clients;
mod doctor;
pub mod exit;
mod given;
mod interrupt;
mod lifecycle;
mod log;
mod look;
mod measure;
mod measured;
mod node;
pub mod output;
mod pool;
mod progress;
mod record;
mod serve;
pub mod server;
mod sim;
mod svg;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use serde::Serialize;

use exit::{Exit, Failure};
use given::Given;
use output::Format;

/// Decides which node owns a key, and moves the data when that answer changes, without losing a write.
#[derive(Parser)]
#[command(
    name = "clockwise",
    version,
    propagate_version = true,
    max_term_width = 100
)]
struct Cli {
    /// In which form to answer.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs nodes, router, rebalancer and admin API in this process until a signal ends it.
    Up(lifecycle::UpArgs),
    /// Runs one process of a pool that may have several: router, rebalancer, admin API, or any of them.
    Serve(serve::ServeArgs),
    /// Makes, exports, imports and compares the record of a pool in its store.
    #[command(subcommand)]
    Record(record::RecordVerb),
    /// Ends what runs on a folder, also after its `up` was killed.
    Down(lifecycle::DownArgs),
    /// Shows the pool: epoch, nodes, what is wrong.
    Status(look::StatusArgs),
    /// Prints the node that owns a key.
    Owner(look::KeyArgs),
    /// Explains where a key is and why.
    Route(look::KeyArgs),
    /// Shows who routes by the pool's record, and who of them is behind.
    Clients(clients::ClientsArgs),
    /// Looks at the pool, its servers and its store for what is not as it should be.
    Doctor(doctor::DoctorArgs),
    /// Stages changes of nodes, lists them, and accepts one that came back.
    #[command(subcommand)]
    Node(node::Node),
    /// Stages changes of the whole pool.
    #[command(subcommand)]
    Pool(pool::Pool),
    /// Lists what is staged.
    Staged {
        #[command(flatten)]
        target: server::Target,
    },
    /// Takes staged edits back.
    Unstage(node::UnstageArgs),
    /// Shows what `apply` would do with what is staged.
    Plan(change::PlanArgs),
    /// Makes what is staged a change: keys move, and then owners change.
    Apply(change::ApplyArgs),
    /// Shows how far the moves have got.
    Moves(change::MovesArgs),
    /// Shows or sets how fast keys may move, also while they do.
    Throttle(change::ThrottleArgs),
    /// Lets moves go on that stopped, once the cause is mended.
    Resume(change::ResumeArgs),
    /// Takes the change in flight back.
    Abort(change::AbortArgs),
    /// Loads a router and checks every answer.
    Bench(bench::Args),
    /// Measures balance and movement of a placement, offline.
    Measure(measure::Args),
    /// Plays rounds of changes over several placements, offline.
    Sim(sim::Args),
    /// Prints completions for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

/// Runs the command line of this process.
#[must_use]
pub fn run() -> ExitCode {
    let Cli { output, verb } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error),
    };
    let given = verb.given();
    match dispatch(verb, output) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::fail(&failure.told(&given), output);
            failure.exit.into()
        }
    }
}

/// Answers a command line that is wrong, or one that asks for help or the version.
fn unparsed(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || !asks_for_json(std::env::args_os().skip(1)) {
        error.exit();
    }
    let words = error.render().to_string();
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    let words = words.split("\n\nFor more information").next();
    let failure = Failure::new(Exit::Usage, words.unwrap_or_default().trim_end());
    output::fail(&failure, Format::Json);
    failure.exit.into()
}

/// Whether JSON is asked for by a command line that cannot be parsed as a whole.
fn asks_for_json(args: impl Iterator<Item = OsString>) -> bool {
    let args: Vec<_> = args.collect();
    let joined = |arg: &OsString| arg == "-ojson" || arg == "-o=json" || arg == "--output=json";
    let parted = |two: &[OsString]| (two[0] == "-o" || two[0] == "--output") && two[1] == "json";
    args.iter().any(joined) || args.windows(2).any(parted)
}

impl Verb {
    /// The options that name the server or the folder.
    fn given(&self) -> Given {
        let target = match self {
            Self::Up(args) => return args.given(),
            Self::Down(args) => return args.given(),
            Self::Bench(args) => return args.given(),
            Self::Doctor(args) => return args.given(),
            Self::Serve(_)
            | Self::Record(_)
            | Self::Measure(_)
            | Self::Sim(_)
            | Self::Completions { .. } => {
                return Given::default();
            }
            Self::Status(args) => &args.target,
            Self::Owner(args) | Self::Route(args) => &args.target,
            Self::Clients(args) => &args.target,
            Self::Node(node) => node.target(),
            Self::Pool(pool::Pool::Set(args)) => &args.target,
            Self::Staged { target } => target,
            Self::Unstage(args) => &args.target,
            Self::Plan(args) => &args.target,
            Self::Apply(args) => &args.target,
            Self::Moves(args) => &args.target,
            Self::Throttle(args) => &args.target,
            Self::Resume(args) => &args.target,
            Self::Abort(args) => &args.target,
        };
        Given::of(target)
    }
}

fn dispatch(verb: Verb, format: Format) -> Result<Exit, Failure> {
    match verb {
        Verb::Up(args) => lifecycle::up(args, format),
        Verb::Serve(args) => serve::serve(&args, format),
        Verb::Record(verb) => record::run(verb, format),
        Verb::Down(args) => lifecycle::stop(&args, format),
        Verb::Status(args) => look::status(&args, format),
        Verb::Owner(args) => look::owner(&args, format),
        Verb::Route(args) => look::route(&args, format),
        Verb::Clients(args) => clients::clients(&args, format),
        Verb::Doctor(args) => doctor::doctor(&args, format),
        Verb::Node(node::Node::Add(args)) => node::add(args, format),
        Verb::Node(node::Node::Set(args)) => node::set(args, format),
        Verb::Node(node::Node::Remove(args)) => node::remove(args, format),
        Verb::Node(node::Node::Accept(args)) => node::accept(&args, format),
        Verb::Node(node::Node::List { target }) => look::nodes(&target, format),
        Verb::Pool(pool::Pool::Set(args)) => pool::set(&args, format),
        Verb::Staged { target } => look::staged(&target, format),
        Verb::Unstage(args) => node::unstage(&args, format),
        Verb::Plan(args) => change::plan(&args, format),
        Verb::Apply(args) => change::apply(&args, format),
        Verb::Moves(args) => change::moves(&args, format),
        Verb::Throttle(args) => change::throttle(&args, format),
        Verb::Resume(args) => change::resume(&args, format),
        Verb::Abort(args) => change::abort(&args, format),
        Verb::Bench(args) => bench::run(&args, format),
        Verb::Measure(args) => measure::run(&args, format),
        Verb::Sim(args) => sim::run(&args, format),
        Verb::Completions { shell } => completions(shell, format),
    }
}

fn completions(shell: Shell, format: Format) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct Completions {
        shell: String,
        script: String,
    }

    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "clockwise", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match format {
        Format::Table => output::line(script.trim_end())?,
        Format::Json => output::json(
            "Completions",
            None,
            &Completions {
                shell: shell.to_string(),
                script,
            },
        )?,
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_asked_for_also_by_a_wrong_command_line() {
        let asks = |words: &str| asks_for_json(words.split(' ').map(OsString::from));
        for words in [
            "status -o json --x",
            "-ojson x",
            "x --output=json",
            "--output json",
        ] {
            assert!(asks(words), "{words}");
        }
        for words in ["status -o table", "json", "status --output", "-o jsonl"] {
            assert!(!asks(words), "{words}");
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
