//! Several processes over one etcd: all roles twice, or one role each.

use crate::pool::{ALL, Pool, all_there, fill, node};
use crate::process::{Serve, wait_until};

const KEYS: u32 = 2_000;

fn leads(serve: &Serve) -> bool {
    serve.status()["leader"]["here"] == true
}

#[test]
fn two_processes_with_all_roles_serve_the_same_pool_and_one_leads() {
    let pool = Pool::over_etcd(2);
    let both = [pool.serve("a", ALL), pool.serve("b", ALL)];
    fill(&mut both[0].client(), KEYS);
    all_there(&mut both[1].client(), KEYS);
    wait_until("one of them leads", || {
        both.iter().filter(|serve| leads(serve)).count() == 1
    });
    let at = both.iter().position(leads).unwrap();
    let (leader, other) = (&both[at], &both[1 - at]);
    let told = &other.status()["leader"];
    assert_eq!(told["here"], false);
    assert_eq!(told["admin"], leader.admin.unwrap().to_string());
    assert_eq!(told["unheard"], serde_json::Value::Null);
    let is_well = |serve: &Serve, verb: &str| serve.run(&[verb, "--check"]).exit == 0;
    wait_until("the pool is well", || is_well(other, "status"));

    // Both say by what they route.
    let everybody = || other.run(&["clients", "-o", "json"]).json("Clients");
    wait_until("two routers and two rebalancers are registered", || {
        let clients = everybody()["clients"].clone();
        let kinds = clients.as_array().unwrap().iter();
        let routers = kinds.filter(|client| client["kind"] == "router").count();
        (clients.as_array().unwrap().len(), routers) == (4, 2)
    });
    // What they route by is shown some tenths of a second after it came.
    wait_until("nobody is behind", || is_well(other, "clients"));

    // Everything is done by way of the one that does not lead.
    let third = node();
    for verb in [
        &["throttle", "--keys", "200"][..],
        &["node", "add", "node-3", "--addr", &third.addr()],
        &["apply"],
    ] {
        let done = other.run(verb);
        assert_eq!(done.exit, 0, "{verb:?}: {done:?}");
    }
    let moves = || other.run(&["moves", "-o", "json"]).json("Moves");
    wait_until("its progress is seen elsewhere", || {
        moves()["keys_moved"].as_u64() > Some(0) && moves()["outcome"] == "running"
    });
    // Only the leader counts between two steps.
    assert!(
        moves()["keys_per_second"].as_u64().is_some() || moves()["keys_moved"].as_u64() > Some(0)
    );
    let aborted = other.run(&["abort", "--wait", "-o", "json"]).json("Moves");
    assert_eq!(aborted["outcome"], "undone", "{aborted}");
    for verb in [
        &["throttle", "--keys", "0"][..],
        &["node", "add", "node-3", "--addr", &third.addr()],
        &["apply", "--wait"],
    ] {
        let done = other.run(verb);
        assert_eq!(done.exit, 0, "{verb:?}: {done:?}");
    }
    for serve in &both {
        all_there(&mut serve.client(), KEYS);
        wait_until("the pool is well again", || is_well(serve, "status"));
    }
    let resumed = other.run(&["resume"]);
    assert_eq!(resumed.exit, 0, "{resumed:?}");
}

#[test]
fn each_role_can_be_a_process_of_its_own() {
    let pool = Pool::over_etcd(2);
    let admin = pool.serve("the-admin", "\"admin\"");
    assert_eq!(admin.listen, None);
    let (status, body) = admin.get("/readyz");
    assert_eq!(status, 200, "{body}");
    wait_until("it says that nobody leads", || {
        admin.problems().contains("nobody leads the pool")
    });
    let refused = admin.run(&["abort"]);
    assert_eq!(refused.exit, 4, "{refused:?}");
    assert!(refused.stderr.contains("nobody leads"), "{refused:?}");

    let mut rebalancer = pool.serve("the-rebalancer", "\"rebalancer\"");
    assert_eq!((rebalancer.listen, rebalancer.admin), (None, None));
    let router = pool.serve("the-router", "\"router\"");
    fill(&mut router.client(), KEYS);
    wait_until("the leader is named", || {
        admin.status()["leader"]["name"] == "the-rebalancer"
    });
    // It has no admin API, so it is told what cannot be known, and by whom.
    assert!(admin.status()["leader"]["unheard"].is_string());
    let third = node();
    for verb in [
        &["node", "add", "node-3", "--addr", &third.addr()][..],
        &["apply", "--wait"],
    ] {
        let done = admin.run(verb);
        assert_eq!(done.exit, 0, "{verb:?}: {done:?}");
    }
    all_there(&mut router.client(), KEYS);
    let refused = admin.run(&["resume"]);
    assert_eq!(refused.exit, 4, "{refused:?}");
    assert!(
        refused.stderr.contains("the-rebalancer leads under term"),
        "{refused:?}"
    );
    let status = rebalancer.end(rustix::process::Signal::TERM);
    assert!(status.success());
    wait_until("its leadership ends with it", || {
        admin.status()["leader"] == serde_json::Value::Null
    });
}

#[test]
fn only_the_secrets_of_a_role_are_needed() {
    let pool = Pool::over_etcd(1);
    let _leads = pool.serve("the-rebalancer", "\"rebalancer\"");
    std::fs::remove_file(pool.path("nodes.password")).unwrap();
    std::fs::rename(pool.path("token"), pool.path("elsewhere")).unwrap();
    let router = pool.serve("the-router", "\"router\"");
    fill(&mut router.client(), 10);
}
