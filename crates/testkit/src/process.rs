//! One child process: found on PATH, started in a group of its own, logging to a file, ended with
//! its value.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A server on a busy machine that replays a log may need seconds; more means that it hangs.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(30);
/// redis-server writes its last snapshot before it ends.
const STOP_DEADLINE: Duration = Duration::from_secs(15);
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);
const LOG_LINES_SHOWN: usize = 20;

/// A program of a Debian package.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) debian_package: &'static str,
}

impl Program {
    /// Its path, or a panic that names the package to install.
    #[track_caller]
    pub(crate) fn path(&self) -> PathBuf {
        match find_on_path(self.name) {
            Some(path) => path,
            None => panic!(
                "`{}` is not on PATH: install it (Debian: apt-get install {})",
                self.name, self.debian_package
            ),
        }
    }
}

fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

#[derive(Debug)]
pub(crate) struct Process {
    /// `None` once it has ended and was waited for.
    child: Option<Child>,
    pid: u32,
    log: PathBuf,
    /// Where the output of this start begins in the log, which goes on over restarts.
    log_start: u64,
}

impl Process {
    #[track_caller]
    pub(crate) fn spawn(program: &Program, args: Vec<OsString>, log: &Path) -> Process {
        let mut command = bound_to_our_life(program.path());
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(open_log(log));
        Process::spawn_command(command, log)
    }

    /// A command from [`bound_to_our_life`]; what it writes to its standard error goes to the log.
    #[track_caller]
    pub(crate) fn spawn_command(mut command: Command, log: &Path) -> Process {
        let mut file = open_log(log);
        let log_start = file.seek(SeekFrom::End(0)).unwrap_or(0);
        command.stderr(file);
        let words = format!("{command:?}");
        let child = match spawn_from_lasting_thread(command) {
            Ok(child) => child,
            Err(error) => panic!("cannot start {words}: {error}"),
        };
        Process {
            pid: child.id(),
            child: Some(child),
            log: log.to_owned(),
            log_start,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn is_running(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => false,
        }
    }

    /// What it wrote since this start.
    pub(crate) fn log(&self) -> String {
        let mut text = Vec::new();
        if let Ok(mut file) = File::open(&self.log)
            && file.seek(SeekFrom::Start(self.log_start)).is_ok()
        {
            // A log that cannot be read shows as an empty one; the caller waits and gives up.
            let _unread = file.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// Asks `ready` until it holds. `false` when the process ended because its port was taken.
    #[track_caller]
    pub(crate) fn wait_until_ready(&mut self, mut ready: impl FnMut(&Process) -> bool) -> bool {
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            if !self.is_running() {
                let log = self.log();
                if log.to_lowercase().contains("address already in use") {
                    return false;
                }
                panic!("the server ended while starting:\n{}", self.log_tail());
            }
            if ready(self) {
                return true;
            }
            if Instant::now() > deadline {
                panic!(
                    "the server is not ready after {START_DEADLINE:?}:\n{}",
                    self.log_tail()
                );
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// SIGSTOP. Returns when no thread of it runs any more, or it has ended.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        while self.child.is_some() && runs(self.pid) {
            thread::sleep(POLL_INTERVAL / 10);
        }
    }

    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL, then waits.
    pub(crate) fn kill9(&mut self) {
        self.signal(Signal::KILL);
        if let Some(mut child) = self.child.take() {
            // Only fails when it was waited for already.
            let _status = child.wait();
        }
    }

    /// SIGTERM, then waits; a panic with its log when it does not end.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        let deadline = Instant::now() + STOP_DEADLINE;
        while self.is_running() {
            if Instant::now() > deadline {
                self.kill9();
                panic!(
                    "the server did not end within {STOP_DEADLINE:?}:\n{}",
                    self.log_tail()
                );
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.child = None;
    }

    fn signal(&self, signal: Signal) {
        // Not waited for yet, so the pid is still its own, even if it has ended.
        let Some(child) = &self.child else { return };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // Fails only when the process is gone, which is what the caller will see next.
            let _gone = kill_process(pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() && self.child.is_some() {
            eprintln!("last lines of {}:\n{}", self.log.display(), self.log_tail());
        }
        self.kill9();
    }
}

/// Whether a thread of a process may still do something.
fn runs(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        // `7 (name, which may hold anything) T ...`; a thread that has ended has no file.
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        !matches!(state, None | Some('T' | 'Z' | 'X'))
    })
}

#[track_caller]
fn open_log(log: &Path) -> File {
    match OpenOptions::new().create(true).append(true).open(log) {
        Ok(file) => file,
        Err(error) => panic!("cannot write {}: {error}", log.display()),
    }
}

/// `setpriv` (util-linux, on every Debian) asks the kernel to kill the process when its parent
/// ends, and then becomes the server: the pid stays. Without it the drop guard has to do.
pub(crate) fn bound_to_our_life(program: PathBuf) -> Command {
    let mut command = match find_on_path("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}

type Order = (Command, Sender<std::io::Result<Child>>);

/// The signal comes at the end of the *thread* that started the child, and threads of a test end
/// early: one thread that lasts as long as the process starts them all.
fn spawn_from_lasting_thread(command: Command) -> std::io::Result<Child> {
    static SPAWNER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
        let (orders, inbox) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                // The asker waits; if it is gone, the child is dropped with the reply.
                let _gone = reply.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (reply, answer) = channel();
    let sent = SPAWNER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, reply));
    match sent.ok().and_then(|()| answer.recv().ok()) {
        Some(result) => result,
        None => Err(std::io::Error::other(
            "the thread that starts servers is gone",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "apt-get install no-such-package")]
    fn a_missing_program_names_its_package() {
        Program {
            name: "no-such-program",
            debian_package: "no-such-package",
        }
        .path();
    }
}
