//! One thread, virtual time, tasks that are polled in an order that only the seed decides.
//!
//! A task is a future; what it waits for names the task, and is ready when an action of the [`Agenda`] says
//! so. Actions of one moment run in the order in which they were put down. Nothing here reads a clock.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::Sim;

/// Microseconds of virtual time.
pub(super) type Micros = u64;
/// One millisecond.
pub(super) const MS: Micros = 1_000;

type Action = Box<dyn FnOnce(&Sim)>;
type TaskId = u64;
pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

/// Tasks that live, pause and die together; one in another dies with it.
#[derive(Debug, Default)]
pub(super) struct Group {
    parent: Option<Rc<Group>>,
    dead: Cell<bool>,
    paused: Cell<bool>,
}

impl Group {
    pub(super) fn new() -> Rc<Self> {
        Rc::default()
    }

    pub(super) fn within(parent: &Rc<Self>) -> Rc<Self> {
        Rc::new(Self {
            parent: Some(Rc::clone(parent)),
            ..Self::default()
        })
    }

    fn any(&self, holds: impl Fn(&Self) -> bool) -> bool {
        let mut group = Some(self);
        while let Some(one) = group {
            if holds(one) {
                return true;
            }
            group = one.parent.as_deref();
        }
        false
    }

    pub(super) fn is_dead(&self) -> bool {
        self.any(|group| group.dead.get())
    }

    fn is_paused(&self) -> bool {
        self.any(|group| group.paused.get())
    }
}

struct Task {
    group: Rc<Group>,
    // None while it is polled.
    future: Option<Boxed<()>>,
    woken: bool,
}

/// What is going to happen, and who is waiting.
#[derive(Default)]
pub(super) struct Agenda {
    now: Cell<Micros>,
    count: Cell<u64>,
    actions: RefCell<BTreeMap<(Micros, u64), Action>>,
    tasks: RefCell<BTreeMap<TaskId, Task>>,
    current: Cell<TaskId>,
}

impl Agenda {
    pub(super) fn now(&self) -> Micros {
        self.now.get()
    }

    fn number(&self) -> u64 {
        self.count.set(self.count.get() + 1);
        self.count.get()
    }

    /// Forgets everything: tasks and actions hold what holds them.
    pub(super) fn clear(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
        let actions = std::mem::take(&mut *self.actions.borrow_mut());
        drop(actions);
    }

    /// How many actions have been put down: what a run costs.
    pub(super) fn actions(&self) -> u64 {
        self.count.get()
    }
}

impl Sim {
    pub(super) fn now(&self) -> Micros {
        self.agenda.now()
    }

    /// Does something after a while.
    pub(super) fn after(&self, delay: Micros, action: impl FnOnce(&Sim) + 'static) {
        self.at(self.now() + delay, action);
    }

    /// Does something at a moment that has not passed.
    pub(super) fn at(&self, at: Micros, action: impl FnOnce(&Sim) + 'static) {
        assert!(at >= self.now(), "time goes forward");
        let key = (at, self.agenda.number());
        let mut actions = self.agenda.actions.borrow_mut();
        actions.insert(key, Box::new(action));
    }

    /// Lets the next thing happen, unless nothing does before `until`.
    pub(super) fn step(&self, until: Micros) -> bool {
        let next = {
            let mut actions = self.agenda.actions.borrow_mut();
            match actions.first_key_value() {
                Some((&(at, _), _)) if at <= until => actions.pop_first(),
                _ => None,
            }
        };
        let Some(((at, _), action)) = next else {
            return false;
        };
        self.agenda.now.set(at);
        action(self);
        true
    }

    pub(super) fn spawn(&self, group: &Rc<Group>, future: impl Future<Output = ()> + 'static) {
        let id = self.agenda.number();
        let task = Task {
            group: Rc::clone(group),
            future: Some(Box::pin(future)),
            woken: false,
        };
        self.agenda.tasks.borrow_mut().insert(id, task);
        self.wake(id);
    }

    /// Ends every task of a group, between two of its steps.
    pub(super) fn kill(&self, group: &Rc<Group>) {
        group.dead.set(true);
        let dead: Vec<Task> = {
            let mut tasks = self.agenda.tasks.borrow_mut();
            let ids: Vec<TaskId> = tasks
                .iter()
                .filter(|(_, task)| task.group.is_dead())
                .map(|(id, _)| *id)
                .collect();
            ids.iter().filter_map(|id| tasks.remove(id)).collect()
        };
        drop(dead);
    }

    /// Stops a group's tasks where they are, or lets them go on.
    pub(super) fn set_paused(&self, group: &Rc<Group>, paused: bool) {
        group.paused.set(paused);
        if paused {
            return;
        }
        let woken: Vec<TaskId> = {
            let tasks = self.agenda.tasks.borrow();
            let waits = tasks
                .iter()
                .filter(|(_, task)| task.woken && !task.group.is_paused());
            waits.map(|(id, _)| *id).collect()
        };
        for id in woken {
            self.at(self.now(), move |sim| sim.poll_task(id));
        }
    }

