//! The change in flight under one conductor: its orders go to the handoffs' tasks and to the store.

use std::rc::Rc;
use std::sync::Arc;

use clockwise_client::store::CommitError;
use clockwise_cluster::handoff::{Command, Conductor, Event, Order};
use clockwise_cluster::{HandoffId, Record, Step, View};

use super::Sim;
use super::desk::Desk;
use super::executor::{Group, MS, Mailbox};
use super::process::{Mandate, Request};

/// How the conducting of a change came to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The record says what comes next.
    Again,
    /// Another leads.
    Deposed,
}

/// What a conductor hears.
pub(super) enum Told {
    Event(usize, Box<Event>),
    RecordChanged,
    Asked(Request),
}

/// Runs until the record has to be looked at anew, or this leadership is over.
pub(super) async fn run(
    sim: &Sim,
    mandate: &Rc<Mandate>,
    record: &Record,
    view: Rc<View>,
) -> Outcome {
    let Some(conductor) = Conductor::new(record) else {
        return Outcome::Again;
    };
    let group = Group::within(&mandate.group);
    let told = Mailbox::new();
    let handoffs = record.change().map_or(&[][..], |change| &change.handoffs);
    let desks = handoffs.iter().enumerate().map(|(index, handoff)| {
        let commands = Mailbox::new();
        let desk = Desk::new(sim, mandate, handoff, index, &view, told.clone());
        sim.spawn(&group, desk.run(commands.clone()));
        commands
    });
    let ids: Vec<HandoffId> = conductor.handoffs().cloned().collect();
    let mut conducting = Conducting {
        desks: desks.collect(),
        stopped: vec![None; ids.len()],
        ids,
        sim: sim.clone(),
        mandate: Rc::clone(mandate),
        conductor,
        told,
        group: Rc::clone(&group),
        outcome: None,
    };
    sim.spawn(&group, conducting.pass_on_requests());
    let outcome = conducting.conduct().await;
    sim.kill(&group);
    outcome
}

struct Conducting {
    sim: Sim,
    mandate: Rc<Mandate>,
    conductor: Conductor,
    desks: Vec<Mailbox<Command>>,
    ids: Vec<HandoffId>,
    // Why each stands still, and the run that it misses.
    stopped: Vec<Option<Option<clockwise_cluster::Incarnation>>>,
    told: Mailbox<Told>,
    group: Rc<Group>,
    outcome: Option<Outcome>,
}

