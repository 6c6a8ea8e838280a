//! Free ports. A port that was free a moment ago may be taken when the server binds it, so a
//! start is repeated on other ports until the server itself says that it holds them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

use crate::process::Process;

/// Below the range from which the kernel gives ports to outgoing connections, so that a stopped
/// server finds its port free again.
const FIRST: u16 = 10_240;
const COUNT: u16 = 22_000;

/// With some thousand ports in use each attempt fails one time in ten at most.
const ATTEMPTS_MAX: usize = 20;

/// Ports drawn before none is taken to be free.
const DRAWS_MAX: u32 = 1_000;

pub(crate) enum Start {
    Ready(Process),
    PortTaken,
}

/// Calls `start` with free ports until it got them.
#[track_caller]
pub(crate) fn on_free_ports<const N: usize>(
    mut start: impl FnMut([u16; N]) -> Start,
) -> (Process, [u16; N]) {
    for _ in 0..ATTEMPTS_MAX {
        let ports = free_ports::<N>();
        match start(ports) {
            Start::Ready(process) => return (process, ports),
            Start::PortTaken => {}
        }
    }
    panic!("no free port on 127.0.0.1 after {ATTEMPTS_MAX} attempts");
}

/// Different ports of the loopback interface that nobody listens on, below those that the kernel
/// gives to outgoing connections. Somebody else may take one before it is used.
///
/// # Panics
/// If there are none.
#[must_use]
pub fn free_ports<const N: usize>() -> [u16; N] {
    // Kept open together, so that the ports differ.
    let listeners: [TcpListener; N] = std::array::from_fn(|_| free_listener());
    listeners.map(|listener| match listener.local_addr() {
        Ok(addr) => addr.port(),
        Err(error) => panic!("no address of a listening socket: {error}"),
    })
}

fn free_listener() -> TcpListener {
    for _ in 0..DRAWS_MAX {
        let port = FIRST + u16::try_from(random() % u64::from(COUNT)).unwrap_or(0);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => return listener,
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => panic!("cannot listen on 127.0.0.1:{port}: {error}"),
        }
    }
    panic!("{DRAWS_MAX} ports drawn at random are all in use");
}

fn random() -> u64 {
    // Each `RandomState` has keys of its own.
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_drawn_together_differ_and_lie_below_the_outgoing_range() {
        let mut ports = free_ports::<32>();
        ports.sort_unstable();
        assert!(ports.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(
            ports
                .iter()
                .all(|port| (FIRST..FIRST + COUNT).contains(port))
        );
    }
}
