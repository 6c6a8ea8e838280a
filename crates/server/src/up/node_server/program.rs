//! What kind of server runs for each node: its binary, how it is started, and who it says it is.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clockwise_client::credentials::Password;

use super::{Persist, config};
use crate::driver::memcached::Statistics;
use crate::up::answer::Answer;

/// How long a memcached may take to say who it is.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Its statistics have some 3 KiB.
const STATISTICS_BYTES_MAX: usize = 64 << 10;

/// See the module.
#[derive(Clone, Debug)]
pub enum Program {
    /// A redis-server that lets in its administrator only, until clients' users are made.
    Redis {
        /// What it keeps over a restart.
        persist: Persist,
        /// Its administrator's password.
        password: Password,
    },
    /// A memcached. It knows no users, and keeps nothing over a restart.
    Memcached,
}

impl Program {
    /// Where the path of the binary may be given.
    pub(super) fn binary_variable(&self) -> &'static str {
        match self {
            Self::Redis { .. } => "CLOCKWISE_REDIS_SERVER",
            Self::Memcached => "CLOCKWISE_MEMCACHED",
        }
    }

    /// The binary that the environment names, or the usual one.
    pub(super) fn binary(&self) -> PathBuf {
        let named = env::var_os(self.binary_variable()).filter(|name| !name.is_empty());
        let usual = match self {
            Self::Redis { .. } => "redis-server",
            Self::Memcached => "memcached",
        };
        named.map_or_else(|| PathBuf::from(usual), PathBuf::from)
    }

    /// Debian's package that has it.
    pub(super) fn package(&self) -> &'static str {
        match self {
            Self::Redis { .. } => "redis-server",
            Self::Memcached => "memcached",
        }
    }

    /// The name of what says how a node's server was started, in the node's folder.
    pub(super) fn config_name(&self) -> &'static str {
        match self {
            Self::Redis { .. } => "redis.conf",
            Self::Memcached => "memcached.conf",
        }
    }

    /// Whether a server of this kind was started in a node's folder.
    pub(in crate::up) fn ran_in(&self, folder: &Path) -> bool {
        folder.join(self.config_name()).exists()
    }

    /// Its content, with a line `port PORT`. A memcached does not read it; whoever looks for the server does.
    pub(super) fn config(&self, folder: &Path, port: u16) -> String {
        match self {
            Self::Redis { persist, password } => config::text(*persist, password, folder, port),
            Self::Memcached => format!("port {port}\n"),
        }
    }

    pub(super) fn log_name(&self) -> &'static str {
        match self {
            Self::Redis { .. } => "redis.log",
            Self::Memcached => "memcached.log",
        }
    }

    pub(super) fn args(&self, config: &Path, port: u16) -> Vec<OsString> {
        match self {
            Self::Redis { .. } => vec![config.into()],
            Self::Memcached => {
                let port = port.to_string();
                let mut args = vec!["-l", "127.0.0.1", "-U", "0", "-p", port.as_str()];
                if rustix::process::geteuid().is_root() {
                    // As root it does not run unless told so.
                    args.extend(["-u", "root"]);
                }
                args.into_iter().map(OsString::from).collect()
            }
        }
    }

    /// Who answers on a port.
    pub(super) fn ask(&self, port: u16) -> Result<Answer, String> {
        match self {
            Self::Redis { password, .. } => Answer::of(port, password),
            Self::Memcached => {
                let text = statistics(port).map_err(|error| error.to_string())?;
                of_memcached(&text).ok_or_else(|| "it answers stats in an unknown form".to_owned())
            }
        }
    }
}

/// What a memcached says of itself.
fn statistics(port: u16) -> io::Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let deadline = Instant::now() + ANSWER_WITHIN;
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(b"stats\r\n")?;
    let mut reply = Vec::new();
    let mut chunk = [0; 4096];
    while !reply.ends_with(b"END\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || reply.len() > STATISTICS_BYTES_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => reply.extend_from_slice(&chunk[..read]),
        }
    }
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

fn of_memcached(statistics: &str) -> Option<Answer> {
    let statistics = Statistics(statistics);
    Some(Answer {
        pid: statistics.pid()?,
        run_id: statistics.run_id()?,
        loading: false,
        saves: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memcached_is_known_by_its_process_and_its_start() {
        let text = "STAT pid 77\r\nSTAT uptime 40\r\nSTAT time 1040\r\nEND\r\n";
        let answer = of_memcached(text).unwrap();
        assert_eq!((answer.pid, answer.run_id.as_str()), (77, "77-1000"));
        assert!(!answer.loading && answer.saves.is_none());
        assert!(of_memcached("STAT pid 77\r\nEND\r\n").is_none());
        assert!(of_memcached("ERROR\r\n").is_none());
    }
}
