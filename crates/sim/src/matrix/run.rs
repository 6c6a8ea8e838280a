//! One run of one cell: a join, a fault while the record shows the wanted state, and the verdict.

use std::any::Any;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clockwise_cluster::HandoffId;

use super::faults::{Asked, Fault, Healing, Hit};
use super::interrupt::{self, pause, wait_until};
use super::stage::Stage;
use super::verdict::{self, Verdict};
use super::witness::{any_in, entered, handoff};
use super::world::World;

/// From `apply` to the wanted state.
const STATE_WITHIN: Duration = Duration::from_secs(20);
/// From the end of a fault to the end of the change.
const ENDS_WITHIN: Duration = Duration::from_secs(25);
/// From the end of the change to a pool that says that it is well.
const WELL_WITHIN: Duration = Duration::from_secs(15);
/// How long a change stands still before somebody is asked; it may well go on by itself.
const STANDS_STILL: Duration = Duration::from_millis(1_500);

/// A cell of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    pub(super) fault: Fault,
    pub(super) stage: Stage,
}

impl Cell {
    pub(super) fn name(self) -> String {
        format!("{}/{}", self.fault.name(), self.stage.name())
    }
}

/// Whether the harness spoils the outcome, to see whether it is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    AsItIs,
    /// Acknowledged values are deleted at their owners behind everybody's back.
    Spoiled,
}

/// What came of a run.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) verdict: Verdict,
    /// How long the handoff stayed in its state after the fault had struck.
    pub(super) overlap_ms: Option<u64>,
    /// Acknowledged writes a second over the whole run, times of the fault included.
    pub(super) writes_per_second: Option<u64>,
    pub(super) seconds: f64,
    /// What a person was asked for.
    pub(super) asked: Vec<String>,
}

/// Runs a cell once; what it leaves is in `folder`, which goes unless something is wrong.
pub(super) fn run(cell: Cell, seed: u64, outcome: Outcome, binary: &Path, folder: PathBuf) -> Ran {
    let began = Instant::now();
    let mut ran = Ran {
        verdict: Verdict::Clean,
        overlap_ms: None,
        writes_per_second: None,
        seconds: 0.0,
        asked: Vec::new(),
    };
    // The servers of the testkit panic where they do not start, which is no verdict on anything.
    let done = catch_unwind(AssertUnwindSafe(|| {
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        try_run(cell, seed, outcome, binary, &folder, &mut ran)
    }));
    ran.verdict = match done {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(why)) => Verdict::Void(why),
        Err(panic) => Verdict::Void(format!("the harness failed: {}", words_of(&*panic))),
    };
    ran.seconds = began.elapsed().as_secs_f64();
    if !matches!(ran.verdict, Verdict::Violation(_)) {
        // What is left behind of a run that is well is of no use; the next one overwrites it.
        drop(fs::remove_dir_all(&folder));
    }
    ran
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "without a word".to_owned())
}

/// An error is a run that counts for nothing.
fn try_run(
    cell: Cell,
    seed: u64,
    outcome: Outcome,
    binary: &Path,
    folder: &Path,
    ran: &mut Ran,
) -> Result<Verdict, String> {
    let mut world = World::start(binary, folder, seed).map_err(|error| error.to_string())?;
    let ends = drive(&mut world, cell, seed, outcome, ran);
    let verdict = match ends {
        Err(_) if interrupt::came() => Err("interrupted".to_owned()),
        ends => ends,
    };
    if matches!(verdict, Ok(Verdict::Violation(_))) {
        world.leave_traces().map_err(|error| error.to_string())?;
    }
    verdict
}

