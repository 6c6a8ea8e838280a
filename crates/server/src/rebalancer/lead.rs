//! Leading: becoming the leader, following the record under a term, giving the term up.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use clockwise_client::store::{LeadError, Leadership, Registry};
use clockwise_cluster::{Record, View};
use futures_util::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::cache;
use super::conduct::{Conducting, Outcome};
use super::mandate::Mandate;
use super::stations::Stations;
use super::watchdog;
use super::{AbortRefused, RebalancerConfig, Reporter, Request};

/// The pause before another try to lead.
const TRY_EVERY: Duration = Duration::from_millis(500);
/// How often the record is read although nothing was heard of it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the doors are made public.
const DOORS_EVERY: Duration = Duration::from_millis(50);

/// Leads whenever it can, until it is stopped.
pub(super) async fn run(
    config: RebalancerConfig,
    reporter: Reporter,
    mut requests: mpsc::Receiver<Request>,
    stop: CancellationToken,
) {
    let mut run = async || {
        let watched = watchdog::run(Arc::clone(&config.store));
        let leading = lead(&config, &reporter, &mut requests, &stop);
        tokio::select! {
            () = leading => {}
            () = watched => {}
        }
    };
    // Nothing of a term outlives it but the record, so that a panic leaves nothing half-done behind.
    while AssertUnwindSafe(run()).catch_unwind().await.is_err() {
        tracing::error!("the rebalancer panicked and begins again");
        sleep(TRY_EVERY).await;
    }
}

async fn lead(
    config: &RebalancerConfig,
    reporter: &Reporter,
    requests: &mut mpsc::Receiver<Request>,
    stop: &CancellationToken,
) {
    while !stop.is_cancelled() {
        let leadership = tokio::select! {
            () = stop.cancelled() => return,
            led = config.store.lead(&config.name) => led,
        };
        match leadership {
            Ok(leadership) => {
                let term = leadership.term();
                reporter.term(Some(term));
                tracing::info!(term = term.get(), "leads");
                term_of_office(config, reporter, leadership, requests, stop).await;
                reporter.term(None);
                reporter.change(None);
                reporter.doors(Vec::new());
                if let Err(error) = config.store.resign(term).await {
                    tracing::warn!(term = term.get(), %error, "term not given up");
                }
            }
            Err(error @ LeadError::Held { .. }) => reporter.cannot_lead(&error),
            Err(error) => {
                tracing::warn!(%error, "cannot lead");
                reporter.cannot_lead(&error);
            }
        }
        refuse_requests(requests);
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(TRY_EVERY) => {}
        }
    }
}

/// Whoever asked a process that does not lead gets to know that.
fn refuse_requests(requests: &mut mpsc::Receiver<Request>) {
    while let Ok(request) = requests.try_recv() {
        match request {
            Request::Abort(reply) => drop(reply.send(Err(AbortRefused::NotLeading))),
            // It says the same by not being answered.
            Request::Retry(reply) => drop(reply),
        }
    }
}

/// There is nothing to take back.
fn refuse(abort: Option<Request>) {
    if let Some(Request::Abort(reply)) = abort {
        let _unheard = reply.send(Err(AbortRefused::NoChange));
    }
}

/// One term, from its beginning to its loss or to the end of everything.
async fn term_of_office(
    config: &RebalancerConfig,
    reporter: &Reporter,
    mut leadership: Leadership,
    requests: &mut mpsc::Receiver<Request>,
    stop: &CancellationToken,
) {
    let mandate = Arc::new(Mandate::new(
        Arc::clone(&config.store),
        Arc::clone(&config.driver),
        config.pool_key.clone(),
        leadership.term(),
    ));
    let stations = Arc::new(Stations::new(Arc::clone(&mandate)));
    let follow = follow(&mandate, &stations, reporter);
    let conduct = conduct(
        (&mandate, &stations, config.registry.as_deref()),
        reporter,
        &mut leadership,
        requests,
        stop,
    );
    tokio::select! {
        () = follow => {}
        () = conduct => {}
    }
}

