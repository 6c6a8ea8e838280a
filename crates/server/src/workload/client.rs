//! One client: a connection that makes requests, and another one when it breaks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::select;
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::chooser::Chooser;
use super::connection::{Broken, Connection, Target};
use super::history::Outcome;
use super::ledger::{Ledger, Times};
use super::op::{ExpiryCommand, Op, Settled};
use super::pace::Pace;
use super::tally::Tally;

const BACKOFF_MIN: Duration = Duration::from_millis(5);
const BACKOFF_MAX: Duration = Duration::from_millis(200);
/// How soon to look for a key again when none could be written.
const NOTHING_TO_DO: Duration = Duration::from_millis(10);

/// Counts that can be read while the clients run.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) acknowledged: AtomicU64,
    pub(super) reads: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) ledger: Arc<Ledger>,
    pub(super) live: Arc<Live>,
    pub(super) target: Target,
    pub(super) expiry: ExpiryCommand,
    pub(super) chooser: Chooser,
    pub(super) pace: Pace,
    /// How many requests may be under way.
    pub(super) pipeline: usize,
    pub(super) stop: CancellationToken,
    pub(super) tally: Tally,
}

/// A request that was queued and is not answered yet.
#[derive(Debug)]
struct UnderWay {
    op: Op,
    /// From when its latency counts.
    from: Instant,
    queued: Instant,
    sent_ms: u64,
    /// Where its bytes begin in the stream.
    first_byte: u64,
}

impl Client {
    /// Runs until it is stopped, and then until what is under way is answered.
    pub(super) async fn run(mut self) -> Tally {
        let mut backoff = BACKOFF_MIN;
        while !self.stop.is_cancelled() {
            let answers = self.tally.answers();
            if let Err(broken) = self.connect_and_exchange().await {
                self.tally.error(broken.kind(), false);
            }
            if self.tally.answers() > answers {
                backoff = BACKOFF_MIN;
            }
            select! {
                () = sleep(backoff) => {}
                () = self.stop.cancelled() => {}
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
        self.tally
    }

    async fn connect_and_exchange(&mut self) -> Result<(), Broken> {
        let stop = self.stop.clone();
        let mut connection = select! {
            opened = Connection::open(&self.target) => opened?,
            () = stop.cancelled() => return Ok(()),
        };
        self.tally.connects += 1;
        let mut under_way = VecDeque::new();
        let ended = self.exchange(&mut connection, &mut under_way).await;
        for UnderWay { op, first_byte, .. } in under_way {
            let left = first_byte < connection.sent();
            let outcome = if left {
                Outcome::Unknown
            } else {
                Outcome::NotExecuted
            };
            if op.is_write() {
                self.tally.settled(outcome);
            }
            op.give_up(&self.ledger, outcome);
        }
        ended
    }

    async fn exchange(
        &mut self,
        connection: &mut Connection,
        under_way: &mut VecDeque<UnderWay>,
    ) -> Result<(), Broken> {
        let stop = self.stop.clone();
        loop {
            let stopping = stop.is_cancelled();
            if stopping && under_way.is_empty() {
                return Ok(());
            }
            if !stopping {
                self.begin_due(connection, under_way);
            }
            if let Err(broken) = connection.flush() {
                // What came before the end still counts.
                connection.fill()?;
                self.take_replies(connection, under_way)?;
                return Err(broken);
            }
            let wake = self.wake(under_way, stopping);
            select! {
                ready = connection.ready() => {
                    ready?;
                    connection.fill()?;
                    self.take_replies(connection, under_way)?;
                }
                () = sleep_until(wake.into()) => {}
                () = stop.cancelled(), if !stopping => {}
            }
            let oldest = under_way.front();
            if oldest.is_some_and(|oldest| oldest.queued.elapsed() > self.target.timeout) {
                return Err(Broken::Timeout);
            }
        }
    }

    /// Queues the requests that are due, as far as there is room.
    fn begin_due(&mut self, connection: &mut Connection, under_way: &mut VecDeque<UnderWay>) {
        while under_way.len() < self.pipeline {
            let now = Instant::now();
            let Some(begin) = self.pace.take(now) else {
                return;
            };
            self.tally.delayed(begin.own_delay);
            // Before anything is sent, so that it is not after its execution.
            let sent_ms = self.ledger.clock.now_ms();
            let Some(op) = self.chooser.next(&self.ledger) else {
                return;
            };
            let encode = |out: &mut Vec<u8>| op.encode(&self.ledger, self.expiry, out);
            let (first_byte, _end) = connection.queue(encode);
            under_way.push_back(UnderWay {
                op,
                from: begin.from,
                queued: now,
                sent_ms,
                first_byte,
            });
        }
    }

    fn wake(&self, under_way: &VecDeque<UnderWay>, stopping: bool) -> Instant {
        let now = Instant::now();
        let full = under_way.len() >= self.pipeline;
        let due = match self.pace.next() {
            _ if full || stopping => None,
            Some(next) => Some(next.max(now)),
            None => Some(now + NOTHING_TO_DO),
        };
        let given_up = under_way
            .front()
            .map(|oldest| oldest.queued + self.target.timeout);
        let wakes = [due, given_up];
        wakes
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(now + self.target.timeout)
    }

    fn take_replies(
        &mut self,
        connection: &mut Connection,
        under_way: &mut VecDeque<UnderWay>,
    ) -> Result<(), Broken> {
        while let Some(answer) = connection.next_reply()? {
            let now = Instant::now();
            if under_way.len() == self.pipeline {
                self.pace.room(now);
            }
            let Some(UnderWay {
                op, from, sent_ms, ..
            }) = under_way.pop_front()
            else {
                return Err(Broken::Protocol("an answer to no request".to_owned()));
            };
            let is_write = op.is_write();
            if is_write {
                self.tally.write_took(now - from);
            } else {
                self.tally.read_took(now - from);
            }
            let times = Times {
                sent_ms,
                answered_ms: self.ledger.clock.now_ms(),
            };
            let settled = op.answered(answer, &self.ledger, self.expiry, times);
            self.count(is_write, &settled);
            settled?;
        }
        Ok(())
    }

    fn count(&mut self, is_write: bool, settled: &Result<Settled, Broken>) {
        match settled {
            Ok(Settled::Read) => {
                self.tally.reads += 1;
                self.live.reads.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Settled::Write) => {
                self.tally.settled(Outcome::Acknowledged);
                self.live.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Settled::Refused(refusal)) => {
                self.tally.refused(refusal);
                if is_write {
                    self.tally.settled(refusal.outcome);
                }
            }
            Err(_) if is_write => self.tally.settled(Outcome::Unknown),
            Err(_) => {}
        }
    }
}
