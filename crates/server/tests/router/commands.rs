//! What each kind of command does, and what is answered when it cannot be done.

use clockwise_client::resp::{Value, write_command};

use crate::pool::{Plan, bulk, ok, start};

#[test]
fn values_of_all_types_come_back_through_the_router() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    for (line, answer) in [
        ("SET s v", ok()),
        ("APPEND s w", Value::Integer(2)),
        ("GET s", bulk("vw")),
        ("RPUSH l a b c", Value::Integer(3)),
        (
            "LRANGE l 0 -1",
            Value::Array(vec![bulk("a"), bulk("b"), bulk("c")]),
        ),
        ("HSET h f 1", Value::Integer(1)),
        ("HGETALL h", Value::Array(vec![bulk("f"), bulk("1")])),
        ("SADD set m", Value::Integer(1)),
        ("ZADD z 1.5 m", Value::Integer(1)),
        ("ZSCORE z m", bulk("1.5")),
        ("XADD x 1-1 f v", bulk("1-1")),
        ("XLEN x", Value::Integer(1)),
        ("PEXPIRE s 100000", Value::Integer(1)),
        ("TYPE z", Value::Simple("zset".into())),
        ("OBJECT ENCODING h", bulk("listpack")),
        ("GET nothing", Value::Null),
        ("SETBIT b 7 1", Value::Integer(0)),
        ("GEOADD g 13.3 38.1 p", Value::Integer(1)),
        ("PFADD pf a", Value::Integer(1)),
        ("XREAD COUNT 1 STREAMS nothing 0", Value::Null),
        ("GETEX s PERSIST", bulk("vw")),
    ] {
        assert_eq!(client.ask(line), answer, "{line}");
    }
    // Each key is on its owner, and on no other node.
    for key in ["s", "l", "h", "set", "z", "x", "b", "g", "pf"] {
        for (at, server) in pool.servers.iter().enumerate() {
            let there = server.cli(&["EXISTS", key]);
            assert_eq!(there == "1", at == pool.owner(key), "{key} on server {at}");
        }
    }
}

#[test]
fn commands_over_many_keys_are_spread_and_put_together_in_order() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let keys: Vec<String> = (0..300).map(|number| format!("key:{number}")).collect();
    let pairs: Vec<&str> = keys
        .iter()
        .flat_map(|key| [key.as_str(), &key[4..]])
        .collect();
    assert_eq!(client.call(&[&["MSET"], &pairs[..]].concat()), ok());
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let values = client.call(&[&["mget"], &names[..], &["nothing", "key:7"]].concat());
    let mut expected: Vec<Value> = keys.iter().map(|key| bulk(&key[4..])).collect();
    expected.extend([Value::Null, bulk("7")]);
    assert_eq!(values, Value::Array(expected));
    for (command, count) in [("EXISTS", 300), ("TOUCH", 300), ("UNLINK", 300), ("DEL", 0)] {
        assert_eq!(
            client.call(&[&[command], &names[..]].concat()),
            Value::Integer(count),
            "{command}"
        );
    }
}

#[test]
fn mset_takes_the_last_of_equal_keys_and_refuses_an_odd_number() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    assert_eq!(client.ask("MSET a 1 b 2 a 3 c 4 a 5"), ok());
    assert_eq!(client.ask("GET a"), bulk("5"));
    assert_eq!(
        client.error("MSET a 1 b"),
        "ERR wrong number of arguments for 'mset' command"
    );
    assert_eq!(
        client.error("MGET"),
        "ERR wrong number of arguments for 'mget' command"
    );
    assert_eq!(client.ask("GET b"), bulk("2"));
}

#[test]
fn a_wrong_type_in_one_part_spoils_only_that_request() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    client.ask("RPUSH list a");
    client.ask("SET plain v");
    assert_eq!(
        client.ask("MGET plain list"),
        Value::Array(vec![bulk("v"), Value::Null])
    );
    assert!(client.error("GET list").starts_with("WRONGTYPE"));
    assert_eq!(client.ask("GET plain"), bulk("v"));
}

