//! Comparing both sides while the source goes on serving, in both directions: what the source has must
//! be equal at its target, and what a target has must exist at the source.
//!
//! A difference proves nothing at first: the key may have been touched a moment ago. Once the stream has
//! delivered everything up to the comparison, those that nobody touched are looked at a second time;
//! what still differs is counted and copied again.

use std::mem;

use clockwise_cluster::copier::Lane;
use clockwise_cluster::handoff::{Event, Server};

use super::super::progress::{add, set};
use super::ops::{self, At, Check, Content, Ends, OpError};
use super::{Done, Engine, Job, SCAN_COUNT};
use crate::driver::Key;

/// Keys that are compared in one round trip.
const BATCH_KEYS_MAX: usize = 128;
/// Listed keys that wait to be compared before a listing pauses.
const WAITING_KEYS_MAX: usize = 4_096;

/// The comparison under way.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    walks: Vec<Walk>,
    /// Per lane: keys of the source that wait to be compared.
    waiting: Vec<Vec<Key>>,
    in_flight: u32,
    compared: u64,
    /// What follows once everything is compared.
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    None,
    Comparing,
    Barrier,
    SecondLook,
}

/// The listing of one server.
#[derive(Debug)]
struct Walk {
    at: Server,
    cursor: u64,
    scanning: bool,
    finished: bool,
}

/// What came back from a round trip of a comparison.
pub(super) enum Compared {
    Walked(Server, Result<(u64, Vec<Key>), OpError>),
    Batch {
        lane: Lane,
        keys: u64,
        different: Result<Vec<Key>, OpError>,
    },
    /// Of keys that a target has, those that the source has not.
    Extra {
        lane: Lane,
        extra: Result<Vec<Key>, OpError>,
    },
    SecondLook(Result<Vec<Key>, OpError>),
}

impl Engine {
    pub(super) fn begin_comparison(&mut self) {
        let lanes = self.targets.len();
        let servers = (0..lanes)
            .filter_map(|at| u16::try_from(at).ok())
            .map(|at| Server::Target(Lane(at)));
        let walk = |at| Walk {
            at,
            cursor: 0,
            scanning: false,
            finished: false,
        };
        self.comparison = Comparison {
            walks: std::iter::once(Server::Source)
                .chain(servers)
                .map(walk)
                .collect(),
            waiting: vec![Vec::new(); lanes],
            stage: Stage::Comparing,
            ..Comparison::default()
        };
        self.job = Job::Comparison;
    }

    /// Starts every round trip of the comparison that may start now.
    pub(super) fn compare_more(&mut self) {
        if self.comparison.stage != Stage::Comparing {
            return;
        }
        self.walk_more();
        let scanned = self.comparison.walks.iter().all(|walk| walk.finished);
        for lane in 0..self.comparison.waiting.len() {
            while self.comparison.in_flight < self.pace.window() {
                let waiting = &mut self.comparison.waiting[lane];
                if waiting.is_empty() || (waiting.len() < BATCH_KEYS_MAX && !scanned) {
                    break;
                }
                let keys = waiting.split_off(waiting.len().saturating_sub(BATCH_KEYS_MAX));
                self.send_comparison(lane, keys);
            }
        }
        let waits = self.comparison.waiting.iter().any(|keys| !keys.is_empty());
        if scanned && !waits && self.comparison.in_flight == 0 {
            self.comparison.stage = Stage::Barrier;
            self.ask_for_barrier();
        }
    }

    fn walk_more(&mut self) {
        let waiting: usize = self.comparison.waiting.iter().map(Vec::len).sum();
        for walk in &mut self.comparison.walks {
            let paused = walk.at == Server::Source && waiting >= WAITING_KEYS_MAX;
            if walk.scanning || walk.finished || paused {
                continue;
            }
            let link = match walk.at {
                Server::Source => self.source.clone(),
                Server::Target(lane) => self.targets[usize::from(lane.0)].clone(),
            };
            let Some(link) = link else { continue };
            walk.scanning = true;
            let (at, cursor) = (walk.at, walk.cursor);
            self.trips.push(Box::pin(async move {
                let walked = link.session.scan(cursor, SCAN_COUNT).await.at(at);
                Done::Compared(Compared::Walked(at, walked))
            }));
        }
    }

    fn send_comparison(&mut self, lane: usize, keys: Vec<Key>) {
        let Ok(lane) = u16::try_from(lane).map(Lane) else {
            return;
        };
        let Some(ends) = self.ends(lane) else { return };
        self.comparison.in_flight += 1;
        self.trips.push(Box::pin(async move {
            let count = keys.len() as u64;
            let different = ops::compare(ends, keys).await;
            Done::Compared(Compared::Batch {
                lane,
                keys: count,
                different,
            })
        }));
    }

