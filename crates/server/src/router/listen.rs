//! Listening sockets, one for each worker on the same port, and the files they may open.

use std::io;
use std::net::SocketAddr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};

use super::limits::FILES_RESERVED;

/// Connections the system keeps for a worker that has not accepted them yet.
const BACKLOG: i32 = 1_024;

/// Binds one socket for each worker; the system spreads connections over them. With port 0 the
/// first takes a free port and the others the same.
pub(super) fn bind(
    address: SocketAddr,
    workers: usize,
) -> io::Result<(SocketAddr, Vec<mio::net::TcpListener>)> {
    let first = bind_one(address, workers > 1)?;
    let bound = first.local_addr()?;
    let mut listeners = vec![mio::net::TcpListener::from_std(first)];
    for _ in 1..workers {
        listeners.push(mio::net::TcpListener::from_std(bind_one(bound, true)?));
    }
    Ok((bound, listeners))
}

fn bind_one(address: SocketAddr, shared: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// How many of `wanted` clients the process can have: its limit of open files is raised as far as
/// it may be, and what the rest of the process needs is kept.
pub(super) fn clients_possible(wanted: usize) -> usize {
    let needed = (wanted + FILES_RESERVED) as u64;
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < needed) else {
        return wanted;
    };
    let raised = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    let current = match setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(raised),
            ..limit
        },
    ) {
        Ok(()) => raised,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files could not be raised");
            current
        }
    };
    let files = usize::try_from(current).unwrap_or(usize::MAX);
    files.saturating_sub(FILES_RESERVED).clamp(1, wanted)
}
