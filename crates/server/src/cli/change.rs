//! Verbs of a change: `apply`, `moves`, `throttle`, `abort`. The work is the server's; the command line watches it.

use std::thread;
use std::time::Duration;

use clockwise_cluster::HandoffState;
use serde_json::Value;

use super::exit::{Exit, Failure};
use super::interrupt;
use super::look::{ACCEPT, STAGE};
use super::output::{self, Format, bytes, count};
use super::progress::Progress;
use super::server::{Answer, Server, Target};
use crate::admin::answer::{Envelope, Move, Moves, Outcome, Plan, Throttle};
use crate::admin::call::{ApplyCall, EmptyCall, ThrottleCall};

const LOOK_EVERY: Duration = Duration::from_millis(150);
/// The state that a move keeps in the record when another one gave back what it had moved.
const FLIPPED: &str = HandoffState::Flipped.name();

#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// Answer 3 if something is staged, 0 if nothing is.
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    pub(super) target: Target,
}

#[derive(Debug, clap::Args)]
pub(super) struct ApplyArgs {
    /// Refuse with 5 unless the pool is at this epoch, the one that the plan names.
    #[arg(long, value_name = "E")]
    expect_epoch: Option<u64>,
    /// Let this user of the nodes write although it is not ours, from now on.
    #[arg(long, value_name = "USER")]
    allow_writer: Vec<String>,
    /// Return when the last move is over.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    pub(super) target: Target,
}

#[derive(Debug, clap::Args)]
pub(super) struct MovesArgs {
    /// Follow the change until it is over.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    pub(super) target: Target,
}

#[derive(Debug, clap::Args)]
pub(super) struct AbortArgs {
    /// Return when everything is back.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    pub(super) target: Target,
}

#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    /// Return when the last move is over.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    pub(super) target: Target,
}

#[derive(Debug, clap::Args)]
pub(super) struct ThrottleArgs {
    /// Keys a second over all sources; 0 is without limit.
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    keys: Option<u64>,
    /// Bytes a second over all sources, such as 40MiB; 0 is without limit.
    #[arg(long, value_name = "N", value_parser = amount, allow_negative_numbers = true)]
    bytes: Option<u64>,
    #[command(flatten)]
    pub(super) target: Target,
}

/// A whole number.
fn whole(text: &str) -> Result<u64, String> {
    let digits = text.strip_suffix("/s").unwrap_or(text);
    digits
        .trim()
        .parse()
        .map_err(|_| "it takes a whole number of keys, such as 5000; 0 is without limit".to_owned())
}

/// A whole number, also with one of the units KiB, MiB, GiB.
fn amount(text: &str) -> Result<u64, String> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let unit = units
        .iter()
        .find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
    let (digits, size) = unit.unwrap_or((text, 1));
    let number = digits.trim().parse::<u64>().map_err(|_| {
        "it takes a whole number, also with KiB, MiB or GiB behind it, such as 512KiB; 0 is without limit"
            .to_owned()
    })?;
    number
        .checked_mul(size)
        .ok_or_else(|| format!("it is more than {} bytes", u64::MAX))
}

pub(super) fn plan(args: &PlanArgs, format: Format) -> Result<Exit, Failure> {
    let answer = args.target.find()?.get("plan", &[])?;
    let Envelope {
        epoch, body: plan, ..
    } = answer.parse::<Envelope<Plan>>()?;
    match format {
        Format::Json => output::line(&answer.text())?,
        Format::Table => {
            output::line(plan.text.trim_end())?;
            answer.line_next(&after_plan(&plan, epoch.unwrap_or_default()))?;
        }
    }
    Ok(if args.exit_code && has_any(&plan, "edits") {
        Exit::Pending
    } else {
        Exit::Done
    })
}

/// Whether a list of a plan has anything in it.
fn has_any(plan: &Plan, list: &str) -> bool {
    let list = plan.fields.get(list).and_then(Value::as_array);
    list.is_some_and(|list| !list.is_empty())
}

