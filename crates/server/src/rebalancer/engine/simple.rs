//! Commands that are one round trip, or a few in a row, and need nothing of the copy's books.

use clockwise_cluster::Generation;
use clockwise_cluster::copier::Lane;
use clockwise_cluster::handoff::{
    Command, Event, FenceFailure, Identities, Identity, Party, Server,
};
use futures_util::future::{join_all, try_join_all};
use tokio::time::{Duration, sleep};

use super::super::preflight;
use super::super::station::{Link, StationError, StationHandle};
use super::super::translate;
use super::ops::{At, OpError};
use super::tracking::Listener;
use super::{Answer, Done, Engine, Handoff, Job, walk};
use crate::driver::DriverError;

/// Why a command got no answer.
enum Failure {
    Op(OpError),
    Station(Server, StationError),
}

impl From<OpError> for Failure {
    fn from(error: OpError) -> Self {
        Self::Op(error)
    }
}

impl Answer {
    fn of(event: Event) -> Self {
        Self::Event(Box::new(event))
    }
}

/// Open sessions of a handoff.
struct Links {
    handoff: Handoff,
    source: Option<Link>,
    targets: Vec<Option<Link>>,
}

impl Links {
    fn source(&self) -> Result<&Link, Failure> {
        self.source
            .as_ref()
            .ok_or(Failure::Station(Server::Source, StationError::Gone))
    }

    /// The targets with an open session, and their lanes.
    fn targets(&self) -> Vec<(Lane, Link)> {
        let numbered = (0_u16..).zip(&self.targets);
        numbered
            .filter_map(|(at, link)| Some((Lane(at), link.clone()?)))
            .collect()
    }

    fn station(&self, at: Server) -> Result<StationHandle, Failure> {
        self.handoff
            .station(at)
            .map_err(|error| Failure::Station(at, error))
    }
}

impl Engine {
    pub(super) fn begin_simple(&mut self, command: Command) {
        self.job = Job::Answer;
        // What is dirty now is copied while the old connections leave: less is left for the fence.
        if matches!(command, Command::Prepare | Command::CountOld { .. }) {
            self.copier.begin_round();
        }
        // So does what nobody tells of.
        if matches!(command, Command::Prepare) {
            self.begin_parts();
        }
        let links = Links {
            handoff: self.handoff.clone(),
            source: self.source.clone(),
            targets: self.targets.clone(),
        };
        let cursor = self.cursor;
        self.trips.push(Box::pin(async move {
            Done::Answered(match answer(links, command, cursor).await {
                Ok(answer) => answer,
                Err(Failure::Op(error)) => Answer::Failed(error),
                Err(Failure::Station(at, error)) => Answer::of(Event::Broken {
                    at,
                    why: error.to_string(),
                }),
            })
        }));
    }

    pub(super) async fn answered(&mut self, answer: Answer) {
        if self.failed {
            return;
        }
        match answer {
            Answer::Event(event) if matches!(*event, Event::Broken { .. }) => self.fail(*event),
            Answer::Event(event) => self.answer(*event),
            Answer::Opened(source, targets) => {
                self.source = source;
                self.targets = targets;
                self.cursor = 0;
                self.answer(Event::Opened);
            }
            Answer::Tracking(listener) => {
                self.listener = Some(listener);
                self.answer(Event::Tracking);
            }
            Answer::Cleaned { removed, next } => {
                self.count_removed(removed);
                self.cursor = next.unwrap_or(0);
                self.answer(Event::Cleaned {
                    removed,
                    finished: next.is_none(),
                });
            }
            Answer::Failed(error) => self.broke(error).await,
        }
    }
}

async fn answer(links: Links, command: Command, cursor: u64) -> Result<Answer, Failure> {
    let event = match command {
        Command::Inspect => match preflight::look(&links.handoff).await {
            Some(facts) => Event::Inspected(facts),
            None => return Err(Failure::Station(Server::Source, StationError::Gone)),
        },
        Command::Open(party) => return open(links, party).await,
        Command::Identify => Event::Identified(identify(&links).await?),
        Command::Sweep => Event::Swept {
            removed: sweep(&links).await?,
        },
        Command::Track => {
            let tracker = links.source()?.session.track().await.at(Server::Source)?;
            return Ok(Answer::Tracking(Listener::start(tracker)));
        }
        Command::Prepare => return prepare(links).await,
        Command::CountOld {
            generation,
            after_ms,
        } => {
            sleep(Duration::from_millis(after_ms)).await;
            let below = translate::generation(generation);
            let count = links
                .source()?
                .session
                .connections_below(below)
                .await
                .at(Server::Source)?;
            Event::OldConnections(count as u64)
        }
        Command::Fence(generation) => return fence(links, generation).await,
        Command::DurableSource => {
            let source = links.source()?;
            source.session.durable().await.at(Server::Source)?;
            Event::Durable
        }
        Command::Durable => {
            let targets = links.targets();
            let durable = |(lane, link): &(Lane, Link)| {
                let (lane, session) = (*lane, link.session.clone());
                async move { session.durable().await.at(Server::Target(lane)) }
            };
            try_join_all(targets.iter().map(durable)).await?;
            Event::Durable
        }
        Command::Clean => {
            return clean(&links, Server::Source, links.source()?.clone(), cursor).await;
        }
        Command::Purge(lane) => {
            let at = Server::Target(lane);
            let link = links.targets.get(usize::from(lane.0)).cloned().flatten();
            return clean(
                &links,
                at,
                link.ok_or(Failure::Station(at, StationError::Gone))?,
                cursor,
            )
            .await;
        }
        other => unreachable!("{other:?} is answered elsewhere"),
    };
    Ok(Answer::of(event))
}

