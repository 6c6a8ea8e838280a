//! A plain client that pipelines, of a server or of the router.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clockwise_client::resp::{Value, write_command};

/// Commands in one pipeline.
const PIPELINE: usize = 500;
const PATIENCE: Duration = Duration::from_secs(30);

/// Commands and their words.
pub(crate) type Command = Vec<Vec<u8>>;

pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            input: Vec::new(),
        }
    }

    pub(crate) fn login(address: SocketAddr, user: &str, password: &str) -> Self {
        let mut client = Self::connect(address);
        client.run(&format!("AUTH {user} {password}"));
        client
    }

    pub(crate) fn ask(&mut self, args: &[&[u8]]) -> Value {
        let mut bytes = Vec::new();
        write_command(&mut bytes, args);
        self.stream.write_all(&bytes).unwrap();
        self.next()
    }

    /// Words of one line; an error is a failure.
    #[track_caller]
    pub(crate) fn run(&mut self, line: &str) -> Value {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let reply = self.ask(&args);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        reply
    }

    /// Many commands; the replies in order. An error is a failure.
    #[track_caller]
    pub(crate) fn pipeline(&mut self, commands: &[Command]) -> Vec<Value> {
        let mut replies = Vec::with_capacity(commands.len());
        for chunk in commands.chunks(PIPELINE) {
            let mut bytes = Vec::new();
            for command in chunk {
                let args: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
                write_command(&mut bytes, &args);
            }
            self.stream.write_all(&bytes).unwrap();
            for command in chunk {
                let reply = self.next();
                let words = || String::from_utf8_lossy(&command.concat()).into_owned();
                assert!(!matches!(reply, Value::Error(_)), "{}: {reply:?}", words());
                replies.push(reply);
            }
        }
        replies
    }

    /// The next reply, or message of a subscription.
    pub(crate) fn next(&mut self) -> Value {
        loop {
            if let Some((value, bytes)) = Value::parse(&self.input).unwrap() {
                self.input.drain(..bytes);
                return value;
            }
            let mut buffer = [0; 64 << 10];
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "the server closed the connection");
            self.input.extend_from_slice(&buffer[..count]);
        }
    }
}

/// A command of owned words.
pub(crate) fn words(args: &[&[u8]]) -> Command {
    args.iter().map(|arg| arg.to_vec()).collect()
}
