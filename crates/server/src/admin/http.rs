//! Serving the admin API: one listener, the guard in front of everything, JSON in and out.
//!
//! Nobody can make it wait or keep much: connections at a time, the bytes of a head and of a body, and the
//! time for each are bounded.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::guard::{self, BODY_BYTES_MAX, Guard};
use super::refusal::{Code, Refusal};
use super::token::Token;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// After a connection could not be accepted, for want of file descriptors for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What callers of the API may take up.
#[derive(Clone, Copy, Debug)]
pub struct AdminLimits {
    /// Connections at a time; more wait until one ends.
    pub connections_max: usize,
    /// How long a connection may take to send the head of its next request.
    pub head_within: Duration,
    /// How long a request's body may take to arrive.
    pub body_within: Duration,
    /// How long a call may take after that. Work that has begun goes on behind it.
    pub call_within: Duration,
}

impl Default for AdminLimits {
    fn default() -> Self {
        Self {
            connections_max: 64,
            head_within: Duration::from_secs(10),
            body_within: Duration::from_secs(10),
            // The command line waits a little longer.
            call_within: Duration::from_secs(25),
        }
    }
}

/// Where an admin API is going to be served: bound, so that nobody else can take the address meanwhile.
#[derive(Debug)]
pub struct AdminListener {
    listener: TcpListener,
    address: SocketAddr,
    known_as: Option<String>,
}

impl AdminListener {
    /// Binds an address, port 0 allowed.
    ///
    /// # Errors
    /// When it cannot be bound.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            known_as: None,
        })
    }

    /// Answers to this `HOST:PORT` too, by which others know the address.
    #[must_use]
    pub fn known_as(self, name: String) -> Self {
        let known_as = Some(name);
        Self { known_as, ..self }
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A running admin API.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    stop: CancellationToken,
    // Cancelled when the task has ended, however it did.
    ended: CancellationToken,
    task: JoinHandle<()>,
}

