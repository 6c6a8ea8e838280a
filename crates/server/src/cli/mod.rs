//! The command line: one file per group of verbs, one form of answer, one table of exit codes.
//!
//! stdout is data, stderr is talk. Every verb takes `-o json`.

pub mod exit;
mod measure;
pub mod output;
pub mod server;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use serde::Serialize;

use exit::{Exit, Failure};
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
    /// Measures balance and movement of a placement, offline.
    Measure(measure::Args),
    /// Prints completions for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

/// Runs the command line of this process.
#[must_use]
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(cli.verb, cli.output) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit.into()
        }
    }
}

fn dispatch(verb: Verb, format: Format) -> Result<Exit, Failure> {
    match verb {
        Verb::Measure(args) => measure::run(&args, format),
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
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
