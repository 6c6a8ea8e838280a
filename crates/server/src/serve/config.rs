//! The configuration of `serve`: what a person wrote in a TOML file, and what it means.
//!
//! Nothing in it is secret: it names files and variables that hold secrets. Unknown fields and bad values are
//! refused, all of them at once, each by file, line and field. Paths are relative to the file's folder.

mod store;

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clockwise_client::credentials::POOL_KEY_VARIABLE;
use clockwise_cluster::PoolName;
use serde::Deserialize;
use toml::Spanned;

use super::fault::{Fault, Faults, Finder};
use super::limits::LimitsText;
use super::secrets::Source;
use crate::router::Limits;
use crate::running::log::filter;
use store::StoreText;

/// A configuration that cannot be larger was not written by a person.
const FILE_BYTES_MAX: u64 = 1 << 20;
const WORKERS_MAX: u16 = 1_024;
const NAME_BYTES_MAX: usize = 128;

/// A configuration that was read and makes sense. Whether its files are there is another question.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where it was read from.
    pub file: PathBuf,
    /// Which pool.
    pub pool: PoolName,
    /// What others call this process.
    pub name: String,
    /// What it is to do.
    pub roles: RoleSet,
    /// Where the record is.
    pub store: StoreConfig,
    /// The nodes' secrets.
    pub nodes: NodesConfig,
    /// The router.
    pub router: RouterConfig,
    /// The admin API.
    pub admin: AdminConfig,
    /// How much is logged, in tracing's words.
    pub log: Option<String>,
}

/// What a process is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleSet {
    /// Serve clients.
    pub router: bool,
    /// Lead the pool, if nobody else does.
    pub rebalancer: bool,
    /// Answer operators.
    pub admin: bool,
}

/// Where the record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// In a folder of this machine.
    File {
        /// The folder.
        dir: PathBuf,
    },
    /// In etcd.
    Etcd(EtcdConfig),
}

/// How etcd is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// Its members.
    pub endpoints: Vec<String>,
    /// What all keys begin with.
    pub prefix: String,
    /// Whom to log in as.
    pub user: Option<(String, Source)>,
    /// Whom to trust.
    pub ca_file: Option<PathBuf>,
    /// Certificate and key to show.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// How long a leader that is gone is waited for.
    pub lease: Duration,
}

/// What lets processes into the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesConfig {
    /// The administrator.
    pub admin_user: String,
    /// Its password.
    pub admin_password: Source,
    /// What passwords of clients follow from.
    pub pool_key: Source,
}

/// How clients are served.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterConfig {
    /// Where they connect.
    pub listen: SocketAddr,
    /// Threads; as many as there are cores without it.
    pub workers: Option<u16>,
    /// What they must give. Without the file and the variable they give nothing.
    pub password: Source,
    /// What they may take up.
    pub limits: Limits,
}

