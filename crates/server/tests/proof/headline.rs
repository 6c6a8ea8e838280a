//! The promise itself: while nodes join and leave, no acknowledged write is lost, nothing deleted comes
//! back, no expiry changes; although one more client writes on to the old owner with its old credential.
//! With the fence left out the same run loses writes, so it would see them.
//!
//! `CLOCKWISE_PROOF_RUNS=20` repeats it twenty times with the fence, and ten times without it, of which
//! nine have to find losses.

use std::sync::Arc;

use async_trait::async_trait;
use clockwise::workload::Report;
use clockwise_placement::NodeId;

use crate::keys::way;
use crate::load::{audited, fill, more_writes, seed, work, write_past_the_router};
use crate::meddling::{Call, Meddler, NoMeddling, Verdict};
use crate::pool::Pool;

const RUNS: u64 = 3;
/// Runs that measured too little, for each that counts, before the test gives up.
const VOID_MAX: u64 = 2;

const WRITES_PER_SECOND_MIN: f64 = 1_000.0;
const DURING_MOVE_PERCENT_MIN: u64 = 30;
const ON_MOVING_KEYS_MIN: u64 = 3_000;

/// What is applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Applied {
    Join,
    Leave,
    /// Both in one change.
    JoinAndLeave,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fence {
    Stands,
    LeftOut,
}

/// Says that clients were fenced off, and lets them in.
#[derive(Debug)]
struct NoFence;

#[async_trait]
impl Meddler for NoFence {
    async fn before(&self, _node: &NodeId, call: Call) -> Verdict {
        match call {
            Call::Fence | Call::KeepUsers => Verdict::LeaveOut,
            _ => Verdict::Pass,
        }
    }
}

/// What one run gave.
struct Run {
    report: Report,
    /// Why the change stopped before its end, if it did.
    stopped: Option<String>,
    writes_per_second: f64,
    during_move_percent: u64,
    on_moving_keys: u64,
    direct_during_move: u64,
}

impl Run {
    /// Why it proves nothing.
    fn void(&self) -> Option<String> {
        if let Some(why) = &self.stopped {
            return Some(format!("the change stopped: {why}"));
        }
        let enough = self.writes_per_second >= WRITES_PER_SECOND_MIN
            && self.during_move_percent >= DURING_MOVE_PERCENT_MIN
            && self.on_moving_keys >= ON_MOVING_KEYS_MIN
            && self.direct_during_move > 0;
        (!enough).then(|| {
            format!(
                "{:.0} writes/s, {} % during the move, {} on moving keys, {} direct",
                self.writes_per_second,
                self.during_move_percent,
                self.on_moving_keys,
                self.direct_during_move
            )
        })
    }
}

async fn run(applied: Applied, fence: Fence, seed: u64) -> Run {
    let meddler: Arc<dyn Meddler> = match fence {
        Fence::Stands => Arc::new(NoMeddling),
        Fence::LeftOut => Arc::new(NoFence),
    };
    let mut pool = Pool::start_meddled(&["a", "b", "c"], meddler).await;
    fill(&pool, 60_000).await;
    let mut workload = work(pool.router(), seed, 6_000, 8_000).await;
    if applied != Applied::Leave {
        pool.stage_join("d").await;
    }
    if applied != Applied::Join {
        pool.stage_leave("c").await;
    }
    pool.throttle(6_000).await;
    let ahead = pool.view_ahead().await;
    let source = if applied == Applied::Join { "a" } else { "c" };
    let direct = write_past_the_router(&mut workload, &*pool.record().await, source, &ahead);
    let start = workload.mark();
    more_writes(&workload, 4_000).await;
    let before = workload.mark();
    let direct_before = direct.acknowledged_writes();
    pool.apply().await;
    let ended = pool.end().await;
    let after = workload.mark();
    let direct_during_move = direct.acknowledged_writes() - direct_before;
    more_writes(&workload, 4_000).await;
    let end = workload.mark();
    let report = audited(workload).await;
    let all = end.since(&start);
    let during = after.since(&before);
    let run = Run {
        writes_per_second: all.acknowledged_writes_per_second(),
        during_move_percent: during.acknowledged_writes() * 100 / all.acknowledged_writes(),
        on_moving_keys: during.acknowledged_writes_on(|key| way(&ahead, key).is_some()),
        direct_during_move,
        report,
        stopped: ended.as_ref().err().cloned(),
    };
    println!(
        "{applied:?}, fence {fence:?}, seed {seed}: moved in {ended:?}; {:.0} writes/s, {} % during the move, \
         {} on moving keys, {} direct during the move",
        run.writes_per_second, run.during_move_percent, run.on_moving_keys, direct_during_move
    );
    run
}

/// Runs again while runs are void, a bounded number of times. With the fence even a void run may
/// lose nothing.
async fn valid_run(number: u64, fence: Fence, seed: u64) -> Run {
    let applied = [Applied::Join, Applied::Leave, Applied::JoinAndLeave];
    let applied = applied[usize::try_from(number % 3).unwrap()];
    let mut why = String::new();
    for again in 0..=VOID_MAX {
        let run = run(applied, fence, seed + number * 100 + again).await;
        if fence == Fence::Stands {
            check_nothing_lost(&run.report, number);
        }
        match run.void() {
            None => return run,
            Some(void) => why = void,
        }
        println!("void: {why}");
    }
    panic!("no run measured enough: {why}");
}

fn check_nothing_lost(report: &Report, number: u64) {
    let faults = report.faults;
    assert_eq!(
        (faults.lost, faults.resurrected, faults.wrong_ttl),
        (0, 0, 0),
        "run {number}: {faults:?}"
    );
    assert!(report.is_clean(), "run {number}: {faults:?}");
}

fn runs_wanted() -> Option<u64> {
    let runs = std::env::var("CLOCKWISE_PROOF_RUNS").ok();
    runs.map(|runs| runs.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_while_nodes_join_and_leave() {
    let seed = seed();
    for number in 0..runs_wanted().unwrap_or(RUNS) {
        let run = valid_run(number, Fence::Stands, seed).await;
        let errors = &run.report.errors;
        assert_eq!(run.report.other_errors(), 0, "run {number}: {errors:?}");
        let direct = &run.report.direct[0];
        let denied = direct.errors.get("denied").map_or(0, |error| error.count);
        assert!(denied > 0, "the old credential was let in: {direct:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_fence_writes_are_lost_and_found_missing() {
    let seed = seed();
    // At least this many of these: one of three here, nine of ten where the headline is repeated.
    let (wanted, runs) = match runs_wanted() {
        None => (1, 3),
        Some(runs) => (9 * runs.div_ceil(2) / 10, runs.div_ceil(2)),
    };
    let (mut found, mut made) = (0, 0);
    while made < runs && found < wanted {
        let run = valid_run(made, Fence::LeftOut, seed).await;
        found += u64::from(run.report.faults.lost > 0);
        made += 1;
    }
    assert!(
        found >= wanted,
        "losses were found in {found} of {made} runs"
    );
}
