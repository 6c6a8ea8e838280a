//! Runs the change in flight: gives the conductor's orders to the handoffs' tasks and to the store.
//!
//! The tasks touch servers and nothing else; commits and reads of the record happen here, so that a
//! rollback never waits for a server.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use clockwise_client::store::Leadership;
use clockwise_cluster::handoff::preflight::check;
use clockwise_cluster::handoff::{Command, Conductor, Event, Order};
use clockwise_cluster::{Direction, HandoffId, HandoffState, Incarnation, Record, View};
use clockwise_placement::NodeId;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::engine::{Engine, Handoff, Told};
use super::estimate::Estimate;
use super::mandate::Mandate;
use super::progress::{ChangeProgress, Counters, HandoffProgress, read};
use super::stations::Stations;
use super::storing::{Seen, Stored, commit, end, flip_counts, turn_back};
use super::{AbortRefused, Reporter, Request};

/// How often the numbers are made public.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// How long a leader that is shut down may take to hold everything still.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// The pause before everything is begun again after one task panicked.
const AFTER_PANIC: Duration = Duration::from_millis(500);

/// How the conducting of a change came to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The record says what comes next: it ended, it turned, or somebody asked to begin again.
    Again,
    /// Another leads.
    Deposed,
    /// Everything holds still, as was asked.
    Left,
}

type Storing = Pin<Box<dyn Future<Output = Stored> + Send>>;

/// One handoff's task, and what is known about it.
struct Desk {
    id: HandoffId,
    commands: mpsc::UnboundedSender<Command>,
    counters: Arc<Counters>,
    stopped: Option<Stopped>,
    waiting: Option<String>,
    targets: Vec<NodeId>,
}

/// Why a handoff stands still.
struct Stopped {
    why: String,
    // The run of a target without which it does not go on, unless somebody accepts another.
    misses: Option<Incarnation>,
}

impl Stopped {
    /// Whether the record no longer asks for what was missing.
    fn is_mended(&self, record: &Record) -> bool {
        let Some(missed) = &self.misses else {
            return false;
        };
        let handoffs = record
            .change()
            .into_iter()
            .flat_map(|change| &change.handoffs);
        let mut flips = handoffs.flat_map(|handoff| &handoff.flip);
        !flips.any(|flip| flip.incarnation == *missed)
    }
}

/// The change in flight under one conductor.
pub(super) struct Conducting<'a> {
    mandate: Arc<Mandate>,
    reporter: &'a Reporter,
    conductor: Conductor,
    desks: Vec<Desk>,
    told: mpsc::UnboundedReceiver<Told>,
    storing: FuturesUnordered<Storing>,
    estimate: Estimate,
    aborts: Vec<oneshot::Sender<Result<(), AbortRefused>>>,
    retries: Vec<oneshot::Sender<()>>,
    outcome: Option<Outcome>,
    // Ended with everything else: no task outlives its conductor.
    tasks: JoinSet<()>,
}

impl<'a> Conducting<'a> {
    /// Tasks for every handoff of the change in flight; none without one.
    pub(super) fn new(
        mandate: Arc<Mandate>,
        stations: &Arc<Stations>,
        reporter: &'a Reporter,
        record: &Record,
        view: Arc<View>,
    ) -> Option<Self> {
        let conductor = Conductor::new(record)?;
        let estimate = Estimate::new(record.change()?, &view);
        let (tell, told) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let handoffs = record.change()?.handoffs.iter().enumerate();
        let desks = handoffs.map(|(index, handoff)| {
            let (commands, receiver) = mpsc::unbounded_channel();
            let counters = Arc::new(Counters::default());
            let engine = Engine::new(
                Handoff {
                    index,
                    id: handoff.id(),
                    targets: handoff.targets.clone(),
                    mandate: Arc::clone(&mandate),
                    stations: Arc::clone(stations),
                    view: Arc::clone(&view),
                    counters: Arc::clone(&counters),
                },
                tell.clone(),
            );
            tasks.spawn(engine.run(receiver));
            Desk {
                id: handoff.id(),
                commands,
                counters,
                stopped: None,
                waiting: None,
                targets: handoff.targets.clone(),
            }
        });
        Some(Self {
            desks: desks.collect(),
            mandate,
            reporter,
            conductor,
            told,
            storing: FuturesUnordered::new(),
            estimate,
            aborts: Vec::new(),
            retries: Vec::new(),
            outcome: None,
            tasks,
        })
    }

