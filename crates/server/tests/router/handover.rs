//! Keys that change hands under way: held, sent on to the new owner, in order, and nothing lost.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clockwise::router::Limits;
use clockwise_client::resp::{Value, write_command};
use clockwise_cluster::{Apply, Edit, HandoffId, Incarnation, Nonce, Step};

use clockwise_testkit::RedisServer;

use crate::pool::{
    ADMIN, Client, Plan, Pool, Stop, bulk, let_in, ok, patient, start, start_server, wait_until,
};

/// Three closed nodes, and a fourth that joins: a change is in flight, nothing is handed over yet.
pub(crate) fn joining(limits: Limits) -> Pool {
    let mut pool = start(Plan {
        limits,
        closed: true,
        ..Plan::default()
    });
    let server = start_server(true);
    let edit = Edit::Add {
        id: "n3".parse().unwrap(),
        address: server.addr().parse().unwrap(),
        weight: "1".parse().unwrap(),
        domain: "".parse().unwrap(),
    };
    pool.servers.push(server);
    pool.apply(edit);
    pool
}

/// Three closed nodes, the last of which leaves.
fn leaving() -> Pool {
    let mut pool = start(Plan {
        closed: true,
        ..Plan::default()
    });
    pool.apply(Edit::Remove {
        id: "n2".parse().unwrap(),
    });
    pool
}

fn administrator(server: &RedisServer) -> Client {
    let mut client = Client::connect(server.socket_addr());
    assert_eq!(client.call(&["AUTH", ADMIN.0, ADMIN.1]), ok());
    client
}

impl Pool {
    /// Makes an edit a change.
    pub(crate) fn apply(&mut self, edit: Edit) {
        let staged = self.record.stage(edit).unwrap();
        let apply = Apply {
            expected: staged.epoch(),
            id: "change".parse().unwrap(),
            now_ms: 1,
            nonces: &mut || Nonce::new([77; 16]),
        };
        self.publish(staged.apply(apply).unwrap());
    }

    fn handoff(&self, source: usize) -> HandoffId {
        let id = format!("n{source}");
        let change = self.record.change().unwrap();
        change
            .handoffs
            .iter()
            .find(|handoff| handoff.source.as_str() == id)
            .unwrap()
            .id()
    }

    fn step(&mut self, source: usize, step: &Step) {
        let next = self.record.step(&self.handoff(source), step, 1).unwrap();
        self.publish(next);
    }

    /// Makes the client user that the record names for a node.
    fn make_user(&self, node: usize) {
        let node_of_record = &self.record.membership().nodes[node];
        let_in(&self.servers[node], &self.key, node_of_record);
    }

    /// To `handover` of this source: its next user exists before the record says so.
    pub(crate) fn begin_handover(&mut self, source: usize) {
        self.step(source, &Step::Copying);
        self.step(source, &Step::Verifying);
        self.begin_handover_again(source);
    }

    fn begin_handover_again(&mut self, source: usize) {
        let node = &self.record.membership().nodes[source];
        let step = Step::Handover {
            generation: node.generation.next(),
            nonce: Nonce::new([100 + 10 * source as u8 + node.generation.get() as u8; 16]),
        };
        let next = self.record.step(&self.handoff(source), &step, 1).unwrap();
        let before = std::mem::replace(&mut self.record, next);
        self.make_user(source);
        for target in self.targets(source) {
            self.make_user(target);
        }
        let next = std::mem::replace(&mut self.record, before);
        self.publish(next);
    }

    /// Waits until no client is on a generation below the record's, then removes those users.
    pub(crate) fn fence(&self, source: usize) {
        let generation = self.record.membership().nodes[source].generation.get();
        wait_until("the router has left the generation before", || {
            let list = self.servers[source].cli(&["CLIENT", "LIST"]);
            !(1..generation).any(|older| list.contains(&format!("user=cw-g{older} ")))
        });
        for older in 1..generation {
            self.servers[source].cli(&["ACL", "DELUSER", &format!("cw-g{older}")]);
        }
    }

    fn targets(&self, source: usize) -> Vec<usize> {
        let handoff = self
            .record
            .change()
            .unwrap()
            .handoff(&self.handoff(source))
            .unwrap();
        let view = self.view();
        handoff
            .targets
            .iter()
            .map(|id| view.index_of(id).unwrap().get())
            .collect()
    }

