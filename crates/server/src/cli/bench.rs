//! `bench`: the checked workload against a router, as load and as proof.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{Instant, interval, sleep_until};

use clockwise_client::credentials::Password;

use super::exit::{Exit, Failure};
use super::given::Given;
use super::output::{self, Format, count};
use crate::up::data_dir::{DataDir, LISTEN_ADDRESS};
use crate::workload::{Broken, Report, StartError, Workload, WorkloadOptions};

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What a run may take up: every connection keeps its values and requests in memory.
const VALUE_BYTES_MAX: u64 = 16 << 20;
const CONNECTIONS_MAX: u64 = 10_000;
const PIPELINE_MAX: u64 = 10_000;

/// The one user that a router knows.
const USER: &str = "default";

fn at_most(max: u64) -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(1..=max)
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every write is numbered and every read is judged by what was acknowledged before it.\n\
                        Answers 4 if a write was lost or a read was wrong."
)]
pub(super) struct Args {
    /// Address of a router, or of several, over which connections are spread; else that of the running
    /// `clockwise up`.
    #[arg(
        long = "router",
        env = "CLOCKWISE_ROUTER",
        value_name = "HOST:PORT",
        value_delimiter = ','
    )]
    routers: Vec<String>,
    /// Data folder of the running `clockwise up`.
    #[arg(
        long,
        env = "CLOCKWISE_DIR",
        value_name = "DIR",
        default_value = "./clockwise-data"
    )]
    dir: PathBuf,
    /// A file, readable by its owner only, with the password that the router asks for.
    #[arg(long, env = "CLOCKWISE_PASSWORD_FILE", value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// How long to go on; Ctrl-C ends it earlier, with its report.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Requests a second, at fixed times whether or not earlier ones were answered; as fast as it goes without it.
    #[arg(long, value_name = "N")]
    rate: Option<u64>,
    /// Connections.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_most(CONNECTIONS_MAX))]
    connections: usize,
    /// Requests that a connection may have under way.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_most(PIPELINE_MAX))]
    pipeline: usize,
    /// Keys, at least 16 a connection.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    keys: usize,
    /// What the names of keys begin with; two runs at once must not share it [default: bench- and a random number].
    #[arg(long, value_name = "TEXT")]
    key_prefix: Option<String>,
    /// Bytes of a value.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_most(VALUE_BYTES_MAX))]
    value_bytes: usize,
    /// The same seed makes the same choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Args {
    pub(super) fn given(&self) -> Given {
        Given::folder(&self.dir)
    }

    fn options(&self) -> Result<WorkloadOptions, Failure> {
        let mut addrs = self.addresses()?;
        Ok(WorkloadOptions {
            addr: addrs.remove(0),
            more_addrs: addrs,
            auth: self.login()?,
            connections: self.connections,
            pipeline: self.pipeline,
            keys: self.keys,
            key_prefix: self.key_prefix()?,
            value_bytes: self.value_bytes,
            seed: self.seed,
            rate: self.rate,
            ..WorkloadOptions::default()
        })
    }

    /// One of its own for each run: what another wrote would be judged as a fault.
    fn key_prefix(&self) -> Result<String, Failure> {
        if let Some(prefix) = &self.key_prefix {
            return Ok(prefix.clone());
        }
        let number = getrandom::u32().map_err(|error| {
            Failure::new(Exit::Failed, format!("no random number: {error}"))
                .with_next("the same with --key-prefix TEXT")
        })?;
        Ok(format!("bench-{number:08x}"))
    }

    fn login(&self) -> Result<Option<(String, Password)>, Failure> {
        let Some(file) = &self.password_file else {
            return Ok(None);
        };
        let password = Password::from_file(file);
        let password = password.map_err(|error| Failure::new(Exit::Failed, error))?;
        Ok(Some((USER.to_owned(), password)))
    }

    /// One at least.
    fn addresses(&self) -> Result<Vec<String>, Failure> {
        if !self.routers.is_empty() {
            return Ok(self.routers.clone());
        }
        let found = DataDir::open(&self.dir)
            .ok()
            .and_then(|dir| dir.read(LISTEN_ADDRESS).ok().flatten());
        found
            .and_then(|text| text.parse::<SocketAddr>().ok())
            .map(|address| vec![address.to_string()])
            .ok_or_else(|| {
                let words = format!(
                    "no running router found: {} has no {LISTEN_ADDRESS}",
                    self.dir.display()
                );
                Failure::new(Exit::Failed, words)
                    .with_next("clockwise up, or name a router with --router")
            })
    }
}

pub(super) fn run(args: &Args, format: Format) -> Result<Exit, Failure> {
    let options = args.options()?;
    let prefix = options.key_prefix.clone();
    let runtime =
        tokio::runtime::Runtime::new().map_err(|error| Failure::new(Exit::Failed, error))?;
    let report = runtime
        .block_on(load(options, Duration::from_secs(args.seconds)))
        .map_err(refused)?;
    match format {
        Format::Json => output::json("Bench", None, &report)?,
        Format::Table => {
            output::line(report.to_string().trim_end())?;
            output::line(&format!(
                "its keys stay in the pool, as {prefix}:0 and so on"
            ))?;
            let next = args
                .given()
                .told("Look at the pool with:  clockwise status");
            output::line(&format!("\n{next}"))?;
        }
    }
    Ok(if report.is_clean() {
        Exit::Done
    } else {
        Exit::Unhealthy
    })
}

fn refused(error: StartError) -> Failure {
    let exit = match error {
        StartError::Connect { .. } | StartError::Refused { .. } => Exit::Failed,
        _ => Exit::Usage,
    };
    let unknown_to_it = match &error {
        StartError::Connect { why, .. } => matches!(why, Broken::Denied(_)),
        StartError::Refused { why, .. } => why.contains("NOAUTH"),
        _ => false,
    };
    let failure = Failure::new(exit, error);
    match unknown_to_it {
        true => failure.with_next("clockwise bench --password-file FILE, with the password that clients of the router give"),
        false => failure,
    }
}

async fn load(options: WorkloadOptions, time: Duration) -> Result<Report, StartError> {
    let workload = Workload::start(options).await?;
    let began = Instant::now();
    let bar = bar(time);
    let mut look = interval(LOOK_EVERY);
    let mut last = workload.mark();
    let mut interrupted = Box::pin(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            () = sleep_until(began + time) => break,
            // Without a handler an interrupt ends the process by itself.
            Ok(()) = &mut interrupted => break,
            _ = look.tick() => {
                let mark = workload.mark();
                let writes = mark.since(&last).acknowledged_writes_per_second();
                bar.set_position(began.elapsed().as_secs());
                bar.set_message(format!("{writes:.0} writes/s, {} keys at fault", count(faults(&workload))));
                last = mark;
            }
        }
    }
    bar.finish_and_clear();
    Ok(workload.stop().await)
}

fn faults(workload: &Workload) -> u64 {
    u64::try_from(workload.faults_so_far()).unwrap_or(u64::MAX)
}

fn bar(time: Duration) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} s  {msg}");
    ProgressBar::new(time.as_secs())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
