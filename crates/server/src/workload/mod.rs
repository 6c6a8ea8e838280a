//! A workload that checks what it is answered.
//!
//! Many connections write to keys of their own and read all keys. Every write is numbered, every
//! read is judged against what was acknowledged before it and sent until it was answered: see
//! `history`. What a key may hold is exact, because a key has one writer at a time.
//!
//! A fault is counted on its key once, and the key is left alone from then on; the audit after the
//! last write tells a late answer ([`FaultKind::Stale`]) from a lost write ([`FaultKind::Lost`]).
//! A write whose connection broke is *unknown*: both states are right until the next acknowledged
//! write. Its key rests meanwhile, since a router may still execute it.
//!
//! ```no_run
//! use clockwise::workload::{Workload, WorkloadOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = WorkloadOptions { rate: Some(5_000), ..WorkloadOptions::default() };
//! let workload = Workload::start(options).await?;
//! let before = workload.mark();
//! // … move some keys …
//! let after = workload.mark();
//! println!("{} writes during the move", after.since(&before).acknowledged_writes());
//! let report = workload.stop().await;
//! assert!(report.is_clean(), "{report}");
//! # Ok(())
//! # }
//! ```

mod answer;
mod audit;
mod chooser;
mod client;
mod clock;
mod connection;
mod counter;
mod direct;
mod entry;
mod fault;
mod finding;
mod history;
mod ledger;
mod making;
mod mark;
mod op;
mod options;
mod pace;
mod payload;
mod random;
mod report;
mod tally;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use audit::{Copies, ListError, NodeAccess};
pub use connection::Broken;
pub use direct::{DirectOptions, DirectWriter};
pub use fault::{Fault, FaultKind};
pub use mark::{Mark, Span};
pub use options::{Mix, StartError, WorkloadOptions};
pub use report::{DirectReport, FaultCounts, Latency, Pacing, Report};
pub use tally::ErrorCount;

use audit::read_all;
use chooser::Chooser;
use client::{Client, Live};
use connection::Target;
use entry::Writer;
use ledger::Ledger;
use making::make_keys;
use op::ExpiryCommand;
use pace::Pace;
use random::Random;
use report::described;
use tally::{Tally, micros};

/// A running workload. Dropping it ends it without a report.
#[derive(Debug)]
pub struct Workload {
    options: WorkloadOptions,
    ledger: Arc<Ledger>,
    live: Arc<Live>,
    target: Target,
    expiry: ExpiryCommand,
    clients: JoinSet<Tally>,
    direct: JoinSet<DirectReport>,
    direct_writers: usize,
    stop: CancellationToken,
    _stop_when_dropped: DropGuard,
    started: Instant,
}

impl Workload {
    /// Makes the keys and starts the connections, on the current tokio runtime. Returns when all
    /// keys exist.
    ///
    /// # Errors
    /// If the options contradict themselves, or the server is not there or refuses.
    pub async fn start(options: WorkloadOptions) -> Result<Workload, StartError> {
        options.check()?;
        let ledger = Arc::new(Ledger::new(&options));
        let target = Target {
            addr: options.addr.clone(),
            auth: options.auth.clone(),
            timeout: options.op_timeout,
        };
        let expiry = make_keys(&ledger, &target).await?;
        let stop = CancellationToken::new();
        let mut workload = Workload {
            ledger,
            live: Arc::default(),
            target,
            expiry,
            clients: JoinSet::new(),
            direct: JoinSet::new(),
            direct_writers: 0,
            _stop_when_dropped: stop.clone().drop_guard(),
            stop,
            started: Instant::now(),
            options,
        };
        for connection in 0..workload.options.connections {
            let client = workload.client(connection);
            workload.clients.spawn(client.run());
        }
        Ok(workload)
    }

