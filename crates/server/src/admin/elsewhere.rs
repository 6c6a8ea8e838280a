//! Asking the process that leads, from one that does not.
//!
//! What is in the record every process can tell and change. What only the leader knows, how a move gets on from
//! second to second and whom each node lets in, and what only it can do, turn a change back or begin it again,
//! is asked of it over its own admin API, at the address that it has left in the store. What is asked is never
//! passed on again: an answer comes from the leader or not at all.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use clockwise_client::store::{Leader, ReadError, Store};
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;
use ureq::Agent;
use ureq::http::StatusCode;

use super::answer::LeaderStatus;
use super::call::EmptyCall;
use super::refusal::{Code, Refusal, RefusalBody};
use super::token::Token;
use crate::rebalancer::{LEADER, Progress};

const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Less than a caller of ours waits for a look.
const LOOK_WITHIN: Duration = Duration::from_secs(3);
/// Less than a caller of ours waits for a change, after a look.
const CHANGE_WITHIN: Duration = Duration::from_secs(18);
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// Where the leader says what it knows.
pub(super) const PROGRESS: &str = "progress";
/// Its calls that begin with this are for itself.
pub(super) const HERE: &str = "here";

/// The leader, wherever it is.
#[derive(Clone, Debug)]
pub(crate) struct Elsewhere {
    store: Arc<dyn Store>,
    // All processes of a pool have the same, or what is asked is refused.
    token: Token,
    agent: Agent,
}

/// What is known of whoever leads.
enum Known {
    /// Nobody does.
    Nobody,
    /// The store does not say.
    Unsaid(ReadError),
    /// Somebody does, and has told how far it is.
    Told(Leader, Box<Progress>),
    /// Somebody does, and cannot be asked.
    Silent(Leader, String),
}

/// What the leader knows, as far as it can be heard.
pub(super) struct Heard {
    pub(super) progress: Progress,
    /// Who leads, if anybody does.
    pub(super) leader: Option<LeaderStatus>,
    /// Why it is not known who leads.
    pub(super) unsaid: Option<ReadError>,
}

impl Elsewhere {
    /// The leader of the pool in this store.
    pub(crate) fn new(store: Arc<dyn Store>, token: Token) -> Self {
        let agent = Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_WITHIN))
            .build()
            .into();
        Self {
            store,
            token,
            agent,
        }
    }

    /// Asks it how far it is; where it does not say, `own` is all that is known.
    pub(super) async fn heard(&self, own: Progress) -> Heard {
        let known = self.progress().await;
        let leader = known.status();
        let (progress, unsaid) = match known {
            Known::Told(_, progress) => (*progress, None),
            Known::Unsaid(error) => (own, Some(error)),
            Known::Nobody | Known::Silent(..) => (own, None),
        };
        Heard {
            progress,
            leader,
            unsaid,
        }
    }

    async fn progress(&self) -> Known {
        let leader = match self.store.leader(LEADER).await {
            Ok(Some(leader)) => leader,
            Ok(None) => return Known::Nobody,
            Err(error) => return Known::Unsaid(error),
        };
        let Some(contact) = leader.contact.clone() else {
            return Known::Silent(leader, "it says no address of an admin API".to_owned());
        };
        let agent = self.agent.clone();
        let asked = blocking(move || {
            let request = agent.get(format!("http://{contact}/v1/{PROGRESS}"));
            let request = request.config().timeout_global(Some(LOOK_WITHIN)).build();
            read::<Progress>(request.call())
        });
        match asked.await {
            // An address may be another process's by now, or mean another machine here than there.
            Ok(progress) if progress.term == Some(leader.term) => {
                Known::Told(leader, Box::new(progress))
            }
            Ok(_) => Known::Silent(leader, "who answers there does not lead".to_owned()),
            Err(refusal) => Known::Silent(leader, refusal.message),
        }
    }

    /// Has the leader do `call`, which takes nothing.
    ///
    /// # Errors
    /// Its refusal; that nobody leads, or who does and cannot be asked; or that it was asked and did not say what
    /// came of it.
    pub(super) async fn order(&self, call: &'static str) -> Result<(), Refusal> {
        // The token goes only to who has said that it leads: at an address that was left in the store somebody
        // else may listen by now.
        let leader = match self.progress().await {
            Known::Told(leader, _) => leader,
            Known::Silent(leader, why) => return Err(unasked(&leader, &why, call)),
            Known::Nobody => {
                let words = "nobody leads the pool: nothing was begun".to_owned();
                return Err(
                    Refusal::new(Code::Unhealthy, words).with_next("clockwise status".to_owned())
                );
            }
            Known::Unsaid(error) => {
                return Err(Refusal::new(Code::StoreUnreachable, error.to_string()));
            }
        };
        let Some(contact) = leader.contact.clone() else {
            return Err(unasked(&leader, "it says no address of an admin API", call));
        };
        let (agent, token) = (self.agent.clone(), self.token.now());
        let done = blocking(move || {
            let request = agent
                .post(format!("http://{contact}/v1/{HERE}/{call}"))
                .header("authorization", format!("Bearer {}", token.reveal()));
            let request = request.config().timeout_global(Some(CHANGE_WITHIN)).build();
            Ok(outcome(request.send_json(EmptyCall {})))
        });
        match done.await? {
            Outcome::Done => Ok(()),
            Outcome::Refused(refusal) => Err(refusal),
            Outcome::NotBegun(why) => Err(unasked(&leader, &why, call)),
            Outcome::Unsaid(why) => Err(unsaid(&leader, &why)),
        }
    }
}

