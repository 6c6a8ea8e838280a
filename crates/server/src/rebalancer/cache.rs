//! Conducts a change of a pool whose servers cannot be fenced, so that nothing is copied in it.
//!
//! Nobody can keep a late writer from the old owner of a key: a copy might be older than what clients were told.
//! So keys change their owners at once, are missing there until clients put them there, and what is
//! left at the old owners goes. What must never happen is that an old value comes back when its key does:
//!
//! - Before a node gets keys, everything is removed from it that it does not own.
//! - After it gave keys away, likewise; but not before everybody who is registered routes by the later
//!   epoch, and the last request sent under the earlier one has been answered or given up.
//!
//! The record has each step, and whoever leads next goes on from there: removing twice does no harm.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clockwise_client::store::{Leadership, Listing, Registered, RegistrantKind, Registry};
use clockwise_cluster::handoff::Event;
use clockwise_cluster::{
    Change, Epoch, Handoff, HandoffId, HandoffKind, HandoffState, Incarnation, Node, NodeState,
    Record, Step, View,
};
use clockwise_placement::NodeId;
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::conduct::Outcome;
use super::mandate::{Mandate, node_address, wall_clock_ms};
use super::progress::{ChangeProgress, HandoffProgress, read};
use super::storing::{Seen, commit, end};
use super::{AbortRefused, Door, Reporter, Request};
use crate::driver::{Driver, DriverError};

/// How long after a flip a request of the epoch before may still be executed: a router gives a silent node up
/// after five seconds.
const LATE_MS: u64 = 6_000;
/// Between two tries when a node or the store does not do what it should.
const RETRY: Duration = Duration::from_millis(500);
/// How often the numbers are made public.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// Every node lets everybody in who reaches it.
pub(super) fn doors(record: &Record) -> Vec<(NodeId, Door)> {
    let door = |node: &Node| {
        let generation = node.generation.get();
        (node.id.clone(), Door::Open { generation })
    };
    record.membership().nodes.iter().map(door).collect()
}

/// Why what is applied should not be, by a look at the servers: in words. `next` need not be committed yet.
///
/// Every server that was not the node's before must be empty, also where no key changes its owner and while
/// a change is in flight. Those that get keys must answer when their change begins.
pub async fn preflight_of_cache(
    driver: &dyn Driver,
    present: &Record,
    next: &Record,
) -> Vec<String> {
    let begins = next.change().filter(|_| present.change().is_none());
    let targets: BTreeSet<&NodeId> = begins
        .iter()
        .flat_map(|change| &change.handoffs)
        .flat_map(|handoff| &handoff.targets)
        .collect();
    let looks = next.membership().nodes.iter().filter_map(|node| {
        let new_here = is_new_here(present, node);
        (new_here || targets.contains(&node.id)).then_some((node, new_here))
    });
    let looks = looks.map(|(node, new_here)| async move {
        match driver.inspect(&node_address(node)).await {
            Err(error) => Some(error.to_string()),
            Ok(facts) if new_here && facts.keys > 0 => Some(format!(
                "node {} at {} has {} items already, and nobody knows how old they are: a node begins empty, start it anew",
                node.id, node.address, facts.keys
            )),
            Ok(_) => None,
        }
    });
    join_all(looks).await.into_iter().flatten().collect()
}

/// Whether a node is not in a record, or elsewhere there.
fn is_new_here(present: &Record, node: &Node) -> bool {
    let before = present.node(&node.id);
    before.is_none_or(|before| before.address != node.address)
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    /// Clean the targets, then let them own.
    Flip(HandoffId),
    /// Nothing yet, for so long.
    Wait(u64),
    /// Write down that the source is being cleaned.
    Begin(HandoffId),
    /// Clean the source.
    Clean(HandoffId),
    /// It is done: there is nothing to clean.
    Done(HandoffId),
    /// All is done.
    End,
}

