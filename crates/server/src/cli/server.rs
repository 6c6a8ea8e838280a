//! Finding the server that a verb talks to, and talking to it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::Agent;
use ureq::http::Response;

use super::exit::{Exit, Failure};
use super::given::Given;
use super::output;
use crate::admin::refusal::RefusalBody;
use crate::up::data_dir::{ADMIN_ADDRESS, ADMIN_TOKEN, DataDir, LOCK};

const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// For a look, which nothing behind it takes long for.
const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// For a change: the server waits for one a little less long.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;
const TOKEN_VARIABLE: &str = "CLOCKWISE_TOKEN";

/// Which server a verb talks to.
#[derive(Clone, Debug, clap::Args)]
pub struct Target {
    /// Address of the admin API; else it is read from the data folder.
    #[arg(long, env = "CLOCKWISE_ADMIN", value_name = "HOST:PORT")]
    pub admin: Option<String>,
    /// Data folder of the running `clockwise up`.
    #[arg(
        long,
        env = "CLOCKWISE_DIR",
        value_name = "DIR",
        default_value = "./clockwise-data"
    )]
    pub dir: PathBuf,
}

/// The admin API of one server.
#[derive(Debug)]
pub struct Server {
    base: String,
    token: Option<String>,
    /// The file that names the address; a killed `up` leaves it behind.
    named_in: Option<PathBuf>,
    /// Where a token was looked for.
    token_sought: Option<PathBuf>,
    /// By which options a person named it.
    given: Given,
    agent: Agent,
}

impl Target {
    /// The server that these options name.
    ///
    /// # Errors
    /// When neither an address is given nor one is found in the folder.
    pub fn find(&self) -> Result<Server, Failure> {
        let in_folder = |name| {
            DataDir::open(&self.dir)
                .ok()
                .and_then(|dir| dir.read(name).ok().flatten())
        };
        let (address, named_in) = match &self.admin {
            Some(address) => (address.clone(), None),
            None => {
                let file = self.dir.join(ADMIN_ADDRESS);
                let address = in_folder(ADMIN_ADDRESS).ok_or_else(|| self.nobody())?;
                if address.parse::<SocketAddr>().is_err() {
                    return Err(damaged(&file, &address));
                }
                (address, Some(file))
            }
        };
        let token = std::env::var(TOKEN_VARIABLE)
            .ok()
            .filter(|token| !token.is_empty());
        let token = token.or_else(|| in_folder(ADMIN_TOKEN).filter(|token| !token.is_empty()));
        Ok(Server {
            named_in,
            token_sought: Some(self.dir.join(ADMIN_TOKEN)),
            given: Given::of(self),
            ..Server::new(&address, token)
        })
    }

    fn nobody(&self) -> Failure {
        let words = format!(
            "no running server found: {} has no {ADMIN_ADDRESS}",
            self.dir.display()
        );
        Failure::new(Exit::Failed, words).with_next("clockwise up, or name its folder with --dir")
    }
}

impl Server {
    /// The server at this address; calls that change something show the token.
    #[must_use]
    pub fn new(address: &str, token: Option<String>) -> Self {
        let agent = Agent::config_builder()
            // The admin API is never behind a proxy that the environment names for the web.
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_global(Some(ANSWER_WITHIN))
            .build()
            .into();
        Self {
            base: format!("http://{address}/v1/"),
            token,
            named_in: None,
            token_sought: None,
            given: Given::default(),
            agent,
        }
    }

    /// `HOST:PORT`, or whatever was given for it.
    pub(super) fn address(&self) -> &str {
        let address = self.base.trim_start_matches("http://");
        address.trim_end_matches("/v1/")
    }

