//! Calls to an etcd cluster: one endpoint after the other until one answers or the time is up.
//!
//! A call is repeated on another endpoint even if the first may have carried it out, so every
//! request that writes must be a transaction that can take effect once only. The answer says
//! whether it was repeated.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::super::OpenError;
use super::failure::{Effect, Failure, Trouble};
use super::options::{EtcdOptions, EtcdUser};
use super::pause::jittered;
use super::proto::{
    AuthenticateRequest, AuthenticateResponse, LeaseGrantRequest, LeaseRequest, LeaseResponse,
    RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest,
    WatchResponse,
};

const RANGE: &str = "/etcdserverpb.KV/Range";
const DELETE_RANGE: &str = "/etcdserverpb.KV/DeleteRange";
const TXN: &str = "/etcdserverpb.KV/Txn";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// A record of 1 MiB, or a part of a watch's answer at etcd's default limit of 1.5 MiB and what
/// it adds to that, with room to spare.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Two records of 1 MiB at most.
const REQUEST_BYTES_MAX: usize = 3 << 20;
/// After each endpoint was tried in vain.
const LAP_PAUSE: Duration = Duration::from_millis(100);
/// Times as long as another attempt a login may take: etcd compares passwords slowly on purpose.
const LOGIN_FACTOR: u32 = 4;
/// A password that was changed while we log in costs one more turn.
const LOGINS_PER_CALL_MAX: usize = 2;

pub(super) struct Connection {
    members: Vec<Member>,
    /// The member that answered last; counted on, never back, and taken modulo their number.
    current: AtomicUsize,
    user: Mutex<Option<EtcdUser>>,
    token: Mutex<Option<Token>>,
    attempt_timeout: Duration,
}

type Token = MetadataValue<Ascii>;

struct Member {
    url: String,
    channel: Channel,
}

/// What etcd answered.
#[derive(Debug)]
pub(super) struct Answer<A> {
    pub(super) message: A,
    /// An earlier attempt at the same call may have been carried out.
    pub(super) repeated: bool,
}

/// The attempts of one call.
#[derive(Default)]
struct Attempts {
    reasons: Vec<String>,
    count: usize,
    unanswered: bool,
    logins: usize,
}

impl Connection {
    /// Connects to nothing yet, but must be called within a tokio runtime.
    pub(super) fn new(options: &EtcdOptions) -> Result<Connection, OpenError> {
        options.check()?;
        let member = |url: &String| -> Result<Member, OpenError> {
            Ok(Member {
                url: url.clone(),
                channel: options.endpoint(url)?.connect_lazy(),
            })
        };
        Ok(Connection {
            members: options
                .endpoints
                .iter()
                .map(member)
                .collect::<Result<_, _>>()?,
            current: AtomicUsize::new(0),
            user: Mutex::new(options.user.clone()),
            token: Mutex::new(None),
            attempt_timeout: options.attempt_timeout,
        })
    }

    pub(super) async fn range(
        &self,
        request: RangeRequest,
        deadline: Instant,
    ) -> Result<RangeResponse, Failure> {
        let answer = self.call(RANGE, request, deadline).await?;
        Ok(answer.message)
    }

    /// May be carried out twice, so it must compare what it changes.
    pub(super) async fn txn(
        &self,
        request: TxnRequest,
        deadline: Instant,
    ) -> Result<Answer<TxnResponse>, Failure> {
        self.call(TXN, request, deadline).await
    }

    pub(super) async fn delete(
        &self,
        request: super::proto::DeleteRangeRequest,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let _done: Answer<super::proto::Done> = self.call(DELETE_RANGE, request, deadline).await?;
        Ok(())
    }

    /// A grant that is repeated leaves a lease behind that nobody renews.
    pub(super) async fn grant(
        &self,
        ttl_s: i64,
        deadline: Instant,
    ) -> Result<LeaseResponse, Failure> {
        let request = LeaseGrantRequest { ttl_s };
        let answer = self.call(LEASE_GRANT, request, deadline).await?;
        Ok(answer.message)
    }

    /// Renews a lease. One request and one answer of a stream that ends with them.
    pub(super) async fn keep_alive(
        &self,
        id: i64,
        deadline: Instant,
    ) -> Result<LeaseResponse, Failure> {
        let request = LeaseRequest { id };
        let answer = self.call(LEASE_KEEP_ALIVE, request, deadline).await?;
        Ok(answer.message)
    }

    /// Ends a lease, and with it the keys that hang on it. One that has ended is refused.
    pub(super) async fn revoke(&self, id: i64, deadline: Instant) -> Result<(), Failure> {
        let request = LeaseRequest { id };
        let _done: Answer<super::proto::Done> = self.call(LEASE_REVOKE, request, deadline).await?;
        Ok(())
    }

