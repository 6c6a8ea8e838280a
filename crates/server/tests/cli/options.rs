//! What `up` can be told about the pool it makes, and about who may come in.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::cluster::{Cluster, refused_up};

fn node_of(cluster: &Cluster, key: &str) -> String {
    let route = cluster.run(&["route", key, "-o", "json"]).json("Route");
    route["node"].as_str().unwrap().to_owned()
}

#[test]
fn with_hash_tags_keys_of_one_tag_share_a_node_and_can_be_asked_for_together() {
    let keys: Vec<String> = (0..40)
        .map(|number| format!("{{user:1}}.{number}"))
        .collect();
    let cluster = Cluster::start(&["--hash-tags"]);
    let node = node_of(&cluster, &keys[0]);
    assert!(keys.iter().all(|key| node_of(&cluster, key) == node));
    let again = Cluster::start_on(cluster.end(), &["--hash-tags"]);
    assert_eq!(node_of(&again, &keys[0]), node);

    let without = Cluster::start(&[]);
    let node = node_of(&without, &keys[0]);
    assert!(keys.iter().any(|key| node_of(&without, key) != node));
    let folder = without.end();
    let refused = refused_up(folder.path(), &["--hash-tags"]);
    assert_eq!(refused.exit, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("made without --hash-tags"),
        "{refused:?}"
    );
}

#[test]
fn scripts_run_only_where_the_pool_was_made_with_them() {
    let script = |cluster: &Cluster| -> redis::RedisResult<String> {
        redis::cmd("EVAL")
            .arg("return redis.call('SET', KEYS[1], ARGV[1]) and redis.call('GET', KEYS[1])")
            .arg(1)
            .arg("key")
            .arg("value")
            .query(&mut cluster.client())
    };
    let with = Cluster::start(&["--engine", "redis", "--nodes", "2", "--scripts"]);
    assert_eq!(script(&with).unwrap(), "value");
    let without = Cluster::start(&["--engine", "redis", "--nodes", "2"]);
    assert!(script(&without).is_err());

    let folder = tempfile::tempdir().unwrap();
    let embedded = refused_up(folder.path(), &["--scripts"]);
    assert_eq!(embedded.exit, 1, "{embedded:?}");
    assert!(embedded.stderr.contains("--engine redis"), "{embedded:?}");
}

#[test]
fn clients_give_the_password_of_the_file_that_only_its_owner_may_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "open-sesame\n").unwrap();
    let path = file.to_str().unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let open_to_all = refused_up(folder.path(), &["--password-file", path]);
    assert_eq!(open_to_all.exit, 1, "{open_to_all:?}");
    assert!(open_to_all.stderr.contains(path), "{open_to_all:?}");

    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let cluster = Cluster::start(&["--password-file", path]);
    let mut client = cluster.client();
    let set = |client: &mut redis::Connection| -> redis::RedisResult<String> {
        redis::cmd("SET").arg("key").arg("value").query(client)
    };
    let auth = |client: &mut redis::Connection, password: &str| -> redis::RedisResult<String> {
        redis::cmd("AUTH").arg(password).query(client)
    };
    assert!(set(&mut client).unwrap_err().to_string().contains("NOAUTH"));
    assert!(auth(&mut client, "open-sesam").is_err());
    assert_eq!(auth(&mut client, "open-sesame").unwrap(), "OK");
    assert_eq!(set(&mut client).unwrap(), "OK");
}
