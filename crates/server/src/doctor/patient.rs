//! What is to be examined, as files of this machine show it: a process's configuration, the folder of an `up`,
//! or nothing but the address of an admin API.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clockwise_client::credentials::Password;
use clockwise_cluster::PoolName;

use super::processes::{ProcessSeen, SecretSeen};
use super::redis::LoginHint;
use crate::driver::redis::Login;
use crate::serve::config::{Config, StoreConfig};
use crate::serve::fault::Faults;
use crate::serve::secrets::Source;
use crate::up::data_dir::{
    ADMIN_ADDRESS, ADMIN_TOKEN, DataDir, LISTEN_ADDRESS, NODES_PASSWORD, POOL_KEY,
};
use crate::up::settings::{Engine, Settings};

/// Where the password of the nodes' administrator is looked for where no file is named.
const NODES_PASSWORD_VARIABLE: &str = "CLOCKWISE_NODES_PASSWORD";
/// What `up` and every pool without a name of its own is called.
const POOL: &str = "default";
const ADMINISTRATOR: &str = "default";

/// What is examined.
#[derive(Clone, Debug)]
pub struct Patient {
    /// The configuration it is known by.
    pub(super) config: Option<PathBuf>,
    pub(super) process: ProcessSeen,
    /// Where the record is, and what lets us read it there.
    pub(super) record: Option<(StoreConfig, PoolName, Option<Password>)>,
    pub(super) login: Login,
    pub(super) hint: LoginHint,
    /// Whether the nodes are inside the process of `up`.
    pub(super) embedded: bool,
}

impl Patient {
    /// A process by its configuration.
    ///
    /// # Errors
    /// All that is wrong with the configuration.
    pub fn of_config(file: &Path) -> Result<Self, Faults> {
        let config = Config::read(file)?;
        let etcd = match &config.store {
            StoreConfig::Etcd(etcd) => Some(etcd),
            StoreConfig::File { .. } => None,
        };
        let etcd_password = etcd.and_then(|etcd| etcd.user.as_ref().map(|(_, source)| source));
        let roles = config.roles;
        let mut sources = Vec::new();
        let mut needs = |needed: bool, field, source| {
            if needed {
                sources.push((field, source));
            }
        };
        let nodes = &config.nodes;
        needs(
            roles.router || roles.rebalancer,
            "nodes.pool_key_file",
            &nodes.pool_key,
        );
        needs(
            roles.rebalancer || roles.admin,
            "nodes.admin_password_file",
            &nodes.admin_password,
        );
        needs(
            roles.router,
            "router.password_file",
            &config.router.password,
        );
        needs(roles.admin, "admin.token_file", &config.admin.token);
        if let Some(source) = etcd_password {
            needs(true, "store.password_file", source);
        }
        let mut secrets: Vec<SecretSeen> = sources
            .iter()
            .filter_map(|(field, source)| Some(secret(field, source.file()?)))
            .collect();
        if let Some((_, key)) = etcd.and_then(|etcd| etcd.identity.as_ref()) {
            secrets.push(secret("store.key_file", key));
        }
        let listens = |role: bool, address: std::net::SocketAddr| role.then(|| address.to_string());
        // A file that cannot be read here is a password all the same.
        let source = &config.router.password;
        let with_password = source.file().is_some() || source.password().is_ok();
        let process = ProcessSeen {
            place: file.display().to_string(),
            secrets,
            same_secrets: same(&sources),
            admin: listens(roles.admin, config.admin.listen),
            router: listens(roles.router, config.router.listen).map(|at| (at, with_password)),
            folder: None,
        };
        let password = etcd_password.and_then(|source| source.password().ok());
        Ok(Self {
            config: Some(file.to_owned()),
            process,
            login: login(&nodes.admin_user, &nodes.admin_password),
            hint: LoginHint {
                user: nodes.admin_user.clone(),
                password: nodes.admin_password.clone(),
            },
            embedded: false,
            record: Some((config.store, config.pool, password)),
        })
    }

    /// The folder of an `up`, whether it runs or not; `None` where none ever ran.
    #[must_use]
    pub fn of_folder(folder: &Path) -> Option<Self> {
        let dir = DataDir::open(folder).ok()?;
        let settings = Settings::kept(&dir).ok().flatten()?;
        let path = |name: &str| dir.path().join(name);
        let named = |name: &str| dir.read(name).ok().flatten();
        // Not every engine needs all of them; what `up` would miss it says itself.
        let secrets = [POOL_KEY, NODES_PASSWORD, ADMIN_TOKEN]
            .into_iter()
            .filter(|name| path(name).exists())
            .map(|name| secret(name, &path(name)));
        let source = Source::File(path(NODES_PASSWORD));
        let mode = fs::metadata(dir.path()).ok()?.permissions().mode() & 0o777;
        let process = ProcessSeen {
            place: dir.path().display().to_string(),
            secrets: secrets.collect(),
            same_secrets: Vec::new(),
            admin: named(ADMIN_ADDRESS),
            router: named(LISTEN_ADDRESS).map(|at| (at, settings.password)),
            folder: Some((dir.path().to_owned(), mode)),
        };
        let store = StoreConfig::File {
            dir: dir.path().to_owned(),
        };
        Some(Self {
            config: None,
            process,
            record: Some((store, pool_of_up(), None)),
            login: login(ADMINISTRATOR, &source),
            hint: LoginHint {
                user: ADMINISTRATOR.to_owned(),
                password: source,
            },
            embedded: settings.engine == Engine::Embedded,
        })
    }

    /// Whoever answers at the address of an admin API.
    #[must_use]
    pub fn of_admin(address: &str) -> Self {
        let source = Source::Variable(NODES_PASSWORD_VARIABLE);
        Self {
            config: None,
            process: ProcessSeen {
                place: address.to_owned(),
                admin: Some(address.to_owned()),
                ..ProcessSeen::default()
            },
            record: None,
            login: login(ADMINISTRATOR, &source),
            hint: LoginHint {
                user: ADMINISTRATOR.to_owned(),
                password: source,
            },
            embedded: false,
        }
    }

    /// `HOST:PORT` of its admin API, where it is known.
    #[must_use]
    pub fn admin(&self) -> Option<&str> {
        let address = self.process.admin.as_deref()?;
        // Port 0 is one that the system chose.
        (!address.ends_with(":0")).then_some(address)
    }
}

fn pool_of_up() -> PoolName {
    POOL.parse().expect("a plain word is a pool's name")
}

/// Who logs in; without a password where that is not to be had.
fn login(user: &str, source: &Source) -> Login {
    let password = source.password().ok();
    Login {
        user: user.to_owned(),
        password: password.map(|password| password.reveal().to_owned()),
    }
}

fn secret(field: &'static str, path: &Path) -> SecretSeen {
    let mode = fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
    SecretSeen {
        field,
        path: PathBuf::from(path),
        mode: mode.map_err(|error| error.to_string()),
    }
}

/// Which of them are the same. What cannot be read is told elsewhere.
fn same(sources: &[(&'static str, &Source)]) -> Vec<(&'static str, &'static str)> {
    let read = |(field, source): &(&'static str, &Source)| {
        let password = source.password().ok()?;
        Some((*field, password))
    };
    let secrets: Vec<_> = sources.iter().filter_map(read).collect();
    let mut pairs = Vec::new();
    for (number, (field, one)) in secrets.iter().enumerate() {
        for (other, two) in &secrets[number + 1..] {
            if one == two {
                pairs.push((*field, *other));
            }
        }
    }
    pairs
}
