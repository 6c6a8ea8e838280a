//! Registrations: one key each, which ends with a lease of its own.
//!
//! A lease that was lost, to a pause of this process or an outage of etcd, is never used again: the
//! entry is written anew under another one. Each renewal is followed by a look at the key, since a
//! key can go without its lease, and an old etcd may confirm a lease that it has ended.
//!
//! Everybody hears of a new epoch at the same moment, and a handover commits two of them within
//! some milliseconds. So what is shown is written a moment later, each at one of their own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::ReadError;
use super::super::registry::{Keeping, Listing, REGISTERED_MAX, RETRY_PAUSE};
use super::Shared;
use super::failure::Failure;
use super::keys::place;
use super::leading::Lease;
use super::pause::jittered;
use super::proto::{Compare, PutRequest, RangeRequest, RequestOp, TxnRequest};

/// Before what is shown is written: a handover is over by then.
const GATHER_PAUSE: Duration = Duration::from_millis(400);
/// Entries of one answer: at their largest half a MiB.
const PAGE: usize = 512;
/// Somebody else who writes one's own key costs one more turn.
const TURNS_MAX: usize = 3;

/// How an entry's time under one lease was over.
enum Over {
    /// Its owner ended it.
    Ended,
    /// The lease or the key is gone.
    Gone,
}

/// An entry under its lease.
struct Standing {
    key: Bytes,
    lease: Lease,
    /// The key's compare token; zero while it does not exist.
    mod_revision: i64,
}

impl Shared {
    /// Keeps an entry registered until its owner ends it.
    pub(super) async fn keep_registered(self: Arc<Self>, mut keeping: Keeping) {
        loop {
            match self.stand(&mut keeping).await {
                Ok(Over::Ended) => return,
                Ok(Over::Gone) => tracing::info!(id = keeping.id(), "registering again"),
                Err(failure) => keeping.settle(Err(failure.into())),
            }
            tokio::select! {
                () = sleep(jittered(RETRY_PAUSE)) => {}
                () = ended(&mut keeping) => return,
            }
        }
    }

    /// Registers under a new lease, and renews it for as long as that works.
    async fn stand(&self, keeping: &mut Keeping) -> Result<Over, Failure> {
        let asked = Instant::now();
        let granted = self
            .connection
            .grant(self.registration_ttl_s, self.deadline())
            .await?;
        let mut standing = Standing {
            key: self.keys.registrant(keeping.id()),
            lease: Lease::new(&granted, asked),
            mod_revision: 0,
        };
        let stood = self.stand_under(keeping, &mut standing).await;
        if !matches!(stood, Ok(Over::Gone)) {
            // The entry goes with it.
            self.end_lease(standing.lease.id).await;
        }
        stood
    }

    async fn stand_under(
        &self,
        keeping: &mut Keeping,
        standing: &mut Standing,
    ) -> Result<Over, Failure> {
        if !self.write_entry(standing, keeping.bytes().into()).await? {
            return Ok(Over::Gone);
        }
        keeping.settle(Ok(()));
        let mut renew_at = standing.lease.renew_at();
        loop {
            tokio::select! {
                () = sleep_until(renew_at) => {
                    let asked = Instant::now();
                    match self.renew_entry(standing, asked).await {
                        Ok(true) => {
                            keeping.settle(Ok(()));
                            renew_at = standing.lease.renew_at();
                        }
                        Ok(false) => return Ok(Over::Gone),
                        Err(failure) => {
                            keeping.settle(Err(failure.into()));
                            renew_at = Instant::now() + jittered(RETRY_PAUSE);
                        }
                    }
                }
                more = keeping.changed() => {
                    if !more {
                        return Ok(Over::Ended);
                    }
                    sleep(jittered(GATHER_PAUSE)).await;
                    if !self.write_entry(standing, keeping.bytes().into()).await? {
                        return Ok(Over::Gone);
                    }
                    keeping.settle(Ok(()));
                }
            }
        }
    }

    /// `false` if the lease is gone. Compares, so that an attempt that is carried out late does not
    /// bring back what was shown before.
    async fn write_entry(&self, standing: &mut Standing, value: Bytes) -> Result<bool, Failure> {
        for _ in 0..TURNS_MAX {
            let key = standing.key.clone();
            let txn = TxnRequest {
                compare: vec![Compare::mod_revision(key.clone(), standing.mod_revision)],
                success: vec![RequestOp::from(PutRequest {
                    key: key.clone(),
                    value: value.clone(),
                    lease: standing.lease.id,
                })],
                failure: vec![RequestOp::from(RangeRequest::one(key))],
            };
            let answer = match self.connection.txn(txn, self.deadline()).await {
                Err(failure) if failure.why.contains("requested lease not found") => {
                    return Ok(false);
                }
                answer => answer?,
            };
            if answer.message.succeeded {
                standing.mod_revision = answer.message.revision();
                return Ok(true);
            }
            let found = answer.message.found().next().flatten();
            let own = |lease: i64, found: &Bytes| lease == standing.lease.id && *found == value;
            match found {
                Some(found) if own(found.lease, &found.value) => {
                    standing.mod_revision = found.mod_revision;
                    return Ok(true);
                }
                found => standing.mod_revision = found.map_or(0, |found| found.mod_revision),
            }
        }
        // Whoever fights over the key has the next turn in a second.
        Ok(false)
    }

    /// `false` if the lease or the key that hangs on it is gone.
    async fn renew_entry(&self, standing: &mut Standing, asked: Instant) -> Result<bool, Failure> {
        let deadline = self.deadline();
        let renewed = self
            .connection
            .keep_alive(standing.lease.id, deadline)
            .await?;
        if renewed.ttl_s <= 0 {
            return Ok(false);
        }
        standing.lease = Lease::new(&renewed, asked);
        let request = RangeRequest {
            keys_only: true,
            ..RangeRequest::one(standing.key.clone())
        };
        let found = self.connection.range(request, deadline).await?;
        let lease = found.kvs.first().map(|found| found.lease);
        Ok(lease == Some(standing.lease.id))
    }

    /// Page by page, so not of one moment.
    pub(super) async fn registered(&self) -> Result<Listing, ReadError> {
        let mut listing = Listing::default();
        let mut request = RangeRequest {
            limit: i64::try_from(PAGE).expect("a page"),
            ..RangeRequest::under(self.keys.registrants())
        };
        loop {
            let answer = self
                .connection
                .range(request.clone(), self.deadline())
                .await?;
            for found in &answer.kvs {
                listing.take(|| place(&found.key), &found.value);
            }
            let Some(last) = answer.kvs.last().filter(|_| answer.more) else {
                break;
            };
            if listing.entries.len() >= REGISTERED_MAX {
                let listed = i64::try_from(answer.kvs.len()).unwrap_or(i64::MAX);
                let rest = answer.count.saturating_sub(listed);
                listing.left_out += usize::try_from(rest).unwrap_or(0);
                break;
            }
            request.key = [&last.key[..], b"\0"].concat().into();
        }
        Ok(listing.sorted())
    }
}

/// Returns when the owner ends the registration, and not for mere news: the next write takes them
/// along.
async fn ended(keeping: &mut Keeping) {
    while keeping.changed().await {}
}