/// What came of an order.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// It says why not.
    Refused(Refusal),
    /// It did not arrive, or was not listened to.
    NotBegun(String),
    /// It arrived, and nobody knows more.
    Unsaid(String),
}

fn outcome(sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Outcome {
    let response = match sent {
        Ok(response) => response,
        Err(error) if never_arrived(&error) => return Outcome::NotBegun(error.to_string()),
        Err(error) => return Outcome::Unsaid(error.to_string()),
    };
    // Of the way there, not of what was asked: no call has these when it has begun.
    let unheard = matches!(
        response.status(),
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::MISDIRECTED_REQUEST
    );
    match read::<serde_json::Value>(Ok(response)) {
        Ok(_) => Outcome::Done,
        Err(refusal) if unheard => Outcome::NotBegun(refusal.message),
        Err(refusal) if refusal.code == Code::TimedOut => Outcome::Unsaid(refusal.message),
        Err(refusal) => Outcome::Refused(refusal),
    }
}

/// Whether there was no connection that a request could have gone over.
fn never_arrived(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::BadUri(_)
        | ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => true,
        ureq::Error::Io(error) => error.kind() == ErrorKind::ConnectionRefused,
        _ => false,
    }
}

fn unsaid(leader: &Leader, why: &str) -> Refusal {
    let Leader { term, holder, .. } = leader;
    let words = format!(
        "{holder}, which leads under term {term}, was asked and did not say what came of it ({why}); it may have \
         been begun"
    );
    Refusal::new(Code::TimedOut, words).with_next("clockwise moves".to_owned())
}

fn unasked(leader: &Leader, why: &str, call: &str) -> Refusal {
    let Leader {
        term,
        holder,
        contact,
    } = leader;
    let words = format!(
        "only the leader can do this: {holder} leads under term {term}, and cannot be asked from here ({why}); \
         nothing was begun"
    );
    let next = match contact {
        Some(contact) => format!("clockwise {call} --admin {contact}"),
        None => format!("clockwise {call} --admin HOST:PORT, where {holder} has its admin API"),
    };
    Refusal::new(Code::Unhealthy, words).with_next(next)
}

