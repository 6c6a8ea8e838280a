//! Sees every record of the pool, straight from etcd and past all proxies, and when it came.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clockwise_client::store::{EtcdOptions, EtcdStore, Leader, Store};
use clockwise_cluster::{Handoff, HandoffId, HandoffState, Record};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::interrupt;
use super::stage::Stage;

pub(super) const POOL: &str = "default";
/// What rebalancers stand for.
const LEADER: &str = "rebalancer";
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// How soon an interrupt is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A record, as it was seen.
#[derive(Debug)]
pub(super) struct Seen {
    /// Milliseconds since 1970.
    pub(super) at_ms: u64,
    pub(super) record: Arc<Record>,
}

/// Follows the record for as long as it lives.
pub(super) struct Witness {
    store: Arc<EtcdStore>,
    trail: Arc<Trail>,
    runtime: Option<Runtime>,
}

#[derive(Default)]
struct Trail {
    seen: Mutex<Vec<Seen>>,
    more: Condvar,
}

impl Witness {
    pub(super) fn start(endpoints: Vec<String>) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let options = EtcdOptions {
            endpoints,
            holder: "witness".to_owned(),
            ..EtcdOptions::default()
        };
        let pool = POOL.parse().map_err(io::Error::other)?;
        let entered = runtime.enter();
        let store = Arc::new(EtcdStore::open(&pool, options).map_err(io::Error::other)?);
        drop(entered);
        let trail = Arc::<Trail>::default();
        let (mut records, own) = (store.watch(), Arc::clone(&trail));
        runtime.spawn(async move {
            loop {
                let record = records.borrow_and_update().clone();
                if let Some(record) = record {
                    let at_ms = now_ms();
                    lock(&own.seen).push(Seen { at_ms, record });
                    own.more.notify_all();
                }
                if records.changed().await.is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            store,
            trail,
            runtime: Some(runtime),
        })
    }

    /// Who leads the pool now.
    pub(super) fn leader(&self) -> io::Result<Option<Leader>> {
        let Some(runtime) = &self.runtime else {
            return Ok(None);
        };
        let asked =
            runtime.block_on(async { timeout(ANSWERS_WITHIN, self.store.leader(LEADER)).await });
        asked.map_err(io::Error::other)?.map_err(io::Error::other)
    }

    /// Looks at all that was seen, again with each record, until something is found or the time is over.
    pub(super) fn wait_for<T>(
        &self,
        within: Duration,
        mut find: impl FnMut(&[Seen]) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + within;
        let mut seen = lock(&self.trail.seen);
        loop {
            if let Some(found) = find(&seen) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || interrupt::came() {
                return None;
            }
            let waited = self.trail.more.wait_timeout(seen, left.min(LOOK_EVERY));
            seen = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The newest record.
    pub(super) fn newest(&self) -> Option<Arc<Record>> {
        let seen = lock(&self.trail.seen);
        seen.last().map(|seen| Arc::clone(&seen.record))
    }

    /// How many milliseconds after a fault the handoff was still in the stage that it struck in, or why that is
    /// not known.
    pub(super) fn overlap(
        &self,
        id: &HandoffId,
        stage: Stage,
        struck_at_ms: u64,
    ) -> Result<u64, String> {
        overlap(&lock(&self.trail.seen), id, stage, struck_at_ms, now_ms())
    }

    /// When which handoff was seen in which state, one line each.
    pub(super) fn story(&self) -> String {
        let seen = lock(&self.trail.seen);
        let first = seen.first().map_or(0, |seen| seen.at_ms);
        let mut lines = String::new();
        for one in seen.iter() {
            let handoffs = one.record.change().map(|change| change.handoffs.as_slice());
            let states: Vec<String> = handoffs
                .unwrap_or_default()
                .iter()
                .map(|handoff| format!("{} {}", handoff.id(), handoff.state))
                .collect();
            lines.push_str(&format!(
                "{:6} ms  revision {} epoch {}  {}\n",
                one.at_ms - first,
                one.record.revision(),
                one.record.epoch(),
                states.join(", ")
            ));
        }
        lines
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(ANSWERS_WITHIN);
        }
    }
}

/// A handoff of the change in flight.
pub(super) fn handoff<'a>(record: &'a Record, id: &HandoffId) -> Option<&'a Handoff> {
    record.change()?.handoff(id)
}

/// The handoff that entered the stage as the `nth` of all, if it is in it now; an error when it has left it, or
/// the change has ended before.
pub(super) fn entered(seen: &[Seen], stage: Stage, nth: usize) -> Option<Result<HandoffId, ()>> {
    let mut order: Vec<HandoffId> = Vec::new();
    let mut began = false;
    for one in seen {
        let Some(change) = one.record.change() else {
            if began {
                return Some(Err(()));
            }
            continue;
        };
        began = true;
        for handoff in &change.handoffs {
            let id = handoff.id();
            if stage.is_of(handoff) && !order.contains(&id) {
                order.push(id);
            }
        }
    }
    let id = order.get(nth)?;
    let newest = seen.last().and_then(|seen| handoff(&seen.record, id));
    Some(match newest {
        Some(handoff) if stage.is_of(handoff) => Ok(id.clone()),
        _ => Err(()),
    })
}