    /// The names of the keys, in no special order.
    pub fn key_names(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.ledger.len()).map(|key| self.ledger.name(key))
    }

    /// Notes what has been acknowledged until now. Costs a lock and four bytes a key.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark {
            ledger: Arc::clone(&self.ledger),
            at: Instant::now(),
            acknowledged: self.live.acknowledged.load(Ordering::Relaxed),
            reads: self.live.reads.load(Ordering::Relaxed),
            per_key: self.ledger.acknowledged(),
        }
    }

    /// Keys on which a fault was seen so far.
    #[must_use]
    pub fn faults_so_far(&self) -> usize {
        self.ledger.faults().len()
    }

    /// A client that writes to one server, past the router, only keys whose names are chosen.
    ///
    /// Those keys are its own from now on: the workload's connections only read them, and judge
    /// what they read by what this client was acknowledged. It logs in again and again with the
    /// credential it was given, and goes on until it is stopped.
    pub fn write_directly(
        &mut self,
        options: DirectOptions,
        chosen: impl Fn(&[u8]) -> bool,
    ) -> DirectWriter {
        let writer = Writer::Direct(self.direct_writers);
        self.direct_writers += 1;
        let keys = self.ledger.claim(writer, chosen);
        let live = Arc::new(Live::default());
        let stop = self.stop.child_token();
        let stream = self.options.connections + self.direct_writers;
        let client = Client {
            ledger: Arc::clone(&self.ledger),
            live: Arc::clone(&live),
            target: Target {
                addr: options.addr.clone(),
                auth: options.auth,
                timeout: self.options.op_timeout,
            },
            expiry: self.expiry,
            chooser: Chooser::new(
                random(self.options.seed, stream),
                writer,
                options.mix,
                self.options.ttl_ms.clone(),
                keys.iter().copied(),
                &self.ledger,
            ),
            pace: match options.rate {
                Some(rate) => Pace::open(rate, 0, 1, Instant::now()),
                None => Pace::Closed,
            },
            pipeline: options.pipeline,
            stop: stop.clone(),
            tally: Tally::new(),
        };
        let count = keys.len();
        let addr = options.addr;
        self.direct
            .spawn(async move { DirectReport::new(addr, count, client.run().await) });
        DirectWriter::new(stop, live, count)
    }

    /// Ends the load, direct writers included, waits until no write can be executed any more, reads
    /// every key once more and reports.
    pub async fn stop(mut self) -> Report {
        self.stop.cancel();
        let mut tally = Tally::new();
        while let Some(ended) = self.clients.join_next().await {
            tally.add(&ended.expect("clients do not panic and are not aborted"));
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let mut direct = Vec::new();
        while let Some(ended) = self.direct.join_next().await {
            direct.push(ended.expect("clients do not panic and are not aborted"));
        }
        let rest_ms = self
            .ledger
            .rests_until_ms()
            .saturating_sub(self.ledger.clock.now_ms());
        sleep(Duration::from_millis(rest_ms)).await;
        let audited = read_all(&self.ledger, &self.target, self.expiry).await;
        let faults = self.ledger.faults();
        Report {
            seed: self.options.seed,
            pacing: self
                .options
                .rate
                .map_or(Pacing::Closed, |rate| Pacing::Open { rate }),
            seconds,
            connections: self.options.connections,
            keys: self.options.keys,
            acknowledged_writes: tally.acknowledged,
            reads: tally.reads,
            unknown_writes: tally.unknown,
            refused_writes: tally.not_executed,
            connects: tally.connects,
            faults: FaultCounts::count(&faults),
            keys_audited: audited.keys_read,
            keys_not_audited: audited.keys_unread,
            errors: tally.errors,
            read_latency: (&tally.read_us).into(),
            write_latency: (&tally.write_us).into(),
            own_delay_us_max: micros(tally.own_delay_max),
            direct,
            described: described(faults),
        }
    }

    /// Connections take turns with the routers.
    fn target_of(&self, connection: usize) -> Target {
        let more = &self.options.more_addrs;
        let turn = connection % (more.len() + 1);
        let addr = turn
            .checked_sub(1)
            .map_or(&self.options.addr, |at| &more[at]);
        Target {
            addr: addr.clone(),
            ..self.target.clone()
        }
    }

    fn client(&self, connection: usize) -> Client {
        let WorkloadOptions {
            connections,
            keys,
            seed,
            ..
        } = self.options;
        Client {
            ledger: Arc::clone(&self.ledger),
            live: Arc::clone(&self.live),
            target: self.target_of(connection),
            expiry: self.expiry,
            chooser: Chooser::new(
                random(seed, connection),
                Writer::Connection(connection),
                self.options.mix,
                self.options.ttl_ms.clone(),
                (connection..keys).step_by(connections),
                &self.ledger,
            ),
            pace: match self.options.rate {
                Some(rate) => Pace::open(rate, connection, connections, self.started),
                None => Pace::Closed,
            },
            pipeline: self.options.pipeline,
            stop: self.stop.clone(),
            tally: Tally::new(),
        }
    }
}

fn random(seed: u64, stream: usize) -> Random {
    Random::new(seed, u64::try_from(stream).unwrap_or(u64::MAX))
}