/// How operators are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Where the API listens.
    pub listen: SocketAddr,
    /// Under which `HOST:PORT` other processes reach it; its own address without it.
    pub advertise: Option<String>,
    /// The token of calls that change something.
    pub token: Source,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigText {
    pool: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
    roles: Option<Spanned<Vec<Spanned<String>>>>,
    store: Option<Spanned<StoreText>>,
    #[serde(default)]
    nodes: NodesText,
    #[serde(default)]
    router: RouterText,
    #[serde(default)]
    admin: AdminText,
    #[serde(default)]
    log: LogText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodesText {
    admin_user: Option<Spanned<String>>,
    admin_password_file: Option<PathBuf>,
    pool_key_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouterText {
    listen: Option<Spanned<String>>,
    workers: Option<Spanned<u16>>,
    password_file: Option<PathBuf>,
    #[serde(default)]
    limits: LimitsText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdminText {
    listen: Option<Spanned<String>>,
    advertise: Option<Spanned<String>>,
    token_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogText {
    level: Option<Spanned<String>>,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn read(file: &Path) -> Result<Self, Faults> {
        let unread = |why: String| Fault {
            file: file.to_owned(),
            line: None,
            field: None,
            why,
        };
        let text = read_text(file).map_err(unread)?;
        Self::parse(file, &text)
    }

    /// Makes sense of the text of a configuration.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Faults> {
        let mut finder = Finder::new(file, text);
        let parsed: ConfigText = match toml::from_str(text) {
            Ok(parsed) => parsed,
            Err(error) => return Err(finder.unread(&error)),
        };
        let folder = file.parent().unwrap_or(Path::new(""));
        let made = parsed.make(file, folder, &mut finder);
        finder.end(made)
    }
}

fn read_text(file: &Path) -> Result<String, String> {
    let bytes = fs::metadata(file).map_err(|error| error.to_string())?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(format!("{bytes} bytes are no configuration"));
    }
    fs::read_to_string(file).map_err(|error| error.to_string())
}

impl ConfigText {
    /// `None` only where something was found to be wrong.
    fn make(self, file: &Path, folder: &Path, finder: &mut Finder<'_>) -> Option<Config> {
        let pool = match &self.pool {
            None => "default".parse().ok(),
            Some(text) => parsed(finder, text),
        };
        let name = self.name.as_ref().and_then(|text| named(finder, text));
        let name = name.unwrap_or_else(usual_name);
        let roles = roles(self.roles.as_ref(), finder);
        let store = match self.store {
            Some(store) => store.into_inner().make(folder, finder),
            None => {
                finder.missing(
                    "store",
                    "say where the record is: kind = \"etcd\" or \"file\"",
                );
                None
            }
        };
        if let (Some(StoreConfig::File { .. }), Some(roles), Some(text)) =
            (&store, roles, &self.roles)
            && roles.rebalancer != roles.admin
        {
            let why = "with the store in a file one process writes the record: rebalancer and admin go together, \
                       and further processes are routers";
            finder.at(text.span(), why);
        }
        let router = self.router.make(folder, finder);
        let admin = self.admin.make(folder, finder);
        let log = self.log.level.as_ref().and_then(|text| level(finder, text));
        let nodes = self.nodes.make(folder, finder);
        Some(Config {
            file: file.to_owned(),
            pool: pool?,
            name,
            roles: roles?,
            store: store?,
            nodes,
            router,
            admin,
            log,
        })
    }
}

impl NodesText {
    fn make(self, folder: &Path, finder: &mut Finder<'_>) -> NodesConfig {
        let user = self
            .admin_user
            .as_ref()
            .and_then(|text| named(finder, text));
        NodesConfig {
            admin_user: user.unwrap_or_else(|| "default".to_owned()),
            admin_password: Source::of(
                folder,
                self.admin_password_file,
                "CLOCKWISE_NODES_PASSWORD",
            ),
            pool_key: Source::of(folder, self.pool_key_file, POOL_KEY_VARIABLE),
        }
    }
}

impl RouterText {
    fn make(self, folder: &Path, finder: &mut Finder<'_>) -> RouterConfig {
        let workers = self.workers.filter(|workers| {
            let fits = (1..=WORKERS_MAX).contains(workers.get_ref());
            if !fits {
                let why = format!("{} is not between 1 and {WORKERS_MAX}", workers.get_ref());
                finder.at(workers.span(), why);
            }
            fits
        });
        RouterConfig {
            listen: address(finder, self.listen.as_ref(), ([127, 0, 0, 1], 7379).into()),
            workers: workers.map(Spanned::into_inner),
            password: Source::of(folder, self.password_file, "CLOCKWISE_PASSWORD"),
            limits: self.limits.limits(finder),
        }
    }
}

impl AdminText {
    fn make(self, folder: &Path, finder: &mut Finder<'_>) -> AdminConfig {
        let advertise = self.advertise.as_ref().and_then(|text| {
            let address: Option<clockwise_cluster::Address> = parsed(finder, text);
            address.map(|address| address.to_string())
        });
        AdminConfig {
            listen: address(finder, self.listen.as_ref(), ([127, 0, 0, 1], 7380).into()),
            advertise,
            token: Source::of(folder, self.token_file, "CLOCKWISE_TOKEN"),
        }
    }
}

fn roles(text: Option<&Spanned<Vec<Spanned<String>>>>, finder: &mut Finder<'_>) -> Option<RoleSet> {
    let Some(text) = text else {
        return Some(RoleSet {
            router: true,
            rebalancer: true,
            admin: true,
        });
    };
    let mut roles = RoleSet {
        router: false,
        rebalancer: false,
        admin: false,
    };
    for role in text.get_ref() {
        let known = match role.get_ref().as_str() {
            "router" => &mut roles.router,
            "rebalancer" => &mut roles.rebalancer,
            "admin" => &mut roles.admin,
            other => {
                let why = format!("{other:?} is no role; \"router\", \"rebalancer\" or \"admin\"");
                finder.at(role.span(), why);
                continue;
            }
        };
        if std::mem::replace(known, true) {
            finder.at(
                role.span(),
                format!("{:?} stands there twice", role.get_ref()),
            );
        }
    }
    if text.get_ref().is_empty() {
        finder.at(text.span(), "a process without a role does nothing");
        return None;
    }
    Some(roles)
}

fn parsed<T>(finder: &mut Finder<'_>, text: &Spanned<String>) -> Option<T>
where
    T: std::str::FromStr<Err: fmt::Display>,
{
    let parsed = text.get_ref().parse();
    parsed
        .map_err(|error| finder.at(text.span(), format!("{:?}: {error}", text.get_ref())))
        .ok()
}

fn address(
    finder: &mut Finder<'_>,
    text: Option<&Spanned<String>>,
    usual: SocketAddr,
) -> SocketAddr {
    let Some(text) = text else { return usual };
    text.get_ref().parse().unwrap_or_else(|_| {
        let why = format!(
            "{:?} is no address to listen on; write IP:PORT, such as \"{usual}\" or \"[::]:{}\"",
            text.get_ref(),
            usual.port()
        );
        finder.at(text.span(), why);
        usual
    })
}

fn named(finder: &mut Finder<'_>, text: &Spanned<String>) -> Option<String> {
    let name = text.get_ref();
    let visible = name.bytes().all(|byte| byte.is_ascii_graphic());
    if visible && (1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Some(name.clone());
    }
    let why = format!("{name:?} is no name: 1 to {NAME_BYTES_MAX} visible characters");
    finder.at(text.span(), why);
    None
}

fn level(finder: &mut Finder<'_>, text: &Spanned<String>) -> Option<String> {
    match filter(text.get_ref()) {
        Ok(_) => Some(text.get_ref().clone()),
        Err(why) => {
            finder.at(text.span(), why);
            None
        }
    }
}

/// The machine and the process, so that two of them are told apart.
fn usual_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let host = if host.is_empty() { "clockwise" } else { host };
    format!("{host}:{}", std::process::id())
}

impl fmt::Display for RoleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("router", self.router),
            ("rebalancer", self.rebalancer),
            ("admin", self.admin),
        ];
        let names: Vec<&str> = all
            .into_iter()
            .filter_map(|(name, on)| on.then_some(name))
            .collect();
        f.pad(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "\
pool = \"main\"
roles = [\"router\", \"admin\"]

[store]
kind = \"etcd\"
endpoints = [
  \"http://10.0.0.1:2379\",
]
user = \"clockwise\"
password_file = \"etcd.password\"

[router]
listen = \"0.0.0.0:7379\"
limits.clients_max = 500
";

    fn parse(text: &str) -> Result<Config, Faults> {
        Config::parse(Path::new("/etc/clockwise/a.toml"), text)
    }

    /// What is said of the text with these words in place of those.
    fn faults(was: &str, is: &str) -> String {
        assert!(WHOLE.contains(was), "{was}");
        parse(&WHOLE.replace(was, is)).unwrap_err().to_string()
    }

    #[test]
    fn a_whole_one_means_what_it_says_and_paths_are_relative_to_it() {
        let config = parse(WHOLE).unwrap();
        assert_eq!(config.pool.to_string(), "main");
        assert_eq!(config.roles.to_string(), "router,admin");
        assert_eq!(config.router.limits.clients_max, 500);
        assert_eq!(config.router.listen.port(), 7379);
        let StoreConfig::Etcd(etcd) = config.store else {
            panic!("{:?}", config.store)
        };
        assert_eq!(etcd.lease, Duration::from_secs(5));
        let file = PathBuf::from("/etc/clockwise/etcd.password");
        let (_, password) = etcd.user.unwrap();
        assert_eq!(password.file(), Some(file.as_path()));
    }

    #[test]
    fn each_fault_names_file_line_and_field() {
        for (was, is, line, said) in [
            ("pool = \"main\"", "pool = \"\"", 1, ": pool: "),
            (
                "pool = \"main\"",
                "pol = \"main\"",
                1,
                "unknown field `pol`",
            ),
            ("\"admin\"]", "\"boss\"]", 2, ": roles: \"boss\" is no role"),
            ("\"admin\"]", "\"router\"]", 2, "twice"),
            ("[\"router\", \"admin\"]", "[]", 2, "does nothing"),
            ("\"etcd\"", "\"zookeeper\"", 5, ": store.kind: "),
            (
                "\"http://10",
                "\"https://10",
                6,
                ": store.endpoints: https needs",
            ),
            ("user = \"clockwise\"\n", "", 9, ": store.password_file: "),
            ("user = \"clockwise\"", "dir = \"/x\"", 9, ": store.dir: "),
            ("0.0.0.0:7379", "all", 13, ": router.listen: \"all\""),
            (
                "= 500",
                "= 0",
                14,
                ": router.limits.clients_max: 0 is not between",
            ),
            ("= 500", "= -1", 14, ": router.limits.clients_max: "),
            ("= 500", "= 500\nworkers = 0", 15, ": router.workers: 0"),
            (
                "= 500",
                "= 500\n[log]\nlevel = \"a=b=c\"",
                16,
                ": log.level: ",
            ),
        ] {
            let told = faults(was, is);
            let place = format!("/etc/clockwise/a.toml:{line}: ");
            assert!(told.contains(&place), "{is}: {told}");
            assert!(told.contains(said), "{is}: {told}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let told = parse("pool = \"\"\n[router]\nlisten = \"x\"\n").unwrap_err();
        assert_eq!(told.0.len(), 3, "{told}");
        let missing = told.0.iter().find(|fault| fault.line.is_none()).unwrap();
        assert_eq!(missing.field.as_deref(), Some("store"));
    }

    #[test]
    fn with_a_store_in_a_file_one_process_writes() {
        let text =
            |roles: &str| format!("roles = [{roles}]\n[store]\nkind = \"file\"\ndir = \"data\"\n");
        assert!(parse(&text("\"router\"")).is_ok());
        assert!(parse(&text("\"rebalancer\", \"admin\"")).is_ok());
        for roles in ["\"admin\"", "\"router\", \"rebalancer\""] {
            let told = parse(&text(roles)).unwrap_err().to_string();
            assert!(
                told.contains(":1: roles: ") && told.contains("go together"),
                "{told}"
            );
        }
    }
}
