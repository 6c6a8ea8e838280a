//! `clockwise-sim matrix`: faults × states of the handoff, on real processes.
//!
//! A run is one small production ([`world`]) in which a node joins under a checked load. When the record shows
//! the wanted state, a fault strikes ([`faults`]); then it is healed, the change ends, and everything that was
//! acknowledged has to be where its owner is ([`verdict`]). A run whose fault came too late for its state, or
//! whose load was too low, counts for nothing.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real processes take real time, and are looked at"
)]

mod faults;
mod interrupt;
mod kept;
mod run;
mod stage;
mod table;
mod verdict;
mod witness;
mod world;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use faults::Fault;
use kept::Kept;
use run::{Cell, Outcome, Ran, run};
use stage::STAGES;
use verdict::Verdict;

use crate::patches::{number_of_commit, root};

const USAGE: &str = "usage: clockwise-sim matrix [--cell FAULT/STATE | --some N] [--runs N] [--seed SEED] [--minutes N]
                     [--binary FILE] [--results DIR]
       clockwise-sim matrix --list
       clockwise-sim matrix --spoiled [--binary FILE]";
/// Clean runs that a cell needs.
const RUNS: u64 = 3;
/// Void runs of a cell in one go, after which it is left for another time.
const VOIDS_MAX: u64 = 3;
/// The cell that is run with a spoiled outcome.
const SPOILED: &str = "kill-leader/copying";
const BINARY: &str = "clockwise";

/// What is asked for.
struct Asked {
    cells: Chosen,
    runs: u64,
    seed: Option<u64>,
    minutes: Option<u64>,
    binary: PathBuf,
    results: PathBuf,
    outcome: Outcome,
}

enum Chosen {
    All,
    Some(usize),
    One(Cell),
    /// None: their names are printed.
    Names,
}

pub(crate) fn run_command(args: &[&str]) -> ExitCode {
    let asked = match asked(args) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match try_run(&asked) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn asked(args: &[&str]) -> Result<Asked, String> {
    let mut asked = Asked {
        cells: Chosen::All,
        runs: RUNS,
        seed: None,
        minutes: None,
        binary: beside(BINARY),
        results: root().join("target").join("matrix"),
        outcome: Outcome::AsItIs,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || {
            args.next()
                .copied()
                .ok_or_else(|| format!("{arg} needs a value"))
        };
        match *arg {
            "--cell" => asked.cells = Chosen::One(cell_named(value()?)?),
            "--some" => asked.cells = Chosen::Some(number(value()?)?),
            "--runs" => asked.runs = number(value()?)?,
            "--seed" => asked.seed = Some(number(value()?)?),
            "--minutes" => asked.minutes = Some(number(value()?)?),
            "--binary" => asked.binary = PathBuf::from(value()?),
            "--results" => asked.results = PathBuf::from(value()?),
            "--list" => asked.cells = Chosen::Names,
            "--spoiled" => asked.outcome = Outcome::Spoiled,
            _ => return Err(format!("unknown: {arg}")),
        }
    }
    if asked.seed.is_some() && !matches!(asked.cells, Chosen::One(_)) {
        return Err("--seed is of one run: name its --cell".to_owned());
    }
    Ok(asked)
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("not a number: {text}"))
}

/// A program that was built together with this one.
fn beside(name: &str) -> PathBuf {
    std::env::current_exe().map_or_else(|_| PathBuf::from(name), |own| own.with_file_name(name))
}

fn cells() -> Vec<Cell> {
    let row = |fault: Fault| STAGES.map(|stage| Cell { fault, stage });
    Fault::all().into_iter().flat_map(row).collect()
}

fn cell_named(name: &str) -> Result<Cell, String> {
    let cell = cells().into_iter().find(|cell| cell.name() == name);
    let cell = cell.ok_or_else(|| format!("no cell is called {name}; matrix --list names all"))?;
    match cell.fault.does_not_apply(cell.stage) {
        Some(why) => Err(format!("{name} is not run: {why}")),
        None => Ok(cell),
    }
}

