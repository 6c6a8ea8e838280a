//! Leadership: a key that ends with a lease, under a term that is counted up in the same
//! transaction.
//!
//! A lease is liveness and no fence: a leader may be paused for longer than it lasts, and etcd
//! before 3.4.38 may confirm the renewal of a lease that was revoked. What a leader writes
//! therefore compares the leadership key itself, and each renewal is followed by a look at it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clockwise_cluster::{COUNTER_MAX, Term};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::super::error::last_of_all;
use super::super::{LeadError, Leader, Leadership, ReadError};
use super::Shared;
use super::failure::Failure;
use super::keys::{StoredLeader, StoredTerm, place};
use super::proto::{Compare, LeaseResponse, PutRequest, RangeRequest, RequestOp, TxnRequest};

/// Of a lease, between two renewals.
const RENEWALS_PER_LEASE: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_millis(100);
const NAME_BYTES_MAX: usize = 128;

/// The terms begun by this store that are not known to have ended.
#[derive(Debug, Default)]
pub(super) struct Terms {
    // Invariant: no two names have the same term.
    by_name: BTreeMap<String, Led>,
    /// The highest seen here, whoever began it.
    highest: Option<Term>,
}

#[derive(Debug)]
struct Led {
    term: Term,
    guard: Guard,
    lease: i64,
    lost: watch::Sender<bool>,
    keeper: JoinHandle<()>,
}

/// What a leader's transactions compare.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
}

/// A lease, and until when it lasts at least by our own clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub(super) id: i64,
    pub(super) until: Instant,
    ttl: Duration,
}

impl Lease {
    /// `asked` before the request left: the lease cannot have begun earlier.
    pub(super) fn new(granted: &LeaseResponse, asked: Instant) -> Lease {
        let ttl = Duration::from_secs(u64::try_from(granted.ttl_s).unwrap_or(0));
        Lease {
            id: granted.id,
            until: asked + ttl,
            ttl,
        }
    }

    /// When it should be renewed next.
    pub(super) fn renew_at(&self) -> Instant {
        self.until - self.ttl + self.ttl / RENEWALS_PER_LEASE
    }
}

/// What stands under the two keys of a leadership.
struct Standing {
    term: Option<(i64, Result<Term, String>)>,
    leader: Option<Bytes>,
}

impl Terms {
    /// Ends all tasks without waiting. The leases run out.
    pub(super) fn abort(&mut self) {
        for led in self.by_name.values() {
            led.keeper.abort();
        }
        self.by_name.clear();
    }

    pub(super) fn begun(&self) -> Vec<Term> {
        self.by_name.values().map(|led| led.term).collect()
    }

    fn see(&mut self, term: Term) {
        self.highest = self.highest.max(Some(term));
    }
}

impl Guard {
    pub(super) fn compare(&self) -> Compare {
        Compare::value(self.key.clone(), self.value.clone())
    }
}

impl Shared {
    pub(super) fn terms(&self) -> MutexGuard<'_, Terms> {
        // Every change of the table is one insertion or removal, so a panic elsewhere leaves it whole.
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if it is known here that the term does not lead.
    pub(super) fn guard(&self, term: Term) -> Option<Guard> {
        let terms = self.terms();
        let led = terms.by_name.values().find(|led| led.term == term)?;
        Some(led.guard.clone())
    }

    pub(super) async fn lead(self: &Arc<Self>, name: &str) -> Result<Leadership, LeadError> {
        check_name(name)?;
        let mut granted = None;
        let led = self.begin(name, &mut granted).await;
        if led.is_err()
            && let Some(lease) = granted
        {
            self.end_lease(lease.id).await;
        }
        led
    }

    async fn begin(
        self: &Arc<Self>,
        name: &str,
        granted: &mut Option<Lease>,
    ) -> Result<Leadership, LeadError> {
        let deadline = self.deadline();
        let key = self.keys.leader(name);
        let call = self.leads_asked.fetch_add(1, Ordering::Relaxed);
        let mut candidate: Option<(Term, Bytes)> = None;
        loop {
            // Before the look: whoever begins a term meanwhile is not to make it seem old.
            let highest = self.terms().highest;
            let standing = self.standing(&key, deadline).await?;
            if let (Some((term, value)), Some(leader), Some(lease)) =
                (&candidate, &standing.leader, *granted)
                && value == leader
            {
                let guard = Guard {
                    key,
                    value: value.clone(),
                };
                return Ok(self.keep(name, *term, guard, lease).await);
            }
            self.check_free(name, standing.leader.as_ref())?;
            let term = self.next_term(&standing, highest, deadline).await?;
            let lease = match *granted {
                Some(lease) => lease,
                None => {
                    let asked = Instant::now();
                    let answer = self.connection.grant(self.lease_ttl_s, deadline).await?;
                    *granted.insert(Lease::new(&answer, asked))
                }
            };
            if Instant::now() >= deadline.min(lease.until) {
                let why = "others began terms again and again meanwhile".to_owned();
                return Err(LeadError::Unreachable { why });
            }
            let holder = (self.holder.as_str(), self.contact.as_deref());
            let value = StoredLeader::new(term, holder, &self.nonce, call).encode();
            // Whether it succeeded is seen by the next look, also if its answer was lost.
            let txn = self.begin_txn(&key, &value, term, &standing, lease.id);
            candidate = Some((term, value));
            self.connection.txn(txn, deadline).await?;
        }
    }

