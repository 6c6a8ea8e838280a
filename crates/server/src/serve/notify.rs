//! Telling the service manager how the process is, by the protocol that systemd understands: datagrams of
//! `NAME=value` lines to the socket that `NOTIFY_SOCKET` names. Without that variable nobody is told.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// The service manager, if there is one.
#[derive(Debug)]
pub(super) struct Notify {
    socket: Option<(UnixDatagram, OsString)>,
}

impl Notify {
    /// The one that the environment names.
    pub(super) fn from_environment() -> Self {
        let named = std::env::var_os(SOCKET_VARIABLE).filter(|name| !name.is_empty());
        let socket = named.and_then(|name| match open() {
            Ok(socket) => Some((socket, name)),
            Err(error) => {
                tracing::warn!(%error, "the service manager cannot be told anything");
                None
            }
        });
        Self { socket }
    }

    /// Clients can connect; after a reload: it is over.
    pub(super) fn ready(&self, words: &str) {
        self.tell(&format!("READY=1\nSTATUS={words}\n"));
    }

    /// The start takes longer: the manager waits that long once more.
    pub(super) fn waiting(&self, words: &str, within: Duration) {
        let micros = within.as_micros();
        self.tell(&format!("EXTEND_TIMEOUT_USEC={micros}\nSTATUS={words}\n"));
    }

    /// The configuration is being read again.
    pub(super) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
    }

    /// The process ends.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=ending\n");
    }

    fn tell(&self, words: &str) {
        let Some((socket, name)) = &self.socket else {
            return;
        };
        let sent = address(name).and_then(|to| socket.send_to_addr(words.as_bytes(), &to));
        if let Err(error) = sent {
            tracing::warn!(%error, socket = ?name, "the service manager was not told");
        }
    }
}

fn open() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // Nothing here waits for whoever does not read.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A path, or a name behind `@` that is in no folder.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(name: &OsStr, listener: &UnixDatagram) -> String {
        let notify = Notify {
            socket: Some((open().unwrap(), name.to_owned())),
        };
        notify.ready("serving");
        let mut bytes = [0; 256];
        let count = listener.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_is_told_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        assert_eq!(
            heard(path.as_os_str(), &listener),
            "READY=1\nSTATUS=serving\n"
        );

        let name = format!("clockwise-test-{}", std::process::id());
        let at = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixDatagram::bind_addr(&at).unwrap();
        let name = OsString::from(format!("@{name}"));
        assert_eq!(heard(&name, &listener), "READY=1\nSTATUS=serving\n");
    }

    #[test]
    fn nobody_who_listens_is_no_reason_to_end() {
        let notify = Notify {
            socket: Some((open().unwrap(), "/nowhere/at/all".into())),
        };
        notify.stopping();
        Notify { socket: None }.ready("serving");
    }
}