#[test]
fn commands_on_keys_of_one_node_pass_and_those_apart_say_where_each_is() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let here = [pool.key_on(0, "a"), pool.key_on(0, "b")];
    let there = pool.key_on(1, "c");
    client.call(&["SET", &here[0], "v"]);
    assert_eq!(client.call(&["RENAME", &here[0], &here[1]]), ok());
    assert_eq!(client.call(&["GET", &here[1]]), bulk("v"));
    let Value::Error(text) = client.call(&["RENAME", &here[1], &there]) else {
        panic!("they are apart")
    };
    assert!(text.starts_with("CROSSSLOT "), "{text}");
    assert!(
        text.contains(&format!("'{}' on node n0", here[1]))
            && text.contains(&format!("'{there}' on node n1")),
        "{text}"
    );
    assert_eq!(client.call(&["GET", &here[1]]), bulk("v"));
    let Value::Error(text) = client.call(&["MSETNX", &here[0], "1", &there, "2"]) else {
        panic!("they are apart")
    };
    assert!(text.starts_with("CROSSSLOT "), "{text}");
    assert_eq!(
        client.call(&["EXISTS", &here[0], &there]),
        Value::Integer(0)
    );
    // Keys that options move are found too.
    client.call(&["ZADD", &here[0], "1", "m"]);
    client.call(&["DEL", &here[1]]);
    let store = client.call(&["ZUNIONSTORE", &here[1], "1", &here[0]]);
    assert_eq!(store, Value::Integer(1));
    let Value::Error(text) = client.call(&["ZUNIONSTORE", &there, "1", &here[0]]) else {
        panic!("they are apart")
    };
    assert!(text.starts_with("CROSSSLOT "), "{text}");
    let Value::Error(text) = client.call(&["XREAD", "STREAMS", &here[0], &there, "0", "0"]) else {
        panic!("apart")
    };
    assert!(text.starts_with("CROSSSLOT "), "{text}");
}

#[test]
fn hash_tags_keep_keys_together_where_the_pool_has_them() {
    let pool = start(Plan {
        hash_tags: true,
        ..Plan::default()
    });
    let mut client = pool.client();
    for number in 0..50 {
        assert_eq!(
            client.ask(&format!("MSETNX {{tag}}a{number} 1 {{tag}}b{number} 2")),
            Value::Integer(1)
        );
    }
    assert_eq!(
        client.ask("SUNIONSTORE {tag}to {tag}from"),
        Value::Integer(0)
    );
}

#[test]
fn what_cannot_be_routed_is_refused_with_its_reason_and_the_connection_stays() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    client.ask("SET a 1");
    for (line, reason) in [
        ("KEYS *", "use SCAN"),
        ("RANDOMKEY", "use SCAN"),
        ("FLUSHALL", "empty whole nodes"),
        ("FLUSHDB ASYNC", "empty whole nodes"),
        ("WAIT 1 0", "replicas"),
        ("SUBSCRIBE a", "not placed by key"),
        ("PUBLISH a b", "not placed by key"),
        ("SPUBLISH a b", "not placed by key"),
        ("SWAPDB 0 1", "only database 0"),
        ("MOVE a 1", "only database 0"),
        ("EVAL script 0", "does not allow scripts"),
        ("EVALSHA x 1 a", "does not allow scripts"),
        ("FCALL f 1 a", "does not allow scripts"),
        ("SCRIPT FLUSH", "does not allow scripts"),
        ("CONFIG SET save x", "administers one server"),
        ("DEBUG SLEEP 1", "administers one server"),
        ("SHUTDOWN", "administers one server"),
        ("REPLICAOF a 1", "administers one server"),
        ("ACL LIST", "administers one server"),
        ("MONITOR", "administers one server"),
        ("SAVE", "administers one server"),
        ("RESTORE a 0 x", "administers one server"),
        ("MIGRATE h 1 a 0 1", "administers one server"),
        ("CLIENT KILL x", "administers one server"),
        ("CLIENT TRACKING ON", "other clients share"),
        ("CLIENT REPLY OFF", "other clients share"),
        ("SELECT 1", "only database 0"),
        ("SORT a BY w_*", "on other nodes"),
        ("SORT a GET o_*", "on other nodes"),
        ("SORT a GET #", "on other nodes"),
        ("SORT_RO a BY w_*", "on other nodes"),
        ("CLUSTER INFO", "cluster support disabled"),
    ] {
        let text = client.error(line);
        assert!(text.contains(reason), "{line}: {text}");
        assert!(text.starts_with("ERR "), "{line}: {text}");
    }
    assert_eq!(client.ask("GET a"), bulk("1"));
}