/// What to type after a plan.
fn after_plan(plan: &Plan, epoch: u64) -> String {
    let apply = format!("clockwise apply --expect-epoch {epoch} --wait");
    let [edits, refusals, faults] =
        ["edits", "refusals", "preflight"].map(|list| has_any(plan, list));
    match (edits, refusals, faults) {
        (true, true, _) => "It is refused as it stands. Take an edit back with:  clockwise unstage #      Look at what runs with:  clockwise moves".to_owned(),
        (true, false, true) => format!("Mend that, look again with:  clockwise plan      and apply it with:  {apply}"),
        (true, false, false) => {
            let slots = plan.fields.get("slots");
            let left = slots.and_then(|slots| slots["copies_left"].as_f64());
            let next = match left {
                Some(left) if left > 0.0 => {
                    "      Then ask for the next step with:  clockwise pool set --placement slots"
                }
                _ => "",
            };
            format!("Apply it with:  {apply}{next}")
        }
        (false, ..) => STAGE.to_owned(),
    }
}

pub(super) fn apply(args: &ApplyArgs, format: Format) -> Result<Exit, Failure> {
    let server = args.target.find()?;
    let answer = server.post(
        "apply",
        &ApplyCall {
            expect_epoch: args.expect_epoch,
            allow_writers: args.allow_writer.clone(),
        },
    )?;
    if args.wait {
        follow(&server, answer, format)
    } else {
        print_moves(&answer, format)
    }
}

pub(super) fn abort(args: &AbortArgs, format: Format) -> Result<Exit, Failure> {
    let server = args.target.find()?;
    let answer = server.post("abort", &EmptyCall {})?;
    say_what_is_dropped(&answer)?;
    if args.wait {
        follow(&server, answer, format)
    } else {
        print_moves(&answer, format)
    }
}

/// An aborted change leaves none of its edits staged: what is wanted all the same has to be staged anew.
fn say_what_is_dropped(answer: &Answer) -> Result<(), Failure> {
    let moves = answer.parse::<Envelope<Moves>>()?.body;
    if !moves.edits.is_empty() {
        output::say(format_args!(
            "taken back, and staged no more: {}",
            moves.edits.join("; ")
        ));
    }
    Ok(())
}

pub(super) fn resume(args: &ResumeArgs, format: Format) -> Result<Exit, Failure> {
    let server = args.target.find()?;
    let before = server.get("moves", &[])?.parse::<Envelope<Moves>>()?.body;
    let answer = server.post("resume", &EmptyCall {})?;
    if before.outcome != Outcome::Stopped {
        output::say("nothing had stopped: there was nothing to resume");
    }
    if args.wait {
        follow(&server, answer, format)
    } else {
        print_moves(&answer, format)
    }
}

pub(super) fn moves(args: &MovesArgs, format: Format) -> Result<Exit, Failure> {
    let server = args.target.find()?;
    let answer = server.get("moves", &[])?;
    if args.watch {
        follow(&server, answer, format)
    } else {
        print_moves(&answer, format)
    }
}

/// Watches a change to its end. Interrupted, it says that the work goes on.
fn follow(server: &Server, first: Answer, format: Format) -> Result<Exit, Failure> {
    let interrupted = Failure::new(
        Exit::Interrupted,
        "interrupted; the change goes on in the server",
    )
    .with_next("clockwise moves --watch");
    interrupt::explain(server.told(&interrupted), format);
    let mut progress = Progress::new();
    let mut answer = first;
    loop {
        let moves = answer.parse::<Envelope<Moves>>()?.body;
        progress.show(&moves);
        match moves.outcome {
            Outcome::Running => thread::sleep(LOOK_EVERY),
            Outcome::Stopped => {
                progress.end();
                // Why stands in the failure.
                print_moves_with(&answer, format, Reasons::LeftOut)?;
                return Err(stopped(&moves));
            }
            Outcome::None | Outcome::Done | Outcome::Undone => {
                progress.end();
                return print_moves(&answer, format);
            }
        }
        answer = server.get("moves", &[])?;
    }
}

