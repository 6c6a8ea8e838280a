//! `INFO`, read as names and values.

use std::collections::BTreeMap;

use crate::driver::Identity;

/// What a server reports of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Info(BTreeMap<String, String>);

impl Info {
    pub(crate) fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(
            fields
                .map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()))
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// Which run of which data answered; needs the sections `server` and `replication`.
    pub(super) fn identity(&self) -> Option<Identity> {
        Some(Identity {
            run_id: self.get("run_id")?.to_owned(),
            primary: self.get("role")? == "master",
            replication_id: self.get("master_replid")?.to_owned(),
        })
    }

    /// Keys in database 0.
    pub(super) fn keys(&self) -> u64 {
        self.of_keyspace("keys=").unwrap_or(0)
    }

    /// Keys in database 0 that have an expiry; `None` where the server does not say.
    pub(super) fn keys_with_expiry(&self) -> Option<u64> {
        self.of_keyspace("expires=")
    }

    /// Keys in all other databases together.
    pub(crate) fn keys_elsewhere(&self) -> u64 {
        let is_other = |name: &str| {
            name.strip_prefix("db").is_some_and(|number| {
                number != "0" && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
            })
        };
        let lines = self.0.iter().filter(|(name, _)| is_other(name));
        let keys = lines.filter_map(|(_, line)| {
            let mut pairs = line.split(',');
            pairs.find_map(|pair| pair.strip_prefix("keys=")?.parse::<u64>().ok())
        });
        keys.fold(0, u64::saturating_add)
    }

    fn of_keyspace(&self, field: &str) -> Option<u64> {
        // A database without keys has no line.
        let Some(line) = self.get("db0") else {
            return Some(0);
        };
        line.split(',')
            .find_map(|pair| pair.strip_prefix(field)?.parse().ok())
    }

    /// Addresses of connected replicas.
    pub(super) fn replicas(&self) -> Vec<String> {
        let is_replica = |name: &str| {
            name.strip_prefix("slave")
                .is_some_and(|rank| !rank.is_empty() && rank.bytes().all(|b| b.is_ascii_digit()))
        };
        self.0
            .iter()
            .filter(|(name, _)| is_replica(name))
            .filter_map(|(_, line)| replica_address(line))
            .collect()
    }
}

/// Reads `ip=10.0.0.1,port=6379,state=online,…`.
fn replica_address(line: &str) -> Option<String> {
    let field = |name: &str| {
        line.split(',')
            .find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    };
    let (host, port) = (field("ip")?, field("port")?);
    Some(if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_gives_identity_keys_and_replicas() {
        let info = Info::parse(
            b"# Server\r\nrun_id:abc\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
              slave0:ip=10.0.0.1,port=6380,state=online,offset=14,lag=0\r\n\
              slave1:ip=::1,port=6381,state=online,offset=14,lag=0\r\nslave_repl_offset:7\r\n\
              master_replid:def\r\n# Keyspace\r\ndb0:keys=12,expires=0,avg_ttl=0\r\n",
        );
        let identity = info.identity().unwrap();
        assert_eq!((identity.run_id.as_str(), identity.primary), ("abc", true));
        assert_eq!(identity.replication_id, "def");
        assert_eq!(info.keys(), 12);
        assert_eq!(info.replicas(), ["10.0.0.1:6380", "[::1]:6381"]);
        assert_eq!(info.number("connected_slaves"), Some(2));
        let empty = Info::parse(b"# Keyspace\r\n");
        assert_eq!((empty.keys(), empty.keys_with_expiry()), (0, Some(0)));
        let some = Info::parse(b"db0:keys=12,expires=3,avg_ttl=9\r\ndb1:keys=1,expires=1\r\n");
        assert_eq!((some.keys(), some.keys_with_expiry()), (12, Some(3)));
        assert_eq!((some.keys_elsewhere(), info.keys_elsewhere()), (1, 0));
        assert_eq!(Info::parse(b"db0:keys=12\r\n").keys_with_expiry(), None);
    }
}
