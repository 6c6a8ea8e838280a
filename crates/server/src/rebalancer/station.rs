//! One node under one term: its session, and the client users it lets in.
//!
//! Client users of a node are made and removed here and nowhere else, one step after the other, over
//! the term user's connection, each time from a record that was read after the last step. Users that
//! the record does not name go first; only those of older generations stay while the node is a source
//! that still owns all it had, so that no request is cut off before the fence. A node that restarted
//! admits nobody until this task has recognised it; one that is not the run that became an owner stays
//! closed while its source is uncleaned ([`admission`] decides).
//!
//! The session is shared: whoever needs the node borrows it, and says so when it broke. The driver
//! kills a broken session's connections when the next one is opened, so that nothing of it lands late.

use std::sync::Arc;
use std::time::Duration;

use clockwise_client::credentials::client_password;
use clockwise_client::store::CommitError;
use clockwise_cluster::handoff::{Admission, Closed, Identity, admission};
use clockwise_cluster::{Generation, HandoffState, Incarnation, Nonce, Record};
use clockwise_placement::NodeId;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::mandate::{Mandate, node_address};
use super::translate;
use crate::driver::{self, DriverError, Session};

/// How often a node is looked at when nothing happens: a restart is noticed within this time.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How soon after a commit.
const LOOK_AFTER_COMMIT: Duration = Duration::from_millis(20);
/// How many looks pass between two comparisons of the client users with the record.
const LOOKS_PER_COMPARISON: u32 = 8;
/// Questions that may wait for a node that does not answer.
const ASKS_MAX: usize = 64;

/// A node's session and its number, so that a broken one is not mistaken for its successor.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) session: Arc<dyn Session>,
}

/// Whom a node lets in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "door", rename_all = "snake_case")]
pub enum Door {
    /// Nothing is known yet.
    Unknown,
    /// It cannot be reached, or refuses us.
    Away {
        /// Its or the system's words.
        why: String,
    },
    /// Clients of this generation.
    Open {
        /// The generation.
        generation: u64,
    },
    /// Nobody.
    Closed(Closed),
}

/// What went wrong at a node.
#[derive(Debug, thiserror::Error)]
pub(super) enum StationError {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("the record cannot be read: {0}")]
    Store(String),
    #[error("another leads")]
    Deposed,
    #[error("the node lets nobody in: {0}")]
    Closed(Closed),
    #[error("the node is gone from the record")]
    Gone,
    #[error("the server gives itself no usable name: {0}")]
    Nameless(String),
    #[error("the system has no random bytes to give: {0}")]
    Random(String),
}

/// A generation whose client user exists, ready to be committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prepared {
    pub(super) generation: Generation,
    pub(super) nonce: Nonce,
}

enum Ask {
    Link(oneshot::Sender<Result<Link, StationError>>),
    Broken(u64),
    Admit(oneshot::Sender<Result<(), StationError>>),
    Prepare(oneshot::Sender<Result<Prepared, StationError>>),
    Fence(Generation, oneshot::Sender<Result<(), StationError>>),
}

/// The way to a node's task.
#[derive(Clone, Debug)]
pub(super) struct StationHandle {
    asks: mpsc::Sender<Ask>,
    door: watch::Receiver<Door>,
}

impl StationHandle {
    /// The node's whole session, opened if need be.
    pub(super) async fn link(&self) -> Result<Link, StationError> {
        self.ask(Ask::Link).await
    }

    /// Says that a session of this number broke.
    pub(super) async fn broken(&self, number: u64) {
        // A station that is gone has no session left.
        let _gone = self.asks.send(Ask::Broken(number)).await;
    }

    /// Returns when the node lets in whom the record names.
    pub(super) async fn admit(&self) -> Result<(), StationError> {
        self.ask(Ask::Admit).await
    }

