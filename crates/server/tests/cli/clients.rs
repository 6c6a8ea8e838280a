//! `clients`: who routes by the record, and that what is wrong with them is seen.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cluster::{Cluster, data, wait_until};

/// An entry that somebody else wrote and holds, as a process does for as long as it lives.
struct Foreign {
    path: PathBuf,
    _locked: File,
}

impl Foreign {
    fn new(dir: &Path, id: &str, entry: &Value) -> Self {
        let path = dir.join("clients").join(format!("{id}.json"));
        let mut file = File::create(&path).unwrap();
        file.lock().unwrap();
        file.write_all(entry.to_string().as_bytes()).unwrap();
        Self {
            path,
            _locked: file,
        }
    }
}

fn entry(id: &str, epoch: u64, fingerprint: &str) -> Value {
    json!({
        "format": 1, "id": id, "kind": "client", "version": "0.1.0", "record_format": 1,
        "place": "app-7:4711", "routes_by": { "epoch": epoch, "fingerprint": fingerprint },
        "since_ms": 1_600_000_000_000_u64, "something": "new",
    })
}

/// Waits until everybody routes by the record as it is.
fn wait_for_all(cluster: &Cluster) {
    wait_until("all have the record's epoch", || {
        cluster.run(&["clients", "--check"]).exit == 0
    });
}

#[test]
fn router_and_rebalancer_are_listed_and_follow_the_record() {
    let cluster = Cluster::start(&["--engine", "embedded", "--nodes", "2"]);
    wait_for_all(&cluster);
    let list = cluster.run(&["clients", "-o", "json"]).json("Clients");
    let status = cluster.run(&["status", "-o", "json"]).json("Status");
    assert_eq!(
        (&list["epoch"], &list["fingerprint"], &list["problems"]),
        (&status["epoch"], &status["fingerprint"], &json!([]))
    );
    let mut kinds = Vec::new();
    for client in list["clients"].as_array().unwrap() {
        kinds.push(client["kind"].as_str().unwrap());
        assert_eq!(client["epoch"], status["epoch"]);
        assert_eq!(client["fingerprint"], status["fingerprint"]);
        assert_eq!(
            (&client["behind"], &client["differs"]),
            (&json!(0), &json!(false))
        );
        let place = client["place"].as_str().unwrap();
        assert!(place.ends_with(&format!(":{}", cluster.pid())), "{place}");
    }
    kinds.sort_unstable();
    assert_eq!(kinds, ["rebalancer", "router"]);

    let added = cluster.run(&["node", "add", "node-3"]);
    assert_eq!(added.exit, 0, "{added:?}");
    let applied = cluster.run(&["apply", "--wait"]);
    assert_eq!(applied.exit, 0, "{applied:?}");
    wait_for_all(&cluster);
    let later = cluster.run(&["clients", "-o", "json"]).json("Clients");
    let epoch = |list: &Value| list["epoch"].as_u64().unwrap();
    assert!(epoch(&later) > epoch(&list), "{later:#}");

    let folder = cluster.end();
    let left = fs::read_dir(data(folder.path()).join("clients")).unwrap();
    assert_eq!(left.count(), 0, "an end leaves no entry");
}

#[test]
fn who_is_behind_or_differs_is_named_and_ends_a_check_with_4() {
    let cluster = Cluster::start(&["--engine", "embedded", "--nodes", "1"]);
    wait_for_all(&cluster);
    let list = cluster.run(&["clients", "-o", "json"]).json("Clients");
    let epoch = list["epoch"].as_u64().unwrap();
    let own = list["fingerprint"].as_str().unwrap();
    let dir = cluster.dir();
    let check = |expected: &str| {
        let run = cluster.run(&["clients", "--check"]);
        assert_eq!(run.exit, 4, "{run:?}");
        assert!(run.stdout.contains(expected), "{expected}: {run:?}");
        let json = cluster.run(&["clients", "-o", "json"]).json("Clients");
        assert_eq!(
            json["problems"].as_array().map(Vec::len),
            Some(1),
            "{json:#}"
        );
        assert_eq!(
            cluster.run(&["clients"]).exit,
            0,
            "a look alone is no check"
        );
    };

    let other = Foreign::new(&dir, "feed", &entry("feed", epoch, "00000000deadbeef"));
    check("client feed at app-7:4711 places keys differently at epoch 1");
    drop(other);
    wait_until("a dead owner's entry goes", || {
        cluster.run(&["clients", "--check"]).exit == 0
    });
    let ahead = Foreign::new(&dir, "cafe", &entry("cafe", epoch + 5, own));
    check("the record went back");
    assert!(ahead.path.exists());
    drop(ahead);
    let _strange = Foreign::new(&dir, "strange", &json!({"format": 7}));
    check("it is no registration");
}
