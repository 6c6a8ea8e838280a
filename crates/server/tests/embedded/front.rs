//! What clients do to a node that is not kind: it answers with a clear error and keeps its memory.

use std::io::Write as _;
use std::time::Duration;

use clockwise::embedded::EmbeddedOptions;
use clockwise_client::resp::write_command;
use tokio::sync::Mutex;

use crate::client::Client;
use crate::node::Node;

const MIB: usize = 1 << 20;
/// What a process may take more than before, whatever one client announces or asks for.
const GROWTH_MAX: usize = 96 * MIB;

/// Held by each test here: they look at the memory of the whole process.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Bytes of memory that this process has in use.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kib.parse::<usize>().unwrap() * 1024
}

/// The end of a connection that broke the grammar: one error, and no more.
fn check_refused(mut client: Client, sent: &[u8], words: &str) {
    client.send(sent);
    let answer = client.rest();
    assert!(
        answer.starts_with("-ERR Protocol error") && answer.contains(words),
        "{:?}: {answer}",
        sent.escape_ascii().to_string()
    );
    assert_eq!(answer.matches("\r\n").count(), 1, "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_the_grammar_gets_one_error_and_the_connection_ends() {
    let _alone = ALONE.lock().await;
    let node = Node::start(EmbeddedOptions::default()).await;
    for (sent, words) in [
        (&b"*2000000000\r\n"[..], "invalid multibulk length"),
        (b"*1\r\n$2000000000\r\n", "too big request"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*2\r\nGET\r\n", "expected '$', got 'G'"),
        (b"*1\r\n$4\r\nPINGxx", "line end"),
        (b"SET k \"open\r\n", "unbalanced quotes"),
        (&[b'x'; 70_000], "too big inline request"),
    ] {
        check_refused(node.client(), sent, words);
    }
    // Nobody has to be let in to be refused, and sooner.
    check_refused(
        Client::connect(node.address),
        b"*11\r\n",
        "invalid multibulk length",
    );
    check_refused(
        Client::connect(node.address),
        b"*1\r\n$20000\r\n",
        "too big request",
    );
    assert_eq!(node.client().ask(&["PING"]), "+PONG\r\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_request_costs_nobody_anything_and_may_be_ended_later() {
    let _alone = ALONE.lock().await;
    let node = Node::start(EmbeddedOptions::default()).await;
    let before = resident();
    let mut halves: Vec<Client> = (0..200).map(|_| node.client()).collect();
    for half in &mut halves {
        half.send(b"PING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$60000000\r\nva");
        // What came with it has been looked at too.
        assert_eq!(half.reply().unwrap(), b"+PONG\r\n");
    }
    let mut other = node.client();
    assert_eq!(other.ask(&["SET", "k", "kept"]), "+OK\r\n");
    let mut late = node.client();
    late.send(b"*2\r\n$3\r\nGET\r\n$1\r\n");
    let grown = resident().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes for what was announced");
    assert_eq!(other.ask(&["GET", "k"]), "$4\r\nkept\r\n");
    late.send(b"k\r\n");
    assert_eq!(late.reply().unwrap(), b"$4\r\nkept\r\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_is_no_longer_read_from() {
    let _alone = ALONE.lock().await;
    let node = Node::start(EmbeddedOptions::default()).await;
    let mut client = node.client();
    assert_eq!(
        client.ask(&["SETRANGE", "k", &(MIB - 1).to_string(), "x"]),
        format!(":{MIB}\r\n")
    );
    let before = resident();
    let mut request = Vec::new();
    write_command(&mut request, &["GET", "k"]);
    let batch = request.repeat(1_000);
    client
        .stream
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    // Each request is answered with a megabyte; the system's own buffers hold some hundred thousand requests.
    let blocked = (0..1_000).find_map(|_| client.stream.write(&batch).err());
    let blocked = blocked.expect("requests are taken without end");
    assert_eq!(blocked.kind(), std::io::ErrorKind::WouldBlock, "{blocked}");
    let grown = resident().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes of replies wait");
    assert_eq!(node.client().ask(&["STRLEN", "k"]), format!(":{MIB}\r\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_over_the_limit_is_dropped_as_it_arrives_and_the_connection_stays() {
    let _alone = ALONE.lock().await;
    let node = Node::start(EmbeddedOptions::default()).await;
    let mut client = node.client();
    let before = resident();
    let announced = 300 * MIB;
    client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${announced}\r\n").as_bytes());
    // Its content would be commands, were it read as such.
    let part = b"FLUSHALL\r\n".repeat(MIB / 10);
    let mut left = announced;
    while left > 0 {
        let count = left.min(part.len());
        client.send(&part[..count]);
        left -= count;
    }
    client.send(b"\r\n");
    let refused = String::from_utf8(client.reply().unwrap()).unwrap();
    assert_eq!(
        refused,
        format!(
            "-ERR an argument of {announced} bytes is over the limit of {}\r\n",
            64 * MIB
        )
    );
    let grown = resident().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes for what was dropped");
    assert_eq!(client.ask(&["EXISTS", "k"]), ":0\r\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_node_takes_nothing_more_until_something_is_removed() {
    let _alone = ALONE.lock().await;
    let options = EmbeddedOptions {
        memory_limit: Some(64 << 10),
        ..EmbeddedOptions::default()
    };
    let node = Node::start(options).await;
    let mut client = node.client();
    assert_eq!(
        client.ask(&["SET", "large", &"x".repeat(70_000)]),
        "+OK\r\n"
    );
    let refused = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    assert_eq!(client.ask(&["SET", "k", "v"]), refused);
    assert_eq!(client.ask(&["INCRBYFLOAT", "k", "1"]), refused);
    assert_eq!(client.ask(&["STRLEN", "large"]), ":70000\r\n");
    assert_eq!(client.ask(&["DEL", "large"]), ":1\r\n");
    assert_eq!(client.ask(&["SET", "k", "v"]), "+OK\r\n");
}