fn stopped(moves: &Moves) -> Failure {
    let words: Vec<_> = moves
        .moves
        .iter()
        .filter_map(|one| {
            Some(format!(
                "move from {}: {}",
                one.source,
                one.stopped.as_ref()?
            ))
        })
        .collect();
    let back = if moves.goes_back() { " back" } else { "" };
    Failure::new(
        Exit::Unhealthy,
        format!("the change cannot go on{back} by itself: {}", words.join("; ")),
    )
    .with_next(match (&moves.next, moves.goes_back()) {
        // Nothing goes on or back before that is decided.
        (Some(next), _) => next.clone(),
        (None, true) => "mend the cause, then:  clockwise resume --wait".to_owned(),
        (None, false) => {
            "mend the cause, then:  clockwise resume --wait      or take it back with:  clockwise abort --wait"
                .to_owned()
        }
    })
}

pub(super) fn print_moves(answer: &Answer, format: Format) -> Result<Exit, Failure> {
    print_moves_with(answer, format, Reasons::Printed)
}

/// Whether why moves stand still is printed below their table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reasons {
    Printed,
    LeftOut,
}

/// Why a move stands still or waits, in one line.
fn reason(one: &Move) -> Option<String> {
    let (verb, why) = match (&one.stopped, &one.waiting) {
        (Some(why), _) => ("stopped", why),
        (None, Some(why)) => ("waits", why),
        (None, None) => return None,
    };
    Some(format!("move from {} {verb}: {why}", one.source))
}

fn print_moves_with(answer: &Answer, format: Format, reasons: Reasons) -> Result<Exit, Failure> {
    if format == Format::Json {
        output::line(&answer.text())?;
        return Ok(Exit::Done);
    }
    let Envelope {
        epoch, body: moves, ..
    } = answer.parse::<Envelope<Moves>>()?;
    let Some(change) = &moves.change else {
        output::line("no change runs, and none has ended yet")?;
        answer.line_next(STAGE)?;
        return Ok(Exit::Done);
    };
    let epoch = epoch.unwrap_or_default();
    output::line(&format!(
        "change {change}   {}   epoch {epoch}\n",
        moves.outcome
    ))?;
    if moves.moves.is_empty() {
        output::line("no key had to move")?;
    } else {
        output::line(&moves_table(&moves))?;
    }
    let why: Vec<String> = moves.moves.iter().filter_map(reason).collect();
    if reasons == Reasons::Printed && !why.is_empty() {
        output::line(&format!("\n{}", why.join("\n")))?;
    }
    if let Some(course) = course(&moves) {
        output::line(&format!("\n{course}"))?;
    }
    answer.line_next(&next_of(&moves))?;
    Ok(Exit::Done)
}

/// How far a change has got that runs, in one line.
fn course(moves: &Moves) -> Option<String> {
    let running = matches!(moves.outcome, Outcome::Running | Outcome::Stopped);
    let percent = moves.percent.filter(|_| running)?;
    let expected = count(moves.keys_expected?);
    let rate = moves.keys_per_second.filter(|rate| *rate > 0);
    let rate = rate.map_or_else(String::new, |rate| format!(", {} keys/s", count(rate)));
    let left = moves.eta_seconds.filter(|left| *left > 0);
    let left = left.map_or_else(String::new, |left| format!(", {} to go", time(left)));
    Some(format!(
        "{percent:.1} % of about {expected} keys moved{rate}{left}"
    ))
}

/// Seconds as a person reads them.
fn time(seconds: u64) -> String {
    match (seconds / 3_600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} m {} s", seconds % 60),
        (hours, minutes) => format!("{hours} h {minutes} m"),
    }
}

fn next_of(moves: &Moves) -> String {
    let next = match (&moves.next, moves.outcome) {
        (Some(next), _) => return format!("{ACCEPT}  {next}"),
        (None, Outcome::Running) => "Follow it with:  clockwise moves --watch",
        (None, Outcome::Stopped) => "Go on with:  clockwise resume",
        (None, _) => return "Look at the pool with:  clockwise status".to_owned(),
    };
    // What goes back already cannot be taken back once more.
    match moves.goes_back() {
        true => next.to_owned(),
        false => format!("{next}      Take it back with:  clockwise abort"),
    }
}

