//! Processes by number, told apart from later ones that got the same number.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

const POLL: Duration = Duration::from_millis(10);

/// A process: its number and when it started, in clock ticks since the system did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The number.
    pub pid: i32,
    /// When it started.
    pub started_ticks: u64,
}

impl ProcessId {
    /// The process that has this number now; `None` when none does or it has ended.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the command in brackets and may hold anything, brackets included.
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let started_ticks = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(Self { pid, started_ticks })
    }

    /// A process of ours whose working directory is this folder or in it; `None` if there is none, or no folder.
    ///
    /// # Errors
    /// When the system's list of processes cannot be read.
    pub fn working_in(folder: &Path) -> io::Result<Option<Self>> {
        let folder = match folder.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            folder => folder?,
        };
        for entry in fs::read_dir("/proc")? {
            let Ok(pid) = entry?.file_name().to_string_lossy().parse() else {
                continue;
            };
            // Those of other users do not say, and are not ours.
            let works = fs::read_link(format!("/proc/{pid}/cwd"));
            if works.is_ok_and(|works| works.starts_with(&folder))
                && let Some(process) = Self::of(pid)
            {
                return Ok(Some(process));
            }
        }
        Ok(None)
    }

    /// Whether this very process still runs.
    #[must_use]
    pub fn lives(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Asks it to end. One that is gone is fine.
    ///
    /// # Errors
    /// When the system does not let us signal it.
    pub fn ask_to_end(self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Asks it to end, waits, and ends it the hard way at the deadline. Says whether it went by itself.
    ///
    /// # Errors
    /// When the system does not let us signal it.
    pub fn end(self, deadline: Instant) -> io::Result<bool> {
        self.signal(Signal::TERM)?;
        if self.gone_before(deadline) {
            return Ok(true);
        }
        self.signal(Signal::KILL)?;
        self.gone_before(Instant::now() + Duration::from_secs(2));
        Ok(false)
    }

    fn signal(self, signal: Signal) -> io::Result<()> {
        let pid = Pid::from_raw(self.pid).filter(|_| self.lives());
        match pid.map(|pid| kill_process(pid, signal)) {
            Some(Err(error)) if error != rustix::io::Errno::SRCH => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn gone_before(self, deadline: Instant) -> bool {
        while self.lives() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }
}

/// The other process that still has a file open which was removed since; none if there is none, or none that
/// we may look at.
pub(super) fn holding_removed(path: &Path) -> Option<ProcessId> {
    let removed = format!("{} (deleted)", path.display());
    let own = i32::try_from(std::process::id()).ok();
    let processes = fs::read_dir("/proc").ok()?;
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| Some(*pid) != own).find_map(|pid: i32| {
        let mut files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let holds = files.any(|file| {
            let link = file.and_then(|file| fs::read_link(file.path()));
            link.is_ok_and(|link| link.as_os_str() == removed.as_str())
        });
        if holds { ProcessId::of(pid) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = ProcessId::of(child.id().try_into().unwrap()).unwrap();
        assert!(process.lives());
        assert!(
            !ProcessId {
                started_ticks: process.started_ticks + 1,
                ..process
            }
            .lives()
        );
        assert!(
            process
                .end(Instant::now() + Duration::from_secs(5))
                .unwrap()
        );
        assert!(!process.lives(), "a zombie does not live");
        child.wait().unwrap();
        assert_eq!(ProcessId::of(process.pid), None);
    }

    #[test]
    fn a_process_is_known_by_where_it_works() {
        let (here, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let within = here.path().join("data");
        fs::create_dir(&within).unwrap();
        let found = |folder: &Path| ProcessId::working_in(folder).unwrap();
        assert_eq!(found(here.path()), None);
        let mut child = Command::new("sleep");
        let mut child = child.arg("600").current_dir(&within).spawn().unwrap();
        let process = ProcessId::of(child.id().try_into().unwrap());
        assert!(process.is_some());
        assert_eq!(found(here.path()), process);
        assert_eq!(found(elsewhere.path()), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found(here.path()), None);
    }
}
