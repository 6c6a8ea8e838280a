//! `clockwise-sim model` checks the handoff in every order and prints what was looked at; `clockwise-sim
//! planted` breaks one rule after the other and says which invariant noticed, with `--patches` in a copy of
//! the tree; `clockwise-sim seeds` runs a whole cluster in virtual time, once for each seed; `clockwise-sim
//! matrix` lets faults strike in each state of a handoff of real processes.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clockwise_sim::{Found, Handover, Invariant, PLANTED, Planted, SCENARIOS, Scenario, search};

mod ended;
mod matrix;
mod patches;
mod seeds_command;

const USAGE: &str = "usage: clockwise-sim model [SCENARIO]
       clockwise-sim planted [--patches [NAME...]]
       clockwise-sim seeds N [--from SEED] [--first]
       clockwise-sim seeds --seed SEED [--trace]
       clockwise-sim matrix --list";
/// More than this would not fit into the memory of a small machine.
const STATES_MAX: u64 = 60_000_000;
/// Scenarios that are searched side by side.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["planted", "--patches", names @ ..] = &args[..] {
        return patches::run_command(names);
    }
    if let ["matrix", rest @ ..] = &args[..] {
        return matrix::run_command(rest);
    }
    if let ["seeds", rest @ ..] = &args[..] {
        return seeds_command::run_command(rest);
    }
    if args == ["planted"] {
        let missed = PLANTED.iter().filter(|planted| !notices(planted)).count();
        return if missed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let chosen: Vec<&Scenario> = match args[..] {
        ["model"] => SCENARIOS.iter().collect(),
        ["model", name] => SCENARIOS.iter().filter(|one| one.name == name).collect(),
        _ => Vec::new(),
    };
    if chosen.is_empty() {
        let names = SCENARIOS.map(|scenario| scenario.name);
        eprintln!("{USAGE}\nscenarios: {}", names.join(", "));
        return ExitCode::from(2);
    }
    for invariant in Invariant::ALL {
        println!("checked in every state: {invariant:?}");
    }
    let (next, bad) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(scenario) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let good = check(scenario);
            bad.fetch_add(usize::from(!good), Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(work);
        }
    });
    if bad.into_inner() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Plants one bug and prints what noticed it.
fn notices(planted: &Planted) -> bool {
    let Planted { bug, breaks, .. } = *planted;
    let found = search(&mut Handover::planted(planted), STATES_MAX);
    match found.violation {
        Some((invariant, way)) => {
            println!(
                "{bug:?}: {invariant:?} after {} steps, {} states",
                way.len(),
                found.states
            );
            true
        }
        None => {
            println!(
                "{bug:?}: {breaks:?} holds in all {} states: NOT NOTICED",
                found.states
            );
            false
        }
    }
}

/// Checks one scenario and prints what came of it.
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "how long it took is printed, never used"
)]
fn check(scenario: &Scenario) -> bool {
    let began = std::time::Instant::now();
    let mut model = Handover::new(scenario.bounds, None);
    let found = search(&mut model, STATES_MAX);
    let Found {
        states,
        transitions,
        depth,
        ..
    } = found;
    let seconds = began.elapsed().as_secs_f64();
    let whole = if found.complete {
        "complete"
    } else {
        "NOT complete"
    };
    let mut text = format!(
        "{}: {states} states, {transitions} transitions, depth {depth}, {seconds:.1} s, {whole}\n",
        scenario.name
    );
    let passed: Vec<_> = model.milestones().collect();
    let [records, conductors, books] = model.sizes();
    let _ = writeln!(text, "  passed: {}", passed.join(", "));
    let _ = writeln!(
        text,
        "  {records} records, {conductors} states of the conductor, {books} of the copier"
    );
    if let Some((invariant, way)) = &found.violation {
        let _ = writeln!(
            text,
            "  {invariant:?} does not hold after {} steps:",
            way.len()
        );
        for (number, step) in (1..).zip(way) {
            let _ = writeln!(text, "  {number:3} {step}");
        }
    }
    print!("{text}");
    found.complete && found.violation.is_none()
}
