//! What the router answers itself, compared with what a server answers to the same.

use clockwise_client::resp::Value;
use clockwise_testkit::{RedisOptions, RedisServer};

use crate::pool::{Client, Plan, ok, start};

/// What an answer says: its words where it is an error or a status, else of what kind it is.
fn gist(answer: &Value) -> String {
    match answer {
        Value::Error(text) | Value::Simple(text) => text.clone(),
        Value::Null => "null".to_owned(),
        Value::Integer(_) => "a number".to_owned(),
        Value::Bulk(_) => "a string".to_owned(),
        Value::Array(elements) => format!("an array of {}", elements.len()),
        other => format!("{other:?}"),
    }
}

#[test]
fn arguments_are_judged_as_a_server_judges_them() {
    let pool = start(Plan::default());
    let server = RedisServer::start(RedisOptions::default());
    let mut router = pool.client();
    let mut direct = Client::connect(server.socket_addr());
    for request in [
        &["PING", "a", "b"][..],
        &["ECHO"],
        &["ECHO", "a", "b"],
        &["SELECT"],
        &["SELECT", "0", "1"],
        &["SELECT", "x"],
        &["SELECT", ""],
        &["SELECT", " 0"],
        &["SELECT", "99999999999999999999"],
        &["CLIENT"],
        &["CLIENT", "ID"],
        &["CLIENT", "ID", "x"],
        &["CLIENT", "GETNAME", "x"],
        &["CLIENT", "SETNAME"],
        &["CLIENT", "SETNAME", "a", "b"],
        &["CLIENT", "SETNAME", "a b"],
        &["CLIENT", "SETNAME", "a\r\nb"],
        &["CLIENT", "SETNAME", "a\nb"],
        &["CLIENT", "SETNAME", "\u{e9}"],
        &["CLIENT", "GETNAME"],
        &["CLIENT", "SETNAME", "me"],
        &["CLIENT", "GETNAME"],
        &["CLIENT", "SETNAME", ""],
        &["CLIENT", "GETNAME"],
        &["CLIENT", "INFO", "x"],
        &["CLIENT", "TRACKING", "OFF"],
        &["CLIENT", "TRACKING"],
        &["CLIENT", "NO-EVICT", "off"],
        &["CLIENT", "NO-EVICT"],
        &["CLIENT", "REPLY", "ON"],
        &["CLIENT", "REPLY"],
        &["CLIENT", "NOSUCH"],
        &["HELLO", "2", "SETNAME", "a b"],
        &["HELLO", "2", "SETNAME", "a\r\nb"],
        &["HELLO", "2", "SETNAME"],
        &["HELLO", "x"],
        &["HELLO", "1"],
        &["HELLO", "4"],
        &["HELLO", "2", "NOSUCH"],
        &["HELLO", "2", "AUTH", "default"],
        &["AUTH"],
        &["AUTH", "a", "b", "c"],
        &["AUTH", "secret"],
        &["AUTH", "other", "secret"],
        &["TIME"],
        &["TIME", "x"],
        &["RESET", "x"],
        &["READONLY"],
        &["READONLY", "x"],
        &["CLUSTER"],
        &["CLUSTER", "INFO"],
        &["CONFIG"],
        &["CONFIG", "GET"],
        &["CONFIG", "GET", "nosuch"],
        &["EXEC"],
        &["EXEC", "x"],
        &["MULTI"],
        &["MULTI"],
        &["GET"],
        &["EXEC"],
        &["MULTI"],
        &["NOSUCH"],
        &["GET", "a"],
        &["EXEC"],
        &["MULTI"],
        &["CLIENT", "NOSUCH"],
        &["EXEC"],
        &["MULTI"],
        &["EXEC", "x"],
        &["EXEC"],
        &["MULTI"],
        &["DISCARD", "x"],
        &["EXEC"],
        &["MULTI"],
        &["MULTI", "x"],
        &["EXEC"],
        &["MULTI"],
        &["EXEC"],
        &["MULTI"],
        &["PING"],
        &["ECHO", "a"],
        &["EXEC"],
        &["MULTI"],
        &["RESET"],
        &["EXEC"],
        &["MULTI"],
        &["DISCARD"],
        &["DISCARD"],
        &["DISCARD", "x"],
        &["MULTI", "x"],
        &["WAIT", "1"],
        &["KEYS"],
        &["OBJECT", "ENCODING"],
        &["COMMAND", "NOSUCH"],
        &["RESET"],
        &["PING"],
    ] {
        let (ours, theirs) = (router.call(request), direct.call(request));
        assert_eq!(gist(&ours), gist(&theirs), "{request:?}");
    }
}

#[test]
fn what_a_library_says_of_itself_is_taken_where_a_later_server_takes_it() {
    // Servers have known it since 7.2.
    let pool = start(Plan::default());
    let mut client = pool.client();
    assert_eq!(
        client.call(&["CLIENT", "SETINFO", "lib-name", "x(y)"]),
        ok()
    );
    assert_eq!(client.call(&["CLIENT", "SETINFO", "LIB-VER", ""]), ok());
    for (request, error) in [
        (
            &["CLIENT", "SETINFO", "lib-name", "a b"][..],
            "ERR lib-name cannot contain spaces, newlines or special characters.",
        ),
        (
            &["CLIENT", "SETINFO", "lib-ver", "1\r\n2"],
            "ERR lib-ver cannot contain spaces, newlines or special characters.",
        ),
        (
            &["CLIENT", "SETINFO", "nosuch", "a"],
            "ERR Unrecognized option 'nosuch'",
        ),
        (
            &["CLIENT", "SETINFO", "lib-ver"],
            "ERR wrong number of arguments for 'client|setinfo' command",
        ),
    ] {
        assert_eq!(client.call(request), Value::Error(error.to_owned()));
    }
}
