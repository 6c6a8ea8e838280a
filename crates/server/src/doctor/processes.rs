//! What is wrong with the pool's processes: those that are registered, and the one whose configuration or
//! folder is at hand.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::check::Check;
use super::finding::{Finding, host_and_port, is_loopback, path_word};
use crate::admin::clients::ClientList;

/// Registrations put into findings of one check; the rest is counted.
const NAMED_MAX: usize = 20;

/// A process as its configuration or folder shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ProcessSeen {
    /// For people: the configuration's file, or the folder.
    pub(super) place: String,
    pub(super) secrets: Vec<SecretSeen>,
    /// Pairs of fields whose secrets are the same.
    pub(super) same_secrets: Vec<(&'static str, &'static str)>,
    /// `HOST:PORT` of its admin API, if it has one.
    pub(super) admin: Option<String>,
    /// The same of its router, and whether clients give a password.
    pub(super) router: Option<(String, bool)>,
    /// A folder that only its owner should look into, and its mode.
    pub(super) folder: Option<(PathBuf, u32)>,
}

/// A file with a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretSeen {
    pub(super) field: &'static str,
    pub(super) path: PathBuf,
    /// Its permissions, or why they are not to be had.
    pub(super) mode: Result<u32, String>,
}

/// What group and others may do.
const FOREIGN_ACCESS: u32 = 0o077;

pub(super) fn findings(seen: &ProcessSeen) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut find = |check, place: &str, what: String, next: String| {
        found.push(Finding::new(check, place, what, next));
    };
    for secret in &seen.secrets {
        let place = secret.path.display().to_string();
        let path = path_word(&secret.path);
        match &secret.mode {
            Ok(mode) if mode & FOREIGN_ACCESS != 0 => {
                let what = format!("{} has mode {mode:03o}", secret.field);
                find(
                    Check::SecretExposed,
                    &place,
                    what,
                    format!("chmod 600 {path}"),
                );
            }
            Ok(_) => {}
            Err(why) => {
                let next = format!(
                    "let who runs the process read it, or write it there: chmod 600 {path}"
                );
                find(
                    Check::SecretMissing,
                    &place,
                    format!("{}: {why}", secret.field),
                    next,
                );
            }
        }
    }
    for (one, two) in &seen.same_secrets {
        let next = "make a new one for either: od -An -N32 -tx1 /dev/urandom | tr -d ' \\n'";
        let what = format!("{one} and {two} are the same");
        find(Check::SecretReused, &seen.place, what, next.to_owned());
    }
    let beyond = |address: &&String| !is_loopback(host_and_port(address).0);
    if let Some(admin) = seen.admin.as_ref().filter(beyond) {
        let next = format!(
            "listen on loopback (admin.listen = \"127.0.0.1:{}\"), or let only operators and the pool's other \
             processes reach it",
            host_and_port(admin).1
        );
        find(
            Check::AdminExposed,
            admin,
            "it speaks plain HTTP".to_owned(),
            next,
        );
    }
    if let Some((router, false)) = &seen.router
        && beyond(&router)
    {
        let next =
            "name a file with a password by router.password_file, or by --password-file of up";
        find(
            Check::RouterOpen,
            router,
            "no password that could be seen from here".to_owned(),
            next.to_owned(),
        );
    }
    if let Some((folder, mode)) = &seen.folder
        && mode & FOREIGN_ACCESS != 0
    {
        let place = folder.display().to_string();
        let next = format!("chmod 700 {}", path_word(folder));
        find(Check::FolderOpen, &place, format!("mode {mode:03o}"), next);
    }
    found
}

/// What is wrong with those who are registered. `alone_is_fine`: the store lets one process write only.
pub(super) fn findings_of_clients(list: &ClientList, alone_is_fine: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |check, place: &str, what: String, next: &str| {
        found.push(Finding::new(check, place, what, next));
    };
    let (mut differ, mut behind, mut without) = (0, 0, 0);
    for client in &list.clients {
        let place = format!("{} {} at {}", client.kind, client.id, client.place);
        let epoch = client.epoch.unwrap_or_default();
        if client.differs && counted(&mut differ) {
            let shown = client.fingerprint.as_deref().unwrap_or("none");
            let what = format!(
                "fingerprint {shown} at epoch {epoch}, version {}",
                client.version
            );
            let next = "end it, and start the version of the others";
            add(Check::ViewDiffers, &place, what, next);
        }
        if client.behind.is_some_and(|behind| behind > 0) && counted(&mut behind) {
            let what = format!(
                "epoch {epoch}, {} behind",
                client.behind.unwrap_or_default()
            );
            let next = "see in its log why it does not hear of the record, or restart it; then: clockwise clients";
            add(Check::ViewBehind, &place, what, next);
        }
        if client.epoch.is_none() && counted(&mut without) {
            let next = "see in its log what it waits for; then: clockwise clients";
            add(Check::NoView, &place, "no epoch yet".to_owned(), next);
        }
    }
    for (check, count) in [
        (Check::ViewDiffers, differ),
        (Check::ViewBehind, behind),
        (Check::NoView, without),
    ] {
        if count > NAMED_MAX {
            let what = format!("and {} more", count - NAMED_MAX);
            add(check, "others", what, "clockwise clients");
        }
    }
    let versions: BTreeSet<&str> = list.clients.iter().map(|client| &*client.version).collect();
    if versions.len() > 1 {
        let versions: Vec<&str> = versions.into_iter().collect();
        let what = format!("versions {}", versions.join(", "));
        let next = "clockwise clients, and start the older ones anew with the newest version";
        add(Check::VersionsDiffer, "registered processes", what, next);
    }
    let rebalancers = list
        .clients
        .iter()
        .filter(|client| client.kind == "rebalancer");
    if !alone_is_fine && rebalancers.count() == 1 {
        let next = "start another process with the role rebalancer: clockwise serve --config FILE";
        let what = "one rebalancer is registered".to_owned();
        add(Check::OneRebalancer, "registered processes", what, next);
    }
    for problem in &list.problems {
        if problem.ends_with("it is no registration") {
            let next = "remove it with etcdctl del, or from the folder clients/";
            add(
                Check::RegistrationUnread,
                "registered processes",
                problem.clone(),
                next,
            );
        }
    }
    found
}