    /// Makes the client user of the next generation, which no record names yet.
    pub(super) async fn prepare(&self) -> Result<Prepared, StationError> {
        self.ask(Ask::Prepare).await
    }

    /// Removes every client user below a generation.
    pub(super) async fn fence(&self, generation: Generation) -> Result<(), StationError> {
        self.ask(|reply| Ask::Fence(generation, reply)).await
    }

    /// Whether nobody answers any more.
    pub(super) fn has_ended(&self) -> bool {
        self.asks.is_closed()
    }

    pub(super) fn door(&self) -> Door {
        self.door.borrow().clone()
    }

    async fn ask<T>(
        &self,
        ask: impl FnOnce(oneshot::Sender<Result<T, StationError>>) -> Ask,
    ) -> Result<T, StationError> {
        let (reply, answer) = oneshot::channel();
        if self.asks.send(ask(reply)).await.is_err() {
            return Err(StationError::Gone);
        }
        answer.await.unwrap_or(Err(StationError::Gone))
    }
}

/// One node's task.
pub(super) struct Station {
    mandate: Arc<Mandate>,
    node: NodeId,
    asks: mpsc::Receiver<Ask>,
    door: watch::Sender<Door>,
    link: Option<Link>,
    links: u64,
    // What the client users were last compared with.
    applied: Option<Applied>,
    // The client users made over the present session.
    made: Vec<(Generation, Nonce)>,
    // A client user that exists and that no record names yet.
    prepared: Option<Generation>,
    looks: u32,
}

/// What the client users of a node follow from.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Applied {
    incarnation: Incarnation,
    admission: Admission,
    older: Older,
}

/// What becomes of client users of older generations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Older {
    /// The node may have given something away: whoever comes under an old generation is wrong.
    Go,
    /// The node still owns all it had: whoever comes is right, until the fence.
    Stay,
}

impl Older {
    fn of(record: &Record, node: &NodeId) -> Self {
        use HandoffState::{Copying, Handover, Verifying};
        let handoffs = record
            .change()
            .into_iter()
            .flat_map(|change| &change.handoffs);
        let mut of_node = handoffs.filter(|handoff| handoff.source == *node);
        match of_node.any(|handoff| matches!(handoff.state, Copying | Verifying | Handover)) {
            true => Self::Stay,
            false => Self::Go,
        }
    }
}

impl Station {
    pub(super) fn new(mandate: Arc<Mandate>, node: NodeId) -> (Self, StationHandle) {
        let (asks, receiver) = mpsc::channel(ASKS_MAX);
        let (door, doors) = watch::channel(Door::Unknown);
        let station = Self {
            mandate,
            node,
            asks: receiver,
            door,
            link: None,
            links: 0,
            applied: None,
            made: Vec::new(),
            prepared: None,
            looks: 0,
        };
        (station, StationHandle { asks, door: doors })
    }

