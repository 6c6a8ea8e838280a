//! The task behind a client: it routes calls by the latest view, over one connection to each node.
//!
//! One turn takes what has happened, calls, views, bytes, time, and only then writes: once to each
//! node, however many calls the turn had. Decisions about generations, holds and retries are made by
//! [`Traffic`], those about bytes and answers by [`Conversation`]; here are the sockets. A turn costs a
//! look at each connection, and a call some hundred nanoseconds beside the system's calls.

mod lanes;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use clockwise_cluster::{Route, View};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet, unconstrained};
use tokio::time::{Instant, Sleep, sleep_until};

use super::access::Access;
use super::call::Call;
use super::error::Error;
use super::link::{Link, LinkError};
use crate::commands::{CommandTable, keep_table};
use crate::resp::Protocol;
use crate::routing::{
    Admission, ConversationLimits, Millis, NodeSlot, Obstacle, Outgoing, Refused, Target, Traffic,
    TrafficLimits, Waiting,
};
use crate::store::{Registration, RoutesBy, Store};

/// What all our calls are made in: of the two versions it has more types.
const PROTOCOL: Protocol = Protocol::Resp3;
/// Messages taken at a time.
const BATCH: usize = 256;
/// Batches before everything else gets its turn.
const BATCHES_PER_TURN: usize = 4;
/// How often what depends on time is looked at while something waits, and while an answer is owed.
const TICK_MS: u64 = 5;
const OWED_TICK_MS: u64 = 50;

/// What the worker is told.
pub(super) enum Message {
    /// A request and its bytes.
    Call(Call, Box<[u8]>),
    /// A later view.
    View(Arc<View>),
    /// An attempt to connect is over.
    Connected {
        slot: NodeSlot,
        attempt: u64,
        outcome: io::Result<TcpStream>,
    },
    /// Somebody needs to know which commands there are.
    WantTable,
}

/// A request that could not be sent yet.
#[derive(Debug)]
struct Parked {
    call: Call,
    frame: Box<[u8]>,
}

/// A connection, or the attempt at one.
enum Lane {
    Connecting { attempt: u64, task: AbortHandle },
    Up(Box<Link>),
}

/// What a worker is made with.
pub(super) struct Setup {
    pub(super) messages: mpsc::Receiver<Message>,
    pub(super) sender: mpsc::WeakSender<Message>,
    pub(super) views: watch::Receiver<Arc<View>>,
    pub(super) current: Arc<ArcSwap<View>>,
    pub(super) access: Access,
    pub(super) traffic: TrafficLimits,
    pub(super) conversation: ConversationLimits,
    pub(super) store: Option<Arc<dyn Store>>,
    pub(super) registration: Option<Registration>,
    pub(super) table: watch::Sender<Option<Arc<CommandTable>>>,
}

pub(super) struct Worker {
    setup: Setup,
    started: Instant,
    now: Millis,
    view: Arc<View>,
    traffic: Traffic<Parked>,
    lanes: BTreeMap<NodeSlot, Lane>,
    /// Calls whose answers are awaited, by the numbers under which conversations know them.
    calls: HashMap<u64, Call>,
    next_call: u64,
    attempts: u64,
    /// Connections to look at for something to send, perhaps more than once.
    unflushed: Vec<NodeSlot>,
    batch: Vec<Message>,
    next_tick: Option<Millis>,
    timer: Pin<Box<Sleep>>,
    record_looked_at: Option<Millis>,
    wants_table: bool,
    /// Attempts to connect, and whatever else runs for this worker.
    tasks: JoinSet<()>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("epoch", &self.view.epoch())
            .field("calls", &self.calls.len())
            .finish_non_exhaustive()
    }
}

impl Worker {
    pub(super) fn new(setup: Setup) -> Self {
        let started = Instant::now();
        let view = setup.current.load_full();
        let mut worker = Self {
            traffic: Traffic::new(setup.traffic),
            started,
            now: Millis(0),
            view: Arc::clone(&view),
            lanes: BTreeMap::new(),
            calls: HashMap::new(),
            next_call: 0,
            attempts: 0,
            unflushed: Vec::new(),
            batch: Vec::with_capacity(BATCH),
            next_tick: None,
            timer: Box::pin(sleep_until(started)),
            record_looked_at: None,
            wants_table: false,
            tasks: JoinSet::new(),
            setup,
        };
        let (mut views, sender) = (worker.setup.views.clone(), worker.setup.sender.clone());
        worker.tasks.spawn(async move {
            while views.changed().await.is_ok() {
                let view = Arc::clone(&views.borrow_and_update());
                let Some(sender) = sender.upgrade() else {
                    return;
                };
                if sender.send(Message::View(view)).await.is_err() {
                    return;
                }
            }
        });
        worker.adopt(view);
        worker
    }