/// All flips come first: a source may be a target, too, and is cleaned by what it owns at last.
fn next_act(change: &Change, now_ms: u64) -> Act {
    let in_state = |state| {
        let mut handoffs = change.handoffs.iter();
        handoffs.find(move |handoff: &&Handoff| handoff.state == state)
    };
    if let Some(planned) = in_state(HandoffState::Planned) {
        return Act::Flip(planned.id());
    }
    if let Some(cleaning) = in_state(HandoffState::Cleaning) {
        return Act::Clean(cleaning.id());
    }
    if let Some(flipped) = in_state(HandoffState::Flipped) {
        if flipped.kind == HandoffKind::Lost {
            return Act::Done(flipped.id());
        }
        // By this clock or by that of a leader before.
        let age_ms = now_ms.abs_diff(flipped.entered_at_ms);
        return match LATE_MS.checked_sub(age_ms) {
            Some(left @ 1..) => Act::Wait(left),
            _ => Act::Begin(flipped.id()),
        };
    }
    Act::End
}

/// What is known about the handoffs beside their states.
#[derive(Default)]
struct Known {
    removed: Vec<(HandoffId, Arc<AtomicU64>)>,
    waiting: Option<(HandoffId, String)>,
}

impl Known {
    fn removed(&mut self, id: &HandoffId) -> Arc<AtomicU64> {
        if let Some((_, counter)) = self.removed.iter().find(|(known, _)| known == id) {
            return Arc::clone(counter);
        }
        let counter = Arc::new(AtomicU64::new(0));
        self.removed.push((id.clone(), Arc::clone(&counter)));
        counter
    }
}

/// Runs the change in flight until the record has to be looked at anew, or this leadership is over.
pub(super) async fn conduct(
    (mandate, registry): (&Arc<Mandate>, Option<&dyn Registry>),
    reporter: &Reporter,
    leadership: &mut Leadership,
    requests: &mut mpsc::Receiver<Request>,
    early: Option<Request>,
    stop: &CancellationToken,
) -> Outcome {
    let known = Mutex::new(Known::default());
    let mut reports = interval(REPORT_EVERY);
    reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
    early
        .into_iter()
        .for_each(|request| answer(mandate, request));
    let work = work(mandate, registry, &known);
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            () = leadership.lost() => return Outcome::Deposed,
            () = stop.cancelled() => return Outcome::Left,
            outcome = &mut work => return outcome,
            Some(request) = requests.recv() => answer(mandate, request),
            _ = reports.tick() => report(mandate, reporter, &known),
        }
    }
}

/// A change that has flipped has no way back, and nothing that stopped waits for a person.
fn answer(mandate: &Mandate, request: Request) {
    match request {
        Request::Abort(reply) => {
            let record = mandate.record();
            let refused = record.map(|record| record.abort(wall_clock_ms()));
            let why = match refused {
                Some(Err(error)) => error.into(),
                _ => AbortRefused::NoChange,
            };
            // Whoever asked may have gone.
            let _unheard = reply.send(Err(why));
        }
        Request::Retry(reply) => drop(reply.send(())),
    }
}

async fn work(
    mandate: &Arc<Mandate>,
    registry: Option<&dyn Registry>,
    known: &Mutex<Known>,
) -> Outcome {
    let mut swept = BTreeSet::new();
    // When somebody was last seen to route by an earlier epoch.
    let mut behind_at: Option<Instant> = None;
    loop {
        let (Some(record), Some(view)) = (mandate.record(), mandate.view()) else {
            return Outcome::Again;
        };
        let Some(change) = record.change().filter(|_| view.epoch() == record.epoch()) else {
            return Outcome::Again;
        };
        let act = next_act(change, wall_clock_ms());
        if let Act::Begin(id) = &act
            && let Some(pause) = late(registry, record.epoch(), &mut behind_at, (known, id)).await
        {
            sleep(pause).await;
            continue;
        }
        let done = match &act {
            Act::Wait(ms) => {
                sleep(Duration::from_millis(*ms)).await;
                continue;
            }
            Act::End => {
                end(Arc::clone(mandate)).await;
                return Outcome::Again;
            }
            Act::Flip(id) => flip(mandate, (&record, &view), id, &mut swept).await,
            Act::Begin(id) => Ok((id, Step::Cleaning)),
            Act::Done(id) => Ok((id, Step::Done)),
            Act::Clean(id) => clean(mandate, (&record, &view), id, known).await,
        };
        let id = match done {
            Ok((id, step)) => {
                let seen = Seen {
                    counts: None,
                    hold_ms_max: 0,
                };
                match commit(Arc::clone(mandate), id.clone(), step, seen).await {
                    Event::Committed { .. } => {
                        wait(known, None);
                        tracing::info!(handoff = %id, ?act, "handoff");
                        continue;
                    }
                    Event::Deposed => return Outcome::Deposed,
                    _ => id.clone(),
                }
            }
            Err((id, error)) => {
                tracing::warn!(handoff = %id, %error, "a node cannot be cleaned, and is tried again");
                wait(known, Some((id.clone(), error.to_string())));
                id
            }
        };
        sleep(RETRY).await;
        if let Err(error) = mandate.look().await {
            tracing::warn!(handoff = %id, %error, "record not read");
        }
    }
}