    /// Opens a watch on one endpoint. It must be of a member that knows a leader, and the watch
    /// ends when it does not any more: a member that was cut off would stay silent.
    pub(super) async fn watch(
        &self,
        create: WatchCreateRequest,
        deadline: Instant,
    ) -> Result<Streaming<WatchResponse>, Failure> {
        let member = self.member();
        let mut attempts = Attempts::default();
        loop {
            let opened = self.open_watch(member, create.clone(), deadline).await;
            match opened {
                Ok(stream) => return Ok(stream),
                Err(Trouble::TokenForgotten(why)) if self.may_log_in_again(&mut attempts) => {
                    tracing::debug!(endpoint = %member.url, why, "logging in to etcd again");
                }
                Err(trouble) => {
                    self.turn();
                    return Err(attempts.end(member, trouble));
                }
            }
        }
    }

    async fn open_watch(
        &self,
        member: &Member,
        create: WatchCreateRequest,
        deadline: Instant,
    ) -> Result<Streaming<WatchResponse>, Trouble> {
        let create = WatchRequest {
            create: Some(create),
        };
        // The stream stays open after the request: its end would end the watch.
        let requests = tokio_stream::once(create).chain(tokio_stream::pending());
        let mut request = self.with_token(member, requests, deadline).await?;
        let leader = MetadataValue::from_static("true");
        request.metadata_mut().insert("hasleader", leader);
        let mut grpc = grpc(member);
        let opening = async {
            ready(&mut grpc).await?;
            let path = PathAndQuery::from_static(WATCH);
            grpc.streaming(request, path, ProstCodec::default()).await
        };
        let response = self.limit(deadline).within(opening).await?;
        Ok(response.into_inner())
    }

    /// Another endpoint comes first from now on.
    pub(super) fn turn(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    fn member(&self) -> &Member {
        &self.members[self.current.load(Ordering::Relaxed) % self.members.len()]
    }

    fn limit(&self, deadline: Instant) -> Limit {
        Limit::new(self.attempt_timeout, deadline)
    }

    pub(super) async fn call<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        deadline: Instant,
    ) -> Result<Answer<A>, Failure>
    where
        Q: Message + Clone + Default + 'static,
        A: Message + Default + 'static,
    {
        let mut attempts = Attempts::default();
        loop {
            let member = self.member();
            let trouble = match self.attempt(member, path, request.clone(), deadline).await {
                Ok(message) => {
                    return Ok(Answer {
                        message,
                        repeated: attempts.unanswered,
                    });
                }
                Err(trouble) => trouble,
            };
            match trouble {
                Trouble::TokenForgotten(_) if self.may_log_in_again(&mut attempts) => continue,
                Trouble::Refused(_) | Trouble::TokenForgotten(_) => {
                    return Err(attempts.end(member, trouble));
                }
                Trouble::NotDone(_) | Trouble::Unanswered(_) => attempts.note(member, trouble),
            }
            self.turn();
            if attempts.count.is_multiple_of(self.members.len()) {
                sleep_until(deadline.min(Instant::now() + jittered(LAP_PAUSE))).await;
            }
            if Instant::now() >= deadline {
                return Err(attempts.timed_out());
            }
        }
    }