/// What an answer says, or why there is none.
fn read<T: DeserializeOwned>(
    sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<T, Refusal> {
    let lost = |error: ureq::Error| Refusal::new(Code::TimedOut, error.to_string());
    let mut response = sent.map_err(lost)?;
    let status = response.status();
    let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    let body = body.read_to_string().map_err(lost)?;
    if status.is_success() {
        return serde_json::from_str(&body).map_err(|error| {
            let words = format!("its answer is of another version: {error}");
            Refusal::new(Code::TimedOut, words)
        });
    }
    match serde_json::from_str::<RefusalBody>(&body) {
        Ok(refused) => Err(refused.error),
        Err(_) => Err(Refusal::new(Code::TimedOut, format!("it answers {status}"))),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    match spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(Refusal::new(Code::Failed, error.to_string())),
    }
}

impl Known {
    /// As it is answered.
    fn status(&self) -> Option<LeaderStatus> {
        let (leader, unheard) = match self {
            Self::Nobody | Self::Unsaid(_) => return None,
            Self::Told(leader, _) => (leader, None),
            Self::Silent(leader, why) => (leader, Some(why.clone())),
        };
        Some(LeaderStatus {
            name: leader.holder.clone(),
            term: leader.term.get(),
            admin: leader.contact.clone(),
            here: false,
            unheard,
        })
    }
}

/// What it means that a leader is not heard. An address of the machine that it runs on is no fault elsewhere.
pub(super) fn unheard(leader: &LeaderStatus) -> Option<String> {
    let why = leader.unheard.as_ref()?;
    let admin = leader.admin.as_ref()?;
    let local = admin
        .parse()
        .is_ok_and(|at: std::net::SocketAddr| at.ip().is_loopback());
    (!local).then(|| {
        format!(
            "{} leads, and does not say at {admin} how far it is: {why}",
            leader.name
        )
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn agent() -> Agent {
        let config = Agent::config_builder().proxy(None);
        config.http_status_as_error(false).build().into()
    }

    /// What comes of a call that is read, and answered with this.
    fn answered(with: String) -> Outcome {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let answering = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut asked, mut some) = (Vec::<u8>::new(), [0; 1_024]);
            while !asked.windows(2).any(|two| two == b"{}") {
                let count = stream.read(&mut some).unwrap();
                assert!(count > 0, "it ended before it was whole");
                asked.extend(&some[..count]);
            }
            stream.write_all(with.as_bytes()).unwrap();
        });
        let sent = agent().post(format!("http://{at}/v1/here/abort"));
        let outcome = outcome(sent.send_json(EmptyCall {}));
        answering.join().unwrap();
        outcome
    }

    fn response(status: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}")
    }

    fn refusal(code: Code) -> String {
        let error = Refusal::new(code, "why".to_owned());
        serde_json::to_string(&RefusalBody { error }).unwrap()
    }

    #[test]
    fn only_what_cannot_have_arrived_is_said_not_to_have_begun() {
        assert_eq!(answered(response("200 OK", "{}")), Outcome::Done);
        let conflict = response("409 Conflict", &refusal(Code::Conflict));
        let refused = Refusal::new(Code::Conflict, "why".to_owned());
        assert_eq!(answered(conflict), Outcome::Refused(refused));
        for unknown in [
            String::new(),
            response("200 OK", "hello"),
            response("502 Bad Gateway", "<html>"),
            response("504 Gateway Timeout", &refusal(Code::TimedOut)),
        ] {
            let outcome = answered(unknown.clone());
            assert!(
                matches!(outcome, Outcome::Unsaid(_)),
                "{unknown:?}: {outcome:?}"
            );
        }
        for deaf in ["401 Unauthorized", "403 Forbidden", "404 Not Found"] {
            let outcome = answered(response(deaf, "no"));
            assert!(
                matches!(outcome, Outcome::NotBegun(_)),
                "{deaf}: {outcome:?}"
            );
        }
        let nobody = agent().post("http://127.0.0.1:1/").send_json(EmptyCall {});
        let outcome = outcome(nobody);
        assert!(matches!(outcome, Outcome::NotBegun(_)), "{outcome:?}");
    }

    #[test]
    fn a_leader_that_cannot_be_asked_is_named_with_the_command_that_reaches_it() {
        let leader = Leader {
            term: clockwise_cluster::Term::new(7),
            holder: "clockwise-b".to_owned(),
            contact: Some("10.0.0.2:7380".to_owned()),
        };
        let refusal = unasked(&leader, "connection refused", "abort");
        for part in [
            "clockwise-b",
            "term 7",
            "connection refused",
            "nothing was begun",
        ] {
            assert!(refusal.message.contains(part), "{refusal:?}");
        }
        assert_eq!(
            refusal.next.as_deref(),
            Some("clockwise abort --admin 10.0.0.2:7380")
        );
    }
}