/// How long to wait yet for those who route by an earlier epoch, and for what they sent under it.
async fn late(
    registry: Option<&dyn Registry>,
    epoch: Epoch,
    behind_at: &mut Option<Instant>,
    (known, id): (&Mutex<Known>, &HandoffId),
) -> Option<Duration> {
    let why = match registry?.registered().await {
        Err(error) => Some(error.to_string()),
        Ok(listing) => somebody_below(&listing, epoch),
    };
    match (why, *behind_at) {
        (Some(why), _) => {
            *behind_at = Some(Instant::now());
            wait(known, Some((id.clone(), why)));
            Some(RETRY)
        }
        (None, Some(at)) => Duration::from_millis(LATE_MS).checked_sub(at.elapsed()),
        (None, None) => None,
    }
}

/// Who sends requests by an epoch below this one, or might: in words.
fn somebody_below(listing: &Listing, epoch: Epoch) -> Option<String> {
    let behind = |entry: &Registered| match entry.routes_by {
        _ if entry.kind == RegistrantKind::Rebalancer => None,
        None => Some("does not say yet by which epoch it routes"),
        Some(by) if by.epoch < epoch => Some("routes by an earlier epoch"),
        Some(_) => None,
    };
    let mut words = listing.entries.iter().filter_map(|entry| {
        let what = behind(entry)?;
        Some(format!("{} at {} {what}", entry.kind, entry.place))
    });
    if let Some(words) = words.next() {
        return Some(words);
    }
    if let Some(unreadable) = listing.unreadable.first() {
        return Some(format!(
            "a registration cannot be read, so that nobody knows by which epoch its owner routes: {unreadable}"
        ));
    }
    (listing.left_out > 0).then(|| {
        format!(
            "{} registrations are over the limit and not listed, so that nobody knows by which epoch their owners route",
            listing.left_out
        )
    })
}

fn wait(known: &Mutex<Known>, waiting: Option<(HandoffId, String)>) {
    known.lock().unwrap_or_else(PoisonError::into_inner).waiting = waiting;
}

/// A step to commit, or what went wrong at a node.
type Acted<'a> = Result<(&'a HandoffId, Step), (HandoffId, DriverError)>;

/// A run of a node's server at its address. Run ids alone may be the same in two containers.
type Run = (NodeId, String, String);

