//! Serving the admin API: one listener, the guard in front of everything, JSON in and out.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::{Router, serve};
use clockwise_client::credentials::Password;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::guard::{self, BODY_BYTES_MAX, Guard};
use super::refusal::{Code, Refusal};

/// A running admin API.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<io::Result<()>>,
}

impl AdminServer {
    /// Serves these calls on `bind`, port 0 allowed; those that change something need `token`.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn start(bind: SocketAddr, token: Password, calls: Router) -> io::Result<Self> {
        let listener = TcpListener::bind(bind).await?;
        let address = listener.local_addr()?;
        let app = calls
            .fallback(async || Refusal::new(Code::NotFound, "there is no such call".to_owned()))
            .method_not_allowed_fallback(async || {
                Refusal::new(
                    Code::MethodNotAllowed,
                    "this call is made with the other method".to_owned(),
                )
            })
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .layer(from_fn_with_state(Guard::new(address, token), guard::apply));
        let (stop, mut stopped) = watch::channel(false);
        let until_stopped = async move {
            // A dropped sender means the same as a signal: nobody serves this API any more.
            let _gone = stopped.wait_for(|stop| *stop).await;
        };
        let task = tokio::spawn(async move {
            serve(listener, app)
                .with_graceful_shutdown(until_stopped)
                .await
        });
        Ok(Self {
            address,
            stop,
            task,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more calls and gives those under way this long to end.
    pub async fn stop(mut self, within: Duration) {
        self.stop.send_replace(true);
        if timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

/// Reads a request's body, which the guard has found to be declared as JSON.
///
/// # Errors
/// [`Code::TooLarge`] beyond 1 MiB, [`Code::Invalid`] where the JSON is not what the call takes.
pub(super) fn parse<T: DeserializeOwned>(
    body: Result<Bytes, BytesRejection>,
) -> Result<T, Refusal> {
    let body = body.map_err(|rejection| {
        let code = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Code::TooLarge,
            _ => Code::Invalid,
        };
        Refusal::new(code, rejection.body_text())
    })?;
    serde_json::from_slice(&body).map_err(|error| {
        Refusal::new(
            Code::Invalid,
            format!("the body is not what this call takes: {error}"),
        )
    })
}
