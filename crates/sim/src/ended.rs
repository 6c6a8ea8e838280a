//! Runs a program until it ends or its time is over, and then ends it with all that it started.
//!
//! A planted bug may well make its check loop for ever; who waits for it has to go on. The program is the leader
//! of a process group of its own, so that what `cargo` runs ends with `cargo`.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a killed group may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// How a program ended.
pub(crate) enum Ended {
    /// By itself, with this.
    ByItself(Output),
    /// Not within its time; nothing of it runs any more.
    Killed,
}

/// Runs a program with nothing to read; what it and those that it started write is kept.
///
/// # Errors
///
/// The program cannot be started or waited for, or something that it started is still there after it was killed.
pub(crate) fn within(limit: Duration, command: &mut Command) -> io::Result<Ended> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let group = Pid::from_child(&child);
    let (ended, end) = mpsc::channel();
    // It ends once nobody has the pipes any more.
    let waiter = thread::spawn(move || {
        // Nobody listens if the group outlived being killed.
        let _unheard = ended.send(child.wait_with_output());
    });
    let output = match end.recv_timeout(limit) {
        Ok(output) => Some(output?),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the waiter is gone")),
    };
    if output.is_none() {
        // The group may have ended just now.
        let _gone = kill_process_group(group, Signal::KILL);
        end.recv_timeout(GONE_WITHIN).map_err(|_| {
            io::Error::other(format!(
                "process group {group:?} was killed and is still there"
            ))
        })??;
    }
    waiter
        .join()
        .map_err(|_| io::Error::other("the waiter failed"))?;
    Ok(output.map_or(Ended::Killed, Ended::ByItself))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_ends_in_time_says_how() {
        let Ended::ByItself(output) =
            within(Duration::from_secs(60), &mut shell("echo said; exit 3")).unwrap()
        else {
            panic!("it had a minute");
        };
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout, b"said\n");
    }

    /// The one in the background holds the pipes: while it lives nobody gets an answer, only an error.
    #[test]
    fn what_never_ends_is_killed_with_what_it_started() {
        let mut check = shell("tail -f /dev/null & tail -f /dev/null");
        let ended = within(Duration::from_millis(100), &mut check).unwrap();
        assert!(matches!(ended, Ended::Killed));
    }
}
