//! A record that lives and dies with the process: for tests, simulations and trying things out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use clockwise_cluster::{Record, Revision, Term};
use tokio::sync::watch;
use tokio::time::sleep;

use super::leaders::Leaders;
use super::published::Published;
use super::registry::{Keeping, Listing, RETRY_PAUSE, Registrant, Registration, Registry};
use super::transition::{check_commit, opens_epoch};
use super::{
    CommitError, HISTORY_EPOCHS_MAX, HistoryCopy, LeadError, Leader, Leadership, ReadError, Store,
};

/// A [`Store`] in memory. Clones share one record, as processes share one in a real store.
///
/// It can be told to fail as real ones do.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    published: Published,
}

impl Default for Shared {
    fn default() -> Self {
        Shared {
            state: Mutex::default(),
            published: Published::new(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    record: Option<Arc<Record>>,
    history: VecDeque<HistoryCopy>,
    leaders: Leaders,
    /// Entries of those who are registered, by id.
    registrants: BTreeMap<String, Vec<u8>>,
    /// The highest term ever begun.
    term: u64,
    fault: Fault,
}

/// How a [`MemoryStore`] misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Not at all.
    #[default]
    None,
    /// It answers nothing, and nothing happens.
    Unreachable,
    /// The next commit happens, but its caller is told that the result is unknown. Once.
    NextAnswerLost,
}

impl MemoryStore {
    /// A store without a record.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// Misbehaves from now on.
    pub fn set_fault(&self, fault: Fault) {
        self.state().fault = fault;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is one assignment, so a panic elsewhere leaves it whole.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn reach(&self) -> Result<(), String> {
        match self.fault {
            Fault::Unreachable => Err("it was told not to answer".to_owned()),
            Fault::None | Fault::NextAnswerLost => Ok(()),
        }
    }

    fn reach_to_read(&self) -> Result<(), ReadError> {
        self.reach().map_err(|why| ReadError::Unreachable { why })
    }

    fn keep(&mut self, record: &Arc<Record>) {
        if self.history.len() == HISTORY_EPOCHS_MAX {
            self.history.pop_front();
        }
        self.history.push_back(HistoryCopy {
            epoch: record.epoch(),
            record: Ok(Arc::clone(record)),
        });
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn read(&self) -> Result<Option<Arc<Record>>, ReadError> {
        let state = self.state();
        let read = state.reach_to_read().map(|()| state.record.clone());
        self.shared.published.settle(read)
    }

    async fn commit(
        &self,
        expected: Revision,
        next: Record,
        guard: Option<Term>,
    ) -> Result<Arc<Record>, CommitError> {
        let mut state = self.state();
        state
            .reach()
            .map_err(|why| CommitError::Unreachable { why })?;
        if let Some(term) = guard
            && !state.leaders.leads(term)
        {
            return Err(CommitError::LeadershipLost { term });
        }
        check_commit(state.record.as_ref(), expected, &next)?;
        let next = next.at_revision(expected.next());
        next.encode()?;
        let next = Arc::new(next);
        if opens_epoch(state.record.as_ref(), &next) {
            state.keep(&next);
        }
        state.record = Some(Arc::clone(&next));
        self.shared.published.settle(Ok(Some(Arc::clone(&next))))?;
        if state.fault == Fault::NextAnswerLost {
            state.fault = Fault::None;
            let why = "the answer was lost".to_owned();
            return Err(CommitError::Unknown { why });
        }
        Ok(next)
    }

    fn watch(&self) -> watch::Receiver<Option<Arc<Record>>> {
        self.shared.published.watch()
    }

    fn trouble(&self) -> watch::Receiver<Option<ReadError>> {
        self.shared.published.trouble()
    }

    async fn lead(&self, name: &str) -> Result<Leadership, LeadError> {
        let mut state = self.state();
        state
            .reach()
            .map_err(|why| LeadError::Unreachable { why })?;
        state.term += 1;
        let term = Term::new(state.term);
        Ok(state.leaders.begin(name, term))
    }

    async fn leads(&self, term: Term) -> Result<bool, ReadError> {
        let state = self.state();
        state.reach_to_read()?;
        Ok(state.leaders.leads(term))
    }

    async fn leader(&self, name: &str) -> Result<Option<Leader>, ReadError> {
        let state = self.state();
        state.reach_to_read()?;
        Ok(state.leaders.leader(name))
    }

    async fn resign(&self, term: Term) -> Result<(), ReadError> {
        let mut state = self.state();
        state.reach_to_read()?;
        state.leaders.resign(term);
        Ok(())
    }

    async fn history(&self) -> Result<Vec<HistoryCopy>, ReadError> {
        let state = self.state();
        state.reach_to_read()?;
        Ok(state.history.iter().cloned().collect())
    }
}

#[async_trait]
impl Registry for MemoryStore {
    fn register(&self, who: Registrant) -> Registration {
        Registration::start(who, |keeping| self.clone().keep_registered(keeping))
    }

    async fn registered(&self) -> Result<Listing, ReadError> {
        let state = self.state();
        state.reach_to_read()?;
        let mut listing = Listing::default();
        for (id, entry) in &state.registrants {
            listing.take(|| id.clone(), entry);
        }
        Ok(listing)
    }
}

impl MemoryStore {
    async fn keep_registered(self, mut keeping: Keeping) {
        let id = keeping.id().to_owned();
        loop {
            let written = {
                let mut state = self.state();
                state.reach_to_read().map(|()| {
                    state.registrants.insert(id.clone(), keeping.bytes());
                })
            };
            let retry = written.is_err();
            keeping.settle(written);
            tokio::select! {
                more = keeping.changed() => if !more { break },
                () = sleep(RETRY_PAUSE), if retry => {}
            }
        }
        self.state().registrants.remove(&id);
    }
}
