//! A process of the rebalancer: it leads when it can, conducts the change in flight, and ends handovers that
//! nobody ends.
//!
//! It stands for what the server's rebalancer does around the real decisions: [`Conductor`], [`admission`],
//! [`Copier`] and the record are the code that ships.
//!
//! [`Conductor`]: clockwise_cluster::handoff::Conductor
//! [`admission`]: clockwise_cluster::handoff::admission
//! [`Copier`]: clockwise_cluster::copier::Copier

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use clockwise_client::store::CommitError;
use clockwise_cluster::copier::{Rate, Throttle};
use clockwise_cluster::handoff::{Entry, Situation};
use clockwise_cluster::{HANDOVER_MS_MAX, HandoffId, HandoffState, Record, View};
use clockwise_placement::NodeId;

use super::Sim;
use super::conducting::{self, Outcome};
use super::executor::{Flag, Group, MS, Mailbox, Micros};
use super::station::Station;
use super::store::{LEASE, Silent};

/// The pause before another try to lead.
const TRY_EVERY: Micros = 500 * MS;
/// How often a lease is renewed.
const RENEW_EVERY: Micros = 500 * MS;
/// How often the record is read although nothing was heard of it.
const LOOK_EVERY: Micros = 1_000 * MS;
/// How long a handover is watched before it is rolled back.
const PATIENCE: Micros = (HANDOVER_MS_MAX + 200) * MS;

/// What outlives the tasks of a process: its machine.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) rank: usize,
    pub(super) group: RefCell<Rc<Group>>,
    // What its wall clock shows beyond the true time.
    pub(super) clock_off_ms: Cell<i64>,
    pub(super) heard: RefCell<Option<Arc<Record>>>,
    pub(super) news: RefCell<Flag>,
    pub(super) requests: RefCell<Mailbox<Request>>,
}

/// What an operator asks of whoever leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    Abort,
    Retry,
}

impl Process {
    pub(super) fn new(rank: usize) -> Self {
        Self {
            rank,
            group: RefCell::new(Group::new()),
            clock_off_ms: Cell::new(0),
            heard: RefCell::new(None),
            news: RefCell::new(Flag::default()),
            requests: RefCell::new(Mailbox::new()),
        }
    }
}

/// What acting under one term rests on.
pub(super) struct Mandate {
    pub(super) process: Rc<Process>,
    pub(super) term: u64,
    pub(super) throttle: RefCell<Throttle>,
    newest: RefCell<Option<Arc<Record>>>,
    began: Micros,
    pub(super) lost: Flag,
    pub(super) stations: RefCell<BTreeMap<NodeId, Station>>,
    pub(super) group: Rc<Group>,
}

impl Mandate {
    /// The time that machines and throttle see.
    pub(super) fn now_ms(&self, sim: &Sim) -> u64 {
        (sim.now() - self.began) / MS
    }

    pub(super) fn wall_ms(&self, sim: &Sim) -> u64 {
        sim.now_ms()
            .saturating_add_signed(self.process.clock_off_ms.get())
    }

    pub(super) fn learn(&self, record: Option<Arc<Record>>) -> Option<Arc<Record>> {
        let mut newest = self.newest.borrow_mut();
        let known = newest.as_ref().map(|record| record.revision());
        if let Some(record) = record.filter(|record| Some(record.revision()) > known) {
            *newest = Some(record);
        }
        newest.clone()
    }

    /// The newest record known here.
    pub(super) fn record(&self) -> Option<Arc<Record>> {
        let heard = self.process.heard.borrow().clone();
        self.learn(heard)
    }

    /// The record and the leadership as of now.
    pub(super) async fn look(&self, sim: &Sim) -> Result<(Arc<Record>, bool), Silent> {
        let (record, leads) = sim.look(self.process.rank, self.term).await?;
        self.learn(Some(Arc::clone(&record)));
        Ok((record, leads))
    }

    pub(super) async fn situation(&self, sim: &Sim, id: &HandoffId) -> Result<Situation, Silent> {
        let (record, leads) = self.look(sim).await?;
        let entry = Entry::of(&record, id);
        Ok(Situation { leads, entry })
    }

    pub(super) async fn commit(
        &self,
        sim: &Sim,
        from: &Record,
        next: Record,
    ) -> Result<Arc<Record>, CommitError> {
        let committed = sim
            .commit(self.process.rank, from.revision(), next, Some(self.term))
            .await;
        match &committed {
            Ok(record) => self.learn(Some(Arc::clone(record))),
            Err(CommitError::Conflict { current, .. }) => self.learn(current.clone()),
            Err(_) => None,
        };
        committed
    }

    pub(super) fn follow_throttle(&self, sim: &Sim, record: &Record) {
        let limit = record.options().throttle.keys_per_second;
        let rate = Rate {
            keys_per_second: (limit > 0).then_some(limit),
            bytes_per_second: None,
        };
        let now_ms = self.now_ms(sim);
        let mut throttle = self.throttle.borrow_mut();
        if throttle.rate() != rate {
            throttle.set(rate, now_ms);
        }
    }

    /// One station for each node of the record.
    pub(super) fn follow(self: &Rc<Self>, sim: &Sim, record: &Record) {
        let mut stations = self.stations.borrow_mut();
        let gone: Vec<NodeId> = stations
            .keys()
            .filter(|id| record.node(id).is_none())
            .cloned()
            .collect();
        for id in gone {
            if let Some(station) = stations.remove(&id) {
                station.leave(sim);
            }
        }
        for node in &record.membership().nodes {
            if !stations.contains_key(&node.id) {
                stations.insert(node.id.clone(), Station::begin(sim, self, &node.id));
            }
        }
        drop(stations);
        self.follow_throttle(sim, record);
    }
}