#[test]
fn every_command_of_the_server_is_either_keyed_local_or_refused() {
    // No command that the server knows may be answered by silence or by closing, nor be sent where our
    // users have no right to it.
    let pool = start(Plan {
        closed: true,
        ..Plan::default()
    });
    let mut client = pool.client();
    let names = pool.servers[0].cli(&["COMMAND", "LIST"]);
    let mut asked = 0;
    for name in names.lines().filter(|name| !matches!(*name, "quit")) {
        for arguments in [
            &[][..],
            &["a"],
            &["a", "b"],
            &["a", "1", "b"],
            &["a", "b", "c", "d", "e", "f"],
        ] {
            let answer = client.call(&[&[name], arguments].concat());
            assert!(
                !matches!(&answer, Value::Error(text) if text.starts_with("NOPERM")),
                "{name} {arguments:?}: {answer:?}"
            );
            asked += 1;
        }
        // Out of any state that the command may have begun.
        client.ask("RESET");
        assert_eq!(
            client.ask("PING"),
            Value::Simple("PONG".into()),
            "after {name}"
        );
    }
    assert!(asked > 1_000, "{asked}");
}

#[test]
fn scripts_pass_where_the_pool_allows_them_if_their_keys_are_on_one_node() {
    let pool = start(Plan {
        scripts: true,
        ..Plan::default()
    });
    let mut client = pool.client();
    let (here, there) = (pool.key_on(0, "a"), pool.key_on(1, "b"));
    let script = "return redis.call('SET', KEYS[1], ARGV[1])";
    assert_eq!(client.call(&["EVAL", script, "1", &here, "v"]), ok());
    assert_eq!(client.call(&["GET", &here]), bulk("v"));
    let Value::Error(apart) = client.call(&["EVAL", script, "2", &here, &there, "v"]) else {
        panic!("apart")
    };
    assert!(apart.starts_with("CROSSSLOT "), "{apart}");
    let Value::Error(keyless) = client.call(&["EVAL", "return 1", "0"]) else {
        panic!("no key")
    };
    assert!(keyless.contains("must declare the keys"), "{keyless}");
    let Value::Bulk(hash) = client.call(&["SCRIPT", "LOAD", script]) else {
        panic!("a hash")
    };
    let hash = String::from_utf8(hash).unwrap();
    for (at, _) in pool.servers.iter().enumerate() {
        assert_eq!(
            client.call(&["EVALSHA", &hash, "1", &pool.key_on(at, "c"), "v"]),
            ok()
        );
    }
}

#[test]
fn scripts_pass_from_the_epoch_on_in_which_the_pool_allows_them() {
    let mut pool = start(Plan::default());
    let mut client = pool.client();
    let run = ["EVAL", "return redis.call('INCR', KEYS[1])", "1", "count"];
    let refused = |answer: Value| matches!(answer, Value::Error(text) if text.contains("does not allow scripts"));
    assert!(refused(client.call(&run)));
    pool.publish(pool.record.with_scripts(true));
    assert_eq!(client.call(&run), Value::Integer(1));
    pool.publish(pool.record.with_scripts(false));
    assert!(refused(client.call(&run)));
    assert_eq!(client.ask("GET count"), bulk("1"));
}