/// Cleans the targets, each run once, and says who they are.
async fn flip<'a>(
    mandate: &Mandate,
    (record, view): (&Record, &View),
    id: &'a HandoffId,
    swept: &mut BTreeSet<Run>,
) -> Acted<'a> {
    let failed = |error| (id.clone(), error);
    let handoff = record.change().and_then(|change| change.handoff(id));
    let mut targets = Vec::new();
    for target in handoff.iter().flat_map(|handoff| &handoff.targets) {
        let Some(node) = record.node(target) else {
            continue;
        };
        let at = node_address(node);
        let mut identity = mandate.driver.inspect(&at).await.map_err(failed)?.identity;
        let run = (target.clone(), at.address.clone(), identity.run_id.clone());
        if !swept.contains(&run) {
            let removed = AtomicU64::new(0);
            let keep = owned_by(view, target);
            let strays = mandate.driver.sweep(&at, &keep, &removed).await;
            let strays = strays.map_err(failed)?;
            if strays > 0 {
                tracing::info!(node = %target, strays, "removed from a node before it gets keys");
            }
            swept.insert(run);
            // One that was started anew meanwhile has nothing.
            identity = mandate.driver.inspect(&at).await.map_err(failed)?.identity;
        }
        let nameless = |_| DriverError::WrongServer {
            node: at.id.clone(),
            address: at.address.clone(),
            why: format!("it calls itself {}", identity.run_id),
        };
        targets.push(Incarnation {
            run_id: identity.run_id.parse().map_err(nameless).map_err(failed)?,
            replication_id: identity
                .replication_id
                .parse()
                .map_err(nameless)
                .map_err(failed)?,
        });
    }
    Ok((id, Step::Flip { targets }))
}

/// Cleans the source, unless it leaves: nothing comes back to it before it joins again, empty.
async fn clean<'a>(
    mandate: &Mandate,
    (record, view): (&Record, &View),
    id: &'a HandoffId,
    known: &Mutex<Known>,
) -> Acted<'a> {
    let removed = known
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .removed(id);
    let stays = record
        .node(&id.source)
        .filter(|node| node.state != NodeState::Leaving);
    if let Some(node) = stays {
        let keep = owned_by(view, &id.source);
        let swept = mandate
            .driver
            .sweep(&node_address(node), &keep, &removed)
            .await;
        swept.map_err(|error| (id.clone(), error))?;
    }
    Ok((id, Step::Done))
}

/// Whether a node owns a key now.
fn owned_by<'a>(
    view: &'a View,
    node: &NodeId,
) -> impl for<'k> Fn(&'k [u8]) -> bool + Send + Sync + use<'a> {
    let index = view.index_of(node);
    move |key: &[u8]| Some(view.route(view.position(key)).node) == index
}

fn report(mandate: &Mandate, reporter: &Reporter, known: &Mutex<Known>) {
    let Some(record) = mandate.record() else {
        return;
    };
    let Some(change) = record.change() else {
        return;
    };
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let handoff = |handoff: &Handoff| {
        let id = handoff.id();
        let keys_removed = read(&known.removed(&id));
        let waiting = known.waiting.as_ref().filter(|(at, _)| *at == id);
        let waiting = waiting.map(|(_, why)| why.clone());
        HandoffProgress {
            id,
            state: handoff.state,
            keys_listed: 0,
            keys_expected: None,
            keys_copied: 0,
            bytes_copied: 0,
            keys_compared: 0,
            mismatches: 0,
            keys_dirty: 0,
            keys_removed,
            hold_ms_max: 0,
            waiting,
            stopped: None,
            last_rollback: None,
        }
    };
    let handoffs = change.handoffs.iter().map(handoff).collect();
    drop(known);
    reporter.change(Some(ChangeProgress {
        id: change.id.clone(),
        direction: change.direction,
        keys_per_second: None,
        unwritable: mandate.unwritable(),
        handoffs,
    }));
}

#[cfg(test)]
mod tests {
    use clockwise_client::store::RoutesBy;
    use clockwise_cluster::{Apply, Edit, NewNode, NewPool, Nonce, Protocol, ServiceClass};

    use super::*;

    fn nonces() -> impl FnMut() -> Nonce {
        let mut last = 0;
        move || {
            last += 1;
            Nonce::new([last; 16])
        }
    }

    fn joining() -> Record {
        let node = |id: &str, port: u16| {
            NewNode::new(
                id.parse().unwrap(),
                format!("127.0.0.1:{port}").parse().unwrap(),
            )
        };
        let pool = NewPool {
            protocol: Protocol::Memcached,
            class: ServiceClass::Cache,
            ..NewPool::new("main".parse().unwrap(), vec![node("a", 1), node("b", 2)])
        };
        let record = Record::create(pool, &mut nonces()).unwrap();
        let edit = Edit::Add {
            id: "c".parse().unwrap(),
            address: "127.0.0.1:3".parse().unwrap(),
            weight: "1".parse().unwrap(),
            domain: "".parse().unwrap(),
        };
        let staged = record.stage(edit).unwrap();
        let apply = Apply {
            expected: staged.epoch(),
            id: "join".parse().unwrap(),
            now_ms: 1_000,
            nonces: &mut nonces(),
        };
        staged.apply(apply).unwrap()
    }

