//! The process with router and rebalancer is killed at each commit of a move, before it is made and before
//! it is known to be, on the way there and on the way back; another goes on by itself, or is told to take
//! the change back. Nothing that was acknowledged is lost, and no copy stays where it does not belong.
//!
//! A run takes some of these cells, drawn by its seed; `CLOCKWISE_PROOF_CELLS=all` takes all of them.

use std::sync::Arc;

use clockwise_client::store::{FileOptions, FileStore, MemoryStore, Store};
use clockwise_cluster::{Direction, HandoffState, Record};

use crate::child::{Halt, Serves};
use crate::commits::{Place, Side, Written};
use crate::load::{audited, fill, more_writes, seed, work, write_past_the_router};
use crate::pool::{ANY_PORT, Pool};

const CELLS_PER_RUN: usize = 3;

/// What the process is told that comes after the killed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Nothing,
    Abort,
}

/// A place to be killed at, and how it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cell {
    place: Place,
    told: Told,
}

impl Cell {
    fn all() -> Vec<Self> {
        let told = [Told::Nothing, Told::Abort];
        let places = Place::all().into_iter();
        let all = places.flat_map(|place| told.map(|told| Self { place, told }));
        // There is nothing to be taken back where the change goes back already or is no more.
        all.filter(|cell| cell.told == Told::Nothing || cell.is_there_a_change_ahead())
            .collect()
    }

    /// Whether the first process takes the change back, and is killed on that way.
    fn is_on_the_way_back(self) -> bool {
        matches!(
            self.place.written,
            Written::Back | Written::State(HandoffState::Undone)
        )
    }

    fn is_there_a_change_ahead(self) -> bool {
        let ended = Place {
            written: Written::End,
            side: Side::After,
        };
        let unbegun = Place {
            written: Written::Change,
            side: Side::Before,
        };
        !self.is_on_the_way_back() && self.place != ended && self.place != unbegun
    }

    /// Which way the change must have ended; none if it had not begun.
    fn way(self) -> Option<Direction> {
        let Place { written, side } = self.place;
        match (written, side) {
            (Written::Change, Side::Before) => None,
            // The order to take it back was never written down.
            (Written::Back, Side::Before) => Some(Direction::Forward),
            _ if self.is_on_the_way_back() || self.told == Told::Abort => Some(Direction::Back),
            _ => Some(Direction::Forward),
        }
    }
}

async fn check(cell: Cell, seed: u64) {
    println!("killed at {:?}, then told {:?}", cell.place, cell.told);
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Store> {
        Arc::new(FileStore::open(folder.path(), FileOptions::default()).unwrap())
    };
    let mut pool = Pool::found(&["a", "b"], open()).await;
    fill(&pool, 3_000).await;
    if cell.is_on_the_way_back() {
        // It is still copied when it is told.
        pool.throttle(500).await;
    }
    pool.stage_join("c").await;
    let (record, ahead) = (pool.record().await, pool.view_ahead().await);
    // A folder has one process; from here on it is the child.
    pool.store = Arc::new(MemoryStore::new());
    let mut first = Serves::start(folder.path(), ANY_PORT, Halt::Commit(cell.place));
    let router = first.router;
    let mut workload = work(router, seed, 1_000, 1_500).await;
    let direct = write_past_the_router(&mut workload, &record, "a", &ahead);
    more_writes(&workload, 300).await;

    first.tell("apply");
    if cell.is_on_the_way_back() {
        first.hears("copying");
        first.tell("abort");
    }
    first.hears("reached");
    first.kill();
    let mut second = Serves::start(folder.path(), router, Halt::Nowhere);
    let (mut way, mut at_rest) = (cell.way(), false);
    if cell.told == Told::Abort {
        second.tell("abort");
        let (aborted, words) = second.hears_either("aborted", "refused ");
        if !aborted {
            // It had gone on at once and was through before it was told.
            assert_eq!(words, "no change is in flight", "{cell:?}");
            println!("nothing to take back any more");
            way = Some(Direction::Forward);
        }
        at_rest = !aborted;
    }
    if way.is_some() && !at_rest {
        second.hears("at rest");
    }

    more_writes(&workload, 300).await;
    assert!(direct.acknowledged_writes() > 0);
    let report = audited(workload).await;
    assert!(report.is_clean(), "{cell:?}: {:?}", report.faults);
    second.end();
    pool.store = open();
    let record = pool.record().await;
    check_end(cell, way, &record);
    assert!(pool.check_places().await >= 3_000);
}

fn check_end(cell: Cell, way: Option<Direction>, record: &Record) {
    let finished = record.finished().map(|finished| finished.direction);
    let nodes = record.membership().nodes.len();
    assert!(record.change().is_none(), "{cell:?}: {:?}", record.change());
    let expected = if way == Some(Direction::Forward) {
        3
    } else {
        2
    };
    assert_eq!((finished, nodes), (way, expected), "{cell:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_kill_at_any_commit_loses_nothing_and_what_comes_after_needs_no_help() {
    let seed = seed();
    let mut cells = Cell::all();
    println!("{} cells", cells.len());
    let all = std::env::var("CLOCKWISE_PROOF_CELLS").is_ok_and(|cells| cells == "all");
    if !all {
        let (turn, step) = (seed as usize % cells.len(), cells.len() / CELLS_PER_RUN);
        cells.rotate_left(turn);
        cells = cells
            .into_iter()
            .step_by(step)
            .take(CELLS_PER_RUN)
            .collect();
    }
    for cell in cells {
        check(cell, seed).await;
    }
}
