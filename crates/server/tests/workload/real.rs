//! The workload against real servers.

use std::time::Duration;

use clockwise::workload::{
    Copies, DirectOptions, Mix, NodeAccess, Report, Workload, WorkloadOptions,
};
use clockwise_client::credentials::Password;
use clockwise_testkit::{FaultProxy, RedisOptions, RedisServer};

use crate::{options, wait_for_writes, wait_until};

fn password(text: &str) -> Password {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    std::fs::write(&path, text).unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, permissions).unwrap();
    Password::from_file(&path).unwrap()
}

fn direct(addr: String, auth: Option<(String, Password)>) -> DirectOptions {
    DirectOptions {
        addr,
        auth,
        rate: None,
        pipeline: 4,
        mix: Mix::writes(),
    }
}

async fn stopped(workload: Workload) -> Report {
    let report = workload.stop().await;
    println!("{report}");
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_redis_is_clean() {
    let server = RedisServer::start(RedisOptions {
        password: Some("secret".to_owned()),
        ..RedisOptions::default()
    });
    let workload = Workload::start(WorkloadOptions {
        auth: Some(("default".to_owned(), password("secret"))),
        rate: None,
        ..options(server.addr())
    });
    let workload = workload.await.unwrap();
    let before = workload.mark();
    wait_for_writes(&workload, 20_000).await;
    let after = workload.mark();
    let report = stopped(workload).await;
    assert!(report.is_clean());
    assert!(report.errors.is_empty());
    assert_eq!(report.connects, 8);

    let span = after.since(&before);
    let all = span.acknowledged_writes();
    let even = |key: &[u8]| key.last().unwrap().is_multiple_of(2);
    let (on_even, on_odd) = (
        span.acknowledged_writes_on(even),
        span.acknowledged_writes_on(|key| !even(key)),
    );
    // A mark reads its two counts one after the other, while the load goes on.
    assert!(
        (on_even + on_odd).abs_diff(all) < 100,
        "{on_even} + {on_odd}, {all}"
    );
    assert!(on_even > all / 3 && on_odd > all / 3);

    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    assert_eq!(json["faults"]["lost"], 0);
    assert_eq!(json["loop"]["kind"], "closed");
    assert_eq!(json["acknowledged_writes"], report.acknowledged_writes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_take_turns_with_routers_and_read_what_went_through_the_others() {
    let server = RedisServer::start(RedisOptions::default());
    let further = [
        FaultProxy::start(server.socket_addr()),
        FaultProxy::start(server.socket_addr()),
    ];
    let workload = Workload::start(WorkloadOptions {
        connections: 9,
        more_addrs: further
            .iter()
            .map(|proxy| proxy.addr().to_string())
            .collect(),
        ..options(server.addr())
    })
    .await
    .unwrap();
    wait_for_writes(&workload, 500).await;
    for proxy in &further {
        assert_eq!(proxy.connections(std::process::id()), 3);
    }
    let report = stopped(workload).await;
    assert!(report.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_that_syncs_every_write_loses_nothing() {
    let mut server = RedisServer::start(RedisOptions {
        append_only: true,
        config: vec!["appendfsync always".to_owned()],
        ..RedisOptions::default()
    });
    let workload = Workload::start(options(server.addr())).await.unwrap();
    for _ in 0..3 {
        wait_for_writes(&workload, 500).await;
        server.kill9();
        server.restart();
    }
    wait_for_writes(&workload, 500).await;
    let report = stopped(workload).await;
    assert!(report.is_clean());
    assert!(report.unknown_writes > 0 && report.connects >= 32);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_without_persistence_has_lost_what_was_acknowledged() {
    let mut server = RedisServer::start(RedisOptions::default());
    let workload = Workload::start(options(server.addr())).await.unwrap();
    wait_for_writes(&workload, 2_000).await;
    server.kill9();
    server.restart();
    wait_for_writes(&workload, 100).await;
    let report = stopped(workload).await;
    assert!(report.faults.lost > 200, "{}", report.faults.lost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_past_the_router_to_the_owner_are_checked_with_the_others() {
    let server = RedisServer::start(RedisOptions::default());
    let mut workload = Workload::start(options(server.addr())).await.unwrap();
    let chosen = |key: &[u8]| key.ends_with(b"1");
    let writer = workload.write_directly(direct(server.addr(), None), chosen);
    assert!(writer.keys() > 20);
    wait_until("direct writes", || writer.acknowledged_writes() > 2_000).await;
    writer.stop();
    wait_for_writes(&workload, 1_000).await;
    let report = stopped(workload).await;
    assert!(report.is_clean());
    assert!(report.direct[0].acknowledged_writes > 2_000);
}

/// What the fence is for: an old owner that goes on acknowledging.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_past_the_router_to_another_node_are_lost() {
    let owner = RedisServer::start(RedisOptions::default());
    let old_owner = RedisServer::start(RedisOptions::default());
    let mut workload = Workload::start(options(owner.addr())).await.unwrap();
    let chosen = |key: &[u8]| key.ends_with(b"1");
    let keys = workload
        .key_names()
        .filter(|key| chosen(key.as_bytes()))
        .count();
    let writer = workload.write_directly(direct(old_owner.addr(), None), chosen);
    wait_until("losses", || workload.faults_so_far() > keys / 2).await;
    assert!(writer.acknowledged_writes() > 10);
    let report = stopped(workload).await;
    assert!(
        report.faults.lost > 10,
        "{keys} keys were written elsewhere"
    );
    assert!(
        report
            .described
            .iter()
            .all(|fault| chosen(fault.key.as_bytes()))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_writer_stays_out_and_its_writes_stay_judged() {
    let server = RedisServer::start(RedisOptions::default());
    server.cli(&[
        "ACL", "SETUSER", "cw-g1", "on", ">old", "~*", "+@all", "-@admin",
    ]);
    let mut workload = Workload::start(options(server.addr())).await.unwrap();
    let auth = Some(("cw-g1".to_owned(), password("old")));
    let writer = workload.write_directly(direct(server.addr(), auth), |key: &[u8]| {
        key.ends_with(b"1")
    });
    wait_until("direct writes", || writer.acknowledged_writes() > 500).await;
    assert_eq!(server.cli(&["ACL", "DELUSER", "cw-g1"]), "1");
    wait_for_writes(&workload, 1_000).await;
    let acknowledged = writer.acknowledged_writes();
    wait_for_writes(&workload, 1_000).await;
    assert_eq!(writer.acknowledged_writes(), acknowledged);
    let report = stopped(workload).await;
    assert!(report.is_clean());
    let direct = &report.direct[0];
    assert_eq!(direct.acknowledged_writes, acknowledged);
    assert!(direct.errors["denied"].count > 0, "{direct:?}");
    assert_eq!(direct.connects, 1);
}

#[tokio::test]
async fn copies_left_behind_are_found_on_every_node() {
    let servers: Vec<RedisServer> = (0..3)
        .map(|_| RedisServer::start(RedisOptions::default()))
        .collect();
    for (server, keys) in servers.iter().zip([["a", "b"], ["b", "c"], ["c", "d"]]) {
        keys.iter()
            .for_each(|key| drop(server.cli(&["SET", key, "value"])));
    }
    let nodes: Vec<NodeAccess> = servers
        .iter()
        .map(|server| NodeAccess {
            addr: server.addr(),
            auth: None,
        })
        .collect();
    let copies = Copies::list(&nodes, Duration::from_secs(5)).await.unwrap();
    assert_eq!(copies.by_key[b"b".as_slice()], [0, 1]);
    let owner = |key: &[u8]| match key {
        b"a" | b"b" => 0,
        b"c" => 1,
        _ => 2,
    };
    let left: [(&[u8], usize); 2] = [(b"b", 1), (b"c", 2)];
    assert_eq!(copies.left_behind(owner), left);
    drop(servers);
    let error = Copies::list(&nodes, Duration::from_secs(5))
        .await
        .unwrap_err();
    assert_eq!(error.addr, nodes[0].addr);
}
