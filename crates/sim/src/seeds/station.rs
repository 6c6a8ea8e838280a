//! One node under one term: its session, and the client users it lets in. Stands for the server's station.
//!
//! Users are made and removed here and nowhere else, one step after the other, each time from a record read
//! after the last step; the real [`admission`] decides.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use clockwise_cluster::handoff::{Admission, admission};
use clockwise_cluster::{Generation, HandoffState, Nonce, Record};
use clockwise_placement::NodeId;

use super::Sim;
use super::executor::{MS, Mailbox, Micros, Slot};
use super::fact::Fact;
use super::network::{Broken, Party, Wire};
use super::process::Mandate;
use super::truth::rank_of;

/// How often a node is looked at when nothing happens.
const LOOK_EVERY: Micros = 250 * MS;
/// How many looks pass between two comparisons of the users with the record.
const LOOKS_PER_COMPARISON: u32 = 8;

/// Why a node did not do what it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    Broken,
    Busy,
    Closed,
    Deposed,
}

impl From<Broken> for Refused {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

enum Ask {
    Link(Slot<Result<Rc<Wire>, Refused>>),
    Admit(Slot<Result<(), Refused>>),
    Prepare(Slot<Result<(Generation, Nonce), Refused>>),
    Fence(Generation, Slot<Result<(), Refused>>),
    Leave,
}

/// The way to a node's task.
#[derive(Clone)]
pub(super) struct Station(Mailbox<Ask>);

/// The task itself.
struct Desk {
    sim: Sim,
    mandate: Rc<Mandate>,
    node: NodeId,
    wire: Option<Rc<Wire>>,
    applied: Option<(u64, Admission, bool)>,
    made: Vec<(Generation, Nonce)>,
    prepared: Option<Generation>,
    looks: u32,
}

impl Station {
    pub(super) fn begin(sim: &Sim, mandate: &Rc<Mandate>, node: &NodeId) -> Self {
        let asks = Mailbox::new();
        let desk = Desk {
            sim: sim.clone(),
            mandate: Rc::clone(mandate),
            node: node.clone(),
            wire: None,
            applied: None,
            made: Vec::new(),
            prepared: None,
            looks: 0,
        };
        sim.spawn(&mandate.group, desk.run(asks.clone()));
        Self(asks)
    }

    pub(super) async fn link(&self, sim: &Sim) -> Result<Rc<Wire>, Refused> {
        let slot = Slot::new();
        self.0.push(sim, Ask::Link(slot.clone()));
        slot.wait(sim).await
    }

    pub(super) async fn admit(&self, sim: &Sim) -> Result<(), Refused> {
        let slot = Slot::new();
        self.0.push(sim, Ask::Admit(slot.clone()));
        slot.wait(sim).await
    }

    pub(super) async fn prepare(&self, sim: &Sim) -> Result<(Generation, Nonce), Refused> {
        let slot = Slot::new();
        self.0.push(sim, Ask::Prepare(slot.clone()));
        slot.wait(sim).await
    }

    pub(super) async fn fence(&self, sim: &Sim, generation: Generation) -> Result<(), Refused> {
        let slot = Slot::new();
        self.0.push(sim, Ask::Fence(generation, slot.clone()));
        slot.wait(sim).await
    }

    pub(super) fn leave(&self, sim: &Sim) {
        self.0.push(sim, Ask::Leave);
    }
}

impl Desk {
    async fn run(mut self, asks: Mailbox<Ask>) {
        let sim = self.sim.clone();
        let _first = self.admit().await;
        loop {
            let mut late = sim.sleep(LOOK_EVERY);
            let ask = poll_fn(|context| match asks.poll(&sim) {
                Poll::Ready(ask) => Poll::Ready(Some(ask)),
                Poll::Pending => late.as_mut().poll(context).map(|()| None),
            });
            match ask.await {
                None => {
                    let _tried_again = self.admit().await;
                }
                Some(Ask::Link(answer)) => answer.set(&sim, self.link().await),
                Some(Ask::Admit(answer)) => answer.set(&sim, self.admit().await),
                Some(Ask::Prepare(answer)) => answer.set(&sim, self.prepare().await),
                Some(Ask::Fence(generation, answer)) => {
                    answer.set(&sim, self.fence(generation).await)
                }
                Some(Ask::Leave) => return self.leave().await,
            }
        }
    }

    async fn link(&mut self) -> Result<Rc<Wire>, Refused> {
        if let Some(wire) = self.wire.as_ref().filter(|wire| wire.open_here.get()) {
            return Ok(Rc::clone(wire));
        }
        self.wire = None;
        let node = rank_of(self.node.as_str());
        let wire = Wire::new(Party::Process(self.mandate.process.rank), node);
        let (term, session) = (self.mandate.term, Rc::clone(&wire));
        let entered = self.sim.ask(&wire, move |sim, server| {
            if !server.up {
                sim.end_there(&session);
                return false;
            }
            let highest_before = server.highest_term();
            for gone in server.enter(term, &session) {
                sim.end_there(&gone);
            }
            sim.note(&Fact::Entered {
                term,
                node,
                highest_before,
                highest_after: server.highest_term(),
            });
            true
        });
        if !entered.await? {
            return Err(Refused::Broken);
        }
        self.wire = Some(Rc::clone(&wire));
        self.applied = None;
        self.made.clear();
        Ok(wire)
    }