    /// Runs until the record has to be looked at anew, or this leadership is over.
    pub(super) async fn run(
        mut self,
        leadership: &mut Leadership,
        requests: &mut mpsc::Receiver<Request>,
        early: Option<Request>,
        stop: &CancellationToken,
    ) -> Outcome {
        let mut reports = interval(REPORT_EVERY);
        reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let orders = self.conductor.start(self.mandate.now_ms());
        self.obey(orders);
        early.into_iter().for_each(|request| self.request(request));
        let mut leaving: Option<Instant> = None;
        while self.outcome.is_none() {
            let deadline = self.conductor.deadline();
            tokio::select! {
                biased;
                () = leadership.lost() => return Outcome::Deposed,
                () = stop.cancelled(), if leaving.is_none() => {
                    leaving = Some(Instant::now() + LEAVE_WITHIN);
                    let orders = self.conductor.leave(self.mandate.now_ms());
                    self.obey(orders);
                }
                () = wait_until(leaving) => return Outcome::Left,
                Some((index, event)) = self.told.recv() => self.tell(index, event),
                Some(ended) = self.tasks.join_next() => {
                    // Only by a panic before this conductor is gone: its machine would wait for ever.
                    tracing::error!(?ended, "the task of a handoff ended, all are begun again");
                    sleep(AFTER_PANIC).await;
                    self.outcome = Some(Outcome::Again);
                }
                Some(stored) = self.storing.next(), if !self.storing.is_empty() => self.stored(stored),
                () = wait_for(&self.mandate, deadline) => {
                    if let Some((_, index)) = deadline {
                        self.tell(index, Event::Timeout);
                    }
                }
                Some(request) = requests.recv() => self.request(request),
                _ = reports.tick() => {
                    self.report();
                    self.go_on_if_mended();
                }
            }
        }
        self.report();
        self.tasks.shutdown().await;
        for abort in self.aborts.drain(..) {
            // It ended before it could be turned.
            let _unheard = abort.send(Err(AbortRefused::NoChange));
        }
        if !self.retries.is_empty() {
            // Whoever asked must not find what has just been begun again still stopped.
            self.reporter.change(None);
        }
        for retry in self.retries.drain(..) {
            let _unheard = retry.send(());
        }
        match self.outcome {
            Some(Outcome::Again) | None if stop.is_cancelled() => Outcome::Left,
            outcome => outcome.unwrap_or(Outcome::Again),
        }
    }

    fn tell(&mut self, index: usize, event: Event) {
        let desk = &mut self.desks[index];
        match &event {
            Event::Broken { at, why } => {
                let node = at.node(&desk.id.source, &desk.targets);
                desk.waiting = Some(format!("{node}: {why}"));
            }
            Event::Inspected(facts) => desk.waiting = check(facts).first().map(ToString::to_string),
            Event::Opened | Event::Listed => desk.waiting = None,
            Event::Identified(found) => {
                if let Some((_, keys)) = &found.source {
                    self.estimate.counted(index, *keys);
                }
            }
            _ => {}
        }
        let before = self.conductor.machine(index).state();
        let orders = self.conductor.handle(index, event, self.mandate.now_ms());
        let after = self.conductor.machine(index).state();
        if before != after {
            let rollback = self
                .conductor
                .machine(index)
                .last_rollback()
                .map(ToString::to_string);
            tracing::info!(handoff = %self.desks[index].id, %before, %after, rollback, "handoff");
        }
        self.obey(orders);
    }

