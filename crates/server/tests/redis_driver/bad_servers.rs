//! What answers at an address may be anything.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use clockwise::driver::redis::{Login, Patience, RedisDriver, RedisOptions};
use clockwise::driver::{Driver, DriverError, NodeFacts};
use clockwise_testkit::{MemcachedOptions, MemcachedServer, RedisOptions as Started, RedisServer};

use crate::setup::{Client, address, driver, node, options, start, start_with};

/// A server that answers every connection with these bytes and then waits for its end.
fn answering(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 1024];
            let _asked = stream.read(&mut buffer).unwrap();
            stream.write_all(reply).unwrap();
            if reply.is_empty() {
                continue;
            }
            thread::spawn(move || while stream.read(&mut buffer).is_ok_and(|count| count > 0) {});
        }
    });
    address
}

async fn inspect(at: &str) -> Result<NodeFacts, DriverError> {
    driver().inspect(&address(at)).await
}

#[tokio::test]
async fn a_memcached_is_the_wrong_server() {
    let memcached = MemcachedServer::start(MemcachedOptions::default());
    let error = inspect(&memcached.addr()).await.unwrap_err();
    assert!(
        matches!(&error, DriverError::WrongServer { why, .. } if why.contains("ERROR")),
        "{error}"
    );
}

#[tokio::test]
async fn whatever_speaks_another_language_is_the_wrong_server() {
    for reply in [
        &b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"\x16\x03\x01\x00\x00",
        b"\xff\xff\xff\xff",
        b"-ERR unknown command 'HELLO'\r\n",
        b"-NOPROTO unsupported protocol version\r\n",
        b"+OK\r\n",
        b"*2000000000\r\n$99999999999\r\n",
        b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n",
        b"%4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n6.2.1\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n",
        b"%4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.1\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$7\r\ncluster\r\n",
    ] {
        let error = inspect(&answering(reply)).await.unwrap_err();
        assert!(matches!(error, DriverError::WrongServer { .. }), "{}: {error}", reply.escape_ascii());
    }
}

#[tokio::test]
async fn a_port_where_nobody_listens_or_answers_is_unreachable() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap().to_string();
    let patience = Patience {
        connect: Duration::from_millis(200),
        call: Duration::from_millis(200),
    };
    let driver = RedisDriver::new(RedisOptions {
        patience,
        ..options()
    });
    for at in [
        closed.as_str(),
        &silent_address,
        &answering(b""),
        "no.such.host.invalid:1",
        "no port",
        "127.0.0.1:",
    ] {
        let error = driver.inspect(&address(at)).await.unwrap_err();
        assert!(
            matches!(error, DriverError::Unreachable { .. }),
            "{at}: {error}"
        );
    }
    let error = driver
        .inspect(&address(&answering(
            b"-ERR max number of clients reached\r\n",
        )))
        .await
        .unwrap_err();
    assert!(matches!(error, DriverError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_wrong_password_or_user_is_denied() {
    let server = start();
    for (user, password) in [
        ("default", Some("wrong")),
        ("nobody", Some("x")),
        ("default", None),
    ] {
        let administrator = Login {
            user: user.to_owned(),
            password: password.map(str::to_owned),
        };
        let driver = RedisDriver::new(RedisOptions {
            administrator,
            ..options()
        });
        let error = driver.inspect(&node(&server)).await.unwrap_err();
        assert!(
            matches!(&error, DriverError::Denied { user: tried, .. } if tried == user),
            "{error}"
        );
        assert!(!error.to_string().contains("wrong\""), "{error}");
    }
}

#[tokio::test]
async fn rights_that_the_administrator_lacks_are_told() {
    let server = start();
    Client::admin(&server).run("ACL SETUSER limited on >x ~* +@all -acl|setuser -config");
    let administrator = Login {
        user: "limited".to_owned(),
        password: Some("x".to_owned()),
    };
    let driver = RedisDriver::new(RedisOptions {
        administrator,
        ..options()
    });
    let facts = driver.inspect(&node(&server)).await.unwrap();
    let missing = facts.missing_rights.join("\n");
    assert!(
        missing.contains("acl|setuser") && missing.contains("config|get"),
        "{missing}"
    );
}

#[tokio::test]
async fn commands_that_the_server_has_renamed_away_are_told() {
    let config = vec!["rename-command RESTORE \"\"".to_owned()];
    let server = start_with(Started {
        config,
        ..Started::default()
    });
    let facts = driver().inspect(&node(&server)).await.unwrap();
    assert!(
        facts
            .missing_rights
            .iter()
            .any(|right| right.to_lowercase().contains("restore")),
        "{facts:?}"
    );
}

#[tokio::test]
async fn an_open_server_lets_everybody_in_and_that_is_told() {
    let server = RedisServer::start(Started::default());
    let facts = driver().inspect(&node(&server)).await.unwrap();
    assert!(
        facts
            .open_by_default
            .is_some_and(|why| why.contains("no password"))
    );
}

#[tokio::test]
async fn the_password_is_in_no_debug_output() {
    let text = format!("{:?}", driver());
    assert!(!text.contains(crate::setup::ADMIN), "{text}");
}
