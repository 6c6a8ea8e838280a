//! The configuration of a redis-server that is started here.

use std::path::Path;

use clockwise_client::credentials::Password;

use super::Persist;

/// Users of clients are never written here: they exist only in the server's memory.
pub(super) fn text(persist: Persist, password: &Password, folder: &Path, port: u16) -> String {
    let appendonly = match persist {
        Persist::None => "no",
        Persist::Aof => "yes",
    };
    format!(
        "bind 127.0.0.1\n\
         port {port}\n\
         protected-mode yes\n\
         requirepass {password}\n\
         daemonize no\n\
         dir {data}\n\
         databases 1\n\
         maxmemory-policy noeviction\n\
         save \"\"\n\
         appendonly {appendonly}\n\
         appendfsync everysec\n\
         always-show-logo no\n",
        password = password.reveal(),
        data = quoted(&folder.join("data")),
    )
}

/// A path as redis.conf reads one.
fn quoted(path: &Path) -> String {
    let text = path
        .to_string_lossy()
        .replace('\\', "\\\\")
        .replace('"', "\\\"");
    format!("\"{text}\"")
}
