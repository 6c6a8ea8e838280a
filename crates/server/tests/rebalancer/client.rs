//! A plain client of one server: pipelines commands and compares replies.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use clockwise_client::resp::{Value, write_command};
use clockwise_testkit::RedisServer;

/// Commands in one pipeline.
const PIPELINE: usize = 500;

pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub(crate) fn login(server: &RedisServer, user: &str, password: &str) -> Self {
        let mut client = Self::connect(server);
        let reply = client.ask(&[b"AUTH", user.as_bytes(), password.as_bytes()]);
        assert_eq!(reply, Value::Simple("OK".to_owned()), "{user}");
        client
    }

    pub(crate) fn connect(server: &RedisServer) -> Self {
        let stream = TcpStream::connect(server.socket_addr()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Self {
            stream,
            input: Vec::new(),
        }
    }

    pub(crate) fn ask(&mut self, args: &[&[u8]]) -> Value {
        let mut bytes = Vec::new();
        write_command(&mut bytes, args);
        self.stream.write_all(&bytes).unwrap();
        self.reply()
    }

    /// The reply, or none when the server has closed the connection.
    pub(crate) fn try_ask(&mut self, args: &[&[u8]]) -> Option<Value> {
        let mut bytes = Vec::new();
        write_command(&mut bytes, args);
        self.stream.write_all(&bytes).ok()?;
        self.try_reply()
    }

    /// Words of one line; an error is a failure.
    #[track_caller]
    pub(crate) fn run(&mut self, line: &str) -> Value {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let reply = self.ask(&args);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        reply
    }

    /// Many commands; the replies in order.
    pub(crate) fn pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Value> {
        let mut replies = Vec::with_capacity(commands.len());
        for chunk in commands.chunks(PIPELINE) {
            let mut bytes = Vec::new();
            for command in chunk {
                let args: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
                write_command(&mut bytes, &args);
            }
            self.stream.write_all(&bytes).unwrap();
            replies.extend(chunk.iter().map(|_| self.reply()));
        }
        replies
    }

    fn reply(&mut self) -> Value {
        self.try_reply()
            .expect("the server did not close the connection")
    }

    fn try_reply(&mut self) -> Option<Value> {
        loop {
            if let Some((value, bytes)) = Value::parse(&self.input).unwrap() {
                self.input.drain(..bytes);
                return Some(value);
            }
            let mut buffer = [0; 64 << 10];
            let count = self
                .stream
                .read(&mut buffer)
                .ok()
                .filter(|count| *count > 0)?;
            self.input.extend_from_slice(&buffer[..count]);
        }
    }
}

/// A command of owned words.
pub(crate) fn words(args: &[&[u8]]) -> Vec<Vec<u8>> {
    args.iter().map(|arg| arg.to_vec()).collect()
}
