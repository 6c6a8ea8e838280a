//! `clockwise-sim seeds`: many runs of the simulation on all cores, or one that is looked at.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clockwise_sim::seeds::{Coverage, Failure, Tracing, run, shrunk};

const USAGE: &str = "usage: clockwise-sim seeds N [--from SEED] [--first]
       clockwise-sim seeds --seed SEED [--trace]";
/// Failing seeds after which there is enough to look at.
const FAILURES_MAX: usize = 3;
/// Runs from which on every state has to be reached under every fault.
const FULL_COVERAGE_FROM: u64 = 10_000;
/// Lines of a trace that are shown.
const LINES_MAX: usize = 120;

/// What is asked for.
enum Asked {
    Many { from: u64, count: u64, shown: Shown },
    One { seed: u64, tracing: Tracing },
}

/// What is shown of what breaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// Some failing seeds, each made as small as it goes.
    Small,
    /// One, as soon as there is one: for somebody who only wants to know.
    First,
}

pub(crate) fn run_command(args: &[&str]) -> ExitCode {
    match asked(args) {
        Some(Asked::Many { from, count, shown }) => many(from, count, shown),
        Some(Asked::One { seed, tracing }) => one(seed, tracing),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn asked(args: &[&str]) -> Option<Asked> {
    let number = |text: &str| text.parse::<u64>().ok();
    let (args, shown) = match args {
        [args @ .., "--first"] => (args, Shown::First),
        args => (args, Shown::Small),
    };
    let (from, count) = match args {
        ["--seed", seed] => {
            return Some(Asked::One {
                seed: number(seed)?,
                tracing: Tracing::Off,
            });
        }
        ["--seed", seed, "--trace"] => {
            return Some(Asked::One {
                seed: number(seed)?,
                tracing: Tracing::On,
            });
        }
        [count] => (0, number(count)?),
        [count, "--from", from] => (number(from)?, number(count)?),
        _ => return None,
    };
    Some(Asked::Many { from, count, shown })
}

/// One seed, as it is; with its trace, or made smaller if something breaks.
fn one(seed: u64, tracing: Tracing) -> ExitCode {
    let result = run(seed, tracing);
    for line in &result.trace {
        println!("{line}");
    }
    match (&result.violation, tracing) {
        (None, _) => {
            println!("seed {seed}: nothing broke");
            ExitCode::SUCCESS
        }
        (Some((invariant, how)), Tracing::On) => {
            println!("seed {seed}: {invariant}: {how}");
            ExitCode::FAILURE
        }
        (Some(_), Tracing::Off) => {
            if let Some(failure) = shrunk(seed) {
                show(&failure);
            }
            ExitCode::FAILURE
        }
    }
}

/// So many seeds, side by side.
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "how long it took is printed, never used"
)]
fn many(from: u64, count: u64, shown: Shown) -> ExitCode {
    let failures_max = if shown == Shown::First {
        1
    } else {
        FAILURES_MAX
    };
    let began = std::time::Instant::now();
    let next = AtomicU64::new(from);
    let end = from.saturating_add(count);
    let failed: Mutex<Vec<u64>> = Mutex::default();
    let reached: Mutex<Coverage> = Mutex::default();
    let work = || {
        let mut own = Coverage::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let enough = failed.lock().expect("no run panics in here").len() >= failures_max;
            if seed >= end || enough {
                break;
            }
            let result = run(seed, Tracing::Off);
            own.add(&result.coverage);
            if result.violation.is_some() {
                failed.lock().expect("no run panics in here").push(seed);
            }
        }
        reached.lock().expect("no run panics in here").add(&own);
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let mut failed = failed.into_inner().expect("no run panics in here");
    failed.sort_unstable();
    let reached = reached.into_inner().expect("no run panics in here");
    let seconds = began.elapsed().as_secs_f64();
    println!("{}", reached.table());
    println!(
        "\n{count} seeds from {from} in {seconds:.1} s: {} s of virtual time, {} steps, {} requests ({} held), \
         {} commits, {} changes ended, {} handovers rolled back",
        reached.seconds,
        reached.steps,
        reached.requests,
        reached.held,
        reached.commits,
        reached.changes,
        reached.rollbacks
    );
    if let (Shown::First, Some(seed)) = (shown, failed.first()) {
        let broken = run(*seed, Tracing::Off).violation;
        println!("seed {seed}: {broken:?}");
        return ExitCode::FAILURE;
    }
    for seed in &failed {
        if let Some(failure) = shrunk(*seed) {
            show(&failure);
        }
    }
    let missing = reached.missing();
    let void = count >= FULL_COVERAGE_FROM && failed.is_empty() && !missing.is_empty();
    if void {
        println!("never reached: {}", missing.join(", "));
    }
    match failed.is_empty() && !void {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn show(failure: &Failure) {
    let Failure {
        seed,
        invariant,
        how,
        settings,
        trace,
    } = failure;
    println!("\nseed {seed} breaks {invariant}: {how}");
    println!("what it still takes: {settings}");
    let skipped = trace.len().saturating_sub(LINES_MAX);
    println!(
        "the last {} of {} things that happened:",
        trace.len() - skipped,
        trace.len()
    );
    for line in &trace[skipped..] {
        println!("{line}");
    }
    println!("repeat it: cargo run --release -p clockwise-sim -- seeds --seed {seed} [--trace]");
}