fn moves_table(moves: &Moves) -> String {
    let header = [
        "source",
        "targets",
        "state",
        "keys",
        "bytes",
        "mismatches",
        "longest hold",
        "seconds",
        "",
    ];
    let row = |one: &Move| {
        vec![
            one.source.clone(),
            one.targets.join(", "),
            match moves.outcome == Outcome::Undone && !one.reverse && one.state == FLIPPED {
                true => "given back".to_owned(),
                false => one.state.clone(),
            },
            count(one.keys_moved),
            bytes(one.bytes),
            count(one.mismatches),
            format!("{} ms", one.hold_ms_max),
            format!("{:.1}", one.seconds),
            match (&one.stopped, &one.waiting) {
                (Some(_), _) => "stopped",
                (None, Some(_)) => "waits",
                (None, None) => "",
            }
            .to_owned(),
        ]
    };
    let rows = moves.moves.iter().map(row).collect();
    output::table(&header, &[3, 4, 5, 6, 7], rows)
}

pub(super) fn throttle(args: &ThrottleArgs, format: Format) -> Result<Exit, Failure> {
    let server = args.target.find()?;
    let answer = match (args.keys, args.bytes) {
        (None, None) => server.get("throttle", &[])?,
        (keys_per_second, bytes_per_second) => server.post(
            "throttle",
            &ThrottleCall {
                keys_per_second,
                bytes_per_second,
            },
        )?,
    };
    if format == Format::Json {
        output::line(&answer.text())?;
        return Ok(Exit::Done);
    }
    let throttle = answer.parse::<Envelope<Throttle>>()?.body;
    let or_none = |number: u64, text: String| {
        if number == 0 {
            "without limit".to_owned()
        } else {
            text
        }
    };
    let keys = or_none(
        throttle.keys_per_second,
        format!("{}/s", count(throttle.keys_per_second)),
    );
    let size = or_none(
        throttle.bytes_per_second,
        format!("{}/s", bytes(throttle.bytes_per_second)),
    );
    output::line(&format!("keys   {keys}\nbytes  {size}"))?;
    answer.line_next(
        "Change it, also while keys move, with:  clockwise throttle --keys N --bytes N",
    )?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        let times = [0, 59, 60, 3_599, 3_600, 90_061].map(time);
        let words = ["0 s", "59 s", "1 m 0 s", "59 m 59 s", "1 h 0 m", "25 h 1 m"];
        assert_eq!(times, words);
    }

    #[test]
    fn what_was_given_back_is_called_so_once_all_of_it_was() {
        let table = |outcome: &str| {
            let one = |reverse: bool, state: &str| {
                serde_json::json!({"source": "a", "targets": ["b"], "state": state, "reverse": reverse,
                    "keys_moved": 1, "bytes": 1, "mismatches": 0, "hold_ms_max": 1, "seconds": 1.0})
            };
            let moves = serde_json::json!({"change": "c", "outcome": outcome, "direction": "back",
                "throttle": {"keys_per_second": 0, "bytes_per_second": 0},
                "moves": [one(false, "flipped"), one(true, "done")]});
            moves_table(&serde_json::from_value(moves).unwrap())
        };
        assert!(table("running").contains("flipped"));
        let undone = table("undone");
        assert!(
            undone.contains("given back") && !undone.contains("flipped"),
            "{undone}"
        );
        assert!(undone.contains("done"), "{undone}");
    }

    #[test]
    fn amounts_take_units() {
        let cases = [
            ("0", Ok(0)),
            ("5000", Ok(5000)),
            ("40MiB", Ok(40 << 20)),
            ("2GiB/s", Ok(2 << 30)),
        ];
        for (text, meant) in cases {
            assert_eq!(amount(text), meant, "{text}");
        }
        for text in ["", "-1", "1.5", "MiB", "0.5MiB"] {
            let why = amount(text).unwrap_err();
            assert!(why.contains("such as 512KiB"), "{text}: {why}");
        }
        assert!(amount("99999999999GiB").unwrap_err().contains("more than"));
        assert_eq!((whole("0"), whole("5000/s")), (Ok(0), Ok(5000)));
        for text in ["abc", "5KiB", "-1"] {
            let why = whole(text).unwrap_err();
            assert!(
                why.contains("such as 5000") && !why.contains("KiB"),
                "{text}: {why}"
            );
        }
    }
}
