//! What a redis-server on a port says of itself.

use std::time::Duration;

use clockwise_client::credentials::Password;
use clockwise_cluster::Incarnation;
use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Who answers on a port.
pub(super) struct Answer {
    pub(super) pid: i32,
    pub(super) run_id: String,
    pub(super) loading: bool,
    /// Who it is, if what it acknowledged outlives an end in good order.
    pub(super) saves: Option<Incarnation>,
}

impl Answer {
    /// Asks with our password, which no stranger takes.
    pub(super) fn of(port: u16, password: &Password) -> Result<Self, String> {
        let settings = RedisConnectionInfo::default().set_password(password.reveal());
        let address = ConnectionAddr::Tcp("127.0.0.1".to_owned(), port);
        let ask = || -> redis::RedisResult<String> {
            let info = address.into_connection_info()?.set_redis_settings(settings);
            let mut connection =
                redis::Client::open(info)?.get_connection_with_timeout(ANSWER_WITHIN)?;
            connection.set_read_timeout(Some(ANSWER_WITHIN))?;
            connection.set_write_timeout(Some(ANSWER_WITHIN))?;
            redis::cmd("INFO")
                .arg("server")
                .arg("persistence")
                .arg("replication")
                .query(&mut connection)
        };
        let text = ask().map_err(|error| error.to_string())?;
        Self::parse(&text).ok_or_else(|| "it answers INFO in an unknown form".to_owned())
    }

    fn parse(info: &str) -> Option<Self> {
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
        };
        let run_id = field("run_id")?;
        let incarnation = || {
            Some(Incarnation {
                run_id: run_id.parse().ok()?,
                replication_id: field("master_replid")?.parse().ok()?,
            })
        };
        let saves =
            field("aof_enabled") == Some("1") && field("aof_last_write_status") == Some("ok");
        Some(Self {
            pid: field("process_id")?.parse().ok()?,
            run_id: run_id.to_owned(),
            loading: field("loading")? != "0",
            saves: saves.then(incarnation).flatten(),
        })
    }
}
