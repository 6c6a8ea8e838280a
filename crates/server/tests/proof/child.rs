//! The process that is killed: this test program again, serving a folder and servers that its parent made.
//!
//! It stops at a named point of the handoff, or at a commit, and says so, and its parent kills it there. What
//! it says begins with [`SAYS`]; what it is told are lines: `apply`, `abort`. It ends when nobody can tell it anything more.

use std::io::{BufRead, BufReader, Write as _, stdin};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;

use clockwise_client::store::{FileOptions, FileStore, Store};
use clockwise_cluster::{HandoffState, Record};

use crate::commits::{Place, StandsAt};
use crate::meddling::Meddled;
use crate::points::{Point, StopAt};
use crate::pool::{applied, redis_driver};
use crate::serving::{PATIENCE, Serving};

/// Folder, address to listen on, point to stop at and commit to stand at, in the environment of a child.
const DIR: &str = "CLOCKWISE_PROOF_CHILD_DIR";
const LISTEN: &str = "CLOCKWISE_PROOF_CHILD_LISTEN";
const POINT: &str = "CLOCKWISE_PROOF_CHILD_POINT";
const COMMIT: &str = "CLOCKWISE_PROOF_CHILD_COMMIT";

/// What the runner of the test prints goes to the same place.
const SAYS: &str = "child says: ";

/// Where a child goes no further.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Halt {
    Nowhere,
    Point(Point),
    Commit(Place),
}

/// A child, seen from its parent. Killed when dropped.
pub(crate) struct Serves {
    child: Child,
    tells: Option<ChildStdin>,
    says: mpsc::Receiver<String>,
    // Said and not asked for yet.
    said: Vec<String>,
    pub(crate) router: SocketAddr,
}

impl Serves {
    /// Returns when clients can connect.
    pub(crate) fn start(dir: &Path, listen: SocketAddr, halt: Halt) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child::serves_until_it_is_killed", "--nocapture"])
            .env(DIR, dir)
            .env(LISTEN, listen.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .env_remove(POINT)
            .env_remove(COMMIT);
        match halt {
            Halt::Nowhere => {}
            Halt::Point(point) => drop(command.env(POINT, format!("{point:?}"))),
            Halt::Commit(place) => drop(command.env(COMMIT, format!("{place:?}"))),
        }
        let mut child = command.spawn().unwrap();
        let (sender, says) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let said = line.split_once(SAYS).map(|(_, said)| said.to_owned());
                if said.is_some_and(|said| sender.send(said).is_err()) {
                    return;
                }
            }
        });
        let mut serves = Self {
            tells: child.stdin.take(),
            child,
            says,
            said: Vec::new(),
            router: listen,
        };
        serves.router = serves.hears("ready ").parse().unwrap();
        serves
    }

    /// Waits until it says something that begins so; gives the rest.
    #[track_caller]
    pub(crate) fn hears(&mut self, start: &str) -> String {
        self.hears_either(start, start).1
    }

    /// Waits until it says something that begins in one of two ways, or finds that it has: whether in the
    /// first, and the rest. What else it says is kept for others to hear.
    #[track_caller]
    pub(crate) fn hears_either(&mut self, one: &str, other: &str) -> (bool, String) {
        let fits = |said: &String| said.starts_with(one) || said.starts_with(other);
        let at = loop {
            if let Some(at) = self.said.iter().position(fits) {
                break at;
            }
            match self.says.recv_timeout(PATIENCE) {
                Ok(said) => self.said.push(said),
                Err(error) => panic!(
                    "the child says neither {one:?} nor {other:?}: {error}; ended: {:?}",
                    self.child.try_wait()
                ),
            }
        };
        let said = self.said.remove(at);
        match said.strip_prefix(one) {
            Some(rest) => (true, rest.to_owned()),
            None => (false, said[other.len()..].to_owned()),
        }
    }

    pub(crate) fn tell(&mut self, words: &str) {
        writeln!(self.tells.as_mut().unwrap(), "{words}").unwrap();
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it in good order.
    pub(crate) fn end(mut self) {
        self.tells = None;
        assert!(self.child.wait().unwrap().success(), "the child failed");
    }
}

impl Drop for Serves {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// No test by itself: does nothing unless a parent started it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let listen = std::env::var(LISTEN).unwrap().parse().unwrap();
    let store = FileStore::open(Path::new(&dir), FileOptions::default()).unwrap();
    let mut store: Arc<dyn Store> = Arc::new(store);
    if let Ok(place) = std::env::var(COMMIT) {
        let stands = StandsAt::new(Place::named(&place), store);
        store = Arc::clone(&stands) as _;
        tokio::spawn(async move {
            stands.reached().await;
            say("reached");
        });
    }
    let mut driver = redis_driver();
    if let Ok(point) = std::env::var(POINT) {
        let stop = StopAt::new(Point::named(&point), Arc::clone(&store));
        driver = Meddled::over(driver, Arc::clone(&stop) as _);
        tokio::spawn(async move {
            stop.reached().await;
            say("reached");
        });
    }
    let serving = Serving::start(Arc::clone(&store), driver, listen).await;
    say(&format!("ready {}", serving.router.addr()));
    tokio::spawn(tell_what_is_so(Arc::clone(&store)));
    let rebalancer = &serving.rebalancer;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    thread::spawn(move || {
        let lines = stdin().lines().map_while(Result::ok);
        lines.for_each(|line| drop(tell.send(line)));
    });
    while let Some(line) = told.recv().await {
        match line.as_str() {
            "apply" => apply(&*store).await,
            "abort" => match rebalancer.abort().await {
                Ok(()) => say("aborted"),
                Err(refused) => say(&format!("refused {refused}")),
            },
            other => panic!("{other}"),
        }
    }
    serving.end().await;
}

async fn apply(store: &dyn Store) {
    let record = store.read().await.unwrap().unwrap();
    let next = applied(&record).unwrap();
    store.commit(record.revision(), next, None).await.unwrap();
}

async fn tell_what_is_so(store: Arc<dyn Store>) {
    let mut records = store.watch();
    loop {
        let record = records.borrow_and_update().clone();
        match record {
            Some(record) if is_copying(&record) => say("copying"),
            Some(record) if record.change().is_none() && record.finished().is_some() => {
                say("at rest");
            }
            _ => {}
        }
        if records.changed().await.is_err() {
            return;
        }
    }
}

/// Whether all handoffs are: one that is planned is undone at once when a change is taken back.
fn is_copying(record: &Record) -> bool {
    record.change().is_some_and(|change| {
        let mut handoffs = change.handoffs.iter();
        handoffs.all(|handoff| handoff.state == HandoffState::Copying)
    })
}

fn say(words: &str) {
    println!("{SAYS}{words}");
}
