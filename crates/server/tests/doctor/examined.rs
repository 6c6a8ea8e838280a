//! A pool whose record is in a folder or in etcd, that nobody serves, and what `doctor` finds in it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Run, clockwise, run};

/// The secrets that no output may have in it.
pub(crate) const NODES_PASSWORD: &str = "nodes-secret-5f1c";
pub(crate) const TOKEN: &str = "token-secret-90ab";
pub(crate) const ETCD_PASSWORD: &str = "etcd-secret-77de";
const POOL_KEY: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";

/// A folder with a configuration, secrets, and perhaps the record.
pub(crate) struct Examined {
    folder: TempDir,
}

/// What `doctor` found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) exit: i32,
    pub(crate) findings: Vec<Value>,
    pub(crate) answer: Value,
}

impl Examined {
    /// A pool of Redis nodes at these addresses, its record in the folder.
    pub(crate) fn over_a_file(addresses: &[String]) -> Self {
        let examined = Self::new("[store]\nkind = \"file\"\ndir = \"data\"\n");
        examined.init(addresses, &[]);
        examined
    }

    /// The same on a ring, with its record changed before it is put there.
    pub(crate) fn with_record(addresses: &[String], change: impl FnOnce(&mut Value)) -> Self {
        const STORE: &str = "[store]\nkind = \"file\"\ndir = \"data\"\n";
        let model = Self::new(STORE);
        model.init(addresses, &["--placement", "ring"]);
        let exported = run(&["record", "export", "--config", &model.config()]);
        assert_eq!(exported.exit, 0, "{exported:?}");
        let mut record: Value = serde_json::from_str(&exported.stdout).unwrap();
        change(&mut record);
        let examined = Self::new(STORE);
        let file = examined.path("record.json");
        fs::write(&file, record.to_string()).unwrap();
        let imported = run(&[
            "record",
            "import",
            file.to_str().unwrap(),
            "--config",
            &examined.config(),
        ]);
        assert_eq!(imported.exit, 0, "{imported:?}");
        examined
    }

    /// Nothing but a configuration with this section, and its secrets.
    pub(crate) fn new(store: &str) -> Self {
        let examined = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for (name, secret) in [
            ("pool.key", POOL_KEY),
            ("nodes.password", NODES_PASSWORD),
            ("token", TOKEN),
            ("etcd.password", ETCD_PASSWORD),
        ] {
            examined.write(name, secret, 0o600);
        }
        examined.configure(store, "127.0.0.1:0", "127.0.0.1:0");
        examined
    }

    /// Writes the configuration.
    pub(crate) fn configure(&self, store: &str, admin: &str, router: &str) {
        let text = format!(
            "name = \"p\"\n{store}[nodes]\nadmin_password_file = \"nodes.password\"\n\
             pool_key_file = \"pool.key\"\n[admin]\nlisten = \"{admin}\"\ntoken_file = \"token\"\n\
             [router]\nlisten = \"{router}\"\n"
        );
        self.write("p.toml", &text, 0o644);
    }

    /// Makes the record.
    pub(crate) fn init(&self, addresses: &[String], options: &[&str]) {
        let config = self.config();
        let nodes: Vec<String> = (1..)
            .zip(addresses)
            .map(|(number, address)| format!("node-{number}={address}"))
            .collect();
        let mut words = vec!["record", "init", "--config", &config];
        for node in &nodes {
            words.extend(["--node", node]);
        }
        words.extend(options);
        let made = run(&words);
        assert_eq!(made.exit, 0, "{made:?}");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn config(&self) -> String {
        self.path("p.toml").display().to_string()
    }

    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Runs `doctor`, for programs and for people.
    pub(crate) fn doctor(&self) -> Found {
        doctor(&["--config", &self.config()])
    }
}

/// Runs `doctor` with these options. No secret may be in what it says, in either form.
pub(crate) fn doctor(options: &[&str]) -> Found {
    let mut words = vec!["doctor", "-o", "json"];
    words.extend(options);
    let for_programs = run(&words);
    words.drain(1..3);
    let for_people = run(&words);
    for run in [&for_programs, &for_people] {
        let said = format!("{}{}", run.stdout, run.stderr);
        for secret in [NODES_PASSWORD, TOKEN, ETCD_PASSWORD, POOL_KEY] {
            assert!(!said.contains(secret), "a secret is in {said}");
        }
        assert_eq!(run.stderr, "", "{run:?}");
    }
    assert_eq!(for_programs.exit, for_people.exit);
    Found::of(&for_programs)
}

impl Found {
    fn of(run: &Run) -> Self {
        let answer: Value =
            serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("no JSON: {run:?}"));
        assert_eq!(answer["kind"], "Doctor");
        let findings = answer["findings"].as_array().unwrap().clone();
        let found = Self {
            exit: run.exit,
            findings,
            answer,
        };
        let grave = found.findings.iter().any(|one| one["severity"] != "note");
        assert_eq!(found.exit, if grave { 4 } else { 0 }, "{found:#?}");
        found
    }

    /// The names of all checks that found something, in their order.
    pub(crate) fn names(&self) -> Vec<&str> {
        let names = self.findings.iter();
        names.map(|one| one["check"].as_str().unwrap()).collect()
    }

    pub(crate) fn has(&self, check: &str) -> bool {
        self.names().contains(&check)
    }

    /// The first finding of a check.
    #[track_caller]
    pub(crate) fn one(&self, check: &str) -> &Value {
        let found = self.findings.iter().find(|one| one["check"] == check);
        found.unwrap_or_else(|| panic!("no {check} in {self:#?}"))
    }

    /// The command that mends it, as it is to be pasted.
    #[track_caller]
    pub(crate) fn next(&self, check: &str) -> &str {
        self.one(check)["next"].as_str().unwrap()
    }

    /// Pastes the command into a shell.
    #[track_caller]
    pub(crate) fn mend(&self, check: &str) {
        let next = self.next(check);
        let command = next.split("      or").next().unwrap();
        paste(command);
    }
}

/// Runs a command in a shell that finds our own program first.
#[track_caller]
pub(crate) fn paste(command: &str) {
    let own = clockwise();
    let folder = Path::new(own.get_program()).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("sh")
        .args(["-c", command])
        .env("PATH", format!("{}:{path}", folder.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}\n{said}");
    for word in ["ERR", "NOAUTH", "WRONGPASS"] {
        assert!(!said.contains(word), "{command}\n{said}");
    }
}