    fn wake(&self, id: TaskId) {
        let due = match self.agenda.tasks.borrow_mut().get_mut(&id) {
            Some(task) if !task.woken => {
                task.woken = true;
                !task.group.is_paused()
            }
            _ => false,
        };
        if due {
            self.at(self.now(), move |sim| sim.poll_task(id));
        }
    }

    fn poll_task(&self, id: TaskId) {
        let future = {
            let mut tasks = self.agenda.tasks.borrow_mut();
            let Some(task) = tasks.get_mut(&id) else {
                return;
            };
            if task.group.is_paused() || !task.woken {
                return;
            }
            task.woken = false;
            task.future.take()
        };
        let Some(mut future) = future else { return };
        let before = self.agenda.current.replace(id);
        let polled = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        self.agenda.current.set(before);
        let mut tasks = self.agenda.tasks.borrow_mut();
        match (polled, tasks.get_mut(&id)) {
            (Poll::Pending, Some(task)) => task.future = Some(future),
            // It is over, or its group died meanwhile.
            _ => {
                let done = tasks.remove(&id);
                drop(tasks);
                drop((done, future));
            }
        }
    }

    /// Waits.
    pub(super) fn sleep(&self, delay: Micros) -> Boxed<()> {
        let slot = Slot::new();
        let ends = slot.clone();
        self.after(delay, move |sim| ends.set(sim, ()));
        let sim = self.clone();
        Box::pin(async move { slot.wait(&sim).await })
    }

    /// Waits for something, but not for ever.
    pub(super) async fn within<T>(
        &self,
        delay: Micros,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut late = self.sleep(delay);
        let mut future = Box::pin(future);
        poll_fn(move |context| {
            if let Poll::Ready(done) = future.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            late.as_mut().poll(context).map(|()| None)
        })
        .await
    }
}

/// A value that comes once.
#[derive(Debug)]
pub(super) struct Slot<T>(Rc<RefCell<(Option<T>, Option<TaskId>)>>);

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Slot<T> {
    pub(super) fn new() -> Self {
        Self(Rc::new(RefCell::new((None, None))))
    }

    /// The first value counts.
    pub(super) fn set(&self, sim: &Sim, value: T) {
        let waiter = {
            let mut slot = self.0.borrow_mut();
            slot.0.get_or_insert(value);
            slot.1.take()
        };
        if let Some(waiter) = waiter {
            sim.wake(waiter);
        }
    }

    pub(super) async fn wait(&self, sim: &Sim) -> T {
        poll_fn(|_| {
            let mut slot = self.0.borrow_mut();
            match slot.0.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    slot.1 = Some(sim.agenda.current.get());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Something that happens once, of which any number of tasks hear.
#[derive(Clone, Debug, Default)]
pub(super) struct Flag(Rc<RefCell<(bool, Vec<TaskId>)>>);

impl Flag {
    pub(super) fn raise(&self, sim: &Sim) {
        let waiting = {
            let mut flag = self.0.borrow_mut();
            flag.0 = true;
            std::mem::take(&mut flag.1)
        };
        for id in waiting {
            sim.wake(id);
        }
    }

    pub(super) async fn wait(&self, sim: &Sim) {
        poll_fn(|_| {
            let mut flag = self.0.borrow_mut();
            if flag.0 {
                return Poll::Ready(());
            }
            let current = sim.agenda.current.get();
            if !flag.1.contains(&current) {
                flag.1.push(current);
            }
            Poll::Pending
        })
        .await;
    }
}

/// Messages for one task.
#[derive(Debug)]
pub(super) struct Mailbox<T>(Rc<RefCell<(VecDeque<T>, Option<TaskId>)>>);

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Mailbox<T> {
    pub(super) fn new() -> Self {
        Self(Rc::new(RefCell::new((VecDeque::new(), None))))
    }

    pub(super) fn push(&self, sim: &Sim, message: T) {
        let waiter = {
            let mut mailbox = self.0.borrow_mut();
            mailbox.0.push_back(message);
            mailbox.1.take()
        };
        if let Some(waiter) = waiter {
            sim.wake(waiter);
        }
    }

    pub(super) fn take(&self) -> Option<T> {
        self.0.borrow_mut().0.pop_front()
    }

    /// The next message; the task that polls is woken when there is one.
    pub(super) fn poll(&self, sim: &Sim) -> Poll<T> {
        let mut mailbox = self.0.borrow_mut();
        match mailbox.0.pop_front() {
            Some(message) => Poll::Ready(message),
            None => {
                mailbox.1 = Some(sim.agenda.current.get());
                Poll::Pending
            }
        }
    }

    pub(super) async fn next(&self, sim: &Sim) -> T {
        poll_fn(|_| self.poll(sim)).await
    }
}

/// Round trips under way, polled in the order in which they began.
pub(super) struct Trips<T>(Vec<Boxed<T>>);

impl<T> Trips<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn push(&mut self, trip: impl Future<Output = T> + 'static) {
        self.0.push(Box::pin(trip));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The first that has come back.
    pub(super) async fn next(&mut self) -> T {
        poll_fn(|context| {
            for at in 0..self.0.len() {
                if let Poll::Ready(done) = self.0[at].as_mut().poll(context) {
                    drop(self.0.remove(at));
                    return Poll::Ready(done);
                }
            }
            Poll::Pending
        })
        .await
    }
}
