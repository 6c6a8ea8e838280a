//! The program itself: `clockwise up` in a folder, and its other verbs.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use clockwise_cluster::Record;

use crate::serving::PATIENCE;

/// A running `up`. Killed when dropped, and its servers with it.
pub(crate) struct Product {
    dir: PathBuf,
    child: Child,
    pub(crate) router: SocketAddr,
}

fn clockwise() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clockwise"));
    for variable in ["CLOCKWISE_ADMIN", "CLOCKWISE_DIR", "CLOCKWISE_TOKEN"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

impl Product {
    /// Returns when clients can connect.
    pub(crate) fn up(dir: &Path, listen: SocketAddr) -> Self {
        let mut command = clockwise();
        command
            .args(["up", "--engine", "redis", "--admin", "127.0.0.1:0"])
            .args(["--listen", &listen.to_string()])
            .arg("--dir")
            .arg(dir);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        // Reads on, so that a full pipe stops nobody.
        thread::spawn(move || {
            let mut lines = stdout.lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        let mut product = Self {
            dir: dir.to_owned(),
            child,
            router: listen,
        };
        let ready = lines.recv_timeout(PATIENCE);
        let ready =
            ready.unwrap_or_else(|_| panic!("up is not ready: {:?}", product.child.try_wait()));
        let mut words = ready.split(' ');
        let listens = words.find_map(|word| word.strip_prefix("listen="));
        product.router = listens.unwrap().parse().unwrap();
        product
    }

    /// Runs a verb against it; anything but success is a failure.
    pub(crate) fn run(&self, verb: &[&str]) -> String {
        let output = clockwise().args(verb).arg("--dir").arg(&self.dir).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{verb:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// kill -9; its servers live on.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The record in the folder, whoever holds the folder.
    pub(crate) fn record(&self) -> Record {
        Record::decode(&std::fs::read(self.dir.join("record.json")).unwrap()).unwrap()
    }

    /// The password of the nodes' administrator.
    pub(crate) fn password(&self) -> String {
        let text = std::fs::read_to_string(self.dir.join("nodes.password")).unwrap();
        text.trim().to_owned()
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// Ends what is left in a folder when it is dropped.
pub(crate) struct Down<'a>(pub(crate) &'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        drop(clockwise().args(["down", "--dir"]).arg(self.0).output());
    }
}
