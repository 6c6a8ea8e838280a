//! What answers at a node's address is no server, or a broken one: every wait ends, the error names the
//! node, and nobody gets an answer that belongs to somebody else.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clockwise::router::Limits;
use clockwise_client::resp::{Value, write_command};
use clockwise_cluster::Edit;

use crate::pool::{Plan, Pool, bulk, ok, patient, start, wait_until};

/// Something that takes connections and says the same on each, first to `HELLO`, then to each request.
struct Stranger {
    address: String,
    /// It has taken so many connections.
    taken: Arc<AtomicUsize>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stranger {
    fn saying(hello: &'static [u8], answer: &'static [u8]) -> Self {
        Self::talking(move |socket| talk(socket, hello, answer, usize::MAX))
    }

    /// The same, but it closes each connection with its first answer.
    fn leaving_with(hello: &'static [u8], answer: &'static [u8]) -> Self {
        Self::talking(move |socket| talk(socket, hello, answer, 2))
    }

    fn talking(talk: impl Fn(TcpStream) + Copy + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (taken, ending) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, end) = (Arc::clone(&taken), Arc::clone(&ending));
        let thread = thread::spawn(move || {
            let mut connections = Vec::new();
            for socket in listener.incoming() {
                if end.load(Ordering::Relaxed) {
                    break;
                }
                let socket = socket.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let speaking = socket.try_clone().unwrap();
                let talk = thread::spawn(move || talk(speaking));
                connections.push((socket, talk));
            }
            for (socket, talk) in connections {
                // Most are closed already by the router.
                let _closed = socket.shutdown(Shutdown::Both);
                talk.join().unwrap();
            }
        });
        Self {
            address,
            taken,
            ending,
            thread: Some(thread),
        }
    }
}

/// Answers whatever comes in one piece as one request, and so many of them.
fn talk(mut socket: TcpStream, hello: &[u8], answer: &[u8], answers: usize) {
    let mut request = [0; 1 << 12];
    let mut words = hello;
    for _ in 0..answers {
        if !socket.read(&mut request).is_ok_and(|read| read > 0) {
            return;
        }
        if socket.write_all(words).is_err() {
            return;
        }
        words = answer;
    }
    // Whoever has closed it before has heard all there was.
    let _closed = socket.shutdown(Shutdown::Both);
}

