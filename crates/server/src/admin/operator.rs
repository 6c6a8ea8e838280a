//! What an operator does to a pool's record: stage, take back, apply, throttle.
//!
//! Every act reads the record, asks the pure crate for the next one, and commits that against the revision
//! it was read at. If another commit came first, the act is thought through again from the newer record.

use std::future::{Future, ready};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clockwise_client::store::{COMMITS_MAX, CommitError, NextError, ReadError, Store, commit_next};
use clockwise_cluster::{
    Apply, ApplyError, Edit, EditError, Epoch, Record, StageError, Throttle, Unstage, UnstageError,
};

use super::call::ThrottleCall;
use super::refusal::{Code, Refusal};
use crate::random::with_nonces;
use crate::rebalancer::{AbortRefused, AcceptError, NotLeading};

/// Changes the record of one pool as an operator asks.
#[derive(Clone, Debug)]
pub struct Operator {
    store: Arc<dyn Store>,
}

impl Operator {
    /// An operator of the pool in this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Where the record is.
    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The record as of now.
    ///
    /// # Errors
    /// When the store cannot be read or holds no pool.
    pub async fn record(&self) -> Result<Arc<Record>, Refusal> {
        match self.store.read().await {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(no_pool()),
            Err(error) => Err(unread(&error)),
        }
    }

    /// Stages edits, all or none.
    ///
    /// # Errors
    /// The first edit that does not fit, or a store that does not commit.
    pub async fn stage(&self, edits: &[Edit]) -> Result<Arc<Record>, Refusal> {
        self.act(|record| {
            let mut next = record.clone();
            for edit in edits {
                next = next.stage(edit.clone())?;
            }
            Ok(next)
        })
        .await
    }

    /// Takes staged edits back.
    ///
    /// # Errors
    /// Nothing to take back, or another staged edit that needs it.
    pub async fn unstage(&self, which: &Unstage) -> Result<Arc<Record>, Refusal> {
        self.act(|record| Ok(record.unstage(which)?)).await
    }

    /// Makes all that is staged a change, unless `check` refuses the record that it would make.
    ///
    /// # Errors
    /// Another epoch than `expected`, another change in flight, nothing to do, a layout that cannot be, or what
    /// `check` says.
    pub async fn apply<F>(
        &self,
        expected: Option<Epoch>,
        allowed_writers: &[String],
        check: impl Fn(Arc<Record>, Record) -> F,
    ) -> Result<Arc<Record>, Refusal>
    where
        F: Future<Output = Result<Record, Refusal>>,
    {
        let check = &check;
        self.commit(|record| async move {
            let next = applied(&record, expected, allowed_writers)?;
            check(record, next).await
        })
        .await
    }

    /// Sets how fast moves may go.
    ///
    /// # Errors
    /// When the store does not commit.
    pub async fn throttle(&self, call: &ThrottleCall) -> Result<Arc<Record>, Refusal> {
        self.act(|record| {
            let old = record.options().throttle;
            Ok(record.with_throttle(Throttle {
                keys_per_second: call.keys_per_second.unwrap_or(old.keys_per_second),
                bytes_per_second: call.bytes_per_second.unwrap_or(old.bytes_per_second),
            }))
        })
        .await
    }

    async fn act(
        &self,
        think: impl Fn(&Record) -> Result<Record, Refusal>,
    ) -> Result<Arc<Record>, Refusal> {
        self.commit(|record| ready(think(&record))).await
    }

    /// Commits what is thought of the newest record; thinks again if another commit came first.
    async fn commit<F>(&self, think: impl FnMut(Arc<Record>) -> F) -> Result<Arc<Record>, Refusal>
    where
        F: Future<Output = Result<Record, Refusal>>,
    {
        Ok(commit_next(&*self.store, None, think).await?)
    }
}

/// The record after `apply`, these users of the nodes allowed to write from then on.
pub(super) fn applied(
    record: &Record,
    expected: Option<Epoch>,
    allowed_writers: &[String],
) -> Result<Record, Refusal> {
    let name = change_name(record.epoch().next());
    let id = name
        .parse()
        .map_err(|error| Refusal::new(Code::Failed, format!("{name}: {error}")))?;
    let next = with_nonces(|nonces| {
        record.apply(Apply {
            expected: expected.unwrap_or(record.epoch()),
            id,
            now_ms: now_ms(),
            nonces,
        })
    });
    let mut next =
        next.map_err(|error| Refusal::new(Code::Failed, format!("no random bytes: {error}")))??;
    if !allowed_writers.is_empty() {
        let mut writers = next.options().foreign_writers.clone();
        writers.extend(
            allowed_writers
                .iter()
                .filter(|user| !record.options().foreign_writers.contains(user))
                .cloned(),
        );
        next = next
            .with_foreign_writers(writers)
            .map_err(|error| Refusal::new(Code::Invalid, error.to_string()))?;
    }
    Ok(next)
}

