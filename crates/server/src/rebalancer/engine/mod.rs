//! The task of one handoff: does at the servers what the machine asks for.
//!
//! It holds at most one command of the machine at a time, beside what goes on underneath: listening to
//! the stream of touched keys, copying batches, comparing. All of that is round trips in flight
//! ([`ops`]) whose results come back here, where the [`Copier`] keeps the books; nothing else touches
//! them. `Cancel` drops every round trip and the stream before it is answered.

mod comparing;
mod copying;
mod ops;
mod parts;
mod remembered;
mod simple;
mod tracking;
mod walk;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use clockwise_cluster::copier::{Copier, Lane, Limits, Pace};
use clockwise_cluster::handoff::{Command, Event, Server};
use clockwise_cluster::{HandoffId, View};
use clockwise_placement::NodeId;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::comparing::Comparison;
use self::copying::{Listing, Rounds};
use self::ops::{Check, Ends, OpError};
use self::parts::Parts;
use self::remembered::Remembered;
use self::tracking::{Heard, Listener};
use super::mandate::Mandate;
use super::progress::{Counters, set};
use super::station::{Link, StationHandle};
use super::stations::Stations;
use crate::driver::{Dirty, Key};

/// Keys that one step of a listing asks for: a server is held up for some twentieth of a millisecond.
const SCAN_COUNT: u32 = 100;
/// Messages of the stream that are taken in at once, when so many have arrived.
const HEARD_AT_ONCE: usize = 256;
/// Bytes that a source may hold back for the stream before copying pauses, since the reader is late.
const BACKLOG_BYTES_MAX: u64 = 32 << 20;

/// An event of the handoff of this index.
pub(super) type Told = (usize, Event);

/// Everything about a handoff that does not change.
#[derive(Clone)]
pub(super) struct Handoff {
    pub(super) index: usize,
    pub(super) id: HandoffId,
    pub(super) targets: Vec<NodeId>,
    pub(super) mandate: Arc<Mandate>,
    pub(super) stations: Arc<Stations>,
    pub(super) view: Arc<View>,
    pub(super) counters: Arc<Counters>,
}

impl Handoff {
    /// Says the lane of a key that this handoff moves.
    fn lane_of<'a>(&'a self, lanes: &'a [Option<Lane>]) -> impl Fn(&[u8]) -> Option<Lane> + 'a {
        let moving = self.view.moving_set(&self.id);
        move |key| {
            let target = moving.as_ref()?.target(self.view.position(key))?;
            lanes[target.get()]
        }
    }

    fn lanes(&self) -> Vec<Option<Lane>> {
        let lane = |id: &NodeId| {
            let at = self.targets.iter().position(|target| target == id)?;
            u16::try_from(at).ok().map(Lane)
        };
        self.view
            .nodes()
            .iter()
            .map(|node| lane(&node.id))
            .collect()
    }

    fn node(&self, at: Server) -> &NodeId {
        match at {
            Server::Source => &self.id.source,
            Server::Target(lane) => &self.targets[usize::from(lane.0)],
        }
    }

    fn station(&self, at: Server) -> Result<StationHandle, super::station::StationError> {
        self.stations.get(self.node(at))
    }
}

/// What came back from a round trip.
enum Done {
    Listed(Result<(u64, Vec<Key>), OpError>),
    Copied(
        clockwise_cluster::copier::Batch<Key>,
        Result<ops::BatchOutcome, OpError>,
    ),
    BigCopied(Lane, Key, Result<ops::BigOutcome, OpError>),
    PartCopied(Lane, Key, Result<ops::PartOutcome, OpError>),
    Compared(comparing::Compared),
    /// A command that needs nothing else is answered.
    Answered(Answer),
}

/// The answer to a command, and what it leaves behind.
enum Answer {
    Event(Box<Event>),
    Opened(Option<Link>, Vec<Option<Link>>),
    Tracking(Listener),
    Cleaned { removed: u64, next: Option<u64> },
    Failed(OpError),
}

type Trip = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What the machine waits for.
enum Job {
    Nothing,
    Answer,
    Listing,
    RoundAt(Instant),
    Round,
    Comparison,
    Barrier,
    LastCopies,
    LastParts,
    SecondLook,
}

/// The task of one handoff.
pub(super) struct Engine {
    handoff: Handoff,
    lanes: Vec<Option<Lane>>,
    tell: mpsc::UnboundedSender<Told>,
    source: Option<Link>,
    targets: Vec<Option<Link>>,
    listener: Option<Listener>,
    copier: Copier<Key>,
    pace: Pace,
    trips: FuturesUnordered<Trip>,
    copies_in_flight: u32,
    job: Job,
    listing: Listing,
    rounds: Rounds,
    parts: Parts,
    remembered: Remembered,
    comparison: Comparison,
    check: Check,
    backlogged: bool,
    // Where the next slice of cleaning starts.
    cursor: u64,
    // Whether this handoff has told of something after which the machine will cancel.
    failed: bool,
    wake_at: Option<Instant>,
}

impl Engine {
    pub(super) fn new(handoff: Handoff, tell: mpsc::UnboundedSender<Told>) -> Self {
        let lanes = handoff.lanes();
        let count =
            u16::try_from(handoff.targets.len()).expect("a record has at most 10,000 nodes");
        Self {
            lanes,
            tell,
            source: None,
            targets: vec![None; handoff.targets.len()],
            listener: None,
            copier: Copier::new(count, Limits::default()),
            pace: Pace::new(),
            trips: FuturesUnordered::new(),
            copies_in_flight: 0,
            job: Job::Nothing,
            listing: Listing::default(),
            rounds: Rounds::default(),
            parts: Parts::default(),
            remembered: Remembered::new(handoff.targets.len()),
            comparison: Comparison::default(),
            check: Check::Later,
            backlogged: false,
            cursor: 0,
            failed: false,
            wake_at: None,
            handoff,
        }
    }

