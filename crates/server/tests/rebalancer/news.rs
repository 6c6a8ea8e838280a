//! A store that tells its news late, one that is slow, and one that is worse.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use clockwise_client::store::{
    CommitError, HistoryCopy, LeadError, Leader, Leadership, MemoryStore, ReadError, Store,
};
use clockwise_cluster::{Handoff, HandoffState, Record, Revision, Term};
use tokio::sync::watch;
use tokio::time::{Duration, sleep};

use crate::pool::{Pool, numbered};

/// A way to a store.
#[derive(Debug)]
struct Odd {
    inner: Arc<MemoryStore>,
    /// What its watchers hear, if that is not what the store says.
    news: Option<watch::Sender<Option<Arc<Record>>>>,
    /// The commit, counted from 1, in which it panics.
    panics_at: u32,
    /// How long the answer to a flip takes.
    flip_answer: Duration,
    commits: AtomicU32,
}

impl Odd {
    fn over(inner: Arc<MemoryStore>) -> Self {
        Self {
            inner,
            news: None,
            panics_at: 0,
            flip_answer: Duration::ZERO,
            commits: AtomicU32::new(0),
        }
    }
}

/// How many handoffs of the change in flight have flipped and are not cleaned yet.
fn flipped(record: &Record) -> usize {
    let handoffs = record.change().map(|change| &change.handoffs[..]);
    let is_flipped = |handoff: &&Handoff| handoff.state == HandoffState::Flipped;
    handoffs
        .unwrap_or_default()
        .iter()
        .filter(is_flipped)
        .count()
}

#[async_trait]
impl Store for Odd {
    async fn read(&self) -> Result<Option<Arc<Record>>, ReadError> {
        self.inner.read().await
    }

    async fn commit(
        &self,
        expected: Revision,
        next: Record,
        guard: Option<Term>,
    ) -> Result<Arc<Record>, CommitError> {
        // Whether a node was recognised first depends on nothing but speed.
        if next.change().is_some() {
            let number = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
            assert_ne!(number, self.panics_at, "planted");
        }
        let flips = flipped(&next);
        let was = self.inner.watch().borrow().as_deref().map_or(0, flipped);
        let committed = self.inner.commit(expected, next, guard).await;
        if flips > was {
            sleep(self.flip_answer).await;
        }
        committed
    }

    fn watch(&self) -> watch::Receiver<Option<Arc<Record>>> {
        match &self.news {
            Some(news) => news.subscribe(),
            None => self.inner.watch(),
        }
    }

    fn trouble(&self) -> watch::Receiver<Option<ReadError>> {
        self.inner.trouble()
    }

    async fn lead(&self, name: &str) -> Result<Leadership, LeadError> {
        self.inner.lead(name).await
    }

    async fn leads(&self, term: Term) -> Result<bool, ReadError> {
        self.inner.leads(term).await
    }

    async fn leader(&self, name: &str) -> Result<Option<Leader>, ReadError> {
        self.inner.leader(name).await
    }

    async fn resign(&self, term: Term) -> Result<(), ReadError> {
        self.inner.resign(term).await
    }

    async fn history(&self) -> Result<Vec<HistoryCopy>, ReadError> {
        self.inner.history().await
    }
}

async fn join_over(odd: impl FnOnce(Arc<MemoryStore>) -> Odd) -> Pool {
    let mut pool = Pool::without_rebalancer(&["a", "b"]).await;
    let store = Arc::new(odd(Arc::clone(&pool.store)));
    pool.lead_over(Arc::clone(&store) as _).await;
    let keys = numbered(2_000);
    pool.fill(&keys, |key| key.to_vec()).await;
    pool.add("c").await;
    pool.apply().await;
    pool.settle().await;
    assert_eq!(pool.check_places().await, keys.len());
    assert!(store.commits.load(Ordering::SeqCst) > store.panics_at);
    pool
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_are_planned_from_what_was_committed_although_no_news_of_it_came() {
    join_over(|inner| Odd {
        // The record of the beginning, for ever.
        news: Some(watch::Sender::new(inner.watch().borrow().clone())),
        ..Odd::over(inner)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebalancer_that_panics_leads_again_and_goes_on_from_the_record() {
    for panics_at in [1, 4] {
        join_over(|inner| Odd {
            panics_at,
            ..Odd::over(inner)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_report_counts_holds_until_the_flip_was_answered() {
    let slow = Duration::from_millis(150);
    let pool = join_over(|inner| Odd {
        flip_answer: slow,
        ..Odd::over(inner)
    })
    .await;
    let record = pool.record().await;
    for handoff in &record.finished().unwrap().handoffs {
        let held = Duration::from_millis(handoff.report.hold_ms_max);
        assert!(held >= slow, "{}: {held:?}", handoff.id());
    }
}
