//! `doctor`: looks at everything a pool is made of, and says what is not as it should be, the gravest first.
//!
//! Each group of checks is a pure function from what was seen to findings: `etcd`, `pool`, `redis`, `memcached`,
//! `processes`. The looks are in `look`, each with a deadline; none of them changes anything that stays.
//! What cannot be looked at is a finding too. No finding holds a secret.

pub mod check;
#[cfg(feature = "etcd")]
mod etcd;
pub mod finding;
mod look;
mod memcached;
pub mod patient;
mod pool;
mod processes;
mod redis;

use std::time::Duration;

use tokio::time::Instant;

pub use check::{About, Check, Severity};
pub(crate) use finding::word;
pub use finding::{Finding, FindingText};
pub use patient::Patient;

use crate::admin::answer::{Moves, Status};
use crate::admin::clients::ClientList;
use crate::serve::config::StoreConfig;
use finding::{path_word, ranked};
use pool::{LiveSeen, NodeSeen, PoolSeen, ServerSeen};

/// What an admin API says.
#[derive(Clone, Debug)]
pub struct Told {
    /// The epoch of its record.
    pub epoch: u64,
    /// Its answer to `status`.
    pub status: Status,
    /// Its answer to `moves`.
    pub moves: Moves,
    /// Its answer to `clients`.
    pub clients: ClientList,
}

/// How a pool is.
#[derive(Clone, Debug)]
pub struct Report {
    /// The epoch of its record, where that could be read.
    pub epoch: Option<u64>,
    /// The gravest first.
    pub findings: Vec<Finding>,
    /// Nodes that were looked at.
    pub nodes: usize,
    /// Endpoints of etcd that were looked at.
    pub etcd_endpoints: usize,
    /// Processes that are registered.
    pub processes: usize,
}

/// Examines a patient. `told`: what its admin API says, or why it says nothing; `None` where it has none or its
/// address is not known. Nodes and etcd are looked at for `within`, once the record is read.
///
/// Must be called within a tokio runtime with a timer.
pub async fn examine(
    patient: &Patient,
    told: Option<Result<Told, String>>,
    within: Duration,
) -> Report {
    let mut report = Report {
        epoch: None,
        findings: processes::findings(&patient.process),
        nodes: 0,
        etcd_endpoints: 0,
        processes: 0,
    };
    let told = told.and_then(|told| match told {
        Ok(told) => Some(told),
        Err(why) => {
            let place = patient.admin().unwrap_or(&patient.process.place);
            let next = "start it: clockwise up, or clockwise serve --config FILE";
            report
                .findings
                .push(Finding::new(Check::ServerAway, place, why, next));
            None
        }
    });
    let (pool, clients) = look_at_record(patient, told.as_ref(), &mut report).await;
    let deadline = Instant::now() + within;
    if let Some(told) = &told {
        let live = LiveSeen::of(&told.status, &told.moves);
        report.findings.extend(pool::findings_live(&live));
    }
    if let Some(clients) = clients {
        report.processes = clients.clients.len();
        let found = processes::findings_of_clients(&clients, patient.has_one_writer());
        report.findings.extend(found);
    }
    let etcd = look_at_etcd(patient, deadline);
    match &pool {
        Some(pool) => {
            report.epoch = Some(pool.epoch);
            report.findings.extend(pool::findings(pool));
            let (etcd, nodes) = tokio::join!(etcd, look_at_nodes(patient, pool, deadline));
            report.findings.extend(etcd.0.into_iter().chain(nodes.0));
            (report.etcd_endpoints, report.nodes) = (etcd.1, nodes.1);
        }
        None => {
            let (found, looked) = etcd.await;
            report.findings.extend(found);
            report.etcd_endpoints = looked;
        }
    }
    report.findings = ranked(report.findings);
    report
}

