//! SIGHUP: the configuration is read again, all of it is looked at, and what can change while a process serves is
//! changed. Where anything is wrong, nothing is changed at all, and it is said why, field by field.

use clockwise_client::store::ReadError;

use super::config::{Config, StoreConfig};
use super::run::administrator;
use super::secrets::Secrets;
use super::stores::{self, Opened};
use crate::admin::token::Token;
use crate::driver::redis::RedisDriver;
use crate::running::Running;

/// Logs from now on as much as these words say, or as much as usual without them; or says why that cannot be.
pub type SetLevel<'a> = &'a dyn Fn(Option<&str>) -> Result<(), String>;

/// A process that serves, and what of it can be changed.
pub(super) struct Live {
    pub(super) config: Config,
    pub(super) secrets: Secrets,
    pub(super) driver: RedisDriver,
    pub(super) opened: Opened,
    pub(super) token: Option<Token>,
    pub(super) running: Running,
}

/// What came of reading the configuration again.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// What is otherwise now, by field.
    changed: Vec<&'static str>,
    /// What stays as it was until a restart, by field, and why.
    kept: Vec<String>,
}

impl Live {
    /// Reads the configuration again and says in a word what came of it.
    pub(super) async fn reload(&mut self, set_level: SetLevel<'_>) -> String {
        match self.try_reload(set_level).await {
            Ok(outcome) => {
                for field in &outcome.kept {
                    tracing::warn!("{field}");
                }
                tracing::info!(
                    changed = outcome.changed.join(", "),
                    "configuration read again"
                );
                let words = match outcome.changed.as_slice() {
                    [] => "configuration read again, nothing changed".to_owned(),
                    changed => format!("configuration read again, changed: {}", changed.join(", ")),
                };
                self.running.notice(outcome.kept);
                words
            }
            Err(why) => {
                for line in &why {
                    tracing::error!("configuration not changed: {line}");
                }
                let notices = why.iter().map(|line| {
                    format!("the configuration was not changed at the last SIGHUP: {line}")
                });
                self.running.notice(notices.collect());
                "configuration refused, the old one goes on; see the log".to_owned()
            }
        }
    }

