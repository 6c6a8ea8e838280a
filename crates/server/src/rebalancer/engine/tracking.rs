//! The task that listens to the stream of touched keys, so that nothing waits at the server.
//!
//! What it hears and the answers to barriers come out of one channel in the order in which the server
//! said them.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::driver::{Dirty, DirtyStream, Tracker};

/// Messages that may wait for the handoff's task; then the server has to keep them.
const MESSAGES_MAX: usize = 1_024;
/// How often the source's response is probed over the stream's own connection.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// Probes between two looks at what the server holds back.
const PROBES_PER_BACKLOG: u32 = 10;

/// What comes out of the stream.
#[derive(Debug)]
pub(super) enum Heard {
    Dirty(Dirty),
    /// Everything from before the barrier that was asked for has been said.
    Barrier,
    /// How long the source took to answer a small command of a connection of its own.
    Probe(Duration),
    /// Bytes that the server holds back for the stream.
    Backlog(u64),
}

/// The listening task. Dropping it ends the stream.
pub(super) struct Listener {
    pub(super) heard: mpsc::Receiver<Heard>,
    barriers: mpsc::Sender<()>,
    task: JoinHandle<()>,
}

impl Listener {
    pub(super) fn start(tracker: Tracker) -> Self {
        let (tell, heard) = mpsc::channel(MESSAGES_MAX);
        let (barriers, asked) = mpsc::channel(1);
        Self {
            heard,
            barriers,
            task: tokio::spawn(listen(tracker, tell, asked)),
        }
    }

    /// Asks for a barrier; [`Heard::Barrier`] follows.
    pub(super) fn ask_for_barrier(&self) {
        // One question at a time: there is room, unless the task has ended, and then it has said that
        // the stream is lost.
        let _ended = self.barriers.try_send(());
    }

    /// Ends the stream and returns when its task has.
    pub(super) async fn end(mut self) {
        self.task.abort();
        let _aborted = (&mut self.task).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(mut tracker: Tracker, tell: mpsc::Sender<Heard>, mut asked: mpsc::Receiver<()>) {
    let mut probes = interval(PROBE_EVERY);
    probes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut count = 0_u32;
    loop {
        let alive = tokio::select! {
            // The stream comes last, for it may have something to say at any time.
            biased;
            ask = asked.recv() => match ask {
                Some(()) => barrier(&mut *tracker, &tell, || Heard::Barrier).await,
                None => return,
            },
            _ = probes.tick() => {
                count = count.wrapping_add(1);
                probe(&mut *tracker, &tell, count.is_multiple_of(PROBES_PER_BACKLOG)).await
            }
            dirty = tracker.next() => {
                let lost = dirty == Dirty::Lost;
                tell.send(Heard::Dirty(dirty)).await.is_ok() && !lost
            }
        };
        if !alive {
            return;
        }
    }
}

/// Tells everything from before this moment, then the message. False once the stream is over.
async fn barrier(
    tracker: &mut dyn DirtyStream,
    tell: &mpsc::Sender<Heard>,
    message: impl FnOnce() -> Heard,
) -> bool {
    let passed = tracker.barrier().await;
    let message = message();
    while let Some(dirty) = tracker.try_next() {
        // It is said for ever, and once is enough.
        let lost = dirty == Dirty::Lost;
        if tell.send(Heard::Dirty(dirty)).await.is_err() || lost {
            return false;
        }
    }
    let (message, alive) = match passed {
        Ok(()) => (message, true),
        Err(_) => (Heard::Dirty(Dirty::Lost), false),
    };
    tell.send(message).await.is_ok() && alive
}

async fn probe(tracker: &mut dyn DirtyStream, tell: &mpsc::Sender<Heard>, backlog: bool) -> bool {
    if backlog {
        let (message, alive) = match tracker.backlog_bytes().await {
            Ok(bytes) => (Heard::Backlog(bytes), true),
            Err(_) => (Heard::Dirty(Dirty::Lost), false),
        };
        return tell.send(message).await.is_ok() && alive;
    }
    let began = Instant::now();
    // Two round trips, one after the other.
    barrier(tracker, tell, || Heard::Probe(began.elapsed() / 2)).await
}
