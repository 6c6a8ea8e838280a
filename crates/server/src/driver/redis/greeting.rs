//! The first words on a connection: what answers there, and does it let us in?
//!
//! Whatever listens at an address gets a `HELLO 3` with our login. The answer tells a server that we
//! can use from one that refuses us, one that is too old or in another mode, and from something else
//! altogether.

use std::time::Duration;

use bytes::BytesMut;
use clockwise_client::resp::{ReplyScanner, Value, code_word};
use clockwise_placement::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::frame::{Frame, Pipeline};
use super::link::{Login, Patience, Peer, READ_BYTES};
use crate::driver::DriverError;

/// An idle peer that vanished without a word is noticed after about this time.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The oldest server with everything a move needs, such as `PEXPIRETIME` and users of single keys.
const VERSION_MIN: u32 = 7;

/// What the server said of itself when we logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// `redis` or `valkey`.
    pub(super) server: String,
    pub(super) version: String,
    /// The number of this connection in `CLIENT LIST`.
    pub(super) client_id: i64,
}

/// Makes a connection and logs in, without a task: who reads pushes wants the socket itself.
pub(super) async fn connect(
    node: &NodeId,
    address: &str,
    login: &Login,
    patience: Patience,
) -> Result<(TcpStream, Peer, Greeting), DriverError> {
    let peer = Peer {
        node: node.clone(),
        address: address.to_owned(),
        user: login.user.clone(),
    };
    let made = timeout(patience.connect, async {
        let mut stream = TcpStream::connect(address)
            .await
            .map_err(|error| peer.unreachable(error))?;
        prepare(&stream).map_err(|error| peer.unreachable(error))?;
        let greeting = greet(&mut stream, &peer, login).await?;
        Ok::<_, DriverError>((stream, greeting))
    });
    match made.await {
        Ok(Ok((stream, greeting))) => Ok((stream, peer, greeting)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(peer.unreachable(format_args!("no answer within {:?}", patience.connect))),
    }
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE / 3);
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Switches to RESP3 and logs in; recognises what is no server of ours.
async fn greet(
    stream: &mut TcpStream,
    peer: &Peer,
    login: &Login,
) -> Result<Greeting, DriverError> {
    let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
    if let Some(password) = &login.password {
        hello.extend([b"AUTH", login.user.as_bytes(), password.as_bytes()]);
    }
    hello.extend([b"SETNAME".as_slice(), b"clockwise"]);
    let request = Pipeline::of(&hello).bytes;
    stream
        .write_all(&request)
        .await
        .map_err(|error| peer.unreachable(error))?;
    let frame = first_reply(stream, peer).await?;
    if let Some(why) = frame.error() {
        return Err(match code_word(&why) {
            "DENIED" => peer.denied(&why),
            // Before version 6 there is no HELLO; other servers borrow the error's form.
            "ERR" if why.contains("unknown command") => peer.wrong_server(&why),
            "NOPROTO" => peer.wrong_server(&why),
            "ERR" if why.contains("max number of clients") => peer.unreachable(&why),
            _ => peer.answered("HELLO", &why),
        });
    }
    read_greeting(&frame.value(), peer)
}

async fn first_reply(stream: &mut TcpStream, peer: &Peer) -> Result<Frame, DriverError> {
    let mut scanner = ReplyScanner::new(READ_BYTES);
    let mut input = BytesMut::with_capacity(READ_BYTES);
    loop {
        match stream.read_buf(&mut input).await {
            Ok(0) if input.is_empty() => {
                return Err(peer.unreachable("closed the connection without an answer"));
            }
            Ok(0) => return Err(peer.wrong_server(format_args!("answers {}", excerpt(&input)))),
            Ok(_) => {}
            Err(error) => return Err(peer.unreachable(error)),
        }
        match scanner.scan(&input) {
            Ok(None) => {}
            Ok(Some(reply)) => return Ok(Frame::new(reply, input.split_to(reply.bytes).freeze())),
            Err(_) => return Err(peer.wrong_server(format_args!("answers {}", excerpt(&input)))),
        }
    }
}

/// The beginning of what answered, made printable.
fn excerpt(input: &[u8]) -> String {
    let line = input
        .split(|byte| *byte == b'\r' || *byte == b'\n')
        .next()
        .unwrap_or_default();
    format!("\"{}\"", line[..line.len().min(60)].escape_ascii())
}

fn read_greeting(hello: &Value, peer: &Peer) -> Result<Greeting, DriverError> {
    let (mut server, mut version, mut mode, mut client_id) = (None, None, None, None);
    for (name, value) in hello.pairs() {
        match name.as_text() {
            Some("server") => server = value.as_text(),
            Some("version") => version = value.as_text(),
            Some("mode") => mode = value.as_text(),
            Some("id") => client_id = value.as_integer(),
            _ => {}
        }
    }
    let (Some(server), Some(version), Some(client_id)) = (server, version, client_id) else {
        return Err(peer.wrong_server(format_args!("answers HELLO with {hello:?}")));
    };
    let major: u32 = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or(0);
    if major < VERSION_MIN {
        return Err(peer.wrong_server(format_args!(
            "{server} {version} is older than version {VERSION_MIN}"
        )));
    }
    match mode {
        Some("standalone") => {}
        _ => {
            return Err(peer.wrong_server(format_args!(
                "{server} runs in mode {}",
                mode.unwrap_or("unknown")
            )));
        }
    }
    Ok(Greeting {
        server: server.to_owned(),
        version: version.to_owned(),
        client_id,
    })
}
