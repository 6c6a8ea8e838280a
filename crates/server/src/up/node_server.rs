//! Servers that `up` starts for its nodes: recognising them again, ending them.
//!
//! What differs between a redis-server and a memcached is in [`Program`].
//!
//! A server runs in a process group of its own and outlives a killed `up`. Its folder holds a card
//! with what makes it recognisable: process, port and run id. Whoever comes later adopts a server
//! only if all of these (and the password, if it has one) agree; a stranger on the same port or number
//! is refused.
//! An `up` that is killed before it has written the card leaves a server too: that one is known by
//! its working directory, which is in the node's folder, and by the port of the folder's configuration.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clockwise_cluster::Incarnation;
use clockwise_placement::NodeId;
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::card::{self, Card};
use super::data_dir::{DataDir, make_private_folder, write_private};
use super::port::free_port;
use super::process::ProcessId;

mod config;
mod error;
mod log;
mod program;
#[cfg(test)]
mod tests;

pub use error::NodeServerError;
use log::{has_loaded, last_lines, text_after};
pub use program::Program;

/// Until a server answers; what it then needs to load its data does not count.
const READY_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// How long the binary may take to say its version.
const VERSION_WITHIN: Duration = Duration::from_secs(10);
/// Between asking for a free port and using it somebody else may take it.
const PORT_TRIES: u32 = 5;

/// What the servers keep over a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Persist {
    /// Nothing.
    None,
    /// An append-only file, synced every second.
    Aof,
}

/// How servers are started in one data folder.
#[derive(Clone, Debug)]
pub struct NodeServers {
    program: Program,
    binary: PathBuf,
    dir: DataDir,
    // Set once nothing more is to be started: whoever waits for a server then stops waiting.
    ending: Arc<AtomicBool>,
}

/// A server that answers.
#[derive(Debug)]
pub struct NodeServer {
    /// The node it is.
    pub id: NodeId,
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// Whether it was left running by an earlier process.
    pub adopted: bool,
    /// The run that ended in good order and whose data this one has loaded.
    pub continues: Option<Incarnation>,
    process: ProcessId,
    // Present when this process started it: whoever starts a process must collect its end.
    child: Option<Child>,
}

impl NodeServers {
    /// Servers of the binary that the environment names, below `dir`.
    #[must_use]
    pub fn new(dir: DataDir, program: Program) -> Self {
        Self {
            binary: program.binary(),
            program,
            dir,
            ending: Arc::default(),
        }
    }

    /// The folder they are started in.
    #[must_use]
    pub fn dir(&self) -> &DataDir {
        &self.dir
    }

