//! What does not start, and whether it says why: file, line, field, and what to do.

use std::fs;

use clockwise_testkit::{EtcdOptions, EtcdServer};
use serde_json::Value;

use crate::pool::{ALL, Pool, write_with_mode};
use crate::process::Starting;
use crate::program::run;

fn check(pool: &Pool, more: &str) -> crate::program::Run {
    let config = pool.config("checked", ALL, more);
    run(&["serve", "--check", "--config", config.to_str().unwrap()])
}

#[test]
fn a_good_configuration_is_checked_without_anything_being_started() {
    let pool = Pool::unmade(None, 0);
    let checked = check(&pool, "");
    assert_eq!(checked.exit, 0, "{checked:?}");
    assert!(
        checked
            .stdout
            .contains("checked.toml is good: pool default"),
        "{checked:?}"
    );
    assert!(!pool.path("data").exists());
    let config = pool.config("checked", ALL, "");
    let json = run(&[
        "serve",
        "--check",
        "--config",
        config.to_str().unwrap(),
        "-o",
        "json",
    ]);
    assert_eq!(
        json.json("Configuration")["roles"],
        "router,rebalancer,admin"
    );
}

#[test]
fn faults_are_named_by_file_line_and_field() {
    let pool = Pool::unmade(None, 0);
    let checked = check(&pool, "limits.clients_max = 0\nnonsense = 1\n");
    assert_eq!(
        (checked.exit, checked.stdout.as_str()),
        (2, ""),
        "{checked:?}"
    );
    assert!(
        checked.stderr.contains("checked.toml:16") && checked.stderr.contains("nonsense"),
        "{checked:?}"
    );
    let checked = check(&pool, "limits.clients_max = 0\n");
    assert!(
        checked
            .stderr
            .contains("checked.toml:15: router.limits.clients_max: 0 is not"),
        "{checked:?}"
    );
    let missing = run(&[
        "serve",
        "--check",
        "--config",
        "/nowhere/a.toml",
        "-o",
        "json",
    ]);
    let error: Value = serde_json::from_str(missing.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(
        (missing.exit, &error["error"]["code"]),
        (2, &"usage".into())
    );
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("/nowhere/a.toml")
    );
}

#[test]
fn secrets_that_are_missing_wrong_or_readable_by_others_are_refused_together() {
    let pool = Pool::unmade(None, 0);
    fs::remove_file(pool.path("pool.key")).unwrap();
    write_with_mode(&pool.path("nodes.password"), "a-password", 0o644);
    pool.secret("token", "two words");
    for words in [check(&pool, ""), {
        let config = pool.config("started", ALL, "");
        run(&["serve", "--config", config.to_str().unwrap()])
    }] {
        assert_eq!(words.exit, 1, "{words:?}");
        for said in [
            "nodes.pool_key_file",
            "does not exist",
            "nodes.admin_password_file",
            "has mode 644: others can read it; chmod 600 it",
            "admin.token_file",
            "holds no password",
        ] {
            assert!(words.stderr.contains(said), "{said} in {words:?}");
        }
        assert!(!words.stderr.contains("a-password") && !words.stderr.contains("two words"));
    }
}

#[test]
fn a_pool_that_was_never_made_is_named_with_the_command_that_makes_it() {
    let etcd = EtcdServer::start(EtcdOptions::default());
    let pool = Pool::unmade(Some(etcd), 0);
    let (exit, said) = pool.starting("a", ALL).ended();
    assert_eq!(exit, 1, "{said}");
    assert!(said.contains("holds no pool default"), "{said}");
    assert!(said.contains("clockwise record init --config"), "{said}");
}

#[test]
fn etcd_that_refuses_a_password_ends_the_start_and_says_what_to_check() {
    let etcd = EtcdServer::start(EtcdOptions::default());
    let pool = Pool::unmade(Some(etcd), 0);
    lock(pool.etcd.as_ref().unwrap());
    pool.secret("etcd.password", "wrong");
    let store = format!(
        "{}user = \"writer\"\npassword_file = \"etcd.password\"\n",
        pool.store_section()
    );
    let config = pool.config_over("a", ALL, &store, "");
    let (exit, said) = Starting::new(&config, &[]).ended();
    assert_eq!(exit, 6, "{said}");
    assert!(
        said.contains("check the user's name and password"),
        "{said}"
    );
    // Without a user it says that one is needed.
    let (exit, said) = pool.starting("b", ALL).ended();
    assert_eq!(exit, 6, "{said}");
    assert!(said.contains("user and password"), "{said}");
    let looked = run(&["record", "history", "--config", config.to_str().unwrap()]);
    assert_eq!(looked.exit, 6, "{looked:?}");
}

/// Users and passwords from now on: root, and `writer` with `writing`.
pub(crate) fn lock(etcd: &EtcdServer) {
    for args in [
        "user add root:secret",
        "role add root",
        "user grant-role root root",
        "role add pool",
        "role grant-permission pool --prefix=true readwrite /clockwise/",
        "user add writer:writing",
        "user grant-role writer pool",
        "auth enable",
    ] {
        etcd.ctl(&args.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn certificates_are_looked_at_before_anything_is_started() {
    let pool = Pool::unmade(None, 0);
    let store =
        "[store]\nkind = \"etcd\"\nendpoints = [\"https://127.0.0.1:1\"]\nca_file = \"ca.pem\"\n";
    let checked = |store: &str| {
        let config = pool.config_over("tls", ALL, store, "");
        run(&["serve", "--check", "--config", config.to_str().unwrap()])
    };
    let missing = checked(store);
    assert_eq!(missing.exit, 1, "{missing:?}");
    assert!(
        missing.stderr.contains("store.ca_file: ") && missing.stderr.contains("does not exist"),
        "{missing:?}"
    );
    fs::write(pool.path("ca.pem"), "no certificate").unwrap();
    let wrong = checked(store);
    assert!(wrong.stderr.contains("no certificate in PEM"), "{wrong:?}");
    write_with_mode(&pool.path("key.pem"), "key", 0o644);
    fs::write(pool.path("cert.pem"), "cert").unwrap();
    let exposed = checked(&format!(
        "{store}cert_file = \"cert.pem\"\nkey_file = \"key.pem\"\n"
    ));
    assert!(
        exposed.stderr.contains("store.key_file: ") && exposed.stderr.contains("chmod 600"),
        "{exposed:?}"
    );
}

#[test]
fn an_address_that_is_taken_ends_the_start() {
    let pool = Pool::over_a_file(1);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    for (section, field) in [("admin", "admin.listen"), ("router", "router.listen")] {
        let config = pool.config("taken", ALL, "");
        let text = fs::read_to_string(&config).unwrap();
        let from = format!("[{section}]\nlisten = \"127.0.0.1:0\"");
        let to = format!("[{section}]\nlisten = \"{at}\"");
        assert!(text.contains(&from));
        fs::write(&config, text.replace(&from, &to)).unwrap();
        let (exit, said) = Starting::new(&config, &[]).ended();
        assert_eq!(exit, 1, "{said}");
        assert!(
            said.contains(&format!("cannot listen on {at}")) && said.contains(field),
            "{said}"
        );
    }
}
