//! What a monitoring system asks: whether this process lives, whether it can serve, and its numbers.
//!
//! The numbers are read when they are asked for; nothing is kept for them. No key is ever a label, and what is a
//! label (nodes, the sources of a move) is bounded by the record.

use std::fmt;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Json, extract::State};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use serde::Serialize;

use super::calls::Shared;
use super::refusal::{Code, Refusal};
use super::service::Service;
use crate::rebalancer::{Door, HandoffProgress, Progress};
use crate::router::{NodeStats, RouterStats};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /healthz`: the process lives.
pub(super) async fn health() -> &'static str {
    "ok\n"
}

/// What `GET /readyz` answers.
#[derive(Serialize)]
struct Readiness {
    ready: bool,
    checks: Vec<Check>,
}

#[derive(Serialize)]
struct Check {
    name: &'static str,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Check {
    fn new(name: &'static str, trouble: Option<String>) -> Self {
        Self {
            name,
            ready: trouble.is_none(),
            why: trouble,
        }
    }
}

/// `GET /readyz`: 200 where clients can be sent here, else 503; the body says why. A node that is away does
/// not count: other keys are served.
pub(super) async fn readiness(State(service): Shared) -> Response {
    let mut checks = Vec::new();
    if service.router.is_some() {
        let unrouted = match service.traffic().epoch {
            _ if *service.draining.borrow() => Some("this process ends".to_owned()),
            Some(_) => service.discord.borrow().as_deref().map(str::to_owned),
            None => Some("the router has no view of the pool yet".to_owned()),
        };
        checks.push(Check::new("router", unrouted));
    }
    let trouble = service.trouble.borrow().as_ref().map(ToString::to_string);
    checks.push(Check::new("store", trouble));
    let ready = checks.iter().all(|check| check.ready);
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(Readiness { ready, checks })).into_response()
}

/// `GET /metrics`: the numbers in the text format of OpenMetrics, as Prometheus reads it.
pub(super) async fn metrics(State(service): Shared) -> Response {
    let mut registry = Registry::with_prefix("clockwise");
    registry.register_collector(Box::new(Snapshot::of(&service)));
    let mut page = String::new();
    match text::encode(&mut page, &registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], page).into_response(),
        Err(error) => {
            let words = format!("the metrics cannot be written: {error}");
            Refusal::new(Code::Failed, words).into_response()
        }
    }
}

/// All the numbers at one moment.
#[derive(Debug)]
struct Snapshot {
    router: RouterStats,
    rebalancer: Progress,
    store_ready: bool,
}

impl Snapshot {
    fn of(service: &Service) -> Self {
        Self {
            router: service.traffic(),
            rebalancer: service.own_progress(),
            store_ready: service.trouble.borrow().is_none(),
        }
    }

    fn router(&self, page: &mut Page<'_>) -> fmt::Result {
        let router = &self.router;
        let epoch = router.epoch.map_or(0, clockwise_cluster::Epoch::get);
        page.gauge("epoch", "Lowest epoch that the router routes by", epoch)?;
        page.gauge("clients", "Clients connected", router.clients as u64)?;
        page.counter(
            "clients_refused",
            "Clients sent away because there were too many",
            router.clients_refused,
        )?;
        page.counter(
            "clients_dropped",
            "Clients dropped for not reading, not sending, or sending what is no request",
            router.clients_dropped,
        )?;
        page.counter(
            "requests",
            "Requests of clients, whoever answered them",
            router.requests,
        )?;
        page.counter(
            "requests_refused",
            "Requests that the router answered with an error of its own",
            router.refused,
        )?;
        page.gauge(
            "requests_held",
            "Requests held for keys that are being handed over",
            router.held as u64,
        )?;
        page.seconds(
            "hold_longest",
            "Longest that a request was held or waited for a handover",
            router.hold_ms_max,
        )
    }

    fn nodes(&self, page: &mut Page<'_>) -> fmt::Result {
        let nodes = |of: fn(&NodeStats) -> u64| {
            let nodes = self.router.nodes.iter();
            nodes.map(move |(id, node)| ([("node", id.to_string())], of(node)))
        };
        page.counters(
            "node_requests",
            "Requests sent to a node",
            nodes(|node| node.requests),
        )?;
        page.counters(
            "node_errors",
            "Requests that got no answer of their node",
            nodes(|node| node.errors),
        )?;
        page.gauges(
            "node_connections",
            "Open connections to a node",
            nodes(|node| node.connections as u64),
        )?;
        let doors = self.rebalancer.doors.iter();
        page.gauges(
            "node_open",
            "Whether a node lets its clients in",
            doors.map(|(id, door)| ([("node", id.to_string())], open(door))),
        )
    }

    fn rebalancer(&self, page: &mut Page<'_>) -> fmt::Result {
        page.gauge(
            "store_ready",
            "Whether the record can be read",
            self.store_ready.into(),
        )?;
        let term = self.rebalancer.term;
        page.gauge(
            "leads",
            "Whether this process leads the pool",
            term.is_some().into(),
        )?;
        page.gauge(
            "term",
            "Term under which this process leads, 0 while it does not",
            term.map_or(0, clockwise_cluster::Term::get),
        )?;
        let change = self.rebalancer.change.as_ref();
        page.gauge(
            "change_running",
            "Whether a change of the pool is under way",
            change.is_some().into(),
        )?;
        let handoffs = |of: fn(&HandoffProgress) -> u64| {
            let handoffs = change.into_iter().flat_map(|change| &change.handoffs);
            handoffs.map(move |handoff| {
                let state = handoff.state.to_string();
                let labels = [("source", handoff.id.source.to_string()), ("state", state)];
                (labels, of(handoff))
            })
        };
        page.gauges(
            "move_keys_copied",
            "Keys that the running change has copied from a source, repeats counted",
            handoffs(|handoff| handoff.keys_copied),
        )?;
        page.gauges(
            "move_bytes_copied",
            "Bytes that the running change has copied from a source",
            handoffs(|handoff| handoff.bytes_copied),
        )?;
        page.gauges(
            "move_keys_different",
            "Keys that differed when the running change compared them",
            handoffs(|handoff| handoff.mismatches),
        )?;
        page.gauges(
            "move_stopped",
            "Whether a move stands still until a person has done something",
            handoffs(|handoff| handoff.stopped.is_some().into()),
        )
    }
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.router(&mut page)?;
        self.nodes(&mut page)?;
        self.rebalancer(&mut page)
    }
}

fn open(door: &Door) -> u64 {
    matches!(door, Door::Open { .. }).into()
}

/// The page that is being written, one family of numbers after another.
struct Page<'a>(DescriptorEncoder<'a>);

type Labels<const N: usize> = [(&'static str, String); N];

impl Page<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.one(name, help, None, &ConstGauge::new(signed(value)))
    }

    fn seconds(&mut self, name: &str, help: &str, milliseconds: u64) -> fmt::Result {
        let seconds = std::time::Duration::from_millis(milliseconds).as_secs_f64();
        self.one(name, help, Some(&Unit::Seconds), &ConstGauge::new(seconds))
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.one(name, help, None, &ConstCounter::new(value))
    }

    fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels<N>, u64)>,
    ) -> fmt::Result {
        let values = values.map(|(labels, value)| (labels, ConstGauge::new(signed(value))));
        self.each(name, help, MetricType::Gauge, values)
    }

    fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels<N>, u64)>,
    ) -> fmt::Result {
        let values = values.map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.each(name, help, MetricType::Counter, values)
    }

    fn one(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        metric: &impl EncodeMetric,
    ) -> fmt::Result {
        let kind = metric.metric_type();
        metric.encode(self.0.encode_descriptor(name, help, unit, kind)?)
    }

    /// One metric for each set of labels. The family stands there also where there is none.
    fn each<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        metrics: impl Iterator<Item = (Labels<N>, impl EncodeMetric)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, metric) in metrics {
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
