//! Each server starts on a port of its own, answers, survives what tests do to it, and leaves
//! nothing behind.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clockwise_testkit::{
    EtcdCluster, EtcdOptions, EtcdServer, MemcachedOptions, MemcachedServer, RedisOptions,
    RedisServer, RunningProgram,
};

fn is_alive(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

#[test]
fn a_dropped_server_is_gone_with_its_directory() {
    let server = RedisServer::start(RedisOptions::default());
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    assert!(is_alive(pid) && dir.exists());
    drop(server);
    assert!(!is_alive(pid) && !dir.exists());
}

#[test]
fn servers_outlive_the_thread_that_started_them() {
    let mut server = thread::spawn(|| RedisServer::start(RedisOptions::default()))
        .join()
        .expect("started");
    assert_eq!(server.cli(&["PING"]), "PONG");
    assert!(server.is_running());
}

#[test]
fn what_an_append_only_redis_acknowledged_survives_a_kill() {
    let mut server = RedisServer::start(RedisOptions {
        append_only: true,
        config: vec!["appendfsync always".to_owned()],
        ..RedisOptions::default()
    });
    let port = server.port();
    assert_eq!(server.cli(&["SET", "key", "a value"]), "OK");
    let first = server.pid();
    server.kill9();
    assert!(!server.is_running());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), first);
    assert_eq!(server.cli(&["GET", "key"]), "a value");
    server.stop();
    assert!(!server.is_running());
    server.restart();
    assert_eq!(server.cli(&["GET", "key"]), "a value");
}

#[test]
fn redis_options_reach_the_server() {
    let server = RedisServer::start(RedisOptions {
        password: Some("open sesame".replace(' ', "-")),
        max_memory: Some(8 << 20),
        policy: Some("allkeys-lru".to_owned()),
        ..RedisOptions::default()
    });
    assert_eq!(
        server.cli(&["CONFIG", "GET", "maxmemory"]),
        "maxmemory\n8388608"
    );
    assert_eq!(
        server.cli(&["CONFIG", "GET", "maxmemory-policy"]),
        "maxmemory-policy\nallkeys-lru"
    );
}

#[test]
fn an_acl_file_names_who_may_log_in() {
    let server = RedisServer::start(RedisOptions {
        acl: vec![
            "user default off".to_owned(),
            "user root on >secret ~* &* +@all".to_owned(),
        ],
        admin: Some(("root".to_owned(), "secret".to_owned())),
        ..RedisOptions::default()
    });
    assert_eq!(server.cli(&["ACL", "WHOAMI"]), "root");
}

#[test]
fn a_paused_redis_goes_on_where_it_was() {
    let mut server = RedisServer::start(RedisOptions::default());
    server.cli(&["SET", "key", "1"]);
    server.pause();
    assert!(server.is_running());
    server.resume();
    assert_eq!(server.cli(&["INCR", "key"]), "2");
    server.pause();
    server.stop();
}

#[test]
#[should_panic(expected = "was taken while the server was down")]
fn a_restart_never_talks_to_a_stranger_on_its_port() {
    let mut server = RedisServer::start(RedisOptions::default());
    server.kill9();
    let _stranger = TcpListener::bind(server.addr()).expect("the port is free again");
    server.restart();
}

#[test]
#[should_panic(expected = "Bad directive")]
fn a_server_that_refuses_its_configuration_fails_with_its_log() {
    let _server = RedisServer::start(RedisOptions {
        config: vec!["no-such-directive 1".to_owned()],
        ..RedisOptions::default()
    });
}

#[test]
fn many_servers_start_at_once() {
    let servers: Vec<RedisServer> = thread::scope(|scope| {
        let starts: Vec<_> = (0..12)
            .map(|_| scope.spawn(|| RedisServer::start(RedisOptions::default())))
            .collect();
        starts
            .into_iter()
            .map(|start| start.join().expect("started"))
            .collect()
    });
    for server in &servers {
        let own = format!("process_id:{}", server.pid());
        assert!(server.cli(&["INFO", "server"]).contains(&own));
    }
}