/// Whoever commits notes the time before he does, so that a state counts for a little less than it lasted.
fn overlap(
    seen: &[Seen],
    id: &HandoffId,
    stage: Stage,
    struck_at_ms: u64,
    now_ms: u64,
) -> Result<u64, String> {
    let is_in = |one: &Seen| handoff(&one.record, id).is_some_and(|one| stage.is_of(one));
    let over = || format!("the fault struck when {} was over", stage.name());
    let at = seen
        .iter()
        .rposition(|one| one.at_ms <= struck_at_ms)
        .filter(|at| is_in(&seen[*at]))
        .ok_or_else(over)?;
    let Some(stays) = seen[at..].iter().position(|one| !is_in(one)) else {
        return Ok(now_ms.saturating_sub(struck_at_ms));
    };
    let (last, next) = (&seen[at + stays - 1], &seen[at + stays]);
    if last.record.revision().next() != next.record.revision() {
        return Err("a record was not seen, which may be the one that ended the state".to_owned());
    }
    let entered = handoff(&next.record, id).map(|handoff| handoff.entered_at_ms);
    let left_at_ms = entered.unwrap_or(next.at_ms);
    match left_at_ms.checked_sub(struck_at_ms) {
        None | Some(0) => Err(over()),
        Some(rest_ms) => Ok(rest_ms),
    }
}

/// Whether a handoff of the newest record is in this state.
pub(super) fn any_in(seen: &[Seen], state: HandoffState) -> bool {
    let change = seen.last().and_then(|seen| seen.record.change());
    change.is_some_and(|change| change.handoffs.iter().any(|one| one.state == state))
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use clockwise_cluster::{Apply, Edit, NewNode, NewPool, Nonce, Revision, Step};

    use super::*;
    use crate::matrix::stage::STAGES;

    /// A join to two owners, applied at 100 ms.
    fn applied() -> Record {
        let mut nonce = || Nonce::new([7; 16]);
        let node =
            |id: &str, address: &str| NewNode::new(id.parse().unwrap(), address.parse().unwrap());
        let nodes = vec![node("a", "127.0.0.1:1"), node("b", "127.0.0.1:2")];
        let new = NewPool::new("main".parse().unwrap(), nodes);
        let record = Record::create(new, &mut nonce).unwrap();
        let edit = Edit::Add {
            id: "c".parse().unwrap(),
            address: "127.0.0.1:3".parse().unwrap(),
            weight: "1".parse().unwrap(),
            domain: "".parse().unwrap(),
        };
        let record = record.stage(edit).unwrap();
        let apply = Apply {
            expected: record.epoch(),
            id: "change-2".parse().unwrap(),
            now_ms: 100,
            nonces: &mut nonce,
        };
        record.apply(apply).unwrap()
    }

    /// As it is seen: each a millisecond after it was made, with the revisions given.
    fn seen(records: Vec<(u64, u64, Record)>) -> Vec<Seen> {
        let seen = |(revision, at_ms, record): (u64, u64, Record)| Seen {
            at_ms: at_ms + 1,
            record: Arc::new(record.at_revision(Revision::new(revision))),
        };
        records.into_iter().map(seen).collect()
    }

    fn of_a() -> HandoffId {
        HandoffId::forward("a".parse().unwrap())
    }

    /// `a` is copied from 200 ms on, another record comes at 250, and `a` is compared from 300 ms on.
    fn story(revisions: [u64; 4]) -> Vec<Seen> {
        let planned = applied();
        let copying = planned.step(&of_a(), &Step::Copying, 200).unwrap();
        let verifying = copying.step(&of_a(), &Step::Verifying, 300).unwrap();
        let [first, second, third, fourth] = revisions;
        seen(vec![
            (first, 100, planned),
            (second, 200, copying.clone()),
            (third, 250, copying),
            (fourth, 300, verifying),
        ])
    }

    fn copying() -> Stage {
        STAGES[1]
    }

    #[test]
    fn a_fault_counts_only_in_the_state_that_it_waited_for() {
        let story = story([1, 2, 3, 4]);
        let at = |struck_at_ms| overlap(&story, &of_a(), copying(), struck_at_ms, 400);
        assert_eq!(at(220), Ok(80));
        assert_eq!(at(299), Ok(1));
        for too_early_or_late in [0, 150, 300, 301, 350] {
            let why = at(too_early_or_late).unwrap_err();
            assert!(why.ends_with("was over"), "{too_early_or_late}: {why}");
        }
    }

    #[test]
    fn a_state_that_has_not_ended_counts_until_now() {
        let story = &story([1, 2, 3, 4])[..3];
        assert_eq!(overlap(story, &of_a(), copying(), 260, 400), Ok(140));
    }

    #[test]
    fn a_record_that_was_missed_at_the_end_of_a_state_makes_it_unknown() {
        let why = overlap(&story([1, 2, 3, 5]), &of_a(), copying(), 220, 400).unwrap_err();
        assert!(why.contains("was not seen"), "{why}");
        assert!(overlap(&story([1, 2, 4, 5]), &of_a(), copying(), 220, 400).is_ok());
    }

    #[test]
    fn the_first_to_enter_a_state_is_hit_while_it_is_in_it() {
        let story = story([1, 2, 3, 4]);
        assert_eq!(entered(&story[..1], copying(), 0), None);
        assert_eq!(entered(&story[..3], copying(), 0), Some(Ok(of_a())));
        assert_eq!(entered(&story[..3], copying(), 1), None);
        assert_eq!(entered(&story, copying(), 0), Some(Err(())));
    }
}