/// Lets in, then answers with a value of so many bytes, one at a time, and with another at once.
fn drip(mut socket: TcpStream, bytes: usize) {
    let (_keep, never) = mpsc::channel::<()>();
    let mut request = [0; 1 << 12];
    for words in [HELLO.to_vec(), format!("${bytes}\r\n").into_bytes()] {
        let asked = socket.read(&mut request).is_ok_and(|read| read > 0);
        if !asked || socket.write_all(&words).is_err() {
            return;
        }
    }
    for _ in 0..bytes {
        // Nothing is ever sent: this is a pause between two bytes.
        assert!(never.recv_timeout(Duration::from_millis(50)).is_err());
        if socket.write_all(b"x").is_err() {
            return;
        }
    }
    // The router may have gone meanwhile.
    let _said = socket.write_all(b"\r\n$6\r\nbehind\r\n");
    let _asked = socket.read(&mut request);
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        // It wakes up for one more connection.
        let _woken = TcpStream::connect(&self.address);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

const HELLO: &[u8] = b"*2\r\n$5\r\nproto\r\n:2\r\n";

/// One real node, `n0`, and a stranger as `a0`: the first to be asked for everything.
fn beside(stranger: &Stranger, limits: Limits) -> Pool {
    start(Plan {
        nodes: 1,
        strangers: vec![stranger.address.clone()],
        limits,
        ..Plan::default()
    })
}

fn short() -> Limits {
    let mut limits = Limits {
        reply_ms_max: 300,
        ..patient()
    };
    limits.traffic.connect_ms_max = 300;
    limits
}

fn key_of(pool: &Pool, node: &str) -> String {
    let view = pool.view();
    let mut keys = (0..).map(|number| format!("k{number}"));
    keys.find(|key| view.owner(key.as_bytes()).as_str() == node)
        .unwrap()
}

#[test]
fn a_node_that_never_answers_as_it_must_is_told_by_name_and_the_others_go_on() {
    for (hello, answer) in [
        // It never says a word.
        (&b""[..], &b""[..]),
        // Half of an answer to the login.
        (b"*2\r\n$5\r\npro", b""),
        // No server of ours.
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", b""),
        (b"+OK\r\n", b""),
        (b"-ERR unknown command 'HELLO'\r\n", b""),
        // It lets us in and answers nothing.
        (HELLO, b""),
        // Half of an answer.
        (HELLO, b"$100\r\nand no more"),
        (HELLO, b"*2\r\n+one\r\n"),
        // No answer at all.
        (HELLO, b"what?\r\n"),
        (HELLO, b"$-7\r\n"),
    ] {
        let stranger = Stranger::saying(hello, answer);
        let pool = beside(&stranger, short());
        let (strange, known) = (key_of(&pool, "a0"), key_of(&pool, "n0"));
        let told = |reply: Value| match reply {
            Value::Error(text) if text.contains("node a0") => text,
            other => panic!(
                "{other:?} of a node that answers '{}' and '{}'",
                hello.escape_ascii(),
                answer.escape_ascii()
            ),
        };
        let mut client = pool.client();
        assert!(told(client.call(&["GET", &strange])).starts_with("TRYAGAIN "));
        told(client.call(&["SET", &strange, "v"]));
        told(client.call(&["MGET", &known, &strange]));
        assert_eq!(client.call(&["SET", &known, "v"]), ok());
        assert_eq!(client.call(&["GET", &known]), bulk("v"));
    }
}

#[test]
fn a_node_is_not_late_while_its_answer_arrives_nor_is_who_waits_behind_it() {
    // Four seconds for an answer, of a node that must not be silent for three.
    let stranger = Stranger::talking(|socket| drip(socket, 80));
    let pool = beside(
        &stranger,
        Limits {
            reply_ms_max: 3_000,
            ..patient()
        },
    );
    let key = key_of(&pool, "a0");
    let mut batch = Vec::new();
    (0..2).for_each(|_| write_command(&mut batch, &["GET", &key]));
    let mut client = pool.client();
    client.raw(&batch);
    assert_eq!(client.read(), bulk("x".repeat(80)));
    assert_eq!(client.read(), bulk("behind"));
}

#[test]
fn an_answer_that_never_ends_is_not_waited_for_for_ever() {
    let stranger = Stranger::talking(|socket| drip(socket, 500_000_000));
    let pool = beside(
        &stranger,
        Limits {
            answer_ms_max: 500,
            ..patient()
        },
    );
    let key = key_of(&pool, "a0");
    let mut client = pool.client();
    let mut told = |request: &[&str]| match client.call(request) {
        Value::Error(text) => text,
        other => panic!("{other:?}"),
    };
    let text = told(&["INCR", &key]);
    assert!(text.starts_with("ERR clockwise: outcome unknown"), "{text}");
    let text = told(&["GET", &key]);
    assert!(text.starts_with("TRYAGAIN clockwise: "), "{text}");
}

#[test]
fn an_answer_that_nobody_asked_for_is_nobodys() {
    let stranger = Stranger::saying(HELLO, b"$4\r\nmine\r\n$5\r\nyours\r\n");
    let pool = beside(&stranger, patient());
    let key = key_of(&pool, "a0");
    for round in 1..=50 {
        match pool.client().call(&["GET", &key]) {
            Value::Error(text) => assert!(text.contains("node a0"), "{text}"),
            answer => assert_eq!(answer, bulk("mine")),
        }
        // Whatever else comes on that connection would be in doubt, too.
        wait_until("its connection is another one each time", || {
            stranger.taken.load(Ordering::Relaxed) >= round
        });
    }
}

#[test]
fn an_answer_to_who_waits_counts_also_when_the_connection_ends_behind_it() {
    let stranger = Stranger::leaving_with(HELLO, b"*2\r\n$1\r\nk\r\n$1\r\ne\r\n");
    let pool = beside(&stranger, patient());
    let key = key_of(&pool, "a0");
    for round in 0..50 {
        // Each client has a connection of its own.
        let mut client = pool.client();
        let popped = Value::Array(vec![bulk("k"), bulk("e")]);
        assert_eq!(client.call(&["BLPOP", &key, "0"]), popped, "round {round}");
    }
    // One that only lets in is told of.
    let stranger = Stranger::talking(|socket| talk(socket, HELLO, b"", 1));
    let pool = beside(&stranger, patient());
    let Value::Error(text) = pool.client().call(&["BLPOP", &key_of(&pool, "a0"), "0"]) else {
        panic!("nobody answers")
    };
    assert!(text.contains("node a0"), "{text}");
    // One more than was asked for is still no doubt about the first.
    let stranger = Stranger::saying(HELLO, b"*2\r\n$1\r\nk\r\n$1\r\ne\r\n+more\r\n");
    let pool = beside(&stranger, patient());
    for round in 0..50 {
        let mut client = pool.client();
        let popped = Value::Array(vec![bulk("k"), bulk("e")]);
        let key = key_of(&pool, "a0");
        assert_eq!(client.call(&["BLPOP", &key, "0"]), popped, "round {round}");
    }
}

#[test]
fn a_router_that_is_given_as_a_node_is_not_asked() {
    let mut pool = start(Plan {
        nodes: 2,
        ..Plan::default()
    });
    let key = pool.key_on(1, "k");
    let mut client = pool.client();
    assert_eq!(client.call(&["SET", &key, "v"]), ok());
    pool.apply(Edit::SetAddress {
        id: "n1".parse().unwrap(),
        address: pool.addr().to_string().parse().unwrap(),
    });
    wait_until("it is told that the node is none", || {
        let Value::Error(text) = client.call(&["GET", &key]) else {
            panic!("the router asked itself")
        };
        text.starts_with("TRYAGAIN clockwise: node n1 is down")
    });
    let elsewhere = pool.key_on(0, "k");
    assert_eq!(client.call(&["SET", &elsewhere, "v"]), ok());
    // Back at its server it has what it had.
    pool.apply(Edit::SetAddress {
        id: "n1".parse().unwrap(),
        address: pool.servers[1].addr().parse().unwrap(),
    });
    assert_eq!(client.call(&["GET", &key]), bulk("v"));
}