#[test]
fn memcached_answers_and_forgets_at_a_restart() {
    let mut server = MemcachedServer::start(MemcachedOptions {
        memory_mib: Some(16),
        ..MemcachedOptions::default()
    });
    let port = server.port();
    assert_eq!(
        server.ask("set key 0 0 5\r\nvalue\r\n", "STORED\r\n"),
        "STORED\r\n"
    );
    let found = "VALUE key 0 5\r\nvalue\r\nEND\r\n";
    assert_eq!(server.ask("get key\r\n", "END\r\n"), found);
    assert!(
        server
            .ask("stats\r\n", "END\r\n")
            .contains("STAT limit_maxbytes 16777216\r\n")
    );
    server.restart();
    assert_eq!(server.port(), port);
    assert_eq!(server.ask("get key\r\n", "END\r\n"), "END\r\n");
    server.stop();
    assert!(!server.is_running());
}

#[test]
fn etcd_keeps_its_data_over_a_kill() {
    let mut server = EtcdServer::start(EtcdOptions::default());
    let put = |key: &str| etcd_put(&server.addr(), key);
    put("a2V5");
    let pid = server.pid();
    server.kill9();
    assert!(!is_alive(pid));
    server.restart();
    assert!(etcd_get(&server.addr(), "a2V5").contains("\"count\":\"1\""));
}

#[test]
fn etcd_goes_back_to_a_copy() {
    let mut server = EtcdServer::start(EtcdOptions::default());
    server.ctl(&["put", "key", "old"]);
    let copy = server.snapshot();
    server.ctl(&["put", "key", "new"]);
    server.restore(&copy);
    assert_eq!(server.ctl(&["get", "key", "--print-value-only"]), "old");
}

#[test]
fn etcd_members_agree_and_one_of_them_leads() {
    let mut cluster = EtcdCluster::start::<3>(&EtcdOptions::default());
    cluster.members()[0].ctl(&["put", "key", "value"]);
    assert_eq!(
        cluster.members()[2].ctl(&["get", "key", "--print-value-only"]),
        "value"
    );
    let leader = cluster.wait_for_leader();
    cluster.member(leader).kill9();
    let next = cluster.wait_for_leader();
    assert_ne!(next, leader);
    cluster.members()[next].ctl(&["put", "key", "again"]);
}

fn etcd_put(addr: &str, key_base64: &str) -> String {
    post(
        addr,
        "/v3/kv/put",
        &format!("{{\"key\":\"{key_base64}\",\"value\":\"dg==\"}}"),
    )
}

fn etcd_get(addr: &str, key_base64: &str) -> String {
    post(
        addr,
        "/v3/kv/range",
        &format!("{{\"key\":\"{key_base64}\"}}"),
    )
}

fn post(addr: &str, path: &str, body: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(addr).expect("etcd listens");
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nHost: {addr}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("answered");
    reply
}

#[test]
fn a_program_of_ours_says_and_logs_apart_and_starts_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "echo \"$WORD\"; echo logged >&2; exec tail -f /dev/null";
    let mut program = RunningProgram::start(
        Path::new("sh"),
        &["-c", script],
        &[("WORD", "said")],
        folder.path(),
        "one",
    );
    let spoke = |program: &RunningProgram| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while program.logged().is_empty() && Instant::now() < deadline {
            thread::yield_now();
        }
        (program.said(), program.logged())
    };
    assert_eq!(
        spoke(&program),
        ("said\n".to_owned(), "logged\n".to_owned())
    );
    let first = program.pid();
    program.kill9();
    assert!(!program.is_running() && !is_alive(first));
    program.restart();
    assert_ne!(program.pid(), first);
    assert!(program.interrupt(Duration::from_secs(30)));
    assert!(!program.is_running());
}