/// The pool and those who are registered: by the record itself, or else by what the admin API says.
async fn look_at_record(
    patient: &Patient,
    told: Option<&Told>,
    report: &mut Report,
) -> (Option<PoolSeen>, Option<ClientList>) {
    let by_told = || {
        let pool = told.map(|told| PoolSeen::of_status(told.epoch, &told.status));
        (pool, told.map(|told| told.clients.clone()))
    };
    let Some((store, name, password)) = &patient.record else {
        return by_told();
    };
    match look::record::look(store, name, password.as_ref()).await {
        Ok(seen) => {
            let clients = seen.clients.inspect_err(|why| {
                let next = "clockwise clients";
                let found = Finding::new(Check::NotLookedAt, "registered processes", why, next);
                report.findings.push(found);
            });
            (Some(seen.pool), clients.ok())
        }
        Err(why) => {
            let next = format!("clockwise record history {}", patient.record_option(store));
            let found = Finding::new(Check::RecordAway, store.to_string(), why, next);
            report.findings.push(found);
            by_told()
        }
    }
}

async fn look_at_etcd(patient: &Patient, deadline: Instant) -> (Vec<Finding>, usize) {
    match &patient.record {
        Some((StoreConfig::Etcd(config), pool, password)) => {
            look::etcd::findings(config, pool, password.as_ref(), deadline).await
        }
        _ => (Vec::new(), 0),
    }
}

async fn look_at_nodes(
    patient: &Patient,
    pool: &PoolSeen,
    deadline: Instant,
) -> (Vec<Finding>, usize) {
    if patient.embedded {
        let next = "begin another folder with real servers: `clockwise up --engine redis`";
        let what = "engine embedded";
        return (
            vec![Finding::new(Check::EmbeddedNodes, "nodes", what, next)],
            0,
        );
    }
    let (mut found, servers, left) = match pool.memcached {
        true => look_at_memcached(pool, deadline).await,
        false => look_at_redis(patient, pool, deadline).await,
    };
    found.extend(pool::findings_between(&servers));
    found.extend(left.into_iter().map(|node| {
        let next = "look again with more time: --within 300";
        Finding::new(Check::NotLookedAt, node.place(), "time was up", next)
    }));
    (found, servers.len())
}

type NodesSeen<'a> = (Vec<Finding>, Vec<ServerSeen>, Vec<&'a NodeSeen>);

async fn look_at_redis<'a>(
    patient: &Patient,
    pool: &'a PoolSeen,
    deadline: Instant,
) -> NodesSeen<'a> {
    let look = |node| look::redis::look(node, &patient.login);
    let (seen, left) = look::each(&pool.nodes, deadline, look).await;
    let found = seen
        .iter()
        .flat_map(|seen| redis::findings(pool, &patient.hint, seen));
    let servers = seen.iter().map(|seen| {
        let said = seen.said.as_ref().ok();
        ServerSeen {
            place: seen.node.place(),
            id: seen.node.id.clone(),
            run_id: said.map(|said| said.facts.identity.run_id.clone()),
            clock: said.and_then(|said| said.clock),
        }
    });
    (found.collect(), servers.collect(), left)
}

async fn look_at_memcached(pool: &PoolSeen, deadline: Instant) -> NodesSeen<'_> {
    let (seen, left) = look::each(&pool.nodes, deadline, look::memcached::look).await;
    let servers = seen.iter().map(|(seen, clock)| ServerSeen {
        place: seen.node.place(),
        id: seen.node.id.clone(),
        run_id: seen.said.as_ref().ok().and_then(|said| said.run_id.clone()),
        clock: *clock,
    });
    let servers = servers.collect();
    let seen: Vec<_> = seen.into_iter().map(|(seen, _)| seen).collect();
    (memcached::findings(&seen), servers, left)
}

impl Patient {
    /// How `record` is told of its store.
    fn record_option(&self, store: &StoreConfig) -> String {
        match &self.config {
            Some(file) => format!("--config {}", path_word(file)),
            None => format!("--store {}", word(&store.to_string())),
        }
    }

    /// Whether its store lets one process write: then nobody else could lead.
    fn has_one_writer(&self) -> bool {
        !matches!(&self.record, Some((StoreConfig::Etcd(_), ..)))
    }
}