    #[test]
    fn a_server_that_was_not_the_nodes_before_is_new_there() {
        let record = joining();
        let new_here = |node: &Node| is_new_here(&record, node);
        let a = record.node(&"a".parse().unwrap()).unwrap().clone();
        assert!(!new_here(&a));
        let mut moved = a.clone();
        moved.address = "127.0.0.1:4".parse().unwrap();
        assert!(new_here(&moved));
        let mut other = a;
        other.id = "d".parse().unwrap();
        assert!(new_here(&other));
    }

    #[test]
    fn whoever_is_not_known_to_route_by_the_epoch_is_waited_for() {
        let view = View::from_record(&joining()).unwrap();
        let by = RoutesBy::from(&view);
        let next = view.epoch().next();
        let entry = |kind, routes_by| Registered {
            id: "1".to_owned(),
            kind,
            version: "0.1.0".to_owned(),
            record_format: 1,
            place: "here".to_owned(),
            routes_by,
            since_ms: 0,
        };
        let listed = |kind, routes_by| Listing {
            entries: vec![entry(kind, routes_by)],
            ..Listing::default()
        };
        let check = |listing: &Listing, epoch, words: Option<&str>| {
            let said = somebody_below(listing, epoch);
            match (&said, words) {
                (Some(said), Some(words)) => assert!(said.contains(words), "{said}"),
                _ => assert_eq!(said.is_some(), words.is_some(), "{said:?}"),
            }
        };
        let now = view.epoch();
        check(&Listing::default(), now, None);
        check(&listed(RegistrantKind::Router, Some(by)), now, None);
        let behind = Some("routes by an earlier epoch");
        check(&listed(RegistrantKind::Router, Some(by)), next, behind);
        check(
            &listed(RegistrantKind::Client, None),
            now,
            Some("does not say"),
        );
        check(&listed(RegistrantKind::Rebalancer, None), now, None);
        let unreadable = Listing {
            unreadable: vec!["registrants/7: format 2".to_owned()],
            ..Listing::default()
        };
        check(&unreadable, now, Some("registrants/7: format 2"));
        let many = Listing {
            left_out: 3,
            ..Listing::default()
        };
        check(&many, now, Some("3 registrations"));
    }

    #[test]
    fn every_handoff_flips_before_any_source_is_cleaned_and_late_requests_are_waited_for() {
        let run = || "7-1000".parse().unwrap();
        let mut record = joining();
        let (mut now_ms, mut acts) = (2_000, Vec::new());
        loop {
            let act = next_act(record.change().unwrap(), now_ms);
            acts.push(act.clone());
            let targets = vec![Incarnation {
                run_id: run(),
                replication_id: run(),
            }];
            let (id, step) = match act {
                Act::End => break,
                Act::Wait(ms) => {
                    now_ms += ms;
                    continue;
                }
                Act::Flip(id) => (id, Step::Flip { targets }),
                Act::Begin(id) => (id, Step::Cleaning),
                Act::Clean(id) | Act::Done(id) => (id, Step::Done),
            };
            record = record.step(&id, &step, now_ms).unwrap();
            now_ms += 10;
        }
        let id = |source: &str| HandoffId {
            source: source.parse().unwrap(),
            reverse: false,
        };
        let expected = [
            Act::Flip(id("a")),
            Act::Flip(id("b")),
            Act::Wait(LATE_MS - 20),
            Act::Begin(id("a")),
            Act::Clean(id("a")),
            Act::Begin(id("b")),
            Act::Clean(id("b")),
            Act::End,
        ];
        assert_eq!(acts, expected);
    }
}
