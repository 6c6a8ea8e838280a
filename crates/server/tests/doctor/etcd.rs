//! The etcd that keeps the record.

use std::io::{Read, Write};
use std::net::TcpStream;

use clockwise_testkit::{EtcdCluster, EtcdOptions, EtcdServer, RedisOptions, RedisServer};

use crate::examined::{ETCD_PASSWORD, Examined, NODES_PASSWORD, paste};

/// Serves nothing to browsers.
const NO_GATEWAY: &str = "--enable-grpc-gateway=false";

fn node() -> RedisServer {
    RedisServer::start(RedisOptions {
        password: Some(NODES_PASSWORD.to_owned()),
        append_only: true,
        max_memory: Some(64 << 20),
        ..RedisOptions::default()
    })
}

fn options(args: &[&str]) -> EtcdOptions {
    EtcdOptions {
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        ..EtcdOptions::default()
    }
}

fn store(endpoints: &[String], more: &str) -> String {
    format!("[store]\nkind = \"etcd\"\nendpoints = {endpoints:?}\n{more}")
}

/// A pool of one sound node in such an etcd.
fn pool(endpoints: &[String], node: &RedisServer) -> Examined {
    let examined = Examined::new(&store(endpoints, ""));
    examined.init(&[node.addr()], &[]);
    examined
}

/// What is found, without what is so with every etcd that a Debian of today has.
fn beside_its_age(names: Vec<&str>) -> Vec<&str> {
    names
        .into_iter()
        .filter(|name| *name != "etcd-old")
        .collect()
}

#[test]
fn three_members_that_ask_for_passwords_have_nothing() {
    let cluster = EtcdCluster::start::<3>(&options(&[NO_GATEWAY]));
    let _leads = cluster.wait_for_leader();
    let etcd = &cluster.members()[0];
    etcd.ctl(&["user", "add", &format!("root:{ETCD_PASSWORD}")]);
    etcd.ctl(&["user", "grant-role", "root", "root"]);
    etcd.ctl(&["auth", "enable"]);
    let (node, more) = (
        node(),
        "user = \"root\"\npassword_file = \"etcd.password\"\n",
    );
    let examined = Examined::new(&store(&cluster.endpoints(), more));
    examined.init(&[node.addr()], &[]);
    let found = examined.doctor();
    assert_eq!(
        beside_its_age(found.names()),
        Vec::<&str>::new(),
        "{found:#?}"
    );
    assert_eq!(found.answer["etcd_endpoints"], 3);
}

#[test]
fn one_member_with_its_defaults_is_open_to_everybody() {
    let (etcd, node) = (EtcdServer::start(EtcdOptions::default()), node());
    let found = pool(&[etcd.endpoint()], &node).doctor();
    assert_eq!(
        beside_its_age(found.names()),
        ["etcd-browsers", "etcd-open", "etcd-few-members"],
        "{found:#?}"
    );
    assert!(found.next("etcd-browsers").contains(NO_GATEWAY));
    assert!(found.next("etcd-open").contains("auth enable"));
    let version = etcd.ctl(&["version"]);
    assert!(
        !version.contains("3.4.") || found.has("etcd-old"),
        "{found:#?}"
    );
}

#[test]
fn an_etcd_out_of_space_is_mended_by_what_is_said() {
    let limited = ["--quota-backend-bytes=2097152", NO_GATEWAY];
    let (etcd, node) = (EtcdServer::start(options(&limited)), node());
    let examined = pool(&[etcd.endpoint()], &node);
    let value = "x".repeat(100 << 10);
    // Until etcd refuses: then the alarm is raised.
    let raised = (0..200).any(|_| {
        let (_, alarms) = (put(&etcd, &value), etcd.ctl(&["alarm", "list"]));
        alarms.contains("NOSPACE")
    });
    assert!(raised, "{}", etcd.log());
    let found = examined.doctor();
    assert_eq!(
        beside_its_age(found.names()),
        ["etcd-no-space", "etcd-open", "etcd-few-members"],
        "{found:#?}"
    );
    found.mend("etcd-no-space");
    assert!(!examined.doctor().has("etcd-no-space"));
}

/// Writes a value under a name; whether etcd took it.
fn put(etcd: &EtcdServer, value: &str) -> bool {
    let output = std::process::Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args([
            &format!("--endpoints={}", etcd.endpoint()),
            "put",
            "large",
            value,
        ])
        .output();
    output.unwrap().status.success()
}

#[test]
fn an_etcd_that_never_forgets_is_mended_by_what_is_said() {
    const PUTS: usize = 1_001;
    let (etcd, node) = (EtcdServer::start(EtcdOptions::default()), node());
    let examined = pool(&[etcd.endpoint()], &node);
    assert!(!examined.doctor().has("etcd-never-compacted"));
    let mut stream = TcpStream::connect(etcd.addr()).unwrap();
    let body = "{\"key\":\"AA==\",\"value\":\"AA==\"}";
    for number in 1..=PUTS {
        let then = if number == PUTS {
            "close"
        } else {
            "keep-alive"
        };
        let request = format!(
            "POST /v3/kv/put HTTP/1.1\r\nHost: etcd\r\nConnection: {then}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
    }
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let found = examined.doctor();
    let next = found.next("etcd-never-compacted");
    let (compact, setting) = next.split_once(", and ").unwrap();
    assert!(setting.contains("--auto-compaction-retention"), "{next}");
    paste(compact);
    assert!(!examined.doctor().has("etcd-never-compacted"));
}

#[test]
fn a_member_that_is_gone_and_members_that_are_not_named() {
    let mut cluster = EtcdCluster::start::<3>(&options(&[NO_GATEWAY]));
    let _leads = cluster.wait_for_leader();
    let node = node();
    let endpoints = cluster.endpoints();
    let examined = pool(&endpoints[..1], &node);
    let found = examined.doctor();
    assert_eq!(
        beside_its_age(found.names()),
        ["etcd-open", "etcd-unnamed-members"],
        "{found:#?}"
    );
    examined.configure(&store(&endpoints, ""), "127.0.0.1:0", "127.0.0.1:0");
    cluster.member(2).kill9();
    let _leads = cluster.wait_for_leader();
    let found = examined.doctor();
    assert_eq!(found.one("etcd-away")["place"], endpoints[2].as_str());
    assert!(found.next("etcd-away").contains("etcdctl"), "{found:#?}");
    assert!(!found.has("etcd-unnamed-members"), "{found:#?}");
}

#[test]
fn an_etcd_that_is_away_altogether() {
    let (mut etcd, node) = (EtcdServer::start(EtcdOptions::default()), node());
    let examined = pool(&[etcd.endpoint()], &node);
    etcd.kill9();
    let found = examined.doctor();
    assert_eq!(found.names(), ["etcd-away", "record-away"], "{found:#?}");
    assert_eq!(found.answer["epoch"], serde_json::Value::Null);
}