/// Counts one more, and says whether it is still named.
fn counted(count: &mut usize) -> bool {
    *count += 1;
    *count <= NAMED_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::clients::ClientStatus;

    fn client(kind: &str) -> ClientStatus {
        ClientStatus {
            id: "id".to_owned(),
            kind: kind.to_owned(),
            version: "0.1.0".to_owned(),
            record_format: 1,
            place: "host:7".to_owned(),
            epoch: Some(9),
            fingerprint: Some("f".to_owned()),
            behind: Some(0),
            differs: false,
            since_ms: 0,
        }
    }

    fn list(clients: Vec<ClientStatus>) -> ClientList {
        ClientList {
            fingerprint: "f".to_owned(),
            clients,
            left_out: 0,
            problems: Vec::new(),
        }
    }

    fn found(list: &ClientList, alone_is_fine: bool) -> Vec<Check> {
        let found = findings_of_clients(list, alone_is_fine);
        found.iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn those_who_are_registered_are_compared() {
        let two = || vec![client("rebalancer"), client("rebalancer")];
        assert_eq!(found(&list(two()), false), []);
        assert_eq!(found(&list(vec![client("rebalancer")]), true), []);
        assert_eq!(
            found(&list(vec![client("rebalancer")]), false),
            [Check::OneRebalancer]
        );
        let with = |change: fn(&mut ClientStatus)| {
            let mut clients = two();
            change(&mut clients[1]);
            found(&list(clients), false)
        };
        assert_eq!(with(|client| client.differs = true), [Check::ViewDiffers]);
        assert_eq!(with(|client| client.behind = Some(2)), [Check::ViewBehind]);
        assert_eq!(
            with(|client| client.version = "0.2.0".to_owned()),
            [Check::VersionsDiffer]
        );
        assert_eq!(with(|client| client.epoch = None), [Check::NoView]);
    }

    #[test]
    fn of_many_the_first_are_named_and_the_rest_counted() {
        let mut clients = vec![client("client"); 50];
        for client in &mut clients {
            client.behind = Some(1);
        }
        let found = findings_of_clients(&list(clients), true);
        assert_eq!(found.len(), NAMED_MAX + 1);
        assert_eq!(found[NAMED_MAX].what, "and 30 more");
    }

    #[test]
    fn files_and_addresses_are_judged() {
        let secret = |mode| SecretSeen {
            field: "nodes.pool_key_file",
            path: PathBuf::from("/etc/clockwise/pool.key"),
            mode,
        };
        let sound = ProcessSeen {
            place: "a.toml".to_owned(),
            secrets: vec![secret(Ok(0o600))],
            same_secrets: Vec::new(),
            admin: Some("127.0.0.1:7380".to_owned()),
            router: Some(("127.0.0.1:7379".to_owned(), false)),
            folder: Some((PathBuf::from("/data"), 0o700)),
        };
        let check = |change: fn(&mut ProcessSeen)| {
            let mut seen = sound.clone();
            change(&mut seen);
            let found = findings(&seen);
            found
                .iter()
                .map(|finding| finding.check)
                .collect::<Vec<_>>()
        };
        assert_eq!(check(|_| ()), []);
        assert_eq!(
            check(|seen| seen.secrets[0].mode = Ok(0o640)),
            [Check::SecretExposed]
        );
        assert_eq!(
            check(|seen| seen.secrets[0].mode = Err("gone".to_owned())),
            [Check::SecretMissing]
        );
        assert_eq!(
            check(|seen| seen.same_secrets.push(("a", "b"))),
            [Check::SecretReused]
        );
        assert_eq!(
            check(|seen| seen.admin = Some("0.0.0.0:7380".to_owned())),
            [Check::AdminExposed]
        );
        let router = |seen: &mut ProcessSeen, password| {
            seen.router = Some(("10.0.0.1:7379".to_owned(), password));
        };
        let mut open = sound.clone();
        router(&mut open, false);
        assert_eq!(findings(&open)[0].check, Check::RouterOpen);
        let mut closed = sound.clone();
        router(&mut closed, true);
        assert_eq!(findings(&closed), []);
        assert_eq!(
            check(|seen| seen.folder = Some((PathBuf::from("/data"), 0o755))),
            [Check::FolderOpen]
        );
    }
}
