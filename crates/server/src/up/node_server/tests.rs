use std::path::Path;

use clockwise_client::credentials::Password;

use super::*;

fn servers(folder: &Path, persist: Persist) -> NodeServers {
    let dir = DataDir::create(folder).unwrap();
    let password = Password::generate().unwrap();
    NodeServers::new(dir, Program::Redis { persist, password })
}

fn password(servers: &NodeServers) -> &str {
    match &servers.program {
        Program::Redis { password, .. } => password.reveal(),
        Program::Memcached => panic!("it has none"),
    }
}

fn keep(servers: &mut NodeServers, kept: Persist) {
    match &mut servers.program {
        Program::Redis { persist, .. } => *persist = kept,
        Program::Memcached => panic!("it keeps nothing"),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(8)
}

fn set(servers: &NodeServers, port: u16, key: &str, value: &str) {
    let info = format!("redis://:{}@127.0.0.1:{port}/", password(servers));
    let mut connection = redis::Client::open(info).unwrap().get_connection().unwrap();
    let () = redis::cmd("SET")
        .arg(key)
        .arg(value)
        .query(&mut connection)
        .unwrap();
}

fn get(servers: &NodeServers, port: u16, key: &str) -> Option<String> {
    let info = format!("redis://:{}@127.0.0.1:{port}/", password(servers));
    let mut connection = redis::Client::open(info).unwrap().get_connection().unwrap();
    redis::cmd("GET").arg(key).query(&mut connection).unwrap()
}

#[test]
fn a_server_is_adopted_and_keeps_its_data_over_its_end() {
    let scratch = tempfile::tempdir().unwrap();
    let servers = servers(scratch.path(), Persist::Aof);
    let id: NodeId = "node-1".parse().unwrap();
    let mut first = servers.run(&id, None).unwrap();
    set(&servers, first.port, "k", "v");

    let again = servers.run(&id, Some(first.port)).unwrap();
    assert!(again.adopted && !first.adopted);
    assert_eq!((again.process, again.port), (first.process, first.port));

    let port = first.port;
    servers.end(&mut first, soon()).unwrap();
    assert!(
        servers.adopt(&id).unwrap().is_none(),
        "what ended is not adopted"
    );
    let mut fresh = servers.run(&id, Some(port)).unwrap();
    assert_eq!(get(&servers, port, "k").as_deref(), Some("v"));
    servers.end(&mut fresh, soon()).unwrap();
    assert!(
        !servers.end_left(&id, soon()).unwrap(),
        "nothing left is fine"
    );
}

#[test]
fn a_server_continues_what_ended_in_good_order_and_what_it_loaded() {
    let scratch = tempfile::tempdir().unwrap();
    let mut servers = servers(scratch.path(), Persist::Aof);
    let id: NodeId = "node-1".parse().unwrap();
    let who = |server: &NodeServer| servers.ask(server.port).unwrap().saves;
    let mut first = servers.run(&id, None).unwrap();
    assert_eq!(first.continues, None, "there was nothing before");
    let (port, run) = (first.port, who(&first));
    servers.end(&mut first, soon()).unwrap();

    let mut second = servers.run(&id, Some(port)).unwrap();
    assert!(run.is_some() && second.continues == run);
    let left = servers.run(&id, Some(port)).unwrap();
    assert_eq!(left.continues, run, "whoever adopts it learns it too");
    second.process.end(Instant::now()).unwrap();
    servers.end(&mut second, soon()).unwrap();
    let mut third = servers.run(&id, Some(port)).unwrap();
    assert_eq!(third.continues, None, "it was killed");
    servers.end(&mut third, soon()).unwrap();

    let data = servers.dir.node(&id).unwrap().join("data");
    fs::remove_dir_all(data).unwrap();
    let mut fourth = servers.run(&id, Some(port)).unwrap();
    assert_eq!(fourth.continues, None, "what was saved is gone");
    servers.end(&mut fourth, soon()).unwrap();

    keep(&mut servers, Persist::None);
    let mut fifth = servers.run(&id, Some(port)).unwrap();
    assert_eq!(fifth.continues, None, "it loads nothing");
    servers.end(&mut fifth, soon()).unwrap();
    keep(&mut servers, Persist::Aof);
    let mut sixth = servers.run(&id, Some(port)).unwrap();
    assert_eq!(sixth.continues, None, "the one before saved nothing");
    servers.end(&mut sixth, soon()).unwrap();
}

#[test]
fn a_port_in_use_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let servers = servers(scratch.path(), Persist::None);
    let id: NodeId = "node-1".parse().unwrap();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    match servers.run(&id, Some(port)) {
        Err(NodeServerError::PortInUse { port: named, .. }) => assert_eq!(named, port),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stranger_is_not_adopted() {
    let scratch = tempfile::tempdir().unwrap();
    let servers = servers(scratch.path(), Persist::None);
    let (id, other): (NodeId, NodeId) = ("node-1".parse().unwrap(), "node-2".parse().unwrap());
    let (one, two) = (
        servers.run(&id, None).unwrap(),
        servers.run(&other, None).unwrap(),
    );
    let mut swapped = card::read(&servers.dir.node(&id).unwrap())
        .unwrap()
        .unwrap();
    swapped.port = two.port;
    card::begin(&servers.dir.node(&id).unwrap(), &swapped).unwrap();
    match servers.adopt(&id) {
        Err(NodeServerError::NotRecognised { pid, .. }) => assert_eq!(pid, one.process.pid),
        other => panic!("{other:?}"),
    }
    for mut server in [one, two] {
        servers.end(&mut server, soon()).unwrap();
    }
}

#[test]
fn a_missing_binary_names_the_package() {
    let scratch = tempfile::tempdir().unwrap();
    let mut servers = servers(scratch.path(), Persist::None);
    servers.binary = PathBuf::from("no-such-redis-server");
    let words = servers.check_binary().unwrap_err().to_string();
    assert!(words.contains("package redis-server"), "{words}");
}

#[test]
fn a_server_whose_starter_was_killed_before_it_wrote_the_card_is_known_by_its_folder() {
    let scratch = tempfile::tempdir().unwrap();
    let servers = servers(scratch.path(), Persist::Aof);
    let id: NodeId = "node-1".parse().unwrap();
    let mut started = servers.run(&id, None).unwrap();
    set(&servers, started.port, "key", "value");
    let card = servers.dir.node(&id).unwrap().join("server.json");
    let written = fs::read_to_string(&card).unwrap();

    fs::remove_file(&card).unwrap();
    let adopted = servers.run(&id, Some(started.port)).unwrap();
    assert!(adopted.adopted);
    assert_eq!(
        (adopted.process, adopted.port),
        (started.process, started.port)
    );
    assert_eq!(fs::read_to_string(&card).unwrap(), written);

    fs::write(&card, "{").unwrap();
    assert!(servers.end_left(&id, soon()).unwrap());
    assert!(!started.lives());
    assert!(!servers.end_left(&id, soon()).unwrap());
}