fn drive(
    world: &mut World,
    cell: Cell,
    seed: u64,
    outcome: Outcome,
    ran: &mut Ran,
) -> Result<Verdict, String> {
    world.join_fourth().map_err(|error| error.to_string())?;
    if let Some(state) = cell.stage.abort_in() {
        world
            .witness
            .wait_for(STATE_WITHIN, |seen| any_in(seen, state).then_some(()))
            .ok_or("nothing to take back")?;
        world.verb(&["abort"]).map_err(|error| error.to_string())?;
    }
    let pick = usize::try_from(seed).unwrap_or(0);
    let nth = if cell.fault.first_only() { 0 } else { pick % 3 };
    let id = world
        .witness
        .wait_for(STATE_WITHIN, |seen| entered(seen, cell.stage, nth))
        .ok_or_else(|| format!("no {}. handoff was seen in {}", nth + 1, cell.stage.name()))?
        .map_err(|()| format!("{} was over before it was seen", cell.stage.name()))?;
    pause(delay(cell.stage, seed));
    let hit = hit(world, &id, pick).ok_or("the change is over")?;
    let Healing {
        struck_at_ms,
        after,
        heal,
    } = cell.fault.strike(world, hit);
    pause(after);
    heal(world);
    let mut wrong = end_of_change(world, cell, ran);
    let ends_well =
        wrong.is_empty() && wait_until(WELL_WITHIN, || world.verb(&["status", "--check"]).is_ok());
    if wrong.is_empty() && !ends_well && !interrupt::came() {
        let said = world.verb(&["status", "--check"]);
        let said = said.unwrap_or_else(|error| error.to_string());
        wrong.push(format!("the pool is not well after the change: {said}"));
    }
    if outcome == Outcome::Spoiled {
        verdict::spoil(world);
    }
    wrong.extend(world.ended_by_themselves());
    let report = world.end_load()?;
    wrong.extend(verdict::of_load(&report));
    wrong.extend(verdict::of_places(world));
    ran.writes_per_second = verdict::writes_per_second(&report);
    if !wrong.is_empty() && !interrupt::came() {
        return Ok(Verdict::Violation(wrong));
    }
    ran.overlap_ms = Some(world.witness.overlap(&id, cell.stage, struck_at_ms)?);
    verdict::of_rate(ran.writes_per_second)?;
    Ok(Verdict::Clean)
}

/// Another moment with each seed.
fn delay(stage: Stage, seed: u64) -> Duration {
    let spread_us = u64::try_from(stage.spread().as_micros())
        .unwrap_or(0)
        .max(1);
    // The first of each three strikes at once.
    Duration::from_micros((seed / 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) % spread_us)
}

fn hit(world: &World, id: &HandoffId, pick: usize) -> Option<Hit> {
    let record = world.witness.newest()?;
    let (source, target) = world.ends_of(handoff(&record, id)?, pick);
    Some(Hit {
        source,
        target,
        pick,
    })
}

/// Waits for the end of the change, and does what a person has to where the cell allows it.
fn end_of_change(world: &mut World, cell: Cell, ran: &mut Ran) -> Vec<String> {
    let until = Instant::now() + ENDS_WITHIN;
    while !interrupt::came() {
        let ended = world.witness.wait_for(STANDS_STILL, |seen| {
            let record = &seen.last()?.record;
            record.change().is_none().then_some(())
        });
        if ended.is_some() {
            return Vec::new();
        }
        if Instant::now() > until {
            let moves = world
                .verb(&["moves"])
                .unwrap_or_else(|error| error.to_string());
            return vec![format!(
                "the change has not ended {ENDS_WITHIN:?} after the fault: {moves}"
            )];
        }
        let Ok(moves) = world.verb(&["moves", "-o", "json"]) else {
            continue;
        };
        let moves: serde_json::Value = serde_json::from_str(&moves).unwrap_or_default();
        let next = moves["next"].as_str().unwrap_or_default();
        let accept = next
            .strip_prefix("clockwise node accept ")
            .map(str::to_owned);
        let stopped = moves["outcome"] == "stopped";
        let done = match (accept, stopped, cell.fault.asks_for()) {
            (Some(node), _, Some(Asked::ToAccept)) => {
                world.verb(&["node", "accept", &node, "--confirm", &node])
            }
            (None, true, Some(Asked::ToResume)) => world.verb(&["resume"]),
            (None, false, _) => continue,
            _ => return vec![format!("a person is needed: {next} {}", moves["moves"])],
        };
        ran.asked.push(match done {
            Ok(_) => format!("{next} {}", if stopped { "stopped" } else { "" })
                .trim()
                .to_owned(),
            Err(error) => error.to_string(),
        });
    }
    Vec::new()
}
