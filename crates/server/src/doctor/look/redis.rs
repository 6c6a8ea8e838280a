//! What a Redis or Valkey server shows: to a stranger, to its administrator, and to the preflight of a change.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use clockwise_client::resp::{ReplyScanner, Value, code_word, write_command};
use clockwise_placement::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::pool::{Clock, NodeSeen};
use super::super::redis::{RedisSaid, RedisSeen, Stranger, Unseen};
use super::ANSWER_WITHIN;
use crate::driver::redis::{Info, Login, Patience, RedisDriver, RedisOptions};
use crate::driver::{Driver, DriverError, NodeAddress};

/// For everything that is asked of one server and of its replicas.
const NODE_WITHIN: Duration = Duration::from_secs(15);
/// The longest answer asked for is `INFO`, of some thousand bytes.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// The oldest that has what a move needs.
const VERSION_MIN: u32 = 7;
/// What is asked for by `CONFIG GET`.
const SETTINGS: [&[u8]; 7] = [
    b"maxmemory-policy",
    b"protected-mode",
    b"appendfsync",
    b"timeout",
    b"client-output-buffer-limit",
    b"save",
    b"aclfile",
];

/// One node.
pub(in super::super) async fn look(node: &NodeSeen, login: &Login) -> RedisSeen {
    let seen = |stranger, said| RedisSeen {
        node: node.clone(),
        stranger,
        said,
    };
    let stranger = match timeout(ANSWER_WITHIN, as_stranger(&node.address)).await {
        Ok(Ok((stranger, None))) => stranger,
        Ok(Ok((stranger, Some(why)))) => return seen(stranger, Err(Unseen::Denied(why))),
        Ok(Err(error)) if error.kind() == ErrorKind::InvalidData => {
            return seen(Stranger::Unknown, Err(Unseen::Strange(error.to_string())));
        }
        Ok(Err(error)) => return seen(Stranger::Unknown, Err(Unseen::Away(error.to_string()))),
        Err(_) => {
            let why = format!("no answer within {ANSWER_WITHIN:?}");
            return seen(Stranger::Unknown, Err(Unseen::Away(why)));
        }
    };
    if login.password.is_none() && stranger != Stranger::LetIn {
        return seen(stranger, Err(Unseen::NoPassword));
    }
    let said = match timeout(NODE_WITHIN, as_administrator(node, login)).await {
        Ok(said) => said,
        Err(_) => Err(Unseen::Away(format!("no answer within {NODE_WITHIN:?}"))),
    };
    seen(stranger, said)
}

/// Milliseconds since 1970 by our own clock.
pub(super) fn wall_clock_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}

/// What a stranger is told; with the words of a server that lets nobody in from where we are (protected mode).
async fn as_stranger(address: &str) -> std::io::Result<(Stranger, Option<String>)> {
    let mut talk = Talk::open(address).await?;
    let replies = talk.ask(&[&[b"PING"]]).await?;
    Ok(match replies.first() {
        Some(Value::Simple(pong)) if pong == "PONG" => (Stranger::LetIn, None),
        Some(Value::Error(why)) if code_word(why) == "DENIED" => {
            (Stranger::KeptOut, Some(why.clone()))
        }
        Some(Value::Error(_)) => (Stranger::KeptOut, None),
        _ => (Stranger::Unknown, None),
    })
}

async fn as_administrator(node: &NodeSeen, login: &Login) -> Result<RedisSaid, Unseen> {
    let away = |error: Error| Unseen::Away(error.to_string());
    let mut talk = Talk::open(&node.address).await.map_err(away)?;
    let mut commands: Vec<&[&[u8]]> = Vec::new();
    let auth: [&[u8]; 3] = [
        b"AUTH",
        login.user.as_bytes(),
        login.password.as_deref().unwrap_or_default().as_bytes(),
    ];
    if login.password.is_some() {
        commands.push(&auth);
    }
    commands.push(&[b"INFO"]);
    let mut get: Vec<&[u8]> = vec![b"CONFIG", b"GET"];
    get.extend(SETTINGS);
    commands.push(&get);
    let replies = talk.ask(&commands).await.map_err(away)?;
    let [.., info, settings] = &replies[..] else {
        return Err(Unseen::Strange(
            "it answers less than it was asked".to_owned(),
        ));
    };
    let Some(text) = info.as_bytes() else {
        let words = replies.iter().find_map(|reply| match reply {
            Value::Error(why) => Some(why.clone()),
            _ => None,
        });
        return Err(Unseen::Denied(
            words.unwrap_or_else(|| "no answer to INFO".to_owned()),
        ));
    };
    let info = Info::parse(text);
    usable(&info)?;
    let before = wall_clock_ms();
    let time = talk.ask(&[&[b"TIME"]]).await.map_err(away)?;
    let after = wall_clock_ms();
    let settings: BTreeMap<String, String> = settings
        .pairs()
        .into_iter()
        .filter_map(|(name, value)| Some((name.as_text()?.to_owned(), value.as_text()?.to_owned())))
        .collect();
    Ok(RedisSaid {
        facts: facts(node, login).await?,
        settings,
        primary: primary(&info),
        other_keys: info.keys_elsewhere(),
        clock: time.first().and_then(read_time).map(|theirs| Clock {
            ahead_ms: theirs - (before + after) / 2,
            unsure_ms: 1 + (after - before) / 2,
        }),
    })
}

