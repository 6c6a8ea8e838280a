//! One machine: the record in a folder, one process that writes it, further ones that route.

use crate::pool::{ALL, Pool, all_there, fill, node};
use crate::process::wait_until;
use crate::program::clockwise;

const KEYS: u32 = 500;

#[test]
fn one_process_serves_and_a_node_joins() {
    let pool = Pool::over_a_file(2);
    let mut serve = pool.serve("a", ALL);
    assert!(
        serve
            .ready
            .contains(" pool=default roles=router,rebalancer,admin epoch=1")
    );
    fill(&mut serve.client(), KEYS);
    let third = node();
    let added = serve.run(&["node", "add", "node-3", "--addr", &third.addr()]);
    assert_eq!(added.exit, 0, "{added:?}");
    let applied = serve.run(&["apply", "--wait", "-o", "json"]).json("Moves");
    assert_eq!(applied["outcome"], "done", "{applied}");
    all_there(&mut serve.client(), KEYS);
    wait_until("the pool is well", || {
        serve.run(&["status", "--check"]).exit == 0
    });
    let status = serve.end(rustix::process::Signal::TERM);
    assert!(status.success(), "{status}");
    // Whoever comes next goes on with the same.
    let again = pool.serve("a", ALL);
    assert!(!again.ready.contains("epoch=1 "), "{}", again.ready);
    all_there(&mut again.client(), KEYS);
}

#[test]
fn a_second_writer_is_refused_and_a_router_beside_it_follows() {
    let pool = Pool::over_a_file(2);
    let serve = pool.serve("a", ALL);
    let (exit, said) = pool.starting("b", ALL).ended();
    assert_eq!(exit, 1, "{said}");
    assert!(
        said.contains("in use by process") && said.contains("roles = [\"router\"]"),
        "{said}"
    );

    let router = pool.serve("c", "\"router\"");
    assert_eq!(router.admin, None);
    fill(&mut serve.client(), KEYS);
    all_there(&mut router.client(), KEYS);
    let third = node();
    let add = ["node", "add", "node-3", "--addr", &third.addr()];
    for verb in [&add[..], &["apply", "--wait"]] {
        let done = serve.run(verb);
        assert_eq!(done.exit, 0, "{done:?}");
    }
    all_there(&mut router.client(), KEYS);
}

#[test]
fn servers_are_not_started_here_and_the_refusal_says_what_to_type() {
    let pool = Pool::over_a_file(1);
    let serve = pool.serve("a", ALL);
    let refused = serve.run(&["node", "add", "node-2"]);
    assert_eq!(refused.exit, 2, "{refused:?}");
    assert!(refused.stderr.contains("--addr HOST:PORT"), "{refused:?}");
    wait_until("nothing is staged", || {
        serve.run(&["staged", "-o", "json"]).json("Staged")["staged"] == serde_json::json!([])
    });
}

#[test]
fn secrets_come_from_the_environment_where_no_file_is_named() {
    let pool = Pool::over_a_file(1);
    let config = pool.path("env.toml");
    let text = "[store]\nkind = \"file\"\ndir = \"data\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                [router]\nlisten = \"127.0.0.1:0\"\n";
    std::fs::write(&config, text).unwrap();
    let key = "5".repeat(64);
    let environment = [
        ("CLOCKWISE_POOL_KEY", key.as_str()),
        ("CLOCKWISE_NODES_PASSWORD", crate::pool::NODES_PASSWORD),
        ("CLOCKWISE_TOKEN", "a-token"),
        ("CLOCKWISE_PASSWORD", "of-clients"),
    ];
    let serve = crate::process::Starting::new(&config, &environment).ready();
    let mut client = crate::process::client(serve.listen.unwrap(), Some("of-clients"));
    fill(&mut client, 10);
    let mut stranger = crate::process::client(serve.listen.unwrap(), None);
    let refused: redis::RedisResult<u32> = redis::cmd("GET").arg("key:1").query(&mut stranger);
    assert!(refused.unwrap_err().to_string().contains("NOAUTH"));
    // None of them stands in the log or the record.
    for secret in [
        "of-clients",
        crate::pool::NODES_PASSWORD,
        "a-token",
        key.as_str(),
    ] {
        assert!(!serve.talk().contains(secret));
        let exported = clockwise()
            .args(["record", "export", "--store"])
            .arg(format!("file:{}", pool.path("data").display()))
            .output()
            .unwrap();
        assert!(!String::from_utf8(exported.stdout).unwrap().contains(secret));
    }
}
