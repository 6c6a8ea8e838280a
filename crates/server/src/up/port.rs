//! Ports for servers that are started here.

use std::io;
use std::net::TcpListener;

const PORT_FIRST: u16 = 10_240;
const PORT_COUNT: u16 = 22_000;
/// Ports drawn before none is taken to be free.
const PORT_DRAWS: u32 = 1_000;

/// Below the range from which the system gives ports to outgoing connections, so that a server that
/// starts again finds its port as it left it.
pub(super) fn free_port() -> io::Result<u16> {
    for _ in 0..PORT_DRAWS {
        let mut bytes = [0; 2];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let port = PORT_FIRST + u16::from_ne_bytes(bytes) % PORT_COUNT;
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("{PORT_DRAWS} ports drawn at random are all in use"),
    ))
}