    async fn attempt<Q, A>(
        &self,
        member: &Member,
        path: &'static str,
        message: Q,
        deadline: Instant,
    ) -> Result<A, Trouble>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let request = self.with_token(member, message, deadline).await?;
        self.send(member, path, request, self.limit(deadline)).await
    }

    async fn send<Q, A>(
        &self,
        member: &Member,
        path: &'static str,
        request: Request<Q>,
        limit: Limit,
    ) -> Result<A, Trouble>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = grpc(member);
        let call = async {
            ready(&mut grpc).await?;
            let path = PathAndQuery::from_static(path);
            grpc.unary(request, path, ProstCodec::default()).await
        };
        let response = limit.within(call).await?;
        Ok(response.into_inner())
    }

    async fn with_token<T>(
        &self,
        member: &Member,
        message: T,
        deadline: Instant,
    ) -> Result<Request<T>, Trouble> {
        let mut request = Request::new(message);
        if let Some(user) = self.user() {
            let known = self.token().clone();
            let token = match known {
                Some(token) => Some(token),
                None => self.log_in(member, &user, deadline).await?,
            };
            if let Some(token) = token {
                request.metadata_mut().insert("token", token);
            }
        }
        Ok(request)
    }

    /// `None` where etcd asks nobody for a password.
    async fn log_in(
        &self,
        member: &Member,
        user: &EtcdUser,
        deadline: Instant,
    ) -> Result<Option<Token>, Trouble> {
        let limit = Limit::new(self.attempt_timeout.saturating_mul(LOGIN_FACTOR), deadline);
        let login = AuthenticateRequest {
            name: user.name.clone(),
            password: user.password.reveal().to_owned(),
        };
        let answer = self
            .send(member, AUTHENTICATE, Request::new(login), limit)
            .await;
        let answer: AuthenticateResponse = match answer {
            Ok(answer) => answer,
            Err(Trouble::Refused(why)) if why.contains("authentication is not enabled") => {
                return Ok(None);
            }
            // Logging in changes nothing, so it can always be tried again.
            Err(Trouble::Unanswered(why)) => return Err(Trouble::NotDone(why)),
            Err(trouble) => return Err(trouble),
        };
        let mut token: Token = answer
            .token
            .parse()
            .map_err(|_| Trouble::Refused("etcd gave a token that cannot be sent".to_owned()))?;
        token.set_sensitive(true);
        *self.token() = Some(token.clone());
        Ok(Some(token))
    }

    fn may_log_in_again(&self, attempts: &mut Attempts) -> bool {
        attempts.logins += 1;
        *self.token() = None;
        self.user().is_some() && attempts.logins <= LOGINS_PER_CALL_MAX
    }

    /// Logs in as another user, and goes on as that one once a member has let it in.
    pub(super) async fn log_in_as(&self, user: EtcdUser, deadline: Instant) -> Result<(), Failure> {
        let mut attempts = Attempts::default();
        for _ in &self.members {
            let member = self.member();
            match self.log_in(member, &user, deadline).await {
                Ok(_token) => {
                    *self.user.lock().unwrap_or_else(PoisonError::into_inner) = Some(user);
                    return Ok(());
                }
                Err(Trouble::NotDone(why)) => attempts.note(member, Trouble::NotDone(why)),
                Err(trouble) => return Err(attempts.end(member, trouble)),
            }
            self.turn();
        }
        Err(attempts.timed_out())
    }

    fn user(&self) -> Option<EtcdUser> {
        let user = self.user.lock().unwrap_or_else(PoisonError::into_inner);
        user.clone()
    }

    fn token(&self) -> std::sync::MutexGuard<'_, Option<Token>> {
        // One assignment each, so a panic elsewhere leaves it whole.
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempts {
    fn note(&mut self, member: &Member, trouble: Trouble) {
        self.count += 1;
        let why = match trouble {
            Trouble::Unanswered(why) => {
                self.unanswered = true;
                why
            }
            Trouble::NotDone(why) | Trouble::TokenForgotten(why) | Trouble::Refused(why) => why,
        };
        let reason = format!("{}: {why}", member.url);
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    /// The call is not tried again after this.
    fn end(mut self, member: &Member, trouble: Trouble) -> Failure {
        match trouble {
            Trouble::NotDone(_) | Trouble::Unanswered(_) => {
                self.note(member, trouble);
                self.timed_out()
            }
            Trouble::Refused(why) | Trouble::TokenForgotten(why) if self.unanswered => Failure {
                effect: Effect::Unknown,
                why: format!("{}: {why}", member.url),
            },
            Trouble::Refused(why) => Failure {
                effect: Effect::Refused,
                why: format!("{}: {why}", member.url),
            },
            Trouble::TokenForgotten(why) => Failure {
                effect: Effect::Refused,
                why: format!(
                    "{}: {why}; configure a user and password that this etcd knows",
                    member.url
                ),
            },
        }
    }

    fn timed_out(self) -> Failure {
        let reasons = self.reasons.join("; ");
        Failure {
            effect: if self.unanswered {
                Effect::Unknown
            } else {
                Effect::None
            },
            why: format!("{reasons}; see `etcdctl endpoint health --cluster`"),
        }
    }
}

fn grpc(member: &Member) -> Grpc<Channel> {
    Grpc::new(member.channel.clone())
        .max_decoding_message_size(ANSWER_BYTES_MAX)
        .max_encoding_message_size(REQUEST_BYTES_MAX)
}

async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready()
        .await
        .map_err(|error| Status::from_error(error.into()))
}

/// How long one attempt waits for its answer.
#[derive(Clone, Copy)]
struct Limit {
    of: Duration,
    until: Instant,
}

impl Limit {
    /// From now on, and never beyond the call's own deadline.
    fn new(of: Duration, deadline: Instant) -> Self {
        let until = deadline.min(Instant::now() + of);
        Self { of, until }
    }

    async fn within<T>(self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Trouble> {
        match timeout_at(self.until, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) => Err(Trouble::from_status(&status)),
            Err(_) => {
                let limit_ms = self.of.as_millis();
                Err(Trouble::Unanswered(format!(
                    "no answer within {limit_ms} ms"
                )))
            }
        }
    }
}
