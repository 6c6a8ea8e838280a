//! Parts of a request that goes to several memcached nodes, and the one answer made of theirs.

use std::collections::BTreeMap;

use clockwise_cluster::Epoch;

use clockwise_client::memcached::ROUTER_VERSION;

/// Writes a line of these words and keys.
pub(in crate::router) fn write_line<'a>(
    head: &[u8],
    keys: impl Iterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(head);
    for key in keys {
        out.push(b' ');
        out.extend_from_slice(key);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes a node's version, and that a router says it.
pub(in crate::router) fn write_version(answer: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(answer.trim_ascii_end());
    out.extend_from_slice(ROUTER_VERSION.as_bytes());
    out.extend_from_slice(env!("CARGO_PKG_VERSION").as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// How one number is made of several nodes'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    Sum,
    Least,
    Most,
    /// The first node's, which is everybody's.
    First,
    /// It says nothing about several.
    Nothing,
}

fn together(name: &str) -> Together {
    match name {
        "pid" => Together::Nothing,
        "uptime" | "time_since_server_config_reload" => Together::Least,
        "time" => Together::Most,
        "version" | "libevent" | "pointer_size" | "hash_power_level" => Together::First,
        "accepting_conns" => Together::Least,
        "hash_is_expanding" | "slab_reassign_running" | "lru_crawler_running" => Together::Most,
        _ => Together::Sum,
    }
}

/// Writes the statistics of all nodes, given behind each other, as those of one, in the order of the first.
pub(in crate::router) fn write_statistics(answers: &[u8], epoch: Epoch, out: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(answers);
    let mut order: Vec<&str> = Vec::new();
    let mut values: BTreeMap<&str, String> = BTreeMap::new();
    let mut nodes = 0u64;
    for line in text.lines() {
        let Some((name, value)) = line
            .strip_prefix("STAT ")
            .and_then(|line| line.split_once(' '))
        else {
            nodes += u64::from(line == "END");
            continue;
        };
        let how = together(name);
        if how == Together::Nothing {
            continue;
        }
        match values.get_mut(name) {
            Some(known) => *known = joined(how, known, value),
            None => {
                order.push(name);
                values.insert(name, value.to_owned());
            }
        }
    }
    let mut write = |name: &str, value: &str| {
        out.extend_from_slice(format!("STAT {name} {value}\r\n").as_bytes());
    };
    write("clockwise_nodes", &nodes.to_string());
    write("clockwise_epoch", &epoch.to_string());
    order.iter().for_each(|name| write(name, &values[name]));
    out.extend_from_slice(b"END\r\n");
}

/// Two values as one; what are no numbers stay as they are.
fn joined(how: Together, known: &str, value: &str) -> String {
    if let (Ok(one), Ok(other)) = (known.parse::<u64>(), value.parse::<u64>()) {
        let number = match how {
            Together::Sum => one.saturating_add(other),
            Together::Least => one.min(other),
            Together::Most => one.max(other),
            Together::First | Together::Nothing => one,
        };
        return number.to_string();
    }
    match (micros(known), micros(value)) {
        (Some(one), Some(other)) if how == Together::Sum => {
            let sum = one.saturating_add(other);
            format!("{}.{:06}", sum / 1_000_000, sum % 1_000_000)
        }
        _ => known.to_owned(),
    }
}

/// Millionths of a number written with six decimals, as times of the processor are.
fn micros(text: &str) -> Option<u64> {
    let (whole, rest) = text.split_once('.')?;
    if rest.len() != 6 {
        return None;
    }
    let (whole, rest): (u64, u64) = (whole.parse().ok()?, rest.parse().ok()?);
    whole.checked_mul(1_000_000)?.checked_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_nodes_become_those_of_one() {
        let one = "STAT pid 11\r\nSTAT uptime 9\r\nSTAT time 100\r\nSTAT version 1.6.18\r\n\
                   STAT rusage_user 1.900000\r\nSTAT curr_items 3\r\nEND\r\n";
        let other = "STAT pid 12\r\nSTAT uptime 5\r\nSTAT time 101\r\nSTAT version 1.6.18\r\n\
                     STAT rusage_user 0.200001\r\nSTAT curr_items 4\r\nSTAT new 1\r\nEND\r\n";
        let mut out = Vec::new();
        write_statistics(format!("{one}{other}").as_bytes(), Epoch::FIRST, &mut out);
        let expected = "STAT clockwise_nodes 2\r\nSTAT clockwise_epoch 1\r\nSTAT uptime 5\r\n\
                        STAT time 101\r\nSTAT version 1.6.18\r\nSTAT rusage_user 2.100001\r\n\
                        STAT curr_items 7\r\nSTAT new 1\r\nEND\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_version_says_that_a_router_says_it() {
        let mut out = Vec::new();
        write_version(b"VERSION 1.6.18\r\n", &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("VERSION 1.6.18 clockwise "), "{text}");
        assert!(text.contains(ROUTER_VERSION) && text.ends_with("\r\n"));
    }
}