/// Whether it is a server that a pool may have.
fn usable(info: &Info) -> Result<(), Unseen> {
    let version = info.get("redis_version").unwrap_or_default();
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < VERSION_MIN) {
        return Err(Unseen::Old(version.to_owned()));
    }
    match info.get("redis_mode") {
        None | Some("standalone") => Ok(()),
        Some(mode) => Err(Unseen::Mode(mode.to_owned())),
    }
}

fn primary(info: &Info) -> Option<String> {
    if info.get("role") != Some("slave") {
        return None;
    }
    let (host, port) = (info.get("master_host")?, info.get("master_port")?);
    Some(match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    })
}

/// What the preflight of a change would see.
async fn facts(node: &NodeSeen, login: &Login) -> Result<crate::driver::NodeFacts, Unseen> {
    let Ok(id) = node.id.parse::<NodeId>() else {
        return Err(Unseen::Strange("its name is none of a node".to_owned()));
    };
    let driver = RedisDriver::new(RedisOptions {
        administrator: login.clone(),
        scripts: false,
        patience: Patience {
            connect: ANSWER_WITHIN,
            call: ANSWER_WITHIN,
        },
    });
    let at = NodeAddress {
        id,
        address: node.address.clone(),
    };
    driver.inspect(&at).await.map_err(|error| match error {
        DriverError::Denied { why, .. } => Unseen::Denied(why),
        DriverError::WrongServer { why, .. } => Unseen::Strange(why),
        DriverError::Unreachable { why, .. } => Unseen::Away(why),
        other => Unseen::Away(other.to_string()),
    })
}

fn read_time(time: &Value) -> Option<i64> {
    let [seconds, micros] = time.as_array()? else {
        return None;
    };
    let number = |value: &Value| value.as_text()?.parse::<i64>().ok();
    let plausible = |number: i64, end| (0..end).contains(&number).then_some(number);
    let seconds = plausible(number(seconds)?, 1 << 40)?;
    let micros = plausible(number(micros)?, 1_000_000)?;
    Some(seconds * 1_000 + micros / 1_000)
}

/// One connection that asks, and reads as many answers as it asked for.
struct Talk {
    stream: TcpStream,
    input: BytesMut,
}

impl Talk {
    async fn open(address: &str) -> std::io::Result<Self> {
        Ok(Self {
            stream: TcpStream::connect(address).await?,
            input: BytesMut::new(),
        })
    }

    async fn ask(&mut self, commands: &[&[&[u8]]]) -> std::io::Result<Vec<Value>> {
        let mut request = Vec::new();
        for command in commands {
            write_command(&mut request, command);
        }
        self.stream.write_all(&request).await?;
        let mut scanner = ReplyScanner::new(REPLY_BYTES_MAX);
        let mut replies = Vec::with_capacity(commands.len());
        while replies.len() < commands.len() {
            match scanner.scan(&self.input).map_err(strange)? {
                Some(reply) => {
                    let bytes = self.input.split_to(reply.bytes);
                    let value = Value::parse(&bytes).map_err(strange)?;
                    replies.push(value.map_or(Value::Null, |(value, _)| value));
                }
                None if self.stream.read_buf(&mut self.input).await? == 0 => {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                None => {}
            }
        }
        Ok(replies)
    }
}

fn strange(error: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::InvalidData,
        format!("it answers in another language: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_no_clock_shows_is_none() {
        let time = |seconds: &str, micros: &str| {
            let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
            read_time(&Value::Array(vec![bulk(seconds), bulk(micros)]))
        };
        assert_eq!(time("1700000000", "999999"), Some(1_700_000_000_999));
        for seconds in ["-1", "9223372036854775807", "-9223372036854775808", "x"] {
            assert_eq!(time(seconds, "0"), None, "{seconds}");
        }
        assert_eq!(time("1", "1000000"), None);
    }

    /// As a server in protected mode has it: it says why, and closes.
    #[tokio::test]
    async fn one_that_lets_nobody_in_from_here_is_not_called_away() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node = NodeSeen {
            id: "a".to_owned(),
            address: listener.local_addr().unwrap().to_string(),
            domain: String::new(),
            settled: true,
            weight: 1.0,
            share: 1.0,
        };
        let protected = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let words = b"-DENIED Redis is running in protected mode\r\n";
            stream.write_all(words).await.unwrap();
        };
        let login = Login {
            user: "default".to_owned(),
            password: Some("p".to_owned()),
        };
        let (seen, ()) = tokio::join!(look(&node, &login), protected);
        let Err(Unseen::Denied(why)) = &seen.said else {
            panic!("{:?}", seen.said)
        };
        assert!(why.contains("protected mode"), "{why}");
    }
}
