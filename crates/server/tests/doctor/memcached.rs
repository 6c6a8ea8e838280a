//! memcached nodes. One that listens on all interfaces is not started here.

use clockwise_testkit::{MemcachedOptions, MemcachedServer};

use crate::examined::Examined;

fn start(args: &[&str]) -> MemcachedServer {
    MemcachedServer::start(MemcachedOptions {
        memory_mib: None,
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
    })
}

fn pool(servers: &[&MemcachedServer]) -> Examined {
    let addresses: Vec<String> = servers.iter().map(|server| server.addr()).collect();
    Examined::with_record(&addresses, |record| {
        record["protocol"] = "memcached".into();
        record["class"] = "cache".into();
    })
}

/// Puts such a node beside a sound one, and expects this finding alone.
#[track_caller]
fn plant(args: &[&str], check: &str, next: &str) {
    let (server, beside) = (start(args), start(&[]));
    let found = pool(&[&beside, &server]).doctor();
    assert_eq!(found.names(), [check], "{found:#?}");
    let place = found.one(check)["place"].as_str().unwrap();
    assert_eq!(place, format!("node node-2 at {}", server.addr()));
    assert!(found.next(check).contains(next), "{found:#?}");
}

#[test]
fn a_sound_cache_has_nothing() {
    let (one, two) = (start(&[]), start(&[]));
    let found = pool(&[&one, &two]).doctor();
    assert_eq!((found.names(), found.exit), (Vec::new(), 0), "{found:#?}");
}

#[test]
fn a_cache_that_refuses_instead_of_evicting() {
    plant(&["-M"], "memcached-no-eviction", "-M");
}

#[test]
fn items_that_fit_on_some_nodes_only() {
    plant(&["-I", "512k"], "memcached-item-size", "-I 1048576");
}

#[test]
fn a_cache_that_answers_to_udp() {
    // The last of two options counts; a port of UDP is not taken by one of TCP.
    let port = start(&[]).port().to_string();
    plant(&["-U", &port], "memcached-udp", "-U 0");
}

#[test]
fn a_cache_whose_keys_cannot_be_listed() {
    let server = start(&["-o", "no_lru_crawler"]);
    let examined = pool(&[&server]);
    let found = examined.doctor();
    assert_eq!(found.names(), ["memcached-crawler-off"], "{found:#?}");
    let asks = format!("nc 127.0.0.1 {}", server.port());
    assert!(found.next("memcached-crawler-off").contains(&asks));
    // What the command sends; not every machine has nc.
    server.ask("lru_crawler enable\r\n", "OK\r\n");
    assert_eq!(examined.doctor().names(), Vec::<&str>::new());
}

#[test]
fn a_node_that_is_gone() {
    let mut server = start(&[]);
    let examined = pool(&[&server]);
    server.kill9();
    let found = examined.doctor();
    assert_eq!(found.names(), ["node-away"], "{found:#?}");
}
