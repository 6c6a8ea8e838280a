//! The process that is killed: this test program again, serving a folder and servers that its parent made.
//!
//! It stops at a named point of the handoff and says so, and its parent kills it there. What it says
//! begins with [`SAYS`]; what it is told are lines: `apply`. It ends when nobody can tell it anything more.

use std::io::{BufRead, BufReader, Write as _, stdin};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;

use clockwise_client::store::{FileOptions, FileStore, Store};

use crate::meddling::Meddled;
use crate::points::{Point, StopAt};
use crate::pool::{applied, redis_driver};
use crate::serving::{PATIENCE, Serving};

/// Folder, address to listen on and point to stop at, in the environment of a child.
const DIR: &str = "CLOCKWISE_PROOF_CHILD_DIR";
const LISTEN: &str = "CLOCKWISE_PROOF_CHILD_LISTEN";
const POINT: &str = "CLOCKWISE_PROOF_CHILD_POINT";

/// What the runner of the test prints goes to the same place.
const SAYS: &str = "child says: ";

/// A child, seen from its parent. Killed when dropped.
pub(crate) struct Serves {
    child: Child,
    tells: Option<ChildStdin>,
    says: mpsc::Receiver<String>,
    pub(crate) router: SocketAddr,
}

impl Serves {
    /// Starts one that stops at a point, or nowhere; returns when clients can connect.
    pub(crate) fn start(dir: &Path, listen: SocketAddr, point: Option<Point>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child::serves_until_it_is_killed", "--nocapture"])
            .env(DIR, dir)
            .env(LISTEN, listen.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        match point {
            Some(point) => command.env(POINT, format!("{point:?}")),
            None => command.env_remove(POINT),
        };
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
            router: listen,
        };
        serves.router = serves.hears("ready ").parse().unwrap();
        serves
    }

    /// Waits until it says something that begins so; gives the rest.
    #[track_caller]
    pub(crate) fn hears(&mut self, start: &str) -> String {
        loop {
            match self.says.recv_timeout(PATIENCE) {
                Ok(said) => {
                    if let Some(rest) = said.strip_prefix(start) {
                        return rest.to_owned();
                    }
                }
                Err(error) => panic!(
                    "the child does not say {start:?}: {error}; ended: {:?}",
                    self.child.try_wait()
                ),
            }
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
    let store: Arc<dyn Store> = Arc::new(store);
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
    tokio::spawn(tell_when_at_rest(Arc::clone(&store)));
    let obey = {
        let runtime = tokio::runtime::Handle::current();
        move || {
            for line in stdin().lines().map_while(Result::ok) {
                assert_eq!(line, "apply");
                runtime.block_on(apply(&*store));
            }
        }
    };
    tokio::task::spawn_blocking(obey).await.unwrap();
    serving.end().await;
}

async fn apply(store: &dyn Store) {
    let record = store.read().await.unwrap().unwrap();
    let next = applied(&record).unwrap();
    store.commit(record.revision(), next, None).await.unwrap();
}

async fn tell_when_at_rest(store: Arc<dyn Store>) {
    let mut records = store.watch();
    loop {
        let at_rest = {
            let record = records.borrow_and_update();
            let record = record.as_ref();
            record.is_some_and(|record| record.change().is_none() && record.finished().is_some())
        };
        if at_rest {
            say("at rest");
        }
        if records.changed().await.is_err() {
            return;
        }
    }
}

fn say(words: &str) {
    println!("{SAYS}{words}");
}
