//! A plain client: sends bytes, and takes replies as the bytes they are.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clockwise_client::resp::{Value, write_command};

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            input: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The bytes of the next reply; none when the server has closed the connection.
    pub(crate) fn reply(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some((_, bytes)) = Value::parse(&self.input).unwrap() {
                return Some(self.input.drain(..bytes).collect());
            }
            let mut buffer = [0; 64 << 10];
            let count = self.stream.read(&mut buffer).unwrap();
            if count == 0 {
                return None;
            }
            self.input.extend_from_slice(&buffer[..count]);
        }
    }

    pub(crate) fn ask(&mut self, args: &[&str]) -> String {
        let mut bytes = Vec::new();
        write_command(&mut bytes, args);
        self.send(&bytes);
        String::from_utf8(self.reply().expect("the connection stays")).unwrap()
    }

    /// Everything that comes until the server closes the connection.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.input);
        self.stream.read_to_end(&mut rest).unwrap();
        String::from_utf8(rest).unwrap()
    }
}