    /// Works until the last client is gone.
    pub(super) async fn run(mut self) {
        // A turn has bounds of its own. A budget of tokio's would cut it off at the same nodes each time,
        // and a timer that is looked at without one wakes nobody.
        unconstrained(poll_fn(|context| self.turn(context))).await;
        self.tasks.shutdown().await;
        // The end of the registration may have to wait for its store.
        self.lanes.clear();
        if let Some(registration) = self.setup.registration.take() {
            registration.end().await;
        }
    }

    fn turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let elapsed = self.started.elapsed().as_millis();
        self.now = Millis(u64::try_from(elapsed).unwrap_or(u64::MAX));
        if self.take_messages(context) {
            return Poll::Ready(());
        }
        self.read_links(context);
        if self.next_tick.is_some_and(|due| due <= self.now) {
            self.tick();
        }
        self.flush(context);
        while self.tasks.try_join_next().is_some() {}
        self.set_timer(context);
        Poll::Pending
    }

    /// Whether the last client is gone.
    fn take_messages(&mut self, context: &mut Context<'_>) -> bool {
        for _ in 0..BATCHES_PER_TURN {
            let mut batch = std::mem::take(&mut self.batch);
            let taken = self
                .setup
                .messages
                .poll_recv_many(context, &mut batch, BATCH);
            let over = matches!(taken, Poll::Ready(0));
            for message in batch.drain(..) {
                self.take_message(message);
            }
            self.batch = batch;
            if over || taken.is_pending() {
                return over;
            }
        }
        context.waker().wake_by_ref();
        false
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Call(call, frame) => self.dispatch(Waiting {
                bytes: frame.len(),
                since: self.now,
                request: Parked { call, frame },
            }),
            Message::View(view) => self.adopt(view),
            Message::Connected {
                slot,
                attempt,
                outcome,
            } => self.connected(slot, attempt, outcome),
            Message::WantTable => self.begin_table(),
        }
        self.obey();
    }

    fn adopt(&mut self, view: Arc<View>) {
        let target = |node: &clockwise_cluster::Node| Target {
            id: node.id.clone(),
            address: node.address.clone(),
            generation: node.generation,
            nonce: node.nonce,
        };
        let targets = view.nodes().iter().map(target).collect();
        let unsent = match self.traffic.adopt(view.epoch(), targets, self.now) {
            Ok(unsent) => unsent,
            Err(error) => {
                tracing::error!(%error, "the view was not adopted");
                return;
            }
        };
        tracing::debug!(epoch = %view.epoch(), fingerprint = %view.fingerprint(), "routing by a view");
        for lane in self.lanes.values_mut() {
            if let Lane::Up(link) = lane {
                link.said.outdate();
            }
        }
        if let Some(registration) = &self.setup.registration {
            registration.show(RoutesBy::from(&*view));
        }
        self.setup.current.store(Arc::clone(&view));
        self.view = view;
        self.obey();
        for waiting in unsent {
            self.dispatch(waiting);
        }
        self.obey();
    }

    /// Where a request goes, if its keys are on one node. Held if any of them is.
    fn route(&self, parked: &Parked) -> Result<Route, Error> {
        let (view, epoch) = (&self.view, self.view.epoch());
        if view.nodes().is_empty() {
            return Err(Error::NoNode { epoch });
        }
        let mut routes = parked
            .call
            .keys
            .of(&parked.frame)
            .map(|key| view.route(view.position(key)));
        let Some(mut whole) = routes.next() else {
            return Err(Error::NoNode { epoch });
        };
        for route in routes {
            if route.node != whole.node {
                return Err(Error::Apart {
                    one: view.node(whole.node).id.clone(),
                    other: view.node(route.node).id.clone(),
                    epoch,
                });
            }
            whole.hold |= route.hold;
        }
        Ok(whole)
    }

    fn dispatch(&mut self, waiting: Waiting<Parked>) {
        let route = match self.route(&waiting.request) {
            Ok(route) => route,
            Err(error) => return waiting.request.call.answer(Err(error)),
        };
        if route.hold {
            if let Err(waiting) = self.traffic.hold(waiting) {
                self.refuse_all(vec![(waiting, None, Obstacle::QueueFull)]);
            }
            return;
        }
        match self.traffic.admit(route.node.get(), PROTOCOL, self.now) {
            Admission::Send(slot) => self.send(slot, waiting.request),
            Admission::Wait(slot) => {
                if let Err(waiting) = self.traffic.wait(slot, PROTOCOL, waiting) {
                    self.refuse_all(vec![(waiting, Some(slot), Obstacle::QueueFull)]);
                }
            }
            Admission::Refuse(slot) => {
                self.refuse_all(vec![(waiting, Some(slot), Obstacle::Down)]);
            }
        }
    }

    /// Hands an admitted request to its conversation.
    fn send(&mut self, slot: NodeSlot, Parked { call, frame }: Parked) {
        let Some(Lane::Up(link)) = self.lanes.get_mut(&slot) else {
            // Admitted over an open connection, so there is one.
            debug_assert!(false, "an open connection has a link");
            self.traffic.withdraw(slot, PROTOCOL, self.now);
            return;
        };
        if !call.progress.send() {
            // Its caller is gone, and so is the request.
            self.traffic.withdraw(slot, PROTOCOL, self.now);
            return;
        }
        let number = self.next_call;
        self.next_call += 1;
        let request = Outgoing {
            origin: number,
            effect: call.effect,
            retries: call.retries,
            preamble: 0,
        };
        let write = |out: &mut Vec<u8>| out.extend_from_slice(&frame);
        link.said.push(request, self.now, write);
        self.calls.insert(number, call);
        self.unflushed.push(slot);
    }

    fn refuse_all(&mut self, refused: Vec<Refused<Parked>>) {
        for (waiting, slot, why) in refused {
            let epoch = self.view.epoch();
            let node = match slot {
                Some(slot) => self.traffic.target(slot).map(|target| target.id.clone()),
                None => self
                    .route(&waiting.request)
                    .ok()
                    .map(|route| self.view.node(route.node).id.clone()),
            };
            let error = Error::NotSent { node, epoch, why };
            waiting.request.call.answer(Err(error));
        }
    }

    fn tick(&mut self) {
        let refused = self.traffic.tick(self.now);
        self.obey();
        self.refuse_all(refused);
        let late: Vec<(NodeSlot, u64)> = self
            .lanes
            .iter()
            .filter_map(|(slot, lane)| match lane {
                Lane::Up(link) => Some((
                    *slot,
                    link.said.is_late(&self.setup.conversation, self.now)?,
                )),
                Lane::Connecting { .. } => None,
            })
            .collect();
        for (slot, ms_max) in late {
            self.end_link(slot, &LinkError::Late(ms_max));
        }
        self.obey();
        self.next_tick = None;
    }

    /// Wakes this task when time passing can matter next.
    fn set_timer(&mut self, context: &mut Context<'_>) {
        let owes = |lane: &Lane| matches!(lane, Lane::Up(link) if link.said.owes());
        let pause = if self.traffic.needs_ticks() {
            Some(TICK_MS)
        } else if self.lanes.values().any(owes) {
            Some(OWED_TICK_MS)
        } else {
            None
        };
        let Some(pause) = pause else {
            self.next_tick = None;
            return;
        };
        let due = self.now.after(pause);
        if self.next_tick.is_some_and(|known| known <= due) {
            // The timer is set, and knows whom to wake.
            return;
        }
        self.next_tick = Some(due);
        self.timer
            .as_mut()
            .reset(self.started + Duration::from_millis(due.0));
        if self.timer.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
    }

    /// Begins to ask nodes which commands there are, once.
    fn begin_table(&mut self) {
        if self.wants_table {
            return;
        }
        self.wants_table = true;
        let (views, table) = (self.setup.views.clone(), self.setup.table.clone());
        let access = self.setup.access.clone();
        self.tasks.spawn(async move {
            let login = |node: &clockwise_cluster::Node| access.login(node);
            keep_table(views, login, |found| {
                table.send_replace(Some(Arc::new(found)));
            })
            .await;
        });
    }
}