    pub(super) async fn compared(&mut self, compared: Compared) {
        match compared {
            Compared::Walked(at, Ok((cursor, keys))) => self.walked(at, cursor, keys),
            Compared::Batch {
                lane,
                keys,
                different: Ok(different),
            } => {
                self.comparison.in_flight -= 1;
                self.comparison.compared += keys;
                add(&self.handoff.counters.compared, keys);
                different
                    .into_iter()
                    .for_each(|key| self.copier.suspect(lane, key));
            }
            Compared::Extra {
                lane,
                extra: Ok(extra),
            } => {
                self.comparison.in_flight -= 1;
                extra
                    .into_iter()
                    .for_each(|key| self.copier.suspect(lane, key));
            }
            Compared::SecondLook(Ok(equal)) => {
                equal.iter().for_each(|key| self.copier.acquit(key));
                self.second_look_taken();
            }
            Compared::Walked(_, Err(error))
            | Compared::Batch {
                different: Err(error),
                ..
            }
            | Compared::Extra {
                extra: Err(error), ..
            }
            | Compared::SecondLook(Err(error)) => self.broke(error).await,
        }
    }

    fn walked(&mut self, at: Server, cursor: u64, keys: Vec<Key>) {
        if let Some(walk) = self.comparison.walks.iter_mut().find(|walk| walk.at == at) {
            walk.scanning = false;
            walk.cursor = cursor;
            walk.finished = cursor == 0;
        }
        match at {
            Server::Source => self.wait_for_comparison(keys),
            Server::Target(lane) => self.look_for_extra(lane, keys),
        }
    }

    fn wait_for_comparison(&mut self, keys: Vec<Key>) {
        for key in keys {
            if let Some(lane) = self.handoff.lane(&key, &self.lanes)
                && !self.copier.will_be_copied(lane, &key)
            {
                self.comparison.waiting[usize::from(lane.0)].push(key);
            }
        }
    }

    /// What a target has of the moving set must exist at the source.
    fn look_for_extra(&mut self, lane: Lane, mut keys: Vec<Key>) {
        keys.retain(|key| self.handoff.lane(key, &self.lanes) == Some(lane));
        keys.retain(|key| !self.copier.will_be_copied(lane, key));
        let Some(link) = self.source.clone().filter(|_| !keys.is_empty()) else {
            return;
        };
        self.comparison.in_flight += 1;
        self.trips.push(Box::pin(async move {
            let exist = link.session.exists(&keys).await.at(Server::Source);
            let extra = exist.map(|exist| {
                let pairs = keys.into_iter().zip(exist);
                pairs
                    .filter(|(_, exists)| !exists)
                    .map(|(key, _)| key)
                    .collect()
            });
            Done::Compared(Compared::Extra { lane, extra })
        }));
    }

    pub(super) fn begin_barrier(&mut self) {
        self.job = Job::Barrier;
        self.ask_for_barrier();
    }

    fn ask_for_barrier(&mut self) {
        match &self.listener {
            Some(listener) => listener.ask_for_barrier(),
            None => self.fail(Event::TrackingLost),
        }
    }

    pub(super) fn barrier_passed(&mut self) {
        match self.job {
            Job::Barrier => self.answer(Event::BarrierPassed),
            Job::Comparison if self.comparison.stage == Stage::Barrier => {
                self.comparison.stage = Stage::SecondLook;
                self.begin_second_look(Job::Comparison);
            }
            _ => {}
        }
    }

    /// Compares what differed once more; those that are equal now are acquitted.
    pub(super) fn begin_second_look(&mut self, job: Job) {
        self.job = job;
        let content = |lane, key| match (self.copier.has_part(lane, key), &self.job) {
            // Under the fence its part counts too.
            (true, Job::Comparison) => Content::Tracked,
            _ => Content::All,
        };
        let mut looks: Vec<(Ends, Content, Vec<Key>)> = Vec::new();
        for (lane, key) in self.copier.suspects() {
            let content = content(lane, key);
            let same = |look: &&mut (Ends, Content, _)| look.0.lane == lane && look.1 == content;
            match looks.iter_mut().find(same) {
                Some((_, _, keys)) => keys.push(key.clone()),
                None => looks.extend(
                    self.ends(lane)
                        .map(|ends| (ends, content, vec![key.clone()])),
                ),
            }
        }
        if looks.is_empty() {
            return self.second_look_taken();
        }
        self.trips.push(Box::pin(async move {
            let mut equal = Vec::new();
            for (ends, content, keys) in looks {
                match ops::different_contents(&ends, keys.clone(), content).await {
                    Ok(different) => {
                        equal.extend(keys.into_iter().filter(|key| !different.contains(key)))
                    }
                    Err(error) => return Done::Compared(Compared::SecondLook(Err(error))),
                }
            }
            Done::Compared(Compared::SecondLook(Ok(equal)))
        }));
    }

    fn second_look_taken(&mut self) {
        let different = self.copier.settle_suspects();
        set(
            &self.handoff.counters.mismatches,
            self.copier.counts().mismatches,
        );
        match mem::replace(&mut self.job, Job::Nothing) {
            Job::SecondLook => self.answer(Event::LastCompared { different }),
            _ => {
                let compared = self.comparison.compared;
                self.comparison = Comparison::default();
                // What is copied from here on is compared as soon as it has landed.
                self.check = Check::AtOnce;
                self.answer(Event::Verified {
                    compared,
                    mismatches: different,
                });
            }
        }
    }
}
