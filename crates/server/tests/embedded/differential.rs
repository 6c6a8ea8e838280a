//! The same random commands to an embedded node and to a redis-server: the replies are the same.

use clockwise::embedded::EmbeddedOptions;
use clockwise_client::resp::{Value, write_command};
use clockwise_testkit::{Random, RedisOptions, RedisServer, for_seeds};

use crate::client::Client;
use crate::form::{Command, Look};
use crate::node::{Node, PASSWORD, USER};

const SEEDS: usize = 12;
const BATCHES: usize = 60;
const BATCH_MAX: usize = 40;
/// How far apart two numbers may be that say when a key expires, in the unit of either.
const ABOUT: i64 = 5_000;

/// A redis-server whose users are those of an embedded node.
fn reference() -> RedisServer {
    let server = RedisServer::start(RedisOptions {
        password: Some("another".to_owned()),
        config: vec!["databases 1".to_owned()],
        ..RedisOptions::default()
    });
    let password = format!(">{PASSWORD}");
    let made = server.cli(&["ACL", "SETUSER", USER, "on", &password, "~*", "&*", "+@all"]);
    assert_eq!(made, "OK");
    server
}

struct Pair {
    node: Client,
    redis: Client,
}

impl Pair {
    fn ask(&mut self, commands: &[Command], random: &mut Random) {
        let mut bytes = Vec::new();
        for command in commands {
            match inline(&command.args).filter(|_| random.chance(10)) {
                Some(line) => bytes.extend_from_slice(line.as_bytes()),
                None => write_command(&mut bytes, &command.args),
            }
        }
        self.node.send(&bytes);
        self.redis.send(&bytes);
        for Command { args, look } in commands {
            let replies = (self.node.reply(), self.redis.reply());
            let (Some(ours), Some(theirs)) = &replies else {
                panic!("{}: {replies:?}", shown(args));
            };
            assert!(
                look.alike(ours, theirs),
                "{}\n  embedded {:?}\n  redis    {:?}",
                shown(args),
                String::from_utf8_lossy(ours),
                String::from_utf8_lossy(theirs)
            );
        }
    }
}

fn shown(args: &[Vec<u8>]) -> String {
    let words = args.iter().map(|arg| arg.escape_ascii().to_string());
    words.collect::<Vec<_>>().join(" ")
}

/// As a person types it, where that is possible without quotes.
fn inline(args: &[Vec<u8>]) -> Option<String> {
    let plain = |arg: &Vec<u8>| !arg.is_empty() && arg.iter().all(u8::is_ascii_alphanumeric);
    let words = args
        .iter()
        .map(|arg| plain(arg).then(|| shown(std::slice::from_ref(arg))));
    Some(words.collect::<Option<Vec<_>>>()?.join(" ") + "\r\n")
}

impl Look {
    fn alike(self, ours: &[u8], theirs: &[u8]) -> bool {
        if ours == theirs {
            return true;
        }
        let read = |reply: &[u8]| Value::parse(reply).unwrap().unwrap().0;
        let (ours, theirs) = (read(ours), read(theirs));
        match self {
            Self::Exact => false,
            Self::AnyOrder => sorted(ours) == sorted(theirs),
            Self::About => match (ours, theirs) {
                (Value::Integer(ours), Value::Integer(theirs)) => {
                    ours > 0 && theirs > 0 && ours.abs_diff(theirs) <= ABOUT.unsigned_abs()
                }
                _ => false,
            },
            Self::Kind => std::mem::discriminant(&ours) == std::mem::discriminant(&theirs),
            Self::Greeting => greeting(&ours) == greeting(&theirs) && !greeting(&ours).is_empty(),
        }
    }
}

/// Keys in order; of a listing with its cursor, those.
fn sorted(value: Value) -> Value {
    let Value::Array(mut elements) = value else {
        return value;
    };
    elements = elements.into_iter().map(sorted).collect();
    elements.sort_by_key(|element| format!("{element:?}"));
    Value::Array(elements)
}

/// Without what names the server's build and the connection.
fn greeting(value: &Value) -> Vec<(&Value, &Value)> {
    let mut pairs = value.pairs();
    let own = |name: &Value| matches!(name.as_text(), Some("version" | "id"));
    pairs.retain(|(name, _)| !own(name));
    pairs
}

fn compare(node: &Node, redis: &RedisServer, random: &mut Random) {
    let mut pair = Pair {
        node: Client::connect(node.address),
        redis: Client::connect(redis.socket_addr()),
    };
    let login: &[&str] = match random.chance(50) {
        true => &["HELLO", "3", "AUTH", USER, PASSWORD],
        false => &["AUTH", USER, PASSWORD],
    };
    // Nobody who has not logged in gets anywhere, and each time it begins with nothing.
    let begin = ["GET a", "HELLO 3", "SELECT 0", "NOSUCH"].map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        Command::of(&words)
    });
    pair.ask(&begin, random);
    pair.ask(&[Command::of(login), Command::of(&["FLUSHALL"])], random);
    for _ in 0..BATCHES {
        let count = 1 + random.below(BATCH_MAX);
        let mut commands = Vec::new();
        for _ in 0..count {
            let command = Command::random(random);
            if command.args[0] == b"DBSIZE" {
                // A redis-server counts a key whose time is over until somebody looks at it.
                commands.push(Command::of(&["SCAN", "0", "COUNT", "1000"]));
            }
            commands.push(command);
        }
        pair.ask(&commands, random);
    }
    pair.ask(
        &[
            Command::of(&["RESET"]),
            Command::of(&["GET", "a"]),
            Command::of(&["QUIT"]),
        ],
        random,
    );
    assert_eq!(
        (pair.node.rest(), pair.redis.rest()),
        (String::new(), String::new())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_node_replies_as_a_redis_server_does() {
    let node = Node::start(EmbeddedOptions::default()).await;
    let redis = reference();
    let repeat = "-p clockwise --test embedded differential";
    for_seeds(SEEDS, repeat, |random| compare(&node, &redis, random));
}
