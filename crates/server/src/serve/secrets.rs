//! Secrets: from files that only their owner may read, or from the environment, and from nowhere else.

use std::fmt;
use std::path::{Path, PathBuf};

use clockwise_client::credentials::{CredentialError, Password, PoolKey};

use super::config::{Config, StoreConfig};

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a file.
    File(PathBuf),
    /// In a variable of the environment.
    Variable(&'static str),
}

impl Source {
    /// The file, if one is named; else the variable.
    pub(super) fn of(folder: &Path, file: Option<PathBuf>, variable: &'static str) -> Self {
        match file {
            Some(file) => Self::File(folder.join(file)),
            None => Self::Variable(variable),
        }
    }

    /// The file, where it is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Variable(_) => None,
        }
    }

    /// The password there.
    ///
    /// # Errors
    /// When it is missing, is none, or others could read it.
    pub fn password(&self) -> Result<Password, CredentialError> {
        match self {
            Self::File(path) => Password::from_file(path),
            Self::Variable(variable) => Password::from_env(variable),
        }
    }

    /// The same, where a variable may be missing.
    fn password_if_said(&self) -> Result<Option<Password>, CredentialError> {
        match (self, self.password()) {
            (Self::Variable(_), Err(CredentialError::Missing { .. })) => Ok(None),
            (_, password) => password.map(Some),
        }
    }

    fn pool_key(&self) -> Result<PoolKey, CredentialError> {
        match self {
            Self::File(path) => PoolKey::from_file(path),
            Self::Variable(variable) => PoolKey::from_env(variable),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Variable(name) => f.pad(name),
        }
    }
}

/// What a process must know for its roles, and nothing for those that it does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secrets {
    /// What passwords of clients at the nodes follow from: for routers and rebalancers.
    pub pool_key: Option<PoolKey>,
    /// The nodes' administrator's: for rebalancers and the admin API.
    pub nodes: Option<Password>,
    /// What clients give: for routers, where clients give any.
    pub clients: Option<Password>,
    /// The token of the admin API.
    pub token: Option<Password>,
    /// What etcd asks for.
    pub etcd: Option<Password>,
}

/// Why a secret is not to be had, and which field names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {error}{}", hint(error, source_of))]
pub struct SecretError {
    /// The field.
    pub field: &'static str,
    /// Where it was looked for.
    pub source_of: Source,
    /// Why it is not to be had.
    pub error: CredentialError,
}

fn hint(error: &CredentialError, source: &Source) -> &'static str {
    match (error, source) {
        (CredentialError::Missing { .. }, Source::Variable(_)) => {
            " in the environment, and no file is named by the field"
        }
        _ => "",
    }
}

impl Secrets {
    /// Reads those that the configuration's roles need.
    ///
    /// # Errors
    /// All that are not to be had.
    pub fn read(config: &Config) -> Result<Self, Vec<SecretError>> {
        let mut failed = Vec::new();
        let roles = config.roles;
        let nodes = &config.nodes;
        let mut read = Reading {
            failed: &mut failed,
        };
        let pool_key = read.when(
            roles.router || roles.rebalancer,
            "nodes.pool_key_file",
            &nodes.pool_key,
            Source::pool_key,
        );
        let administrator = read.when(
            roles.rebalancer || roles.admin,
            "nodes.admin_password_file",
            &nodes.admin_password,
            Source::password,
        );
        let clients = read.when(
            roles.router,
            "router.password_file",
            &config.router.password,
            Source::password_if_said,
        );
        let token = read.when(
            roles.admin,
            "admin.token_file",
            &config.admin.token,
            Source::password,
        );
        let etcd = match &config.store {
            StoreConfig::Etcd(etcd) => etcd.user.as_ref().and_then(|(_, source)| {
                read.when(true, "store.password_file", source, Source::password)
            }),
            StoreConfig::File { .. } => None,
        };
        if !failed.is_empty() {
            return Err(failed);
        }
        Ok(Self {
            pool_key,
            nodes: administrator,
            clients: clients.flatten(),
            token,
            etcd,
        })
    }
}

struct Reading<'a> {
    failed: &'a mut Vec<SecretError>,
}

impl Reading<'_> {
    fn when<T>(
        &mut self,
        needed: bool,
        field: &'static str,
        source: &Source,
        read: fn(&Source) -> Result<T, CredentialError>,
    ) -> Option<T> {
        if !needed {
            return None;
        }
        match read(source) {
            Ok(secret) => Some(secret),
            Err(error) => {
                self.failed.push(SecretError {
                    field,
                    source_of: source.clone(),
                    error,
                });
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(folder: &Path, name: &str, mode: u32) {
        let path = folder.join(name);
        fs::write(&path, "a-secret").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_the_secrets_of_the_roles_are_read_and_all_that_fail_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = |roles: &str| {
            let text = format!(
                "roles = [{roles}]\n[store]\nkind = \"file\"\ndir = \"data\"\n[nodes]\n\
                 pool_key_file = \"no-key\"\nadmin_password_file = \"exposed\"\n[admin]\n\
                 token_file = \"token\"\n[router]\npassword_file = \"gone\"\n"
            );
            Secrets::read(&Config::parse(&folder.path().join("a.toml"), &text).unwrap())
        };
        write(folder.path(), "no-key", 0o600);
        write(folder.path(), "exposed", 0o644);
        write(folder.path(), "token", 0o600);
        let told = secrets("\"router\"").unwrap_err();
        let fields: Vec<_> = told.iter().map(|error| error.field).collect();
        assert_eq!(fields, ["nodes.pool_key_file", "router.password_file"]);
        assert!(matches!(told[0].error, CredentialError::NotAKey { .. }));
        let told = secrets("\"rebalancer\", \"admin\"").unwrap_err();
        let fields: Vec<_> = told.iter().map(|error| error.field).collect();
        assert_eq!(fields, ["nodes.pool_key_file", "nodes.admin_password_file"]);
        let words = told[1].to_string();
        assert!(
            words.contains("chmod 600") && words.contains("exposed"),
            "{words}"
        );
        assert!(!words.contains("a-secret"), "{words}");
    }
}