    /// The record as of now; nobody acts on it unless the term still leads.
    async fn record(&self) -> Result<std::sync::Arc<Record>, Refused> {
        match self.mandate.look(&self.sim).await {
            Ok((record, true)) => Ok(record),
            Ok((_, false)) => Err(Refused::Deposed),
            Err(_) => Err(Refused::Broken),
        }
    }

    async fn admit(&mut self) -> Result<(), Refused> {
        let wire = self.link().await?;
        let identity = self.sim.ask(&wire, |_, server| server.identity()).await?;
        let record = self.record().await?;
        let decided = admission(&record, &self.node, &identity);
        let run = rank_run(&identity.incarnation.run_id);
        let applied = (run, decided.clone(), older_stay(&record, &self.node));
        self.looks = self.looks.wrapping_add(1);
        if self.applied.as_ref() != Some(&applied)
            || self.looks.is_multiple_of(LOOKS_PER_COMPARISON)
        {
            self.apply(&wire, &applied).await?;
            self.applied = Some(applied);
        }
        let Admission::Clients { .. } = decided else {
            return Err(Refused::Closed);
        };
        let known = record
            .node(&self.node)
            .and_then(|node| node.incarnation.clone());
        if known.as_ref() != Some(&identity.incarnation)
            && let Ok(next) = record.recognise(&self.node, identity.incarnation)
        {
            let _next_time = self.mandate.commit(&self.sim, &record, next).await;
        }
        Ok(())
    }

    /// Removes whom the record does not name, then makes the user that it names.
    async fn apply(
        &mut self,
        wire: &Rc<Wire>,
        applied: &(u64, Admission, bool),
    ) -> Result<(), Refused> {
        let (_, admission, older_stay) = applied;
        let named = match admission {
            Admission::Clients { generation, nonce } => Some((*generation, *nonce)),
            Admission::Nobody(_) => None,
        };
        if !older_stay {
            self.prepared = None;
        }
        let found = self
            .sim
            .ask(wire, |_, server| {
                server.users.keys().copied().collect::<Vec<_>>()
            })
            .await?;
        let (prepared, older_stay) = (self.prepared.map(Generation::get), *older_stay);
        let keep: Vec<u64> = found
            .iter()
            .copied()
            .filter(|user| {
                named.is_some_and(|(generation, _)| {
                    *user == generation.get()
                        || (older_stay && *user < generation.get())
                        || prepared == Some(*user)
                })
            })
            .collect();
        if keep.len() < found.len() {
            let kept = keep.clone();
            self.sim
                .ask(wire, move |sim, server| {
                    for gone in server.remove_users(|user| !kept.contains(&user)) {
                        sim.end_there(&gone);
                    }
                })
                .await?;
        }
        if let Some((generation, nonce)) = named {
            let exists = keep.contains(&generation.get());
            if !exists || !self.made.contains(&(generation, nonce)) {
                self.make(wire, generation, nonce).await?;
            }
            self.prepared = self.prepared.filter(|prepared| *prepared > generation);
        }
        Ok(())
    }

    async fn make(
        &mut self,
        wire: &Rc<Wire>,
        generation: Generation,
        nonce: Nonce,
    ) -> Result<(), Refused> {
        self.sim
            .ask(wire, move |sim, server| {
                for gone in server.make_user(generation.get(), nonce) {
                    sim.end_there(&gone);
                }
            })
            .await?;
        self.made.retain(|(made, _)| *made >= generation);
        self.made.push((generation, nonce));
        Ok(())
    }

    async fn prepare(&mut self) -> Result<(Generation, Nonce), Refused> {
        let wire = self.link().await?;
        let record = self.record().await?;
        let named = record.node(&self.node).ok_or(Refused::Closed)?.generation;
        let found = self
            .sim
            .ask(&wire, |_, server| server.users.keys().copied().max())
            .await?;
        let highest = found.map_or(named, |found| named.max(Generation::new(found)));
        let generation = highest.next();
        let nonce = self.sim.nonce();
        self.make(&wire, generation, nonce).await?;
        self.prepared = Some(generation);
        Ok((generation, nonce))
    }

    async fn fence(&mut self, generation: Generation) -> Result<(), Refused> {
        let wire = self.link().await?;
        let below = generation.get();
        let fenced = self.sim.ask(&wire, move |sim, server| {
            if server.busy {
                return false;
            }
            for gone in server.remove_users(|user| user < below) {
                sim.end_there(&gone);
            }
            true
        });
        match fenced.await? {
            true => Ok(()),
            false => Err(Refused::Busy),
        }
    }

    /// Takes the client users of a node away that is no longer in the pool.
    async fn leave(&mut self) {
        let Some(wire) = self.wire.clone() else {
            return;
        };
        let Ok(record) = self.record().await else {
            return;
        };
        if record.node(&self.node).is_none() {
            let _gone = self
                .sim
                .ask(&wire, |sim, server| {
                    for gone in server.remove_users(|_| true) {
                        sim.end_there(&gone);
                    }
                })
                .await;
        }
    }
}

/// Whether users of older generations stay: the node still owns all it had.
fn older_stay(record: &Record, node: &NodeId) -> bool {
    use HandoffState::{Copying, Handover, Verifying};
    let handoffs = record
        .change()
        .into_iter()
        .flat_map(|change| &change.handoffs);
    let mut of_node = handoffs.filter(|handoff| handoff.source == *node);
    of_node.any(|handoff| matches!(handoff.state, Copying | Verifying | Handover))
}

fn rank_run(run: &clockwise_cluster::ServerId) -> u64 {
    let (_, number) = run.as_str().split_once('.').expect("as it was named");
    number.parse().expect("as it was named")
}
