//! The calls of the admin API. Each reads what it was given, asks the service, and answers in an envelope.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use clockwise_cluster::{Record, StagedId, Unstage};

use super::answer::{Answer, Envelope, Moves, NodeList, Plan, Route, StagedList, Status, Throttle};
use super::call::{
    AcceptCall, ApplyCall, EmptyCall, StageCall, StartCall, ThrottleCall, UnstageCall,
};
use super::clients::ClientList;
use super::elsewhere::{HERE, PROGRESS};
use super::http::parse;
use super::metrics;
use super::refusal::{Code, Refusal};
use super::service::Service;
use crate::rebalancer::Progress;

type Reply<T> = Result<Json<Envelope<T>>, Refusal>;
pub(super) type Shared = State<Arc<Service>>;

/// Every call of the API, below `/v1`, and what a monitoring system asks.
pub fn calls(service: Arc<Service>) -> Router {
    let v1 = Router::new()
        .route("/status", get(status))
        .route("/nodes", get(nodes).post(start_node))
        .route("/route", get(route))
        .route("/clients", get(clients))
        .route("/staged", get(staged))
        .route("/stage", post(stage))
        .route("/unstage", post(unstage))
        .route("/plan", get(plan))
        .route("/apply", post(apply))
        .route("/moves", get(moves))
        .route("/accept", post(accept))
        .route("/abort", post(abort))
        .route("/resume", post(resume))
        .route(&format!("/{PROGRESS}"), get(progress))
        .route(&format!("/{HERE}/abort"), post(abort_here))
        .route(&format!("/{HERE}/resume"), post(resume_here))
        .route("/throttle", get(throttle).post(set_throttle))
        .route("/shutdown", post(shutdown));
    Router::new()
        .nest("/v1", v1)
        .route("/healthz", get(metrics::health))
        .route("/readyz", get(metrics::readiness))
        .route("/metrics", get(metrics::metrics))
        .with_state(service)
}

fn reply<T: Answer>(record: &Record, answer: T) -> Reply<T> {
    Ok(Json(answer.at(record.epoch().get())))
}

async fn status(State(service): Shared) -> Reply<Status> {
    let (record, status) = service.status().await?;
    reply(&record, status)
}

async fn nodes(State(service): Shared) -> Reply<NodeList> {
    let (record, status) = service.status().await?;
    reply(
        &record,
        NodeList {
            nodes: status.nodes,
        },
    )
}

#[derive(Deserialize)]
struct KeyQuery {
    key: Option<String>,
    key_hex: Option<String>,
}

async fn route(State(service): Shared, Query(query): Query<KeyQuery>) -> Reply<Route> {
    let key = match (query.key, query.key_hex) {
        (Some(key), None) => key.into_bytes(),
        (None, Some(digits)) => from_hex(&digits)?,
        _ => {
            return Err(Refusal::new(
                Code::Invalid,
                "one of key and key_hex is needed".to_owned(),
            ));
        }
    };
    let (record, answer) = service.route(&key).await?;
    reply(&record, answer)
}

fn from_hex(digits: &str) -> Result<Vec<u8>, Refusal> {
    let wrong = || {
        Refusal::new(
            Code::Invalid,
            "key_hex is not an even number of hexadecimal digits".to_owned(),
        )
    };
    let nibble = |digit: u8| {
        char::from(digit)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some(nibble(high)? << 4 | nibble(low)?),
        _ => None,
    };
    pairs.map(|pair| byte(pair).ok_or_else(wrong)).collect()
}

async fn clients(State(service): Shared) -> Reply<ClientList> {
    let (record, clients) = service.clients().await?;
    reply(&record, clients)
}

async fn staged(State(service): Shared) -> Reply<StagedList> {
    let record = service.operator.record().await?;
    reply(&record, super::look::staged(&record))
}

async fn stage(State(service): Shared, body: Bytes) -> Reply<StagedList> {
    let call: StageCall = parse(&body)?;
    let record = service.operator.stage(&call.edits).await?;
    reply(&record, super::look::staged(&record))
}

