//! What is wrong with the pool's memcached servers, from `stats` and `stats settings`.

use super::check::Check;
use super::finding::{Finding, host_and_port, word};
use super::pool::NodeSeen;

/// What every memcached takes unless it is told otherwise.
const ITEM_BYTES_USUAL: u64 = 1 << 20;
const MIB: u64 = 1 << 20;

/// One node's server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MemcachedSeen {
    pub(super) node: NodeSeen,
    pub(super) said: Result<MemcachedSaid, Unseen>,
}

/// Why nothing more is known of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unseen {
    /// Nobody answers, or not in time.
    Away(String),
    /// Something else answers.
    Strange(String),
}

/// What a server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemcachedSaid {
    pub(super) version: String,
    pub(super) run_id: Option<String>,
    pub(super) evictions: u64,
    pub(super) memory_bytes: u64,
    /// The interfaces it listens on; `None` for all.
    pub(super) interfaces: Option<String>,
    pub(super) udp_port: u64,
    pub(super) item_bytes_max: u64,
    pub(super) evicts: bool,
    pub(super) crawler: bool,
}

/// Everything wrong with the servers of a pool.
pub(super) fn findings(servers: &[MemcachedSeen]) -> Vec<Finding> {
    let sizes = servers.iter().filter_map(|seen| seen.said.as_ref().ok());
    let largest = sizes.map(|said| said.item_bytes_max).max();
    let item_bytes = largest.unwrap_or(0).max(ITEM_BYTES_USUAL);
    let mut found = Vec::new();
    for seen in servers {
        let elsewhere = format!(
            "clockwise node set {} --addr HOST:PORT",
            word(&seen.node.id)
        );
        let mut find = |check, what: String, next: String| {
            found.push(Finding::new(check, seen.node.place(), what, next));
        };
        match &seen.said {
            Err(Unseen::Away(why)) => {
                let next = format!("start its server, or say where it is: {elsewhere}");
                find(Check::NodeAway, why.clone(), next);
            }
            Err(Unseen::Strange(why)) => find(Check::NotAServer, why.clone(), elsewhere),
            Ok(said) => of_server(&seen.node.address, said, item_bytes, &mut find),
        }
    }
    found
}

fn of_server(
    address: &str,
    said: &MemcachedSaid,
    item_bytes: u64,
    find: &mut dyn FnMut(Check, String, String),
) {
    let again = |options: &str| format!("start it again with {options}");
    if older_than_1_6(&said.version) {
        let next = "install memcached 1.6 or later".to_owned();
        find(
            Check::MemcachedOld,
            format!("version {}", said.version),
            next,
        );
    }
    if said.udp_port != 0 {
        find(
            Check::MemcachedUdp,
            format!("UDP port {}", said.udp_port),
            again("-U 0"),
        );
    }
    if !said.crawler {
        let (host, port) = host_and_port(address);
        let next = format!(
            "printf 'lru_crawler enable\\r\\nquit\\r\\n' | nc {} {}, and start it again without -o no_lru_crawler",
            word(host),
            word(port)
        );
        find(
            Check::MemcachedCrawler,
            "lru_crawler is no".to_owned(),
            next,
        );
    }
    if said.interfaces.is_none() {
        let host = word(host_and_port(address).0);
        find(
            Check::MemcachedExposed,
            "it listens on all interfaces".to_owned(),
            again(&format!("-l {host}")),
        );
    }
    if !said.evicts {
        find(
            Check::MemcachedNoEviction,
            "evictions are off".to_owned(),
            again("no -M"),
        );
    }
    if said.item_bytes_max < item_bytes {
        find(
            Check::MemcachedItemSize,
            format!(
                "it takes items of {} bytes, others {item_bytes}",
                said.item_bytes_max
            ),
            again(&format!("-I {item_bytes}")),
        );
    }
    if said.evictions > 0 {
        let mib = said.memory_bytes / MIB;
        find(
            Check::MemcachedEvictions,
            format!("{} items dropped, with {mib} MiB of memory", said.evictions),
            again(&format!("-m {}", mib.saturating_mul(2))),
        );
    }
}

fn older_than_1_6(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < (1, 6),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> MemcachedSaid {
        MemcachedSaid {
            version: "1.6.18".to_owned(),
            run_id: None,
            evictions: 0,
            memory_bytes: 64 << 20,
            interfaces: Some("127.0.0.1".to_owned()),
            udp_port: 0,
            item_bytes_max: 1 << 20,
            evicts: true,
            crawler: true,
        }
    }

    fn found(servers: &[Result<MemcachedSaid, Unseen>]) -> Vec<Check> {
        let seen = |(number, said): (usize, &Result<MemcachedSaid, Unseen>)| MemcachedSeen {
            node: NodeSeen {
                id: format!("n{number}"),
                address: "10.0.0.1:11211".to_owned(),
                domain: String::new(),
                settled: true,
                weight: 1.0,
                share: 1.0,
            },
            said: said.clone(),
        };
        let servers: Vec<_> = servers.iter().enumerate().map(seen).collect();
        findings(&servers)
            .iter()
            .map(|finding| finding.check)
            .collect()
    }

    #[test]
    fn each_setting_is_judged() {
        let with = |change: fn(&mut MemcachedSaid)| {
            let mut said = sound();
            change(&mut said);
            found(&[Ok(said)])
        };
        assert_eq!(with(|_| ()), []);
        assert_eq!(with(|said| said.udp_port = 11211), [Check::MemcachedUdp]);
        assert_eq!(with(|said| said.crawler = false), [Check::MemcachedCrawler]);
        assert_eq!(
            with(|said| said.interfaces = None),
            [Check::MemcachedExposed]
        );
        assert_eq!(
            with(|said| said.evicts = false),
            [Check::MemcachedNoEviction]
        );
        assert_eq!(
            with(|said| said.item_bytes_max = 1 << 19),
            [Check::MemcachedItemSize]
        );
        assert_eq!(with(|said| said.evictions = 1), [Check::MemcachedEvictions]);
        assert_eq!(
            with(|said| said.version = "1.5.22".to_owned()),
            [Check::MemcachedOld]
        );
        assert_eq!(with(|said| said.version = "1.10.0".to_owned()), []);
    }

    #[test]
    fn sizes_are_compared_within_the_pool() {
        let larger = MemcachedSaid {
            item_bytes_max: 8 << 20,
            ..sound()
        };
        assert_eq!(
            found(&[Ok(sound()), Ok(larger.clone())]),
            [Check::MemcachedItemSize]
        );
        assert_eq!(found(&[Ok(larger.clone()), Ok(larger)]), []);
    }

    #[test]
    fn who_does_not_answer_or_is_something_else_is_found() {
        let away = Err(Unseen::Away("refused".to_owned()));
        let strange = Err(Unseen::Strange("a router".to_owned()));
        assert_eq!(
            found(&[away, strange]),
            [Check::NodeAway, Check::NotAServer]
        );
    }
}
