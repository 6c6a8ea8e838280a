//! `serve`: one process of a pool that may have several.

use std::path::PathBuf;

use clockwise_client::store::{OpenError, ReadError};
use serde::Serialize;

use super::exit::{Exit, Failure};
use super::log;
use super::output::{self, Format};
use crate::running::error::{Listens, RunError};
use crate::serve::config::Config;
use crate::serve::error::ServeError;
use crate::serve::run::{self, Ready};
use crate::serve::stores::StoreError;

#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// The configuration, in TOML; docs/serving.md has one.
    #[arg(long, env = "CLOCKWISE_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// Look at the configuration and the files that it names, and start nothing.
    #[arg(long)]
    check: bool,
}

/// What `--check` found.
#[derive(Serialize)]
struct Checked {
    file: PathBuf,
    pool: String,
    roles: String,
    store: String,
}

pub(super) fn serve(args: &ServeArgs, format: Format) -> Result<Exit, Failure> {
    let config = Config::read(&args.config).map_err(ServeError::from)?;
    if args.check {
        return check(&config, format);
    }
    let ready = |ready: &Ready| match format {
        Format::Table => output::line(&ready.to_string()),
        Format::Json => output::json("Ready", Some(ready.epoch), ready),
    };
    let set_level = log::to_stderr(config.log.as_deref());
    run::run(config, &*set_level, ready)?;
    Ok(Exit::Done)
}

fn check(config: &Config, format: Format) -> Result<Exit, Failure> {
    run::check(config)?;
    let checked = Checked {
        file: config.file.clone(),
        pool: config.pool.to_string(),
        roles: config.roles.to_string(),
        store: config.store.to_string(),
    };
    match format {
        Format::Json => output::json("Configuration", None, &checked)?,
        Format::Table => output::line(&format!(
            "{} is good: pool {}, roles {}, store {}",
            checked.file.display(),
            checked.pool,
            checked.roles,
            checked.store
        ))?,
    }
    Ok(Exit::Done)
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let exit = match &error {
            ServeError::Config(_) => Exit::Usage,
            ServeError::Read { error, .. }
                if matches!(
                    **error,
                    ReadError::Unreachable { .. } | ReadError::Refused { .. }
                ) =>
            {
                Exit::StoreUnreachable
            }
            _ => Exit::Failed,
        };
        let next = match &error {
            ServeError::NoPool { file, .. } => Some(format!(
                "make it:  clockwise record init --config {} --node ID=HOST:PORT …",
                file.display()
            )),
            ServeError::Run(RunError::Listen { what, .. }) => Some(match what {
                Listens::Clients => "set router.listen in the configuration".to_owned(),
                Listens::Admin => "set admin.listen in the configuration".to_owned(),
            }),
            ServeError::Store(StoreError::Open(OpenError::Locked { .. })) => Some(
                "end that one first, or give this one roles = [\"router\"], which only reads"
                    .to_owned(),
            ),
            _ => None,
        };
        Self {
            next,
            ..Self::new(exit, error)
        }
    }
}