    pub(crate) fn flip(&mut self, source: usize) {
        let run = Incarnation {
            run_id: "run".parse().unwrap(),
            replication_id: "data".parse().unwrap(),
        };
        let targets = vec![run; self.targets(source).len()];
        self.step(source, &Step::Flip { targets });
    }

    /// Hands over everything that moves, source by source, as the rebalancer would: `copy` copies, and
    /// `work` says what clients have done, which must go on behind each flip.
    pub(crate) fn hand_over_all(
        &mut self,
        running: &AtomicBool,
        work: impl Fn(&Self) -> u64,
        copy: impl Fn(&Self, usize),
    ) {
        for source in 0..3 {
            self.begin_handover(source);
            self.fence(source);
            copy(self, source);
            self.flip(source);
            let before = work(self);
            wait_until("work goes on", || {
                work(self) > before || !running.load(Ordering::Relaxed)
            });
        }
        running.store(false, Ordering::Relaxed);
    }

    /// A key that moves from this source in the change in flight.
    pub(crate) fn moving_key(&self, source: usize, form: &str) -> String {
        let view = self.view();
        (0..)
            .map(|number| format!("{form}{number}"))
            .find(|key| {
                let moving = view.moving(view.position(key.as_bytes()));
                moving.is_some_and(|moving| moving.before.get() == source)
            })
            .unwrap()
    }

    /// A key that this node keeps.
    pub(crate) fn staying_key(&self, node: usize, form: &str) -> String {
        let view = self.view();
        (0..)
            .map(|number| format!("{form}{number}"))
            .find(|key| {
                let position = view.position(key.as_bytes());
                view.route(position).node.get() == node && view.moving(position).is_none()
            })
            .unwrap()
    }

    /// Where a key moves in the change in flight.
    fn moving(&self, key: &str) -> Option<(usize, usize)> {
        let view = self.view();
        let moving = view.moving(view.position(key.as_bytes()))?;
        Some((moving.before.get(), moving.after.get()))
    }

    /// Copies those of these strings that move from a source, as the rebalancer would.
    pub(crate) fn copy<'a>(&self, source: usize, keys: impl IntoIterator<Item = &'a String>) {
        let mut from = administrator(&self.servers[source]);
        let mut to: Vec<Client> = self.servers.iter().map(administrator).collect();
        for key in keys {
            let Some((before, after)) = self.moving(key) else {
                continue;
            };
            if before != source {
                continue;
            }
            if let Value::Bulk(value) = from.call(&["GET", key]) {
                assert_eq!(to[after].call(&[b"SET", key.as_bytes(), &value]), ok());
            }
        }
    }

    /// The same for values of all types.
    pub(crate) fn copy_whole(&self, source: usize, keys: &[String]) {
        let mut from = administrator(&self.servers[source]);
        let mut to: Vec<Client> = self.servers.iter().map(administrator).collect();
        for key in keys {
            let Some((before, after)) = self.moving(key) else {
                continue;
            };
            if before != source {
                continue;
            }
            if let Value::Bulk(dump) = from.call(&["DUMP", key]) {
                let restore = [&b"RESTORE"[..], key.as_bytes(), b"0", &dump, b"REPLACE"];
                assert_eq!(to[after].call(&restore), ok());
            }
        }
    }
}

#[test]
fn requests_for_moving_keys_are_held_and_everything_else_goes_on() {
    let mut pool = joining(patient());
    let (moving, staying, elsewhere) = (
        pool.moving_key(0, "m"),
        pool.staying_key(0, "s"),
        pool.staying_key(1, "e"),
    );
    let mut client = pool.client();
    for key in [&moving, &staying, &elsewhere] {
        assert_eq!(client.call(&["SET", key, "before"]), ok());
    }
    pool.begin_handover(0);
    let mut held = pool.client();
    held.send(&["GET", &moving]);
    held.send(&["SET", &moving, "after"]);
    held.send(&["GET", &moving]);
    wait_until("three requests are held", || pool.stats().held == 3);
    assert_eq!(client.call(&["GET", &staying]), bulk("before"));
    assert_eq!(client.call(&["SET", &staying, "after"]), ok());
    assert_eq!(client.call(&["GET", &elsewhere]), bulk("before"));
    pool.fence(0);
    assert!(
        pool.servers[0]
            .cli(&["CLIENT", "LIST"])
            .contains("user=cw-g2 ")
    );
    pool.copy(0, [&moving]);
    pool.flip(0);
    assert_eq!(
        (held.read(), held.read(), held.read()),
        (bulk("before"), ok(), bulk("after"))
    );
    assert_eq!(pool.servers[3].cli(&["GET", &moving]), "after");
    assert_eq!(pool.servers[0].cli(&["GET", &moving]), "before");
    let stats = pool.stats();
    assert_eq!(stats.held, 0);
}

