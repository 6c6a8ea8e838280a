//! The same random commands to one server and to the router in front of four: replies must be equal, byte
//! for byte, but for what each server counts for itself.

use std::collections::BTreeMap;

use clockwise_testkit::{MemcachedOptions, MemcachedServer, Random, for_seeds};

use crate::pool::{Client, Plan, start};

/// Commands of one batch, sent before any of their replies is read.
const BATCH: usize = 40;

/// Forms of requests: `K` a key, `N` a number, `T` a time, `V` a length and a value, `Q` perhaps
/// silence, `C` the number of an item's last change.
const FORMS: &[&str] = &[
    "get K",
    "get K K K K",
    "get K",
    "gets K K",
    "gat T K",
    "gats T K K",
    "set K N T V",
    "set K N T V noreply",
    "set K N T V",
    "add K N T V",
    "add K N T V noreply",
    "replace K N T V",
    "append K 0 0 V",
    "prepend K 0 0 V",
    "prepend K 0 0 V noreply",
    "cas K N T V C",
    "cas K N T V C noreply",
    "incr K N",
    "incr K N noreply",
    // A number that becomes shorter keeps its length or not, as the server sees fit.
    "decr K 0",
    "touch K T",
    "touch K T noreply",
    "delete K",
    "delete K noreply",
    "delete K 0",
    "flush_all",
    "mg K v Q",
    "mg K t f s v O1 k Q",
    "mg K h u Q",
    "mg K N60 v c t",
    "mg K R30 T T60 v",
    "mg K",
    "ms K V Q",
    "ms K V TT FN O7 k c Q",
    "ms K V ME Q",
    "ms K V MA",
    "ms K V MP Q",
    "ms K V MR",
    "ms K V CC",
    "ms K V CC I",
    "md K Q",
    "md K I T60 O9 Q",
    "md K CC k",
    "ma K v",
    "ma K DN Q",
    "ma K MD D0 v t c",
    "ma K N0 J13 v",
    "ma K CC v",
    "me K",
    "verbosity 0",
    "mg K x1",
    "ms K V MX",
    "incr K x",
    "nonsense K",
    "get",
];

struct Stream<'a> {
    random: &'a mut Random,
    keys: usize,
}

impl Stream<'_> {
    /// A key for a request of this form. A server that counts up may make the item anew or not, as it sees fit,
    /// and a new one has lost that it was stale: no key has both.
    fn key(&mut self, form: &str) -> String {
        let counts = ["incr", "decr", "ma "]
            .iter()
            .any(|name| form.starts_with(name));
        let stales = [" I", " N60", " R30"]
            .iter()
            .any(|flag| form.contains(flag));
        let number = match (counts, stales) {
            (true, _) => self.random.below(self.keys / 2),
            (_, true) => self.keys / 2 + self.random.below(self.keys / 2),
            _ => self.random.below(self.keys),
        };
        format!("key{number}")
    }

    /// A request twice, with the change numbers that each side has told for the key.
    fn request(&mut self, changes: &BTreeMap<String, (String, String)>) -> (String, String) {
        let form = *self.random.one(FORMS);
        if form == "flush_all" && !self.random.chance(5) {
            return ("verbosity 0\r\n".to_owned(), "verbosity 0\r\n".to_owned());
        }
        let key = self.key(form);
        let (mut one, mut other, mut value) = (Vec::new(), Vec::new(), None);
        let wrong = ("1".to_owned(), "1".to_owned());
        let (change, change_there) = changes.get(&key).unwrap_or(&wrong).clone();
        for (at, word) in form.split(' ').enumerate() {
            let word = match word {
                "K" if at <= 1 => key.clone(),
                "K" => self.key(form),
                "N" => self.random.below(1_000).to_string(),
                "T" => (*self.random.one(&["0", "1000", "100000", "-1"])).to_owned(),
                "TT" => format!("T{}", self.random.one(&["0", "1000", "-1"])),
                "DN" => format!("D{}", self.random.below(50)),
                "FN" => format!("F{}", self.random.below(50)),
                "V" => {
                    let text = self.value();
                    let bytes = text.len().to_string();
                    value = Some(text);
                    bytes
                }
                "Q" if self.random.chance(40) => "q".to_owned(),
                "Q" => continue,
                "C" | "CC" => {
                    let mark = if word == "CC" { "C" } else { "" };
                    one.push(format!("{mark}{change}"));
                    other.push(format!("{mark}{change_there}"));
                    continue;
                }
                word => word.to_owned(),
            };
            one.push(word.clone());
            other.push(word);
        }
        let value = value.map_or(String::new(), |value| format!("{value}\r\n"));
        let whole = |words: Vec<String>| format!("{}\r\n{value}", words.join(" "));
        (whole(one), whole(other))
    }

    fn value(&mut self) -> String {
        match self.random.below(5) {
            0 => self.random.below(100).to_string(),
            1 => "END\r\nmn\r\nVALUE a 0 5\r\n".to_owned(),
            2 => String::new(),
            3 => "x".repeat(self.random.below(3_000)),
            _ => "value".to_owned(),
        }
    }
}