/// Begins a process, for the first time or again.
pub(super) fn begin(sim: &Sim, process: &Rc<Process>) {
    let group = Group::new();
    *process.group.borrow_mut() = Rc::clone(&group);
    *process.heard.borrow_mut() = None;
    *process.requests.borrow_mut() = Mailbox::new();
    sim.spawn(&group, watch(sim.clone(), Rc::clone(process)));
    let leads = lead(sim.clone(), Rc::clone(process), Rc::clone(&group));
    sim.spawn(&group, leads);
}

/// Leads whenever it can.
async fn lead(sim: Sim, process: Rc<Process>, group: Rc<Group>) {
    loop {
        if let Ok(Some(term)) = sim.campaign(process.rank, None).await {
            let office = Group::within(&group);
            let mandate = Rc::new(Mandate {
                process: Rc::clone(&process),
                term,
                throttle: RefCell::new(Throttle::new(Rate::default(), 0)),
                newest: RefCell::new(None),
                began: sim.now(),
                lost: Flag::default(),
                stations: RefCell::default(),
                group: Rc::clone(&office),
            });
            sim.trace(|| format!("p{} leads under term {term}", process.rank));
            sim.spawn(&office, renew(sim.clone(), Rc::clone(&mandate)));
            sim.spawn(&office, news(sim.clone(), Rc::clone(&mandate)));
            let _over = sim
                .within(
                    Micros::MAX / 4,
                    first(&mandate, &sim, conduct(&sim, &mandate)),
                )
                .await;
            sim.trace(|| format!("p{} leads no more under term {term}", process.rank));
            sim.kill(&office);
            mandate.stations.borrow_mut().clear();
        }
        while let Some(_refused) = process.requests.borrow().take() {}
        sim.sleep(TRY_EVERY).await;
    }
}

/// Until the leadership is lost or the work is over.
async fn first(mandate: &Rc<Mandate>, sim: &Sim, work: impl Future<Output = ()>) {
    let mut work = Box::pin(work);
    let mut lost = Box::pin(mandate.lost.wait(sim));
    std::future::poll_fn(move |context| {
        if lost.as_mut().poll(context).is_ready() {
            return std::task::Poll::Ready(());
        }
        work.as_mut().poll(context)
    })
    .await;
}

/// Keeps the lease, and notices when it is gone.
async fn renew(sim: Sim, mandate: Rc<Mandate>) {
    let mut renewed = sim.now();
    loop {
        sim.sleep(RENEW_EVERY).await;
        let asked = sim.now();
        match sim.campaign(mandate.process.rank, Some(mandate.term)).await {
            Ok(Some(_)) => renewed = asked,
            Ok(None) => break,
            Err(_) if sim.now() - renewed < LEASE => {}
            Err(_) => break,
        }
    }
    mandate.lost.raise(&sim);
}

/// Keeps stations and throttle in step with the record.
async fn news(sim: Sim, mandate: Rc<Mandate>) {
    loop {
        let flag = mandate.process.news.borrow().clone();
        if let Some(record) = mandate.record() {
            mandate.follow(&sim, &record);
        }
        flag.wait(&sim).await;
    }
}

/// Conducts one change after the other.
async fn conduct(sim: &Sim, mandate: &Rc<Mandate>) {
    loop {
        let flag = mandate.process.news.borrow().clone();
        let changing = match mandate.look(sim).await {
            Ok((_, false)) => return,
            Ok((record, true)) => Some(record).filter(|record| record.change().is_some()),
            Err(_) => None,
        };
        let Some(record) = changing else {
            let _heard = sim.within(LOOK_EVERY, flag.wait(sim)).await;
            continue;
        };
        mandate.follow(sim, &record);
        let Ok(view) = View::from_record(&record) else {
            return;
        };
        if conducting::run(sim, mandate, &record, Rc::new(view)).await == Outcome::Deposed {
            return;
        }
    }
}

/// Ends a handover that nobody ends, by this process's own clock.
async fn watch(sim: Sim, process: Rc<Process>) {
    let mut seen: Option<(u64, Micros)> = None;
    loop {
        let flag = process.news.borrow().clone();
        let heard = process.heard.borrow().clone();
        let held = heard.filter(|record| held_since_ms(record).is_some());
        seen = match (&held, seen) {
            (None, _) => None,
            (Some(record), Some(seen)) if record.epoch().get() == seen.0 => Some(seen),
            (Some(record), _) => Some((record.epoch().get(), sim.now())),
        };
        let (Some(record), Some((_, since))) = (held, seen) else {
            flag.wait(&sim).await;
            continue;
        };
        let patience = (since + PATIENCE).saturating_sub(sim.now());
        if sim.within(patience, flag.wait(&sim)).await.is_some() {
            continue;
        }
        let since_ms = held_since_ms(&record).unwrap_or(0);
        if let Ok(next) = record.roll_back_stale_handover(since_ms + HANDOVER_MS_MAX + 1) {
            let _tried = sim
                .commit(process.rank, record.revision(), next, None)
                .await;
        }
        seen = None;
        sim.sleep(10 * MS).await;
    }
}

fn held_since_ms(record: &Record) -> Option<u64> {
    let mut handoffs = record.change()?.handoffs.iter();
    let held = handoffs.find(|handoff| handoff.state == HandoffState::Handover)?;
    Some(held.entered_at_ms)
}
