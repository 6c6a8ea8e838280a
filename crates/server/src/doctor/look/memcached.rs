//! What a memcached says to `stats` and `stats settings`.

use tokio::time::timeout;

use super::super::memcached::{MemcachedSaid, MemcachedSeen, Unseen};
use super::super::pool::{Clock, NodeSeen};
use super::ANSWER_WITHIN;
use super::redis::wall_clock_ms;
use crate::driver::memcached::{Statistics, ask};

/// One node, and its clock beside ours: memcached tells whole seconds.
pub(in super::super) async fn look(node: &NodeSeen) -> (MemcachedSeen, Option<Clock>) {
    let asked = async {
        let before = wall_clock_ms();
        let stats = ask(&node.address, b"stats\r\n").await?;
        let after = wall_clock_ms();
        let settings = ask(&node.address, b"stats settings\r\n").await?;
        Ok::<_, std::io::Error>((stats, settings, before, after))
    };
    let (stats, settings, before, after) = match timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(error)) => return away(node, error.to_string()),
        Err(_) => return away(node, format!("no answer within {ANSWER_WITHIN:?}")),
    };
    let (stats, settings) = (Statistics(&stats), Statistics(&settings));
    let Some(version) = stats.field("version").filter(|_| stats.pid().is_some()) else {
        let first = stats.0.lines().next().unwrap_or("nothing");
        let said = Err(Unseen::Strange(format!(
            "to stats it answers {}",
            first.escape_debug()
        )));
        return (seen(node, said), None);
    };
    let is = |name, yes: &str| settings.field(name).is_none_or(|value| value == yes);
    let interfaces = settings.field("inter");
    let everywhere = |inter: &&str| ["NULL", "0.0.0.0", "::", "*"].contains(inter);
    let said = MemcachedSaid {
        version: version.to_owned(),
        run_id: stats.run_id(),
        evictions: stats.number("evictions").unwrap_or(0),
        memory_bytes: stats.number("limit_maxbytes").unwrap_or(0),
        interfaces: interfaces
            .filter(|inter| !everywhere(inter))
            .map(str::to_owned),
        udp_port: settings.number("udpport").unwrap_or(0),
        item_bytes_max: settings.number("item_size_max").unwrap_or(0),
        evicts: is("evictions", "on"),
        crawler: is("lru_crawler", "yes"),
    };
    let clock = stats.number("time").and_then(|seconds| {
        let theirs = i64::try_from(seconds).ok()?.checked_mul(1_000)?;
        // It counts by a timer of its own that is up to a second late.
        Some(Clock {
            ahead_ms: theirs.checked_add(1_000)? - (before + after) / 2,
            unsure_ms: 1_000 + (after - before) / 2,
        })
    });
    (seen(node, Ok(said)), clock)
}

fn away(node: &NodeSeen, why: String) -> (MemcachedSeen, Option<Clock>) {
    (seen(node, Err(Unseen::Away(why))), None)
}

fn seen(node: &NodeSeen, said: Result<MemcachedSaid, Unseen>) -> MemcachedSeen {
    let node = node.clone();
    MemcachedSeen { node, said }
}