async fn start_node(State(service): Shared, body: Bytes) -> Reply<StagedList> {
    let call: StartCall = parse(&body)?;
    let record = service.start_node(&call).await?;
    reply(&record, super::look::staged(&record))
}

async fn unstage(State(service): Shared, body: Bytes) -> Reply<StagedList> {
    let which = match parse(&body)? {
        UnstageCall::All => Unstage::All,
        UnstageCall::Edit(number) => Unstage::Edit(StagedId(number)),
        UnstageCall::Node(name) => {
            let wrong =
                |error| Refusal::new(Code::Invalid, format!("{name:?} is no node: {error}"));
            Unstage::Node(name.parse().map_err(wrong)?)
        }
    };
    let record = service.unstage(&which).await?;
    reply(&record, super::look::staged(&record))
}

async fn plan(State(service): Shared) -> Reply<Plan> {
    let (record, plan) = service.plan().await?;
    reply(&record, plan)
}

async fn apply(State(service): Shared, body: Bytes) -> Reply<Moves> {
    let call: ApplyCall = parse(&body)?;
    let record = service.apply(&call).await?;
    reply(&record, service.applied(&record).await)
}

async fn moves(State(service): Shared) -> Reply<Moves> {
    let record = service.operator.record().await?;
    reply(&record, service.moves(&record).await)
}

/// What this process itself does for the pool, for those that do not lead.
async fn progress(State(service): Shared) -> Json<Progress> {
    Json(service.own_progress())
}

/// What the two calls for the leader alone answer.
#[derive(Serialize)]
struct Begun {
    begun: bool,
}

async fn abort_here(State(service): Shared, body: Bytes) -> Result<Json<Begun>, Refusal> {
    let EmptyCall {} = parse(&body)?;
    service.abort_here().await?;
    Ok(Json(Begun { begun: true }))
}

async fn resume_here(State(service): Shared, body: Bytes) -> Result<Json<Begun>, Refusal> {
    let EmptyCall {} = parse(&body)?;
    service.resume_here().await?;
    Ok(Json(Begun { begun: true }))
}

async fn accept(State(service): Shared, body: Bytes) -> Reply<Moves> {
    let call: AcceptCall = parse(&body)?;
    let record = service.accept(&call).await?;
    let moves = service.accepted(&record, &call.id).await;
    reply(&record, moves)
}

async fn abort(State(service): Shared, body: Bytes) -> Reply<Moves> {
    let EmptyCall {} = parse(&body)?;
    let record = service.abort().await?;
    reply(&record, service.moves(&record).await)
}

async fn resume(State(service): Shared, body: Bytes) -> Reply<Moves> {
    let EmptyCall {} = parse(&body)?;
    let record = service.resume().await?;
    reply(&record, service.moves(&record).await)
}

async fn throttle(State(service): Shared) -> Reply<Throttle> {
    let record = service.operator.record().await?;
    reply(&record, super::look::throttle(&record))
}

async fn set_throttle(State(service): Shared, body: Bytes) -> Reply<Throttle> {
    let call: ThrottleCall = parse(&body)?;
    let record = service.operator.throttle(&call).await?;
    reply(&record, super::look::throttle(&record))
}

/// The server ends itself after it has answered.
#[derive(Serialize)]
struct Ending {
    process: u32,
}

async fn shutdown(State(service): Shared, body: Bytes) -> Result<Json<Ending>, Refusal> {
    let EmptyCall {} = parse(&body)?;
    service.shut_down();
    Ok(Json(Ending {
        process: std::process::id(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_keys_are_read_to_the_byte() {
        assert_eq!(from_hex("00fF7e").ok(), Some(vec![0, 255, 126]));
        assert_eq!(from_hex("").ok(), Some(vec![]));
        for wrong in ["0", "0g", "+1", "é0"] {
            assert!(from_hex(wrong).is_err(), "{wrong}");
        }
    }
}