impl Conducting {
    fn pass_on_requests(&self) -> impl Future<Output = ()> + 'static {
        let (sim, told) = (self.sim.clone(), self.told.clone());
        let requests = self.mandate.process.requests.borrow().clone();
        async move {
            loop {
                let request = requests.next(&sim).await;
                told.push(&sim, Told::Asked(request));
            }
        }
    }

    async fn conduct(&mut self) -> Outcome {
        let sim = self.sim.clone();
        let orders = self.conductor.start(self.mandate.now_ms(&sim));
        self.obey(orders);
        loop {
            if let Some(outcome) = self.outcome {
                return outcome;
            }
            let now_ms = self.mandate.now_ms(&sim);
            let deadline = self.conductor.deadline();
            // Looked at from time to time whether somebody has mended what it stopped for.
            let wait = deadline.map_or(100, |(at_ms, _)| at_ms.saturating_sub(now_ms).min(100));
            let heard = sim.within((wait * MS).max(1), self.told.next(&sim)).await;
            let now_ms = self.mandate.now_ms(&sim);
            match heard {
                Some(Told::Event(index, event)) => self.tell(index, *event),
                Some(Told::RecordChanged) => self.outcome = Some(Outcome::Again),
                Some(Told::Asked(Request::Abort)) => {
                    let orders = self.conductor.abort(now_ms);
                    self.obey(orders);
                }
                Some(Told::Asked(Request::Retry)) => self.leave_if(|stopped| stopped.is_some()),
                None => {}
            }
            if let Some((at_ms, index)) = self.conductor.deadline()
                && now_ms >= at_ms
                && self.outcome.is_none()
            {
                self.tell(index, Event::Timeout);
            }
            self.go_on_if_mended();
        }
    }

    fn go_on_if_mended(&mut self) {
        let Some(record) = self.mandate.record() else {
            return;
        };
        self.mandate.follow_throttle(&self.sim.clone(), &record);
        let change = record.change();
        let flips: Vec<_> = change
            .into_iter()
            .flat_map(|change| &change.handoffs)
            .flat_map(|handoff| &handoff.flip)
            .map(|flip| flip.incarnation.clone())
            .collect();
        self.leave_if(|stopped| matches!(stopped, Some(Some(missed)) if !flips.contains(missed)));
    }

    fn leave_if(
        &mut self,
        holds: impl Fn(&Option<Option<clockwise_cluster::Incarnation>>) -> bool,
    ) {
        if self.stopped.iter().any(holds) && self.outcome.is_none() {
            let orders = self.conductor.leave(self.mandate.now_ms(&self.sim));
            self.obey(orders);
        }
    }

    fn tell(&mut self, index: usize, event: Event) {
        let now_ms = self.mandate.now_ms(&self.sim);
        let orders = self.conductor.handle(index, event, now_ms);
        self.obey(orders);
    }

    fn obey(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Handoff(index, command) => self.command(index, command),
                Order::TurnBack => self.change_record(|record, now_ms| record.abort(now_ms).ok()),
                Order::End => self.change_record(|record, now_ms| record.end_change(now_ms).ok()),
                Order::Held => self.outcome = Some(Outcome::Again),
                Order::Deposed => self.outcome = Some(Outcome::Deposed),
                other => unreachable!("{other:?} is an order of another version"),
            }
        }
    }

    fn command(&mut self, index: usize, command: Command) {
        let (sim, told, mandate) = (
            self.sim.clone(),
            self.told.clone(),
            Rc::clone(&self.mandate),
        );
        let id = self.ids[index].clone();
        self.sim.trace(|| {
            format!(
                "p{} t{} {id}: {command:?}",
                mandate.process.rank, mandate.term
            )
        });
        match command {
            Command::Commit(step) => self.sim.spawn(&self.group, async move {
                let event = commit(&sim, &mandate, &id, &step).await;
                told.push(&sim, Told::Event(index, Box::new(event)));
            }),
            Command::ReadRecord { after_ms } => self.sim.spawn(&self.group, async move {
                if after_ms > 0 {
                    sim.sleep(after_ms * MS).await;
                }
                let event = match mandate.situation(&sim, &id).await {
                    Ok(situation) => Event::Record(situation),
                    Err(_) => Event::StoreAway,
                };
                told.push(&sim, Told::Event(index, Box::new(event)));
            }),
            command => {
                if let Command::Stop(reason) = &command {
                    self.stopped[index] = Some(reason.missing_run().cloned());
                    let why = format!("{id}: {reason:?}");
                    self.sim.stopped(self.mandate.process.rank, why);
                }
                self.desks[index].push(&self.sim, command);
            }
        }
    }

    /// Commits what `next` makes of the newest record.
    fn change_record(&self, next: impl Fn(&Record, u64) -> Option<Record> + 'static) {
        let (sim, told, mandate) = (
            self.sim.clone(),
            self.told.clone(),
            Rc::clone(&self.mandate),
        );
        self.sim.spawn(&self.group, async move {
            for _ in 0..16 {
                let Ok((record, _)) = mandate.look(&sim).await else {
                    break;
                };
                let Some(next) = next(&record, mandate.wall_ms(&sim)) else {
                    break;
                };
                match mandate.commit(&sim, &record, next).await {
                    Err(CommitError::Conflict { .. }) => {}
                    _ => break,
                }
            }
            sim.sleep(10 * MS).await;
            told.push(&sim, Told::RecordChanged);
        });
    }
}

/// Commits a step; the event says what came of it.
async fn commit(sim: &Sim, mandate: &Rc<Mandate>, id: &HandoffId, step: &Step) -> Event {
    let Some(record) = mandate.record() else {
        return Event::Unknown;
    };
    let Ok(next) = record.step(id, step, mandate.wall_ms(sim)) else {
        // The record is not what the machine thinks: it reads it and goes on from there.
        return Event::Conflict;
    };
    match mandate.commit(sim, &record, next).await {
        Ok(record) => Event::Committed {
            epoch: Arc::clone(&record).epoch(),
        },
        Err(CommitError::Conflict { .. }) => Event::Conflict,
        Err(CommitError::LeadershipLost { .. }) => Event::Deposed,
        Err(CommitError::Unreachable { .. }) => Event::NotCommitted,
        Err(_) => Event::Unknown,
    }
}
