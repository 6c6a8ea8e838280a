//! SIGHUP: what changes, what stays and is named, and that a bad configuration changes nothing.

use std::fs;

use rustix::process::Signal;

use crate::pool::{ALL, NODES_PASSWORD, Pool, fill, node};
use crate::process::{Serve, Starting, client, try_client, wait_until};
use crate::program::clockwise;
use crate::refused::lock;

/// Whether a client with this password is served.
fn enters(serve: &Serve, password: Option<&str>) -> bool {
    let Ok(mut client) = try_client(serve.listen.unwrap(), password) else {
        return false;
    };
    let answer: redis::RedisResult<Option<u32>> = redis::cmd("GET").arg("key:1").query(&mut client);
    answer.is_ok()
}

fn token_works(serve: &Serve, token: &str) -> bool {
    let admin = serve.admin.unwrap().to_string();
    let mut command = clockwise();
    command.args(["throttle", "--keys", "0", "--admin", &admin]);
    let output = command.env("CLOCKWISE_TOKEN", token).output().unwrap();
    output.status.success()
}

#[test]
fn passwords_token_limits_and_log_change_while_it_serves() {
    let pool = Pool::over_a_file(1);
    pool.secret("clients.password", "first");
    let password = "password_file = \"clients.password\"\n";
    let config = pool.config("a", ALL, password);
    let serve = Serve::start(&config);
    let mut inside = client(serve.listen.unwrap(), Some("first"));
    fill(&mut inside, 10);

    pool.secret("clients.password", "second");
    pool.secret("token", "another-token");
    let more = format!("{password}limits.clients_max = 3\n[log]\nlevel = \"debug\"\n");
    pool.config("a", ALL, &more);
    serve.signal(Signal::HUP);
    wait_until("it is read", || {
        serve.talk().contains("configuration read again")
    });
    for field in [
        "router.limits",
        "router.password_file",
        "admin.token_file",
        "log.level",
    ] {
        assert!(serve.talk().contains(field), "{field} in {}", serve.talk());
    }
    wait_until("the new password counts", || enters(&serve, Some("second")));
    assert!(!enters(&serve, Some("first")) && !enters(&serve, None));
    // Who is inside stays.
    let value: u32 = redis::cmd("GET").arg("key:1").query(&mut inside).unwrap();
    assert_eq!(value, 1);
    assert!(token_works(&serve, "another-token") && !token_works(&serve, "a-token"));
    wait_until("no more clients than the new limit", || {
        let mut kept = Vec::new();
        (0..4).any(
            |_| match try_client(serve.listen.unwrap(), Some("second")) {
                Ok(client) => {
                    kept.push(client);
                    false
                }
                Err(_) => true,
            },
        )
    });
    for secret in ["first", "second", "another-token"] {
        assert!(!serve.talk().contains(secret), "{secret}");
    }
}

#[test]
fn a_bad_configuration_changes_nothing_and_is_named_until_a_good_one_comes() {
    let pool = Pool::over_a_file(1);
    let config = pool.config("a", ALL, "");
    let serve = Serve::start(&config);
    pool.secret("token", "another-token");
    pool.config("a", ALL, "limits.clients_max = 0\n");
    serve.signal(Signal::HUP);
    wait_until("it is refused", || {
        serve
            .talk()
            .contains("a.toml:15: router.limits.clients_max: 0 is not between")
    });
    // The token beside it was good, and did not change either.
    assert!(token_works(&serve, "a-token") && !token_works(&serve, "another-token"));
    pool.secret("token", "a-token");
    assert!(
        serve.problems().contains("not changed at the last SIGHUP"),
        "{}",
        serve.problems()
    );
    assert_eq!(serve.run(&["status", "--check"]).exit, 4);
    let mut client = serve.client();
    fill(&mut client, 10);

    fs::remove_file(pool.path("token")).unwrap();
    pool.config("a", ALL, "");
    serve.signal(Signal::HUP);
    wait_until("a missing secret is named", || {
        serve.talk().contains("admin.token_file") && serve.talk().contains("does not exist")
    });
    pool.secret("token", "a-token");
    serve.signal(Signal::HUP);
    wait_until("it is good again", || {
        serve.run(&["status", "--check"]).exit == 0
    });
}

