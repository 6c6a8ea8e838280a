//! One server that a term has entered, and what is done to its users.
//!
//! Users are not replicated: a primary and each of its replicas are entered alike, one by one.

use std::sync::Arc;

use clockwise_client::resp::Value;

use super::RedisOptions;
use super::acl;
use super::frame::{Frame, Pipeline};
use super::info::Info;
use super::link::{Abilities, Link, Login};
use crate::driver::{DriverError, Generation, NodeAddress, Term};

/// A server with the term's user logged in.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) link: Arc<Link>,
    /// The term's own user here, for further connections.
    pub(super) login: Login,
    run_id: String,
}

impl Server {
    /// Makes the term's user through the administrator and logs in as it. Users of lower terms go,
    /// and an earlier user of this term with them: deleting it ends its connections, so nothing that
    /// they still had on their way is executed later.
    pub(super) async fn enter(
        node: &NodeAddress,
        term: Term,
        options: &RedisOptions,
    ) -> Result<Self, DriverError> {
        let admin = Link::open(
            &node.id,
            &node.address,
            &options.administrator,
            options.patience,
        )
        .await?;
        delete_users(&admin, |name| {
            acl::term_of(name).is_some_and(|other| other <= term)
        })
        .await?;
        let run_id = run_id(&admin).await?;
        let login = Login {
            user: acl::term_user(term),
            password: Some(random_password(&admin)?),
        };
        let abilities = abilities(&admin).await?;
        let rules = acl::term_user_rules(
            login.password.as_deref().unwrap_or_default(),
            abilities,
            &run_id,
        );
        set_user(&admin, &login.user, &rules).await?;
        let link = Link::open(&node.id, &node.address, &login, options.patience)
            .await?
            .with_abilities(abilities);
        Ok(Self {
            link: Arc::new(link),
            login,
            run_id,
        })
    }

    /// Makes the client user of a generation from nothing.
    pub(super) async fn make_client_user(
        &self,
        generation: Generation,
        password: &str,
        options: &RedisOptions,
    ) -> Result<(), DriverError> {
        let rules = acl::client_user_rules(password, options.scripts, &self.run_id);
        set_user(&self.link, &acl::client_user(generation), &rules).await
    }

    /// Deletes the client users that `goes` names; certain when it returns.
    pub(super) async fn delete_client_users(
        &self,
        goes: impl Fn(Generation) -> bool,
    ) -> Result<(), DriverError> {
        delete_users(&self.link, |name| {
            acl::generation_of(name).is_some_and(&goes)
        })
        .await
    }

    /// Generations of client users here.
    pub(super) async fn client_users(&self) -> Result<Vec<Generation>, DriverError> {
        let names = users(&self.link).await?;
        Ok(names
            .iter()
            .filter_map(|name| acl::generation_of(name))
            .collect())
    }

    /// Addresses of this server's own replicas.
    pub(super) async fn replicas(&self) -> Result<Vec<String>, DriverError> {
        Ok(info(&self.link, &["replication"]).await?.replicas())
    }
}

/// `INFO` of these sections.
pub(super) async fn info(link: &Link, sections: &[&str]) -> Result<Info, DriverError> {
    let mut args: Vec<&[u8]> = vec![b"INFO"];
    args.extend(sections.iter().map(|section| section.as_bytes()));
    let frame = link.ask("INFO", &args).await?;
    read_info(link, &frame)
}

pub(super) fn read_info(link: &Link, frame: &Frame) -> Result<Info, DriverError> {
    // RESP3 gives a verbatim string, which only a tree tells from its format's name.
    let value = frame.value();
    value
        .as_bytes()
        .map(Info::parse)
        .ok_or_else(|| link.odd("INFO", frame))
}

async fn run_id(link: &Link) -> Result<String, DriverError> {
    let info = info(link, &["server"]).await?;
    info.get("run_id")
        .map(str::to_owned)
        .ok_or_else(|| link.peer().wrong_server("INFO shows no run_id"))
}

/// What the server's own table of commands has.
pub(super) async fn abilities(admin: &Link) -> Result<Abilities, DriverError> {
    let frame = admin
        .ask(
            "COMMAND INFO",
            &[b"COMMAND", b"INFO", b"waitaof", b"hpexpiretime"],
        )
        .await?;
    let value = frame.value();
    let Some([waits_for_log, field_expiry]) = value.as_array() else {
        return Err(admin.odd("COMMAND INFO", &frame));
    };
    let is_known = |command: &Value| *command != Value::Null;
    Ok(Abilities {
        waits_for_log: is_known(waits_for_log),
        field_expiry: is_known(field_expiry),
    })
}

/// Makes a user. A rule that the server does not take leaves everything as it was.
pub(super) async fn set_user(
    link: &Link,
    name: &str,
    rules: &[Vec<u8>],
) -> Result<(), DriverError> {
    let mut args: Vec<&[u8]> = vec![b"ACL", b"SETUSER", name.as_bytes()];
    args.extend(rules.iter().map(Vec::as_slice));
    link.ask("ACL SETUSER", &args).await.map(|_ok| ())
}

async fn users(link: &Link) -> Result<Vec<String>, DriverError> {
    let frame = link.ask("ACL USERS", &[b"ACL", b"USERS"]).await?;
    read_users(link, &frame)
}

fn read_users(link: &Link, frame: &Frame) -> Result<Vec<String>, DriverError> {
    let value = frame.value();
    let names = value
        .as_array()
        .ok_or_else(|| link.odd("ACL USERS", frame))?;
    // A name that is no text is not ours.
    Ok(names
        .iter()
        .filter_map(|name| name.as_text().map(str::to_owned))
        .collect())
}

/// Deletes the users that `goes` names, and looks afterwards whether they are gone: a server that
/// answers `DELUSER` with an error, or with a count that leaves a doubt, has not fenced anybody.
pub(super) async fn delete_users(
    link: &Link,
    goes: impl Fn(&str) -> bool,
) -> Result<(), DriverError> {
    let mut names = users(link).await?;
    names.retain(|name| goes(name));
    if names.is_empty() {
        return Ok(());
    }
    let mut deletion: Vec<&[u8]> = vec![b"ACL", b"DELUSER"];
    deletion.extend(names.iter().map(|name| name.as_bytes()));
    let mut pipeline = Pipeline::of(&deletion);
    pipeline.push(&[b"ACL", b"USERS"]);
    let mut frames = link.call("ACL DELUSER", pipeline).await?.into_iter();
    for command in ["ACL DELUSER", "ACL USERS"] {
        let frame = frames
            .next()
            .ok_or_else(|| link.peer().refused(command, "no reply"))?;
        let frame = link.check(command, frame)?;
        if command == "ACL USERS"
            && let Some(left) = read_users(link, &frame)?.iter().find(|name| goes(name))
        {
            return Err(link
                .peer()
                .refused("ACL DELUSER", format_args!("user {left} is still there")));
        }
    }
    Ok(())
}

/// A password that only this session knows.
fn random_password(link: &Link) -> Result<String, DriverError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| link.peer().unreachable(error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