fn try_run(asked: &Asked) -> io::Result<ExitCode> {
    let applying = |cell: &Cell| cell.fault.does_not_apply(cell.stage).is_none();
    let all: Vec<Cell> = cells().into_iter().filter(applying).collect();
    let chosen = match asked.cells {
        Chosen::Names => {
            let names: Vec<String> = all.iter().map(|cell| cell.name() + "\n").collect();
            io::stdout().write_all(names.concat().as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        Chosen::All => unbroken(all),
        Chosen::One(cell) => vec![cell],
        Chosen::Some(count) => some(&unbroken(all), count)?,
    };
    if !asked.binary.is_file() {
        let binary = asked.binary.display();
        return Err(io::Error::other(format!(
            "{binary} is not there: cargo build --release --bin clockwise, or name another with --binary"
        )));
    }
    interrupt::listen()?;
    if asked.outcome == Outcome::Spoiled {
        return spoiled(asked);
    }
    let mut kept = Kept::open(&asked.results, &asked.binary)?;
    let violations = match (asked.seed, &asked.cells) {
        (Some(seed), Chosen::One(cell)) => {
            u64::from(once(*cell, seed, asked, &mut kept)?.is_violation())
        }
        _ => many(&chosen, asked, &mut kept)?,
    };
    let shown = chosen.iter().any(|cell| kept.of(&cell.name()).clean > 0);
    println!("\n{}", table::text(&kept));
    println!("kept in {}", kept.file().display());
    Ok(match (violations, interrupt::came()) {
        (1.., _) => ExitCode::FAILURE,
        (0, true) => ExitCode::from(130),
        (0, false) if shown || matches!(asked.cells, Chosen::One(_)) => ExitCode::SUCCESS,
        (0, false) => {
            println!("no run counts: this has shown nothing");
            ExitCode::FAILURE
        }
    })
}

/// Without what is known to break.
fn unbroken(mut cells: Vec<Cell>) -> Vec<Cell> {
    cells.retain(|cell| cell.fault.known_to_break().is_none());
    cells
}

/// So many cells, others with every commit, from all over the table.
fn some(all: &[Cell], count: usize) -> io::Result<Vec<Cell>> {
    let first = number_of_commit(&root())? % all.len();
    let count = count.clamp(1, all.len());
    let step = all.len() / count;
    let at = |nth: usize| all[(first + nth * step) % all.len()];
    Ok((0..count).map(at).collect())
}

/// Each cell once, then each once more, until all have their runs; how many violations there are.
fn many(cells: &[Cell], asked: &Asked, kept: &mut Kept) -> io::Result<u64> {
    let limit = asked
        .minutes
        .map(|minutes| Duration::from_secs(60 * minutes));
    let began = Instant::now();
    let over = || interrupt::came() || limit.is_some_and(|limit| began.elapsed() >= limit);
    let mut violations = 0;
    for round in 1..=asked.runs {
        for cell in cells {
            let mut voids = 0;
            while kept.of(&cell.name()).clean < round && voids < VOIDS_MAX && !over() {
                let seed = kept.of(&cell.name()).next_seed;
                match once(*cell, seed, asked, kept)? {
                    Verdict::Clean => {}
                    Verdict::Void(_) => voids += 1,
                    Verdict::Violation(_) => {
                        violations += 1;
                        break;
                    }
                }
            }
        }
    }
    Ok(violations)
}

/// One run, printed and kept.
fn once(cell: Cell, seed: u64, asked: &Asked, kept: &mut Kept) -> io::Result<Verdict> {
    let name = cell.name();
    let folder = folder_of(&asked.results, cell, seed);
    let ran = run(cell, seed, Outcome::AsItIs, &asked.binary, folder.clone());
    if interrupt::came() {
        return Ok(Verdict::Void("interrupted".to_owned()));
    }
    println!("{name} seed {seed}: {}", line(&ran));
    if let Verdict::Violation(wrong) = &ran.verdict {
        wrong.iter().for_each(|what| println!("  {what}"));
        println!("  logs: {}", folder.display());
        println!(
            "  again: cargo run --release -p clockwise-sim -- matrix --cell {name} --seed {seed} --binary {}",
            asked.binary.display()
        );
    }
    kept.add(&name, seed, &ran)?;
    Ok(ran.verdict)
}

fn folder_of(results: &Path, cell: Cell, seed: u64) -> PathBuf {
    results.join(format!("{}-{seed}", cell.name().replace('/', "-")))
}

fn line(ran: &Ran) -> String {
    let verdict = match &ran.verdict {
        Verdict::Clean => "clean".to_owned(),
        Verdict::Void(why) => format!("void: {why}"),
        Verdict::Violation(_) => "VIOLATION".to_owned(),
    };
    let mut words = vec![verdict];
    words.extend(
        ran.overlap_ms
            .map(|ms| format!("{ms} ms more of its state")),
    );
    words.extend(ran.writes_per_second.map(|rate| format!("{rate} writes/s")));
    words.extend(ran.asked.iter().map(|asked| format!("asked for: {asked}")));
    words.push(format!("{:.1} s", ran.seconds));
    words.join(", ")
}

/// A run whose outcome is spoiled has to be a violation: else this proves nothing. A void one is made again.
fn spoiled(asked: &Asked) -> io::Result<ExitCode> {
    let cell = cell_named(SPOILED).map_err(io::Error::other)?;
    for seed in 0..=VOIDS_MAX {
        let folder = folder_of(&asked.results, cell, seed).with_extension("spoiled");
        let ran = run(cell, seed, Outcome::Spoiled, &asked.binary, folder.clone());
        println!("{} with deleted values: {}", cell.name(), line(&ran));
        match &ran.verdict {
            Verdict::Void(_) if !interrupt::came() => drop(std::fs::remove_dir_all(folder)),
            Verdict::Violation(wrong) if wrong.iter().any(|what| what.contains("keys lost")) => {
                // Its logs are of no use to anybody.
                drop(std::fs::remove_dir_all(folder));
                return Ok(ExitCode::SUCCESS);
            }
            _ => {
                println!("NOT NOTICED; logs: {}", folder.display());
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    println!("NOT SHOWN: no run counts");
    Ok(ExitCode::FAILURE)
}