#[test]
fn held_requests_go_back_to_the_source_when_the_handover_is_rolled_back() {
    let mut pool = joining(patient());
    let moving = pool.moving_key(0, "m");
    let mut client = pool.client();
    client.call(&["SET", &moving, "1"]);
    pool.begin_handover(0);
    client.send(&["INCR", &moving]);
    wait_until("it is held", || pool.stats().held == 1);
    pool.step(0, &Step::Rollback);
    assert_eq!(client.read(), Value::Integer(2));
    assert_eq!(pool.servers[0].cli(&["GET", &moving]), "2");
    // And again: the next handover has a generation of its own.
    pool.step(0, &Step::Verifying);
    pool.begin_handover_again(0);
    client.send(&["INCR", &moving]);
    wait_until("it is held", || pool.stats().held == 1);
    pool.fence(0);
    pool.copy(0, [&moving]);
    pool.flip(0);
    assert_eq!(client.read(), Value::Integer(3));
    assert_eq!(pool.servers[3].cli(&["GET", &moving]), "3");
}

#[test]
fn a_hold_lasts_a_second_at_most_and_ends_in_an_error_that_says_so() {
    let mut limits = patient();
    limits.traffic.hold = Limits::default().traffic.hold;
    let mut pool = joining(limits);
    let moving = pool.moving_key(0, "m");
    pool.begin_handover(0);
    let mut client = pool.client();
    wait_until("a hold ends after a second", || {
        let started = Instant::now();
        let Value::Error(text) = client.call(&["SET", &moving, "v"]) else {
            panic!("nobody owns it")
        };
        let waited = started.elapsed();
        assert!(
            text.starts_with("TRYAGAIN clockwise: node n0 is handing the key over"),
            "{text}"
        );
        assert!(waited > Duration::from_millis(900), "{waited:?}");
        waited < Duration::from_millis(2_000)
    });
    wait_until("it is counted", || pool.stats().hold_ms_max >= 1_000);
    pool.router().reset_hold();
    wait_until("it is forgotten", || pool.stats().hold_ms_max == 0);
    assert_eq!(pool.servers[0].cli(&["EXISTS", &moving]), "0");
}

#[test]
fn a_spread_request_waits_for_its_held_keys_and_is_split_anew_behind_the_flip() {
    let mut pool = joining(patient());
    let keys: Vec<String> = (0..3)
        .flat_map(|source| [pool.moving_key(source, "m"), pool.staying_key(source, "s")])
        .collect();
    let mut client = pool.client();
    let pairs: Vec<&str> = keys
        .iter()
        .flat_map(|key| [key.as_str(), key.as_str()])
        .collect();
    assert_eq!(client.call(&[&["MSET"], &pairs[..]].concat()), ok());
    pool.begin_handover(1);
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    client.send(&[&["MGET"], &names[..]].concat());
    client.send(&[&["EXISTS"], &names[..]].concat());
    client.send(&["DEL", names[2]]);
    client.send(&[&["MGET"], &names[..]].concat());
    wait_until("their parts are held", || pool.stats().held == 4);
    pool.fence(1);
    pool.copy(1, &keys);
    pool.flip(1);
    let mut values: Vec<Value> = names.iter().map(bulk).collect();
    assert_eq!(client.read(), Value::Array(values.clone()));
    assert_eq!(
        (client.read(), client.read()),
        (Value::Integer(6), Value::Integer(1))
    );
    values[2] = Value::Null;
    assert_eq!(client.read(), Value::Array(values));
}