    /// Serves commands until nobody gives any.
    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut heard = Vec::with_capacity(HEARD_AT_ONCE);
        loop {
            self.pump();
            self.finish_job();
            if matches!(self.job, Job::Listing | Job::Round | Job::Comparison) {
                // Whoever waits for this core goes first: a server beside us has clients to answer.
                std::thread::yield_now();
            }
            // None goes before another: the stream may always have something to say, and what is asked
            // of the servers has to come back all the same.
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.take(command).await,
                    None => return,
                },
                () = hear(&mut self.listener, &mut heard) => {
                    heard.drain(..).for_each(|heard| self.heard(heard));
                }
                Some(done) = self.trips.next(), if !self.trips.is_empty() => self.done(done).await,
                () = sleep_until(self.wake_at), if self.wake_at.is_some() => self.wake_at = None,
            }
        }
    }

    async fn take(&mut self, command: Command) {
        match command {
            Command::Cancel => {
                self.cancel().await;
                self.say(Event::Cancelled);
            }
            Command::Untrack => {
                if let Some(listener) = self.listener.take() {
                    listener.end().await;
                }
            }
            Command::List => self.begin_listing(),
            Command::Round { after_ms } => self.begin_round_after(after_ms),
            Command::Verify => self.begin_comparison(),
            Command::Barrier => self.begin_barrier(),
            Command::CopyLast => self.begin_last_copies(),
            Command::CompareLast => self.begin_second_look(Job::SecondLook),
            Command::Stop(_) | Command::Park | Command::Finish => {}
            command => self.begin_simple(command),
        }
    }

    /// Ends everything that is under way; sessions are only let go, the station keeps them.
    async fn cancel(&mut self) {
        self.trips = FuturesUnordered::new();
        if let Some(listener) = self.listener.take() {
            listener.end().await;
        }
        let fresh = Self::new(self.handoff.clone(), self.tell.clone());
        *self = Self {
            cursor: self.cursor,
            ..fresh
        };
    }

    fn say(&self, event: Event) {
        // Nobody listens any more only when everything is being dropped.
        let _unheard = self.tell.send((self.handoff.index, event));
    }

    /// Answers the machine's command.
    fn answer(&mut self, event: Event) {
        self.job = Job::Nothing;
        self.say(event);
    }

    fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Dirty(Dirty::Keys(keys)) => self.touched(&keys),
            Heard::Dirty(Dirty::Everything) => self.fail(Event::Flushed),
            Heard::Dirty(Dirty::Lost) => {
                self.listener = None;
                self.fail(Event::TrackingLost);
            }
            Heard::Barrier => self.barrier_passed(),
            Heard::Probe(took) => {
                self.pace
                    .observe(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            }
            Heard::Backlog(bytes) => self.backlogged = bytes > BACKLOG_BYTES_MAX,
        }
    }

    fn touched(&mut self, keys: &[Key]) {
        let lane_of = self.handoff.lane_of(&self.lanes);
        for key in keys {
            if let Some(lane) = lane_of(key) {
                // A key of its own, not a slice of a buffer that would be kept for it.
                self.copier.touched(lane, Key::copy_from_slice(key));
            }
        }
        set(&self.handoff.counters.dirty, self.copier.dirty() as u64);
    }

    async fn done(&mut self, done: Done) {
        match done {
            Done::Listed(listed) => self.listed(listed).await,
            Done::Copied(batch, outcome) => self.copied(batch, outcome).await,
            Done::BigCopied(lane, key, outcome) => self.big_copied(lane, key, outcome).await,
            Done::PartCopied(lane, key, outcome) => self.part_copied(lane, key, outcome).await,
            Done::Compared(compared) => self.compared(compared).await,
            Done::Answered(answer) => self.answered(answer).await,
        }
    }

    /// Says that the copy cannot go on as it is; once, since the machine cancels upon it.
    fn fail(&mut self, event: Event) {
        if !self.failed {
            self.failed = true;
            self.say(event);
        }
    }

    /// A call failed: its session is not used again by anybody.
    async fn broke(&mut self, OpError { at, error }: OpError) {
        let link = match at {
            Server::Source => self.source.take(),
            Server::Target(lane) => self.targets[usize::from(lane.0)].take(),
        };
        if let (Some(link), Ok(station)) = (link, self.handoff.station(at)) {
            station.broken(link.number).await;
        }
        tracing::warn!(handoff = %self.handoff.id, %at, %error, "call failed");
        self.fail(Event::Broken {
            at,
            why: error.to_string(),
        });
    }

    /// Both ends of a lane, if both sessions are open.
    fn ends(&self, lane: Lane) -> Option<Ends> {
        let target = self.targets.get(usize::from(lane.0))?.clone()?;
        Some(Ends {
            source: self.source.clone()?,
            target,
            lane,
        })
    }
}

/// Waits for something of the stream and takes what else has arrived. Dropping it loses nothing.
async fn hear(listener: &mut Option<Listener>, heard: &mut Vec<Heard>) {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    if listener.heard.recv_many(heard, HEARD_AT_ONCE).await == 0 {
        // The task says that the stream is lost before it ends.
        heard.push(Heard::Dirty(Dirty::Lost));
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