    async fn try_reload(&mut self, set_level: SetLevel<'_>) -> Result<Outcome, Vec<String>> {
        let file = self.config.file.clone();
        let config = Config::read(&file)
            .map_err(|faults| faults.0.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let named = |why: String| vec![format!("{}: {why}", file.display())];
        // Only a restart gives it other roles, so that it needs the secrets of those it has.
        let as_before = Config {
            roles: self.config.roles,
            ..config.clone()
        };
        let secrets = Secrets::read(&as_before).map_err(|errors| {
            let lines = errors
                .iter()
                .map(|error| format!("{}: {error}", file.display()));
            lines.collect::<Vec<_>>()
        })?;
        stores::check(&config.store, secrets.etcd.as_ref())
            .map_err(|error| named(error.to_string()))?;
        let mut outcome = Outcome {
            kept: kept(
                &self.config,
                &config,
                self.secrets.pool_key != secrets.pool_key,
            ),
            ..Outcome::default()
        };
        // The only one that somebody else has to agree to comes first.
        let entered = self.enter_etcd(&config, &secrets).await.map_err(|error| {
            named(format!(
                "store.password_file: etcd does not take it: {error}"
            ))
        })?;
        // One that was not tried is none that this process goes on with.
        let etcd = match entered {
            true => secrets.etcd.clone(),
            false => self.secrets.etcd.clone(),
        };
        let secrets = Secrets { etcd, ..secrets };
        if entered {
            outcome.changed.push("store.password_file");
        }
        self.apply(config, secrets, set_level, &mut outcome);
        Ok(outcome)
    }

    /// Whether etcd was logged in to anew.
    async fn enter_etcd(&self, config: &Config, secrets: &Secrets) -> Result<bool, ReadError> {
        let StoreConfig::Etcd(etcd) = &config.store else {
            return Ok(false);
        };
        let same_store = without_password(&self.config.store) == without_password(&config.store);
        let user = etcd.user.as_ref().zip(secrets.etcd.as_ref());
        let Some(((name, _), password)) = user.filter(|_| same_store) else {
            return Ok(false);
        };
        if self.secrets.etcd == secrets.etcd {
            return Ok(false);
        }
        self.opened.log_in_as(name, password.clone()).await?;
        Ok(true)
    }

    fn apply(
        &mut self,
        config: Config,
        secrets: Secrets,
        set_level: SetLevel<'_>,
        outcome: &mut Outcome,
    ) {
        let login = administrator(&config, &secrets);
        if login != administrator(&self.config, &self.secrets) {
            self.driver.change_administrator(login);
            outcome.changed.push("nodes.admin_password_file");
        }
        if let (Some(token), Some(now)) = (&self.token, &secrets.token)
            && self.secrets.token.as_ref() != Some(now)
        {
            token.change(now.clone());
            outcome.changed.push("admin.token_file");
        }
        let (limits, password) = (&config.router.limits, &secrets.clients);
        let others = [
            ("router.limits", *limits != self.config.router.limits),
            ("router.password_file", *password != self.secrets.clients),
        ];
        let others = others
            .into_iter()
            .filter_map(|(field, other)| other.then_some(field));
        let before = outcome.changed.len();
        outcome.changed.extend(others);
        if let Some(router) = &self.running.router
            && outcome.changed.len() > before
        {
            router.change(limits.clone(), password.clone());
        }
        if config.log != self.config.log {
            match set_level(config.log.as_deref()) {
                Ok(()) => outcome.changed.push("log.level"),
                Err(why) => outcome.kept.push(format!("log.level: {why}")),
            }
        }
        // What is kept is what the process goes on as.
        self.config.router.limits = config.router.limits;
        self.config.log = config.log;
        self.config.nodes.admin_user = config.nodes.admin_user;
        self.secrets = Secrets {
            pool_key: self.secrets.pool_key.clone(),
            ..secrets
        };
    }
}

/// What a restart is needed for, field by field.
fn kept(old: &Config, new: &Config, other_pool_key: bool) -> Vec<String> {
    let stays = |field: &str, old: &dyn std::fmt::Display, new: &dyn std::fmt::Display| {
        format!("{field}: {old} stays until a restart, which makes it {new}")
    };
    let mut kept = Vec::new();
    let mut compare = |field, old: &dyn std::fmt::Display, new: &dyn std::fmt::Display| {
        if old.to_string() != new.to_string() {
            kept.push(stays(field, old, new));
        }
    };
    let workers = |config: &Config| match config.router.workers {
        Some(workers) => workers.to_string(),
        None => "one for each core".to_owned(),
    };
    let advertise = |config: &Config| match &config.admin.advertise {
        Some(name) => name.clone(),
        None => "its own address".to_owned(),
    };
    compare("pool", &old.pool, &new.pool);
    compare("name", &old.name, &new.name);
    compare("roles", &old.roles, &new.roles);
    compare("store", &old.store, &new.store);
    compare("router.listen", &old.router.listen, &new.router.listen);
    compare("router.workers", &workers(old), &workers(new));
    compare("admin.listen", &old.admin.listen, &new.admin.listen);
    compare("admin.advertise", &advertise(old), &advertise(new));
    let stores = (without_password(&old.store), without_password(&new.store));
    if stores.0 != stores.1 && old.store.to_string() == new.store.to_string() {
        kept.push(
            "store: its user, certificates and lease stay as they are until a restart".to_owned(),
        );
    }
    if other_pool_key {
        kept.push("nodes.pool_key_file: the key stays until a restart".to_owned());
    }
    kept
}

/// The store without the place of its password, of which only what stands there counts.
fn without_password(store: &StoreConfig) -> StoreConfig {
    match store {
        StoreConfig::File { .. } => store.clone(),
        StoreConfig::Etcd(etcd) => {
            let mut etcd = etcd.clone();
            if let Some((_, source)) = &mut etcd.user {
                *source = super::secrets::Source::Variable("");
            }
            StoreConfig::Etcd(etcd)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        let text = format!("name = \"a\"\n{text}");
        Config::parse(Path::new("a.toml"), &text).unwrap()
    }

    #[test]
    fn what_needs_a_restart_is_named_field_by_field() {
        let old = config("[store]\nkind = \"file\"\ndir = \"data\"\n");
        assert_eq!(kept(&old, &old, false), Vec::<String>::new());
        let new = config(
            "pool = \"other\"\nroles = [\"router\"]\n[store]\nkind = \"file\"\ndir = \"elsewhere\"\n\
             [router]\nlisten = \"127.0.0.1:1\"\nworkers = 3\nlimits.clients_max = 7\n[admin]\nlisten = \"127.0.0.1:2\"\n",
        );
        let kept = kept(&old, &new, true);
        let fields: Vec<&str> = kept
            .iter()
            .filter_map(|line| line.split(':').next())
            .collect();
        assert_eq!(
            fields,
            [
                "pool",
                "roles",
                "store",
                "router.listen",
                "router.workers",
                "admin.listen",
                "nodes.pool_key_file"
            ]
        );
        assert!(
            kept[3].contains("127.0.0.1:7379 stays until a restart"),
            "{}",
            kept[3]
        );
    }
}
