//! The proxy does to connections what it is told, and to nobody else's.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clockwise_testkit::{FaultProxy, Flow, RedisOptions, RedisServer, Way, Weather};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough that bytes which are not held back would have come.
const A_MOMENT: Duration = Duration::from_millis(60);

/// A server that sends back what it is sent, after a letter of its own.
fn echo(letter: u8) -> (TcpListener, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let accepting = listener.try_clone().expect("cloned");
    let server = thread::spawn(move || {
        for mut stream in accepting.incoming().flatten() {
            thread::spawn(move || {
                let mut bytes = [0; 1024];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    let answer = [&[letter], &bytes[..count]].concat();
                    if stream.write_all(&answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (listener, server)
}

fn proxy_to(listener: &TcpListener) -> FaultProxy {
    FaultProxy::start(listener.local_addr().expect("an address"))
}

fn connect(proxy: &FaultProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.addr()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// What comes back within the stream's patience; `None` when it was closed, and what came before.
fn ask(stream: &mut TcpStream, words: &str) -> String {
    stream.write_all(words.as_bytes()).expect("sent");
    hear(stream, words.len() + 1)
}

fn hear(stream: &mut TcpStream, count: usize) -> String {
    let mut heard = vec![0; count];
    stream.read_exact(&mut heard).expect("answered");
    String::from_utf8(heard).expect("text")
}

/// Nothing arrives for a moment.
fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(A_MOMENT)).expect("set");
    let read = stream.read(&mut [0; 16]);
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    read.is_err()
}

fn me() -> u32 {
    std::process::id()
}

#[test]
fn what_is_sent_passes_and_both_ends_close_together() {
    let (listener, _server) = echo(b'a');
    let proxy = proxy_to(&listener);
    let mut stream = connect(&proxy);
    assert_eq!(ask(&mut stream, "hello"), "ahello");
    assert_eq!(proxy.connections(me()), 1);
    stream.shutdown(std::net::Shutdown::Write).expect("open");
    assert_eq!(stream.read(&mut [0; 16]).expect("closed in order"), 0);
}

#[test]
fn a_partition_holds_back_what_passes_once_it_is_over() {
    let (listener, _server) = echo(b'a');
    let proxy = proxy_to(&listener);
    let mut stream = connect(&proxy);
    assert_eq!(ask(&mut stream, "one"), "aone");
    proxy.set(me(), Weather::PARTITION);
    // Whoever pumps may have taken the last rule a moment ago.
    let held = |stream: &mut TcpStream| {
        stream.write_all(b"two").expect("taken");
        is_silent(stream)
    };
    assert!(held(&mut stream) || held(&mut stream));
    proxy.set(me(), Weather::default());
    assert_eq!(hear(&mut stream, 4), "atwo");
}

#[test]
fn one_way_may_stall_alone() {
    let (listener, server) = one_listener();
    let proxy = proxy_to(&listener);
    let mut stream = connect(&proxy);
    let mut other = server.join().expect("accepted");
    proxy.set(
        me(),
        Weather {
            to_client: Flow::Stalls,
            ..Weather::default()
        },
    );
    stream.write_all(b"there").expect("sent");
    assert_eq!(hear(&mut other, 5), "there");
    other.write_all(b"back").expect("sent");
    assert!(is_silent(&mut stream));
    proxy.set(me(), Weather::default());
    assert_eq!(hear(&mut stream, 4), "back");
}

fn one_listener() -> (TcpListener, JoinHandle<TcpStream>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let accepting = listener.try_clone().expect("cloned");
    let accepted = thread::spawn(move || {
        let (stream, _) = accepting.accept().expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream
    });
    (listener, accepted)
}

#[test]
fn a_delay_is_kept_both_ways_and_does_not_add_up() {
    let (listener, _server) = echo(b'a');
    let proxy = proxy_to(&listener);
    let mut stream = connect(&proxy);
    assert_eq!(ask(&mut stream, "one"), "aone");
    let delay = Duration::from_millis(40);
    proxy.set(me(), Weather::late(delay));
    let began = Instant::now();
    assert_eq!(ask(&mut stream, "two"), "atwo");
    assert!(began.elapsed() >= 2 * delay, "{:?}", began.elapsed());
    // A hundred messages that are sent at once are late once, not a hundred times.
    let began = Instant::now();
    for _ in 0..100 {
        stream.write_all(b"x").expect("sent");
    }
    let mut heard = 0;
    while heard < 100 {
        let mut bytes = [0; 256];
        let count = stream.read(&mut bytes).expect("answered");
        heard += bytes[..count].iter().filter(|byte| **byte == b'x').count();
    }
    assert!(began.elapsed() < 100 * delay, "{:?}", began.elapsed());
}

#[test]
fn a_cut_lets_half_a_message_pass_and_then_nothing() {
    for way in [Way::ToServer, Way::ToClient] {
        let (listener, server) = one_listener();
        let proxy = proxy_to(&listener);
        let mut client = connect(&proxy);
        let mut server = server.join().expect("accepted");
        assert_eq!(wait_for_connection(&proxy), 1);
        assert_eq!(proxy.cut(me(), way), 1);
        let (from, to) = match way {
            Way::ToServer => (&mut client, &mut server),
            Way::ToClient => (&mut server, &mut client),
        };
        from.write_all(b"abcdefgh").expect("sent");
        let mut heard = Vec::new();
        // A reset after the half is an end too.
        let _reset = to.read_to_end(&mut heard);
        assert_eq!(heard, b"abcd", "{way:?}");
    }
}

/// The proxy notes a connection a moment after it has dialled.
fn wait_for_connection(proxy: &FaultProxy) -> usize {
    let deadline = Instant::now() + PATIENCE;
    while proxy.connections(me()) == 0 && Instant::now() < deadline {
        thread::park_timeout(Duration::from_millis(1));
    }
    proxy.connections(me())
}

#[test]
fn a_redirected_proxy_ends_what_is_open_and_leads_elsewhere() {
    let ((first, _first), (second, _second)) = (echo(b'a'), echo(b'b'));
    let proxy = proxy_to(&first);
    let mut stream = connect(&proxy);
    assert_eq!(ask(&mut stream, "one"), "aone");
    proxy.redirect(second.local_addr().expect("an address"));
    assert!(matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_)));
    assert_eq!(ask(&mut connect(&proxy), "two"), "btwo");
}

#[test]
fn a_server_that_is_gone_closes_its_clients() {
    let (listener, server) = one_listener();
    let proxy = proxy_to(&listener);
    let mut open = connect(&proxy);
    drop(server.join().expect("accepted"));
    assert!(matches!(open.read(&mut [0; 16]), Ok(0) | Err(_)));
    drop(listener);
    assert!(matches!(connect(&proxy).read(&mut [0; 16]), Ok(0) | Err(_)));
}

#[test]
fn rules_hit_the_process_they_name_and_no_other() {
    let server = RedisServer::start(RedisOptions::default());
    let proxy = FaultProxy::start(server.socket_addr());
    proxy.set(me(), Weather::PARTITION);
    let port = proxy.addr().port().to_string();
    let other = Command::new("redis-cli")
        .args(["-p", &port, "PING"])
        .stderr(Stdio::null())
        .output()
        .expect("redis-cli runs");
    assert_eq!(String::from_utf8_lossy(&other.stdout).trim(), "PONG");
    let mut own = connect(&proxy);
    own.write_all(b"PING\r\n").expect("taken");
    assert!(is_silent(&mut own));
    proxy.set(me(), Weather::default());
    assert_eq!(hear(&mut own, 7), "+PONG\r\n");
}
