//! A store that comes to a stand at one commit: before it is made, or made and not yet known to be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use clockwise_client::store::{
    CommitError, HistoryCopy, LeadError, Leader, Leadership, ReadError, Store,
};
use clockwise_cluster::{Change, Direction, HandoffState, Record, Revision, Term};
use tokio::sync::watch;

/// What a commit writes for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    /// A change begins.
    Change,
    /// A handoff is in this state.
    State(HandoffState),
    /// The change goes back; handoffs that have not flipped are in `purging` from this commit on.
    Back,
    /// The change has ended.
    End,
}

/// On which side of the effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Before,
    After,
}

/// A commit and a side of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) written: Written,
    pub(crate) side: Side,
}

impl Place {
    /// All that a move writes on the way there, then on the way back.
    pub(crate) fn all() -> Vec<Self> {
        use HandoffState::{Cleaning, Copying, Done, Flipped, Handover, Undone, Verifying};
        let states = [
            Copying, Verifying, Handover, Flipped, Cleaning, Done, Undone,
        ];
        let mut written: Vec<_> = states.map(Written::State).into();
        written.insert(0, Written::Change);
        written.push(Written::Back);
        written.push(Written::End);
        let sides = [Side::Before, Side::After];
        let places = written
            .iter()
            .flat_map(|written| sides.map(|side| (*written, side)));
        places
            .map(|(written, side)| Self { written, side })
            .collect()
    }

    /// The one of this name, as `Debug` writes it.
    pub(crate) fn named(name: &str) -> Self {
        let found = Self::all()
            .into_iter()
            .find(|place| format!("{place:?}") == name);
        found.unwrap_or_else(|| panic!("no place is called {name}"))
    }
}

impl Written {
    fn is_in(self, record: &Record) -> bool {
        let change = record.change();
        let is = |so: &dyn Fn(&Change) -> bool| change.is_some_and(so);
        match self {
            Self::Change => change.is_some(),
            Self::State(state) => {
                is(&|change| change.handoffs.iter().any(|handoff| handoff.state == state))
            }
            Self::Back => is(&|change| change.direction == Direction::Back),
            Self::End => change.is_none() && record.finished().is_some(),
        }
    }
}

/// Makes every commit but the one at its place, which never returns.
#[derive(Debug)]
pub(crate) struct StandsAt {
    place: Place,
    inner: Arc<dyn Store>,
    stood: AtomicBool,
    reached: watch::Sender<bool>,
}

impl StandsAt {
    pub(crate) fn new(place: Place, inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            place,
            inner,
            stood: AtomicBool::new(false),
            reached: watch::Sender::new(false),
        })
    }

    /// Returns when a commit stands.
    pub(crate) async fn reached(&self) {
        let mut reached = self.reached.subscribe();
        reached.wait_for(|reached| *reached).await.unwrap();
    }

    async fn stand(&self, side: Side) {
        if self.place.side == side {
            self.reached.send_replace(true);
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Store for StandsAt {
    async fn commit(
        &self,
        expected: Revision,
        next: Record,
        guard: Option<Term>,
    ) -> Result<Arc<Record>, CommitError> {
        let present = self.inner.watch().borrow().clone();
        let written = self.place.written;
        let first = present.is_some_and(|present| !written.is_in(&present));
        if !(first && written.is_in(&next)) || self.stood.swap(true, Ordering::SeqCst) {
            return self.inner.commit(expected, next, guard).await;
        }
        self.stand(Side::Before).await;
        let committed = self.inner.commit(expected, next, guard).await;
        if committed.is_ok() {
            self.stand(Side::After).await;
        } else {
            self.stood.store(false, Ordering::SeqCst);
        }
        committed
    }

    async fn read(&self) -> Result<Option<Arc<Record>>, ReadError> {
        self.inner.read().await
    }

    fn watch(&self) -> watch::Receiver<Option<Arc<Record>>> {
        self.inner.watch()
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