#[test]
fn what_needs_a_restart_stays_and_is_named() {
    let pool = Pool::over_a_file(1);
    let config = pool.config("a", ALL, "");
    let serve = Serve::start(&config);
    let text = fs::read_to_string(&config).unwrap();
    let other = text
        .replace("workers = 1", "workers = 2")
        .replace("name = \"a\"", "name = \"b\"");
    fs::write(&config, other).unwrap();
    pool.secret("pool.key", &"6".repeat(64));
    serve.signal(Signal::HUP);
    for words in [
        "name: a stays until a restart, which makes it b",
        "router.workers: 1 stays until a restart, which makes it 2",
        "nodes.pool_key_file: the key stays until a restart",
    ] {
        wait_until("it is named", || serve.talk().contains(words));
    }
    fill(&mut serve.client(), 10);
    wait_until("it is known to whoever asks", || {
        serve.problems().contains("router.workers")
    });
}

#[test]
fn nodes_whose_password_was_changed_are_entered_with_the_new_one() {
    let pool = Pool::over_a_file(1);
    let config = pool.config("a", ALL, "");
    let serve = Serve::start(&config);
    fill(&mut serve.client(), 10);
    let set = pool.nodes[0].cli(&["CONFIG", "SET", "requirepass", "another"]);
    assert_eq!(set, "OK");
    wait_until("the old one does not do", || {
        serve.run(&["status", "--check"]).exit == 4
    });
    pool.secret("nodes.password", "another");
    serve.signal(Signal::HUP);
    wait_until("the new one does", || {
        serve.run(&["status", "--check"]).exit == 0
    });
    assert!(!serve.talk().contains(NODES_PASSWORD));
    // And it is used where somebody is entered for the first time.
    let second = node();
    second.cli(&["CONFIG", "SET", "requirepass", "another"]);
    let add = ["node", "add", "node-2", "--addr", &second.addr()];
    assert_eq!(serve.run(&add).exit, 0);
}

#[test]
fn a_password_of_etcd_is_tried_before_it_is_taken() {
    let pool = Pool::over_etcd(1);
    let etcd = pool.etcd.as_ref().unwrap();
    lock(etcd);
    pool.secret("etcd.password", "writing");
    let store = format!(
        "{}user = \"writer\"\npassword_file = \"etcd.password\"\n",
        pool.store_section()
    );
    let config = pool.config_over("a", ALL, &store, "");
    let serve = Starting::new(&config, &[]).ready();
    pool.secret("etcd.password", "wrong");
    serve.signal(Signal::HUP);
    wait_until("etcd says no", || {
        serve
            .talk()
            .contains("store.password_file: etcd does not take it")
    });
    assert_eq!(serve.run(&["throttle", "--keys", "7"]).exit, 0);
    for args in [
        "user delete writer",
        "user add writer:changed",
        "user grant-role writer pool",
    ] {
        let mut words = vec!["--user", "root:secret"];
        words.extend(args.split(' '));
        etcd.ctl(&words);
    }
    pool.secret("etcd.password", "changed");
    // With something else that waits for a restart it is not tried, and not taken for known.
    let longer = store.replace("lease_seconds = 2", "lease_seconds = 3");
    pool.config_over("a", ALL, &longer, "");
    serve.signal(Signal::HUP);
    wait_until("the lease stays", || {
        serve.talk().contains("stay as they are until a restart")
    });
    pool.config_over("a", ALL, &store, "");
    serve.signal(Signal::HUP);
    wait_until("etcd says yes", || {
        serve.talk().contains("changed=\"store.password_file\"")
            || serve.talk().contains("changed=store.password_file")
    });
    assert_eq!(serve.run(&["throttle", "--keys", "8"]).exit, 0);
}