    /// Looks something up.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub fn get(&self, call: &str, query: &[(&str, &str)]) -> Result<Answer, Failure> {
        let mut request = self.agent.get(format!("{}{call}", self.base));
        for (name, value) in query {
            request = request.query(name, value);
        }
        let request = request.config().timeout_global(Some(LOOK_WITHIN)).build();
        self.answer(request.call())
    }

    /// Changes something.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub fn post<B: Serialize>(&self, call: &str, body: &B) -> Result<Answer, Failure> {
        let mut request = self.agent.post(format!("{}{call}", self.base));
        match (&self.token, &self.token_sought) {
            (Some(token), _) => {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            (None, Some(sought)) => return Err(tokenless(sought)),
            (None, None) => {}
        }
        self.answer(request.send_json(body))
    }

    fn answer(&self, sent: Result<Response<ureq::Body>, ureq::Error>) -> Result<Answer, Failure> {
        let mut response = sent.map_err(|error| self.unanswered(&error))?;
        let status = response.status();
        let body = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_string();
        let body = body.map_err(|error| self.unanswered(&error))?;
        if status.is_success() {
            let value = serde_json::from_str(&body).map_err(|_| strange(&self.base))?;
            let given = self.given.clone();
            return Ok(Answer { value, given });
        }
        match serde_json::from_str::<RefusalBody>(&body) {
            Ok(refused) => Err(refused.error.into()),
            Err(_) => Err(Failure::new(
                Exit::Failed,
                format!("{} answers {status}", self.base),
            )),
        }
    }
}

fn damaged(file: &Path, found: &str) -> Failure {
    let words = match found {
        "" => format!("{} is empty", file.display()),
        found => format!("{} holds no address: {found:?}", file.display()),
    };
    Failure::new(Exit::Failed, words).with_next(
        "name the server with --admin HOST:PORT, or start it again: clockwise down, clockwise up",
    )
}

fn tokenless(sought: &Path) -> Failure {
    let words = format!(
        "this call changes something and needs the token: {} cannot be read or is empty, and {TOKEN_VARIABLE} is not set",
        sought.display()
    );
    let next = format!("pass --dir DIR of the running `clockwise up`, or set {TOKEN_VARIABLE}");
    Failure::new(Exit::Failed, words).with_next(next)
}

impl Server {
    /// The process that runs on the folder which names the server, as its lock says.
    fn holder(&self) -> Option<u32> {
        let lock = self.named_in.as_ref()?.with_file_name(LOCK);
        std::fs::read_to_string(lock).ok()?.trim().parse().ok()
    }

    /// A failure with the options that name this server behind what to type next.
    pub(super) fn told(&self, failure: &Failure) -> Failure {
        failure.told(&self.given)
    }

    fn unanswered(&self, error: &ureq::Error) -> Failure {
        if matches!(error, ureq::Error::Protocol(_)) {
            return strange(&self.base);
        }
        let words = format!("no answer from {}: {error}", self.base);
        let hangs = matches!(error, ureq::Error::Timeout(_));
        if let Some(pid) = self.holder().filter(|_| hangs) {
            let words = format!("{words}; process {pid} runs on the folder and does not answer");
            let next = format!(
                "try again; if it hangs:  kill -9 {pid}, then clockwise up, which finds its nodes again"
            );
            return Failure::new(Exit::Failed, words).with_next(next);
        }
        match &self.named_in {
            Some(file) => Failure::new(
                Exit::Failed,
                format!(
                    "{words}; the address is that of {}, which a killed `clockwise up` leaves behind",
                    file.display()
                ),
            )
            .with_next("clockwise up, which finds its nodes again, or clockwise down"),
            None => Failure::new(Exit::Failed, words)
                .with_next("clockwise up, or name the server with --dir or --admin"),
        }
    }
}

/// What the server answered: a JSON document.
#[derive(Clone, Debug)]
pub struct Answer {
    value: Value,
    given: Given,
}

impl Answer {
    /// The document as the server wrote it, for `-o json`.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{:#}", self.value)
    }

    /// Prints what to type next, at the end of what a person reads.
    pub(super) fn line_next(&self, next: &str) -> Result<(), Failure> {
        output::line(&format!("\n{}", self.given.told(next)))
    }

    /// The document as a known kind.
    ///
    /// # Errors
    /// When it is not of that kind: the server is of another version.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_value(self.value.clone()).map_err(|error| {
            let words = format!("the server's answer is not understood: {error}");
            Failure::new(Exit::Failed, words)
                .with_next("use a clockwise of the server's version, or -o json")
        })
    }
}

fn strange(base: &str) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("{base} answers in another language; is it a clockwise admin API?"),
    )
}