/// A reply without what differs from server to server and from second to second.
fn comparable(reply: &str) -> String {
    let Some((line, rest)) = reply.split_once("\r\n") else {
        return reply.to_owned();
    };
    let words: Vec<&str> = line.split(' ').collect();
    let line = match words.as_slice() {
        ["VALUE", key, flags, bytes, _] => {
            let behind = bytes.parse::<usize>().unwrap() + 2;
            let (value, rest) = rest.split_at(behind);
            return format!(
                "VALUE {key} {flags} {bytes} #\r\n{value}{}",
                comparable(rest)
            );
        }
        ["VALUE", _, _, bytes] => {
            let behind = bytes.parse::<usize>().unwrap() + 2;
            let (value, rest) = rest.split_at(behind);
            return format!("{line}\r\n{value}{}", comparable(rest));
        }
        ["ME", key, ..] => format!("ME {key}"),
        [code @ ("HD" | "VA" | "EN" | "NF" | "NS" | "EX"), flags @ ..] => {
            let plain = |flag: &&str| match flag.as_bytes().first() {
                Some(b'c') => "c#".to_owned(),
                Some(b't') if *flag != "t-1" => "t#".to_owned(),
                // As above: an item that was made anew has not been read yet.
                Some(b'h') => "h#".to_owned(),
                _ => (*flag).to_owned(),
            };
            let flags: Vec<String> = flags.iter().map(plain).collect();
            format!("{code} {}", flags.join(" "))
        }
        _ => line.to_owned(),
    };
    format!("{line}\r\n{rest}")
}

/// Takes up the change numbers that `gets` has told, from both sides.
fn learn(one: &str, other: &str, changes: &mut BTreeMap<String, (String, String)>) {
    let (one, other) = (one.split("\r\n").next(), other.split("\r\n").next());
    let (Some(one), Some(other)) = (one, other) else {
        return;
    };
    let (one, other): (Vec<&str>, Vec<&str>) =
        (one.split(' ').collect(), other.split(' ').collect());
    if let (["VALUE", key, _, _, change], ["VALUE", _, _, _, there]) =
        (one.as_slice(), other.as_slice())
    {
        changes.insert(
            (*key).to_owned(),
            ((*change).to_owned(), (*there).to_owned()),
        );
    }
}

#[test]
fn random_commands_are_answered_as_by_one_server() {
    let repeat = "-p clockwise --test memcached random_commands";
    let single = MemcachedServer::start(MemcachedOptions::default());
    let pool = start(Plan {
        nodes: 4,
        flush_all: true,
        ..Plan::default()
    });
    // No item that counts has the number of changes that a request makes up.
    let warm = "set warm 0 0 1 noreply\r\nx\r\n".repeat(9);
    Client::connect(single.socket_addr()).all(&warm);
    (0..4).for_each(|server| drop(pool.direct(server).all(&warm)));
    for_seeds(4, repeat, |random| {
        let (mut alone, mut routed) = (Client::connect(single.socket_addr()), pool.client());
        alone.ask("flush_all\r\n");
        routed.ask("flush_all\r\n");
        let mut stream = Stream { random, keys: 12 };
        let mut changes = BTreeMap::new();
        for _ in 0..150 {
            let (mut here, mut there) = (String::new(), String::new());
            for _ in 0..BATCH {
                let (one, other) = stream.request(&changes);
                // A quiet `ma` that makes its item is silent or not by the server's version.
                here.push_str(&one);
                there.push_str(&other);
            }
            let (expected, got) = (alone.all(&here), routed.all(&there));
            for (at, (one, other)) in expected.iter().zip(&got).enumerate() {
                let same = comparable(one) == comparable(other);
                assert!(
                    same,
                    "reply {at}: {one:?}, through the router {other:?}\nto {here}"
                );
                learn(one, other, &mut changes);
            }
            assert_eq!(expected.len(), got.len(), "to {here}");
        }
    });
}
