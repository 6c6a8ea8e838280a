//! A node that is lost for good: what goes with it is said before, as far as anybody knows.

use std::fs;

use clockwise_testkit::{RedisOptions, RedisServer};

use crate::cluster::{Cluster, wait_until};

#[test]
fn the_keys_of_a_lost_node_are_those_it_last_had_and_none_are_made_up() {
    let cluster = Cluster::start(&["--engine", "redis", "--persist", "none", "--nodes", "1"]);
    let password = fs::read_to_string(cluster.dir().join("nodes.password")).unwrap();
    let mut server = RedisServer::start(RedisOptions {
        password: Some(password.trim().to_owned()),
        ..RedisOptions::default()
    });
    for key in 0..200 {
        let () = redis::cmd("SET")
            .arg(format!("k{key}"))
            .arg("v")
            .query(&mut cluster.client())
            .unwrap();
    }
    let added = cluster.run(&["node", "add", "far", "--addr", &server.addr()]);
    assert_eq!(added.exit, 0, "{added:?}");
    let applied = cluster.run(&["apply", "--wait"]);
    assert_eq!(applied.exit, 0, "{applied:?}");
    let keys: u64 = server.cli(&["DBSIZE"]).parse().unwrap();
    assert!(keys > 20, "{keys}");
    let status = cluster.run(&["status"]);
    assert_eq!(status.exit, 0, "{status:?}");

    server.kill9();
    wait_until("it is seen", || {
        cluster.run(&["status", "--check"]).exit == 4
    });
    let status = cluster.run(&["status", "-o", "json"]).json("Status");
    let far = &status["nodes"][0];
    assert_eq!(
        (far["id"].as_str(), &far["keys"]),
        (Some("far"), &serde_json::Value::Null)
    );
    assert_eq!(far["keys_before"], keys, "{far}");
    let refused = cluster.run(&["node", "remove", "far", "--lost"]);
    assert_eq!(refused.exit, 7, "{refused:?}");
    let words = format!("{keys} keys of node far would be lost");
    assert!(refused.stderr.contains(&words), "{refused:?}");
    let staged = cluster.run(&["node", "remove", "far", "--lost", "--confirm", "far"]);
    let words = format!("remove far, lost with {keys} keys");
    assert!(staged.stdout.contains(&words), "{staged:?}");
    assert_eq!(cluster.run(&["unstage"]).exit, 0);

    // Whoever begins anew has never heard the node.
    let cluster = Cluster::start_on(cluster.end(), &["--engine", "redis", "--persist", "none"]);
    let staged = cluster.run(&["node", "remove", "far", "--lost", "--confirm", "far"]);
    assert!(
        staged
            .stdout
            .contains("lost with an unknown number of keys"),
        "{staged:?}"
    );
    let plan = cluster.run(&["plan"]);
    assert!(plan.stdout.contains("nobody has counted them"), "{plan:?}");
    let applied = cluster.run(&["apply", "--wait"]);
    assert_eq!(applied.exit, 0, "{applied:?}");
}