#[test]
fn scan_returns_every_key_once_from_its_owner_and_dbsize_adds_up() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    for number in 0..1_000 {
        client.ask(&format!("SET key:{number} v"));
    }
    client.ask("HSET a-hash f v");
    assert_eq!(client.ask("DBSIZE"), Value::Integer(1_001));
    // Copies where they do not belong, and what a move keeps for itself, do not show.
    for server in &pool.servers {
        server.cli(&["SET", "key:1", "v"]);
        server.cli(&["SET", "~cw~piece", "v"]);
    }
    let mut scan = |options: &[&str]| {
        let (mut found, mut cursor, mut calls) = (Vec::new(), "0".to_owned(), 0);
        loop {
            let page = client.call(&[&["SCAN", &cursor], options].concat());
            let [next, keys] = page.as_array().unwrap() else {
                panic!("{page:?}")
            };
            found.extend(
                keys.as_array()
                    .unwrap()
                    .iter()
                    .map(|key| key.as_text().unwrap().to_owned()),
            );
            cursor = next.as_text().unwrap().to_owned();
            assert!(cursor.parse::<i64>().is_ok(), "{cursor}");
            calls += 1;
            if cursor == "0" {
                found.sort();
                return (found, calls);
            }
        }
    };
    let (found, calls) = scan(&["COUNT", "50"]);
    let mut expected: Vec<String> = (0..1_000).map(|number| format!("key:{number}")).collect();
    expected.push("a-hash".into());
    expected.sort();
    assert_eq!(found, expected);
    assert!(calls >= 20, "{calls}");
    assert_eq!(scan(&["MATCH", "key:99*"]).0.len(), 11);
    assert_eq!(scan(&["TYPE", "hash"]).0, ["a-hash"]);
    assert_eq!(client.error("SCAN x"), "ERR invalid cursor");
}

#[test]
fn each_version_of_the_protocol_gets_its_own_answers() {
    let pool = start(Plan::default());
    let (mut two, mut three) = (pool.client(), pool.client());
    let Value::Map(hello) = three.ask("HELLO 3") else {
        panic!("a map")
    };
    assert!(
        hello.contains(&(bulk("proto"), Value::Integer(3)))
            && hello.contains(&(bulk("server"), bulk("redis")))
    );
    let Value::Array(hello) = two.ask("HELLO") else {
        panic!("an array")
    };
    assert!(hello.contains(&bulk("standalone")));
    two.ask("HSET h f v");
    two.ask("ZADD z 1.5 m 2 n");
    let pairs = |a: &str, b: &str| Value::Array(vec![bulk(a), bulk(b)]);
    assert_eq!(two.ask("HGETALL h"), pairs("f", "v"));
    assert_eq!(
        three.ask("HGETALL h"),
        Value::Map(vec![(bulk("f"), bulk("v"))])
    );
    assert_eq!(two.ask("ZSCORE z m"), bulk("1.5"));
    assert_eq!(three.ask("ZSCORE z m"), Value::Number("1.5".into()));
    assert_eq!(two.ask("ZRANGE z 0 0 WITHSCORES"), pairs("m", "1.5"));
    let nested = Value::Array(vec![Value::Array(vec![
        bulk("m"),
        Value::Number("1.5".into()),
    ])]);
    assert_eq!(three.ask("ZRANGE z 0 0 WITHSCORES"), nested);
    three.raw(b"*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n*3\r\n$4\r\nMGET\r\n$4\r\nnone\r\n$1\r\nh\r\n");
    assert_eq!(
        (three.read(), three.read()),
        (Value::Null, Value::Array(vec![Value::Null, Value::Null]))
    );
}