impl AdminServer {
    /// Serves these calls; those that change something need `token`. Must be called within a runtime.
    #[must_use]
    pub fn start(at: AdminListener, token: Token, calls: Router, limits: AdminLimits) -> Self {
        let AdminListener {
            listener,
            address,
            known_as,
        } = at;
        let guard = Guard::new(address, known_as, token);
        let app = calls
            .fallback(async || Refusal::new(Code::NotFound, "there is no such call".to_owned()))
            .method_not_allowed_fallback(async || {
                Refusal::new(
                    Code::MethodNotAllowed,
                    "this call is made with the other method".to_owned(),
                )
            })
            .layer(from_fn_with_state(limits, bound))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .layer(from_fn_with_state(guard, guard::apply));
        let stop = CancellationToken::new();
        let ended = CancellationToken::new();
        let (end, stopped) = (ended.clone().drop_guard(), stop.clone());
        let task = tokio::spawn(async move {
            let _end = end;
            serve(listener, app, limits, stopped).await;
        });
        Self {
            address,
            stop,
            ended,
            task,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns once it takes no more calls, for whatever reason: until it is stopped it should not.
    pub fn ended(&self) -> WaitForCancellationFutureOwned {
        self.ended.clone().cancelled_owned()
    }

    /// Takes no more calls and gives those under way this long to end.
    pub async fn stop(mut self, within: Duration) {
        self.stop.cancel();
        if timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

/// Accepts until it is stopped, then waits for the connections there are.
async fn serve(listener: TcpListener, app: Router, limits: AdminLimits, stop: CancellationToken) {
    let room = Arc::new(Semaphore::new(limits.connections_max));
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (listener.accept().await, place)
        };
        tokio::select! {
            () = stop.cancelled() => break,
            (accepted, place) = next => match accepted {
                Ok((stream, _)) => {
                    let (app, stop) = (app.clone(), stop.clone());
                    connections.spawn(async move {
                        connection(stream, app, limits, stop).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection to the admin API was not accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    connections.join_all().await;
}

/// Serves one connection; told to stop, it ends with the call under way.
async fn connection(stream: TcpStream, app: Router, limits: AdminLimits, stop: CancellationToken) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_within)
        .max_buf_size(HEAD_BYTES_MAX);
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut served = pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the admin API broke");
    }
}

/// Gives a call its body once that is whole, and ends the wait for one that takes too long. What the call has
/// begun goes on: half a change is none.
async fn bound(State(limits): State<AdminLimits>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let whole = Bytes::from_request(Request::from_parts(head.clone(), body), &());
    let body = match timeout(limits.body_within, whole).await {
        Ok(Ok(body)) => body,
        Ok(Err(rejection)) => {
            let refusal = match rejection.status() {
                StatusCode::PAYLOAD_TOO_LARGE => {
                    let words = format!("the body has more than {BODY_BYTES_MAX} bytes");
                    Refusal::new(Code::TooLarge, words)
                }
                _ => Refusal::new(Code::Invalid, rejection.body_text()),
            };
            return refusal.into_response();
        }
        Err(_) => {
            let words = "the body did not arrive in time".to_owned();
            return Refusal::new(Code::TimedOut, words).into_response();
        }
    };
    let call = next.run(Request::from_parts(head, body.into()));
    match timeout(limits.call_within, tokio::spawn(call)).await {
        Ok(Ok(response)) => response,
        Ok(Err(ended)) => {
            tracing::error!(error = %ended, "a call of the admin API failed");
            Refusal::new(Code::Failed, "the call failed".to_owned()).into_response()
        }
        Err(_) => {
            let words = "the call takes too long; it may still be carried out".to_owned();
            let refusal = Refusal::new(Code::TimedOut, words);
            refusal
                .with_next("clockwise status".to_owned())
                .into_response()
        }
    }
}

/// Reads a request's body, which has been found to be declared as JSON.
///
/// # Errors
/// [`Code::Invalid`] where the JSON is not what the call takes.
pub(super) fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    // A list would be taken for the fields of a call in their order, and an empty one for none.
    if body.trim_ascii_start().starts_with(b"[") {
        let words = "the body is a list, a call takes an object".to_owned();
        return Err(Refusal::new(Code::Invalid, words));
    }
    serde_json::from_slice(body).map_err(|error| {
        Refusal::new(
            Code::Invalid,
            format!("the body is not what this call takes: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use axum::routing::{get, post};
    use clockwise_client::credentials::Password;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::watch;

    use super::*;

    /// So long that only a limit of a test's own ends anything.
    const PATIENT: AdminLimits = AdminLimits {
        connections_max: 64,
        head_within: Duration::from_secs(600),
        body_within: Duration::from_secs(600),
        call_within: Duration::from_secs(600),
    };
    const SOON: Duration = Duration::from_millis(300);

    struct Api {
        server: AdminServer,
        token: String,
        slow: watch::Receiver<Slow>,
    }

    /// How far a call has got that takes its time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Slow {
        Idle,
        Begun,
        Done,
    }

    impl Api {
        async fn start(limits: AdminLimits) -> Self {
            let (state, slow) = watch::channel(Slow::Idle);
            let call = async move || {
                state.send_replace(Slow::Begun);
                sleep(SOON * 3).await;
                state.send_replace(Slow::Done);
            };
            let calls = Router::new()
                .route("/quick", get(async || "quick"))
                .route("/slow", post(call));
            let token = Password::generate().unwrap();
            let any = AdminListener::bind("127.0.0.1:0".parse().unwrap());
            let any = any.await.unwrap();
            Self {
                server: AdminServer::start(any, token.clone().into(), calls, limits),
                token: token.reveal().to_owned(),
                slow,
            }
        }

        async fn reached(&mut self, wanted: Slow) {
            self.slow.wait_for(|slow| *slow == wanted).await.unwrap();
        }

        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.server.address()).await.unwrap()
        }

        fn head(&self, line: &str, body_bytes: usize) -> String {
            format!(
                "{line} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
                 Content-Type: application/json\r\nContent-Length: {body_bytes}\r\n\r\n",
                self.server.address(),
                self.token
            )
        }

        /// What is answered until the connection ends.
        async fn send(&self, text: &str) -> String {
            let mut stream = self.connect().await;
            stream.write_all(text.as_bytes()).await.unwrap();
            answer(stream).await
        }
    }

    async fn answer(mut stream: TcpStream) -> String {
        let mut answer = Vec::new();
        // One that is cut off has said what it had to say.
        let _cut_off = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn a_head_that_does_not_end_costs_its_connection() {
        let api = Api::start(AdminLimits {
            head_within: SOON,
            ..PATIENT
        })
        .await;
        let whole = api.head("GET /quick", 0);
        assert!(api.send(&whole).await.starts_with("HTTP/1.1 200"));
        for half in ["", "GET /quick HTTP/1.1\r\nHost: x"] {
            let answer = api.send(half).await;
            assert!(!answer.contains("200"), "{half:?}: {answer}");
        }
        let large = format!("GET /quick HTTP/1.1\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        let answer = api.send(&large).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    }

    #[tokio::test]
    async fn a_body_that_does_not_end_is_refused() {
        let api = Api::start(AdminLimits {
            body_within: SOON,
            ..PATIENT
        })
        .await;
        let answer = api.send(&(api.head("POST /slow", 100) + "{")).await;
        assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
        assert!(answer.contains("did not arrive"), "{answer}");
        assert_eq!(*api.slow.borrow(), Slow::Idle, "nothing was begun");
    }

    #[tokio::test]
    async fn a_call_that_takes_too_long_is_answered_and_still_carried_out() {
        let mut api = Api::start(AdminLimits {
            call_within: SOON,
            ..PATIENT
        })
        .await;
        let answer = api.send(&(api.head("POST /slow", 2) + "{}")).await;
        assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
        assert!(answer.contains("may still be carried out"), "{answer}");
        api.reached(Slow::Done).await;
    }

    #[tokio::test]
    async fn connections_beyond_the_limit_wait_until_one_ends() {
        let api = Api::start(AdminLimits {
            connections_max: 2,
            head_within: SOON,
            ..PATIENT
        })
        .await;
        let idle = (api.connect().await, api.connect().await);
        let began = Instant::now();
        let answer = api.send(&api.head("GET /quick", 0)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(began.elapsed() >= SOON / 2, "it was served beside the two");
        drop(idle);
    }

    #[tokio::test]
    async fn stopping_waits_for_the_call_under_way() {
        let mut api = Api::start(PATIENT).await;
        let _idle = api.connect().await;
        let mut stream = api.connect().await;
        let call = api.head("POST /slow", 2) + "{}";
        stream.write_all(call.as_bytes()).await.unwrap();
        api.reached(Slow::Begun).await;
        let address = api.server.address();
        api.server.stop(SOON * 20).await;
        assert_eq!(*api.slow.borrow(), Slow::Done);
        assert!(answer(stream).await.starts_with("HTTP/1.1 200"));
        assert!(TcpStream::connect(address).await.is_err());
    }
}
