//! Asks the nodes which commands there are.
//!
//! Any node will do; the first that answers is believed, and asked again from time to time, since
//! servers are upgraded. A node of another version answers for itself when it does not know a command.

use std::sync::Arc;
use std::time::Duration;

use clockwise_cluster::{Node, View};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::CommandTable;
use crate::credentials::Password;
use crate::resp::{ReplyError, Value, write_command};
use crate::routing::{ROUTER_FIELD, fact};

/// User and password; none where nodes let everybody in.
type Login = Option<(String, Password)>;

/// Between rounds over all nodes while none answers.
const RETRY: Duration = Duration::from_millis(100);
/// Between questions once one has.
const REFRESH: Duration = Duration::from_secs(60);
/// Before the next node is asked too.
const SLOW: Duration = Duration::from_millis(50);
/// For one node.
const PATIENCE: Duration = Duration::from_secs(2);
/// A reply to `COMMAND` has some 200 KiB.
const REPLY_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("{0}")]
    Socket(#[from] std::io::Error),
    #[error("{0}")]
    Reply(#[from] ReplyError),
    #[error("no answer in time")]
    Late(#[from] tokio::time::error::Elapsed),
    #[error("the node answered: {0}")]
    Refused(String),
    #[error("the answer is no list of commands")]
    Unknown,
    #[error("it is a router, not a server")]
    Router,
}

/// Keeps a command table up to date, for as long as the task runs: `tell` is given the first, and
/// another one a minute after each.
pub async fn keep_table(
    view: watch::Receiver<Arc<View>>,
    login: impl Fn(&Node) -> Login,
    tell: impl Fn(CommandTable),
) {
    loop {
        let nodes = Arc::clone(&view.borrow());
        let asked = nodes.nodes().iter().map(|node| (node.clone(), login(node)));
        let pause = match first_table(asked.collect()).await {
            Some(table) => {
                tell(table);
                REFRESH
            }
            None => RETRY,
        };
        sleep(pause).await;
    }
}

/// The table of the first node that answers. The next one is asked as soon as one fails or is slow:
/// requests wait for this when a router has just started.
async fn first_table(nodes: Vec<(Node, Login)>) -> Option<CommandTable> {
    let mut nodes = nodes.into_iter();
    let mut asked = JoinSet::new();
    loop {
        match nodes.next() {
            Some((node, login)) => {
                asked.spawn(async move {
                    let answer = timeout(PATIENCE, ask(&node, login)).await;
                    (node.id, answer.map_err(AskError::from).flatten())
                });
            }
            None if asked.is_empty() => return None,
            None => {}
        }
        match timeout(SLOW, asked.join_next()).await {
            Ok(Some(Ok((_, Ok(table))))) => return Some(table),
            Ok(Some(Ok((node, Err(error))))) => {
                tracing::debug!(%node, %error, "a node did not say which commands there are")
            }
            Ok(Some(Err(error))) => {
                tracing::error!(%error, "asking a node for its commands failed")
            }
            Ok(None) | Err(_) => {}
        }
    }
}

async fn ask(node: &Node, login: Login) -> Result<CommandTable, AskError> {
    let mut stream = TcpStream::connect(node.address.as_str()).await?;
    let mut request = Vec::new();
    match login {
        Some((user, password)) => {
            write_command(
                &mut request,
                &["HELLO", "3", "AUTH", &user, password.reveal()],
            );
        }
        None => write_command(&mut request, &["HELLO", "3"]),
    }
    write_command(&mut request, &["COMMAND"]);
    stream.write_all(&request).await?;
    let mut input = Vec::new();
    let hello = reply(&mut stream, &mut input).await?;
    if fact(&hello, ROUTER_FIELD).is_some() {
        return Err(AskError::Router);
    }
    let commands = reply(&mut stream, &mut input).await?;
    let version = fact(&hello, "version")
        .and_then(Value::as_text)
        .unwrap_or("7.0.0");
    CommandTable::of_server(&commands, version).ok_or(AskError::Unknown)
}

async fn reply(stream: &mut TcpStream, input: &mut Vec<u8>) -> Result<Value, AskError> {
    loop {
        if let Some((value, bytes)) = Value::parse(input)? {
            input.drain(..bytes);
            return match value {
                Value::Error(words) => Err(AskError::Refused(words)),
                value => Ok(value),
            };
        }
        if input.len() > REPLY_BYTES_MAX || stream.read_buf(input).await? == 0 {
            return Err(AskError::Unknown);
        }
    }
}