#[test]
fn nulls_have_the_form_of_the_clients_protocol() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let mut bytes = |request: &[u8], length: usize| {
        client.raw(request);
        let mut answer = vec![0; length];
        std::io::Read::read_exact(&mut client.socket, &mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    };
    assert_eq!(bytes(b"GET none\r\n", 5), "$-1\r\n");
    assert_eq!(
        bytes(b"MGET n1 n2 n3\r\n", 19),
        "*3\r\n$-1\r\n$-1\r\n$-1\r\n"
    );
    bytes(b"HELLO 3\r\n", 1);
    let mut rest = [0; 1 << 10];
    let read = std::io::Read::read(&mut client.socket, &mut rest).unwrap();
    assert!(read > 50);
    let mut bytes = |request: &[u8], length: usize| {
        client.raw(request);
        let mut answer = vec![0; length];
        std::io::Read::read_exact(&mut client.socket, &mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    };
    assert_eq!(bytes(b"GET none\r\n", 3), "_\r\n");
    assert_eq!(bytes(b"MGET n1 n2 n3\r\n", 13), "*3\r\n_\r\n_\r\n_\r\n");
}

#[test]
fn a_change_of_protocol_waits_for_the_answers_before_it() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    client.ask("HSET h f v");
    let mut batch = Vec::new();
    for _ in 0..50 {
        for request in [
            &["HELLO", "3"][..],
            &["HGETALL", "h"],
            &["HELLO", "2"],
            &["HGETALL", "h"],
        ] {
            write_command(&mut batch, request);
        }
    }
    client.raw(&batch);
    for _ in 0..50 {
        assert!(matches!(client.read(), Value::Map(_)));
        assert_eq!(client.read(), Value::Map(vec![(bulk("f"), bulk("v"))]));
        assert!(matches!(client.read(), Value::Array(_)));
        assert_eq!(client.read(), Value::Array(vec![bulk("f"), bulk("v")]));
    }
}

#[test]
fn what_clients_ask_of_a_server_when_they_connect_is_answered() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    assert_eq!(client.ask("PING"), Value::Simple("PONG".into()));
    assert_eq!(client.ask("PING hello"), bulk("hello"));
    assert_eq!(client.ask("ECHO hello"), bulk("hello"));
    assert_eq!(client.ask("SELECT 0"), ok());
    assert_eq!(client.ask("CLIENT SETNAME me"), ok());
    assert_eq!(client.ask("CLIENT GETNAME"), bulk("me"));
    assert_eq!(client.ask("CLIENT SETINFO LIB-NAME x"), ok());
    let Value::Integer(id) = client.ask("CLIENT ID") else {
        panic!("a number")
    };
    assert!(
        client
            .ask("CLIENT INFO")
            .as_text()
            .unwrap()
            .starts_with(&format!("id={id} "))
    );
    assert_eq!(
        client.ask("CONFIG GET save"),
        Value::Array(vec![bulk("save"), bulk("")])
    );
    assert_eq!(
        client.ask("CONFIG GET appendonly"),
        Value::Array(vec![bulk("appendonly"), bulk("no")])
    );
    assert!(
        client
            .ask("INFO")
            .as_text()
            .unwrap()
            .contains("redis_version:7.")
    );
    assert!(client.ask("COMMAND COUNT").as_integer().unwrap() > 200);
    assert!(client.ask("COMMAND DOCS get").as_array().unwrap().len() == 2);
    assert!(client.ask("COMMAND INFO get").as_array().unwrap().len() == 1);
    assert!(client.ask("TIME").as_array().unwrap().len() == 2);
    assert_eq!(client.ask("HELLO 2").as_array().unwrap().len(), 16);
    assert!(client.error("HELLO 4").starts_with("NOPROTO"));
    assert_eq!(client.ask("RESET"), Value::Simple("RESET".into()));
    assert_eq!(client.ask("CLIENT GETNAME"), Value::Null);
    assert_eq!(client.ask("QUIT"), ok());
    assert!(client.is_closed());
}

