//! `up` and `down`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::exit::{Exit, Failure};
use super::given::Given;
use super::log;
use super::output::{self, Format};
use crate::up::data_dir::{DataDir, DataDirError};
use crate::up::down::{Ended, down};
use crate::up::first::Wish;
use crate::up::node_server::Persist;
use crate::up::placing::Kind;
use crate::up::run::{self, UpOptions};
use crate::up::settings::{ClientLogin, Engine};

#[derive(Debug, clap::Args)]
pub(super) struct UpArgs {
    /// Where clients connect; port 0 takes a free one.
    #[arg(
        long,
        env = "CLOCKWISE_LISTEN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:7379"
    )]
    listen: SocketAddr,
    /// Where the admin API listens; port 0 takes a free one.
    #[arg(
        long,
        env = "CLOCKWISE_ADMIN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:7380"
    )]
    admin: SocketAddr,
    /// Where everything is kept.
    #[arg(
        long,
        env = "CLOCKWISE_DIR",
        value_name = "DIR",
        default_value = "./clockwise-data"
    )]
    dir: PathBuf,
    /// Nodes to begin with, on a new folder; 3 without it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    nodes: Option<u16>,
    /// What the nodes are; on a new folder embedded without it.
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// What redis-servers keep over a restart; aof without it.
    #[arg(long, value_enum)]
    persist: Option<Persist>,
    /// Threads of the router; as many as there are cores without it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    workers: Option<u16>,
    /// How keys find their nodes, on a new folder; without it slots, or a ring where nodes are memcached.
    #[arg(long, value_enum)]
    placement: Option<Kind>,
    /// Hash only what stands in the first braces of a key, so that `{user:1}.name` and `{user:1}.mail` share
    /// a node; decided when the pool is made.
    #[arg(long)]
    hash_tags: bool,
    /// Let clients run scripts, which must declare their keys; decided when the pool is made.
    #[arg(long)]
    scripts: bool,
    /// Let clients of memcached empty all nodes at once (`flush_all`); decided when the pool is made.
    #[arg(long)]
    flush_all: bool,
    /// A file, readable by its owner only, with the password that clients must give.
    #[arg(long, env = "CLOCKWISE_PASSWORD_FILE", value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Let clients in without a password, although the last `up` on the folder asked for one.
    #[arg(long, conflicts_with = "password_file")]
    no_password: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct DownArgs {
    /// The folder that was given to `up`.
    #[arg(
        long,
        env = "CLOCKWISE_DIR",
        value_name = "DIR",
        default_value = "./clockwise-data"
    )]
    dir: PathBuf,
}

impl UpArgs {
    pub(super) fn given(&self) -> Given {
        Given::folder(&self.dir)
    }
}

impl DownArgs {
    pub(super) fn given(&self) -> Given {
        Given::folder(&self.dir)
    }
}

pub(super) fn up(args: UpArgs, format: Format) -> Result<Exit, Failure> {
    let UpArgs {
        listen,
        admin,
        dir,
        nodes,
        engine,
        persist,
        workers,
        placement,
        hash_tags,
        scripts,
        flush_all,
        password_file,
        no_password,
    } = args;
    let clients = match (password_file, no_password) {
        (Some(file), _) => ClientLogin::PasswordOf(file),
        (None, true) => ClientLogin::Nothing,
        (None, false) => ClientLogin::Unsaid,
    };
    let options = UpOptions {
        listen,
        admin,
        dir,
        wish: Wish {
            nodes,
            placement,
            hash_tags,
            scripts,
            flush_all,
        },
        engine,
        persist,
        workers,
        clients,
    };
    let ready = |ready: &run::Ready| match format {
        Format::Table => output::line(&ready.to_string()),
        Format::Json => output::json("Ready", Some(ready.epoch), ready),
    };
    let _stays = log::to_stderr(None);
    run::run(&options, ready)?;
    Ok(Exit::Done)
}

pub(super) fn stop(args: &DownArgs, format: Format) -> Result<Exit, Failure> {
    let found = match DataDir::open(&args.dir) {
        Ok(dir) => down(&dir).map_err(|error| Failure::new(Exit::Failed, error))?,
        Err(DataDirError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Failure::new(Exit::Failed, error)),
    };
    if found.is_none() {
        // Still a success: what is asked for is that nothing runs there.
        output::say(format_args!(
            "warning: {} is no data folder of clockwise: no `clockwise up` ever ran on it\n\
             next:  clockwise down --dir DIR, with the folder that was given to `clockwise up`",
            args.dir.display()
        ));
    }
    let used = found.is_some();
    let ended = found.unwrap_or_default();
    match format {
        Format::Json => output::json("Down", None, &ended)?,
        Format::Table => {
            if let Some(pid) = ended.up {
                output::line(&format!("ended process {pid} with its nodes"))?;
            }
            for id in &ended.servers {
                output::line(&format!("ended node {id}, which had been left running"))?;
            }
            if ended == Ended::default() {
                output::line("nothing was running")?;
            }
            if used {
                let next = args.given().told("Start it again with:  clockwise up");
                output::line(&format!("\n{next}"))?;
            }
        }
    }
    Ok(Exit::Done)
}