    fn begin_txn(
        &self,
        key: &Bytes,
        value: &Bytes,
        term: Term,
        standing: &Standing,
        lease: i64,
    ) -> TxnRequest {
        let term_key = self.keys.term();
        let term_stands = match &standing.term {
            Some((mod_revision, _)) => Compare::mod_revision(term_key.clone(), *mod_revision),
            None => Compare::absent(term_key.clone()),
        };
        let leader_stands = match &standing.leader {
            Some(own) => Compare::value(key.clone(), own.clone()),
            None => Compare::absent(key.clone()),
        };
        TxnRequest {
            compare: vec![term_stands, leader_stands],
            success: vec![
                RequestOp::from(PutRequest {
                    key: term_key,
                    value: StoredTerm::encode(term),
                    lease: 0,
                }),
                RequestOp::from(PutRequest {
                    key: key.clone(),
                    value: value.clone(),
                    lease,
                }),
            ],
            failure: Vec::new(),
        }
    }

    async fn standing(&self, key: &Bytes, deadline: Instant) -> Result<Standing, Failure> {
        let looks = [self.keys.term(), key.clone()];
        let txn = TxnRequest {
            success: looks
                .map(|key| RequestOp::from(RangeRequest::one(key)))
                .into(),
            ..TxnRequest::default()
        };
        let mut found = self.connection.txn(txn, deadline).await?.message.found();
        let term = found.next().flatten();
        let leader = found.next().flatten();
        Ok(Standing {
            term: term.map(|found| (found.mod_revision, StoredTerm::decode(&found.value))),
            leader: leader.map(|found| found.value),
        })
    }

    /// Whether nobody leads, or this store itself.
    fn check_free(&self, name: &str, leader: Option<&Bytes>) -> Result<(), LeadError> {
        let Some(leader) = leader else { return Ok(()) };
        let stored = StoredLeader::decode(leader);
        if stored
            .as_ref()
            .is_some_and(|stored| stored.store == self.nonce)
        {
            return Ok(());
        }
        let holder = match stored {
            Some(stored) => format!("{} under term {}", stored.holder, stored.term),
            None => format!("what stands in {}", place(&self.keys.leader(name))),
        };
        Err(LeadError::Held {
            name: name.to_owned(),
            holder,
        })
    }

    /// One above the last term, if that is known: one that was used must not come again.
    /// `highest` is the highest that was known here before the look.
    async fn next_term(
        &self,
        standing: &Standing,
        highest: Option<Term>,
        deadline: Instant,
    ) -> Result<Term, LeadError> {
        let unknown = |why| LeadError::TermUnknown {
            place: place(&self.keys.term()),
            why,
        };
        let stored = match &standing.term {
            Some((_, Ok(term))) => *term,
            Some((_, Err(why))) => return Err(unknown(why.clone())),
            None if self.is_new(deadline).await? => Term::new(0),
            None => return Err(unknown("it is gone".to_owned())),
        };
        if let Some(highest) = highest.filter(|highest| stored < *highest) {
            let why = format!("it says {stored}, but term {highest} was begun: etcd was restored");
            return Err(unknown(why));
        }
        match stored.get() < COUNTER_MAX {
            true => Ok(stored.next()),
            false => Err(unknown(last_of_all(stored))),
        }
    }

    /// Whether the pool has never been made. One that was has a term's key, see `commit`.
    async fn is_new(&self, deadline: Instant) -> Result<bool, Failure> {
        let request = RangeRequest {
            keys_only: true,
            limit: 1,
            ..RangeRequest::one(self.keys.record())
        };
        let record = self.connection.range(request, deadline).await?;
        Ok(record.kvs.is_empty() && self.copies(deadline).await?.is_empty())
    }

    /// Notes the term as this store's and renews its lease from now on.
    async fn keep(
        self: &Arc<Self>,
        name: &str,
        term: Term,
        guard: Guard,
        lease: Lease,
    ) -> Leadership {
        let (lost, subscription) = watch::channel(false);
        let former = {
            let mut terms = self.terms();
            terms.see(term);
            if terms.by_name.get(name).is_some_and(|led| led.term > term) {
                // A later call was faster; the key is its own by now.
                lost.send_replace(true);
                None
            } else {
                let shared = Arc::clone(self);
                let kept = (name.to_owned(), term, guard.clone());
                let keeper = tokio::spawn(async move { shared.keep_renewing(kept, lease).await });
                let led = Led {
                    term,
                    guard,
                    lease: lease.id,
                    lost,
                    keeper,
                };
                terms.by_name.insert(name.to_owned(), led)
            }
        };
        if let Some(former) = former {
            former.lost.send_replace(true);
            former.keeper.abort();
            self.end_lease(former.lease).await;
        }
        Leadership {
            term,
            lost: subscription,
        }
    }