#[test]
fn a_client_can_ask_what_its_connection_routes_by() {
    let pool = start(Plan::default());
    let mut client = pool.client();
    let epoch = i64::try_from(pool.record.epoch().get()).unwrap();
    assert_eq!(client.ask("CLOCKWISE EPOCH"), Value::Integer(epoch));
    let route = client.ask("CLOCKWISE ROUTE some-key");
    let field = |name: &str| {
        let pairs = route
            .pairs()
            .into_iter()
            .find(|(key, _)| key.as_text() == Some(name));
        pairs.map(|(_, value)| value.clone()).unwrap()
    };
    let owner = pool.owner("some-key");
    assert_eq!(field("node"), bulk(format!("n{owner}")));
    assert_eq!(field("address"), bulk(pool.servers[owner].addr()));
    assert_eq!(field("epoch"), Value::Integer(epoch));
    assert_eq!(field("position").as_text().map(str::len), Some(16));
    assert_eq!(field("held"), Value::Integer(0));
}

#[test]
fn a_password_is_asked_for_where_the_router_has_one() {
    let pool = start(Plan {
        password: Some("secret"),
        ..Plan::default()
    });
    let mut client = pool.client();
    assert_eq!(client.error("GET a"), "NOAUTH Authentication required.");
    assert_eq!(client.error("PING"), "NOAUTH Authentication required.");
    assert!(client.error("HELLO 3").starts_with("NOAUTH "));
    assert!(client.error("AUTH wrong").starts_with("WRONGPASS "));
    assert!(client.error("AUTH other secret").starts_with("WRONGPASS "));
    assert_eq!(client.ask("AUTH secret"), ok());
    assert_eq!(client.ask("SET a 1"), ok());
    let mut client = pool.client();
    assert!(matches!(
        client.ask("HELLO 3 AUTH default secret"),
        Value::Map(_)
    ));
    assert_eq!(client.ask("GET a"), bulk("1"));
    assert_eq!(client.ask("RESET"), Value::Simple("RESET".into()));
    assert_eq!(client.error("GET a"), "NOAUTH Authentication required.");
    let mut client = pool.client();
    client.raw(b"*11\r\n");
    assert_eq!(
        client.read(),
        Value::Error("ERR Protocol error: invalid multibulk length".into())
    );
    assert!(client.is_closed());
}

#[test]
fn nodes_are_entered_as_the_user_of_their_generation() {
    let pool = start(Plan {
        closed: true,
        ..Plan::default()
    });
    let mut client = pool.client();
    for number in 0..30 {
        assert_eq!(client.ask(&format!("SET key:{number} v")), ok());
    }
    for server in &pool.servers {
        assert!(server.cli(&["CLIENT", "LIST"]).contains("user=cw-g1"));
    }
    let mut client = pool.client();
    client.ask("HELLO 3");
    assert_eq!(client.ask("GET key:1"), bulk("v"));
}

#[test]
fn an_ordinary_client_library_works() {
    let pool = start(Plan::default());
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://{}/?protocol={protocol}", pool.addr());
        let mut client = redis::Client::open(url).unwrap().get_connection().unwrap();
        let mut run = |command: &mut redis::Cmd| command.query::<redis::Value>(&mut client);
        run(redis::cmd("SET").arg("k").arg(1)).unwrap();
        run(redis::cmd("HSET").arg("h").arg("f").arg("v")).unwrap();
        let mut pipe = redis::pipe();
        (0..500).for_each(|number| {
            pipe.cmd("SET").arg(format!("p:{number}")).arg(number);
            pipe.cmd("GET").arg(format!("p:{number}"));
        });
        let answers: Vec<redis::Value> = pipe.query(&mut client).unwrap();
        assert_eq!(answers.len(), 1_000);
        let keys: Vec<String> = (0..500).map(|number| format!("p:{number}")).collect();
        let values: Vec<i64> = redis::cmd("MGET").arg(&keys).query(&mut client).unwrap();
        assert_eq!(values, (0..500).collect::<Vec<i64>>());
        let hash: std::collections::HashMap<String, String> =
            redis::cmd("HGETALL").arg("h").query(&mut client).unwrap();
        assert_eq!(hash["f"], "v");
        let mut pipe = redis::pipe();
        pipe.atomic().cmd("SET").arg("k").arg(2).ignore();
        pipe.cmd("GET").arg("k");
        let (value,): (i64,) = pipe.query(&mut client).unwrap();
        assert_eq!(value, 2);
    }
}