async fn open(mut links: Links, party: Party) -> Result<Answer, Failure> {
    let lanes = || (0_u16..).take(links.handoff.targets.len()).map(Lane);
    let servers: Vec<Server> = match party {
        Party::All => std::iter::once(Server::Source)
            .chain(lanes().map(Server::Target))
            .collect(),
        Party::Targets => lanes().map(Server::Target).collect(),
        Party::Target(lane) => vec![Server::Target(lane)],
    };
    let opened = join_all(servers.iter().map(|&at| {
        let station = links.station(at);
        async move {
            station?
                .link()
                .await
                .map_err(|error| Failure::Station(at, error))
        }
    }));
    let opened = opened.await;
    links.source = None;
    links.targets.fill(None);
    for (at, link) in servers.into_iter().zip(opened) {
        match at {
            Server::Source => links.source = Some(link?),
            Server::Target(lane) => links.targets[usize::from(lane.0)] = Some(link?),
        }
    }
    Ok(Answer::Opened(links.source, links.targets))
}

async fn identify(links: &Links) -> Result<Identities, Failure> {
    let source = async {
        let Some(link) = &links.source else {
            return Ok(None);
        };
        let identity = identity(link, Server::Source).await?;
        let (keys, _) = link.session.size().await.at(Server::Source)?;
        Ok(Some((identity, keys)))
    };
    let targets = links.targets();
    let targets = try_join_all(
        targets
            .iter()
            .map(|(lane, link)| identity(link, Server::Target(*lane))),
    );
    let (source, targets) = futures_util::join!(source, targets);
    let source: Result<_, Failure> = source;
    Ok(Identities {
        source: source?,
        targets: targets?,
    })
}

async fn identity(link: &Link, at: Server) -> Result<Identity, Failure> {
    let found = link.session.identity().await.at(at)?;
    translate::identity(&found).map_err(|error| Failure::Station(at, error))
}

async fn sweep(links: &Links) -> Result<u64, Failure> {
    let sweeps = links.targets().into_iter().map(|(lane, link)| {
        let Handoff {
            view, id, targets, ..
        } = links.handoff.clone();
        let target = targets[usize::from(lane.0)].clone();
        walk::sweep(link, lane, view, id, target)
    });
    let removed = try_join_all(sweeps).await?;
    Ok(removed.into_iter().sum())
}

/// The targets' client users exist before the source's next one: clients connect there at once.
async fn prepare(links: Links) -> Result<Answer, Failure> {
    let admits = links.targets().into_iter().map(|(lane, _)| {
        let at = Server::Target(lane);
        let station = links.station(at);
        async move {
            station?
                .admit()
                .await
                .map_err(|error| Failure::Station(at, error))
        }
    });
    try_join_all(admits).await?;
    let station = links.station(Server::Source)?;
    let prepared = station
        .prepare()
        .await
        .map_err(|error| Failure::Station(Server::Source, error))?;
    let (generation, nonce) = (prepared.generation, prepared.nonce);
    Ok(Answer::of(Event::Prepared { generation, nonce }))
}

async fn fence(links: Links, generation: Generation) -> Result<Answer, Failure> {
    let station = links.station(Server::Source)?;
    let event = match station.fence(generation).await {
        Ok(()) => Event::Fenced,
        Err(StationError::Driver(DriverError::Busy { .. })) => {
            Event::FenceFailed(FenceFailure::Busy)
        }
        Err(StationError::Driver(DriverError::Refused { why, .. })) => {
            Event::FenceFailed(FenceFailure::Refused(why))
        }
        Err(error) => return Err(Failure::Station(Server::Source, error)),
    };
    Ok(Answer::of(event))
}

async fn clean(links: &Links, at: Server, link: Link, cursor: u64) -> Result<Answer, Failure> {
    let node = links.handoff.node(at).clone();
    let slice = walk::clean(links.handoff.mandate.clone(), link, at, node, cursor).await?;
    Ok(Answer::Cleaned {
        removed: slice.removed,
        next: slice.next,
    })
}