    fn obey(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Handoff(index, command) => self.command(index, command),
                Order::TurnBack => self.store(turn_back(Arc::clone(&self.mandate))),
                Order::End => self.store(end(Arc::clone(&self.mandate))),
                Order::Held => self.outcome = Some(Outcome::Again),
                Order::Deposed => self.outcome = Some(Outcome::Deposed),
                other => unreachable!("{other:?} is an order of another version"),
            }
        }
    }

    fn command(&mut self, index: usize, command: Command) {
        let desk = &mut self.desks[index];
        match command {
            Command::Commit(step) => {
                let seen = Seen {
                    counts: flip_counts(&step, &desk.counters),
                    hold_ms_max: self.conductor.machine(index).hold_ms_max(),
                };
                let commit = commit(Arc::clone(&self.mandate), desk.id.clone(), step, seen);
                self.store(async move { Stored::Handoff(index, commit.await) });
            }
            Command::ReadRecord { after_ms } => {
                let (mandate, id) = (Arc::clone(&self.mandate), desk.id.clone());
                self.store(async move {
                    sleep(Duration::from_millis(after_ms)).await;
                    Stored::Handoff(
                        index,
                        match mandate.situation(&id).await {
                            Ok(situation) => Event::Record(situation),
                            Err(error) => {
                                tracing::warn!(handoff = %id, %error, "record not read");
                                Event::StoreAway
                            }
                        },
                    )
                });
            }
            command => {
                if let Command::Stop(reason) = &command {
                    let epoch = self
                        .mandate
                        .record()
                        .map_or(0, |record| record.epoch().get());
                    let why = reason.named(&desk.id.source, &desk.targets).to_string();
                    tracing::warn!(handoff = %desk.id, epoch, why, "handoff stopped");
                    desk.stopped = Some(Stopped {
                        why: format!("{why} (epoch {epoch})"),
                        misses: reason.missing_run().cloned(),
                    });
                }
                // Its task ends only with this conductor.
                let _ended = desk.commands.send(command);
            }
        }
    }

    fn store(&self, storing: impl Future<Output = Stored> + Send + 'static) {
        self.storing.push(Box::pin(storing));
    }

    fn stored(&mut self, stored: Stored) {
        match stored {
            Stored::Handoff(index, event) => self.tell(index, event),
            Stored::TurnedBack(result) => {
                if let Err(why) = &result {
                    tracing::warn!(%why, "change not turned back");
                }
                for abort in self.aborts.drain(..) {
                    // Whoever asked may have gone.
                    let _unheard = abort.send(result.clone());
                }
                self.outcome = Some(Outcome::Again);
            }
            Stored::Ended => self.outcome = Some(Outcome::Again),
        }
    }

    fn request(&mut self, request: Request) {
        match request {
            Request::Abort(reply) => {
                let record = self.mandate.record();
                let change = record.as_ref().and_then(|record| record.change());
                if change.is_some_and(|change| change.direction == Direction::Back) {
                    // Whoever asked may have gone.
                    let _unheard = reply.send(Err(AbortRefused::GoingBack));
                    return;
                }
                self.aborts.push(reply);
                let orders = self.conductor.abort(self.mandate.now_ms());
                self.obey(orders);
            }
            // Held still first: another handoff may be in the middle of its handover.
            Request::Retry(reply)
                if self.aborts.is_empty()
                    && self.desks.iter().any(|desk| desk.stopped.is_some()) =>
            {
                self.retries.push(reply);
                let orders = self.conductor.leave(self.mandate.now_ms());
                self.obey(orders);
            }
            // Nothing has stopped, or all is about to turn back.
            Request::Retry(reply) => drop(reply.send(())),
        }
    }

    /// Begins again once somebody has decided about a node for which handoffs stopped, in this process or in
    /// another one.
    fn go_on_if_mended(&mut self) {
        let Some(record) = self.mandate.record() else {
            return;
        };
        let stopped = self.desks.iter().filter_map(|desk| desk.stopped.as_ref());
        let mended = stopped
            .into_iter()
            .any(|stopped| stopped.is_mended(&record));
        if mended && self.aborts.is_empty() {
            let orders = self.conductor.leave(self.mandate.now_ms());
            self.obey(orders);
        }
    }

    fn report(&mut self) {
        let copied = self.desks.iter().map(|desk| read(&desk.counters.copied));
        self.estimate.sample(Instant::now(), copied.sum());
        let Some(record) = self.mandate.record() else {
            return;
        };
        self.mandate.follow_throttle(&record);
        let Some(change) = record.change() else {
            return;
        };
        let handoff = |(index, desk): (usize, &Desk)| {
            let machine = self.conductor.machine(index);
            let listed = read(&desk.counters.listed);
            HandoffProgress {
                id: desk.id.clone(),
                state: machine.state(),
                keys_listed: listed,
                keys_expected: match machine.state() {
                    HandoffState::Planned | HandoffState::Copying => {
                        self.estimate.expected(index).map(|keys| keys.max(listed))
                    }
                    // All of it was listed.
                    _ => Some(listed).filter(|listed| *listed > 0),
                },
                keys_copied: read(&desk.counters.copied),
                bytes_copied: read(&desk.counters.bytes),
                keys_compared: read(&desk.counters.compared),
                mismatches: read(&desk.counters.mismatches),
                keys_dirty: read(&desk.counters.dirty),
                keys_removed: read(&desk.counters.removed),
                hold_ms_max: machine.hold_ms_max(),
                waiting: desk.waiting.clone(),
                stopped: desk.stopped.as_ref().map(|stopped| stopped.why.clone()),
                last_rollback: machine.last_rollback().map(ToString::to_string),
            }
        };
        self.reporter.change(Some(ChangeProgress {
            id: change.id.clone(),
            direction: change.direction,
            keys_per_second: self.estimate.keys_per_second(),
            unwritable: self.mandate.unwritable(),
            handoffs: self.desks.iter().enumerate().map(handoff).collect(),
        }));
    }
}

async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn wait_for(mandate: &Mandate, deadline: Option<(u64, usize)>) {
    match deadline {
        Some((at_ms, _)) => {
            sleep(Duration::from_millis(
                at_ms.saturating_sub(mandate.now_ms()),
            ))
            .await
        }
        None => std::future::pending().await,
    }
}