/// Keeps stations, throttle and what is public in step with the record.
async fn follow(mandate: &Mandate, stations: &Stations, reporter: &Reporter) {
    let mut records = mandate.store.watch();
    let mut doors = interval(DOORS_EVERY);
    doors.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        records.mark_unchanged();
        let record = mandate.record();
        let unfenced = record
            .as_ref()
            .filter(|record| !record.protocol().can_fence());
        match (&record, unfenced) {
            (Some(record), None) => {
                stations.follow(record);
                mandate.follow_throttle(record);
            }
            (Some(record), Some(_)) => reporter.doors(cache::doors(record)),
            (None, _) => {}
        }
        tokio::select! {
            changed = records.changed() => if changed.is_err() { return },
            _ = doors.tick(), if unfenced.is_none() => reporter.doors(stations.doors()),
        }
    }
}

/// Conducts one change after the other.
async fn conduct(
    (mandate, stations, registry): (&Arc<Mandate>, &Arc<Stations>, Option<&dyn Registry>),
    reporter: &Reporter,
    leadership: &mut Leadership,
    requests: &mut mpsc::Receiver<Request>,
    stop: &CancellationToken,
) {
    let mut records = mandate.store.watch();
    // An abort that came before the change it is about was seen.
    let mut early = None;
    loop {
        // What comes after this ends the rest.
        records.mark_unchanged();
        let outcome = match changing(mandate).await {
            Now::Deposed => return,
            Now::Changing(record, _) if !record.protocol().can_fence() => {
                cache::conduct(
                    (mandate, registry),
                    reporter,
                    leadership,
                    requests,
                    early.take(),
                    stop,
                )
                .await
            }
            Now::Changing(record, view) => {
                stations.follow(&record);
                let conducting =
                    Conducting::new(Arc::clone(mandate), stations, reporter, &record, view);
                match conducting {
                    Some(conducting) => {
                        conducting
                            .run(leadership, requests, early.take(), stop)
                            .await
                    }
                    None => Outcome::Again,
                }
            }
            Now::AtRest => {
                reporter.change(None);
                refuse(early.take());
                rest(&mut records, leadership, requests, &mut early, stop).await
            }
        };
        if outcome != Outcome::Again {
            return;
        }
    }
}

/// What there is to do as of now.
enum Now {
    /// A change is in flight; with its record and view.
    Changing(Arc<Record>, Arc<View>),
    /// Nothing, or nothing is known yet.
    AtRest,
    /// Whatever it is, another does it.
    Deposed,
}

async fn changing(mandate: &Mandate) -> Now {
    let record = match mandate.look().await {
        Ok((record, true)) => record.filter(|record| record.change().is_some()),
        Ok((_, false)) => return Now::Deposed,
        Err(error) => {
            tracing::warn!(%error, "record not read");
            return Now::AtRest;
        }
    };
    let Some(record) = record else {
        return Now::AtRest;
    };
    let view = mandate.view();
    match view.filter(|view| view.epoch() == record.epoch()) {
        Some(view) => Now::Changing(record, view),
        None => Now::AtRest,
    }
}

/// Waits until the record says something new, and looks from time to time although nobody said so.
async fn rest(
    records: &mut watch::Receiver<Option<Arc<Record>>>,
    leadership: &mut Leadership,
    requests: &mut mpsc::Receiver<Request>,
    early: &mut Option<Request>,
    stop: &CancellationToken,
) -> Outcome {
    let again = sleep(LOOK_EVERY);
    tokio::pin!(again);
    loop {
        tokio::select! {
            () = leadership.lost() => return Outcome::Deposed,
            () = stop.cancelled() => return Outcome::Left,
            changed = records.changed() => {
                return if changed.is_ok() { Outcome::Again } else { Outcome::Deposed };
            }
            () = &mut again => return Outcome::Again,
            request = requests.recv() => match request {
                Some(abort @ Request::Abort(_)) => {
                    *early = Some(abort);
                    return Outcome::Again;
                }
                // Nothing has stopped.
                Some(Request::Retry(reply)) => drop(reply.send(())),
                None => return Outcome::Left,
            },
        }
    }
}
