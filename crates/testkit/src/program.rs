//! A program of ours, which lives and ends as the servers here do.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::process::{POLL_INTERVAL, Process, bound_to_our_life};

/// A running program. What it prints goes into two files, `NAME.out` and `NAME.log`, which go on over
/// restarts. Killed when dropped.
#[derive(Debug)]
pub struct RunningProgram {
    process: Process,
    out: PathBuf,
    log: PathBuf,
    program: PathBuf,
    args: Vec<OsString>,
    environment: Vec<(String, String)>,
}

impl RunningProgram {
    /// Starts a program; its files are made in `folder` under `name`.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn start(
        program: &Path,
        args: &[&str],
        environment: &[(&str, &str)],
        folder: &Path,
        name: &str,
    ) -> RunningProgram {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let (out, log) = (
            folder.join(format!("{name}.out")),
            folder.join(format!("{name}.log")),
        );
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let environment: Vec<_> = environment.iter().map(owned).collect();
        RunningProgram {
            process: spawn(program, &args, &environment, &out, &log),
            out,
            log,
            program: program.to_owned(),
            args,
            environment,
        }
    }

    /// Starts it again as it was, after killing it if it still runs.
    #[track_caller]
    pub fn restart(&mut self) {
        self.process.kill9();
        self.process = spawn(
            &self.program,
            &self.args,
            &self.environment,
            &self.out,
            &self.log,
        );
    }

    /// Its process id, another after each restart.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What this start of it wrote to its standard output.
    #[must_use]
    pub fn said(&self) -> String {
        // Empty until it has said something.
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// What it wrote to its standard error, all starts together.
    #[must_use]
    pub fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether the process lives; a paused one does.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// SIGKILL, and waits for the end.
    pub fn kill9(&mut self) {
        self.process.kill9();
    }

    /// SIGSTOP. Returns when no thread of it runs any more.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// SIGINT, as Ctrl-C sends it. Whether it ended within this time.
    pub fn interrupt(&mut self, within: Duration) -> bool {
        self.process.interrupt();
        let deadline = Instant::now() + within;
        while self.process.is_running() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }
}

#[track_caller]
fn spawn(
    program: &Path,
    args: &[OsString],
    environment: &[(String, String)],
    out: &Path,
    log: &Path,
) -> Process {
    let out = match File::create(out) {
        Ok(file) => file,
        Err(error) => panic!("cannot write {}: {error}", out.display()),
    };
    let mut command = bound_to_our_life(program.to_owned());
    command
        .args(args)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(out);
    Process::spawn_command(command, log)
}