    async fn keep_renewing(&self, (name, term, guard): (String, Term, Guard), lease: Lease) {
        let why = self.renew_until_lost(&guard, lease).await;
        tracing::warn!(name, %term, why, "the leadership is lost");
        self.lose(&name, term);
    }

    /// Why it is lost.
    async fn renew_until_lost(&self, guard: &Guard, mut lease: Lease) -> String {
        let mut renew_at = lease.renew_at();
        loop {
            sleep_until(renew_at.min(lease.until)).await;
            let asked = Instant::now();
            // After a pause of this process the lease may be long over, whatever etcd would say.
            if asked >= lease.until {
                return "its lease was not renewed in time".to_owned();
            }
            match self.renew(guard, lease).await {
                Ok(Some(renewed)) => {
                    lease = Lease::new(&renewed, asked);
                    renew_at = lease.renew_at();
                }
                Ok(None) => return "etcd ended its lease".to_owned(),
                Err(failure) => {
                    tracing::debug!(why = failure.why, "the lease was not renewed");
                    renew_at = Instant::now() + RETRY_PAUSE;
                }
            }
        }
    }

    /// `None` if the lease or the key that hangs on it is gone.
    async fn renew(&self, guard: &Guard, lease: Lease) -> Result<Option<LeaseResponse>, Failure> {
        let renewed = self.connection.keep_alive(lease.id, lease.until).await?;
        if renewed.ttl_s <= 0 {
            return Ok(None);
        }
        let request = RangeRequest::one(guard.key.clone());
        let found = self.connection.range(request, lease.until).await?;
        let stands = found.kvs.first().is_some_and(|kv| kv.value == guard.value);
        Ok(stands.then_some(renewed))
    }

    /// Notes that a term has ended.
    pub(super) fn lose(&self, name: &str, term: Term) {
        let mut terms = self.terms();
        if terms.by_name.get(name).is_some_and(|led| led.term == term)
            && let Some(led) = terms.by_name.remove(name)
        {
            led.lost.send_replace(true);
        }
    }

    /// Notes that a term has ended, by the guard that did not hold.
    pub(super) fn lose_term(&self, term: Term) {
        let name = {
            let terms = self.terms();
            let led = terms.by_name.iter().find(|(_, led)| led.term == term);
            led.map(|(name, _)| name.clone())
        };
        if let Some(name) = name {
            self.lose(&name, term);
        }
    }

    pub(super) async fn leads(&self, term: Term) -> Result<bool, ReadError> {
        let request = RangeRequest::under(self.keys.leaders());
        let found = self.connection.range(request, self.deadline()).await?;
        let mut leaders = found
            .kvs
            .iter()
            .filter_map(|kv| StoredLeader::decode(&kv.value));
        Ok(leaders.any(|leader| leader.term == term))
    }

    pub(super) async fn leader(&self, name: &str) -> Result<Option<Leader>, ReadError> {
        let request = RangeRequest::one(self.keys.leader(name));
        let found = self.connection.range(request, self.deadline()).await?;
        let stored = found.kvs.first();
        let stored = stored.and_then(|found| StoredLeader::decode(&found.value));
        Ok(stored.map(|stored| Leader {
            term: stored.term,
            holder: stored.holder,
            contact: stored.contact,
        }))
    }

    pub(super) async fn resign(&self, term: Term) -> Result<(), ReadError> {
        let led = {
            let mut terms = self.terms();
            let found = terms.by_name.iter().find(|(_, led)| led.term == term);
            let name = found.map(|(name, _)| name.clone());
            name.and_then(|name| terms.by_name.remove(&name))
        };
        let Some(led) = led else { return Ok(()) };
        led.lost.send_replace(true);
        led.keeper.abort();
        // The key goes with its lease.
        match self.connection.revoke(led.lease, self.deadline()).await {
            Ok(()) => Ok(()),
            Err(failure) if failure.why.contains("requested lease not found") => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// If that fails it runs out by itself.
    pub(super) async fn end_lease(&self, id: i64) {
        if let Err(failure) = self.connection.revoke(id, self.deadline()).await {
            tracing::debug!(why = failure.why, "a lease was left to run out");
        }
    }
}

fn check_name(name: &str) -> Result<(), LeadError> {
    let usable = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/');
    if usable {
        return Ok(());
    }
    let why = format!(
        "`{}` cannot name a leader: 1 to {NAME_BYTES_MAX} visible characters without `/`",
        name.escape_debug()
    );
    Err(LeadError::Refused { why })
}