#[test]
fn keys_that_were_together_are_held_together_and_told_when_they_are_apart() {
    let mut pool = joining(patient());
    let (moving, other, staying) = (
        pool.moving_key(0, "m"),
        pool.moving_key(0, "o"),
        pool.staying_key(0, "s"),
    );
    let mut client = pool.client();
    assert_eq!(client.call(&["SET", &moving, "v"]), ok());
    // Nothing has moved yet: the three are together.
    assert_eq!(client.call(&["RENAME", &moving, &staying]), ok());
    assert_eq!(client.call(&["RENAME", &staying, &moving]), ok());
    pool.begin_handover(0);
    client.send(&["RENAME", &moving, &other]);
    client.send(&["RENAME", &other, &staying]);
    wait_until("both are held", || pool.stats().held == 2);
    pool.fence(0);
    pool.copy(0, [&moving]);
    pool.flip(0);
    assert_eq!(client.read(), ok());
    let Value::Error(text) = client.read() else {
        panic!("they are apart now")
    };
    assert!(text.starts_with("CROSSSLOT "), "{text}");
    assert_eq!(client.call(&["GET", &other]), bulk("v"));
}

#[test]
fn a_scan_over_a_flip_begins_again_and_misses_nothing() {
    let mut pool = leaving();
    let mut client = pool.client();
    let mut expected: Vec<String> = (0..300).map(|number| format!("key:{number}")).collect();
    for key in &expected {
        assert_eq!(client.call(&["SET", key, "v"]), ok());
    }
    let mut found = Vec::new();
    let mut cursor = "0".to_owned();
    let mut page = |client: &mut Client, cursor: &str| {
        let page = client.call(&["SCAN", cursor, "COUNT", "20"]);
        let [next, keys] = page.as_array().unwrap() else {
            panic!("{page:?}")
        };
        found.extend(
            keys.as_array()
                .unwrap()
                .iter()
                .map(|key| key.as_text().unwrap().to_owned()),
        );
        next.as_text().unwrap().to_owned()
    };
    for _ in 0..8 {
        cursor = page(&mut client, &cursor);
    }
    pool.begin_handover(2);
    pool.fence(2);
    pool.copy(2, &expected);
    pool.flip(2);
    let mut pages = 0;
    while cursor != "0" {
        cursor = page(&mut client, &cursor);
        pages += 1;
        assert!(pages < 200, "it never ends");
    }
    found.sort();
    found.dedup();
    expected.sort();
    assert_eq!(found, expected);
}

/// Counts up keys of its own until told to stop; what was acknowledged, and what was refused.
fn count_up(
    router: SocketAddr,
    keys: &[String],
    running: &AtomicBool,
) -> (BTreeMap<String, i64>, Vec<Value>) {
    let mut client = Client::connect(router);
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    let mut refused = Vec::new();
    while running.load(Ordering::Relaxed) {
        let mut batch = Vec::new();
        keys.iter()
            .for_each(|key| write_command(&mut batch, &["INCR", key]));
        client.raw(&batch);
        for key in keys {
            match client.read() {
                Value::Integer(count) => {
                    let known = counts.entry(key.clone()).or_default();
                    *known += 1;
                    assert_eq!(
                        count, *known,
                        "{key}: an acknowledged count is lost or repeated"
                    );
                }
                other => refused.push(other),
            }
        }
    }
    (counts, refused)
}

#[test]
fn counters_lose_nothing_while_their_keys_are_handed_over() {
    let mut pool = joining(patient());
    let keys = |writer: usize| -> Vec<String> {
        (0..60)
            .map(|number| format!("w{writer}:{number}"))
            .collect()
    };
    let all: Vec<String> = (0..4).flat_map(keys).collect();
    let running = AtomicBool::new(true);
    let router = pool.addr();
    let results: Vec<(BTreeMap<String, i64>, Vec<Value>)> = thread::scope(|scope| {
        let running = &running;
        let _stop = Stop(running);
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                scope.spawn(move || {
                    let _stop = Stop(running);
                    count_up(router, &keys(writer), running)
                })
            })
            .collect();
        let work = |pool: &Pool| pool.stats().requests / 2_000;
        pool.hand_over_all(running, work, |pool, source| pool.copy(source, &all));
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    let mut moved = 0;
    for (counts, refused) in results {
        assert_eq!(refused, []);
        for (key, count) in counts {
            let owner = pool.owner(&key);
            assert_eq!(
                pool.servers[owner].cli(&["GET", &key]),
                count.to_string(),
                "{key} on n{owner}"
            );
            moved += usize::from(owner == 3);
        }
    }
    assert!(moved > 20, "{moved} of 240 keys moved");
}
