//! The way to the record store: the real [`MemoryStore`], behind a network that loses answers.
//!
//! Leaderships are leases here, as they are in etcd: one ends when it was not renewed for some time by the
//! store's clock, and its holder may not have noticed.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use clockwise_client::store::{CommitError, MemoryStore, Store};
use clockwise_cluster::{Record, Revision, Term};

use super::Sim;
use super::executor::{MS, Micros, Slot};
use super::fact::Fact;
use super::network::Party;

/// How long a lease lasts without being renewed.
pub(super) const LEASE: Micros = 2_000 * MS;
/// How long an answer is waited for.
const WITHIN: Micros = 1_000 * MS;

/// The store, and who leads by its clock.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) store: MemoryStore,
    pub(super) leader: Option<Lease>,
}

/// A leadership until a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) process: usize,
    pub(super) term: u64,
    pub(super) until: Micros,
}

/// The store did not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Silent {
    /// It was not even asked.
    NotAsked,
    /// Whether it did what it was asked is not known.
    Unknown,
}

/// What a future of the store in memory gives: it never waits.
pub(super) fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("a store in memory never waits"),
    }
}

impl Sim {
    /// The store as whoever stands beside it sees it.
    pub(super) fn store(&self) -> MemoryStore {
        self.shared.borrow().store.clone()
    }

    /// Who leads by now.
    pub(super) fn leading(&self) -> Option<Lease> {
        let mut shared = self.shared.borrow_mut();
        if let Some(lease) = shared.leader
            && lease.until <= self.now()
        {
            shared.leader = None;
            at_once(shared.store.resign(Term::new(lease.term))).expect("it is there");
        }
        shared.leader
    }

    /// Asks the store something over a network that may lose the question or the answer.
    async fn ask_store<T: 'static>(
        &self,
        process: usize,
        question: impl FnOnce(&Sim) -> T + 'static,
    ) -> Result<T, Silent> {
        let party = Party::Process(process);
        let noise = self.noise();
        if self.cut_until(party, Party::Store).is_some() && self.random.borrow_mut().chance(500) {
            // Refused at once.
            self.sleep(MS).await;
            return Err(Silent::NotAsked);
        }
        let slot: Slot<Option<T>> = Slot::new();
        let answer = slot.clone();
        let (asked, answered) = {
            let mut random = self.random.borrow_mut();
            (
                !random.chance(noise.lost_permille),
                !random.chance(noise.lost_permille),
            )
        };
        let there = self.delay();
        self.after(there, move |sim| {
            if !asked || sim.cut_until(party, Party::Store).is_some() {
                return;
            }
            sim.leading();
            let done = question(sim);
            let back = sim.delay();
            sim.after(back, move |sim| {
                if answered && sim.cut_until(party, Party::Store).is_none() {
                    answer.set(sim, Some(done));
                }
            });
        });
        let got = self.within(WITHIN, slot.wait(self)).await;
        got.flatten().ok_or(Silent::Unknown)
    }

    /// The record as of now, and whether a term leads.
    pub(super) async fn look(
        &self,
        process: usize,
        term: u64,
    ) -> Result<(Arc<Record>, bool), Silent> {
        self.ask_store(process, move |sim| {
            let store = sim.store();
            let record = at_once(store.read())
                .expect("it is there")
                .expect("a pool was made");
            let leads = at_once(store.leads(Term::new(term))).expect("it is there");
            (record, leads)
        })
        .await
    }

    /// Commits under a term, or without one.
    pub(super) async fn commit(
        &self,
        process: usize,
        expected: Revision,
        next: Record,
        term: Option<u64>,
    ) -> Result<Arc<Record>, CommitError> {
        let repeated = {
            let permille = self.noise().repeated_permille;
            self.random.borrow_mut().chance(permille)
        };
        let asked = self.ask_store(process, move |sim| {
            let first = sim.commit_there(process, expected, next.clone(), term);
            match repeated {
                // The transport asked twice, and the second answer is the one that came back.
                true => sim.commit_there(process, expected, next, term),
                false => first,
            }
        });
        match asked.await {
            Ok(answer) => answer,
            Err(Silent::NotAsked) => Err(CommitError::Unreachable {
                why: "away".to_owned(),
            }),
            Err(Silent::Unknown) => Err(CommitError::Unknown {
                why: "no answer".to_owned(),
            }),
        }
    }

    /// Commits beside the store, and lets everybody know.
    pub(super) fn commit_there(
        &self,
        process: usize,
        expected: Revision,
        next: Record,
        term: Option<u64>,
    ) -> Result<Arc<Record>, CommitError> {
        let leading = self.leading().map(|lease| lease.term);
        let before = Arc::clone(&self.truth.borrow().record);
        let committed = at_once(self.store().commit(expected, next, term.map(Term::new)));
        if let Ok(after) = &committed {
            self.truth.borrow_mut().committed(Arc::clone(after));
            self.note(&Fact::Committed {
                before: Arc::clone(&before),
                after: Arc::clone(after),
                term,
                leading,
            });
            let away = self
                .cut_until(Party::Process(process), Party::Store)
                .is_some();
            if term.is_some() {
                self.note(&Fact::StoreAway {
                    process,
                    committed: away,
                });
            }
            self.published(&before, after);
        }
        committed
    }

    /// Tries to become the leader, or to stay it; the term if that went well.
    pub(super) async fn campaign(
        &self,
        process: usize,
        term: Option<u64>,
    ) -> Result<Option<u64>, Silent> {
        self.ask_store(process, move |sim| {
            let until = sim.now() + LEASE;
            let lease = sim.leading();
            let mut shared = sim.shared.borrow_mut();
            match (lease, term) {
                (Some(lease), Some(term)) if lease.term == term => {
                    shared.leader = Some(Lease { until, ..lease });
                    Some(term)
                }
                (None, None) => {
                    let led = at_once(shared.store.lead("rebalancer")).expect("it is there");
                    let term = led.term().get();
                    shared.leader = Some(Lease {
                        process,
                        term,
                        until,
                    });
                    Some(term)
                }
                _ => None,
            }
        })
        .await
    }
}