    /// From now on nobody waits for a server to become ready.
    pub fn begin_end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Whether the binary can be started at all.
    ///
    /// # Errors
    /// [`NodeServerError::NoBinary`] when it cannot.
    pub fn check_binary(&self) -> Result<(), NodeServerError> {
        let no_binary = |source| self.no_binary(source);
        let mut tried = Command::new(&self.binary)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(no_binary)?;
        let deadline = Instant::now() + VERSION_WITHIN;
        while tried.try_wait().map_err(no_binary)?.is_none() {
            if Instant::now() >= deadline {
                tried
                    .kill()
                    .and_then(|()| tried.wait())
                    .map_err(no_binary)?;
                let words =
                    format!("asked for its version, it has not ended after {VERSION_WITHIN:?}");
                return Err(no_binary(io::Error::other(words)));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// The node's server: the one left running if there is one, else a new process.
    ///
    /// # Errors
    /// When what runs is a stranger, or a new one does not come up.
    pub fn run(&self, id: &NodeId, port: Option<u16>) -> Result<NodeServer, NodeServerError> {
        match self.adopt(id)? {
            Some(server) => Ok(server),
            None => self.start(id, port),
        }
    }

    /// The node's server if one was left running.
    ///
    /// # Errors
    /// When the process is there and is not recognised.
    pub fn adopt(&self, id: &NodeId) -> Result<Option<NodeServer>, NodeServerError> {
        let Some(left) = self.left(id)? else {
            return Ok(None);
        };
        let stranger = |why: String| NodeServerError::NotRecognised {
            id: id.clone(),
            pid: left.process.pid,
            why,
        };
        let deadline = Instant::now() + READY_WITHIN;
        let answer = loop {
            let waits = !self.ending.load(Ordering::Relaxed);
            match self.ask(left.port) {
                // However long it takes: a server that loads is busy with our own data.
                Ok(answer) if answer.loading && waits => {}
                Ok(answer) => break answer,
                // Whoever started it may have been killed a moment ago.
                Err(_) if left.card.is_none() && waits && Instant::now() < deadline => {
                    if !left.process.lives() {
                        return Ok(None);
                    }
                }
                Err(why) => return Err(stranger(why)),
            }
            std::thread::sleep(POLL);
        };
        let known = |card: &Card| card.run_id == answer.run_id;
        if answer.pid != left.process.pid || !left.card.as_ref().is_none_or(known) {
            return Err(stranger(format!(
                "process {} with run id {} answers",
                answer.pid, answer.run_id
            )));
        }
        let card = match left.card {
            Some(card) => card,
            None => self.begin(id, left.process, left.port, answer.run_id, 0)?,
        };
        Ok(Some(NodeServer {
            id: id.clone(),
            port: card.port,
            adopted: true,
            continues: card.continues,
            process: card.process,
            child: None,
        }))
    }

    /// What runs as this node, by its card or, without one, by where it runs.
    fn left(&self, id: &NodeId) -> Result<Option<Left>, NodeServerError> {
        let folder = self.dir.node(id)?;
        let system = |source| NodeServerError::System {
            id: id.clone(),
            source,
        };
        let card = card::read(&folder).map_err(system)?;
        if let Some(card) = card.filter(|card| card.process.lives()) {
            return Ok(Some(Left {
                process: card.process,
                port: card.port,
                card: Some(card),
            }));
        }
        let Some(process) = ProcessId::working_in(&folder).map_err(system)? else {
            return Ok(None);
        };
        let config = self.program.config_name();
        let text = fs::read_to_string(folder.join(config)).map_err(system)?;
        let port = text.lines().find_map(|line| line.strip_prefix("port "));
        let port = port.and_then(|port| port.parse().ok());
        Ok(Some(Left {
            process,
            port: port.ok_or_else(|| NodeServerError::NotRecognised {
                id: id.clone(),
                pid: process.pid,
                why: format!("{config} in its folder names no port"),
            })?,
            card: None,
        }))
    }

    /// Writes the card of a server that answers.
    fn begin(
        &self,
        id: &NodeId,
        process: ProcessId,
        port: u16,
        run_id: String,
        log_from: u64,
    ) -> Result<Card, NodeServerError> {
        let folder = self.dir.node(id)?;
        let saved = card::saved(&folder).map_err(|source| NodeServerError::System {
            id: id.clone(),
            source,
        })?;
        let log = text_after(&folder.join(self.program.log_name()), log_from);
        let card = Card {
            process,
            port,
            run_id,
            continues: saved.filter(|_| has_loaded(&log)),
        };
        card::begin(&folder, &card)?;
        Ok(card)
    }

    /// Ends whatever was left running as this node; nothing left is fine. Says whether there was a process.
    ///
    /// # Errors
    /// When the process there is not recognised, or cannot be ended.
    pub fn end_left(&self, id: &NodeId, deadline: Instant) -> Result<bool, NodeServerError> {
        let left = match self.left(id)? {
            None => return Ok(false),
            Some(left) if left.card.is_some() => self.adopt(id)?,
            // What works in the node's folder is the node's, whether or not it answers yet.
            Some(left) => Some(NodeServer {
                id: id.clone(),
                port: left.port,
                adopted: true,
                continues: None,
                process: left.process,
                child: None,
            }),
        };
        let was_there = left.is_some();
        if let Some(mut server) = left {
            self.end(&mut server, deadline)?;
        }
        Ok(was_there)
    }

    /// Ends a server; its data is saved as far as it persists any.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn end(&self, server: &mut NodeServer, deadline: Instant) -> Result<(), NodeServerError> {
        let id = server.id.clone();
        let system = |source| NodeServerError::System {
            id: id.clone(),
            source,
        };
        let saves = self.ask(server.port).ok().and_then(|answer| answer.saves);
        let by_itself = server.process.end(deadline).map_err(system)?;
        if !by_itself {
            tracing::warn!(node = %server.id, pid = server.process.pid, "server did not end in time and was killed");
        }
        let in_order = match &mut server.child {
            Some(child) => child.wait().map_err(system)?.success(),
            None => by_itself,
        };
        let saved = saves.filter(|_| in_order);
        Ok(card::end(&self.dir.node(&server.id)?, saved.as_ref())?)
    }

    fn start(&self, id: &NodeId, port: Option<u16>) -> Result<NodeServer, NodeServerError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let chosen = match port {
                Some(port) => port,
                None => free_port().map_err(|source| NodeServerError::System {
                    id: id.clone(),
                    source,
                })?,
            };
            match self.start_on(id, chosen) {
                Err(NodeServerError::PortInUse { .. }) if port.is_none() && tries < PORT_TRIES => {}
                outcome => return outcome,
            }
        }
    }

