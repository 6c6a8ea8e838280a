//! A pool for a test: an etcd, redis-servers that take our administrator, secrets, and configurations.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clockwise_testkit::{EtcdOptions, EtcdServer, RedisOptions, RedisServer};
use redis::Connection;
use tempfile::TempDir;

use crate::process::{Serve, Starting};
use crate::program::{Run, run};

/// The nodes' administrator's.
pub(crate) const NODES_PASSWORD: &str = "of-the-nodes";
const TOKEN: &str = "a-token";
pub(crate) const ALL: &str = "\"router\", \"rebalancer\", \"admin\"";

/// Where the record is, nodes, and a folder for everything else.
pub(crate) struct Pool {
    pub(crate) etcd: Option<EtcdServer>,
    pub(crate) nodes: Vec<RedisServer>,
    pub(crate) folder: TempDir,
}

/// A redis-server that our administrator may enter.
pub(crate) fn node() -> RedisServer {
    RedisServer::start(RedisOptions {
        password: Some(NODES_PASSWORD.to_owned()),
        append_only: true,
        ..RedisOptions::default()
    })
}

impl Pool {
    /// Over an etcd, with that many nodes; its record is made.
    pub(crate) fn over_etcd(nodes: usize) -> Self {
        let pool = Self::unmade(Some(EtcdServer::start(EtcdOptions::default())), nodes);
        assert_eq!(pool.init().exit, 0, "{:?}", pool.init());
        pool
    }

    /// Over a folder.
    pub(crate) fn over_a_file(nodes: usize) -> Self {
        let pool = Self::unmade(None, nodes);
        let made = pool.init();
        assert_eq!(made.exit, 0, "{made:?}");
        pool
    }

    /// Without a record.
    pub(crate) fn unmade(etcd: Option<EtcdServer>, nodes: usize) -> Self {
        let pool = Self {
            etcd,
            nodes: (0..nodes).map(|_| node()).collect(),
            folder: tempfile::tempdir().unwrap(),
        };
        pool.secret("pool.key", &"5".repeat(64));
        pool.secret("nodes.password", NODES_PASSWORD);
        pool.secret("token", TOKEN);
        pool.config("init", ALL, "");
        pool
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that only its owner may read.
    pub(crate) fn secret(&self, name: &str, text: &str) {
        write_with_mode(&self.path(name), text, 0o600);
    }

    /// Makes the record.
    pub(crate) fn init(&self) -> Run {
        let config = self.path("init.toml");
        let mut words = vec![
            "record".to_owned(),
            "init".to_owned(),
            "--config".to_owned(),
        ];
        words.push(config.display().to_string());
        for (index, node) in self.nodes.iter().enumerate() {
            words.push("--node".to_owned());
            words.push(format!("node-{}={}", index + 1, node.addr()));
        }
        run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(crate) fn store_section(&self) -> String {
        match &self.etcd {
            Some(etcd) => format!(
                "[store]\nkind = \"etcd\"\nendpoints = [\"{}\"]\nlease_seconds = 2\n",
                etcd.endpoint()
            ),
            None => "[store]\nkind = \"file\"\ndir = \"data\"\n".to_owned(),
        }
    }

    /// Writes the configuration of a process; `more` stands at its end.
    pub(crate) fn config(&self, name: &str, roles: &str, more: &str) -> PathBuf {
        let store = self.store_section();
        self.config_over(name, roles, &store, more)
    }

    pub(crate) fn config_over(&self, name: &str, roles: &str, store: &str, more: &str) -> PathBuf {
        let text = format!(
            "name = \"{name}\"\nroles = [{roles}]\n{store}\
             [nodes]\nadmin_password_file = \"nodes.password\"\npool_key_file = \"pool.key\"\n\
             [admin]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"token\"\n\
             [router]\nlisten = \"127.0.0.1:0\"\nworkers = 1\n{more}"
        );
        let path = self.path(&format!("{name}.toml"));
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn serve(&self, name: &str, roles: &str) -> Serve {
        Serve::start(&self.config(name, roles, ""))
    }

    pub(crate) fn starting(&self, name: &str, roles: &str) -> Starting {
        Starting::new(&self.config(name, roles, ""), &[])
    }
}

pub(crate) fn write_with_mode(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Writes keys with their numbers for values.
pub(crate) fn fill(client: &mut Connection, keys: u32) {
    let mut pipeline = redis::pipe();
    for number in 0..keys {
        let key = format!("key:{number}");
        pipeline.cmd("SET").arg(key).arg(number).ignore();
    }
    let () = pipeline.query(client).unwrap();
}

/// Expects all of them.
pub(crate) fn all_there(client: &mut Connection, keys: u32) {
    let mut pipeline = redis::pipe();
    for number in 0..keys {
        pipeline.cmd("GET").arg(format!("key:{number}"));
    }
    let values: Vec<u32> = pipeline.query(client).unwrap();
    assert!(values.into_iter().eq(0..keys));
}