    /// Serves the node until nobody has a handle any more.
    pub(super) async fn run(mut self) {
        let mut records = self.mandate.store.watch();
        let mut looks = interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.look().await;
        loop {
            tokio::select! {
                biased;
                ask = self.asks.recv() => match ask {
                    Some(ask) => self.answer(ask).await,
                    None => return self.leave().await,
                },
                changed = records.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // What a commit needs was prepared before it; nothing waits for this look, and a
                    // fence may be about to come.
                    looks.reset_after(LOOK_AFTER_COMMIT);
                }
                _ = looks.tick() => self.look().await,
            }
        }
    }

    /// Takes the client users of a node away that is no longer in the pool: nobody routes to it any more, and
    /// whoever has its password could.
    async fn leave(&self) {
        let Some(link) = &self.link else { return };
        let in_pool = match self.mandate.look().await {
            Ok((Some(record), true)) => record.node(&self.node).is_some(),
            // Another leads, or it cannot be told.
            _ => return,
        };
        if !in_pool && let Err(error) = link.session.keep_client_users(&[]).await {
            tracing::warn!(node = %self.node, %error, "it left the pool, but its server keeps the users of clients");
        }
    }

    async fn answer(&mut self, ask: Ask) {
        // Whoever asked may have stopped waiting: then nobody needs the answer.
        match ask {
            Ask::Prepare(reply) if reply.is_closed() => {}
            Ask::Fence(_, reply) if reply.is_closed() => {}
            Ask::Link(reply) => {
                let answer = self.link().await;
                let _unheard = reply.send(answer);
            }
            Ask::Broken(number) => {
                if self.link.as_ref().is_some_and(|link| link.number == number) {
                    self.link = None;
                }
            }
            Ask::Admit(reply) => {
                let answer = self.admit().await;
                let _unheard = reply.send(self.noted(answer));
            }
            Ask::Prepare(reply) => {
                let answer = self.prepare().await;
                let _unheard = reply.send(self.noted(answer));
            }
            Ask::Fence(generation, reply) => {
                let answer = self.fence(generation).await;
                let _unheard = reply.send(self.noted(answer));
            }
        }
    }

    /// Brings the client users up to date; what goes wrong is shown at the door and tried again.
    async fn look(&mut self) {
        let answer = self.admit().await;
        if let Err(error) = self.noted(answer) {
            let door = match &error {
                StationError::Closed(why) => Door::Closed(why.clone()),
                other => Door::Away {
                    why: other.to_string(),
                },
            };
            if self.door.send_replace(door.clone()) != door {
                tracing::warn!(node = %self.node, term = self.mandate.term.get(), %error, "node admits nobody");
            }
        }
    }

    /// A session that failed is not used again.
    fn noted<T>(&mut self, answer: Result<T, StationError>) -> Result<T, StationError> {
        if matches!(answer, Err(StationError::Driver(_))) {
            self.link = None;
        }
        answer
    }

    async fn link(&mut self) -> Result<Link, StationError> {
        if let Some(link) = &self.link {
            return Ok(link.clone());
        }
        let record = self.mandate.record().ok_or(StationError::Gone)?;
        let node = record.node(&self.node).ok_or(StationError::Gone)?;
        let term = translate::term(self.mandate.term);
        let session = self
            .mandate
            .driver
            .session(&node_address(node), term)
            .await?;
        self.links += 1;
        let link = Link {
            number: self.links,
            session: Arc::from(session),
        };
        self.link = Some(link.clone());
        // Another session may mean another run of the server, or users that somebody removed.
        self.applied = None;
        self.made.clear();
        Ok(link)
    }

    async fn admit(&mut self) -> Result<(), StationError> {
        let link = self.link().await?;
        let identity = translate::identity(&link.session.identity().await?)?;
        let record = self.record().await?;
        let decided = admission(&record, &self.node, &identity);
        let incarnation = identity.incarnation.clone();
        let applied = Applied {
            incarnation,
            admission: decided.clone(),
            older: Older::of(&record, &self.node),
        };
        self.looks = self.looks.wrapping_add(1);
        if self.applied.as_ref() != Some(&applied)
            || self.looks.is_multiple_of(LOOKS_PER_COMPARISON)
        {
            self.apply(&link, &applied).await?;
            self.applied = Some(applied);
        }
        self.show(&decided);
        match decided {
            Admission::Nobody(why) => Err(StationError::Closed(why)),
            Admission::Clients { .. } => {
                self.recognise(&record, &identity).await;
                Ok(())
            }
        }
    }

    /// The record as of now; nobody acts on it unless the term still leads.
    async fn record(&self) -> Result<Arc<Record>, StationError> {
        match self.mandate.look().await {
            Ok((_, false)) => Err(StationError::Deposed),
            Ok((None, true)) => Err(StationError::Gone),
            Ok((Some(record), true)) => Ok(record),
            Err(error) => Err(StationError::Store(error.to_string())),
        }
    }

    /// Removes whom the record does not name, then makes the user that it names.
    async fn apply(&mut self, link: &Link, applied: &Applied) -> Result<(), StationError> {
        let named = match &applied.admission {
            Admission::Clients { generation, nonce } => Some((*generation, *nonce)),
            Admission::Nobody(_) => None,
        };
        if applied.older == Older::Go {
            // Its handover was given up before it was committed.
            self.prepared = None;
        }
        let found = link.session.client_users().await?;
        let stays = |user: &driver::Generation| {
            named.is_some_and(|(generation, _)| {
                let user = Generation::new(user.0);
                let older = applied.older == Older::Stay && user < generation;
                user == generation
                    || older
                    || self.prepared.is_some_and(|prepared| prepared == user)
            })
        };
        let keep: Vec<_> = found.iter().copied().filter(stays).collect();
        if keep.len() < found.len() {
            link.session.keep_client_users(&keep).await?;
        }
        if let Some((generation, nonce)) = named {
            let exists = keep.contains(&translate::generation(generation));
            if !exists || !self.made.contains(&(generation, nonce)) {
                self.make(link, generation, nonce).await?;
            }
            self.prepared = self.prepared.filter(|prepared| *prepared > generation);
        }
        Ok(())
    }

    async fn make(
        &mut self,
        link: &Link,
        generation: Generation,
        nonce: Nonce,
    ) -> Result<(), StationError> {
        let password = client_password(&self.mandate.pool_key, &self.node, &nonce);
        link.session
            .make_client_user(translate::generation(generation), password.reveal())
            .await?;
        self.made.retain(|(made, _)| *made >= generation);
        self.made.push((generation, nonce));
        Ok(())
    }

    fn show(&self, decided: &Admission) {
        let door = match decided {
            Admission::Clients { generation, .. } => Door::Open {
                generation: generation.get(),
            },
            Admission::Nobody(why) => Door::Closed(why.clone()),
        };
        if *self.door.borrow() != door {
            tracing::info!(node = %self.node, term = self.mandate.term.get(), ?door, "door");
            self.door.send_replace(door);
        }
    }

    /// Writes down which run of which data this node is. Another commit may come first: next time.
    async fn recognise(&self, record: &Record, identity: &Identity) {
        let known = record
            .node(&self.node)
            .and_then(|node| node.incarnation.as_ref());
        if known == Some(&identity.incarnation) {
            return;
        }
        let next = match record.recognise(&self.node, identity.incarnation.clone()) {
            Ok(next) => next,
            Err(error) => {
                return tracing::warn!(node = %self.node, %error, "run of a node not written down");
            }
        };
        let committed = self.mandate.commit(record.revision(), next).await;
        if let Err(error) = committed
            && !matches!(
                error,
                CommitError::Conflict { .. } | CommitError::LeadershipLost { .. }
            )
        {
            tracing::warn!(node = %self.node, %error, "run of a node not written down");
        }
    }

    /// The next generation lies above the record's and above every one that the server has.
    async fn prepare(&mut self) -> Result<Prepared, StationError> {
        let link = self.link().await?;
        let record = self.record().await?;
        let named = record
            .node(&self.node)
            .ok_or(StationError::Gone)?
            .generation;
        let found = link.session.client_users().await?;
        let highest = found
            .iter()
            .map(|generation| Generation::new(generation.0))
            .fold(named, Ord::max);
        let generation = highest.next();
        let nonce = random_nonce()?;
        self.make(&link, generation, nonce).await?;
        self.prepared = Some(generation);
        Ok(Prepared { generation, nonce })
    }

    async fn fence(&mut self, generation: Generation) -> Result<(), StationError> {
        let link = self.link().await?;
        link.session
            .fence(translate::generation(generation))
            .await?;
        Ok(())
    }
}

fn random_nonce() -> Result<Nonce, StationError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| StationError::Random(error.to_string()))?;
    Ok(Nonce::new(bytes))
}
