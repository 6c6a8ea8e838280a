//! etcd is gone, comes back, or has gone back: the last view serves, nothing is changed, and it is said.

use clockwise_testkit::{EtcdOptions, EtcdServer};
use redis::Connection;
use serde_json::json;

use crate::pool::{ALL, Pool, all_there, fill};
use crate::process::{Serve, wait_until};
use crate::program::run;

const KEYS: u32 = 500;

#[test]
fn without_etcd_the_last_view_serves_and_nothing_is_changed() {
    let mut pool = Pool::over_etcd(2);
    let serve = pool.serve("a", ALL);
    let mut client = serve.client();
    fill(&mut client, KEYS);
    pool.etcd.as_mut().unwrap().kill9();
    wait_until("it says so", || serve.get("/readyz").0 == 503);
    let (_, body) = serve.get("/readyz");
    assert!(
        body.contains("\"store\"") && body.contains("cannot be reached"),
        "{body}"
    );
    assert_eq!(serve.get("/healthz").0, 200);
    all_there(&mut client, KEYS);
    all_there(&mut serve.client(), KEYS);
    let () = redis::cmd("SET")
        .arg("key:0")
        .arg(0)
        .query(&mut client)
        .unwrap();
    for verb in [
        &["throttle", "--keys", "7"][..],
        &["node", "remove", "node-2"],
        &["apply"],
    ] {
        let refused = serve.run(verb);
        assert_eq!(refused.exit, 6, "{verb:?}: {refused:?}");
    }
    assert!(
        serve
            .talk()
            .contains("the last view goes on, and nothing is changed")
    );
    pool.etcd.as_mut().unwrap().restart();
    wait_until("all is well again", || {
        serve.run(&["status", "--check"]).exit == 0
    });
    assert!(serve.talk().contains("the record can be read again"));
    assert_eq!(serve.run(&["throttle", "--keys", "7"]).exit, 0);
    all_there(&mut client, KEYS);
}

#[test]
fn etcd_that_comes_later_than_the_process_is_waited_for() {
    let mut pool = Pool::over_etcd(1);
    pool.etcd.as_mut().unwrap().stop();
    let mut starting = pool.starting("a", ALL);
    assert!(starting.waits_and_says("does not answer; waiting for it"));
    pool.etcd.as_mut().unwrap().restart();
    let serve = starting.ready();
    fill(&mut serve.client(), 10);
}

#[test]
fn an_epoch_that_goes_back_is_refused_and_reported() {
    let mut pool = Pool::over_etcd(2);
    let serve = pool.serve("a", ALL);
    fill(&mut serve.client(), KEYS);
    let copy = pool.etcd.as_ref().unwrap().snapshot();
    for verb in [
        &["node", "set", "node-2", "--weight", "2"][..],
        &["apply", "--wait"],
    ] {
        let done = serve.run(verb);
        assert_eq!(done.exit, 0, "{done:?}");
    }
    let epoch = serve.status()["epoch"].as_u64().unwrap();
    pool.etcd.as_mut().unwrap().restore(&copy);
    wait_until("it is reported", || {
        serve.get("/readyz").1.contains("went back to epoch")
    });
    assert!(
        serve
            .get("/metrics")
            .1
            .contains(&format!("clockwise_epoch {epoch}\n"))
    );
    all_there(&mut serve.client(), KEYS);
}

/// Writes a record over the one there as nobody of ours would: the same epoch, another placement.
fn falsify(etcd: &EtcdServer) {
    let key = "/clockwise/default/record";
    let stored = etcd.ctl(&["get", "--print-value-only", key]);
    let mut record: serde_json::Value = serde_json::from_str(&stored).unwrap();
    let revision = record["revision"].as_u64().unwrap();
    record["revision"] = json!(revision + 1);
    record["membership"]["generator"] = json!({"kind": "ring", "points_per_weight": 100});
    etcd.ctl(&["put", key, &record.to_string()]);
}

fn is_served(client: &mut Connection) -> Result<(), String> {
    let value: redis::RedisResult<u32> = redis::cmd("GET").arg("key:1").query(client);
    value.map(drop).map_err(|error| error.to_string())
}

#[test]
fn two_placements_under_one_epoch_stop_the_router_until_a_later_epoch() {
    let pool = Pool::over_etcd(2);
    let serve = pool.serve("a", ALL);
    let mut client = serve.client();
    fill(&mut client, KEYS);
    let export = pool.path("export.json");
    let config = pool.path("a.toml");
    let exported = run(&["record", "export", "--config", config.to_str().unwrap()]);
    std::fs::write(&export, &exported.stdout).unwrap();
    falsify(pool.etcd.as_ref().unwrap());
    wait_until("it stops", || {
        is_served(&mut client).is_err_and(|why| why.contains("stopped serving"))
    });
    let pong: String = redis::cmd("PING").query(&mut client).unwrap();
    assert_eq!(pong, "PONG");
    let (status, body) = serve.get("/readyz");
    assert!(status == 503 && body.contains("stopped serving"), "{body}");
    assert!(serve.problems().contains("stopped serving"));
    let mut import = vec![
        "record",
        "import",
        export.to_str().unwrap(),
        "--replace",
        "--expect-epoch",
        "1",
        "--config",
        config.to_str().unwrap(),
    ];
    // What is there now gives keys other owners; where they lie the file knows.
    let refused = run(&import);
    assert_eq!(refused.exit, 7, "{refused:?}");
    import.push("--owners-change");
    let imported = run(&import);
    assert_eq!(imported.exit, 0, "{imported:?}");
    wait_until("it goes on", || is_served(&mut client).is_ok());
    all_there(&mut serve.client(), KEYS);
    wait_until("all is well", || well(&serve));
}

fn well(serve: &Serve) -> bool {
    serve.get("/readyz").0 == 200 && serve.run(&["status", "--check"]).exit == 0
}

#[test]
fn a_pool_is_found_in_the_store_that_is_named_and_in_no_other() {
    let (one, other) = (
        Pool::over_etcd(1),
        EtcdServer::start(EtcdOptions::default()),
    );
    let url = format!("etcd://{}", other.addr());
    let looked = run(&["record", "history", "--store", &url]);
    assert_eq!(looked.exit, 1, "{looked:?}");
    let url = format!("etcd://{}", one.etcd.as_ref().unwrap().addr());
    assert_eq!(run(&["record", "history", "--store", &url]).exit, 0);
}