    fn start_on(&self, id: &NodeId, port: u16) -> Result<NodeServer, NodeServerError> {
        // Asked before, a port in use is an answer at once; asked after, it is a log to be read.
        if TcpListener::bind(("127.0.0.1", port)).is_err() {
            return Err(NodeServerError::PortInUse {
                id: id.clone(),
                port,
            });
        }
        let folder = self.dir.node(id)?;
        make_private_folder(&folder.join("data"))?;
        let config = folder.join(self.program.config_name());
        write_private(&config, &self.program.config(&folder, port))?;
        let system = |source| NodeServerError::System {
            id: id.clone(),
            source,
        };
        let log_path = folder.join(self.program.log_name());
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&log_path)
            .map_err(system)?;
        let log_from = log.metadata().map_err(system)?.len();
        let errors = log.try_clone().map_err(system)?;
        let mut child = Command::new(&self.binary)
            .args(self.program.args(&config, port))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|source| self.no_binary(source))?;
        match self.wait_ready(port, &mut child) {
            Ok((process, run_id)) => {
                let card = self.begin(id, process, port, run_id, log_from)?;
                Ok(NodeServer {
                    id: id.clone(),
                    port,
                    adopted: false,
                    continues: card.continues,
                    process,
                    child: Some(child),
                })
            }
            Err(Unready::Ended) => {
                let log = text_after(&log_path, log_from);
                Err(if log.contains("Address already in use") {
                    NodeServerError::PortInUse {
                        id: id.clone(),
                        port,
                    }
                } else {
                    NodeServerError::Ended {
                        id: id.clone(),
                        log: last_lines(&log),
                    }
                })
            }
            Err(Unready::Late(why)) => {
                child.kill().and_then(|()| child.wait()).map_err(system)?;
                Err(NodeServerError::NotReady {
                    id: id.clone(),
                    port,
                    why,
                })
            }
        }
    }

    /// Who answers on the port once it is our process, with all its data.
    fn wait_ready(&self, port: u16, child: &mut Child) -> Result<(ProcessId, String), Unready> {
        let mut deadline = Instant::now() + READY_WITHIN;
        let late = |why: &str| Unready::Late(why.to_owned());
        loop {
            if child
                .try_wait()
                .map_err(|error| late(&error.to_string()))?
                .is_some()
            {
                return Err(Unready::Ended);
            }
            let pid = i32::try_from(child.id())
                .map_err(|_| late("its process number is out of range"))?;
            let last = match self.ask(port) {
                // A stranger may hold the port while our process is on its way to find that out.
                Ok(answer) if answer.pid != pid => format!("process {} answers there", answer.pid),
                Ok(answer) if answer.loading => {
                    // However long it takes: a server that loads is busy with our own data.
                    deadline = Instant::now() + READY_WITHIN;
                    "it is loading its data".to_owned()
                }
                Ok(answer) => {
                    let process = ProcessId::of(pid).ok_or(Unready::Ended)?;
                    return Ok((process, answer.run_id));
                }
                Err(why) => why,
            };
            if Instant::now() >= deadline || self.ending.load(Ordering::Relaxed) {
                return Err(Unready::Late(last));
            }
            std::thread::sleep(POLL);
        }
    }

    fn no_binary(&self, source: io::Error) -> NodeServerError {
        NodeServerError::NoBinary {
            binary: self.binary.clone(),
            package: self.program.package(),
            variable: self.program.binary_variable(),
            source,
        }
    }

    fn ask(&self, port: u16) -> Result<Answer, String> {
        self.program.ask(port)
    }
}

impl NodeServer {
    /// Whether its process still runs. The end of one that we started is collected here.
    pub fn lives(&mut self) -> bool {
        let collected = self
            .child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
        !collected && self.process.lives()
    }
}

/// A process that runs as a node.
struct Left {
    process: ProcessId,
    port: u16,
    card: Option<Card>,
}

enum Unready {
    Ended,
    Late(String),
}
