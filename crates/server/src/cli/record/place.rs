//! Where the record is that a `record` verb is about, and the store there for as long as the verb takes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clockwise_client::credentials::Password;
use clockwise_client::store::{CommitError, HistoryCopy, OpenError, ReadError, Store};
use clockwise_cluster::{PoolName, Record, Revision};

use super::super::exit::{Exit, Failure};
use crate::serve::config::{Config, StoreConfig};
use crate::serve::error::ServeError;
use crate::serve::secrets::{SecretError, Source};
use crate::serve::stores::{self, Access, Holder, StoreError, StoreUrl};

/// Where the record is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Place {
    /// The configuration of a `clockwise serve`, which names store and pool.
    #[arg(long, env = "CLOCKWISE_CONFIG", value_name = "FILE", conflicts_with_all = ["store", "pool"])]
    config: Option<PathBuf>,
    /// The store: etcd://HOST:PORT[,HOST:PORT…][/PREFIX], or file:FOLDER, that of a `clockwise up` for one.
    #[arg(long, value_name = "STORE")]
    store: Option<StoreUrl>,
    /// The pool.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "default",
        requires = "store"
    )]
    pool: PoolName,
}

/// A store that is open for as long as the verb takes.
pub(super) struct Open {
    pub(super) store: Arc<dyn Store>,
    pub(super) pool: PoolName,
    runtime: tokio::runtime::Runtime,
    /// For people.
    pub(super) name: String,
}

impl Place {
    pub(super) fn open(&self, access: Access) -> Result<Open, Failure> {
        let (store, pool, password) = self.named()?;
        if let StoreConfig::File { dir } = &store
            && access == Access::Read
            && !stores::is_there(dir)
        {
            let words = format!("{} is no folder", dir.display());
            return Err(Failure::new(Exit::Failed, words));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| Failure::new(Exit::Failed, format!("a runtime: {error}")))?;
        let holder = Holder {
            name: format!("clockwise record, process {}", std::process::id()),
            contact: None,
        };
        let entered = runtime.enter();
        let opened = stores::open(&store, &pool, password.as_ref(), holder, access);
        drop(entered);
        Ok(Open {
            store: opened.map_err(unopened)?.store,
            pool,
            runtime,
            name: store.to_string(),
        })
    }

    fn named(&self) -> Result<(StoreConfig, PoolName, Option<Password>), Failure> {
        match (&self.config, &self.store) {
            (Some(file), _) => {
                let config = Config::read(file).map_err(ServeError::from)?;
                let source = match &config.store {
                    StoreConfig::Etcd(etcd) => etcd.user.as_ref().map(|(_, source)| source.clone()),
                    StoreConfig::File { .. } => None,
                };
                let password = source.map(|source| secret(file, source)).transpose()?;
                Ok((config.store, config.pool, password))
            }
            (None, Some(url)) => Ok((url.0.clone(), self.pool.clone(), None)),
            (None, None) => Err(Failure::new(
                Exit::Usage,
                "which record? name its store with --store, or a configuration with --config",
            )
            .with_next("clockwise record history --store etcd://HOST:PORT")),
        }
    }
}

fn secret(file: &Path, source_of: Source) -> Result<Password, Failure> {
    source_of.password().map_err(|error| {
        let errors = vec![SecretError {
            field: "store.password_file",
            source_of,
            error,
        }];
        let file = file.to_owned();
        ServeError::Secrets { file, errors }.into()
    })
}

fn unopened(error: StoreError) -> Failure {
    let locked = matches!(&error, StoreError::Open(OpenError::Locked { .. }));
    let failure = Failure::new(Exit::Failed, error);
    if locked {
        return failure.with_next("end that process first; export, history and diff only read");
    }
    failure
}

impl Open {
    pub(super) fn record(&self) -> Result<Option<Arc<Record>>, Failure> {
        let read = self.runtime.block_on(self.store.read());
        let record = read.map_err(|error| self.unread(&error))?;
        match record {
            Some(record) if *record.pool() != self.pool => {
                let (found, pool) = (record.pool(), &self.pool);
                let words = format!("{} holds pool {found}, not {pool}", self.name);
                Err(Failure::new(Exit::Failed, words).with_next(format!("--pool {found}")))
            }
            record => Ok(record),
        }
    }

    pub(super) fn existing(&self) -> Result<Arc<Record>, Failure> {
        self.record()?.ok_or_else(|| {
            let words = format!("{} holds no pool {}", self.name, self.pool);
            Failure::new(Exit::Failed, words)
                .with_next("make it:  clockwise record init --store STORE --node ID=HOST:PORT …")
        })
    }

    pub(super) fn history(&self) -> Result<Vec<HistoryCopy>, Failure> {
        let history = self.runtime.block_on(self.store.history());
        history.map_err(|error| self.unread(&error))
    }

    /// The first record of an epoch.
    pub(super) fn epoch(&self, epoch: u64) -> Result<Arc<Record>, Failure> {
        let history = self.history()?;
        let found = history.iter().find(|copy| copy.epoch.get() == epoch);
        let Some(copy) = found else {
            let kept: Vec<String> = history.iter().map(|copy| copy.epoch.to_string()).collect();
            let words = format!("epoch {epoch} is not kept; kept are {}", kept.join(", "));
            return Err(Failure::new(Exit::Failed, words).with_next("clockwise record history"));
        };
        copy.record.clone().map_err(|error| {
            Failure::new(Exit::Failed, format!("the copy of epoch {epoch}: {error}"))
        })
    }

    pub(super) fn commit(&self, expected: Revision, next: Record) -> Result<Arc<Record>, Failure> {
        let committed = self
            .runtime
            .block_on(self.store.commit(expected, next, None));
        committed.map_err(|error| {
            let exit = match &error {
                CommitError::Conflict {
                    current: Some(_), ..
                }
                | CommitError::EpochWentBack { .. } => Exit::Conflict,
                CommitError::Read(_)
                | CommitError::Unreachable { .. }
                | CommitError::Refused { .. }
                | CommitError::Unknown { .. } => Exit::StoreUnreachable,
                CommitError::TooLarge(_) => Exit::Guard,
                _ => Exit::Failed,
            };
            Failure::new(exit, format!("{}: {error}", self.name))
        })
    }

    fn unread(&self, error: &ReadError) -> Failure {
        let exit = match error {
            ReadError::Unreachable { .. } | ReadError::Refused { .. } => Exit::StoreUnreachable,
            _ => Exit::Failed,
        };
        Failure::new(exit, format!("{}: {error}", self.name))
    }
}
