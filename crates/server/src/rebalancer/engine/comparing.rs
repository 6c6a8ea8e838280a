//! Comparing both sides while the source goes on serving, in both directions: what the source has must
//! be equal at its target, and what a target has must exist at the source.
//!
//! Values are read anew on both sides. Which keys there are at the source is known from copying them, unless
//! they were too many to remember: then it is listed again. A target is listed always.
//!
//! A difference proves nothing at first: the key may have been touched a moment ago. Once the stream has
//! delivered everything up to the comparison, those that nobody touched are looked at a second time;
//! what still differs is counted and copied again.

use std::mem;

use clockwise_cluster::copier::Lane;
use clockwise_cluster::handoff::{Event, Server};

use super::super::progress::{add, set};
use super::ops::{self, At, Check, Content, Ends, OpError};
use super::remembered::Size;
use super::{Done, Engine, Job, SCAN_COUNT};
use crate::driver::Key;

/// Keys that are compared in one round trip.
const BATCH_KEYS_MAX: usize = 64;
/// Listed keys that wait to be compared before a listing pauses.
const WAITING_KEYS_MAX: usize = 4_096;

/// The comparison under way.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    walks: Vec<Walk>,
    /// Keys of the source that wait to be compared.
    queues: Vec<Waiting>,
    /// Whether the source is not listed, since its keys are remembered.
    recalls: bool,
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

/// Keys of one lane that wait, and how many of the remembered ones have.
#[derive(Debug)]
struct Waiting {
    lane: Lane,
    size: Size,
    keys: Vec<Key>,
    recalled: usize,
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
        compared: Result<ops::Comparison, OpError>,
    },
    /// Of keys that a target has, those that the source has not.
    Extra {
        lane: Lane,
        extra: Result<Vec<Key>, OpError>,
    },
    SecondLook(Result<Vec<Key>, OpError>),
}

impl Comparison {
    fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.keys.len()).sum()
    }

    /// Lets a listed key wait.
    fn wait(&mut self, lane: Lane, key: Key) {
        let fits = |queue: &&mut Waiting| queue.lane == lane && queue.size == Size::Unknown;
        if let Some(queue) = self.queues.iter_mut().find(fits) {
            queue.keys.push(key);
        }
    }
}

impl Engine {
    pub(super) fn begin_comparison(&mut self) {
        let lanes = || (0..).take(self.targets.len()).map(Lane);
        let servers = lanes().map(Server::Target);
        let waiting = |lane, size| Waiting {
            lane,
            size,
            keys: Vec::new(),
            recalled: 0,
        };
        let queues = lanes().flat_map(|lane| {
            let sizes = [Size::Small, Size::Unknown];
            sizes.map(|size| waiting(lane, size))
        });
        let recalls = self.remembered.is_whole();
        let source = (!recalls).then_some(Server::Source);
        let walk = |at| Walk {
            at,
            cursor: 0,
            scanning: false,
            finished: false,
        };
        self.comparison = Comparison {
            walks: source.into_iter().chain(servers).map(walk).collect(),
            queues: queues.collect(),
            recalls,
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
        let recalled = self.recall_more();
        let scanned = recalled && self.comparison.walks.iter().all(|walk| walk.finished);
        for at in 0..self.comparison.queues.len() {
            while self.comparison.in_flight < self.pace.window() {
                let Waiting {
                    lane, size, keys, ..
                } = &mut self.comparison.queues[at];
                if keys.is_empty() || (keys.len() < BATCH_KEYS_MAX && !scanned) {
                    break;
                }
                let (lane, size) = (*lane, *size);
                let keys = keys.split_off(keys.len().saturating_sub(BATCH_KEYS_MAX));
                self.send_comparison(lane, size, keys);
            }
        }
        let waits = self.comparison.waiting() > 0;
        if scanned && !waits && self.comparison.in_flight == 0 {
            self.comparison.stage = Stage::Barrier;
            self.ask_for_barrier();
        }
    }

    /// Lets remembered keys wait, some at a time; true when all of them have.
    fn recall_more(&mut self) -> bool {
        let Comparison {
            queues, recalls, ..
        } = &mut self.comparison;
        let mut all = true;
        for queue in queues.iter_mut().filter(|_| *recalls) {
            if queue.keys.len() >= BATCH_KEYS_MAX {
                all = false;
                continue;
            }
            let (lane, size) = (queue.lane, queue.size);
            let keys = self
                .remembered
                .some(lane, size, queue.recalled, WAITING_KEYS_MAX);
            all &= keys.len() < WAITING_KEYS_MAX;
            queue.recalled += keys.len();
            let counts = |key: &Key| !self.copier.will_be_copied(lane, key);
            queue.keys.extend(keys.into_iter().filter(counts));
        }
        all
    }

    fn walk_more(&mut self) {
        let waiting = self.comparison.waiting();
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

    fn send_comparison(&mut self, lane: Lane, size: Size, keys: Vec<Key>) {
        let Some(ends) = self.ends(lane) else { return };
        self.comparison.in_flight += 1;
        self.trips.push(Box::pin(async move {
            let compared = ops::compare(ends, keys, size).await;
            Done::Compared(Compared::Batch { lane, compared })
        }));
    }

    pub(super) async fn compared(&mut self, compared: Compared) {
        match compared {
            Compared::Walked(at, Ok((cursor, keys))) => self.walked(at, cursor, keys),
            Compared::Batch {
                lane,
                compared: Ok(compared),
            } => {
                self.comparison.in_flight -= 1;
                self.comparison.compared += compared.keys;
                add(&self.handoff.counters.compared, compared.keys);
                compared
                    .different
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
                compared: Err(error),
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
        let lane_of = self.handoff.lane_of(&self.lanes);
        for key in keys {
            if let Some(lane) = lane_of(&key)
                && !self.copier.will_be_copied(lane, &key)
            {
                self.comparison.wait(lane, key);
            }
        }
    }

    /// What a target has of the moving set must exist at the source.
    fn look_for_extra(&mut self, lane: Lane, mut keys: Vec<Key>) {
        let lane_of = self.handoff.lane_of(&self.lanes);
        // One that is remembered is compared, and would differ.
        keys.retain(|key| {
            !self.remembered.has(key)
                && lane_of(key) == Some(lane)
                && !self.copier.will_be_copied(lane, key)
        });
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