/// The name of the change that began an epoch.
pub(super) fn change_name(epoch: Epoch) -> String {
    format!("change-{epoch}")
}

/// Milliseconds since 1970, as the record keeps times.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

fn no_pool() -> Refusal {
    Refusal::new(Code::NotFound, "the store holds no pool".to_owned())
}

pub(super) fn unread(error: &ReadError) -> Refusal {
    Refusal::new(Code::StoreUnreachable, error.to_string())
}

fn uncommitted(error: &CommitError) -> Refusal {
    let code = match error {
        CommitError::TooLarge(_) => Code::Guard,
        CommitError::Conflict { .. } | CommitError::EpochWentBack { .. } => Code::Conflict,
        CommitError::Read(_) | CommitError::Unreachable { .. } | CommitError::Unknown { .. } => {
            Code::StoreUnreachable
        }
        _ => Code::Failed,
    };
    let refusal = Refusal::new(code, error.to_string());
    match error {
        CommitError::Unknown { .. } => refusal.with_next("clockwise status".to_owned()),
        _ => refusal,
    }
}

impl From<StageError> for Refusal {
    fn from(error: StageError) -> Self {
        let code = match &error {
            StageError::Edit(edit) => code_of(edit),
            StageError::ReplicasInStore => Code::Guard,
            _ => Code::Unfit,
        };
        let next = match &error {
            StageError::Stale(stale) => Some(format!("clockwise unstage {}", stale.id)),
            StageError::Edit(EditError::UnknownNode { .. }) => {
                Some("clockwise node list".to_owned())
            }
            _ => None,
        };
        Self {
            code,
            message: error.to_string(),
            next,
        }
    }
}

fn code_of(error: &EditError) -> Code {
    match error {
        EditError::UnknownNode { .. } => Code::NotFound,
        EditError::ZeroWeight { .. } => Code::Invalid,
        EditError::LastNode { .. } => Code::Guard,
        _ => Code::Unfit,
    }
}

impl From<UnstageError> for Refusal {
    fn from(error: UnstageError) -> Self {
        let (code, next) = match &error {
            UnstageError::NothingStaged => (
                Code::NotFound,
                "clockwise node add|set|remove ID      or:  clockwise pool set --placement ring|slots",
            ),
            UnstageError::NotStaged => (Code::NotFound, "clockwise staged"),
            _ => (Code::Unfit, "clockwise staged"),
        };
        Self::new(code, error.to_string()).with_next(next.to_owned())
    }
}

impl From<ApplyError> for Refusal {
    fn from(error: ApplyError) -> Self {
        let (code, next) = match &error {
            ApplyError::EpochMoved { .. } => (Code::Conflict, "clockwise plan"),
            ApplyError::ChangeInFlight { .. } => (Code::Conflict, "clockwise moves --watch"),
            ApplyError::NothingStaged => (
                Code::Unfit,
                "clockwise node add|set|remove ID      or:  clockwise pool set --placement ring|slots",
            ),
            ApplyError::TooLarge(_) => (Code::Guard, "clockwise staged"),
            _ => (Code::Unfit, "clockwise staged"),
        };
        Self::new(code, error.to_string()).with_next(next.to_owned())
    }
}

impl<E: Into<Self>> From<NextError<E>> for Refusal {
    fn from(error: NextError<E>) -> Self {
        match error {
            NextError::Refused(why) => why.into(),
            NextError::Read(error) => unread(&error),
            NextError::Commit(error) => uncommitted(&error),
            NextError::NoPool => no_pool(),
            _ => {
                let words = format!("other commits came first {COMMITS_MAX} times in a row");
                Self::new(Code::Conflict, words).with_next("try again".to_owned())
            }
        }
    }
}

impl From<AcceptError> for Refusal {
    fn from(error: AcceptError) -> Self {
        let (code, next) = match &error {
            AcceptError::UnknownNode => (Code::NotFound, "clockwise node list"),
            AcceptError::Driver(_) => (Code::Unhealthy, "clockwise status"),
            AcceptError::Step(_) => (Code::Unfit, "clockwise moves"),
            AcceptError::Nameless(_) => (Code::Failed, "clockwise status"),
        };
        Self::new(code, error.to_string()).with_next(next.to_owned())
    }
}

impl From<NotLeading> for Refusal {
    fn from(error: NotLeading) -> Self {
        let words = format!("{error}: nothing was begun");
        Self::new(Code::Unhealthy, words).with_next("clockwise status".to_owned())
    }
}

impl From<AbortRefused> for Refusal {
    fn from(error: AbortRefused) -> Self {
        let code = match &error {
            AbortRefused::NoChange => Code::Unfit,
            AbortRefused::GoingBack | AbortRefused::Contended => Code::Conflict,
            AbortRefused::Record(_) => Code::Guard,
            AbortRefused::Store(error) => return uncommitted(error),
            AbortRefused::NotLeading => return NotLeading.into(),
        };
        Self::new(code, error.to_string()).with_next("clockwise moves".to_owned())
    }
}
